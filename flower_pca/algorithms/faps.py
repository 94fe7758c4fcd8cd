"""FAPS: consensus on subspaces by an ADMM-like splitting, in d x p memory.

The server half is three lines: it sums, orthonormalises, and watches how far the subspace moves. The work is in the
client half, which keeps a subspace, a multiplier and a penalty from round to round, and begins anew where it finds no
memory of the right shape.

How fast it can be. Let all clients be alike and at consensus, and their inner problems be solved exactly. With b the
sum of the penalties and g = l_k - l_(k+1), the part z of Z in the direction k + 1, and that of all X_i, x, go on as
x <- (g x + b z) / (g + b), z <- (1 - g / b) x. So the angle falls by b / (b + g) a round, where SSI's falls by
l_(k+1) / l_k: at best `pace` = ln(1 + g / b) / ln(l_k / l_(k+1)) times as fast, with b = 0.15 l_1 by the paper's
penalties. It falls from l_k / b, where gaps are small, to 0, where they are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms import penalties
from flower_pca.algorithms.past import Past
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.algorithm import Iterative, Movement, Progress
from flower_pca.core.asks import BLOCK, POSITIVE, STEPS, Ask, number
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

PENALTIES: Final = ("paper", "measured")
_BETA_0: Final = (1e-6, 100.0)  # the first penalty, at least and at most
_WINDOW: Final = 5  # rounds after which the paper's penalty may grow


@dataclass(frozen=True)
class PaperRule:
    """The paper's rule for a client's penalty.

    Attributes:
        beta_0: The first one, as a share of the largest eigenvalue of C_i.
        theta: By which share it grows.
        mu: By which share the distance to consensus must have fallen, over _WINDOW rounds, for it not to grow.
    """

    beta_0: float = 0.15
    theta: float = 0.1
    mu: float = 0.01

    @classmethod
    def read(cls, arrays: Mapping[str, Array]) -> PaperRule:
        """What a message says; what it does not name is the paper's."""
        paper = cls()
        return cls(**{name: float(arrays.get(name, value)) for name, value in vars(paper).items()})

    @property
    def service(self) -> dict[str, float]:
        """The numbers that are not the paper's, which a message has to name."""
        paper = vars(PaperRule())
        return {name: value for name, value in vars(self).items() if value != paper[name]}

    def next(self, beta: float, distances: Array) -> tuple[float, Array]:
        """The penalty of this round, from the distances to consensus so far; and those of them that still count."""
        if len(distances) <= _WINDOW:
            return beta, distances
        if distances[-1] > distances[0] / (1.0 + self.mu):
            beta = (1.0 + self.theta) * beta
        return beta, distances[-1:]


@dataclass(frozen=True)
class FAPSState:
    """The consensus Z, the sines of its last steps, the largest entry of the newest sum, and earlier Z.

    Of measured penalties the guard, if there may be one.
    """

    Z: Array
    movement: Movement
    progress: Progress
    guard: float = 0.0
    guarded: bool = False
    sines: tuple[float, ...] = ()
    size: float = 0.0
    past: Past = field(default_factory=Past)


@dataclass(frozen=True, kw_only=True)
class FAPS(Iterative[FAPSState]):
    """Every client keeps a subspace X_i of its own and a low-rank multiplier; the server only sums.

    By the paper's rule a client, with beta_i = 0.15 ||C_i||_2 and W_i = -(I - X_i X_i')C_i X_i at the start, a round:
      X_i <- top eigenspace of H = C_i + X_i W_i' + W_i X_i' + beta_i ZZ', by warm subspace iteration;
      W_i <- -(I - X_i X_i')C_i X_i;
      sends Y_i = beta_i X_i(X_i'Z) - X_i(W_i'Z) - W_i(X_i'Z).
    The server: Z <- orth(sum Y_i). At consensus a round is a step 1 / 0.15 = 6.7 times longer than one of SSI, if the
    inner problem is solved well: with one inner step it is as slow as SSI. That is of the first eigenvalue; where the
    wanted ones are small beside it, a round is a shorter step than SSI's: see `pace`. beta_i grows by a tenth when the
    distance between X_i and Z has not fallen by one percent within five rounds. Where clients differ so much that a
    client's own directions outweigh 0.15 ||C_i||_2, the penalties grow for hundreds of rounds before the consensus
    holds, or without end.

    So by default, penalty="measured", two penalties are found from the rows in every round: see `penalties`. Where the
    steps of such a run no longer fall, the server has all clients take longer ones, up to SSI's, whose answers are
    products C_i Z; so only under masks, which hide them. By the paper's rule steps get shorter as penalties grow, which
    is no progress: a run by it gives up where the angle still to go has not fallen for `patience` rounds.

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022.
    Cost per round: 4 (inner_steps + 1) n_i d p flops on a client; p columns of d floats each way; 2 d p^2 flops at
    the server.
    Prefer it: where the server sees single answers, and no covariance of a client may follow from them.

    Args:
        inner_steps: Subspace iterations of the inner problem.
        inner_tol: If given, the inner iteration also ends when its subspace moves by at most this.
        penalty: "measured" from the rows in every round, or "paper": the paper's rule.
        beta_0: Of the paper's penalties, the first one as a share of the largest eigenvalue of C_i.
        theta: By which share they grow.
        mu: By which share the distance to consensus must have fallen, over five rounds, for them not to grow.
        oversample, tol, min_rounds, max_rounds, patience: See `Iterative`.
    """

    name: ClassVar[str] = "faps"
    asks: ClassVar[Mapping[str, Ask]] = {
        "Z": BLOCK,
        "inner_steps": STEPS,
        "inner_tol": POSITIVE,
        "guard": number(0, 0.99),
        "beta_0": number(*_BETA_0),
        "theta": number(0, 1),
        "mu": number(0, 1),
    }
    remembers: ClassVar[bool] = True
    tolerant: ClassVar[bool] = False
    quantity: ClassVar[str] = "angle still to go"

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
        checks.choice("penalty of faps", self.penalty, PENALTIES)
        checks.number("beta_0 of faps", self.beta_0, least=_BETA_0[0], most=_BETA_0[1], remedy="Try 0.15.")
        checks.number("theta of faps", self.theta, least=0.0, most=1.0, remedy="Try 0.1.")
        checks.number("mu of faps", self.mu, least=0.0, most=1.0, remedy="Try 0.01.")
        if self.penalty != "paper" and self._rule.service:
            what, rule = "Settings of the paper's penalties", "left out where others are used"
            remedy = 'Leave them out, or use penalty="paper".'
            raise ConfigError(what, must=rule, got=", ".join(self._rule.service), then=remedy)

    @property
    def _rule(self) -> PaperRule:
        return PaperRule(self.beta_0, self.theta, self.mu)

    def start(self, model: Model) -> FAPSState:
        return FAPSState(model.powered(), Movement(), Progress.begin(self.tol, model), guarded=model.summed)

    def broadcast(self, state: FAPSState) -> Arrays:
        numbers: dict[str, float] = {"inner_steps": self.inner_steps, "inner_tol": self.inner_tol or 0.0}
        if self.penalty == "measured":
            numbers["guard"] = state.guard
        numbers |= self._rule.service
        return {"Z": state.Z, **{name: np.array(value) for name, value in numbers.items()}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.ESTIMATE)}

    def bounds(self, state: FAPSState, model: Model) -> Mapping[str, Array | float]:
        """Penalties grow from round to round, without end where no consensus is found: so the newest sum counts too."""
        return {"Y": MARGIN * max(model.trace, float(model.n), state.size)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        Z, steps, tol = arrays["Z"], int(arrays["inner_steps"]), float(arrays["inner_tol"])
        if "guard" in arrays:
            guard = float(arrays["guard"])
            return penalties.answer(Z, data, memory, steps=steps, tol=tol, guard=guard)
        rule = PaperRule.read(arrays)
        # a newcomer, or a node that has lost its memory
        if memory.get("X", Z[:, :0]).shape != Z.shape:
            memory = _begin(Z, data, steps, beta_0=rule.beta_0)
        V = X = memory["X"]
        W = memory["W"]
        distances = np.append(memory["distances"], linalg.projection_distance(X, Z))
        beta, distances = rule.next(float(memory["beta"]), distances)
        for _ in range(steps):
            H = _products(data, V, steps) + X @ (W.T @ V)
            H = H + W @ (X.T @ V) + beta * (Z @ (Z.T @ V))
            V, before = linalg.orth(H), V
            if tol > 0.0 and linalg.sin_theta(before, V) <= tol:
                break
        W = _multiplier(V, data, steps)
        Y = beta * (V @ (V.T @ Z)) - V @ (W.T @ Z) - W @ (V.T @ Z)
        return {"Y": Y}, {"X": V, "W": W, "beta": np.array(beta), "distances": distances}

    def server(self, state: FAPSState, total: Arrays, answered: frozenset[int]) -> FAPSState:
        Z = linalg.orth(total["Y"])
        moved = state.movement.add(state.Z, linalg.spanning(total["Y"]))
        sines = penalties.newest(state.sines, moved.newest)
        measure = moved.newest
        if self.penalty == "paper":
            # steps get shorter as penalties grow, wherever they lead
            measure = min(moved.remaining, 1.0)
        progress = state.progress.step(moved.remaining, measure)
        guard = 0.0
        if state.guarded:
            guard = penalties.next_guard(state.guard, sines, progress.rounds)
        size, past = float(np.abs(total["Y"]).max()), state.past.after(Z)
        return FAPSState(Z, moved, progress, guard, state.guarded, sines, size, past)

    def status(self, state: FAPSState) -> Status | None:
        return self._with_remedy(super().status(state))

    def verify(self, model: Model) -> Status | None:
        status = super().verify(model)
        if status is not model.status:  # which has its remedy
            status = self._with_remedy(status)
        if status is None or self.penalty != "paper":
            return status
        return replace(status, words=status.words + self._slowness(model))

    def _slowness(self, model: Model) -> str:
        """Of eigenvalues with which SSI is faster, what there is to say, to follow a status; else ""."""
        if model.values is None or not 0 < model.k < model.d or not model.values[model.k - 1] > 0.0:
            return ""
        last, following = float(model.values[model.k - 1]), model.next_value
        share = pace(last, following, penalty=self.beta_0 * float(model.values[0]))
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

    def finish(self, state: FAPSState, model: Model) -> Model:
        return replace(model, basis=state.Z, product=None, beside=state.past.beside(state.Z))


def pace(last: float, following: float | None, *, penalty: float) -> float:
    """How many times as fast as SSI, in rounds, FAPS is at best: ln(1 + g / b) / ln(l_k / l_(k+1)).

    Args:
        last: l_k, the last eigenvalue that is wanted.
        following: l_(k+1), the next one; None if it is not known: then the gap g counts as small, which is no less.
        penalty: b, the sum of the clients' penalties: 0.15 l_1 of the paper's first ones, where clients are alike.
    """
    if following is None or following >= last:
        return last / penalty
    # of rows that span no more, rounding
    following = max(following, float(np.finfo(float).eps) * last)
    return float(np.log1p((last - following) / penalty) / np.log(last / following))


def _products(data: LocalData, V: Array, steps: int) -> Array:
    return data.matmat(V, reuse=4 * (steps + 1)).astype(np.float64)


def _multiplier(X: Array, data: LocalData, steps: int) -> Array:
    """W = -(I - XX') C X; the multiplier of the consensus is XW' + WX', which is never formed."""
    CX = _products(data, X, steps)
    return np.asarray(X @ (X.T @ CX) - CX)


def _begin(Z: Array, data: LocalData, steps: int, *, beta_0: float) -> Arrays:
    beta = np.array(beta_0 * data.norm2())
    return {"X": Z, "W": _multiplier(Z, data, steps), "beta": beta, "distances": np.empty(0)}
