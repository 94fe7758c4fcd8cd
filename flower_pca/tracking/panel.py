"""The panel of a tracker: all statistics of a stream, one rule to judge them, and the changes that they show.

| statistic      | a change of | rate of alarms | least factor |
| -------------- | ----------- | -------------- | ------------ |
| outside        | SPE         | alarm_rate     | none         |
| up, down       | column      | a fifth of it  | 4, 10        |
| lost, louder   | T2          | a fifth of it  | 4            |

`outside` is the statistic of the whole subspace: see `tracking.change`, which also has the rule. The other statistics
are about columns and directions, and need `monitor`: see `tracking.columns`. A step is a change if one of the
statistics says so. Its reasons are the kinds of all statistics that do.

A statistic has no level in its first steps. The step with the first level judges all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.tracking import columns
from flower_pca.tracking.change import Baseline, ChangeVerdict, Quiet, StreamPosition
from flower_pca.tracking.columns import Batch, ColumnsSeen
from flower_pca.tracking.season import Season

SPE, COLUMN, T2 = 1, 2, 4  # kinds of change, which add up
REASONS: Final = {SPE: "SPE", COLUMN: "column", T2: "T2"}
_SAME: Final = 3  # Two statistics show the same change if their steps are at most this far apart.
_NOTHING: Final = 1e-10  # Below this share of the mean square of a row, nothing counts as outside.
_TINY: Final = float(np.finfo(float).tiny)
_OUTSIDE: Final = "outside"


@dataclass(frozen=True)
class _Watched:
    """A statistic: the kind of its changes, how many statistics share the alarm rate, and its lowest alarm."""

    kind: int
    shared: float = 1.0
    floor: float = -np.inf


_WATCHED: Final = {
    _OUTSIDE: _Watched(SPE),
    "up": _Watched(COLUMN, 5.0, columns.RISE),
    "down": _Watched(COLUMN, 5.0, columns.FALL),
    "lost": _Watched(T2, 5.0, columns.RISE),
    "louder": _Watched(T2, 5.0, columns.RISE),
}


@dataclass(frozen=True)
class Hindsight:
    """What step `number`, the newest in which a statistic got its first level, shows about earlier steps.

    `judged` are the steps whose subspace was judged then, and `level` is the level they were compared with. `changes`
    are all steps that turned out to be changes, `kinds` are their kinds, and `new` are the changes that this step has
    shown.
    """

    number: int = -1
    level: float = np.nan
    judged: tuple[int, ...] = ()
    changes: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()
    new: tuple[int, ...] = ()

    def with_changes(self, number: int, found: Mapping[int, int], known: Collection[int]) -> Hindsight:
        """Return the state after step `number`, which shows the `found` changes: their kinds by step.

        A change close to another one, or to a `known` one, counts as the same.
        """
        kinds, new = dict(zip(self.changes, self.kinds, strict=True)), list[int]()
        for step, kind in sorted(found.items()):
            near = [other for other in kinds if abs(other - step) <= _SAME]
            if near:
                kinds[near[0]] |= kind
            elif not any(abs(other - step) <= _SAME for other in known):
                kinds[step] = kind
                new.append(step)
        changes = tuple(sorted(kinds))
        return replace(self, number=number, changes=changes, kinds=tuple(kinds[j] for j in changes), new=tuple(new))


@dataclass(frozen=True)
class Finding:
    """What a step shows: the statistic of its subspace, its level if it has one, and the change if it is one.

    `kind` is the sum of its kinds, or 0. `named` are columns by kind, and positions of clients.
    """

    statistic: float = np.nan
    level: float = np.nan
    kind: int = 0
    named: Array = field(default_factory=columns.nobody)


@dataclass(frozen=True, kw_only=True)
class Moment(StreamPosition):
    """A finished step, as a detector sees it.

    Attributes
    ----------
    outside : tuple of float
        What its batch has outside the previous bases, newest first.
    basis : ndarray
        The basis that it ends with.
    size : float
        The mean square of a row.
    known : tuple of int
        The earlier steps that were changes when they were over.
    batch : Batch or None
        What is known about columns and directions of the step, if it is.
    """

    outside: tuple[float, ...]
    basis: Array
    rows: int
    size: float
    known: tuple[int, ...]
    batch: Batch | None


@dataclass(frozen=True)
class Panel:
    """What is known about a stream: the bases of its newest steps, and the quiet behavior of each statistic.

    Attributes
    ----------
    baseline : Baseline
        The bases of the newest steps.
    columns : ColumnsSeen or None
        What is known about columns and directions, if they are monitored.
    levels : dict
        The quiet behavior of each statistic.
    hindsight : Hindsight
        The changes that were found by a later step.
    """

    baseline: Baseline = field(default_factory=Baseline)
    columns: ColumnsSeen | None = None
    levels: dict[str, Quiet] = field(default_factory=dict)
    hindsight: Hindsight = field(default_factory=Hindsight)

    @property
    def seasons(self) -> list[Season]:
        """What is known about recurring alarms, for each statistic."""
        return [self.levels[name].season for name in _WATCHED if name in self.levels]

    def judge(self, now: Moment) -> tuple[Finding, Panel]:
        """Return what a step shows by levels that are learnt from the stream, and the panel after it."""
        found, named, of_columns = dict[str, float](), columns.nobody(), self.columns
        statistic = self.baseline.statistic(now.outside)
        nothing, usual = _NOTHING * now.size, self.baseline.usual(now.rows)
        if statistic is not None:
            # Noise of a channel may take the statistic below 0.
            found[_OUTSIDE] = float(np.log(max(statistic, 0.0) + max(nothing, _TINY))) - usual
        if self.columns is not None and now.batch is not None:
            more, named, of_columns = columns.look(self.columns, now.batch)
            found |= {name: value for name, value in more.items() if np.isfinite(value)}
        verdicts, levels = dict[str, ChangeVerdict](), dict(self.levels)
        for name, value in found.items():
            of = _WATCHED[name]
            terms = replace(now, rate=now.rate / of.shared, floor=of.floor)
            verdicts[name], levels[name] = self.levels.get(name, Quiet()).judge(value, terms)
        kind, earlier = 0, dict[int, int]()
        for name, verdict in verdicts.items():
            kind |= _WATCHED[name].kind if verdict.changed else 0
            for step in verdict.changes:
                if step < now.number:
                    earlier[step] = earlier.get(step, 0) | _WATCHED[name].kind
        level, hindsight = np.nan, self.hindsight
        subspace = verdicts.get(_OUTSIDE)
        if subspace is not None and subspace.level is not None:
            limit = float(np.exp(subspace.level + usual)) - nothing
            if now.number in subspace.judged or (now.looks and not subspace.first):
                level = limit
            if subspace.first:
                judged = tuple(step for step in subspace.judged if step < now.number)
                hindsight = replace(hindsight, level=limit, judged=judged)
        if earlier:
            hindsight = hindsight.with_changes(now.number, earlier, now.known)
        finding = Finding(np.nan if statistic is None else statistic, level, kind, named)
        baseline = self.baseline.onward(now.basis, now.outside, now.rows)
        return finding, Panel(baseline, of_columns, levels, hindsight)


@dataclass(frozen=True)
class Detector:
    """The rule for changes. `Tracker` documents its settings."""

    detect: bool
    threshold: float | None
    alarm_rate: float
    update_length: int

    @property
    def learns(self) -> bool:
        """Whether the alarm level comes from the stream."""
        return self.detect and self.threshold is None

    def judge(self, panel: Panel, now: Moment) -> tuple[Finding, Panel]:
        """Return what a step shows, and the panel after it."""
        if self.learns:
            return panel.judge(now)
        if not now.outside:
            return Finding(), panel
        if not (self.detect and now.looks):
            return Finding(now.outside[0]), panel
        assert self.threshold is not None
        changed = now.outside[0] >= self.threshold
        return Finding(now.outside[0], self.threshold, SPE if changed else 0), panel
