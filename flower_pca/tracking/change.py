"""Changes of a subspace, told from what a stream is like while nothing happens.

How much a batch has outside of an older basis is told by lambda(j, i), the largest eigenvalue of the completed rows of
step j outside the basis of step i, divided by the rows. One wild row makes it large, and spoils the basis that follows;
so two batches are held against the two bases before both, and the least of

    lambda(j-1, j-2), lambda(j-1, j-3), lambda(j, j-2), lambda(j, j-3)

is the statistic of step j: large only if the rows have left for good. A change is told by the second batch that it is
in. What the statistic is like otherwise is learnt from the stream: its logarithms are kept with weights that fall from
step to step, and above a quantile u they are taken to fall off like an exponential with their mean excess b, so the
statistic itself like a power of itself, which log-normal and lighter data stay below. Of k excesses in effect, a share
p of all, the chance of one beyond u + x is p (1 + x / (k b))^-k; the level of an alarm is where that is `alarm_rate`,
for the quantile where it is highest. After a change the first half of the steps in which none is looked for is left
out; what comes later counts up to the level, so that a stream that stays louder is known after a few alarms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.solver import Solver

_LEAST: Final = 20  # quiet steps from which a level is worked out
_NEWEST: Final = 600  # steps that are kept of them
_FORGET: Final = 0.995  # by which a step's weight falls with every step after it
_SHARES: Final = (0.5, 0.25, 0.1)  # of the steps, above which an exponential is fitted
_FLATTEST: Final = 0.02  # mean excess at least, in logarithms: data without noise has none
_NOTHING: Final = 1e-10  # of the mean square of a row: what does not count as outside
_OLDER: Final = 3  # bases that a batch is held against


@dataclass(frozen=True)
class Alarm:
    """The statistic of a step, what it was held against if it was, and whether it is a change."""

    statistic: float | None
    level: float | None
    changed: bool


@dataclass(frozen=True)
class Watch:
    """What is known of a stream while nothing happens.

    Attributes:
        bases: Those of the newest steps, newest first.
        before: What the step before has had outside of the bases before it, newest first.
        quiet: Logarithms of the statistic while nothing happened, oldest first.
    """

    bases: tuple[Array, ...] = ()
    before: tuple[float, ...] = ()
    quiet: Array = field(default_factory=lambda: np.zeros(0))

    def statistic(self, outside: tuple[float, ...]) -> float | None:
        """Of the step that has this outside of `bases`; None while there are too few steps before it."""
        if len(outside) < _OLDER or len(self.before) < _OLDER - 1:
            return None
        return min(*self.before[: _OLDER - 1], *outside[1:])

    def level(self, rate: float, mean_square: float) -> float | None:
        """What the statistic exceeds in a quiet step at this rate; None while too few are known."""
        if len(self.quiet) < _LEAST:
            return None
        return float(np.exp(_level(self.quiet, rate))) - _NOTHING * mean_square

    def learnt(self, statistic: float, level: float | None, mean_square: float) -> Watch:
        """With a quiet step more, which counts up to the level."""
        counted = statistic if level is None else min(statistic, level)
        value = np.log(max(counted, 0.0) + max(_NOTHING * mean_square, np.finfo(float).tiny))
        return replace(self, quiet=np.append(self.quiet, value)[-_NEWEST:])

    def onward(self, basis: Array, outside: tuple[float, ...]) -> Watch:
        """After a step with this basis."""
        return replace(self, bases=(basis, *self.bases)[:_OLDER], before=outside)


@dataclass(frozen=True)
class Detector:
    """What counts as a change: see `Tracker` for its settings."""

    detect: bool
    threshold: float | None
    alarm_rate: float
    update_length: int

    @property
    def learns(self) -> bool:
        """Whether the level of an alarm comes from the stream."""
        return self.detect and self.threshold is None

    def judge(
        self, watch: Watch, outside: tuple[float, ...], basis: Array, *, looks: bool, since: int, size: float
    ) -> tuple[Alarm, Watch]:
        """Whether the step that ends with this basis is a change, and what is known of a quiet stream after it.

        `looks`: whether one is looked for; `since`: steps since the last one; `size`: the mean square of a row.
        """
        looks = looks and self.detect
        if not self.learns:
            statistic = outside[0] if outside else None
            level = self.threshold if looks and statistic is not None else None
            return Alarm(statistic, level, level is not None and statistic is not None and statistic >= level), watch
        statistic, level = watch.statistic(outside), watch.level(self.alarm_rate, size)
        changed = looks and statistic is not None and level is not None and statistic > level
        settled = since >= self.update_length // (2 if len(watch.quiet) else 1)
        if statistic is not None and settled and not changed:
            watch = watch.learnt(statistic, level, size)
        return Alarm(statistic, level if looks else None, changed), watch.onward(basis, outside)


def outside(solver: Solver, bases: tuple[Array, ...]) -> tuple[float, ...]:
    """The largest eigenvalue outside of each of these subspaces, of what the solver knows of the sum."""
    vectors, values = solver.known()
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return tuple(linalg.norm2(linalg.complement(scaled, P)) ** 2 for P in bases)


def _level(quiet: Array, rate: float) -> float:
    weights = _FORGET ** np.arange(len(quiet))[::-1]
    order = np.argsort(quiet, kind="stable")
    reached = np.cumsum(weights[order])
    return max(_beyond(quiet, weights, quiet[order], reached, share, rate) for share in _SHARES)


def _beyond(quiet: Array, weights: Array, ordered: Array, reached: Array, share: float, rate: float) -> float:
    u = float(ordered[np.searchsorted(reached, (1.0 - share) * reached[-1])])
    above = quiet > u
    if not above.any():
        return u + _FLATTEST * float(np.log(1.0 / rate))
    heavy = weights[above]
    k, p = heavy.sum() ** 2 / np.sum(heavy**2), heavy.sum() / reached[-1]
    b = max(float(heavy @ (quiet[above] - u) / heavy.sum()), _FLATTEST)
    return float(u + k * b * (max(p / rate, 1.0) ** (1.0 / k) - 1.0))
