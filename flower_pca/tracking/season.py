"""Detect alarms that recur with a period, for example on every weekend.

A stream can be louder at regular intervals. A level that is learnt from all steps then fails in one of two ways. Either
it lies below the loud steps, so that each of them raises an alarm. Or it has learnt them, and lies above every change
in between. So the newest values of a statistic are kept with the numbers of their steps. The period is p if three
conditions hold: an alarm is p steps, or a multiple of p, after an earlier one; at least three steps of this phase in a
row were loud, which means at least halfway from the usual value to the alarm level; and few other steps were loud. If
alarms have several phases, four loud steps in a row show the period. From then on, a step is compared with steps of its
phase. If these are usually louder or quieter than other steps, the difference is subtracted. At least two loud steps
raise alarms, because nobody can know the period earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from flower_pca.base.linalg import Array

_KEPT: Final = 150  # steps whose values are kept, so the longest period is half as long
_ALARMS: Final = 10  # alarms whose numbers are kept
_LOUD: Final = 0.35  # the largest share of other steps that may be loud, too
_SAME: Final = 8  # steps of the same phase that a step is compared with
# Loud steps of one phase in a row that are needed, because any two alarms are some number of steps apart.
_LEAST: Final = 3
_FEWEST: Final = 2  # steps of a phase that are needed to know its usual value
_APART: Final = 3.0  # A phase differs from other steps if it is so many MADs away from their median.


@dataclass(frozen=True)
class Season:
    """The newest values of a statistic, and the period of its alarms.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of the steps, oldest first.
    values : ndarray
        The logarithms of the statistic in these steps.
    alarms : tuple of int
        The numbers of the newest alarms.
    period : int
        The period of recurring alarms in steps, or 0 while none is known.
    """

    numbers: tuple[int, ...] = ()
    values: Array = field(default_factory=lambda: np.zeros(0))
    alarms: tuple[int, ...] = ()
    period: int = 0

    def with_step(self, number: int, value: float) -> Self:
        """Return the season with one more step."""
        return replace(self, numbers=(*self.numbers, number)[-_KEPT:], values=np.append(self.values, value)[-_KEPT:])

    def with_alarm(self, number: int, level: float) -> Self:
        """Return the season with an alarm at a known step, and with the period if this alarm reveals it."""
        found = [self._between(earlier, number, level) for earlier in reversed(self.alarms)]
        if self.alarms:
            found.append(self._up_to(number, level))
        period = next((p for p in found if p), self.period)
        return replace(self, alarms=(*self.alarms, number)[-_ALARMS:], period=period)

    def offset(self, number: int) -> float:
        """Return how much louder steps of this phase usually are than all steps, or 0 if they are alike."""
        if not self.period:
            return 0.0
        same = [self._known[j] for j in self._phase(number) if j in self._known and j != number]
        if len(same) < _FEWEST:
            return 0.0
        middle = float(np.median(self.values))
        apart = float(np.median(same[-_SAME:])) - middle
        return apart if abs(apart) > _APART * float(np.median(np.abs(self.values - middle))) else 0.0

    def without_it(self) -> Array:
        """Return the values without the effect of their phase, which is estimated from other steps."""
        return np.array([value - self.offset(j) for j, value in zip(self.numbers, self.values, strict=True)])

    @cached_property
    def _known(self) -> dict[int, float]:
        return dict(zip(self.numbers, self.values.tolist(), strict=True))

    def _phase(self, number: int) -> range:
        """Return the numbers of the kept steps with the same phase as this one, oldest first."""
        first = self.numbers[0]
        return range(first + (number - first) % self.period, self.numbers[-1] + 1, self.period)

    def _between(self, earlier: int, number: int, level: float) -> int:
        """Return the shortest period that fits both alarms, with at least three loud steps in a row, or 0."""
        for period in range(2, min(number - earlier, _KEPT // 2) + 1):
            if (number - earlier) % period == 0 and self._holds(period, earlier - period, number, level):
                return period
        return 0

    def _up_to(self, number: int, level: float) -> int:
        """Return the shortest period by which this alarm follows three loud steps in a row, or 0."""
        known = self._known
        for period in range(2, _KEPT // 4):
            first = number - _LEAST * period
            if first in known and self._holds(period, first, number, level):
                return period
        return 0

    def _holds(self, period: int, first: int, last: int, level: float) -> bool:
        """Return whether, in this range, all steps of the last step's phase are loud, and few others."""
        known = {j: value for j, value in self._known.items() if first <= j <= last}
        loud = {j for j, value in known.items() if value > (float(np.median(self.values)) + level) / 2.0}
        # A step without rows is no evidence against the period.
        same = {j for j in known if (last - j) % period == 0}
        others = known.keys() - same
        return len(same) >= _LEAST and same <= loud and len(others & loud) <= _LOUD * len(others)
