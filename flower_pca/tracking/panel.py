"""The panel of a tracker: all statistics of a stream, the rule that tests them, and the changes that they show.

| statistic      | a change of | rate of alarms | least factor |
| -------------- | ----------- | -------------- | ------------ |
| outside        | SPE         | alarm_rate     | none         |
| up, down       | column      | a fifth of it  | 4, 10        |
| lost, louder   | T2          | a fifth of it  | 4            |

`outside` is the statistic of the whole subspace. See `tracking.change`, which also describes the rule. The other
statistics are about columns and directions, and need the setting `monitor` (see `tracking.columns`). A step is a change
if at least one statistic raises an alarm. The reasons of the change are the kinds of all statistics with an alarm.

A statistic has no level in the first steps. When its first level is known, all these steps are tested with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.tracking import columns
from flower_pca.tracking.change import ChangeVerdict, QuietDistribution, RecentBases, StreamPosition
from flower_pca.tracking.columns import BatchFigures, ColumnsSeen
from flower_pca.tracking.season import AlarmPeriod

SPE, COLUMN, T2 = 1, 2, 4  # kinds of change, as bits that can be combined
REASONS: Final = {SPE: "SPE", COLUMN: "column", T2: "T2"}
_SAME: Final = 3  # Alarms of two statistics are the same change if they are at most this many steps apart.
_ROUNDING: Final = 1e-10  # A value below this share of a row's mean square counts as rounding error.
_TINY: Final = float(np.finfo(float).tiny)
_OUTSIDE: Final = "outside"


@dataclass(frozen=True)
class _Statistic:
    """The settings of a statistic: its kind of change, the divisor of its alarm rate, and its lowest alarm."""

    kind: int
    shared: float = 1.0
    floor: float = -np.inf


_STATISTICS: Final = {
    _OUTSIDE: _Statistic(SPE),
    "up": _Statistic(COLUMN, 5.0, columns.RISE),
    "down": _Statistic(COLUMN, 5.0, columns.FALL),
    "lost": _Statistic(T2, 5.0, columns.RISE),
    "louder": _Statistic(T2, 5.0, columns.RISE),
}


@dataclass(frozen=True)
class LateChanges:
    """The changes at earlier steps that were found later, when a statistic got its first level.

    `number` is the newest step in which a statistic got its first level. `judged` are the steps whose subspace was
    tested then, and `level` is the level with which they were compared. `changes` are all steps that were found to be
    changes, `kinds` are the kinds of these changes, and `new` are the changes that were found in step `number`.
    """

    number: int = -1
    level: float = np.nan
    judged: tuple[int, ...] = ()
    changes: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    new: tuple[int, ...] = ()

    def with_changes(self, number: int, kinds_by_step: Mapping[int, int], known: Collection[int]) -> LateChanges:
        """Return the state after step `number`. `kinds_by_step` holds the kinds of the changes that this step revealed.

        A change that is close to another change, or to one of the changes `known` before, is not counted again.
        """
        kinds, new = dict(zip(self.changes, self.kinds, strict=True)), list[int]()
        for step, kind in sorted(kinds_by_step.items()):
            near = [other for other in kinds if abs(other - step) <= _SAME]
            if near:
                kinds[near[0]] |= kind
            elif not any(abs(other - step) <= _SAME for other in known):
                kinds[step] = kind
                new.append(step)
        changes = tuple(sorted(kinds))
        return replace(self, number=number, changes=changes, kinds=tuple(kinds[j] for j in changes), new=tuple(new))


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step: the statistic of the subspace, its alarm level, and the kind of the change.

    `statistic` and `level` are NaN if they are unknown. `kind` is the sum of the kinds of a change, or 0 if there is no
    change. `named` has the columns to name for each kind, and the positions of clients.
    """

    statistic: float = np.nan
    level: float = np.nan
    kind: int = 0
    named: Array = field(default_factory=columns.unnamed)


@dataclass(frozen=True, kw_only=True)
class FinishedStep(StreamPosition):
    """The figures of a finished step that a detector needs.

    Attributes
    ----------
    outside : tuple of float
        The largest eigenvalue of the batch outside each previous basis, per row, newest basis first.
    basis : ndarray
        The basis at the end of the step.
    rows : int
        The number of rows of the batch.
    size : float
        The mean square of a row.
    known : tuple of int
        The earlier steps that were declared as changes at their end.
    batch : BatchFigures or None
        The figures of columns and directions in the step, or None if they are not monitored.
    factor : ndarray
        F, where F F' approximates the sum of l l' over the completed rows l of the batch, divided by their number. It
        has no columns if it is unknown.
    """

    outside: tuple[float, ...]
    basis: Array
    rows: int
    size: float
    known: tuple[int, ...]
    batch: BatchFigures | None
    factor: Array


@dataclass(frozen=True)
class DetectorMemory:
    """The memory of a detector: the bases of the newest steps, and the distribution of each statistic.

    Attributes
    ----------
    baseline : RecentBases
        The bases of the newest steps.
    columns : ColumnsSeen or None
        The figures of columns and directions in the newest steps, or None if they are not monitored.
    levels : dict
        The distribution of each statistic in steps without a change, by name.
    hindsight : LateChanges
        The changes at earlier steps that were found later.
    """

    baseline: RecentBases = field(default_factory=RecentBases)
    columns: ColumnsSeen | None = None
    levels: dict[str, QuietDistribution] = field(default_factory=dict)
    hindsight: LateChanges = field(default_factory=LateChanges)

    @property
    def seasons(self) -> list[AlarmPeriod]:
        """The newest values and the period of recurring alarms, for each statistic."""
        return [self.levels[name].season for name in _STATISTICS if name in self.levels]

    def outcome_of(self, finished: FinishedStep) -> tuple[StepOutcome, DetectorMemory]:
        """Return the outcome of a step, by levels that are learned from the stream, and the panel after the step."""
        found, named, of_columns = dict[str, float](), columns.unnamed(), self.columns
        observed = None if finished.batch is None else finished.batch.squares / np.maximum(finished.batch.seen, 1.0)
        nothing, usual = _ROUNDING * finished.size, self.baseline.expected_for_noise(finished.rows)
        parts = self.baseline.parts_outside(finished.factor)
        spoiled = self.baseline.is_spoiled(finished.outside, finished.factor, parts, observed, nothing=nothing)
        statistic = self.baseline.statistic(finished.outside, parts, finished.rows)
        if statistic is not None:
            # Noise from a channel may make the statistic negative.
            found[_OUTSIDE] = float(np.log(max(statistic, 0.0) + max(nothing, _TINY))) - usual
        if self.columns is not None and finished.batch is not None:
            more, named, of_columns = columns.column_statistics(self.columns, finished.batch)
            found |= {name: value for name, value in more.items() if np.isfinite(value)}
            if spoiled:
                of_columns = of_columns.without_basis_before(self.columns)
        verdicts, levels = dict[str, ChangeVerdict](), dict(self.levels)
        for name, value in found.items():
            watched = _STATISTICS[name]
            terms = replace(finished, rate=finished.rate / watched.shared, floor=watched.floor)
            verdict, quiet = self.levels.get(name, QuietDistribution()).verdict_on(value, terms)
            if name == _OUTSIDE and spoiled and (verdict.level is None or verdict.changed):
                # Rows that were completed with a spoiled basis show no change.
                statistic = None
                continue
            verdicts[name], levels[name] = verdict, quiet
        kind, earlier = 0, dict[int, int]()
        for name, verdict in verdicts.items():
            kind |= _STATISTICS[name].kind if verdict.changed else 0
            for step in verdict.changes:
                if step < finished.number:
                    earlier[step] = earlier.get(step, 0) | _STATISTICS[name].kind
        level, hindsight = np.nan, self.hindsight
        subspace = verdicts.get(_OUTSIDE)
        if subspace is not None and subspace.level is not None:
            limit = float(np.exp(subspace.level + usual)) - nothing
            if finished.number in subspace.judged or (finished.looks and not subspace.first):
                level = limit
            if subspace.first:
                judged = tuple(step for step in subspace.judged if step < finished.number)
                hindsight = replace(hindsight, level=limit, judged=judged)
        if earlier:
            hindsight = hindsight.with_changes(finished.number, earlier, finished.known)
        finding = StepOutcome(np.nan if statistic is None else statistic, level, kind, named)
        baseline = self.baseline.after_step(
            finished.basis, finished.outside, finished.rows, finished.factor, spoiled=spoiled
        )
        return finding, DetectorMemory(baseline, of_columns, levels, hindsight)


@dataclass(frozen=True)
class Detector:
    """The rule that decides whether a step is a change. `Tracker` documents its settings."""

    detect: bool
    threshold: float | None
    alarm_rate: float
    update_length: int

    @property
    def learns_level(self) -> bool:
        """Whether the alarm level is learned from the stream."""
        return self.detect and self.threshold is None

    def outcome_of(self, panel: DetectorMemory, finished: FinishedStep) -> tuple[StepOutcome, DetectorMemory]:
        """Return the outcome of a step, and the panel after the step."""
        if self.learns_level:
            return panel.outcome_of(finished)
        if not finished.outside:
            return StepOutcome(), panel
        if not (self.detect and finished.looks):
            return StepOutcome(finished.outside[0]), panel
        assert self.threshold is not None
        changed = finished.outside[0] >= self.threshold
        return StepOutcome(finished.outside[0], self.threshold, SPE if changed else 0), panel
