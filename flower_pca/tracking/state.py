"""The state of a tracking run: the record of finished steps, and the state of the current step.

`TrackState` is the state of the stage: the current step with its solver and its probe, and the record of finished
steps. Like every state, it is immutable. `Tracker.server` returns the next state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from flower_pca.base import files, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.rows.stream import UNTOLD
from flower_pca.tracking.change import largest_outside
from flower_pca.tracking.columns import FIGURES as NAMED
from flower_pca.tracking.columns import BatchFigures
from flower_pca.tracking.panel import Detector, DetectorMemory, FinishedStep, StepOutcome
from flower_pca.tracking.solver import SubspaceSolver

FIGURES: Final = (  # The figures of a step, by name.
    "rows", "residual", "deficient", "outliers", "missing", "statistic", "level", "changed", "misfit", "beyond",
)  # fmt: skip
_TOTALS: Final = ("rows", "deficient", "outliers", "changed")  # figures whose sums over all steps are kept
# A probe, the power method on the part of a batch outside the old subspace, takes this many products.
_PROBES: Final = 15


@dataclass(frozen=True)
class TrackedStep:
    """The record of a finished step: its basis, the eigenvalues (`values`) of its completed rows, and its figures.

    `level` is the alarm level of the statistic. `misfit` is the mean square of the residual of a row in the old basis.
    `beyond` is the largest eigenvalue per row outside the old basis. These figures are NaN if they are not known. With
    `monitor`, `kind` is the kind of the change, and `named` has its columns and sites (see `tracking.panel`).
    """

    basis: Array
    values: Array
    rows: int
    residual: float
    deficient: int
    outliers: int
    missing: int = 0
    statistic: float = np.nan
    level: float = np.nan
    changed: bool = False
    misfit: float = np.nan
    beyond: float = np.nan
    kind: int = 0
    named: Array = field(default_factory=lambda: np.zeros(0))

    def to_vector(self) -> Array:
        """Return the step as a vector of numbers, from which `from_vector` restores it."""
        figures = [float(getattr(self, name)) for name in FIGURES]
        if len(self.named):
            figures += [float(self.kind), *self.named]
        return np.concatenate([figures, self.values, self.basis.ravel()])

    @classmethod
    def from_vector(cls, line: Array, r: int, *, monitored: bool = False) -> TrackedStep:
        """Restore a step with r components from the vector of numbers that `to_vector` returned."""
        more = 1 + NAMED if monitored else 0
        ends = np.cumsum([len(FIGURES), more, r])
        figures, change, values, basis = np.split(line, ends)
        figure = dict(zip(FIGURES, figures.tolist(), strict=True))
        return cls(
            basis=basis.reshape(-1, r).copy(),
            values=values.copy(),
            rows=int(figure["rows"]),
            residual=figure["residual"],
            deficient=int(figure["deficient"]),
            outliers=int(figure["outliers"]),
            missing=int(figure["missing"]),
            statistic=figure["statistic"],
            level=figure["level"],
            changed=bool(figure["changed"]),
            misfit=figure["misfit"],
            beyond=figure["beyond"],
            kind=int(change[:1].sum()),
            named=change[1:].copy(),
        )


@dataclass(frozen=True)
class TrackState:
    """The state of a tracking run.

    Attributes
    ----------
    r, seed : int
        The number of components, and the seed of random columns.
    steps : int or None
        The number of steps to take, or None to continue as long as there are rows.
    step, lap : int
        The number of the current step, and the number of times that its batch has been completed again.
    P : ndarray or None
        The basis that completes the batch, or None before there is a first basis.
    solver : SubspaceSolver or None
        The solver for the eigenvectors of the completed batch, or None before the first answer of the run.
    probe : SubspaceSolver or None
        The power method on the part of the batch outside P, if the step needs it.
    summed : bool
        Whether only sums over clients are available, as with masks. Clients then receive the number of columns.
    d : int
        The number of columns that clients receive with the first message of the run, else 0.
    sums : dict
        The counts of the batch, once there was an answer.
    clients : tuple of int
        The clients that answered the newest message.
    each : dict
        The counts of each of these clients, in the order of `batch.COUNTS`. {} if only sums are available.
    over : int
        The number of the step that finished last, as in the record, or -1 before the first step has finished.
    record : tuple of Step
        The newest finished steps, at most `keep`.
    keep : int
        The maximum number of finished steps that are kept.
    gone : int
        The number of finished steps that are no longer kept.
    totals : dict
        Sums over all finished steps.
    detecting : bool
        Whether the current step is tested for a change.
    since : int
        The number of steps since the last change or the start.
    outside : tuple of float
        The largest eigenvalue of the current step outside each previous basis, per row, newest basis first.
    panel : DetectorMemory
        The memory of the detector, if the alarm level is learned from the stream.
    by_column : ndarray of shape (3, d) or None
        The sums of `batch.BY_COLUMN` for the current step, once they have arrived.
    untold : bool
        Whether, in the previous step, a client did not know if another step would follow.
    ended : bool
        Whether the run is over.
    closing : bool
        Whether the last message, which sends the last basis to the clients, is due or has been answered.
    """

    r: int
    seed: int
    steps: int | None = None
    step: int = 0
    lap: int = 0
    P: Array | None = None
    solver: SubspaceSolver | None = None
    probe: SubspaceSolver | None = None
    summed: bool = False
    d: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    each: dict[int, tuple[float, ...]] = field(default_factory=dict, metadata={files.APART: True})
    over: int = field(default=-1, metadata={files.APART: True})
    record: tuple[TrackedStep, ...] = field(default=(), metadata={files.APART: True})
    keep: int = 1000
    gone: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    detecting: bool = False
    since: int = 0
    outside: tuple[float, ...] = ()
    panel: DetectorMemory = field(default_factory=DetectorMemory)
    by_column: Array | None = None
    untold: bool = False
    ended: bool = False
    closing: bool = False

    @property
    def columns(self) -> int:
        """The number of columns, or 0 if it is not known."""
        if self.P is not None:
            return len(self.P)
        if self.solver is None:
            return self.d
        return len(self.solver.block)

    @property
    def wants_columns(self) -> bool:
        """Whether the next message also requests the figures of columns."""
        due = self.by_column is None and not self.closing
        return due and self.monitors_columns and self.P is not None

    @property
    def monitors_columns(self) -> bool:
        """Whether columns and directions are monitored in addition to the whole subspace."""
        return self.panel.columns is not None

    @property
    def number(self) -> int:
        """The number of the current step in the record."""
        return self.gone + len(self.record)

    @property
    def period(self) -> int:
        """The period of recurring alarms, or 0 if there is none."""
        return next((season.period for season in self.panel.seasons if season.period), 0)

    @property
    def is_last(self) -> bool:
        """Whether the current step is the last step, by the requested number of steps or by the clients' answers."""
        return self.step + 1 == self.steps or (self.steps is None and not self.sums["left"])

    @property
    def is_past_last(self) -> bool:
        """Whether the stream had ended before this step, so that this step has no rows and no step will follow."""
        solver = self.probe or self.solver
        begun = solver is not None and solver.products > 0
        return self.untold and self.steps is None and not begun and not (self.sums["rows"] or self.sums["left"])

    def lines(self, newest: int) -> Array:
        """Return the last `newest` steps of the record as rows of a matrix, or an empty array if `newest` is 0."""
        if newest:
            first = len(self.record) - newest
            return np.stack([step.to_vector() for step in self.record[first:]])
        return np.zeros(0)

    def with_last_step(self, steps: int | None) -> TrackState:
        """Return the state with this total number of steps to take, or None to continue as long as there are rows.

        Raises
        ------
        ConfigError
            If the run has already ended, or has already begun a later step.
        """
        over = self.ended or self.closing
        if over and steps not in (None, self.step):
            raise ConfigError(
                f"The run in the checkpoint has ended after {labels.count(self.step, 'step')}, so steps cannot be "
                f"{steps}. Leave steps out, or delete the checkpoint to start again.",
                setting="steps",
                value=steps,
            )
        if steps is not None and steps <= self.step and not over:
            raise ConfigError(
                f"The run in the checkpoint has already begun step {self.step + 1}, so steps cannot be {steps}. Ask "
                "for more steps, or choose another checkpoint.",
                setting="steps",
                value=steps,
            )
        return replace(self, steps=steps)

    def with_steps(self, lines: Array) -> TrackState:
        """Return the state with the record that is restored from the rows of `lines`."""
        steps = tuple(TrackedStep.from_vector(line, self.r, monitored=self.monitors_columns) for line in lines)
        return replace(self, record=steps)

    def figures(self) -> dict[str, Array]:
        """Return the kept steps as arrays, and the totals of all steps, for the result."""
        figures = {name: np.array([getattr(step, name) for step in self.record]) for name in FIGURES}
        totals, seen = dict(self.totals), self.panel.hindsight
        # Some steps were tested only after they had been recorded, so their verdicts are added here.
        judged = [number - self.gone for number in seen.judged if number >= self.gone]
        figures["level"][judged] = seen.level
        kinds = np.array([step.kind for step in self.record])
        for number, kind in zip(seen.changes, seen.kinds, strict=True):
            if number >= self.gone:
                figures["changed"][number - self.gone] = True
                kinds[number - self.gone] = kind
        totals["changed"] = totals.get("changed", 0) + len(seen.changes)
        if self.panel.columns is not None:
            figures["kinds"] = kinds
            figures["named"] = np.stack([step.named for step in self.record])
            figures["clients"] = np.array(self.panel.columns.clients, dtype=np.uint64)
        return {
            "bases": np.stack([step.basis for step in self.record]),
            "values": np.stack([step.values for step in self.record]),
            "gone": np.array(self.gone),
            "skipped": np.array(self.step - self.number),  # batches with too few rows for a first basis
            "period": np.array(self.period),
            **figures,
            **{f"total.{name}": np.array(total) for name, total in totals.items()},
        }

    def at_next_step(
        self,
        step: TrackedStep,
        *,
        solver: SubspaceSolver | None,
        probe: SubspaceSolver | None,
        panel: DetectorMemory,
        detecting: bool,
        since: int,
        ended: bool,
        closing: bool,
    ) -> TrackState:
        """Return the state at the beginning of the next step, with the finished step in the record."""
        record = (*self.record, step)
        over = max(len(record) - self.keep, 0)
        return TrackState(
            r=self.r,
            seed=self.seed,
            summed=self.summed,
            steps=self.steps,
            keep=self.keep,
            step=self.step + 1,
            P=step.basis,
            solver=solver,
            probe=probe,
            record=record[over:],
            gone=self.gone + over,
            totals={name: self.totals.get(name, 0) + int(getattr(step, name)) for name in _TOTALS},
            each=self.each,
            over=self.number,
            untold=self.sums["left"] >= UNTOLD,
            panel=panel,
            detecting=detecting,
            since=since,
            ended=ended,
            closing=closing,
        )

    def with_column_count(self, columns: int) -> TrackState:
        """Return the state with this number of columns, unless the first sum has already shown the number."""
        if self.solver is None:
            return replace(self, d=columns)
        return self


def step_of(
    state: TrackState, finding: StepOutcome, basis: Array, values: Array, beyond: tuple[float, ...]
) -> TrackedStep:
    """Return the record of the finished step, with the counts of the batch and its largest eigenvalue in `beyond`."""
    sums = state.sums
    return TrackedStep(
        basis=basis,
        values=values,
        rows=int(sums["rows"]),
        residual=float(np.sqrt(sums["misfit"] / sums["energy"])) if sums["energy"] else 0.0,
        deficient=int(sums["deficient"]),
        outliers=int(sums["outliers"]),
        missing=int(sums["missing"]),
        statistic=finding.statistic,
        level=finding.level,
        changed=bool(finding.kind),
        misfit=sums["misfit"] / max(sums["rows"], 1.0) if sums["energy"] else np.nan,
        beyond=beyond[0] if beyond else np.nan,
        kind=finding.kind,
        named=finding.named if state.monitors_columns else np.zeros(0),
    )


def with_probe(state: TrackState, probe: SubspaceSolver) -> TrackState:
    """Return the state with this probe, or with the statistic if the probe has received all its products.

    The statistic is the largest Ritz value outside each previous basis, divided by the number of rows.
    """
    if probe.products < _PROBES:
        return replace(state, probe=probe)
    assert probe.values is not None
    values = largest_outside(probe, state.panel.baseline.bases) or (float(probe.values[0]),)
    mean = tuple(value / state.sums["rows"] for value in values)
    return replace(state, probe=None, outside=mean)


def largest_left_over(state: TrackState, solver: SubspaceSolver) -> tuple[float, ...]:
    """Return the largest eigenvalue of the batch outside each previous basis, per row.

    A Krylov space contains these eigenvalues at no additional cost. For the power method, the probe has found them.
    """
    rows = state.sums["rows"]
    if solver.power is None:
        older = largest_outside(solver, state.panel.baseline.bases[1:])
        return tuple(value / rows for value in (solver.largest_outside, *older))
    if not state.panel.baseline.bases:
        return state.outside
    known = [value / rows for value in largest_outside(solver, state.panel.baseline.bases)]
    # Except for noise, Ritz values are never larger than the eigenvalues, so the larger estimate is closer.
    return tuple(max(pair) for pair in zip(state.outside, known, strict=False))


def finished_step(
    state: TrackState,
    detector: Detector,
    basis: Array,
    values: Array,
    beyond: tuple[float, ...],
    solver: SubspaceSolver | None,
) -> FinishedStep:
    """Return the figures of the finished step that a detector needs. `basis` is the basis at the end of the step."""
    rows, batch, factor = int(state.sums["rows"]), None, np.zeros((0, 0))
    if solver is not None and solver.power is None:  # The power method knows nothing outside of the basis.
        vectors, found = solver.ritz_pairs
        factor = vectors * np.sqrt(np.maximum(found, 0.0) / max(rows, 1))
    if solver is not None and state.by_column is not None:
        batch = BatchFigures(
            seen=state.by_column[0],
            sums=state.by_column[1],
            squares=state.by_column[2],
            solver=solver,
            bases=state.panel.baseline.bases,
            values=values,
            rows=rows,
            each=state.each,
        )
    return FinishedStep(
        number=state.number,
        outside=beyond,
        basis=basis,
        rows=rows,
        size=state.sums["energy"] / max(rows, 1),
        known=tuple(number for number, step in enumerate(state.record, state.gone) if step.changed),
        batch=batch,
        factor=factor,
        looks=state.detecting,
        since=state.since,
        rate=detector.alarm_rate,
        pause=detector.update_length,
    )


def skip_step(state: TrackState) -> TrackState:
    """Return the state for the next step if clients do not have enough rows for a first basis.

    The skipped step is not recorded. If it is the last step, raise a DataError.
    """
    if state.is_last:
        so_far = f" in {labels.count(state.step + 1, 'step')}" if state.step else ""
        raise DataError(
            f"No client has had a nonzero value{so_far}. Wait for rows before you start, or ask for more steps."
        )
    return replace(state, step=state.step + 1, sums={}, clients=())
