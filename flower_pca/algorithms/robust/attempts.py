"""Attempts: what is tried one after the other, and in which words a run ends that knows whether it has succeeded.

Each attempt has a block of its own to start from; the first whose proof passes is the answer:

| attempt | gamma | lam at first | else                                                                              |
| ------- | ----- | ------------ | --------------------------------------------------------------------------------- |
| 1       | .9    | sigma        |                                                                                   |
| 2       | .95   | sigma        |                                                                                   |
| probe   | .9    | sigma        | if these two were lost or left structure: 2k + 2 columns, are there more than k?  |
| 3       | .95   | 3 sigma      |                                                                                   |
| 4       | .95   | sigma        | on rows divided by the size of their own entries, and at the end as they are      |
| 5, ...  | .95   | 10 sigma     |                                                                                   |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from flower_pca.algorithms.robust.attempt import Attempt, Phase
from flower_pca.algorithms.robust.problem import Problem
from flower_pca.algorithms.robust.proof import Verdict
from flower_pca.algorithms.robust.spectra import apart, gap, spectrum
from flower_pca.base.linalg import Array
from flower_pca.base.status import Outcome, Status

GAMMA: Final = 0.9
_SLOWER: Final = 0.95
_PLAN: Final = (  # gamma, lam at first over sigma, and whether rows are divided
    (GAMMA, 1.0, False),
    (_SLOWER, 1.0, False),
    (_SLOWER, 3.0, False),
    (_SLOWER, 1.0, True),
    (_SLOWER, 10.0, False),
)
RESTARTS: Final = len(_PLAN) - 1
_PROBED: Final = 2  # attempts before a probe
_CLEAR: Final = 100.0  # gap of the singular values of a failed attempt that its rank is read off
_SAME: Final = 1e-2  # relative distance of two low-rank parts that agree
# Of an ordinary entry: what hidden entries may be off by where structure is let pass. Residuals of real rows, small and
# correlated, look alike in whatever attempt; but so does a block of far entries that was taken for low rank, and that
# leaves much more than this.
_SMALL: Final = 0.1


@dataclass(frozen=True)
class Found:
    """An attempt that has ended, with its verdict."""

    attempt: Attempt
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Book:
    """The attempts of a run.

    Attributes:
        k: Columns that were asked for; `p`: those of the next attempt.
        gamma: By which the first attempt's threshold falls.
        restarts: How many attempts there may be after the first.
        number: Attempts so far, without the probe.
        probed: Whether there was a probe.
        best: The best that has ended.
        two: The first two attempts that have left structure, and nothing else.
        agree: Whether these have found the same.
    """

    k: int
    p: int
    gamma: float
    restarts: int
    number: int = 0
    probed: bool = False
    best: Found | None = None
    two: tuple[Found, ...] = ()

    @property
    def count(self) -> int:
        """Attempts so far."""
        return self.number + self.probed

    @property
    def agree(self) -> bool:
        """Whether two attempts have found the same, and what structure both have left is small."""
        if len(self.two) < 2 or any(found.verdict.error > _SMALL for found in self.two):
            return False
        (one, other), grams = (found.attempt for found in self.two), [found.attempt.G for found in self.two]
        assert grams[0] is not None
        assert grams[1] is not None
        return apart(one.U, grams[0], other.U, grams[1]) <= _SAME

    def begin(self, problem: Problem, U: Array, tag: int) -> tuple[Book, Attempt]:
        """The next attempt, from this block: as many columns as `columns` says."""
        if self._probe_next(problem):
            attempt = Attempt(U=U, lam=problem.sigma, start=problem.sigma, gamma=GAMMA, probe=True, tag=tag)
            return replace(self, probed=True), attempt
        gamma, factor, rowwise = self._next
        gamma = self.gamma if self.number == 0 else max(gamma, self.gamma)
        lam = factor * (1.0 if rowwise else problem.sigma)
        attempt = Attempt(U=U, lam=lam, start=lam, gamma=gamma, rowwise=rowwise, units=rowwise, tag=tag)
        return replace(self, number=self.number + 1), attempt

    def rowwise_next(self, problem: Problem) -> bool:
        """Whether the next attempt divides rows by the size of their own entries."""
        return not self._probe_next(problem) and self._next[2]

    def columns(self, problem: Problem) -> int:
        """How many columns the next attempt has."""
        return 2 * self.k + 2 if self._probe_next(problem) else self.p

    def add(self, found: Found) -> Book:
        """With an attempt more that has ended."""
        attempt, verdict = found.attempt, found.verdict
        better = self.best is None or verdict.order < self.best.verdict.order
        best = found if better and (verdict.passes or not attempt.probe) else self.best
        p, two = self.p, self.two
        if not verdict.passes and not attempt.probe and attempt.G is not None:
            r = gap(spectrum(attempt.U, attempt.G), _CLEAR)
            p = r if r is not None and r < p else p
        if verdict.structured and verdict.predicted and verdict.determined and not attempt.probe and len(two) < 2:
            two = (*two, found)
        return replace(self, best=best, p=p, two=two)

    def over(self, problem: Problem) -> bool:
        """Whether there is nothing left to try."""
        if self.best is not None and self.best.verdict.passes:
            return True
        if self._probe_next(problem):
            return False
        return self.number > self.restarts or (self.agree and self.count >= _PROBED)

    @property
    def _next(self) -> tuple[float, float, bool]:
        return _PLAN[min(self.number, len(_PLAN) - 1)]

    def _probe_next(self, problem: Problem) -> bool:
        if self.probed or self.number != _PROBED or self.best is None or self.restarts < _PROBED:
            return False
        verdict = self.best.verdict
        return (not verdict.predicted or verdict.structured) and 2 * self.k + 2 <= min(problem.n, problem.d) / 2

    def status(self, rounds: int) -> Status:
        """In which words a run ends that has tried all there is to try."""
        assert self.best is not None
        v, attempt = self.best.verdict, self.best.attempt
        noise = f"dense noise of deviation {attempt.noise:.2g}" if attempt.noise > 0.0 else "no dense noise was found"
        found = f"{noise}; the low-rank part has rank {v.rank} of at most {self.k}, after {_many(rounds, 'round')}"
        if v.passes and v.rank > self.k:
            words = f"a low-rank part of rank {v.rank} was found: ask for n_components={v.rank}"
            return Status(Outcome.STALLED, words)
        if v.passes and not v.rest:
            return Status(Outcome.MAX_ROUNDS, f"the basis still changes by {attempt.stop:.2g} in a round; {found}")
        if v.passes:
            return Status(Outcome.CONVERGED, found)
        if self.agree:
            note = f"structure of {v.structure:.1%} is left, as two attempts agree"
            return Status(Outcome.CONVERGED, f"{found}; {note}")
        if not v.predicted:
            why = f"more noise than {0.4:g} of an entry, too many outliers, or too few entries for the rank"
            missed = f"predicts hidden entries (they are off by {v.error:.2g} of an ordinary entry)"
            return Status(Outcome.STALLED, f"no low-rank part of rank up to {self.k} {missed}: {why}")
        if v.structured:
            left = f"structure of {v.structure:.1%} is left of what should be noise, in {_many(self.count, 'attempt')}"
            return Status(Outcome.STALLED, f"{left}: ask for more components")
        shown = ", ".join(str(j) for j in v.columns[:10]) + (", ..." if len(v.columns) > 10 else "")
        columns = f"{_many(len(v.columns), 'column')} ({shown})" if v.columns else ""
        both = " and ".join(part for part in (columns, _many(v.rows, "row") if v.rows else "") if part)
        words = f"a low-rank part of rank {v.rank} was found but for {both}, whose clean entries do not determine them"
        return Status(Outcome.STALLED, words)


def lost(attempt: Attempt, problem: Problem) -> Found:
    """An attempt that was left at once."""
    unit = 1.0 if attempt.rowwise else problem.sigma
    return Found(replace(attempt, phase=Phase.LOST), Verdict(rank=0, error=attempt.hidden / unit))


def unfinished(rounds: int) -> Status:
    """The end of a run whose first attempt has used up its rounds."""
    words = f"{_many(rounds, 'round')} were not enough for one attempt: nothing is proven. Raise max_rounds"
    return Status(Outcome.MAX_ROUNDS, words)


def _many(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"
