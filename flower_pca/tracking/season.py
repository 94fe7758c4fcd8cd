"""Detect alarms that recur with a period, for example on every weekend.

The statistic of a stream can be large at regular intervals. A level that is learned from all steps then fails in one of
two ways. If the level is below the large values, each of them raises an alarm. If the level has adapted to the large
values, it is too high to detect changes between them. So the newest values of a statistic are kept with the numbers of
their steps. A step counts as loud if its value is more than halfway from the usual value to the alarm level. The period
is p if an alarm is p steps, or a multiple of p, after an earlier alarm, if at least three consecutive steps of this
phase were loud, and if few other steps were loud. If alarms have several phases, four consecutive loud steps of a phase
show the period. From then on, a step is compared with steps of its phase. If values of this phase are usually larger or
smaller than other values, the difference is subtracted. At least two loud steps raise alarms before the period can be
known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from flower_pca.base.linalg import Array

_KEPT: Final = 150  # number of steps whose values are kept; the longest period is half of this number
_ALARMS: Final = 10  # maximum number of alarms that are kept, newest last
_LOUD: Final = 0.35  # maximum share of steps in other phases that may be loud
_SAME: Final = 8  # maximum number of steps of the same phase with which a step is compared
# A period needs this many consecutive loud steps of a phase. Two are not enough, because any two alarms fit a period.
_LEAST: Final = 3
_FEWEST: Final = 2  # minimum number of steps of a phase from which its usual value is computed
_APART: Final = 3.0  # A phase differs from all steps if its median is more than this many MADs from their median.


@dataclass(frozen=True)
class AlarmPeriod:
    """The newest values of a statistic, and the period of its alarms.

    Attributes
    ----------
    numbers : tuple of int
        The numbers of the steps with these values, oldest first.
    values : ndarray
        The logarithms of the statistic in these steps.
    alarms : tuple of int
        The numbers of the newest alarms.
    period : int
        The period of recurring alarms in steps, or 0 if no period is known.
    """

    numbers: tuple[int, ...] = ()
    values: Array = field(default_factory=lambda: np.zeros(0))
    alarms: tuple[int, ...] = ()
    period: int = 0

    def with_step(self, number: int, value: float) -> Self:
        """Return the season with the value of one more step."""
        return replace(self, numbers=(*self.numbers, number)[-_KEPT:], values=np.append(self.values, value)[-_KEPT:])

    def with_alarm(self, number: int, level: float) -> Self:
        """Return the season with one more alarm, and with the period of alarms if this alarm reveals it."""
        found = [self._period_since(earlier, number, level) for earlier in reversed(self.alarms)]
        if self.alarms:
            found.append(self._period_before(number, level))
        period = next((p for p in found if p), self.period)
        return replace(self, alarms=(*self.alarms, number)[-_ALARMS:], period=period)

    def phase_offset(self, number: int) -> float:
        """Return the usual difference between values of this step's phase and all values, or 0 if they are alike."""
        if not self.period:
            return 0.0
        same = [self._known_values[j] for j in self._steps_of_phase(number) if j in self._known_values and j != number]
        if len(same) < _FEWEST:
            return 0.0
        middle = float(np.median(self.values))
        apart = float(np.median(same[-_SAME:])) - middle
        return apart if abs(apart) > _APART * float(np.median(np.abs(self.values - middle))) else 0.0

    def without_phase_effect(self) -> Array:
        """Return the values minus the effect of their phase, which is estimated from the other steps of the phase."""
        return np.array([value - self.phase_offset(j) for j, value in zip(self.numbers, self.values, strict=True)])

    @cached_property
    def _known_values(self) -> dict[int, float]:
        return dict(zip(self.numbers, self.values.tolist(), strict=True))

    def _steps_of_phase(self, number: int) -> range:
        """Return the numbers of the steps with the same phase as this step, in the kept range, oldest first."""
        first = self.numbers[0]
        return range(first + (number - first) % self.period, self.numbers[-1] + 1, self.period)

    def _period_since(self, earlier: int, number: int, level: float) -> int:
        """Return the shortest period that divides the distance between the alarms at `earlier` and `number`, or 0.

        At least three steps of the same phase in a row, up to `number`, must have been loud.
        """
        for period in range(2, min(number - earlier, _KEPT // 2) + 1):
            if (number - earlier) % period == 0 and self._is_period(period, earlier - period, number, level):
                return period
        return 0

    def _period_before(self, number: int, level: float) -> int:
        """Return the shortest period for which the last three steps with the phase of this alarm were loud, or 0."""
        known = self._known_values
        for period in range(2, _KEPT // 4):
            first = number - _LEAST * period
            if first in known and self._is_period(period, first, number, level):
                return period
        return 0

    def _is_period(self, period: int, first: int, last: int, level: float) -> bool:
        """Return whether, in this range, all steps of the last step's phase are loud, and few other steps are loud."""
        known = {j: value for j, value in self._known_values.items() if first <= j <= last}
        loud = {j for j, value in known.items() if value > (float(np.median(self.values)) + level) / 2.0}
        # Only steps with values are compared, because a step without rows is no evidence against the period.
        same = {j for j in known if (last - j) % period == 0}
        others = known.keys() - same
        return len(same) >= _LEAST and same <= loud and len(others & loud) <= _LOUD * len(others)
