"""`Tracker`: the server's part of tracking. A step is one batch at every client, and takes a few messages.

This module is the state machine of a run. In every step, a `SubspaceSolver` requests products until it has the leading
eigenvectors. If the run looks for changes and uses the power method, a step begins with a probe: a second solver, for
the part of the batch outside the old subspace. `server` passes each sum to the probe or to the solver. `_after_product`
ends a pass over the batch, `_end_step` ends a step, and `_solver_and_probe` sets up the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, ConfigError, DataError, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.kinds import (
    BLOCK,
    COLUMNS,
    COUNT,
    FLAG,
    MOST_STEPS,
    NUMBER,
    SEED,
    WIDTH,
    ArrayRule,
    Kind,
    Part,
    index_rule,
)
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stage, add_answer
from flower_pca.tracking.batch import BY_COLUMN, COUNTS, add_aligned, fault_in_counts, keeping_each, shape_of_product
from flower_pca.tracking.change import RecentBases
from flower_pca.tracking.columns import ColumnsSeen
from flower_pca.tracking.panel import Detector, DetectorMemory
from flower_pca.tracking.solver import SubspaceSolver, orthogonal_columns
from flower_pca.tracking.state import TrackState, finished_step, largest_left_over, skip_step, step_of, with_probe

SOLVERS: Final = ("krylov", "power")
# These are the minimum values of the integer settings.
_MINIMA: Final = {
    "reuse": 0,
    "oversample": 0,
    "update_length": 1,
    "products": 1,
    "first_products": 1,
    "qr_every": 1,
    "keep": 1,
}


@dataclass(frozen=True, kw_only=True)
class Tracker(Stage[TrackState]):
    """A stage over a `Stream` that finds, for every step, the basis of the batches of all clients together.

    A message has the number of the step, the basis P of the previous step, and a block B. A client takes its batch,
    completes the rows with P, keeps them as L, and answers with L'(L B) and counts. A client without rows in a step
    answers with zeros. If all clients together have fewer rows than components, the basis does not change.

    Parameters
    ----------
    refine : bool, default=False
        Whether clients complete a batch once more with the basis found from it, one step later.
    reuse : int, default=0
        How often the batch is completed with its own basis and used again.
    detect : bool, default=False
        Whether to detect changes. The basis is updated either way.
    threshold : float or None, default=None
        The alarm level: a change is declared if the largest eigenvalue of the completed rows outside the old subspace,
        divided by the number of rows, reaches this level. The level is in squared units of the data. Narayanamurthy,
        Vaswani and Ramamoorthy (2022) use 7.5961e-4. With None, the level is learned from the stream (see
        `tracking.change`), and a change is detected by the second batch after it.
    alarm_rate : float, default=0.001
        The rate of false alarms per quiet step, if the level is learned. About the first 18 steps are tested later,
        when there is a level.
    update_length : int, default=10
        The number of steps after the start, or after a change, that are not tested.
    monitor : bool, default=False
        Whether to monitor columns and directions in addition to the whole subspace. A change then has a reason, columns
        and sites. The level must be learned. Clients send 3 d more numbers per step.
    solver : str, default="krylov"
        "krylov" is a Krylov space from the old basis and random columns, which gives the statistic at no additional
        cost. "power" is the power method from the old basis, for the air channel. It needs additional messages to
        detect changes.
    products, first_products
        The maximum number of messages in a step, and in the first step, which starts from random columns. Messages that
        only serve to detect changes are not counted.
    qr_every : int, default=1
        The number of products between two QR decompositions, for "power". See `FedOAPM`.
    tol : float, default=1e-8
        A step ends if the estimated sine of the angle to the true eigenvectors of the batch is at most this tolerance.
    oversample : int, default=2
        The number of random columns in addition to the old basis, for "krylov".
    keep : int, default=1000
        The maximum number of steps whose bases and figures are in the result. If there are more steps, the result has
        the newest steps, and only totals of earlier steps.
    """

    by_row: ClassVar[bool] = True
    over_air: ClassVar[bool] = True
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "step": index_rule(2**53),
        "lap": index_rule(MOST_STEPS),
        "refine": FLAG,
        "seed": SEED,
        "width": WIDTH,
        "d": COLUMNS,
        "block": BLOCK,
        "P": BLOCK,
        "closing": FLAG,
        "outside": FLAG,
        "columns": FLAG,
    }

    refine: bool = False
    reuse: int = 0
    detect: bool = False
    threshold: float | None = None
    alarm_rate: float = 1e-3
    update_length: int = 10
    monitor: bool = False
    solver: str = "krylov"
    products: int = 10
    first_products: int = 60
    qr_every: int = 1
    tol: float = 1e-8
    oversample: int = 2
    keep: int = 1000

    def __post_init__(self) -> None:
        for what, value in {"refine": self.refine, "detect": self.detect, "monitor": self.monitor}.items():
            checks.choice(f"{what} of {self.name}", value, (True, False))
        checks.choice(f"solver of {self.name}", self.solver, SOLVERS)
        for what, least in _MINIMA.items():
            checks.integer(f"{what} of {self.name}", getattr(self, what), least=least)
        checks.number(f"tol of {self.name}", self.tol, least=0.0)
        if self.threshold is not None:
            checks.number(f"threshold of {self.name}", self.threshold, least=0.0)
        if self.monitor and not self._change_detector.learns_level:
            raise ConfigError(
                f"{option('monitor')} of {self.name} works only with detect=True and without threshold, but the "
                f"tracker is {shown(self.spec)}. Write detect=True, and leave threshold out.",
                setting="monitor",
                value=self.monitor,
            )
        checks.number(f"alarm_rate of {self.name}", self.alarm_rate, least=1e-9, most=0.1, remedy="Try 1e-3.")

    def start(self, model: Model) -> TrackState:
        assert isinstance(model.n_components, int)
        r, seed = model.n_components, model.seed
        panel = DetectorMemory(columns=ColumnsSeen() if self.monitor else None)
        if self._change_detector.learns_level and model.basis is not None:
            panel = replace(panel, baseline=RecentBases(bases=(model.basis,), rows=(0,)))
        state = TrackState(r, seed, steps=model.steps, summed=model.summed, P=model.basis, keep=self.keep, panel=panel)
        if model.basis is None:
            return state
        solver, probe = self._solver_and_probe(model.basis, seed=seed + 1, lap=0, detecting=False)
        return replace(state, solver=solver, probe=probe)

    def broadcast(self, state: TrackState) -> Arrays:
        refine = np.array(int(self.refine))
        head = {"step": np.array(state.step), "lap": np.array(state.lap), "refine": refine}
        if state.P is not None:
            head["P"] = state.P
        if state.closing:
            return {**head, "closing": np.array(1)}
        if state.wants_columns:
            head["columns"] = np.array(1)
        if state.solver is None:
            if state.d:
                head["d"] = np.array(state.d)
            return {**head, "seed": np.array(state.seed), "width": np.array(self._block_width(state))}
        if state.probe is not None:
            return {**head, "block": state.probe.block, "outside": np.array(1)}
        return {**head, "block": state.solver.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "closing" in arrays:
            return {"rows": COUNT}
        figures = {name: NUMBER if name in ("misfit", "energy") else COUNT for name in COUNTS}
        parts = {"S": Part(shape_of_product(arrays, d), Kind.PRODUCT), **figures}
        if "columns" in arrays:
            long = (len(arrays["P"]),)
            parts |= dict.fromkeys(BY_COLUMN, Part(long, Kind.COLUMNS))
            parts[BY_COLUMN[0]] = Part(long, Kind.COUNT)
        return parts

    def bounds(self, state: TrackState, model: Model) -> Mapping[str, Array | float]:
        """Return bounds on the values of an answer, with 0 for values that have no bound.

        S has a bound once there is a product with the same rows, and counts have no bound.

        A completed row is l = Pa + e, where e is the residual of the entries that were kept, so |l|^2 <= 2 |P'l|^2 + 8
        |e|^2. The sum of the Ritz values is at least sum |P'l|^2, because the first block contains P. The norm |S| is
        at most sum |l|^2 times |block|.
        """
        solver = state.probe or state.solver
        unknown = dict.fromkeys(("S", *COUNTS), 0.0)
        if state.closing:
            return {"rows": 0.0}
        if state.wants_columns:
            unknown |= dict.fromkeys(BY_COLUMN, 0.0)
        if solver is None or solver.values is None:
            return unknown
        inside = float(np.maximum(solver.values, 0.0).sum())
        rounding = np.finfo(float).eps * state.sums["energy"]
        squares = 2.0 * inside + 8.0 * state.sums["misfit"] + rounding
        return {**unknown, "S": squares * linalg.column_norms(solver.block)}

    def inspect(self, state: TrackState, reply: Arrays) -> None:
        if fault := fault_in_counts(reply):
            counts = [float(reply[name]) for name in COUNTS if name in reply]
            raise ProtocolError(f"An answer {fault}: its counts are {counts}. {OTHER_CLIENT}")
        if state.solver is None and not state.closing and len(reply["S"]):
            d, width = reply["S"].shape
            if width != min(self._block_width(state), d):
                raise ProtocolError(
                    f"A client answered with a matrix S of {labels.count(width, 'column')}, but the server asked for "
                    f"{min(self._block_width(state), d)}. {OTHER_CLIENT}"
                )

    def merging(self, state: TrackState) -> Merge:
        if state.summed or state.closing:
            return add_answer
        return keeping_each(add_aligned if state.solver is None else add_answer)

    @property
    def additive(self) -> bool:
        return True  # `add_aligned` is not needed for sums, because clients then receive the number of columns.

    def server(self, state: TrackState, total: Any, answered: frozenset[int]) -> TrackState:
        if state.closing:
            return replace(state, ended=True)
        clients = tuple(sorted(answered))
        rows, S = int(total["rows"]), total["S"]
        counts = {name: float(total[name]) for name in COUNTS}
        others = bool(state.sums) and clients != state.clients
        state = replace(state, sums=counts, clients=clients, each=total.get("each", {}))
        if BY_COLUMN[0] in total:
            state = replace(state, by_column=np.stack([total[name] for name in BY_COLUMN]))
        # All clients have an outage: there are no rows, or all entries are missing or zero.
        nothing = not rows or not counts["energy"]
        if state.solver is None:
            if nothing:
                return skip_step(state)
            d = len(S)
            if rows < state.r <= d and not state.is_last:
                return skip_step(state)  # Clients pool these rows with the rows of the next step.
            if state.r > min(rows, d):
                raise DataError(
                    f"The first step has {labels.count(rows, 'row')} of {labels.count(d, 'column')}, too few for "
                    f"{option('n_components', state.r)}. Ask for fewer components, or take longer batches.",
                    setting="n_components",
                    value=state.r,
                )
            # The message contained only the seed, so clients have drawn the same block.
            block = linalg.random_basis(d, S.shape[1], state.seed)
            state = replace(state, solver=self._new_solver(block, state.r))
        elif (nothing or rows < state.r) and state.P is not None:
            if state.is_past_last:
                return replace(state, ended=True)
            return self._end_step(state, state.P, np.zeros(state.r), state.outside)
        elif others and state.solver.Q.shape[1] and state.solver.products + 1 < self._most_products(state):
            # Products of different clients belong to different matrices, so they cannot be combined in a Krylov space.
            return self._restarted_step(state, state.solver)
        if state.probe is not None:
            return with_probe(state, state.probe.after_product(S, 1))
        assert state.solver is not None
        return self._after_product(state, state.solver.after_product(S, self.qr_every))

    def status(self, state: TrackState) -> Status | None:
        if not state.ended:
            return None
        why = "no client has more rows" if state.steps is None else "as many as asked for"
        return Status(Outcome.DONE, f"{labels.count(self.rounds(state), 'step')}, {why}")

    def metrics(self, state: TrackState) -> dict[str, float]:
        solver = state.probe or state.solver
        metrics = {"step": float(state.step)}
        if solver is not None and np.isfinite(solver.error):
            metrics["error"] = solver.error
        return metrics

    def finish(self, state: TrackState, model: Model) -> Model:
        return replace(model, basis=state.P, d=state.columns, left=state.figures() if state.ended else {})

    def rounds(self, state: TrackState) -> int:
        """Return the number of steps so far."""
        return state.gone + len(state.record)

    def _block_width(self, state: TrackState) -> int:
        return state.r + (self.oversample if self.solver == "krylov" else 0)

    def _new_solver(self, block: Array, r: int) -> SubspaceSolver:
        if self.solver == "krylov":
            return SubspaceSolver.by_krylov(block, r=r)
        return SubspaceSolver.by_power(block, r=r)

    def _solver_and_probe(
        self, P: Array, *, seed: int, lap: int, detecting: bool
    ) -> tuple[SubspaceSolver, SubspaceSolver | None]:
        """Return the solver for a step that starts from P, and a probe if the step needs it."""
        if self.solver == "krylov":
            extra = min(self.oversample, len(P) - P.shape[1])
            block = np.hstack([P, orthogonal_columns(P, extra, seed)])
            return self._new_solver(block, P.shape[1]), None
        probe = None
        if self.detect and (detecting or self._change_detector.learns_level) and lap == 0:
            probe = SubspaceSolver.by_power(linalg.random_basis(len(P), 1, seed), r=1)
        return self._new_solver(P, P.shape[1]), probe

    def _restarted_step(self, state: TrackState, solver: SubspaceSolver) -> TrackState:
        """Return the state in which the step starts again, because the set of answering clients has changed.

        The message is counted, so that a step ends even if the clients keep changing.
        """
        if state.P is None:
            d = len(solver.Q)
            block = linalg.random_basis(d, min(self._block_width(state), d), state.seed)
            fresh = self._new_solver(block, state.r)
        else:
            seed = state.seed + state.step + 1
            fresh = self._solver_and_probe(state.P, seed=seed, lap=state.lap, detecting=state.detecting)[0]
        return replace(state, solver=replace(fresh, products=solver.products + 1), by_column=None)

    def _most_products(self, state: TrackState) -> int:
        if state.P is None:
            return self.first_products
        return self.products

    def _after_product(self, state: TrackState, solver: SubspaceSolver) -> TrackState:
        # This is the sum of squares of all entries of the completed rows, or an upper bound.
        squares = state.sums["misfit"] + (0.0 if state.P is None else solver.squares_inside)
        found = solver.accurate_estimate(tol=self.tol, products=self._most_products(state), squares=squares)
        if found is None:
            onward = solver.with_next_block()
            if onward.block.shape[1]:
                return replace(state, solver=onward)
        # If there is no next block, the Krylov space is invariant, so its estimate is exact.
        basis, values = found or solver.estimate()
        outside = state.outside
        # In later laps, P was found from this batch, so it already contains any new directions.
        if state.lap == 0 and state.P is not None:
            outside = largest_left_over(state, solver)
        if state.lap < self.reuse:
            seed = state.seed + state.step + 1
            lap = state.lap + 1
            solver, probe = self._solver_and_probe(basis, seed=seed, lap=lap, detecting=state.detecting)
            return replace(state, P=basis, lap=lap, outside=outside, solver=solver, probe=probe)
        return self._end_step(state, basis, values, outside, solver)

    def _end_step(
        self,
        state: TrackState,
        basis: Array,
        values: Array,
        outside: tuple[float, ...],
        solver: SubspaceSolver | None = None,
    ) -> TrackState:
        now = finished_step(state, self._change_detector, basis, values, outside, solver)
        finding, panel = self._change_detector.outcome_of(state.panel, now)
        since, later = state.since + 1, panel.hindsight
        if finding.kind:
            since = 1
        elif later.number == state.number and later.changes:
            since = state.number - later.changes[-1] + 1
        over, detecting = state.is_last, since >= self.update_length
        following, probe = None, None
        if not over:
            # `_restarted_step` uses the same seed in the next step, so that it draws the same columns.
            seed = state.seed + state.step + 2
            following, probe = self._solver_and_probe(basis, seed=seed, lap=0, detecting=detecting)
        return state.at_next_step(
            step_of(state, finding, basis, values, outside),
            solver=following,
            probe=probe,
            panel=panel,
            detecting=detecting,
            since=since,
            ended=over and not self.refine,
            closing=over and self.refine,
        )

    @property
    def _change_detector(self) -> Detector:
        return Detector(self.detect, self.threshold, self.alarm_rate, self.update_length)
