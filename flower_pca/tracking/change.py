"""Detect changes of a subspace by comparing each step with steps of the stream in which nothing changed.

Let lambda(j, i) be the largest eigenvalue of the completed rows of step j outside the basis of step i, divided by the
number of rows. It measures how much of a batch is outside an older basis. A single outlying row makes it large, and
also spoils the next basis. So two batches are compared with the two bases that precede both. The statistic of step j is
the smallest of

    lambda(j-1, j-2), lambda(j-1, j-3), lambda(j, j-2), lambda(j, j-3)

The statistic is large only if the rows have moved permanently, so a change is detected by the second batch after it. If
one of the four values is more than 30 times the smallest, one of the batches contained an outlying row that has spoiled
the basis which completes the next batch. In this case, the statistic is an eighth of the smallest value.

If rows have heavy tails, two batches in a row may have an outlying row each. The rows of a change point into the same
directions in both batches, but outlying rows do not. Let A and B be the matrices of both batches outside an earlier
basis, per row, and let v and w be the leading eigenvectors of B and A. The statistic is at most a multiple of v'Av and
of w'Bw, which quiet noise hardly reaches. lambda(j-1, j-4) is an upper bound, too, because the bases of steps j-2 and
j-3 may both be spoiled. A step raises no alarm if the basis of the previous step fits its rows much worse than older
bases do, or if the completed values are much larger than the observed values of the same columns (see
`RecentBases.is_spoiled`). Both show that the previous basis was spoiled, so that it does not complete rows correctly.
Later steps are not compared with it.

The usual size of the statistic is learned from the stream. The module keeps logarithms of the statistic, minus the
logarithm of (1 + sqrt(d/n))^2 / m, to which noise is proportional for batches of n rows and d columns outside bases
that were found from m rows. On both sides of their median, the logarithms are modeled as exponential. So the statistic
has power-law tails, which are heavier than log-normal tails. The level is the value that a quiet step, a step without a
change, exceeds at the rate `alarm_rate`: median + MAD / log 2 log(1 / (2 alarm_rate)). MAD is the median distance from
the median, which a few large values hardly change. An alarm needs a statistic a third above the level. With fewer than
15 steps, there is no level. When the first level is known, all earlier steps are tested with it.

If alarms recur with a period, a step is compared with earlier steps of the same phase (see `tracking.season`).

After an alarm, there is a pause without alarms. The first half of the pause is ignored. Later steps show how large the
statistic is from then on. If it stays larger, it is compared with a level from these steps. Once there are 15 of these
steps, they replace all earlier values until the statistic is as small as before. Without this rule, a stuck sensor
would cause alarms forever, and real changes would not be noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.tracking.season import AlarmPeriod
from flower_pca.tracking.solver import SubspaceSolver

_LEAST: Final = 15  # minimum number of steps for a level
_NEWEST: Final = 600  # maximum number of steps that are kept for the level
# The MAD of logarithms counts as at least this much, because the MAD of data without noise is 0.
_LEAST_MAD: Final = 0.02
_OLDER: Final = 3  # number of previous bases that a batch is compared with
# If the largest of the four values is more than this many times the smallest, a batch had an outlying row.
_WILD: Final = 30.0
# An alarm is this far above the level, in logarithms. Values from heavy tails exceed the level only by little.
_MARGIN: Final = 0.3
# This distance is added if a step is compared with the few steps of its phase, because their tail is unknown.
_SEASONAL: Final = 0.4
# After a batch with an outlying row, rows completed with its basis may have this many times the usual value.
_SPOILED: Final = 8.0
# The statistic is at most this many times the largest eigenvalue of noise that has the variance of a batch along the
# leading direction of the other batch.
_COMMON: Final = 1.75
# The previous basis is spoiled if it leaves this many times as much of a batch as an older basis does.
_WORSE: Final = 2.0
# It is also spoiled if completed rows have this many times the variance that observed values allow.
_BEYOND: Final = 1.4
# At least this many steps after a change are needed to show the usual size of the statistic from then on.
_FEW: Final = 4
STEPS_NEEDED: Final = _LEAST + _OLDER  # number of steps after which there is a level


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """The position of a stream when a step is tested for a change, with the settings of the test.

    Attributes
    ----------
    number : int
        The number of the step.
    looks : bool
        Whether the step is tested for a change.
    since : int
        Number of steps since the last change.
    rate : float
        The rate of false alarms per quiet step.
    pause : int
        Number of steps after a change that are not tested.
    floor : float
        The lowest logarithm that can cause an alarm.
    """

    number: int
    looks: bool
    since: int
    rate: float
    pause: int
    floor: float = -np.inf


@dataclass(frozen=True)
class ChangeVerdict:
    """The verdict on a step: whether it is a change, and the level with which it was compared.

    `level` is None until there is a level. `first` is True in the first step with a level. In this step, `judged` lists
    the steps so far that were tested with this level, and `changes` lists the changes among them.
    """

    level: float | None
    changed: bool
    first: bool = False
    judged: tuple[int, ...] = ()
    changes: tuple[int, ...] = ()


@dataclass(frozen=True)
class QuietDistribution:
    """The distribution of a statistic in steps without a change.

    Attributes
    ----------
    quiet : ndarray
        The logarithms of the statistic, oldest first, without the effect of the batch size.
    waiting : tuple of int
        The numbers of these steps, as long as there is no level.
    after : ndarray or None
        The logarithms since the last alarm, or None once they were enough to decide whether the statistic stays larger.
    older : ndarray or None
        The values of `quiet` before a change that made the statistic permanently larger, or None.
    season : AlarmPeriod
        The newest values, and the period of recurring alarms.
    """

    quiet: Array = field(default_factory=lambda: np.zeros(0))
    waiting: tuple[int, ...] = ()
    after: Array | None = None
    older: Array | None = None
    season: AlarmPeriod = field(default_factory=AlarmPeriod)

    def alarm_level(self, rate: float) -> float | None:
        """Return the logarithm that steps without a change exceed at this rate, or None if there are too few steps."""
        if len(self.quiet) < _LEAST:
            return None
        return _exceeded_at_rate(self.quiet, rate)

    def with_values(self, *values: float) -> Self:
        """Return the state after more steps without a change, which had these values."""
        return replace(self, quiet=np.append(self.quiet, values)[-_NEWEST:])

    def verdict_on(self, value: float, position: StreamPosition) -> tuple[ChangeVerdict, Self]:
        """Return the verdict on a step with this logarithm, and the state after the step."""
        self = replace(self, season=self.season.with_step(position.number, value))
        level = self.alarm_level(position.rate)
        if level is None:
            known = replace(self.with_values(value), waiting=(*self.waiting, position.number))
            return known._judge_without_level(position)
        offset = self.season.phase_offset(position.number)
        value -= offset
        alarm = max(level + _MARGIN, position.floor, self._alarm_since_change(position.rate)) + (
            _SEASONAL if offset else 0.0
        )
        if position.looks and value > alarm:
            return ChangeVerdict(alarm + offset, True), self._after_alarm(
                value, position.number, max(level + _MARGIN, position.floor)
            )
        if position.since < position.pause // 2:
            return ChangeVerdict(alarm + offset, False), self._in_pause()
        if self.after is None:
            known = self.with_values(value)
        else:
            known = self._with_values_since(np.append(self.after, value), level)
        return ChangeVerdict(alarm + offset, False), known._restored_if_small(position.rate)

    def _after_alarm(self, value: float, number: int, level: float) -> Self:
        """Return the state after an alarm. If the alarm reveals a period, the effect of the phase is subtracted."""
        season = self.season.with_alarm(number, level)
        if season.period == self.season.period:
            return replace(self, after=np.array([value]), season=season)
        return replace(self, quiet=season.without_phase_effect(), after=None, older=None, season=season)

    def _alarm_since_change(self, rate: float) -> float:
        """Return the alarm level, as a logarithm, that follows from the values since the last change.

        Return -inf if there are too few of these values.
        """
        if self.after is None or len(self.after) < _FEW:
            return -np.inf
        return _exceeded_at_rate(self.after, rate) + _MARGIN

    def _in_pause(self) -> Self:
        """Return the state after a step in the first half of a pause. The value of the step is ignored."""
        if self.after is not None and len(self.after) <= 1:
            return self
        return replace(self, after=np.zeros(0))

    def _with_values_since(self, after: Array, level: float) -> Self:
        """Return the state with these values since a change. If there are enough values, decide which values to keep.

        If the statistic stays larger than the level, the new values replace the old values. Otherwise they are added.
        """
        if len(after) <= _LEAST:
            return replace(self, after=after)
        known = replace(self, after=None)
        if np.median(after) > level:
            older = self.older if self.older is not None else self.quiet
            return replace(known, quiet=after, older=older)
        return known.with_values(*after)

    def _restored_if_small(self, rate: float) -> Self:
        """Return the earlier state if the statistic is again as small as before the change that made it larger."""
        newest = self.quiet[-_LEAST:]
        if self.older is None:
            return self
        before = replace(self, quiet=self.older, older=None)
        level = before.alarm_level(rate)
        if level is None or np.median(newest) > level:
            return self
        quiet = np.append(self.older, newest[newest <= level])
        return replace(before, quiet=quiet[-_NEWEST:])

    def _judge_without_level(self, position: StreamPosition) -> tuple[ChangeVerdict, Self]:
        """Return the verdict on a step before which there was no level, and the state after the step.

        If there is a level now, test all earlier steps with it.
        """
        level = self.alarm_level(position.rate)
        if level is None:
            return ChangeVerdict(None, False), self
        alarm = max(level + _MARGIN, position.floor)
        judged, changes = list[int](), list[int]()
        for number, value in zip(self.waiting, self.quiet, strict=True):
            # The start counts as a change, because the stream needs time to settle after the start, too.
            following = max(changes, default=0) + position.pause
            if number >= following:
                judged.append(number)
            if number >= following and value > alarm:
                changes.append(number)
        verdict = ChangeVerdict(alarm, position.number in changes, True, tuple(judged), tuple(changes))
        after = None
        season = self.season
        for number in changes:
            after = np.zeros(0)
            season = season.with_alarm(number, alarm)
        return verdict, replace(self, waiting=(), after=after, season=season)


@dataclass(frozen=True)
class RecentBases:
    """The bases of the newest steps, with which the statistic of the whole subspace is computed.

    Attributes
    ----------
    bases : tuple of ndarray
        The bases of the newest steps, newest first.
    rows : tuple of int
        The number of rows from which each basis was found.
    before : tuple of float
        The largest eigenvalues of the previous step outside the bases before it, per row, newest basis first.
    factor : ndarray
        F of the previous step, where F F' approximates its matrix C per row. It has no columns if it is unknown.
    """

    bases: tuple[Array, ...] = ()
    rows: tuple[int, ...] = ()
    before: tuple[float, ...] = ()
    factor: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def parts_outside(self, factor: Array) -> list[tuple[Array, Array]]:
        """Return the part of F outside each basis except the newest, with its leading eigenvector.

        The list is empty if F is unknown.
        """
        if not factor.size:
            return []
        parts = [linalg.complement(factor, basis) for basis in self.bases[1:]]
        return [(part, _leading(part)) for part in parts]

    def statistic(self, outside: tuple[float, ...], parts: Sequence[tuple[Array, Array]], rows: int) -> float | None:
        """Return the statistic of a step, or None if there are too few earlier steps.

        `outside` has the largest eigenvalue of the step outside each of `bases`, per row. `parts` is `parts_outside` of
        the step, and `rows` is the number of its rows.
        """
        if len(outside) < _OLDER or len(self.before) < _OLDER - 1:
            return None
        four = (*self.before[: _OLDER - 1], *outside[1:])
        noise = (1.0 + np.sqrt(len(self.bases[0]) / max(min(rows, self.rows[0]), 1))) ** 2
        least = float(min(*four, *self.before[_OLDER - 1 :], _COMMON * noise * self._in_both(parts)))
        if max(four) > _WILD * min(four):
            return least / _SPOILED
        return least

    def is_spoiled(
        self,
        outside: tuple[float, ...],
        factor: Array,
        parts: Sequence[tuple[Array, Array]],
        observed: Array | None,
        *,
        nothing: float = 0.0,
    ) -> bool:
        """Return whether an outlying row of the previous step spoiled the basis that completed the rows of this step.

        After a change, the previous basis contains the new directions, so it fits the rows at least as well as older
        bases do. If all values were observed, the variance along a direction v would be at most the square of the sum
        of |v_l| s_l, where s_l is the root mean square of the values of column l. `observed` has the squares of s_l, if
        they are known. `parts` is `parts_outside` of `factor`. Eigenvalues up to `nothing` are rounding errors.
        """
        if len(outside) < _OLDER or not parts:
            return False
        if outside[0] > _WORSE * (min(outside[1:]) + nothing):
            return True
        if observed is None:
            return False
        _, direction = parts[0]
        most = float(np.abs(direction) @ np.sqrt(observed)) ** 2
        return float(np.sum((factor.T @ direction) ** 2)) > _BEYOND * most

    def _in_both(self, parts: Sequence[tuple[Array, Array]]) -> float:
        """Return the smallest variance of a batch along the leading direction of the other one, outside older bases.

        The batches are those of the previous step and of this step. Return infinity if a batch is unknown.
        """
        before = self.parts_outside(self.factor)
        if not (parts and before):
            return np.inf
        values = list[float]()
        for (A, v), (B, w) in zip(before, parts, strict=True):
            values += [float(np.sum((A.T @ w) ** 2)), float(np.sum((B.T @ v) ** 2))]
        return min(values)

    def expected_for_noise(self, rows: int) -> float:
        """Return the logarithm of the expected statistic of noise in a batch with this many rows, up to a constant.

        Return 0 while too few bases are known.
        """
        if len(self.rows) < _OLDER:
            return 0.0
        batch, basis, d = max(rows, self.rows[0], 1), max(*self.rows[1:], 1), len(self.bases[0])
        entries = 2.0 * np.log1p(np.sqrt(d / batch))
        return float(entries - np.log(basis))

    def after_step(
        self, basis: Array, outside: tuple[float, ...], rows: int, factor: Array, *, spoiled: bool
    ) -> RecentBases:
        """Return the state after a step with this basis, and with the factor F of its matrix.

        If the previous basis was spoiled, it is forgotten.

        A step with too few rows is ignored, because its basis is unchanged. If three of these steps replaced all older
        bases, a change during an outage of all clients would be missed.
        """
        if self.bases and not outside:
            return self
        first = int(spoiled)
        bases, counts = (basis, *self.bases[first:])[:_OLDER], (rows, *self.rows[first:])[:_OLDER]
        return replace(self, bases=bases, rows=counts, before=outside[first:], factor=factor)


def largest_outside(solver: SubspaceSolver, bases: tuple[Array, ...]) -> tuple[float, ...]:
    """Return the largest eigenvalue outside each of these subspaces, from the Ritz pairs of the solver.

    Return () if there are no subspaces.
    """
    if not bases:
        return ()
    vectors, values = solver.ritz_pairs
    scaled = vectors * np.sqrt(np.maximum(values, 0.0))
    return tuple(linalg.norm2(linalg.complement(scaled, P)) ** 2 for P in bases)


def _leading(F: Array) -> Array:
    """Return the leading eigenvector of F F'."""
    _, W = linalg.eigh_descending(F.T @ F)
    v = F @ W[:, 0]
    return np.asarray(v / max(float(np.linalg.norm(v)), float(np.finfo(float).tiny)))


def _exceeded_at_rate(quiet: Array, rate: float) -> float:
    """Return the value that logarithms exceed at this rate, if both tails of their distribution are exponential."""
    median = float(np.median(quiet))
    spread = max(float(np.median(np.abs(quiet - median))), _LEAST_MAD)
    return median + spread / float(np.log(2.0)) * float(np.log(0.5 / rate))
