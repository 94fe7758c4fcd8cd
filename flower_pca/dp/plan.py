"""DP: what a run may cost in privacy; Plan: how the noise is set for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.spent import Spent
from flower_pca.core.stage import Arrays
from flower_pca.dp import gaussian, noise
from flower_pca.dp.opening import PrivateOpening

_ROUNDS: Final = 100  # a budget over more than so many rounds leaves nothing but noise
_ROUNDING: Final = 1e-9  # of shares of the budget that are added up


@dataclass(frozen=True, kw_only=True)
class DP:
    """Differential privacy of single rows: to add or remove one changes no probability of what the server sees by more
    than exp(epsilon), but for events of probability delta.

    Every client scales each of its rows, in the common frame, down to norm `clip` where it is longer, and adds Gaussian
    noise of deviation s clip^2 to every number it sends. s follows from epsilon, delta and the number of messages.
    Where sums are masked, each adds a share, so that the fewest survivors, less the colluding ones, have that much.

    Args:
        epsilon: The bound on the logarithm of probabilities.
        delta: The probability beyond the bound; well below one over the number of rows.
        clip: The norm to which rows are clipped in the common frame. Choose it without looking at the rows.
        reach: The norm to which raw rows are clipped when mean and scale are measured; `clip` if left out, which a
            scale forbids.
        frame_share: The share of the budget that mean, scale and count may take.
        noise_seed: For simulations in process only: a seed that makes the noise the same every time. Whoever knows it
            can take the noise off.
        colluding: Under masks, how many clients may collude with the server: their shares of the noise do not count,
            and those of the others are larger. Without masks each client adds all of it, whoever colludes.
    """

    epsilon: float
    delta: float
    clip: float
    reach: float | None = None
    frame_share: float = 0.1
    noise_seed: int | None = None
    colluding: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip", *([] if self.reach is None else ["reach"])):
            checks.number(f"{name} of dp", getattr(self, name), least=1e-9)
        checks.number("delta of dp", self.delta, least=1e-30)
        checks.proportion("frame_share of dp", self.frame_share)
        if self.delta >= 1.0 or self.frame_share >= 1.0:
            got = f"delta={self.delta!r}, frame_share={self.frame_share!r}"
            raise ConfigError("delta and frame_share of dp", must="below 1", got=got, then="Try 1e-6 and 0.1.")
        if self.noise_seed is not None:
            checks.integer("noise_seed of dp", self.noise_seed)
        checks.integer("colluding of dp", self.colluding)

    @classmethod
    def of(cls, given: object) -> DP | None:
        """From an instance, a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)", or None."""
        if given is None or isinstance(given, cls):
            return given
        rule = 'a DP, or a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)"'
        return specs.bind(given, {"dp": cls, "DP": cls}, what="dp", rule=rule)()


@dataclass(frozen=True)
class Plan:
    """How the budget is dealt out: a share to the frame, the rest evenly to all messages of the algorithm.

    In terms of mu = sensitivity / deviation, which add up in squares, the budget is mu^2.
    """

    dp: DP
    rounds: int

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

    def arrays(self, *, opening: bool) -> Arrays:
        """What a message has to say beside the stage's own arrays."""
        clip = self.reach if opening else self.dp.clip
        return noise.instruction(clip=clip, std=self.deviation(opening=opening), budget=self.budget)

    def spent(self, told: Sequence[str], *, shared: bool) -> Spent:
        """What answers of these stages have cost: a client gives none that would take it past the whole budget."""
        frames, share = told.count(PrivateOpening.name), self.dp.frame_share
        used = frames * share + (len(told) - frames) * (1.0 - share) / self.rounds
        epsilon = gaussian.epsilon_of(float(np.sqrt(min(used, 1.0) * self.budget)), self.dp.delta)
        return Spent(min(epsilon, self.dp.epsilon), self.dp.delta, self.dp.clip, self.noise, len(told), shared)

    def rounds_beside(self, wasted: Sequence[str]) -> int:
        """Rounds that the budget has room for, if answers of these stages were given to no avail."""
        frames, share = wasted.count(PrivateOpening.name), self.dp.frame_share
        room = (1.0 - (1 + frames) * share) / (1.0 - share) * self.rounds - (len(wasted) - frames)
        return math.floor(room + _ROUNDING)

    def status(self, status: Status, rounds: int) -> Status:
        """A run with noise ends with its budget; its residuals measure the noise, and not how far it got."""
        if status.outcome is Outcome.ONE_SHOT:
            return status
        words = f"all {self.rounds} rounds that the privacy budget is dealt out to are done"
        if rounds < self.rounds:
            words = f"{rounds} of the {words[4:]}; answers that gave no sum have cost the others"
        return Status(Outcome.BUDGET_SPENT, words)


def planned(
    dp: DP, algorithm: Algorithm[Any], *, n_components: int | float, scale: str | None, missing: str, evaluate: bool
) -> tuple[Plan, Algorithm[Any]]:
    """The plan, and the algorithm in so many rounds as it may take: an early end would depend on the rows."""
    if not algorithm.bounded:
        rule, remedy = "asked of ssi, krylov or noisy_covariance", "Use ssi."
        raise ConfigError("dp", must=rule, got=algorithm.name, then=remedy)
    rounds = algorithm.max_rounds if isinstance(algorithm, Iterative) else 1
    rules: tuple[tuple[bool, str, str, object, str], ...] = (
        (rounds <= _ROUNDS, f"max_rounds of {algorithm.name} with dp", f"at most {_ROUNDS}", rounds, "Start with 5."),
        (isinstance(n_components, int), "n_components with dp", "a whole number", n_components, "Name a number."),
        (
            scale != "max_abs",
            "scale with dp",
            'None or "std"',
            repr(scale),
            "A largest value cannot be told privately.",
        ),
        (missing == "error", "missing with dp", '"error"', repr(missing), "Impute before the run."),
        (not evaluate, "evaluate with dp", "False", evaluate, "An exact error would tell about single rows."),
        (scale is None or dp.reach is not None, "reach of dp with a scale", "given", "none", "Bound the raw rows."),
    )
    for holds, what, rule, got, remedy in rules:
        if not holds:
            raise ConfigError(what, must=rule, got=got, then=remedy)
    exact = replace(algorithm, min_rounds=rounds) if isinstance(algorithm, Iterative) else algorithm
    return Plan(dp, rounds), exact


def undisturbed(dp: DP | None, checkpoint: object) -> None:
    """Refuse a checkpoint with dp: what was answered before an interruption would be answered again."""
    if dp is not None and checkpoint is not None:
        remedy = "Leave it out; start a new run with a budget of its own."
        raise ConfigError("The checkpoint with dp", must="none", got=str(checkpoint), then=remedy)
