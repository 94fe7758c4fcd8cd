"""Changes of a subspace, told from what a stream is like while nothing happens.

How much a batch has outside of an older basis is told by lambda(j, i), the largest eigenvalue of
the completed rows of step j outside the basis of step i, divided by the rows. One wild row makes it
large, and spoils the basis that follows; so two batches are held against the two bases before both,
and the least of

    lambda(j-1, j-2), lambda(j-1, j-3), lambda(j, j-2), lambda(j, j-3)

is the statistic of step j: large only if the rows have left for good. A change is told by the
second batch that it is in. Where one of the four is more than 30 times the least, a wild row was in
one of these batches and has spoiled the basis that completes the next: an eighth of the least
counts.

What the statistic is like otherwise is learnt from the stream: its logarithms are kept, less those
of (1 + sqrt(d/n))^2 / m, with which noise of batches of n rows outside of bases of m rows goes along.
They are taken to fall off like an exponential on both sides of their median, so the statistic itself
like a power of itself, which log-normal and lighter data stay below. The level is what a quiet step
exceeds at `alarm_rate`: median + MAD / log 2 log(1 / (2 alarm_rate)), by the median of the distances
from the median, MAD, which loud steps hardly move as long as they are few. An alarm begins a third
above it. Below 15 steps there is no level: these are judged all together by the first one.

If alarms come back every so many steps, a step is held against steps of its phase: see
`tracking.season`.

After an alarm the first half of the steps in which none is looked for is left out. The others tell
what the stream is like from then on: where it stays louder, it is held against the level of these,
and once they are 15 they are all that is known, until it is again as it was. Else a sensor that is
stuck would be a change again and again, and would leave the watch deaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.season import Season
from flower_pca.tracking.solver import Solver

_LEAST: Final = 15  # steps from which a level is worked out
_NEWEST: Final = 600  # steps that are kept of them
# The least MAD, in logarithms, because data without noise has none.
_FLATTEST: Final = 0.02
_OLDER: Final = 3  # bases that a batch is held against
# times the least that batches have outside: one of them was wild by itself
_WILD: Final = 30.0
# above the level, in logarithms, an alarm begins: heavy tails pass it by little
_MARGIN: Final = 0.3
# further above, in logarithms, for a step that is held against few of its phase, whose tail nobody knows
_SEASONAL: Final = 0.4
# times the usual: what rows completed with the basis of a wild batch may have outside
_SPOILED: Final = 8.0
# steps after a change that tell what the stream is like from then on
_FEW: Final = 4


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """Where a stream stands when a step is judged.

    Attributes
    ----------
    number : int
        Of the step.
    looks : bool
        Whether a change is looked for.
    since : int
        Steps since the last one.
    rate : float
        Alarms in a quiet step.
    pause : int
        Steps after a change in which none is looked for.
    floor : float
        The logarithm that an alarm takes at least.
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

    `level` is None until there is a level. `first` is True in the first step that has a level:
    `judged` and `changes` then list steps up to this one.
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
        Its logarithms, oldest first, for batches of any size.
    waiting : tuple of int
        The numbers of these steps, while there is no level.
    after : ndarray or None
        Its logarithms from the last alarm on; None once they are enough to tell what the stream is like.
    older : ndarray or None
        What was known before a change has made the stream louder.
    season : Season
        Whether its alarms come back every so many steps.
    """

    quiet: Array = field(default_factory=lambda: np.zeros(0))
    waiting: tuple[int, ...] = ()
    after: Array | None = None
    older: Array | None = None
    season: Season = field(default_factory=Season)

    def level(self, rate: float) -> float | None:
        """The logarithm that a quiet step exceeds at this rate; None while too few are known."""
        if len(self.quiet) < _LEAST:
            return None
        return _exceeded(self.quiet, rate)

    def learnt(self, *values: float) -> Self:
        """With quiet steps more."""
        return replace(self, quiet=np.append(self.quiet, values)[-_NEWEST:])

    def judge(self, value: float, now: StreamPosition) -> tuple[ChangeVerdict, Self]:
        """Whether a step with this logarithm is a change, and what is known after it."""
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
        """After an alarm. If it is one that comes back, all values that are kept are seen anew, by their phases."""
        season = self.season.with_alarm(number, level)
        if season.period == self.season.period:
            return replace(self, after=np.array([value]), season=season)
        return replace(self, quiet=season.without_it(), after=None, older=None, season=season)

    def _since_change(self, rate: float) -> float:
        """The logarithm that an alarm takes at least, of a stream that stays as after a change."""
        if self.after is None or len(self.after) < _FEW:
            return -np.inf
        return _exceeded(self.after, rate) + _MARGIN

    def _anew(self) -> Self:
        """In the steps next to a change, of which nothing counts but the value of its alarm."""
        if self.after is not None and len(self.after) <= 1:
            return self
        return replace(self, after=np.zeros(0))

    def _onward(self, after: Array, level: float) -> Self:
        """With what the stream has been like since a change, once that is enough to say whether it is another."""
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
        """With what was known before the stream became louder, where it is so no more."""
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
        """The verdict on a step that is learnt from; with the first level all are judged."""
        level = self.level(now.rate)
        if level is None:
            return ChangeVerdict(None, False), self
        alarm = max(level + _MARGIN, now.floor)
        judged, changes = list[int](), list[int]()
        for number, value in zip(self.waiting, self.quiet, strict=True):
            # The start counts as a change, after which the stream has to settle as well.
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
    """What the newest steps have left, for the statistic of the whole subspace.

    Attributes
    ----------
    bases : tuple of ndarray
        Those of the newest steps, newest first.
    rows : tuple of int
        How many rows these are from.
    before : tuple of float
        What the step before has had outside of the bases before it, newest first.
    """

    bases: tuple[Array, ...] = ()
    rows: tuple[int, ...] = ()
    before: tuple[float, ...] = ()

    def statistic(self, outside: tuple[float, ...]) -> float | None:
        """The statistic of the step that has this outside of `bases`; None while too few came before it."""
        if len(outside) < _OLDER or len(self.before) < _OLDER - 1:
            return None
        four = (*self.before[: _OLDER - 1], *outside[1:])
        if max(four) > _WILD * min(four):
            return min(four) / _SPOILED
        return min(four)

    def usual(self, rows: int) -> float:
        """The logarithm of what noise in a batch of so many rows is in proportion to."""
        if len(self.rows) < _OLDER:
            return 0.0
        batch, basis, d = max(rows, self.rows[0], 1), max(*self.rows[1:], 1), len(self.bases[0])
        entries = 2.0 * np.log1p(np.sqrt(d / batch))
        return float(entries - np.log(basis))

    def onward(self, basis: Array, outside: tuple[float, ...], rows: int) -> Baseline:
        """After a step with this basis. A step with too few rows is passed over, as the basis has not moved in it.

        Else a change while all clients are away would be none: after three such steps nothing older
        would be known.
        """
        if self.bases and not outside:
            return self
        counts = (rows, *self.rows)[:_OLDER]
        return replace(self, bases=(basis, *self.bases)[:_OLDER], rows=counts, before=outside)


def outside(solver: Solver, bases: tuple[Array, ...]) -> tuple[float, ...]:
    """The largest eigenvalue outside of each of these subspaces, as the solver knows it."""
    if not bases:
        return ()
    vectors, values = solver.ritz_pairs()
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return tuple(linalg.norm2(linalg.complement(scaled, P)) ** 2 for P in bases)


def _exceeded(quiet: Array, rate: float) -> float:
    """What such logarithms exceed at this rate, if they fall off like an exponential on both sides."""
    median = float(np.median(quiet))
    spread = max(float(np.median(np.abs(quiet - median))), _FLATTEST)
    return median + spread / float(np.log(2.0)) * float(np.log(0.5 / rate))
