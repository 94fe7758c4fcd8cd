"""ExactPerPCA: personalized PCA without a step size, by alternating exact solutions. The method is this package's own.

A client keeps nothing between rounds, with two exceptions: with `local_steps`, its local components for
a warm start, and with local_components="auto", its choice of their number. The server keeps sums
(`CachedSums`, for clients that miss a round). The server also keeps pairs of a step and the decrease of
the gradient along this step, from which `Secants` extrapolates. If the objective falls at an
extrapolated U, `state_after_answers` rejects this U and returns to the plain step.

`Secants` is L-BFGS on the Grassmann manifold. Up to a rotation, the plain step polar(Z) is U +
G(U'Z)^(-1), with the gradient G = (I - UU')Z. The plain step uses U'Z as the curvature in all
directions. This overestimates the curvature, so the plain step never overshoots, but it is short if the
objective is flat. Two points and their gradients show the true curvature between the points.
`Secants.quasi_newton_step` multiplies G by an approximate inverse of the curvature. This inverse agrees with the last
pairs, and in all other directions it is a multiple of the plain step's inverse (Nocedal 1980). Rotation and projection
move pairs from one point to the next.

If the gradient grows along the step of a pair, the pair does not show where the maximum is, and the next
step ignores this pair. But the pair shows that the maximum has not been reached: `Secants.curvature` is
the largest curvature along the last steps, and it is above 0 near a saddle.

With `gain_tol`, `Gains` can end a run by its objective. If the objective hardly rises, the run may be
near a saddle, after which the objective rises again. Near a saddle, the curvature along the last steps
is above 0, or increases towards 0. At a maximum, the curvature is below 0 and constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import Personalized, PersonalState, StartIteration, ThetaProbe, client_weight
from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, MEAN_SQUARES, NUMBER, ROWS, STEPS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge
from flower_pca.rows.local import LocalData

_ROUNDS: Final = 10  # number of rounds in which the objective must hardly rise before `gain_tol` ends a run
_CURVATURES: Final = 4  # number of latest curvatures that must agree
_MOST_SPREAD: Final = 0.2  # maximum spread of curvatures that agree, relative to the latest curvature


@dataclass(frozen=True)
class Gains:
    """The objective after each of the last rounds, and the curvatures of these rounds.

    Attributes
    ----------
    promise : float
        The predicted rise of the objective by the next step.
    sine : float
        The sine of the largest angle by which the next step turns the subspace.
    """

    objectives: tuple[float, ...] = ()
    curvatures: tuple[float, ...] = ()
    promise: float = np.inf
    sine: float = np.inf

    def after_round(self, objective: float, curvature: float, promise: float, sine: float) -> Gains:
        """Return the gains after one more round."""
        objectives = (*self.objectives, objective)[-_ROUNDS - 1 :]
        return Gains(objectives, (*self.curvatures, curvature)[-_CURVATURES:], promise, sine)

    def after_rejected_step(self) -> Gains:
        """Return the gains after one more round, in which the server rejected the step."""
        again = (*self.objectives, *self.objectives[-1:])[-_ROUNDS - 1 :]
        return replace(self, objectives=again)

    def reason_to_end(self, tol: float) -> str:
        """Return the reason for ending the run, or "" if the objective may still grow by more than the share `tol`."""
        if len(self.objectives) <= _ROUNDS or len(self.curvatures) < _CURVATURES:
            return ""
        best, largest = self.objectives[-1], max(self.curvatures)
        gained = best - self.objectives[0]
        spread = largest - min(self.curvatures)
        agreed = spread <= _MOST_SPREAD * abs(self.curvatures[-1])
        if max(gained, self.promise) > tol * abs(best) or largest >= 0.0 or not agreed:
            return ""
        return (
            f"the objective improved only by {gained / abs(best):.2g} in {_ROUNDS} rounds (gain_tol={tol:.2g}), and "
            "its curvature along the last steps is negative. The next step would turn the shared components by an "
            f"angle with a sine of {self.sine:.2g}"
        )


_PAIRS: Final = 10  # maximum number of pairs that the server keeps
# A pair shows a maximum if the cosine between the step and the decrease of the gradient exceeds this.
_LEAST_COSINE: Final = 1e-10
_LONGEST: Final = 1.0  # the tangent of the largest angle by which a step may turn the subspace
# Curvatures of the plain step below this share of the largest curvature are raised to this share.
_LEAST_CURVATURE: Final = 1e-12
# If a matrix of steps of length one has a singular value below this, one step is a combination of the other steps.
_LEAST_SINGULAR: Final = 1e-2


@dataclass(frozen=True)
class Secant:
    """A step s, and the decrease y of the gradient along the step. Both are d x r, and tangent at the latest point."""

    s: Array
    y: Array

    @property
    def has_falling_gradient(self) -> bool:
        """Whether the gradient falls along the step, as on the way to a maximum."""
        sizes = float(np.linalg.norm(self.s) * np.linalg.norm(self.y))
        return float(np.sum(self.s * self.y)) > _LEAST_COSINE * sizes


@dataclass(frozen=True)
class Secants:
    """The latest point U, the gradient G = (I - UU')Z at this point, and up to ten pairs, oldest first."""

    U: Array
    G: Array
    pairs: tuple[Secant, ...] = ()

    @classmethod
    def begin(cls, U: Array, Z: Array) -> Secants:
        """Return the first point, without pairs."""
        return cls(U, linalg.complement(Z, U))

    def moved_to(self, next_point: Secants) -> Secants:
        """Return the next point with all pairs moved there and one more pair for the step there."""
        turn = linalg.procrustes(self.U, next_point.U)
        carried = [Secant(next_point.tangent(pair.s @ turn), next_point.tangent(pair.y @ turn)) for pair in self.pairs]
        step = next_point.tangent(next_point.U - self.U @ turn)
        newest = Secant(step, next_point.tangent(self.G @ turn) - next_point.G)
        return next_point.with_pairs([*carried, newest])

    def with_rejected_point(self, rejected: Secants) -> Secants:
        """Return the same point with one more pair for the step to the rejected point."""
        turn = linalg.procrustes(rejected.U, self.U)
        step = self.tangent(rejected.U @ turn - self.U)
        newest = Secant(step, self.G - self.tangent(rejected.G @ turn))
        return self.with_pairs([*self.pairs, newest])

    def quasi_newton_step(self, Z: Array) -> tuple[Array, float] | None:
        """Return the point after a quasi-Newton step, and the predicted rise of the objective.

        Return None if no pair shows a maximum, or if the gradient is 0.
        """
        bent = [pair for pair in self.pairs if pair.has_falling_gradient]
        if not bent:
            return None
        values, Q = self._plain_curvature(Z)
        step, passed = self.G, []
        for pair in reversed(bent):
            along = float(np.sum(pair.s * step) / np.sum(pair.s * pair.y))
            step = step - along * pair.y
            passed.append((pair, along))
        newest = bent[-1]
        plain = ((newest.y @ Q) / values) @ Q.T
        # The step is never shorter than the plain step, which cannot overshoot.
        fallen = np.sum(newest.s * newest.y)
        longer = max(float(fallen / np.sum(newest.y * plain)), 1.0)
        step = longer * (((step @ Q) / values) @ Q.T)
        for pair, along in reversed(passed):
            off = float(np.sum(pair.y * step) / np.sum(pair.s * pair.y))
            step = step + (along - off) * pair.s
        length = linalg.norm2(step)
        if not length:  # The gradient is 0, so no direction increases the objective.
            return None
        step = step * min(1.0, _LONGEST / length)
        promise = float(np.sum(step * self.G))
        return linalg.polar(self.U + step), promise

    def curvature(self, Z: Array) -> float:
        """Return the largest curvature of the objective along the last steps, in units of the plain step's curvature.

        This number is the largest Ritz value of the Hessian on these steps. Near a maximum, it is below 0.
        """
        values, Q = self._plain_curvature(Z)
        roots, steps, fallen = np.sqrt(values), [], []
        for pair in self.pairs:
            step = (pair.s @ Q) * roots
            length = float(np.linalg.norm(step))
            steps.append((step / length).ravel())
            fallen.append(((pair.y @ Q) / roots / length).ravel())
        left, sizes, right = np.linalg.svd(np.stack(steps, axis=1), full_matrices=False)
        apart = sizes > _LEAST_SINGULAR
        # The excluded sizes may be 0, so they are replaced by 1 before the division.
        H = -(left.T @ np.stack(fallen, axis=1) @ right.T / np.where(apart, sizes, 1.0))[np.ix_(apart, apart)]
        return float(np.linalg.eigvalsh((H + H.T) / 2.0)[-1])

    def _plain_curvature(self, Z: Array) -> tuple[Array, Array]:
        """Return the eigenvalues and eigenvectors of U'Z, the curvature that the plain step assumes."""
        values, Q = linalg.eigh_descending(self.U.T @ Z)
        return np.maximum(values, _LEAST_CURVATURE * values[0]), Q

    def tangent(self, A: Array) -> Array:
        """Return (I - UU')A."""
        return np.asarray(A - self.U @ (self.U.T @ A))

    def with_pairs(self, pairs: list[Secant]) -> Secants:
        """Return the same point with the latest of these pairs. Steps of length 0 are dropped."""
        bent = tuple(pair for pair in pairs if np.any(pair.s))
        return replace(self, pairs=bent[-_PAIRS:])


_ROUNDING: Final = 1e-13  # maximum relative decrease of the objective that counts as rounding error


@dataclass(frozen=True)
class ExactState(PersonalState):
    """The fields of `PersonalState`, and the data for the next step.

    Attributes
    ----------
    sums : CachedSums
        The sums over clients, and each client's last answer if a client has missed a round.
    known : ndarray
        The result of the plain step from the best U so far.
    best : float
        The objective of the best U so far.
    bold : bool
        Whether the U that was sent is an extrapolation, which is rejected if the objective falls.
    secants : Secants or None
        The last steps and gradients.
    gains : Gains
        The last objectives and curvatures.
    back : bool
        Whether the previous U was rejected. Clients then also reject the local components that they computed for it.
    """

    sums: CachedSums
    known: Array
    best: float
    bold: bool = False
    secants: Secants | None = None
    gains: Gains = field(default_factory=Gains)
    back: bool = False


@dataclass(frozen=True, kw_only=True)
class ExactPerPCA(Personalized[ExactState]):
    """Compute shared components and each client's local components in few rounds.

    Each client solves for its local components exactly, and the server maximizes a linearized objective.
    Let S_i = X_i'X_i / n_i, for r1 shared components U and r2 local components V_i. In each round

      each client computes V_i = top r2 eigenvectors of (I - UU')S_i(I - UU'),
                   and sends Z_i = (I - V_iV_i')S_iU and f_i = tr U'S_iU + tr V_i'S_iV_i;
      the server computes Z = sum w_i Z_i and U <- polar(Z).

    For fixed V_i, the objective J(U) = sum w_i tr U'(I - V_iV_i')S_i(I - V_iV_i')U is convex in U, and
    polar(Z) is the maximum of its linearization. Therefore J does not fall, and the next V_i do not
    lower the objective either. No step size is needed. The run ends when the first-order condition
    ||(I - UU')Z||_F <= tol ||Z||_F holds. A quasi-Newton step (`Secants`) usually replaces the plain
    step, and costs no message. If sum w_i f_i falls after a quasi-Newton step, the plain step is taken
    instead.

    If a client misses a round, its last answer is used. Under masks, the server does not know individual
    answers. Until all clients answer again, the server then updates U only from the clients that answered,
    by plain steps.

    Reference: this method is the package's own. The problem and PerPCA are Shi and Kontar's (see `PerPCA`).
    Cost per round: a client forms the Gram matrix of its deflated rows, and computes r2 of its
    eigenvectors. This takes n_i d min(n_i, d) flops (once per run if d <= n_i). With `local_steps`, each
    step takes 4 n_i d r2 flops instead. r1 + 1 columns of d floats are sent each way.
    Prefer it: if clients have directions of their own in addition to the shared ones. It needs fewer
    rounds than `PerPCA`, and only sums leave the clients.

    Parameters
    ----------
    local_components : int, mapping or "auto", default=1
        r2, the number of local components of each client. A client whose rows have a lower rank has fewer. A mapping
        gives the numbers by client: its keys are positions or names of sites, and "others" for all clients that it
        does not name. With "auto", each client chooses a number of up to 10 from held-out rows; see `held_out`.
    weights : {"equal", "samples"}, default="equal"
        "equal" (every client counts the same) or "samples" (w_i = n_i).
    init, start_rounds, given
        See `Personalized`.
    collect : bool, default=False
        Whether to collect the local components at the end. Only nodes that agree send them.
    acceleration : {"lbfgs", "none"}, default="lbfgs"
        "lbfgs" takes quasi-Newton steps that use the last ten rounds. "none" takes plain steps.
    local_steps : int, default=0
        If above 0, a client takes this many warm-started power steps for V_i instead of solving for it exactly.
    gain_tol : float, default=0.0
        If above 0, the run also ends (as settled) when three conditions hold: the objective has grown by at most this
        share of itself in ten rounds, the next step promises no larger growth, and the last steps show no saddle. See
        `Gains`.
    oversample : int, default=0
        Columns beyond the shared components in the Lanczos blocks of init="projection".
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import ExactPerPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 0.1, 4]]  # one shared direction, and one of each site
    >>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
    >>> result = simulate(ExactPerPCA(local_components=1), sites, n_components=1)
    >>> print(np.abs(result.components_).round(1))
    [[1. 0. 0. 0.]]
    >>> print([np.abs(result.local[site]["components"]).argmax().item() for site in range(3)])
    [1, 2, 3]
    """

    name: ClassVar[str] = "exact_per_pca"
    asks: ClassVar[Mapping[str, ArrayRule]] = {**Personalized.asks, "steps": STEPS, "back": FLAG}
    caches: ClassVar[bool] = True

    acceleration: str = "lbfgs"
    local_steps: int = 0
    gain_tol: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice(f"acceleration of {self.name}", self.acceleration, ("lbfgs", "none"))
        checks.integer(f"local_steps of {self.name}", self.local_steps)
        checks.number(f"gain_tol of {self.name}", self.gain_tol, least=0.0, remedy="Try 1e-5.")
        if self.gain_tol and self.acceleration == "none":
            raise ConfigError(
                f'gain_tol={self.gain_tol} of {self.name} has no effect with acceleration="none". Leave gain_tol out, '
                'or use acceleration="lbfgs".',
                setting="gain_tol",
                value=self.gain_tol,
            )

    def first_state(self, common: PersonalState, model: Model) -> ExactState:
        sums = CachedSums(model.n, summed=model.summed)
        return ExactState(**vars(common), sums=sums, known=common.U, best=-np.inf)

    def extra_broadcast(self, state: ExactState) -> Arrays:
        if self.local_steps:
            return {"steps": np.array(self.local_steps), "back": np.array(state.back)}
        return {"steps": np.array(self.local_steps)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "k" in arrays:
            return StartIteration.parts(arrays, d)
        Z = Part(arrays["U"].shape, Kind.ESTIMATE)
        return {"w": NUMBER, **ThetaProbe.parts(arrays), "n": ROWS, "Z": Z, "f": MEAN_SQUARES}

    def extra_bounds(self, model: Model) -> Mapping[str, Array | float]:
        # f is sent without rounding, because the server compares objectives to decide which U to keep.
        return {"n": MOST_ROWS, "Z": self.largest_weights(model)[1], "f": 0.0}

    @property
    def recomputes(self) -> bool:
        # With `local_steps`, each round continues from the local components of the round before.
        return not self.local_steps

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "k" in arrays:
            return StartIteration.answer(arrays, data, memory)
        U = arrays["U"]
        steps = int(arrays["steps"])
        w = client_weight(arrays, data)
        own, chosen = held_out.choose_number(arrays, data, memory)
        span = deflation.span_of_rows(data, U.shape[1] + own, memory) if steps else deflation.WHOLE
        # If the previous U was rejected, the client starts from its V of the message before the rejected U.
        start = memory.get("before" if arrays.get("back") else "V")
        V = deflation.local_basis(data, U, own, steps=steps, start=start, span=span)
        SW = deflation.covariance_product(data, np.hstack([U, V]))
        SU, SV = np.hsplit(SW, [U.shape[1]])
        outside = SU - V @ (V.T @ SU)
        explained = np.sum(U * SU) + np.sum(V * SV)
        f = np.array(w * explained)
        sums = {"Z": w * outside, "f": f, "n": np.array(data.n)}
        up = {**sums, "w": np.array(w), **ThetaProbe.answer(V, arrays["b"])}
        if not steps:
            return up, chosen
        if start is None:
            start = V
        return up, {**chosen, "V": V, "before": start, "narrow": span}

    def merging(self, state: ExactState) -> Merge:
        if state.start is not None:
            return super().merging(state)
        return state.sums.merging

    def server(self, state: ExactState, total: Any, answered: frozenset[int]) -> ExactState:
        if state.start is not None:
            return super().server(state, total, answered)
        before = state.sums.last
        sums, total, share = state.sums.add(total)
        if sums.last is not None and (before is None or len(sums.last) > len(before)):
            # New clients have answered, and more new clients may follow. The server keeps U, so that U does not depend
            # on which clients were asked first.
            return self._state_without_new_U(replace(state, sums=sums))
        state = replace(state, sums=sums)
        if not sums.summed or share >= 1.0:
            return self.state_after_sums(state, total, share)
        # The objective over some clients cannot be compared with the objective over all clients, so an extrapolated U
        # is rejected.
        if state.bold:
            return self._state_without_new_U(state)
        return replace(self.state_after_sums(state, total, share), secants=None)

    def _state_without_new_U(self, state: ExactState) -> ExactState:
        """Return the state after a round from which no new U is computed.

        If U was an extrapolation, the result of the plain step replaces it.
        """
        if state.bold:
            state = replace(state, U=state.known, bold=False)
        return replace(state, secants=None, progress=state.progress.step(state.progress.error))

    def state_after_answers(self, state: ExactState, mean: Arrays, share: float) -> ExactState:
        Z, f = mean["Z"], float(mean["f"])
        if state.bold and f < state.best - _ROUNDING * abs(state.best):
            secants = state.secants
            if secants is not None and share >= 1.0:
                secants = secants.with_rejected_point(Secants.begin(state.U, Z))
            gains = state.gains.after_rejected_step()
            return replace(self._state_without_new_U(state), secants=secants, gains=gains, back=True)
        off = float(np.linalg.norm(linalg.complement(Z, state.U)))
        error = off / (float(np.linalg.norm(Z)) or 1.0)
        image, progress = linalg.polar(Z), state.progress.step(error, gain=f)
        state = replace(state, known=image, best=f, back=False, progress=progress)
        # The last answers of absent clients belong to an older U, so the curvature would be wrong.
        if share < 1.0 or self.acceleration == "none":
            return replace(state, U=image, bold=False, secants=None, gains=Gains())
        secants = Secants.begin(state.U, Z)
        if state.secants is not None:
            secants = state.secants.moved_to(secants)
        ahead = secants.quasi_newton_step(Z)
        if ahead is None:
            return replace(state, U=image, bold=False, secants=secants, gains=Gains())
        U, promise = ahead
        sine = linalg.sin_theta(state.U, U)
        gains = state.gains.after_round(f, secants.curvature(Z), promise, sine)
        return replace(state, U=U, bold=True, secants=secants, gains=gains)

    def status(self, state: ExactState) -> Status | None:
        status = super().status(state)
        if status is not None or not self.gain_tol or state.progress.rounds < self.min_rounds:
            return status
        words = state.gains.reason_to_end(self.gain_tol)
        if not words:
            return None
        return Status(Outcome.SETTLED, f"{words} (after {labels.count(state.progress.rounds, 'round')})")

    def metrics(self, state: ExactState) -> dict[str, float]:
        metrics = super().metrics(state)
        if np.isfinite(state.best):
            metrics["objective"] = state.best
        return metrics

    def finish(self, state: ExactState, model: Model) -> Model:
        U = state.known if np.isfinite(state.best) else state.U
        return replace(
            model, basis=U, product=None, left=self.closing_arrays(state, exact=True, steps=self.local_steps)
        )
