"""ExactPerPCA: personalized PCA without a step size, by alternating exact solutions; our own.

A client keeps nothing but, with `local_steps`, a warm start. The server keeps sums (`CachedSums`,
for clients that miss a round), and pairs of steps and gradients, by which `Secants` goes further
than a plain step. A U so found has to prove itself: `learn` goes back to the plain one when the
objective has fallen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import Personalized, PersonalState, Probe, Start, weight
from flower_pca.algorithms.personal.secants import Gains, Secants
from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, MEAN_SQUARES, NUMBER, ROWS, STEPS, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge
from flower_pca.rows.local import LocalData

ACCELERATIONS: Final = ("lbfgs", "none")
_ROUNDING: Final = 1e-13  # relative; by which the objective may seem to fall


@dataclass(frozen=True)
class ExactState(PersonalState):
    """Beside the common: the sums, the plain step from the best U known, its objective, what its steps have shown."""

    sums: CachedSums
    known: Array
    best: float
    bold: bool = False  # whether the U sent is no plain step, and has to prove itself
    secants: Secants | None = None
    gains: Gains = field(default_factory=Gains)
    # whether the U before was given up, and warm starts found for it are to be too
    back: bool = False


@dataclass(frozen=True, kw_only=True)
class ExactPerPCA(Personalized[ExactState]):
    """Each client solves for V_i exactly; the server maximises what is linear in U.

    A client:    V_i = top r2 eigenvectors of (I - UU')S_i(I - UU')
                 sends Z_i = (I - V_iV_i')S_iU and f_i = tr U'S_iU + tr V_i'S_iV_i
    The server:  U <- polar(sum w_i Z_i)
    For fixed V_i the objective J(U) = sum w_i tr U'(I - V_iV_i')S_i(I - V_iV_i')U is convex in U, and polar(Z) is the
    best point of its linearisation, so that J does not fall; the next V_i are no worse. No step size. It ends when
    ||(I - UU')Z||_F <= tol ||Z||_F, the first-order condition. A quasi-Newton step from there (`Secants`) costs no
    message; it is dropped when sum w_i f_i has fallen, for the plain one.

    Reference: this project's own; the problem and PerPCA are Shi and Kontar's (see `PerPCA`). A
    client that misses a round counts with its last answer. Under masks, where the server has none
    of a single client, U goes on with those that answered, by plain steps, until all of them do
    again.

    Cost per round: at a client one Gram matrix of the deflated rows and r2 of its eigenvectors, n_i
    d min(n_i, d) flops (once per run if d <= n_i), or 4 n_i d r2 a step with `local_steps`; r1 + 1
    columns of d floats each way.
    Prefer it: where clients have directions of their own beside the common ones; it takes fewer
    rounds than PerPCA. Only sums leave the clients.

    Args:
        local_components: r2, the own components of each client; fewer where its rows have not that
            rank. Or a mapping from clients, by position or name of their site, to such numbers;
            "others" are all that it does not name. Or "auto": each client chooses, up to 10, from
            rows that it holds out in turn; see `held_out`.
        weights: "equal" (every client counts the same) or "samples" (w_i = n_i).
        init, start_rounds, given: See `Personalized`.
        collect: Whether to ask for the own components at the end, which only nodes that agree will
            send.
        acceleration: "lbfgs", a quasi-Newton step from ten rounds before, or "none", the plain one.
        local_steps: If above 0, so many warm power steps for V_i instead of the exact solution.
        gain_tol: If above 0, the run also ends, as settled, when the objective has gained no more
            than this share of itself in ten rounds, the next step promises no more, and the last
            ten steps show no saddle; see `Gains`.
        oversample: Columns beyond the shared components in the Lanczos blocks of init="projection".
        tol, min_rounds, max_rounds, patience: See `Iterative`.
    """

    name: ClassVar[str] = "exact_per_pca"
    asks: ClassVar[Mapping[str, Ask]] = {**Personalized.asks, "steps": STEPS, "back": FLAG}
    caches: ClassVar[bool] = True

    acceleration: str = "lbfgs"
    local_steps: int = 0
    gain_tol: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice(f"acceleration of {self.name}", self.acceleration, ACCELERATIONS)
        checks.integer(f"local_steps of {self.name}", self.local_steps)
        checks.number(f"gain_tol of {self.name}", self.gain_tol, least=0.0, remedy="Try 1e-5.")
        if self.gain_tol and self.acceleration == "none":
            raise ConfigError(
                f"gain_tol of {self.name}",
                must="0 where acceleration is 'none'",
                got=self.gain_tol,
                then='Use acceleration="lbfgs", whose steps tell of saddles.',
            )

    def first(self, common: PersonalState, model: Model) -> ExactState:
        sums = CachedSums(model.n, summed=model.summed)
        return ExactState(**vars(common), sums=sums, known=common.U, best=-np.inf)

    def ask(self, state: ExactState) -> Arrays:
        if self.local_steps:
            return {"steps": np.array(self.local_steps), "back": np.array(state.back)}
        return {"steps": np.array(self.local_steps)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "k" in arrays:
            return Start.parts(arrays, d)
        Z = Part(arrays["U"].shape, Kind.ESTIMATE)
        return {"w": NUMBER, **Probe.parts(arrays), "n": ROWS, "Z": Z, "f": MEAN_SQUARES}

    def limits(self, model: Model) -> Mapping[str, Array | float]:
        # f to the last bit: it decides
        return {"n": MOST_ROWS, "Z": self.largest(model)[1], "f": 0.0}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "k" in arrays:
            return Start.answer(arrays, data, memory)
        U = arrays["U"]
        steps = int(arrays["steps"])
        w = weight(arrays, data)
        own, chosen = held_out.number(arrays, data, memory)
        span = deflation.WHOLE
        if steps:
            span = deflation.narrow(data, U.shape[1] + own, memory)
        # after a U that was given up, from the own components of the message before
        start = memory.get("before" if arrays.get("back") else "V")
        V = deflation.own_basis(data, U, own, steps=steps, start=start, span=span)
        SU, SV = np.hsplit(deflation.product(data, np.hstack([U, V])), [U.shape[1]])
        explained = np.sum(U * SU) + np.sum(V * SV)
        sums = {"Z": w * (SU - V @ (V.T @ SU)), "f": np.array(w * explained), "n": np.array(data.n)}
        up = {**sums, "w": np.array(w), **Probe.answer(V, arrays["b"])}
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
            # Not all are heard yet: U stays, lest it follow those that happened to be asked first.
            return self._wait(replace(state, sums=sums))
        state = replace(state, sums=sums)
        if not sums.summed or share >= 1.0:
            return self.weigh(state, total, share)
        # The objective of those that answered cannot be held against that of all. What was bold has
        # not proved itself.
        if state.bold:
            return self._wait(state)
        return replace(self.weigh(state, total, share), secants=None)

    def _wait(self, state: ExactState) -> ExactState:
        """After a round that has nothing to say of U: back at the plain step, where it was bold."""
        progress = state.progress.step(state.progress.error)
        U = state.known if state.bold else state.U
        return replace(state, U=U, bold=False, secants=None, progress=progress)

    def learn(self, state: ExactState, mean: Arrays, share: float) -> ExactState:
        Z, f = mean["Z"], float(mean["f"])
        if state.bold and f < state.best - _ROUNDING * abs(state.best):
            secants, progress = state.secants, state.progress.step(state.progress.error)
            if secants is not None and share >= 1.0:
                secants = secants.with_try(Secants.begin(state.U, Z))
            state = replace(state, secants=secants, gains=state.gains.without(), progress=progress)
            return replace(state, U=state.known, bold=False, back=True)
        off = float(np.linalg.norm(linalg.complement(Z, state.U)))
        error = off / (float(np.linalg.norm(Z)) or 1.0)
        image, progress = linalg.polar(Z), state.progress.step(error, gain=f)
        state = replace(state, known=image, best=f, back=False, progress=progress)
        # Answers of absent clients are of an older U: what is said by them of the curvature leads
        # astray.
        if share < 1.0 or self.acceleration == "none":
            return replace(state, U=image, bold=False, secants=None, gains=Gains())
        secants = Secants.begin(state.U, Z)
        if state.secants is not None:
            secants = state.secants.at_next(secants)
        ahead = secants.ahead(Z)
        if ahead is None:
            return replace(state, U=image, bold=False, secants=secants, gains=Gains())
        U, promise = ahead
        sine = linalg.sin_theta(state.U, U)
        gains = state.gains.add(f, secants.curvature(Z), promise, sine)
        return replace(state, U=U, bold=True, secants=secants, gains=gains)

    def status(self, state: ExactState) -> Status | None:
        status = super().status(state)
        if status is not None or not self.gain_tol or state.progress.rounds < self.min_rounds:
            return status
        words = state.gains.reason_to_end(self.gain_tol)
        if not words:
            return None
        rounds = labels.count(state.progress.rounds, "round")
        return Status(Outcome.SETTLED, f"{words}, after {rounds}")

    def metrics(self, state: ExactState) -> dict[str, float]:
        metrics = super().metrics(state)
        if np.isfinite(state.best):
            metrics["objective"] = state.best
        return metrics

    def finish(self, state: ExactState, model: Model) -> Model:
        U = state.U
        if np.isfinite(state.best):
            U = state.known
        left = self.leave(state, exact=True, steps=self.local_steps)
        return replace(model, basis=U, product=None, left=left)
