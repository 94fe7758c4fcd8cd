"""ConsensusState: where a run of consensus_rpca stands at the server, and what an answer makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.robust import attempts, determined, proof, sizes
from flower_pca.algorithms.robust.attempt import Attempt, Phase, moved, resting, widened
from flower_pca.algorithms.robust.attempts import Book, Found
from flower_pca.algorithms.robust.base import sized
from flower_pca.algorithms.robust.problem import Problem
from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Progress

_TINY: Final = float(np.finfo(np.float64).tiny)
_STREAM: Final = 2**61


@dataclass(frozen=True)
class ConsensusState:
    """What the run knows of its problem, the attempt under way with those before it, and the sums held.

    `sigma` is the size of an ordinary entry, None while it is asked for; `first` the block of the first attempt. `x`,
    `steps` and `weak` belong to the proof under way: its power steps, and the columns that are not determined.
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
    x: Array | None = None
    steps: int = 0
    verdict: Status | None = None

    @property
    def everyone(self) -> bool:
        """Whether the coming message is for all clients: a proof is."""
        return self.proving

    @property
    def last(self) -> bool:
        """Whether the coming message is the last one of a proof."""
        return self.proving and (self.x is None or self.steps + 1 >= determined.STEPS)

    @property
    def proving(self) -> bool:
        """Whether the attempt is to be proven."""
        return self.attempt is not None and self.attempt.phase is Phase.PROVING

    def measured(self, sigma: float) -> ConsensusState:
        """When the size of an ordinary entry has become known."""
        state = replace(self, sigma=sigma, problem=replace(self.problem, sigma=sigma))
        return state.begun() if sigma > 0.0 else replace(state, verdict=Status(Outcome.CONVERGED, "all entries are 0"))

    def begun(self) -> ConsensusState:
        """At the next attempt."""
        problem, tag = self.problem, 0 if self.attempt is None else self.attempt.tag + 1
        p, unit = self.book.columns(problem), 1.0 if self.book.rowwise_next(problem) else problem.sigma
        U = self.first if tag == 0 else np.array(linalg.random_block(problem.d, p, self.seed + _STREAM + tag))
        book, attempt = self.book.begin(problem, sized(U, unit), tag)
        return replace(self, book=book, attempt=attempt, cache=replace(self.cache, last=None))

    def after_round(self, total: Any) -> ConsensusState:
        """With the answers to a round: U = (sum B)(sum G + rho I)^-1."""
        before, problem = self.attempt, self.problem
        assert before is not None
        cache, sums, share = self.cache.add(total)
        G = sums["G"] + max(before.rho(problem), _TINY) * np.eye(before.p)
        U = np.linalg.solve(G, sums["B"].T).T
        early = self.progress.rounds + 1 < problem.least_rounds
        known: dict[str, Any] = {"counts": sums["counts"], "image": sums.get("image"), "share": share, "early": early}
        attempt = moved(before, problem, U=U, G=sums["G"], **known)
        if (attempt.phase, attempt.tag) != (before.phase, before.tag):
            cache = replace(cache, last=None)
        state = replace(self, attempt=attempt, cache=cache, progress=self.progress.step(attempt.stop))
        if attempt.phase is Phase.LOST:
            return state._ended(attempts.lost(attempt, problem))
        if attempt.phase is Phase.PROVING:
            return replace(state, x=proof.block(attempt), steps=0)
        if state.progress.rounds < problem.most_rounds:
            return state
        if state.book.best is not None:
            return replace(state, verdict=state.book.status(state.progress.rounds))
        book = state.book.add(attempts.lost(attempt, problem))
        return replace(state, book=book, verdict=attempts.unfinished(state.progress.rounds))

    def after_proof(self, total: Any) -> ConsensusState:
        """With the answers to a message of a proof."""
        attempt, problem, steps = self.attempt, self.problem, self.steps + 1
        assert attempt is not None
        attempt = replace(attempt, G=total["G"])
        if self.x is None:
            weak = proof.weak_columns(total["G"], total["F"])
        else:
            x, weak = proof.stepped(total["G"], self.x, total["image"])
            if not self.last:
                return replace(self, attempt=attempt, x=x, steps=steps)
        error, state = sizes.scale(total["counts"][1], problem.top), replace(self, x=None, steps=0)
        verdict = proof.verdict(attempt, problem, total=total, weak=weak, error=error, rest=resting(attempt, problem))
        if verdict.structured and attempt.whole_basis is not None:
            attempt = widened(attempt)
            return replace(state, attempt=attempt, x=proof.block(attempt))
        return state._ended(Found(attempt, verdict))

    def _ended(self, found: Found) -> ConsensusState:
        """At the next attempt, or at the end."""
        book, rounds = self.book.add(found), self.progress.rounds
        state = replace(self, book=book)
        if book.over(self.problem) or rounds >= self.problem.most_rounds:
            return replace(state, verdict=book.status(rounds))
        return state.begun()
