"""FAPS: consensus on subspaces by an ADMM-like splitting, in d x p memory.

The server half is three lines: it sums, orthonormalises, and watches how far the subspace moves.
The work is in the client half, which keeps a subspace, a multiplier and a penalty from round to
round, and begins anew where it finds no memory of the right shape.

How fast it can be. Let all clients be alike and at consensus, and their inner problems be solved
exactly. With b the sum of the penalties and g = l_k - l_(k+1), the part z of Z in the direction
k + 1, and that of all X_i, x, go on as x <- (g x + b z) / (g + b), z <- (1 - g / b) x. So the angle
falls by b / (b + g) a round, where SSI's falls by l_(k+1) / l_k: at best
`pace` = ln(1 + g / b) / ln(l_k / l_(k+1)) times as fast, with b = 0.15 l_1 by the paper's
penalties. It falls from l_k / b, where gaps are small, to 0, where they are large.

FAPS with two measured penalties, for clients that are unlike: a client's round.

The paper has one penalty beta for two things: how firmly a client's subspace is held to the
consensus, and how long its step is. Clients whose own directions outweigh the common ones need a
firm hold, which makes short steps. Here, with d the largest eigenvalue of C_i outside of span(Z),
Z'C_iZ = Q diag(a) Q' and A = X'C_iX,

  delta = max(0, 1 - min(a) / d) says how unlike the client is,
  t = .15 + .6 delta, kappa = 2 + 2 delta;
  the hold is B = Q diag(max(t a, kappa (d - a))) Q', so that Z leads in C_i + ZBZ';
  the step is t A.

At consensus sum Y_i = Z sum t A_i + (I - ZZ') C Z: the pooled subspace is a fixed point. A guard
phi in [0, 1) from the server, 0 where it is not needed, takes t to 1 and kappa to infinity: then a
round is one of SSI.

Past: blocks of earlier rounds, for what they say of the direction beside the newest one.

An iteration forgets last the eigenvector that follows the wanted ones, so what an earlier block has
outside of the newest one points there. The earlier block must lie far enough back for the
difference not to be rounding: of round t one of rounds t / 4 to t / 2 is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Iterative, Movement, Progress, stirred
from flower_pca.core.kinds import BASIS, POSITIVE, STEPS, Ask, Kind, Part, number
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

_APART = 1e-5  # the sine from which a block is replaced by a newer one
_SEEN = 1e-12  # the sine from which a difference is more than rounding


@dataclass(frozen=True)
class Past:
    """The blocks of two rounds, the older one about half as many rounds old as the iteration."""

    older: Array | None = None
    newer: Array | None = None
    rounds: int = 0

    def after(self, Z: Array) -> Past:
        """Add a block. It is kept if its number is a power of two and the last kept block is no longer near."""
        rounds = self.rounds + 1
        early = rounds & (rounds - 1)
        if self.newer is not None and (early or linalg.sin_theta(self.newer, Z) < _APART):
            return replace(self, rounds=rounds)
        return Past(self.newer, Z, rounds)

    def beside(self, Z: Array) -> Array | None:
        """Return a direction orthogonal to Z, (d, 1), or None if the blocks show none."""
        for block in (self.older, self.newer):
            if block is not None:
                U, s, _ = np.linalg.svd(linalg.complement(block, Z), full_matrices=False)
                if s[0] > _SEEN:
                    return np.ascontiguousarray(U[:, :1])
        return None


# 0.15 is the paper's. In a direction that clients do not share a step overshoots by 1 / t, so for
# the most unlike t is above a half.
_STEP, _STEP_UNLIKE = 0.15, 0.6
# What is stronger by b outside of Z than within is multiplied by b / (hold - b) in a round: it does
# not grow where the hold is twice b or more.
_HOLD, _HOLD_UNLIKE = 2.0, 2.0
_OUTSIDE, _POWERS = 4, 3  # columns that look for d, and their power steps in a round
# rounds after which the guard may rise, when, and to what
_EVERY, _STUCK, _MOST = 20, 0.9, 0.99


def answer(Z: Array, data: LocalData, memory: Arrays, *, steps: int, tol: float, guard: float) -> tuple[Arrays, Arrays]:
    """Return what a client sends and keeps: X_i, W_i, and the columns that look for d."""
    product = _products(data, steps)
    # a newcomer, or a node that has lost its memory
    if memory.get("X", Z[:, :0]).shape != Z.shape:
        width = min(_OUTSIDE, len(Z) - Z.shape[1])
        v = linalg.random_basis(len(Z), width, seed=0)
        memory = {"X": Z, "W": _multiplier(product, Z), "v": v}
    d, v = _outside(product, Z, memory["v"])
    a, Q = linalg.eigh_descending(Z.T @ product(Z))
    # Rounding leaves eigenvalues below 0 where a client has fewer rows than Z has columns.
    a = np.maximum(a, 0.0)
    unlike = 0.0
    # It is 0 where Z spans all columns, or all of the client's rows: then nothing is unlike.
    if d > 0.0:
        unlike = max(0.0, 1.0 - float(a[-1]) / d)
    t = _STEP + _STEP_UNLIKE * unlike
    t += guard * (1.0 - t)
    # Neither the server nor a message takes the guard beyond _MOST, so this is no division by 0.
    hold = (_HOLD + _HOLD_UNLIKE * unlike) / (1.0 - guard)
    weights = np.maximum(t * a, hold * (d - a))
    B = (Q * weights) @ Q.T
    V = _solve(product, memory, lambda V: Z @ (B @ (Z.T @ V)), steps=steps, tol=tol)
    CV = product(V)
    A = V.T @ CV
    W = V @ A - CV
    along = V.T @ Z
    Y = t * (V @ (A @ along)) - V @ (W.T @ Z) - W @ along
    return {"Y": Y}, {"X": V, "W": W, "v": v}


def next_guard(guard: float, sines: tuple[float, ...], rounds: int) -> float:
    """The guard after so many rounds, from the newest steps' sines: it rises while they stay."""
    if rounds % _EVERY or len(sines) < 2 * _EVERY:
        return guard
    if min(sines[-_EVERY:]) <= _STUCK * min(sines[-2 * _EVERY : -_EVERY]):
        return guard
    return min(_MOST, guard + (1.0 - guard) / 4.0)


def _outside(product: Callable[[Array], Array], Z: Array, v: Array) -> tuple[float, Array]:
    """Estimate d by a few block power steps from v, never above the true value."""
    if not v.shape[1]:
        return 0.0, v
    v = linalg.orth(linalg.complement(v, Z))
    # `orth` makes short columns as long as 1, and with them what rounding has left along Z in them:
    # so Z is taken out again before and after each product.
    for _ in range(_POWERS - 1):
        v = linalg.orth(linalg.complement(product(linalg.complement(v, Z)), Z))
    v = linalg.complement(v, Z)
    image = linalg.complement(product(v), Z)
    values, ritz = linalg.eigh_descending(v.T @ image)
    # `orth` fills zeros up with columns of its own: v stays as it is, and goes on.
    if image.any():
        v = linalg.orth(image @ ritz)
    return max(float(values[0]), 0.0), v


_BETA_0: Final = (1e-6, 100.0)  # the first penalty, at least and at most
_WINDOW: Final = 5  # rounds after which the paper's penalty may grow


@dataclass(frozen=True)
class PaperRule:
    """The paper's rule for a client's penalty.

    Attributes
    ----------
    beta_0 : float
        The first one, as a share of the largest eigenvalue of C_i.
    theta : float
        By which share it grows.
    mu : float
        By which share the distance to consensus must have fallen, over _WINDOW rounds, for it not to grow.
    """

    beta_0: float = 0.15
    theta: float = 0.1
    mu: float = 0.01

    @classmethod
    def read(cls, arrays: Mapping[str, Array]) -> PaperRule:
        """Read the rule from a message. Values that it lacks are the paper's."""
        paper = cls()
        return cls(**{name: float(arrays.get(name, value)) for name, value in vars(paper).items()})

    @property
    def service(self) -> dict[str, float]:
        """The values that differ from the paper's, which a message has to contain."""
        paper = vars(PaperRule())
        return {name: value for name, value in vars(self).items() if value != paper[name]}

    def next(self, beta: float, distances: Array) -> tuple[float, Array]:
        """The penalty of this round, from the distances to consensus so far; and those of them that still count."""
        # Five rounds lie between six distances.
        if len(distances) <= _WINDOW:
            return beta, distances
        if distances[-1] > distances[0] / (1.0 + self.mu):
            beta = (1.0 + self.theta) * beta
        return beta, distances[-1:]


@dataclass(frozen=True)
class FAPSState:
    """The consensus Z, the sines of its last steps, the newest sum's largest entry, earlier Z.

    Of measured penalties the guard, if there may be one; else whether the paper's have taken their
    place.
    """

    Z: Array
    movement: Movement
    progress: Progress
    guard: float = 0.0
    guarded: bool = False
    sines: tuple[float, ...] = ()
    size: float = 0.0
    past: Past = field(default_factory=Past)
    papers: bool = False


@dataclass(frozen=True, kw_only=True)
class FAPS(Iterative[FAPSState]):
    """Compute the exact PCA of all rows without sending a product of any client's covariance.

    Every client keeps a subspace X_i of its own and a low-rank multiplier. The server only sums.

    By the paper's rule a client, with beta_i = 0.15 ||C_i||_2 and W_i = -(I - X_i X_i')C_i X_i at
    the start, a round:
      X_i <- top eigenspace of H = C_i + X_i W_i' + W_i X_i' + beta_i ZZ', by warm subspace
        iteration;
      W_i <- -(I - X_i X_i')C_i X_i;
      sends Y_i = beta_i X_i(X_i'Z) - X_i(W_i'Z) - W_i(X_i'Z).
    The server: Z <- orth(sum Y_i). At consensus a round is a step 1 / 0.15 = 6.7 times longer than
    one of SSI, if the inner problem is solved well: with one inner step it is as slow as SSI. That
    is of the first eigenvalue; where the wanted ones are small beside it, a round is a shorter step
    than SSI's: see `pace`. beta_i grows by a tenth when the distance between X_i and Z has not
    fallen by one percent within five rounds. Where clients differ so much that a client's own
    directions outweigh 0.15 ||C_i||_2, the penalties grow for hundreds of rounds before the
    consensus holds, or without end.

    So by default, penalty="measured", two penalties are found from the rows in every round. Where
    the steps of such a run no longer fall, the server has all clients take longer ones, up to
    SSI's, whose answers are products C_i Z; so only under masks, which hide them. Without masks the
    run goes on by the paper's rule, where nothing has been gained in half of `patience` rounds. By
    that rule steps get shorter as penalties grow, which is no progress: a run by it gives up where
    the angle still to go has not fallen for `patience` rounds. Where only a fraction of the clients
    is asked, clients that are alike take 1.7 to 10 times as many rounds by measured penalties;
    clients of fewer rows than columns up to 6 times as many, and a few runs stall that converge by
    the paper's.

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component
    analysis", 2022.
    Cost per round: 4 (inner_steps + 1) n_i d p flops on a client, p columns of d floats each way, and
    2 d p^2 flops on the server.
    Prefer it: if the server sees the answers of single clients, but must not be able to compute a
    client's covariance from them.

    Parameters
    ----------
    inner_steps : int, default=10
        Subspace iterations of the inner problem.
    inner_tol : float or None, default=None
        If given, the inner iteration also ends when its subspace moves by at most this.
    penalty : {"measured", "paper"}, default="measured"
        "measured" from the rows in every round, or "paper": the paper's rule.
    beta_0 : float, default=0.15
        Of the paper's penalties, the first one as a share of the largest eigenvalue of C_i.
    theta : float, default=0.1
        By which share they grow.
    mu : float, default=0.01
        By which share the distance to consensus must have fallen, over five rounds, for them not to grow.
    oversample : int, default=0
        Columns that the algorithm iterates beyond `n_components`.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        The fewest rounds before the run may end.
    max_rounds : int, default=2000
        The most rounds that the run may take.
    patience : int, default=200
        The run ends as stalled when its error has not fallen for so many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import FAPS, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(FAPS(tol=1e-4), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "faps"
    asks: ClassVar[Mapping[str, Ask]] = {
        "Z": BASIS,
        "inner_steps": STEPS,
        "inner_tol": POSITIVE,
        "guard": number(0, 0.99),
        "beta_0": number(*_BETA_0),
        "theta": number(0, 1),
        "mu": number(0, 1),
    }
    remembers: ClassVar[bool] = True
    tolerant: ClassVar[bool] = False
    by_power: ClassVar[bool] = True
    ends_by_angle: ClassVar[bool] = True
    quantity: ClassVar[str] = "angle still to go"

    # With one of them a round gets no further than SSI's; an exact solver needs as many rounds as
    # ten.
    inner_steps: int = 10
    inner_tol: float | None = None
    penalty: str = "measured"
    beta_0: float = PaperRule.beta_0
    theta: float = PaperRule.theta
    mu: float = PaperRule.mu
    max_rounds: int = 2000
    patience: int = 200  # the angle rises while penalties still grow

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("inner_steps of faps", self.inner_steps, least=1)
        if self.inner_tol is not None:
            checks.number("inner_tol of faps", self.inner_tol, least=0.0)
        checks.choice("penalty of faps", self.penalty, ("paper", "measured"))
        checks.number("beta_0 of faps", self.beta_0, least=_BETA_0[0], most=_BETA_0[1], remedy="Try 0.15.")
        checks.number("theta of faps", self.theta, least=0.0, most=1.0, remedy="Try 0.1.")
        checks.number("mu of faps", self.mu, least=0.0, most=1.0, remedy="Try 0.01.")
        if self.penalty != "paper" and self._rule.service:
            raise ConfigError(
                f"faps with penalty={self.penalty!r} has no use for {', '.join(self._rule.service)}, because only the "
                'penalties of the paper have such settings. Leave them out, or use penalty="paper".'
            )

    @property
    def _rule(self) -> PaperRule:
        return PaperRule(self.beta_0, self.theta, self.mu)

    def start(self, model: Model) -> FAPSState:
        progress = Progress.begin(self.tol, model)
        if model.again and model.earlier is not None and model.earlier.angle is not None:
            progress = progress.step(model.earlier.angle, rounds=0)
        return FAPSState(
            stirred(model.power_start(), model, self.tol),
            Movement(),
            progress,
            guarded=model.summed,
            papers=self.penalty == "paper",
        )

    def broadcast(self, state: FAPSState) -> Arrays:
        numbers = {"inner_tol": self.inner_tol or 0.0, **self._rule.service}
        if not state.papers:
            numbers["guard"] = state.guard
        arrays = {name: np.array(value) for name, value in numbers.items()}
        return {"Z": state.Z, "inner_steps": np.array(self.inner_steps), **arrays}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.ESTIMATE)}

    def bounds(self, state: FAPSState, model: Model) -> Mapping[str, Array | float]:
        """Penalties grow from round to round, without end where no consensus is found: so the newest sum counts too."""
        return {"Y": MARGIN * max(model.trace, float(model.n), state.size)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        Z = arrays["Z"]
        if Z.shape[1] > len(Z):
            raise ProtocolError(f"Z of a message must be of at most {len(Z)} columns, and has {Z.shape[1]}.")
        steps = int(arrays["inner_steps"])
        tol = float(arrays["inner_tol"])
        if "guard" in arrays:
            return answer(Z, data, memory, steps=steps, tol=tol, guard=float(arrays["guard"]))
        rule, product = PaperRule.read(arrays), _products(data, steps)
        # a newcomer, or a node that has lost its memory
        if memory.get("X", Z[:, :0]).shape != Z.shape or "beta" not in memory:
            # By measured penalties X and W are kept but no beta, and such a run may go over to the
            # paper's.
            first = np.array(rule.beta_0 * data.norm2())
            memory = {"X": Z, "W": _multiplier(product, Z), "beta": first, "distances": np.empty(0)}
        distances = np.append(memory["distances"], linalg.projection_distance(memory["X"], Z))
        beta, distances = rule.next(float(memory["beta"]), distances)
        V = _solve(product, memory, lambda V: beta * (Z @ (Z.T @ V)), steps=steps, tol=tol)
        W = _multiplier(product, V)
        along = V.T @ Z
        Y = beta * (V @ along) - V @ (W.T @ Z) - W @ along
        return {"Y": Y}, {"X": V, "W": W, "beta": np.array(beta), "distances": distances}

    def server(self, state: FAPSState, total: Arrays, answered: frozenset[int]) -> FAPSState:
        Z = linalg.orth(total["Y"])
        # Where the sum is short of rank, Z is filled up with columns that are no movement.
        moved = state.movement.add(state.Z, linalg.spanning(total["Y"]))
        sines = (*state.sines, moved.newest)[-2 * _EVERY :]  # Only as many as the guard looks at.
        measure = moved.newest
        if state.papers:
            # steps get shorter as penalties grow, wherever they lead
            # An infinite measure counts as progress: cut to 1, the largest sine, it does not.
            measure = min(moved.remaining, 1.0)
        progress = state.progress.step(moved.remaining, measure)
        state = replace(
            state,
            Z=Z,
            movement=moved,
            progress=progress,
            sines=sines,
            size=float(np.abs(total["Y"]).max()),
            past=state.past.after(Z),
        )
        if state.guarded:
            return replace(state, guard=next_guard(state.guard, sines, progress.rounds))
        if not state.papers and progress.stale >= self.patience // 2:
            # The least measure so far is of another kind than those by the paper's rule.
            return replace(state, papers=True, progress=replace(progress, best=np.inf, stale=0))
        return state

    def status(self, state: FAPSState) -> Status | None:
        return self._with_remedy(super().status(state))

    def verify(self, model: Model) -> Status | None:
        status = super().verify(model)
        if status is not model.status:  # The new status has its remedy.
            status = self._with_remedy(status)
        if status is None or self.penalty != "paper":
            return status
        return replace(status, words=status.words + self._slowness(model))

    def _slowness(self, model: Model) -> str:
        """Of eigenvalues with which SSI is faster, what to say after a status; else ""."""
        if model.values is None or not 0 < model.k < model.d or not model.values[model.k - 1] > 0.0:
            return ""
        last = float(model.values[model.k - 1])
        penalty = self.beta_0 * float(model.values[0])
        share = pace(last, model.next_value, penalty=penalty)
        if share >= 1.0:
            return ""
        return f"; with these eigenvalues faps is at best {share:.2g} times as fast as ssi: ssi and krylov are faster"

    def _with_remedy(self, status: Status | None) -> Status | None:
        if status is None or status.ok:
            return status
        remedy = "krylov"
        if self.penalty != "measured":
            remedy = 'penalty="measured" if clients are unlike, or krylov'
        return replace(status, words=f"{status.words}: use {remedy}")

    def unsent(self, state: FAPSState) -> Array:
        return state.Z

    def finish(self, state: FAPSState, model: Model) -> Model:
        return replace(model, basis=state.Z, product=None, beside=state.past.beside(state.Z))


def pace(last: float, following: float | None, *, penalty: float) -> float:
    """Return the largest speed of FAPS relative to SSI, in rounds: ln(1 + g / b) / ln(l_k / l_(k+1)).

    Parameters
    ----------
    last : float
        l_k, the last eigenvalue that is wanted.
    following : float or None
        l_(k+1), the next one; None if it is not known: then the gap g counts as small, which is no less.
    penalty : float
        b, the sum of the clients' penalties: 0.15 l_1 of the paper's first ones, where clients are alike.
    """
    if following is None or following >= last:
        return last / penalty
    # If the rows span no more directions, what follows is rounding.
    following = max(following, float(np.finfo(float).eps) * last)
    gained, ratio = (last - following) / penalty, last / following
    return float(np.log1p(gained) / np.log(ratio))


def _products(data: LocalData, steps: int) -> Callable[[Array], Array]:
    """Return the function V -> C_i V, which a round calls several times for this many inner steps."""

    def product(V: Array) -> Array:
        return data.matmat(V, reuse=4 * (steps + 1)).astype(np.float64)

    return product


def _multiplier(product: Callable[[Array], Array], X: Array) -> Array:
    """Return W = -(I - XX') C X. The multiplier of the consensus is XW' + WX', which is never formed."""
    CX = product(X)
    return np.asarray(X @ (X.T @ CX) - CX)


def _solve(
    product: Callable[[Array], Array], memory: Arrays, hold: Callable[[Array], Array], *, steps: int, tol: float
) -> Array:
    """Return the top eigenspace of H = C_i + XW' + WX' + the penalty, by subspace iteration from X."""
    V = X = memory["X"]
    W = memory["W"]
    for _ in range(steps):
        H = product(V) + X @ (W.T @ V)
        H = H + W @ (X.T @ V) + hold(V)
        V, before = linalg.orth(H), V
        # The paper looks at the basis, whose columns may go on turning where the subspace is at
        # rest.
        if tol > 0.0 and linalg.sin_theta(before, V) <= tol:
            break
    return V
