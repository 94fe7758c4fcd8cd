"""The sequence of attempts in a run of `ConsensusRPCA`, and the status in which the run ends.

The first attempt that passes its proof is the answer. Each attempt starts from a different block:

| attempt | gamma        | columns                     | when                                     |
| ------- | ------------ | --------------------------- | ---------------------------------------- |
| first   | gamma        | as many as requested        | always                                   |
| wide    | .9           | twice as many plus 2        | third, if the best attempt so far lacks  |
|         |              |                             | a component or predicts nothing          |
| others  | the larger   | the rank of the last failed | as long as `restarts` allows             |
|         | of .95 and   | attempt                     |                                          |
|         | gamma        |                             |                                          |

A run also ends if two attempts agree, even if both leave a little structure or may have fitted outliers. There are two
exceptions. If much of the squared residuals is structure, agreement does not count, because a missing component, or a
block of outliers that looks like a low-rank part, misleads every attempt in the same way. An attempt that may have
fitted outliers must also agree with another attempt, even if it passes all other checks: see `proof`.

A row or column is undetermined if it has too few clean entries. Undetermined rows and columns do not
affect other rows and columns. Another attempt would not help, because undetermined rows and columns were
already estimated again separately: see `proof.refit_undetermined` and `phases`. So an attempt is the
answer if only a few rows and columns are undetermined. It is also the answer if it leaves a little
structure in several directions, which is typical of correlated residuals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.robust import phases
from flower_pca.algorithms.robust.attempt import Attempt, AttemptPhase, Problem, position_of_gap
from flower_pca.algorithms.robust.base import scale_start
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import MOST_NOISE, SMALL, Verdict
from flower_pca.base import labels, linalg
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.algorithm import Progress

GAMMA: Final = 0.9  # the default factor by which the threshold falls in each round
_SLOWER_GAMMA: Final = 0.95  # minimum of this factor in later attempts, so that the threshold falls more slowly
RESTARTS: Final = 1  # the default of `restarts`
_ATTEMPTS_BEFORE_WIDE: Final = 2  # the number of attempts before the wide one
# If two successive singular values of a failed attempt have at least this ratio, the gap shows the rank.
_CLEAR_GAP: Final = 100.0
_MOST_DISTANCE: Final = 1e-2  # maximum relative distance between two low-rank parts that agree
# Agreement of two attempts counts only if at most this share of the squared residuals is structure. At a share of
# 70 %, two attempts have agreed on a low-rank part with a relative error of 1.29.
_MOST_STRUCTURE: Final = 0.3
_STREAM: Final = 2**61  # offset of the seeds of later attempts, which differ from all other seeds of a run


@dataclass(frozen=True, kw_only=True)
class AttemptLog:
    """The attempts of a run so far.

    Attributes
    ----------
    k : int
        The requested number of columns.
    p : int
        The number of columns of the next attempt.
    gamma : float
        The factor by which the first attempt's threshold falls.
    restarts : int
        Maximum number of attempts after the first one, not counting the wide attempt.
    number : int
        The number of attempts so far, not counting the wide attempt.
    widened : bool
        Whether the wide attempt was made.
    best : Attempt or None
        The best attempt that has ended.
    alike : tuple of Attempt
        The first two attempts that fail only because structure remains, or because they may have fitted outliers.
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
        """The number of attempts so far."""
        return self.number + self.widened

    @property
    def has_agreement(self) -> bool:
        """Whether the best attempt and another attempt have found the same low-rank part and leave little structure."""
        if len(self.alike) < 2 or self.best is None:
            return False
        if any(_leaves_much_structure(attempt.known_verdict) for attempt in self.alike):
            return False
        one, other = self.alike
        return self.best.tag in (one.tag, other.tag) and one.distance_to(other) <= _MOST_DISTANCE

    @property
    def has_success(self) -> bool:
        """Whether the best attempt is the answer.

        It is the answer if it passes its proof, or fails only because of rows and columns that were estimated again
        separately.
        """
        if self.best is None:
            return False
        verdict = self.best.known_verdict
        return verdict.passes or (verdict.passes_with_exceptions and (verdict.single or self.best.mended))

    def begin_attempt(self, problem: Problem, U: Array, tag: int) -> tuple[AttemptLog, Attempt]:
        """Return the log that counts the next attempt, and the next attempt itself, which starts from block U."""
        wide = self._is_next_wide(problem)
        gamma = self.gamma
        if wide:
            gamma = GAMMA
        elif self.number:
            gamma = max(gamma, _SLOWER_GAMMA)
        attempt = Attempt(
            U=scale_start(U, problem.sigma), lam=problem.sigma, start=problem.sigma, gamma=gamma, wide=wide, tag=tag
        )
        return replace(self, widened=self.widened or wide, number=self.number + (not wide)), attempt

    def next_column_count(self, problem: Problem) -> int:
        """Return the number of columns of the next attempt."""
        if self._is_next_wide(problem):
            return 2 * self.k + 2
        return self.p

    def add(self, attempt: Attempt) -> AttemptLog:
        """Return the log with an attempt that has ended."""
        verdict, log = attempt.known_verdict, self
        # A wide attempt has more columns than requested, so it is an answer only if it passes.
        better = self.best is None or verdict.sort_key < self.best.known_verdict.sort_key
        if better and (verdict.passes or not attempt.wide):
            log = replace(self, best=attempt)
        if attempt.wide or verdict.passes:
            return log
        if attempt.G is not None:  # If the singular values have a clear gap, it shows the rank.
            rank = position_of_gap(attempt.spectrum, _CLEAR_GAP) or self.p
            log = replace(log, p=min(rank, self.p))
        if verdict.predicted and verdict.is_determined:
            log = replace(log, alike=(*self.alike, attempt)[:2])
        return log

    def is_over(self, problem: Problem) -> bool:
        """Return whether the run ends without a further attempt."""
        if self.has_success:
            return True
        if self._is_next_wide(problem):
            return False
        return self.number > self.restarts or self.has_agreement

    def status(self, rounds: int) -> Status:
        """Return the status in which a run ends after its last attempt."""
        assert self.best is not None
        verdict, attempt = self.best.known_verdict, self.best
        noise = "no dense noise was found"
        if attempt.noise:
            noise = f"dense noise of deviation {attempt.noise:.2g}"
        rank = f"the low-rank part has rank {verdict.rank} of at most {self.k}"
        words = f"{noise}; {rank}, after {labels.count(rounds, 'round')}"
        if self.has_success and verdict.rank > self.k:
            found = f"a low-rank part of rank {verdict.rank} was found: ask for "
            return Status(Outcome.STALLED, f"{found}{option('n_components', verdict.rank)}")
        # A basis with an undetermined column may never settle.
        if self.has_success and not verdict.at_rest:
            return Status(
                Outcome.MAX_ROUNDS,
                f"not converged: the components still change by {attempt.stop:.2g} per round. Raise max_rounds. "
                f"({words})",
            )
        if self.has_success:
            return Status(Outcome.CONVERGED, "; ".join((words, *verdict.failed_checks)))
        if self.has_agreement and verdict.misses_component:
            return Status(
                Outcome.CONVERGED,
                f"{words}; the residuals still have structure ({verdict.structure:.1%}), and two attempts agree",
            )
        if self.has_agreement:
            return Status(Outcome.CONVERGED, f"{words}; two attempts agree on it")
        return Status(Outcome.STALLED, self._reason_of_failure(verdict))

    def _reason_of_failure(self, verdict: Verdict) -> str:
        """Return the reason why no attempt is an answer, and a remedy."""
        if not verdict.predicted and verdict.fits_few:
            few = f"no low-rank part of rank up to {self.k} is near more than {verdict.clean:.0%} of the entries. "
            few += "There are too many outliers, or columns have different units. Try "
            return f"{few}{option('scale', 'std')}"
        if not verdict.predicted:
            return (
                f"no low-rank part of rank up to {self.k} predicts hidden entries (the error is "
                f"{verdict.error:.2g} of an ordinary entry), because the noise exceeds {MOST_NOISE:g} of an ordinary "
                "entry, or there are too many outliers or too few entries. Ask for fewer components"
            )
        if verdict.misses_component:
            return (
                f"the residuals still have structure ({verdict.structure:.1%}) after "
                f"{labels.count(self.count, 'attempt')}: ask for more components"
            )
        if verdict.may_overfit:
            return (
                f"a low-rank part of rank {verdict.rank} may have fitted outliers: "
                f"{verdict.error:.2g} of an ordinary entry is left, and no other attempt agrees. "
                "Ask for fewer components"
            )
        named = [labels.count(len(verdict.columns), "column"), labels.count(verdict.rows, "row")]
        but = " and ".join(one for one in named if not one.startswith("0 "))
        return (
            f"a low-rank part of rank {verdict.rank} was found, except for {but} with too few clean entries. Remove "
            f"{but} from the data"
        )

    def _is_next_wide(self, problem: Problem) -> bool:
        if self.widened or self.number != _ATTEMPTS_BEFORE_WIDE or self.best is None:
            return False
        room = 2 * self.k + 2 <= min(problem.n, problem.d) / 2
        return room and (self.best.known_verdict.misses_component or not self.best.known_verdict.predicted)


def solve_for_basis(B: Array, G: Array, rho: float) -> Array:
    """Return B (G + rho I)^-1, or B times the pseudo-inverse of G if G + rho I is singular."""
    try:
        return np.asarray(np.linalg.solve(G + rho * np.eye(len(G)), B.T).T)
    except np.linalg.LinAlgError:
        return np.asarray(B @ np.linalg.pinv(G, hermitian=True))


def _leaves_much_structure(verdict: Verdict) -> bool:
    """Return whether a component may be missing and the residuals are too large for agreement to count."""
    return verdict.misses_component and (verdict.error > SMALL or verdict.structure > _MOST_STRUCTURE)


def lost_attempt(attempt: Attempt, problem: Problem) -> Attempt:
    """Return the attempt in phase LOST, with a verdict that fails."""
    verdict = Verdict(rank=0, error=attempt.hidden / problem.sigma)
    return replace(attempt, phase=AttemptPhase.LOST, verdict=verdict)


@dataclass(frozen=True)
class ConsensusState:
    """The state of the server: the problem, the attempts, and the sums of a round.

    Attributes
    ----------
    problem : Problem
        The sizes, settings and limits that are known before the first attempt.
    sigma : float or None
        The size of an ordinary entry, or None until it is known.
    rms : float
        The root mean square of all entries.
    seed : int
        The seed of the run.
    first : ndarray
        The block from which the first attempt starts.
    cache : CachedSums
        The sums of the latest round.
    progress : Progress
        The number of rounds, and the error.
    log : AttemptLog
        The attempts that have ended.
    attempt : Attempt or None
        The present attempt.
    verdict : Status or None
        The status in which the run ends, or None while the run continues.
    """

    problem: Problem
    sigma: float | None
    rms: float
    seed: int
    first: Array
    cache: CachedSums
    progress: Progress
    log: AttemptLog
    attempt: Attempt | None = None
    verdict: Status | None = None

    @property
    def asks_all_clients(self) -> bool:
        """Whether the next message goes to all clients even if the run samples clients. Only a proof requires this."""
        return self.is_proving

    @property
    def is_last_message(self) -> bool:
        """Whether the next message is the last one of a proof."""
        return self.attempt is not None and self.attempt.is_last_message

    @property
    def is_proving(self) -> bool:
        """Whether the next message belongs to a proof."""
        return self.attempt is not None and self.attempt.is_proving

    def with_sigma(self, sigma: float) -> ConsensusState:
        """Return the state at the beginning of the first attempt, given sigma, the size of an ordinary entry."""
        state = replace(self, sigma=sigma, problem=replace(self.problem, sigma=sigma))
        if sigma == 0.0:
            return replace(state, verdict=Status(Outcome.CONVERGED, "all entries are 0"))
        return state.next_attempt()

    def next_attempt(self) -> ConsensusState:
        """Return the state at the beginning of the next attempt."""
        problem, U, tag = self.problem, self.first, 0
        if self.attempt is not None:
            tag = self.attempt.tag + 1
            width = self.log.next_column_count(problem)
            U = linalg.random_block(problem.d, width, self.seed + _STREAM + tag)
        log, attempt = self.log.begin_attempt(problem, U, tag)
        return replace(self, log=log, attempt=attempt, cache=replace(self.cache, last=None))

    def after_round(self, total: Any) -> ConsensusState:
        """Return the state after the answers to a round. The new basis is U = (sum B)(sum G + rho I)^-1."""
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
        return replace(self, cache=cache, progress=self.progress.step(attempt.stop))._with_attempt(attempt)

    def after_proof(self, total: Any) -> ConsensusState:
        """Return the state after the answers to a message of a proof."""
        assert self.attempt is not None
        return self._with_attempt(phases.after_proof(self.attempt, self.problem, total))

    def _with_attempt(self, attempt: Attempt) -> ConsensusState:
        """Return the state after an attempt's message.

        If the attempt has ended, the state contains the next attempt, or the final status.
        """
        before, problem, rounds = self.attempt, self.problem, self.progress.rounds
        assert before is not None
        state = replace(self, attempt=attempt)
        if (attempt.phase, attempt.tag) != (before.phase, before.tag):
            # The answers that the server has kept belong to another basis or another V.
            state = replace(state, cache=replace(self.cache, last=None))
        lost = attempt.phase is AttemptPhase.LOST
        if lost or attempt.phase is AttemptPhase.PROVEN:
            log = self.log.add(lost_attempt(attempt, problem) if lost else attempt)
            state = replace(state, log=log)
            if log.is_over(problem) or rounds >= problem.most_rounds:
                return replace(state, verdict=log.status(rounds))
            return state.next_attempt()
        if attempt.is_proving or rounds < problem.most_rounds:
            return state
        if self.log.best is not None:
            return replace(state, verdict=self.log.status(rounds))
        many = f"{labels.count(rounds, 'round')} were not enough to prove a result. Use more than "
        end = Status(Outcome.MAX_ROUNDS, f"{many}{option('max_rounds', problem.most_rounds)}")
        return replace(state, log=self.log.add(lost_attempt(attempt, problem)), verdict=end)
