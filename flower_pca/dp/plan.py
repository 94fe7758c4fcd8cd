"""Plan: the terms of a privacy budget. How it is dealt out to the messages, and what a lost one means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.errors import NotEnoughNodes
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.model import Model
from flower_pca.core.settings import DP
from flower_pca.core.spent import Spent
from flower_pca.core.stage import Arrays
from flower_pca.core.terms import NoTerms
from flower_pca.dp import gaussian
from flower_pca.dp.opening import PrivateOpening, PrivateOpeningState
from flower_pca.layers import noise

_ROUNDING: Final = 1e-9  # of shares of the budget that are added up


@dataclass(frozen=True)
class Plan(NoTerms):
    """How the budget is dealt out: a share to the frame, the rest evenly to all messages of the algorithm.

    In terms of mu = sensitivity / deviation, which add up in squares, the budget is mu^2.

    Attributes:
        dp: The budget.
        rounds: Rounds of the algorithm that it is dealt out to.
        among: Clients that share the noise of a sum under masks; 0 where each adds all of it.
        lost: Stages of messages whose answers gave no sum: they have cost what others cost.
    """

    binding: ClassVar[bool] = True

    dp: DP
    rounds: int
    among: int = 0
    lost: tuple[str, ...] = ()

    @cached_property
    def budget(self) -> float:
        """mu^2 of the whole run."""
        return gaussian.calibrated(self.dp.epsilon, self.dp.delta) ** 2

    @property
    def noise(self) -> float:
        """The deviation of the noise on a message of the algorithm: s clip^2."""
        return self.dp.clip**2 * float(np.sqrt(self.rounds / (self.budget * (1.0 - self.dp.frame_share))))

    @property
    def frame_noise(self) -> float:
        """The deviation of the noise on the opening."""
        return self.reach**2 / float(np.sqrt(self.budget * self.dp.frame_share))

    @property
    def reach(self) -> float:
        """The norm to which raw rows are clipped."""
        return self.dp.clip if self.dp.reach is None else self.dp.reach

    def opening(self, width: int) -> PrivateOpening:
        """The stage that measures the frame."""
        return PrivateOpening(width=width, clip=self.reach, noise=self.frame_noise)

    def deviation(self, *, opening: bool) -> float:
        """The deviation of the noise on a message."""
        return self.frame_noise if opening else self.noise

    def share(self, *, opening: bool) -> float:
        return noise.noise_share(self.deviation(opening=opening), self.among or 1)

    def arrays(self, *, opening: bool) -> Arrays:
        clip = self.reach if opening else self.dp.clip
        asked = noise.instruction(clip=clip, std=self.deviation(opening=opening), budget=self.budget)
        return {**asked, **noise.sharing(self.among)} if self.among else asked

    def shared(self, needed: int) -> Plan:
        """Those that a sum cannot do without, less those that may collude, shall have the whole noise."""
        colluding = self.dp.colluding
        if needed <= colluding:
            rule, remedy = f"more than the {colluding} that may collude", "Start more, or lower colluding."
            raise NotEnoughNodes("The fewest clients of a masked sum", must=rule, got=needed, then=remedy)
        return replace(self, among=needed - colluding)

    def informed(self, state: Any) -> Any:
        return replace(state, among=self.among) if isinstance(state, PrivateOpeningState) else state

    def wasted(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Plan, Algorithm[Any]]:
        """The algorithm has as many rounds less as answers were given in vain: clients have spent what they told."""
        after = replace(self, lost=(*self.lost, stage))
        rounds = after.rounds_left
        if rounds < 1 or algorithm.fixed_set:
            rule, remedy = "had when it is first asked for", "Start a new run with a budget of its own."
            raise NotEnoughNodes("A sum that costs privacy", must=rule, got=why.rstrip("."), then=remedy)
        if isinstance(algorithm, Iterative):
            algorithm = replace(algorithm, min_rounds=rounds, max_rounds=rounds)
        return after, algorithm

    @property
    def rounds_left(self) -> int:
        """Rounds that the budget has room for, beside the answers that gave no sum."""
        frames, share = self.lost.count(PrivateOpening.name), self.dp.frame_share
        room = (1.0 - (1 + frames) * share) / (1.0 - share) * self.rounds - (len(self.lost) - frames)
        return math.floor(room + _ROUNDING)

    def reopen(self) -> None:
        rule = "stable while the privacy budget is spent"
        remedy = "Use ssi, which carries on with those that remain."
        raise NotEnoughNodes("The set of clients", must=rule, got="one that lost a member", then=remedy)

    def spent(self, told: Sequence[str], *, shared: bool) -> Spent:
        """A client gives no answer that would take it past the whole budget."""
        told = [*told, *self.lost]
        frames, share = told.count(PrivateOpening.name), self.dp.frame_share
        used = frames * share + (len(told) - frames) * (1.0 - share) / self.rounds
        epsilon = gaussian.epsilon_of(float(np.sqrt(min(used, 1.0) * self.budget)), self.dp.delta)
        return Spent(
            epsilon=min(epsilon, self.dp.epsilon),
            delta=self.dp.delta,
            clip=self.dp.clip,
            noise=self.noise,
            messages=len(told),
            shared=shared,
            among=self.among or 1,
            frame_noise=self.frame_noise,
        )

    def status(self, status: Status, rounds: int) -> Status:
        """A run with noise ends with its budget; its residuals measure the noise, and not how far it got."""
        if status.outcome is Outcome.ONE_SHOT:
            return status
        words = f"all {self.rounds} rounds that the privacy budget is dealt out to are done"
        if self.rounds == 1:
            words = "the one round that the privacy budget is dealt out to is done"
        if rounds < self.rounds:
            words = f"{rounds} of the {words[4:]}; answers that gave no sum have cost the others"
        return Status(Outcome.BUDGET_SPENT, words)

    def blur(self, model: Model) -> float:
        """The largest eigenvalue that noise alone has in such a sum, and one deviation more: see `analysis.noise`."""
        together = np.sqrt(model.clients / (self.among or 1))
        return float(together * self.noise * (np.sqrt(2.0 * model.d) + 1.0))

    def verify(self, model: Model) -> Status | None:
        assert model.status is not None
        return replace(model.status, words=model.status.words + model.doubts)


def planned(dp: DP, algorithm: Algorithm[Any]) -> tuple[Plan, Algorithm[Any]]:
    """The plan, and the algorithm in so many rounds as it may take: an early end would depend on the rows.

    It has a column more than is wanted, which shows the next eigenvalue: a row changes an answer by no more for it.
    """
    if not isinstance(algorithm, Iterative):
        return Plan(dp, 1), algorithm
    rounds = algorithm.max_rounds
    return Plan(dp, rounds), replace(algorithm, min_rounds=rounds, oversample=max(algorithm.oversample, 1))
