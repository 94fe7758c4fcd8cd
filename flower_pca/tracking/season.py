"""Season: whether what a statistic alarms at comes back every so many steps, such as on every weekend.

A stream can be louder at regular intervals. A level that is learnt from all steps then either lies
below the loud steps, and each of them would be a change; or it has learnt them, and lies above all that
could happen in between. So the newest values of a statistic are kept with the numbers of their steps.
If an alarm is p steps or a multiple of p after an earlier one, three or more steps of this phase in a
row were loud, at least halfway from the usual to the level of an alarm, and few other steps were, p is
the period. If alarms are of several phases, four loud steps in a row tell it. From then on, a step is
held against steps of its phase: if these are usually louder or quieter than others, what they usually
are is taken off. Two loud steps at least are alarms, as nobody can know before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np

from flower_pca.base.linalg import Array

_KEPT: Final = 150  # steps whose values are kept, so the longest period is half as long
_ALARMS: Final = 10  # alarms whose numbers are kept
_LOUD: Final = 0.35  # the largest share of other steps that may be beyond the level too
_SAME: Final = 8  # steps of the same phase that a step is held against
_LEAST: Final = 3  # loud steps of one phase in a row, as any two alarms are some number of steps apart
_FEWEST: Final = 2  # steps of a phase from which it can be told what is usual there
_APART: Final = 3.0  # MADs over the median, that a phase has to be apart to count as another


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
        Every how many steps alarms come back; 0 while none is known.
    """

    numbers: tuple[int, ...] = ()
    values: Array = field(default_factory=lambda: np.zeros(0))
    alarms: tuple[int, ...] = ()
    period: int = 0

    def with_step(self, number: int, value: float) -> Self:
        """With one step more."""
        return replace(self, numbers=(*self.numbers, number)[-_KEPT:], values=np.append(self.values, value)[-_KEPT:])

    def with_alarm(self, number: int, level: float) -> Self:
        """With an alarm at a step that is among the values, by this level, and the period if it tells one."""
        found = [self._between(earlier, number, level) for earlier in reversed(self.alarms)]
        if self.alarms:
            found.append(self._up_to(number, level))
        period = next((p for p in found if p), self.period)
        return replace(self, alarms=(*self.alarms, number)[-_ALARMS:], period=period)

    def offset(self, number: int) -> float:
        """How much louder steps of the phase of this one usually are than all steps; 0 if they are alike."""
        if not self.period:
            return 0.0
        same = [self._known[j] for j in self._phase(number) if j in self._known and j != number]
        if len(same) < _FEWEST:
            return 0.0
        middle = float(np.median(self.values))
        apart = float(np.median(same[-_SAME:])) - middle
        return apart if abs(apart) > _APART * float(np.median(np.abs(self.values - middle))) else 0.0

    def without_it(self) -> Array:
        """The values less what steps of their phase usually are, each by the others."""
        return np.array([value - self.offset(j) for j, value in zip(self.numbers, self.values, strict=True)])

    @cached_property
    def _known(self) -> dict[int, float]:
        return dict(zip(self.numbers, self.values.tolist(), strict=True))

    def _phase(self, number: int) -> range:
        """The numbers of the steps that are kept with the phase of this one, oldest first."""
        first = self.numbers[0]
        return range(first + (number - first) % self.period, self.numbers[-1] + 1, self.period)

    def _between(self, earlier: int, number: int, level: float) -> int:
        """The shortest period of which both alarms are, by at least three loud steps in a row; or 0."""
        for period in range(2, min(number - earlier, _KEPT // 2) + 1):
            if (number - earlier) % period == 0 and self._holds(period, earlier - period, number, level):
                return period
        return 0

    def _up_to(self, number: int, level: float) -> int:
        """The shortest period by which an alarm has three loud steps before it in a row; or 0."""
        known = self._known
        for period in range(2, _KEPT // 4):
            first = number - _LEAST * period
            if first in known and self._holds(period, first, number, level):
                return period
        return 0

    def _holds(self, period: int, first: int, last: int, level: float) -> bool:
        """Whether in these steps those of the phase of the last are loud, and few others."""
        known = {j: value for j, value in self._known.items() if first <= j <= last}
        loud = {j for j, value in known.items() if value > (float(np.median(self.values)) + level) / 2.0}
        # If nobody had rows in a step, nothing speaks against the period.
        same = {j for j in known if (last - j) % period == 0}
        others = known.keys() - same
        return len(same) >= _LEAST and same <= loud and len(others & loud) <= _LOUD * len(others)
