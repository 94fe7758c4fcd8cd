"""Detect changes of a subspace by comparing each step with the quiet part of a stream.

Let lambda(j, i) be the largest eigenvalue of the completed rows of step j outside the basis of step i, divided by the
number of rows. It measures how much of a batch lies outside an older basis. One wild row makes it large, and spoils the
next basis, too. So two batches are compared with the two bases before both. The statistic of step j is the smallest of

    lambda(j-1, j-2), lambda(j-1, j-3), lambda(j, j-2), lambda(j, j-3)

It is large only if the rows have moved for good. So a change is detected by the second batch after it. If one of the
four values is more than 30 times the smallest, a wild row was in one of the batches and has spoiled the basis that
completes the next batch. Then the statistic is an eighth of the smallest.

The usual size of the statistic is learnt from the stream. Its logarithms are kept after subtracting the logarithm of (1
+ sqrt(d/n))^2 / m, to which noise is proportional for batches of n rows outside of bases of m rows. On both sides of
their median, they are modeled as exponential. So the statistic itself has power-law tails, which are heavier than those
of log-normal data. The level is what a quiet step exceeds at `alarm_rate`: median + MAD / log 2 log(1 / (2
alarm_rate)). MAD is the median distance from the median, and a few loud steps hardly change it. An alarm begins a third
above the level. With fewer than 15 steps there is no level. The first level judges all earlier steps together.

If alarms recur with a period, a step is compared with earlier steps of its phase: see `tracking.season`.

After an alarm there is a pause without alarms. Its first half is ignored. Later steps show what the stream is like from
then on. If it stays louder, it is compared with the level of these steps. Once there are 15 of them, they replace
everything known before, until the stream is as quiet as before. Otherwise a stuck sensor would raise alarms for ever,
and real changes would go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.season import Season
from flower_pca.tracking.solver import Solver

_LEAST: Final = 15  # steps that a level needs
_NEWEST: Final = 600  # steps that are kept for the level
# The smallest MAD, in logarithms, because data without noise has none.
_FLATTEST: Final = 0.02
_OLDER: Final = 3  # bases that a batch is compared with
# If one value is so many times the smallest, a batch was wild.
_WILD: Final = 30.0
# An alarm begins so far above the level, in logarithms. Heavy tails exceed the level by little.
_MARGIN: Final = 0.3
# Further above, in logarithms, if a step is compared with few steps of its phase, whose tail is unknown.
_SEASONAL: Final = 0.4
# After a wild batch, rows completed with its basis may have so many times the usual value outside.
_SPOILED: Final = 8.0
# steps after a change that show what the stream is like from then on
_FEW: Final = 4


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """The position of a stream when a step is judged.

    Attributes
    ----------
    number : int
        The number of the step.
    looks : bool
        Whether the step is tested for a change.
    since : int
        Steps since the last change.
    rate : float
        The rate of false alarms per quiet step.
    pause : int
        Steps after a change that are not tested.
    floor : float
        The lowest logarithm of an alarm.
    """

    number: int
    looks: bool
    since: int
    rate: float
    pause: int
    floor: float = -np.inf


@dataclass(frozen=True)
class ChangeVerdict:
    """Whether a step is a change, and the level that it was compared with.

    `level` is None until there is a level. `first` is True in the first step that has a level. Then `judged` and
    `changes` list steps up to this one.
    """

    level: float | None
    changed: bool
    first: bool = False
    judged: tuple[int, ...] = ()
    changes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Quiet:
    """What a statistic is like while nothing happens.

    Attributes
    ----------
    quiet : ndarray
        The logarithms of the statistic, oldest first, without the effect of the batch size.
    waiting : tuple of int
        The numbers of these steps, while there is no level.
    after : ndarray or None
        The logarithms since the last alarm, or None once there were enough of them to know the stream.
    older : ndarray or None
        The `quiet` from before a change that made the stream louder.
    season : Season
        The newest values, and the period of recurring alarms.
    """

    quiet: Array = field(default_factory=lambda: np.zeros(0))
    waiting: tuple[int, ...] = ()
    after: Array | None = None
    older: Array | None = None
    season: Season = field(default_factory=Season)

    def level(self, rate: float) -> float | None:
        """Return the logarithm that a quiet step exceeds at this rate, or None if too few steps are known."""
        if len(self.quiet) < _LEAST:
            return None
        return _exceeded(self.quiet, rate)

    def learnt(self, *values: float) -> Self:
        """Return the state with more quiet steps."""
        return replace(self, quiet=np.append(self.quiet, values)[-_NEWEST:])

    def judge(self, value: float, now: StreamPosition) -> tuple[ChangeVerdict, Self]:
        """Return whether a step with this logarithm is a change, and the state after it."""
        self = replace(self, season=self.season.with_step(now.number, value))
        level = self.level(now.rate)
        if level is None:
            known = replace(self.learnt(value), waiting=(*self.waiting, now.number))
            return known._first(now)
        offset = self.season.offset(now.number)
        value -= offset
        alarm = max(level + _MARGIN, now.floor, self._since_change(now.rate)) + (_SEASONAL if offset else 0.0)
        if now.looks and value > alarm:
            return ChangeVerdict(alarm + offset, True), self._alarmed(
                value, now.number, max(level + _MARGIN, now.floor)
            )
        if now.since < now.pause // 2:
            return ChangeVerdict(alarm + offset, False), self._anew()
        if self.after is None:
            known = self.learnt(value)
        else:
            known = self._onward(np.append(self.after, value), level)
        return ChangeVerdict(alarm + offset, False), known._as_it_was(now.rate)

    def _alarmed(self, value: float, number: int, level: float) -> Self:
        """Return the state after an alarm. If alarms recur, the effect of the phase is removed from all kept values."""
        season = self.season.with_alarm(number, level)
        if season.period == self.season.period:
            return replace(self, after=np.array([value]), season=season)
        return replace(self, quiet=season.without_it(), after=None, older=None, season=season)

    def _since_change(self, rate: float) -> float:
        """Return the lowest logarithm of an alarm in a stream that stays as it was after the last change."""
        if self.after is None or len(self.after) < _FEW:
            return -np.inf
        return _exceeded(self.after, rate) + _MARGIN

    def _anew(self) -> Self:
        """Return the state in the steps right after a change, which count for nothing."""
        if self.after is not None and len(self.after) <= 1:
            return self
        return replace(self, after=np.zeros(0))

    def _onward(self, after: Array, level: float) -> Self:
        """Return the state with the values since a change, once there are enough to tell whether the stream stays
        louder.
        """
        if len(after) <= _LEAST:
            return replace(self, after=after)
        known = replace(self, after=None)
        if np.median(after) > level:
            older = self.quiet
            if self.older is not None:
                older = self.older
            return replace(known, quiet=after, older=older)
        return known.learnt(*after)

    def _as_it_was(self, rate: float) -> Self:
        """Return the earlier state if the stream is as quiet as before it became louder."""
        newest = self.quiet[-_LEAST:]
        if self.older is None:
            return self
        before = replace(self, quiet=self.older, older=None)
        level = before.level(rate)
        if level is None or np.median(newest) > level:
            return self
        quiet = np.append(self.older, newest[newest <= level])
        return replace(before, quiet=quiet[-_NEWEST:])

    def _first(self, now: StreamPosition) -> tuple[ChangeVerdict, Self]:
        """Return the verdict on a step while there is no level. The first level judges all earlier steps."""
        level = self.level(now.rate)
        if level is None:
            return ChangeVerdict(None, False), self
        alarm = max(level + _MARGIN, now.floor)
        judged, changes = list[int](), list[int]()
        for number, value in zip(self.waiting, self.quiet, strict=True):
            # The start counts as a change, after which the stream has to settle, too.
            following = max(changes, default=0) + now.pause
            if number >= following:
                judged.append(number)
            if number >= following and value > alarm:
                changes.append(number)
        verdict = ChangeVerdict(alarm, now.number in changes, True, tuple(judged), tuple(changes))
        after = None
        season = self.season
        for number in changes:
            after = np.zeros(0)
            season = season.with_alarm(number, alarm)
        return verdict, replace(self, waiting=(), after=after, season=season)


@dataclass(frozen=True)
class Baseline:
    """The bases of the newest steps, for the statistic of the whole subspace.

    Attributes
    ----------
    bases : tuple of ndarray
        The bases of the newest steps, newest first.
    rows : tuple of int
        The number of rows that each basis comes from.
    before : tuple of float
        What the previous step had outside the bases before it, newest first.
    """

    bases: tuple[Array, ...] = ()
    rows: tuple[int, ...] = ()
    before: tuple[float, ...] = ()

    def statistic(self, outside: tuple[float, ...]) -> float | None:
        """Return the statistic of a step with this outside of `bases`, or None if too few steps came before."""
        if len(outside) < _OLDER or len(self.before) < _OLDER - 1:
            return None
        four = (*self.before[: _OLDER - 1], *outside[1:])
        if max(four) > _WILD * min(four):
            return min(four) / _SPOILED
        return min(four)

    def usual(self, rows: int) -> float:
        """Return the logarithm to which noise in a batch of so many rows is proportional."""
        if len(self.rows) < _OLDER:
            return 0.0
        batch, basis, d = max(rows, self.rows[0], 1), max(*self.rows[1:], 1), len(self.bases[0])
        entries = 2.0 * np.log1p(np.sqrt(d / batch))
        return float(entries - np.log(basis))

    def onward(self, basis: Array, outside: tuple[float, ...], rows: int) -> Baseline:
        """Return the state after a step with this basis.

        A step with too few rows is ignored, because its basis is unchanged.

        Otherwise a change while all clients are away would be missed: after three such steps nothing older would be
        known.
        """
        if self.bases and not outside:
            return self
        counts = (rows, *self.rows)[:_OLDER]
        return replace(self, bases=(basis, *self.bases)[:_OLDER], rows=counts, before=outside)


def outside(solver: Solver, bases: tuple[Array, ...]) -> tuple[float, ...]:
    """Return the largest eigenvalue outside each of these subspaces, as far as the solver knows it."""
    if not bases:
        return ()
    vectors, values = solver.ritz_pairs()
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return tuple(linalg.norm2(linalg.complement(scaled, P)) ** 2 for P in bases)


def _exceeded(quiet: Array, rate: float) -> float:
    """Return the value that logarithms exceed at this rate, if both their tails are exponential."""
    median = float(np.median(quiet))
    spread = max(float(np.median(np.abs(quiet - median))), _FLATTEST)
    return median + spread / float(np.log(2.0)) * float(np.log(0.5 / rate))
