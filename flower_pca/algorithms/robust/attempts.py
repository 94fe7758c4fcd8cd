"""Attempts: what is tried one after the other, and the words in which a run ends.

The first attempt whose proof passes is the answer. Each one starts from a block of its own:

| attempt | gamma        | columns                  | made                                     |
| ------- | ------------ | ------------------------ | ---------------------------------------- |
| first   | gamma        | as many as asked for     |                                          |
| wide    | .9           | twice as many and 2      | third, if the best so far was lost or    |
|         |              |                          | left structure: are there more?          |
| others  | .95 or gamma | as many as the last were | while there are `restarts`               |
|         |              | found to have            |                                          |

Two attempts that agree end the run too, although both leave a little structure. Where much of what
is left is structure, agreement proves nothing: a component that is missing, or a block of far
entries that is taken for low rank, misleads every attempt alike. And they have to agree where much
noise is left beside so many components that these could fit far entries as well. Rows and columns
that are not determined hurt nobody else, and no attempt would help them: they have had a search of
their own, see `proof.once_more` and `phases`. So an attempt that leaves nothing but a few of them is
the answer; and so is one that leaves a little structure in several directions, as residuals that are
correlated do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.robust import phases
from flower_pca.algorithms.robust.attempt import Attempt, AttemptPhase, Problem, gap
from flower_pca.algorithms.robust.base import scale_start
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import MOST_NOISE, SMALL, Verdict
from flower_pca.base import labels, linalg
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import Progress

GAMMA: Final = 0.9
_SLOWER: Final = 0.95
RESTARTS: Final = 1
_BEFORE_WIDE: Final = 2  # attempts
# gap of the singular values of a failed attempt that its rank is read off
_CLEAR: Final = 100.0
_SAME: Final = 1e-2  # relative distance of two low-rank parts that agree
# The share of what is left that may be structure where two attempts agree. With 70 % two attempts
# have agreed on a low-rank part with a relative error of 1.29.
_MOST_STRUCTURE: Final = 0.3
_STREAM: Final = 2**61


@dataclass(frozen=True, kw_only=True)
class Book:
    """The attempts of a run.

    Attributes
    ----------
    k : int
        Columns that were asked for; `p`: those of the next attempt.
    gamma : float
        By which the first attempt's threshold falls.
    restarts : int
        How many attempts there may be after the first, without the wide one.
    number : int
        Attempts so far, without the wide one.
    widened : bool
        Whether there was a wide one.
    best : Attempt or None
        The best that has ended.
    alike : tuple of Attempt
        The first two attempts against which nothing speaks but structure that they have left, or their freedom.
    """

    k: int
    p: int
    gamma: float
    restarts: int
    number: int = 0
    widened: bool = False
    best: Attempt | None = None
    alike: tuple[Attempt, ...] = ()

    @property
    def count(self) -> int:
        """Attempts so far."""
        return self.number + self.widened

    @property
    def agree(self) -> bool:
        """Whether two attempts, one of them the best, have found the same, and both leave little structure."""
        if len(self.alike) < 2 or self.best is None:
            return False
        if any(_leaves_much(attempt.judged) for attempt in self.alike):
            return False
        one, other = self.alike
        return self.best.tag in (one.tag, other.tag) and one.apart(other) <= _SAME

    @property
    def succeeds(self) -> bool:
        """Whether the best attempt is the answer: it passes, or but for rows and columns searched by themselves."""
        if self.best is None:
            return False
        verdict = self.best.judged
        return verdict.passes or (verdict.nearly and (verdict.single or self.best.mended))

    def begin(self, problem: Problem, U: Array, tag: int) -> tuple[Book, Attempt]:
        """The next attempt, from this block: as many columns as `columns` says."""
        wide = self._is_next_wide(problem)
        gamma = self.gamma
        if wide:
            gamma = GAMMA
        elif self.number:
            gamma = max(gamma, _SLOWER)
        attempt = Attempt(
            U=scale_start(U, problem.sigma), lam=problem.sigma, start=problem.sigma, gamma=gamma, wide=wide, tag=tag
        )
        return replace(self, widened=self.widened or wide, number=self.number + (not wide)), attempt

    def columns(self, problem: Problem) -> int:
        """How many columns the next attempt has."""
        if self._is_next_wide(problem):
            return 2 * self.k + 2
        return self.p

    def add(self, attempt: Attempt) -> Book:
        """With an attempt more that has ended."""
        verdict, book = attempt.judged, self
        # a wide one has more columns than were asked for: an answer only if it passes
        better = self.best is None or verdict.order < self.best.judged.order
        if better and (verdict.passes or not attempt.wide):
            book = replace(self, best=attempt)
        if attempt.wide or verdict.passes:
            return book
        if attempt.G is not None:  # its rank, if the singular values have a clear gap
            rank = gap(attempt.spectrum, _CLEAR) or self.p
            book = replace(book, p=min(rank, self.p))
        if verdict.predicted and verdict.is_determined:
            book = replace(book, alike=(*self.alike, attempt)[:2])
        return book

    def over(self, problem: Problem) -> bool:
        """Whether there is nothing left to try."""
        if self.succeeds:
            return True
        if self._is_next_wide(problem):
            return False
        return self.number > self.restarts or self.agree

    def status(self, rounds: int) -> Status:
        """In which words a run ends that has tried all there is to try."""
        assert self.best is not None
        verdict, attempt = self.best.judged, self.best
        noise = "no dense noise was found"
        if attempt.noise:
            noise = f"dense noise of deviation {attempt.noise:.2g}"
        rank = f"the low-rank part has rank {verdict.rank} of at most {self.k}"
        words = f"{noise}; {rank}, after {labels.count(rounds, 'round')}"
        if self.succeeds and verdict.rank > self.k:
            found = f"a low-rank part of rank {verdict.rank} was found: ask for "
            return Status(Outcome.STALLED, f"{found}{option('n_components', verdict.rank)}")
        # A column that is not determined never comes to rest.
        if self.succeeds and not verdict.rest:
            return Status(Outcome.MAX_ROUNDS, f"the basis still changes by {attempt.stop:.2g} in a round; {words}")
        if self.succeeds:
            return Status(Outcome.CONVERGED, "; ".join((words, *verdict.exceptions)))
        if self.agree and verdict.lacking:
            return Status(
                Outcome.CONVERGED, f"{words}; structure of {verdict.structure:.1%} is left, as two attempts agree"
            )
        if self.agree:
            return Status(Outcome.CONVERGED, f"{words}; two attempts agree on it")
        return Status(Outcome.STALLED, self._failure(verdict))

    def _failure(self, verdict: Verdict) -> str:
        """Why no attempt is an answer."""
        if not verdict.predicted and verdict.fits_few:
            few = f"no low-rank part of rank up to {self.k} has more than {verdict.clean:.0%} of the entries near it: "
            few += "too many outliers, or columns in units so unlike that "
            return f"{few}{option('scale', 'std')} has to divide them"
        if not verdict.predicted:
            return (
                f"no low-rank part of rank up to {self.k} predicts hidden entries (they are off by "
                f"{verdict.error:.2g} of an ordinary entry): more noise than {MOST_NOISE:g} of an "
                "entry, too many outliers, or too few entries for the rank"
            )
        if verdict.lacking:
            return (
                f"structure of {verdict.structure:.1%} is left of what should be noise, in "
                f"{labels.count(self.count, 'attempt')}: ask for more components"
            )
        if verdict.free:
            return (
                f"a low-rank part of rank {verdict.rank} may have fitted outliers: "
                f"{verdict.error:.2g} of an ordinary entry is left, and no other attempt agrees. "
                "Ask for fewer components"
            )
        named = [labels.count(len(verdict.columns), "column"), labels.count(verdict.rows, "row")]
        but = " and ".join(one for one in named if not one.startswith("0 "))
        return (
            f"a low-rank part of rank {verdict.rank} was found but for {but}, whose clean entries do not determine them"
        )

    def _is_next_wide(self, problem: Problem) -> bool:
        if self.widened or self.number != _BEFORE_WIDE or self.best is None:
            return False
        room = 2 * self.k + 2 <= min(problem.n, problem.d) / 2
        return room and (self.best.judged.lacking or not self.best.judged.predicted)


def solve_for_basis(B: Array, G: Array, rho: float) -> Array:
    """B (G + rho I)^-1; if G is short of rank and rho is lost in its rounding, B times its pseudo-inverse."""
    try:
        return np.asarray(np.linalg.solve(G + rho * np.eye(len(G)), B.T).T)
    except np.linalg.LinAlgError:
        return np.asarray(B @ np.linalg.pinv(G, hermitian=True))


def _leaves_much(verdict: Verdict) -> bool:
    """Whether a component may be missing from what is left, and that is too much for agreement to count."""
    return verdict.lacking and (verdict.error > SMALL or verdict.structure > _MOST_STRUCTURE)


def abandon(attempt: Attempt, problem: Problem) -> Attempt:
    """An attempt that was left at once."""
    verdict = Verdict(rank=0, error=attempt.hidden / problem.sigma)
    return replace(attempt, phase=AttemptPhase.LOST, verdict=verdict)


@dataclass(frozen=True)
class ConsensusState:
    """What the run knows of its problem, the attempt under way, those before it, and sums held.

    `sigma` is the size of an ordinary entry, None while it is asked for; `first` the block of the
    first attempt.
    """

    problem: Problem
    sigma: float | None
    rms: float
    seed: int
    first: Array
    cache: CachedSums
    progress: Progress
    book: Book
    attempt: Attempt | None = None
    verdict: Status | None = None

    @property
    def everyone(self) -> bool:
        """Whether the coming message is for all clients: a proof is."""
        return self.proving

    @property
    def last(self) -> bool:
        """Whether the coming message is the last one of a proof."""
        return self.attempt is not None and self.attempt.last

    @property
    def proving(self) -> bool:
        """Whether the attempt is to be proven."""
        return self.attempt is not None and self.attempt.proving

    def with_sigma(self, sigma: float) -> ConsensusState:
        """When the size of an ordinary entry has become known."""
        state = replace(self, sigma=sigma, problem=replace(self.problem, sigma=sigma))
        if sigma == 0.0:
            return replace(state, verdict=Status(Outcome.CONVERGED, "all entries are 0"))
        return state.next_attempt()

    def next_attempt(self) -> ConsensusState:
        """At the next attempt."""
        problem, U, tag = self.problem, self.first, 0
        if self.attempt is not None:
            tag = self.attempt.tag + 1
            width = self.book.columns(problem)
            U = linalg.random_block(problem.d, width, self.seed + _STREAM + tag)
        book, attempt = self.book.begin(problem, U, tag)
        return replace(self, book=book, attempt=attempt, cache=replace(self.cache, last=None))

    def after_round(self, total: Any) -> ConsensusState:
        """Update U with the answers to a round: U = (sum B)(sum G + rho I)^-1."""
        before, problem = self.attempt, self.problem
        assert before is not None
        cache, sums, share = self.cache.add(total)
        attempt = phases.after_round(
            before,
            problem,
            U=solve_for_basis(sums["B"], sums["G"], max(before.rho(problem), TINY)),
            G=sums["G"],
            counts=sums["counts"],
            image=sums.get("image"),
            share=share,
            early=self.progress.rounds + 1 < problem.least_rounds,
        )
        return replace(self, cache=cache, progress=self.progress.step(attempt.stop))._at(attempt)

    def after_proof(self, total: Any) -> ConsensusState:
        """With the answers to a message of a proof."""
        assert self.attempt is not None
        return self._at(phases.after_proof(self.attempt, self.problem, total))

    def _at(self, attempt: Attempt) -> ConsensusState:
        """With the attempt where it has moved to: at the next attempt, or at the end, where this one is over."""
        before, problem, rounds = self.attempt, self.problem, self.progress.rounds
        assert before is not None
        state = replace(self, attempt=attempt)
        if (attempt.phase, attempt.tag) != (before.phase, before.tag):
            # Answers that are held belong to another basis, or to another V.
            state = replace(state, cache=replace(self.cache, last=None))
        lost = attempt.phase is AttemptPhase.LOST
        if lost or attempt.phase is AttemptPhase.PROVEN:
            book = self.book.add(abandon(attempt, problem) if lost else attempt)
            state = replace(state, book=book)
            if book.over(problem) or rounds >= problem.most_rounds:
                return replace(state, verdict=book.status(rounds))
            return state.next_attempt()
        if attempt.proving or rounds < problem.most_rounds:
            return state
        if self.book.best is not None:
            return replace(state, verdict=self.book.status(rounds))
        many = f"{labels.count(rounds, 'round')} were not enough for one attempt: nothing is proven. Go beyond "
        end = Status(Outcome.MAX_ROUNDS, f"{many}{option('max_rounds', problem.most_rounds)}")
        return replace(state, book=self.book.add(abandon(attempt, problem)), verdict=end)
