"""FAPS: consensus on subspaces by an ADMM-like splitting, in d x p memory.

The server sums the answers, orthonormalizes the sum and measures how far the subspace moves. Each
client keeps a subspace, a multiplier and a penalty from round to round. If a client's memory is lost
or has the wrong shape, the client starts from the server's subspace.

Speed. Assume that all clients have the same covariance and have reached consensus, and that they solve
their inner problems exactly. Let l_1 >= l_2 >= ... be the eigenvalues, b the sum of the penalties, and
g = l_k - l_(k+1). Let z be the component of Z along eigenvector k + 1, and x the same component of the
X_i. A round maps x to (g x + b z) / (g + b), and z to (1 - g / b) x. So each round of FAPS multiplies
the angle by b / (b + g), and each round of SSI by l_(k+1) / l_k. FAPS is at best
`speed_relative_to_ssi` = ln(1 + g / b) / ln(l_k / l_(k+1)) times as fast as SSI, with b = 0.15 l_1 for the paper's
penalties. This ratio is l_k / b for small gaps, and approaches 0 for large gaps.

Measured penalties (penalty="measured"), for clients that differ. The paper uses one penalty beta for
two purposes: how firmly a client's subspace is held to the consensus, and how long its step is. If a
client's own directions outweigh the common ones, its subspace must be held firmly, which makes the
paper's steps short. Measured penalties separate the two purposes. With d the largest eigenvalue of C_i
outside span(Z), Z'C_iZ = Q diag(a) Q' and A = X'C_iX:

  delta = max(0, 1 - min(a) / d) measures how much the client differs from the consensus,
  t = .15 + .6 delta, kappa = 2 + 2 delta,
  B = Q diag(max(t a, kappa (d - a))) Q' holds X to the consensus, so that Z leads in C_i + ZBZ',
  t A is the weight of Z in the answer: a smaller t gives a longer step.

At consensus sum Y_i = Z sum t A_i + (I - ZZ') C Z, so the pooled subspace is a fixed point. The server
may send a guard phi in [0, 1), which moves t towards 1 and kappa towards infinity. In the limit, a
round equals a round of SSI.

`EarlierBlocks` keeps blocks of earlier rounds, because the server uses them to estimate the first unwanted
eigenvector. Of all unwanted eigenvectors, this eigenvector vanishes from the blocks most slowly. So the
part of an earlier block outside the newest block points along this eigenvector. The earlier block must
be old enough for the difference to exceed rounding errors: in round m, `EarlierBlocks` holds a block from a round
between m / 4 and m / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import OTHER_SERVER, ConfigError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Iterative, Progress, SubspaceMovement, mixed_with_other_directions
from flower_pca.core.kinds import BASIS, POSITIVE, STEPS, ArrayRule, Kind, Part, number_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

_LEAST_SINE = 1e-5  # the smallest sine between a kept block and the block that replaces it
_ROUNDING_SINE = 1e-12  # a sine below which the difference between two blocks is only rounding error


@dataclass(frozen=True)
class EarlierBlocks:
    """The blocks of two earlier rounds: `older` has about half the round number of `newer`."""

    older: Array | None = None
    newer: Array | None = None
    rounds: int = 0

    def after_round(self, Z: Array) -> EarlierBlocks:
        """Return the `EarlierBlocks` after one more round, which ended with the block Z.

        Z is kept only if the number of the round is a power of two, and if Z differs from the last block
        that was kept.
        """
        rounds = self.rounds + 1
        early = rounds & (rounds - 1)
        if self.newer is not None and (early or linalg.sin_theta(self.newer, Z) < _LEAST_SINE):
            return replace(self, rounds=rounds)
        return EarlierBlocks(self.newer, Z, rounds)

    def direction_outside(self, Z: Array) -> Array | None:
        """Return the direction in which an earlier block differs most from Z, as a column orthogonal to Z.

        Return None if no earlier block differs from Z by more than rounding errors.
        """
        for block in (self.older, self.newer):
            if block is not None:
                U, s, _ = np.linalg.svd(linalg.complement(block, Z), full_matrices=False)
                if s[0] > _ROUNDING_SINE:
                    return np.ascontiguousarray(U[:, :1])
        return None


# The paper's penalty is 0.15. A step overshoots by the factor 1 / t in directions that clients do not share, so t
# exceeds a half for the clients that differ most.
_STEP, _STEP_UNLIKE = 0.15, 0.6
# If a direction outside Z has an eigenvalue that exceeds an eigenvalue within Z by b, each round multiplies this
# direction by b / (hold - b), where hold is the penalty. The direction does not grow if hold is at least 2 b.
_HOLD, _HOLD_UNLIKE = 2.0, 2.0
# The largest eigenvalue outside Z is estimated from this many columns, by this many power steps in a round.
_OUTSIDE_COLUMNS, _POWER_STEPS = 4, 3
# The guard rises every _GUARD_ROUNDS rounds if the smallest sine of these rounds is above _STUCK_SHARE times the
# smallest sine of the _GUARD_ROUNDS rounds before. It never exceeds _MOST_GUARD.
_GUARD_ROUNDS, _STUCK_SHARE, _MOST_GUARD = 20, 0.9, 0.99


def answer(Z: Array, data: LocalData, memory: Arrays, *, steps: int, tol: float, guard: float) -> tuple[Arrays, Arrays]:
    """Return a client's answer with measured penalties, and its new memory.

    The memory holds X_i, W_i, and the columns v, from which d is estimated (see the module's docstring).
    """
    product = _product_function(data, steps)
    # A new client, or a node that has lost its memory, starts from Z.
    if memory.get("X", Z[:, :0]).shape != Z.shape:
        width = min(_OUTSIDE_COLUMNS, len(Z) - Z.shape[1])
        v = linalg.random_basis(len(Z), width, seed=0)
        memory = {"X": Z, "W": _multiplier(product, Z), "v": v}
    d, v = _largest_eigenvalue_outside(product, Z, memory["v"])
    a, Q = linalg.eigh_descending(Z.T @ product(Z))
    # If a client has fewer rows than Z has columns, rounding makes some eigenvalues negative.
    a = np.maximum(a, 0.0)
    unlike = 0.0
    # d is 0 if Z spans all columns, or all of the client's rows.
    if d > 0.0:
        unlike = max(0.0, 1.0 - float(a[-1]) / d)
    t = _STEP + _STEP_UNLIKE * unlike
    t += guard * (1.0 - t)
    # The guard is at most _MOST_GUARD, so this never divides by 0.
    hold = (_HOLD + _HOLD_UNLIKE * unlike) / (1.0 - guard)
    weights = np.maximum(t * a, hold * (d - a))
    B = (Q * weights) @ Q.T
    V = _top_eigenspace(product, memory, lambda V: Z @ (B @ (Z.T @ V)), steps=steps, tol=tol)
    CV = product(V)
    A = V.T @ CV
    W = V @ A - CV
    along = V.T @ Z
    Y = t * (V @ (A @ along)) - V @ (W.T @ Z) - W @ along
    return {"Y": Y}, {"X": V, "W": W, "v": v}


def next_guard(guard: float, sines: tuple[float, ...], rounds: int) -> float:
    """Return the guard after this many rounds. The guard rises if the sines of the latest steps no longer fall."""
    if rounds % _GUARD_ROUNDS or len(sines) < 2 * _GUARD_ROUNDS:
        return guard
    if min(sines[-_GUARD_ROUNDS:]) <= _STUCK_SHARE * min(sines[-2 * _GUARD_ROUNDS : -_GUARD_ROUNDS]):
        return guard
    return min(_MOST_GUARD, guard + (1.0 - guard) / 4.0)


def _largest_eigenvalue_outside(product: Callable[[Array], Array], Z: Array, v: Array) -> tuple[float, Array]:
    """Estimate d, the largest eigenvalue of C_i outside span(Z), by a few block power steps from v.

    Return the estimate, which never exceeds the true value, and the columns from which the next round continues.
    """
    if not v.shape[1]:
        return 0.0, v
    v = linalg.orth(linalg.complement(v, Z))
    # `orth` scales short columns up to length 1, together with their rounding errors along Z. So Z is removed
    # again before and after each product.
    for _ in range(_POWER_STEPS - 1):
        v = linalg.orth(linalg.complement(product(linalg.complement(v, Z)), Z))
    v = linalg.complement(v, Z)
    image = linalg.complement(product(v), Z)
    values, ritz = linalg.eigh_descending(v.T @ image)
    # `orth` replaces zero columns by arbitrary ones, so v is kept if the image is zero.
    if image.any():
        v = linalg.orth(image @ ritz)
    return max(float(values[0]), 0.0), v


_BETA_0: Final = (1e-6, 100.0)  # limits of the first penalty
_WINDOW: Final = 5  # number of rounds after which the paper's penalty may grow


@dataclass(frozen=True)
class PaperRule:
    """The paper's rule for a client's penalty.

    Attributes
    ----------
    beta_0 : float
        The first penalty, as a share of the largest eigenvalue of C_i.
    theta : float
        The share by which the penalty grows.
    mu : float
        The penalty grows unless the distance to consensus has fallen by this share over _WINDOW rounds.
    """

    beta_0: float = 0.15
    theta: float = 0.1
    mu: float = 0.01

    @classmethod
    def from_message(cls, arrays: Mapping[str, Array]) -> PaperRule:
        """Return the rule from a message. A value that the message does not contain is taken from the paper."""
        paper = cls()
        return cls(**{name: float(arrays.get(name, value)) for name, value in vars(paper).items()})

    @property
    def values_to_send(self) -> dict[str, float]:
        """The values that differ from the paper's values, and must therefore be sent with each message."""
        paper = vars(PaperRule())
        return {name: value for name, value in vars(self).items() if value != paper[name]}

    def next_penalty(self, beta: float, distances: Array) -> tuple[float, Array]:
        """Return the penalty of this round, and the distances to consensus that the next decision needs."""
        # Six distances cover five rounds.
        if len(distances) <= _WINDOW:
            return beta, distances
        if distances[-1] > distances[0] / (1.0 + self.mu):
            beta = (1.0 + self.theta) * beta
        return beta, distances[-1:]


@dataclass(frozen=True)
class FAPSState:
    """The state of the server between two rounds of `FAPS`.

    Attributes
    ----------
    Z : ndarray
        The basis of the consensus subspace.
    movement : SubspaceMovement
        The sines of the latest steps, from which the remaining angle is estimated.
    progress : Progress
        The number of rounds, and the error.
    guard : float
        The guard of measured penalties.
    guarded : bool
        Whether the guard may rise.
    sines : tuple of float
        The latest sines, from which `next_guard` computes the guard.
    size : float
        The largest absolute entry of the latest sum.
    past : EarlierBlocks
        Blocks of earlier rounds.
    papers : bool
        Whether clients use the paper's penalties.
    """

    Z: Array
    movement: SubspaceMovement
    progress: Progress
    guard: float = 0.0
    guarded: bool = False
    sines: tuple[float, ...] = ()
    size: float = 0.0
    past: EarlierBlocks = field(default_factory=EarlierBlocks)
    papers: bool = False


@dataclass(frozen=True, kw_only=True)
class FAPS(Iterative[FAPSState]):
    """Compute the exact PCA of all rows, with answers that are not products with a client's covariance matrix.

    Each client i keeps a basis X_i of its own subspace and a low-rank multiplier W_i. The server only
    sums the clients' answers. C_i is the client's sum of x x' over its rows.

    With penalty="paper", a client starts with X_i = Z, W_i = -(I - X_i X_i')C_i X_i and beta_i = 0.15 ||C_i||_2.
    In each round
      each client computes
        X_i <- the top eigenspace of C_i + X_i W_i' + W_i X_i' + beta_i ZZ', by warm subspace iteration,
        W_i <- -(I - X_i X_i')C_i X_i,
        and sends Y_i = beta_i X_i(X_i'Z) - X_i(W_i'Z) - W_i(X_i'Z);
      the server computes Z <- orth(sum Y_i).

    If the inner problems are solved well, a round close to consensus takes a step up to 1 / 0.15 = 6.7
    times as long as a round of SSI. With one inner step, FAPS is as slow as SSI. If the wanted
    eigenvalues are small compared with the first one, a round of FAPS takes a shorter step than a round
    of SSI: see `speed_relative_to_ssi`. beta_i grows by a tenth if the distance between X_i and Z has not fallen by one
    percent within five rounds. If clients differ so much that a client's own directions outweigh 0.15
    ||C_i||_2, the penalties grow for hundreds of rounds before the clients reach consensus, or they grow
    forever.

    Therefore the default is penalty="measured": each client computes two penalties from its rows in
    every round. If the steps of the run stop shrinking, the server makes all clients take shorter and
    safer steps, down to the steps of SSI. The answers of SSI are products C_i Z, so the server does this
    only under masks, which hide individual answers. Without masks, the run switches to the paper's rule
    if it has made no progress for `patience` / 2 rounds. Growing penalties make the steps short even if
    there is no progress. Therefore, a run with the paper's rule ends as stalled if the remaining angle has
    not fallen for `patience` rounds.

    If only a fraction of the clients answers in each round, measured penalties can be worse than the
    paper's: runs of similar clients take 1.7 to 10 times as many rounds, and runs of clients with fewer
    rows than columns take up to 6 times as many. A few runs stall although they converge with the paper's
    rule.

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component
    analysis", 2022.
    Cost per round: 4 (inner_steps + 1) n_i d p flops on a client, p columns of d floats each way, and
    2 d p^2 flops on the server.
    Prefer it: if the server sees the answers of individual clients, but must not be able to compute a
    client's covariance matrix from these answers.

    Parameters
    ----------
    inner_steps : int, default=10
        Number of subspace iterations for the inner problem.
    inner_tol : float or None, default=None
        If given, the inner iteration also ends when the sine of the angle by which its subspace moves is at most this.
    penalty : {"measured", "paper"}, default="measured"
        Whether clients measure two penalties on their rows in every round, or use the paper's rule.
    beta_0 : float, default=0.15
        The first penalty of the paper's rule, as a share of the largest eigenvalue of C_i.
    theta : float, default=0.1
        The share by which the penalties of the paper's rule grow.
    mu : float, default=0.01
        The penalties of the paper's rule grow unless the distance to consensus falls by this share over five rounds.
    oversample : int, default=0
        Columns that the algorithm iterates beyond `n_components`.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=2000
        Maximum number of rounds of the run.
    patience : int, default=200
        The run ends as stalled when its error has not fallen for this many rounds.

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
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "Z": BASIS,
        "inner_steps": STEPS,
        "inner_tol": POSITIVE,
        "guard": number_rule(0, 0.99),
        "beta_0": number_rule(*_BETA_0),
        "theta": number_rule(0, 1),
        "mu": number_rule(0, 1),
    }
    remembers: ClassVar[bool] = True
    tolerant: ClassVar[bool] = False
    by_power: ClassVar[bool] = True
    ends_by_angle: ClassVar[bool] = True
    quantity: ClassVar[str] = "estimated angle to the result"

    # With one inner step, a round makes no more progress than a round of SSI. With ten inner steps, a run needs as
    # many rounds as with an exact inner solver.
    inner_steps: int = 10
    inner_tol: float | None = None
    penalty: str = "measured"
    beta_0: float = PaperRule.beta_0
    theta: float = PaperRule.theta
    mu: float = PaperRule.mu
    max_rounds: int = 2000
    patience: int = 200  # a large number, because the remaining angle rises while penalties grow

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("inner_steps of faps", self.inner_steps, least=1)
        if self.inner_tol is not None:
            checks.number("inner_tol of faps", self.inner_tol, least=0.0)
        checks.choice("penalty of faps", self.penalty, ("paper", "measured"))
        checks.number("beta_0 of faps", self.beta_0, least=_BETA_0[0], most=_BETA_0[1], remedy="Try 0.15.")
        checks.number("theta of faps", self.theta, least=0.0, most=1.0, remedy="Try 0.1.")
        checks.number("mu of faps", self.mu, least=0.0, most=1.0, remedy="Try 0.01.")
        if self.penalty != "paper" and self._rule.values_to_send:
            raise ConfigError(
                f"faps with penalty={self.penalty!r} does not use {', '.join(self._rule.values_to_send)}, "
                f"because only the "
                'paper\'s rule has these parameters. Leave them out, or use penalty="paper".'
            )

    @property
    def _rule(self) -> PaperRule:
        return PaperRule(self.beta_0, self.theta, self.mu)

    def start(self, model: Model) -> FAPSState:
        progress = Progress.begin(self.tol, model)
        if model.is_repetition and model.earlier is not None and model.earlier.angle is not None:
            progress = progress.step(model.earlier.angle, rounds=0)
        return FAPSState(
            mixed_with_other_directions(model.power_start(), model, self.tol),
            SubspaceMovement(),
            progress,
            guarded=model.summed,
            papers=self.penalty == "paper",
        )

    def broadcast(self, state: FAPSState) -> Arrays:
        numbers = {"inner_tol": self.inner_tol or 0.0, **self._rule.values_to_send}
        if not state.papers:
            numbers["guard"] = state.guard
        arrays = {name: np.array(value) for name, value in numbers.items()}
        return {"Z": state.Z, "inner_steps": np.array(self.inner_steps), **arrays}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.ESTIMATE)}

    def bounds(self, state: FAPSState, model: Model) -> Mapping[str, Array | float]:
        """Return a bound on the answers.

        The bound grows with the latest sum, because penalties grow without limit if clients find no consensus.
        """
        return {"Y": MARGIN * max(model.trace or float(model.n), state.size)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        Z = arrays["Z"]
        if Z.shape[1] > len(Z):
            raise ProtocolError(
                f"The array Z of the server's message has {Z.shape[1]} columns, but at most {len(Z)} are possible. "
                f"{OTHER_SERVER}"
            )
        steps = int(arrays["inner_steps"])
        tol = float(arrays["inner_tol"])
        if "guard" in arrays:
            return answer(Z, data, memory, steps=steps, tol=tol, guard=float(arrays["guard"]))
        rule, product = PaperRule.from_message(arrays), _product_function(data, steps)
        # A new client, or a node that has lost its memory, starts from Z. After a switch from measured penalties,
        # the memory contains X and W, but no beta.
        if memory.get("X", Z[:, :0]).shape != Z.shape or "beta" not in memory:
            first = np.array(rule.beta_0 * data.norm2())
            memory = {"X": Z, "W": _multiplier(product, Z), "beta": first, "distances": np.empty(0)}
        distances = np.append(memory["distances"], linalg.projection_distance(memory["X"], Z))
        beta, distances = rule.next_penalty(float(memory["beta"]), distances)
        V = _top_eigenspace(product, memory, lambda V: beta * (Z @ (Z.T @ V)), steps=steps, tol=tol)
        W = _multiplier(product, V)
        along = V.T @ Z
        Y = beta * (V @ along) - V @ (W.T @ Z) - W @ along
        return {"Y": Y}, {"X": V, "W": W, "beta": np.array(beta), "distances": distances}

    def server(self, state: FAPSState, total: Arrays, answered: frozenset[int]) -> FAPSState:
        Z = linalg.orth(total["Y"])
        # If the sum lacks full rank, `orth` fills Z up with arbitrary columns, which do not count as movement.
        moved = state.movement.add(state.Z, linalg.spanning_basis(total["Y"]))
        sines = (*state.sines, moved.newest)[-2 * _GUARD_ROUNDS :]  # the number of sines that `next_guard` needs
        measure = moved.newest
        if state.papers:
            # Growing penalties shorten the steps even without progress, so progress is measured by the remaining
            # angle. It is limited to 1, the largest sine, because an infinite measure would count as progress.
            measure = min(moved.remaining, 1.0)
        progress = state.progress.step(moved.remaining, measure)
        state = replace(
            state,
            Z=Z,
            movement=moved,
            progress=progress,
            sines=sines,
            size=float(np.abs(total["Y"]).max()),
            past=state.past.after_round(Z),
        )
        if state.guarded:
            return replace(state, guard=next_guard(state.guard, sines, progress.rounds))
        if not state.papers and progress.stale >= self.patience // 2:
            # Until now, progress was measured by sines of steps, which cannot be compared with remaining angles.
            return replace(state, papers=True, progress=replace(progress, best=np.inf, stale=0))
        return state

    def status(self, state: FAPSState) -> Status | None:
        return self._with_remedy(super().status(state))

    def verify(self, model: Model) -> Status | None:
        status = super().verify(model)
        if status is None or self.penalty != "paper":
            return status
        return status.followed_by(self._slowness(model))

    def _slowness(self, model: Model) -> str:
        """Return a note for the status if SSI is faster for these eigenvalues, or else ""."""
        if model.values is None or not 0 < model.k < model.d or not model.values[model.k - 1] > 0.0:
            return ""
        last = float(model.values[model.k - 1])
        penalty = self.beta_0 * float(model.values[0])
        share = speed_relative_to_ssi(last, model.next_value, penalty=penalty)
        if share >= 1.0:
            return ""
        return f"; with these eigenvalues faps is at best {share:.2g} times as fast as ssi: ssi and krylov are faster"

    def _with_remedy(self, status: Status | None) -> Status | None:
        if status is None or status.ok:
            return status
        remedy = "krylov"
        if self.penalty != "measured":
            remedy = 'penalty="measured" if clients differ, or krylov'
        return status.followed_by(f": use {remedy}")

    def unsent(self, state: FAPSState) -> Array:
        return state.Z

    def finish(self, state: FAPSState, model: Model) -> Model:
        return replace(model, basis=state.Z, product=None, beside=state.past.direction_outside(state.Z))


def speed_relative_to_ssi(last_value: float, next_value: float | None, *, penalty: float) -> float:
    """Return an upper bound on the speed of FAPS relative to SSI: ln(1 + g / b) / ln(l_k / l_(k+1)).

    Speeds are compared by the number of rounds, and g = l_k - l_(k+1). If l_(k+1) is unknown, the limit
    for small g is returned, which is the largest ratio.

    Parameters
    ----------
    last_value : float
        l_k, the last wanted eigenvalue.
    next_value : float or None
        l_(k+1), the next eigenvalue, or None if it is unknown.
    penalty : float
        b, the sum of the clients' penalties. It is 0.15 l_1 for the paper's first penalties and similar clients.
    """
    if next_value is None or next_value >= last_value:
        return last_value / penalty
    # If the rows span no further direction, the next eigenvalue is only rounding error.
    next_value = max(next_value, float(np.finfo(float).eps) * last_value)
    gained, ratio = (last_value - next_value) / penalty, last_value / next_value
    return float(np.log1p(gained) / np.log(ratio))


def _product_function(data: LocalData, steps: int) -> Callable[[Array], Array]:
    """Return a function that maps V to C_i V, prepared for the number of calls in a round with these inner steps."""

    def product(V: Array) -> Array:
        return data.matmat(V, reuse=4 * (steps + 1)).astype(np.float64)

    return product


def _multiplier(product: Callable[[Array], Array], X: Array) -> Array:
    """Return W = -(I - XX')C X. The multiplier XW' + WX' itself is never computed."""
    CX = product(X)
    return np.asarray(X @ (X.T @ CX) - CX)


def _top_eigenspace(
    product: Callable[[Array], Array], memory: Arrays, hold: Callable[[Array], Array], *, steps: int, tol: float
) -> Array:
    """Return the top eigenspace of C_i + XW' + WX' + P, by subspace iteration from X.

    `hold` is the function that multiplies a block by the penalty P.
    """
    V = X = memory["X"]
    W = memory["W"]
    for _ in range(steps):
        H = product(V) + X @ (W.T @ V)
        H = H + W @ (X.T @ V) + hold(V)
        V, before = linalg.orth(H), V
        # The paper compares bases. This code compares subspaces, because the columns of a basis may continue to
        # rotate when the subspace no longer moves.
        if tol > 0.0 and linalg.sin_theta(before, V) <= tol:
            break
    return V
