"""The noise of a privacy budget: a node clips its rows and adds noise before it sends anything.

At the server, `BudgetLayer` divides the budget among the messages, and also charges messages whose sum was
lost. Each message contains a clip (the norm to which rows are clipped), a standard deviation of the noise,
and the budget of the run. At a client, `BudgetLayer` calls the stage with `ClippedRows`, which provide only
the statistics that bounded stages need. It then adds noise to the whole answer, and records the part of
the budget that the client has spent. `NoiseFloor` holds the limits that a node sets for every message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_SERVER, DataError, NotEnoughNodes, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.layer import Layer, Work
from flower_pca.core.model import Model, Result
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.dp import gaussian
from flower_pca.dp.certainty import longest_normal_vector
from flower_pca.dp.drawing import add_noise
from flower_pca.dp.outlook import Outlook
from flower_pca.dp.spent import Spent
from flower_pca.layers import NOISE
from flower_pca.rows.local import LocalData
from flower_pca.settings.budget import DP

# These are the names of the arrays in a message that asks for noise.
_CLIP, _NOISE, _BUDGET, _AMONG = "clip", "noise", "budget", "among"
_ARRAYS: Final = frozenset((_CLIP, _NOISE, _BUDGET, _AMONG))
_SPENT: Final = "dp.spent"  # the key of the spent budget in a client's memory
# The norm of an orthonormal block, and the sum of the spent budget, may exceed their bounds by this rounding error.
_ROUNDING: Final = 1e-9


class ClippedRows:
    """A client's centered and scaled rows, in which each row longer than `clip` is scaled down to this norm.

    The class provides only the statistics that bounded stages need, so that no other statistic of the rows
    is sent by mistake. Products are computed in float64. Sparse rows become dense one block at a time.
    """

    def __init__(self, data: LocalData, clip: float) -> None:
        self.n, self.d, self.clip = data.n, data.d, clip
        self._data = data

    def rows(self) -> Iterator[Array]:
        """Yield the clipped rows in blocks."""
        for block in self._data.dense():
            with np.errstate(over="ignore", invalid="ignore"):
                B = block.astype(np.float64) / self.clip
                norms = np.sqrt(np.einsum("ij,ij->i", B, B))
                B *= (self.clip / np.maximum(norms, 1.0))[:, None]
            # A hostile server could send a frame that makes some rows infinite. Such rows are replaced by 0, so that
            # the answer does not reveal which rows they are.
            B[~np.isfinite(norms)] = 0.0
            yield B

    def matmat(self, Z: Array) -> Array:
        """Return X'(XZ) for the clipped rows X."""
        Z = np.asarray(Z, dtype=np.float64)
        images = (B.T @ (B @ Z) for B in self.rows())
        return sum(images, np.zeros(Z.shape))

    def gram(self, *, keep: bool = True) -> Array:
        """Return X'X for the clipped rows X. `keep` has no effect."""
        squares = (B.T @ B for B in self.rows())
        return sum(squares, np.zeros((self.d, self.d)))


@runtime_checkable
class SharesNoise(Protocol):
    """The state of a stage that needs the number of clients among which the noise of a sum is divided."""

    def divide_noise(self, among: int) -> Any:
        """Return the state with this number of clients, among which the noise is divided."""


@dataclass(frozen=True)
class BudgetLayer(Layer):
    """A layer that adds privacy noise to answers, and divides a privacy budget among messages.

    A share of the budget is for the opening, and the rest is divided equally among the rounds. The cost of a
    message is mu^2 with mu = sensitivity / deviation, because the total cost of several messages is the sum
    of their mu^2. The budget is the maximum of this sum.

    Attributes
    ----------
    dp : DP
        The budget.
    rounds : int
        The number of rounds of the algorithm among which the budget is divided.
    opening : str
        The name of the stage that measures means and scales of the columns.
    among : int
        Under masks, the number of clients that together add all of the noise. 0 if each client adds all of the noise.
    losses : tuple of str
        The stages of messages whose sum was lost. These messages have cost as much as other messages.
    """

    name: ClassVar[str] = NOISE
    binding: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    dp: DP
    rounds: int
    opening: str = ""
    among: int = 0
    losses: tuple[str, ...] = ()

    @cached_property
    def budget(self) -> float:
        """The budget of the whole run, as mu^2."""
        return gaussian.noise_of(self.dp.epsilon, self.dp.delta) ** 2

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on an answer to a message of the algorithm: s clip^2 (see `DP`)."""
        rounds_share = self.budget * (1.0 - self.dp.frame_share)
        return self.dp.clip**2 * float(np.sqrt(self.rounds / rounds_share))

    @property
    def frame_noise(self) -> float:
        """The standard deviation of the noise on an answer to the opening."""
        return self.raw_row_norm**2 / float(np.sqrt(self.budget * self.dp.frame_share))

    @property
    def raw_row_norm(self) -> float:
        """The norm to which raw rows are clipped."""
        return self.dp.reach or self.dp.clip

    def _clip_and_noise(self, opening: bool) -> tuple[float, float]:
        """Return the norm to which rows are clipped for a message, and the standard deviation of its noise."""
        if opening:
            return self.raw_row_norm, self.frame_noise
        return self.dp.clip, self.noise

    def deviation_of_one(self, *, opening: bool) -> float:
        return noise_share(self._clip_and_noise(opening)[1], self.among or 1)

    def change_message(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        clip, std = self._clip_and_noise(opening)
        says = noise_instruction(clip=clip, std=std, budget=self.budget)
        if self.among:
            says |= sharing_arrays(self.among)
        return replace(message, layers={**message.layers, NOISE: says})

    @staticmethod
    def read_message(instructions: Arrays, work: Work) -> Work:
        """Return the work with clipped rows. Raise ProtocolError if the message would exceed the run's budget."""
        _check_bounded(work)
        clip, _, budget = _noise_of_message(instructions)
        requested_noise(instructions, work.summed)  # An invalid share is refused before any work is done.
        # One row changes the mean of a column, and therefore every row with a missing value in this column.
        if work.data.missing and work.data.frame.own:
            raise DataError(
                "A run with noise cannot fill a client's missing values with the client's own means, because one row "
                "would change these means. Impute before the run."
            )
        spent = float(work.memory.get(_SPENT, 0.0)) + privacy_cost(instructions)
        if spent > budget * (1.0 + _ROUNDING):
            raise ProtocolError(
                f"With this message, the client would spend {spent / budget:.3g} times the run's privacy budget. Start "
                "a new run with a new budget."
            )
        return replace(
            work,
            data=ClippedRows(work.data, clip),
            # The record of the spent budget is removed from the memory that the stage gets.
            memory={name: a for name, a in work.memory.items() if name != _SPENT},
            keeps={**work.keeps, _SPENT: np.array(spent)},
        )

    @staticmethod
    def seal_answer(instructions: Arrays, work: Work, answer: Arrays) -> Arrays:
        """Return the answer with noise, and with 1 as the number of rows, so that sums count clients.

        If the server sees only a sum of answers, each client adds a share of the noise. Otherwise each client
        adds all of the noise.
        """
        share = requested_noise(instructions, work.summed)
        parts = work.stage.parts(work.arrays, work.data.d)
        # A dishonest server could invent the other clients and subtract their shares of the noise. So a client that
        # does not trust the other clients adds all of the noise.
        if not work.trusts:
            share = _noise_of_message(instructions)[1]
        rows = {name for name in answer if parts[name].kind.counts_rows}
        noisy = {name: add_noise(a, share, work.bits) for name, a in answer.items() if name not in rows}
        # No client sends its number of rows.
        return {**dict.fromkeys(answer, np.array(1)), **noisy}

    def divide_noise(self, needed: int) -> BudgetLayer:
        """Return the layer that divides the noise among the clients that a sum needs, except colluding clients."""
        colluding = self.dp.colluding
        if needed <= colluding:
            raise NotEnoughNodes(
                f"A masked sum needs more clients than may collude, but it has {needed} and {colluding} may collude. "
                "Start more clients, or lower colluding."
            )
        return replace(self, among=needed - colluding)

    def noise_forecast(self, *, rows: int, columns: int, clients: int) -> Outlook:
        """Return a forecast of the noise for a table of this size, computed as in `finish_algorithm`."""
        together = math.sqrt(clients / (self.among or 1))
        noise = together * self.noise * (math.sqrt(2.0 * columns) + 1.0)
        # `PrivateOpening` sends three parts in one vector, which multiplies the noise by the root of 3.
        deviation = together * self.frame_noise * math.sqrt(3.0)
        off = deviation * longest_normal_vector(columns) / self.raw_row_norm
        return Outlook(rows, columns, clients, noise=noise, off=off, ranged=bool(self.dp.public_ranges))

    def complete_state(self, state: Any) -> Any:
        if isinstance(state, SharesNoise):
            return state.divide_noise(self.among)
        return state

    def after_lost_sum(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[BudgetLayer, Algorithm[Any]]:
        """Return the layer and the algorithm with fewer rounds, because lost answers have also cost privacy."""
        after = replace(self, losses=(*self.losses, stage))
        frames, share = after.losses.count(self.opening), self.dp.frame_share
        # Each failed opening has cost the share of an opening.
        left = (1.0 - (1 + frames) * share) / (1.0 - share)
        # The budget still allows this number of rounds. Rounds whose sums were lost are already subtracted.
        room = left * self.rounds - (len(after.losses) - frames)
        rounds = math.floor(room + _ROUNDING)
        if rounds < 1 or algorithm.fixed_set:
            raise NotEnoughNodes(
                f"A sum of answers was lost ({why.rstrip('.')}), and the privacy budget does not allow "
                "another attempt. Start a new run with a new budget."
            )
        if isinstance(algorithm, Iterative):
            # The algorithm uses all remaining rounds, because an early end would depend on the rows.
            algorithm = replace(algorithm, min_rounds=rounds, max_rounds=rounds)
        return after, algorithm

    def require_reopening(self) -> None:
        raise NotEnoughNodes(
            "The set of clients changed after a part of the privacy budget was spent. Use ssi, which continues with "
            "the remaining clients."
        )

    def finish_algorithm(self, model: Model) -> Model:
        """Return the model with the status of a spent budget, and a bound on the norm of the noise.

        Residuals do not decide the status, because they measure the noise and not the remaining error. The
        bound is the largest eigenvalue of noise alone plus one standard deviation: see `dp.certainty`.
        """
        assert model.status is not None
        together = np.sqrt(model.clients / (self.among or 1))
        columns = np.sqrt(2.0 * model.d) + 1.0
        blur = float(together * self.noise * columns)
        return replace(model, status=self._status_of_spent_budget(model.status, model.rounds), noise=blur)

    def _status_of_spent_budget(self, status: Status, rounds: int) -> Status:
        if status.outcome is Outcome.DONE:
            return status
        done = f"all {self.rounds} planned rounds are done"
        if self.rounds == 1:
            done = "the one planned round is done"
        if rounds < self.rounds:
            planned = labels.count(self.rounds, "planned round")
            done = f"{rounds} of {planned} gave a sum, and the other sums were lost"
        return Status(Outcome.BUDGET_SPENT, f"the privacy budget is spent: {done}")

    def finish_closing(self, model: Model) -> Model:
        assert model.status is not None
        return replace(model, status=model.status.followed_by(model.remaining_doubts))

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        return replace(result, privacy=self.spending(stages, shared=shared))

    def spending(self, stages: Sequence[str], *, shared: bool) -> Spent:
        """Return the spent budget after messages of these stages. It is at most the budget, which clients enforce."""
        stages = [*stages, *self.losses]
        frames, share = stages.count(self.opening), self.dp.frame_share
        of_rounds = (len(stages) - frames) * (1.0 - share) / self.rounds
        used = frames * share + of_rounds
        mu = float(np.sqrt(min(used, 1.0) * self.budget))
        epsilon = gaussian.epsilon_of(mu, self.dp.delta)
        return Spent(
            epsilon=min(epsilon, self.dp.epsilon),
            delta=self.dp.delta,
            clip=self.dp.clip,
            noise=self.noise,
            messages=len(stages),
            shared=shared,
            among=self.among or 1,
            frame_noise=self.frame_noise,
        )


def plan_budget(dp: DP, algorithm: Algorithm[Any], opening: str) -> tuple[BudgetLayer, Algorithm[Any]]:
    """Return the budget layer, and the algorithm with a fixed number of rounds.

    An early end would depend on the rows. The algorithm gets at least one additional column, which shows
    the next eigenvalue. This column does not increase the effect of a row on an answer.
    """
    if not isinstance(algorithm, Iterative):
        return BudgetLayer(dp, 1, opening), algorithm
    rounds = algorithm.max_rounds
    finite = replace(algorithm, min_rounds=rounds, oversample=max(algorithm.oversample, 1))
    return BudgetLayer(dp, rounds, opening), finite


@dataclass(frozen=True)
class NoiseFloor:
    """The minimum noise and the maximum clip that a node accepts in a message.

    Parameters
    ----------
    noise : float or None, default=None
        The minimum standard deviation of the noise, in multiples of clip^2. If clients share the noise, this is the
        noise of their sum, so the node relies on the shares of the other clients. If `noise` is set, the node refuses
        messages that do not ask for noise.
    clip : float or None, default=None
        The maximum norm to which rows may be clipped. If `clip` is set, the node refuses messages that do not ask for
        noise.
    """

    noise: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "clip"):
            if getattr(self, name) is not None:
                checks.number(f"The node's own bound on {name}", getattr(self, name), least=0.0)

    def reason_to_refuse(self, instructions: Arrays | None) -> str | None:
        """Return the reason for refusing a message, or None if the node accepts it.

        `instructions` are the layer's arrays, or None if the message does not ask for noise.
        """
        if self.noise is None and self.clip is None:
            return None
        remedy = "Ask the node's operator."
        if instructions is None:
            return f"This node answers only with noise, but the message does not ask for noise. {remedy}"
        clip, std, _ = _noise_of_message(instructions)
        if self.noise is not None and std < self.noise * clip**2:
            rule = f"This node answers only with noise of at least {self.noise:g} clip^2"
            return f"{rule}, but the message has {std / clip**2:g} clip^2. {remedy}"
        if self.clip is not None and clip > self.clip:
            return f"This node clips rows at {self.clip:g} or below, but the message asks for {clip:g}. {remedy}"
        return None


def noise_instruction(*, clip: float, std: float, budget: float) -> Arrays:
    """Return the layer's arrays of a message: the clip, the standard deviation of the noise, and the run's budget."""
    return {_CLIP: np.array(clip), _NOISE: np.array(std), _BUDGET: np.array(budget)}


def sharing_arrays(among: int) -> Arrays:
    """Return the additional array of a message under masks: the number of clients among which the noise is divided."""
    return {_AMONG: np.array(among)}


def noise_share(std: float, survivors: int) -> float:
    """Return the standard deviation of each client's noise if `survivors` clients together must reach `std`.

    The noise of N clients together has the deviation std sqrt(N / survivors).

    Parameters
    ----------
    std : float
        The standard deviation of the noise that the sum of the answers needs.
    survivors : int
        The number of honest clients that must remain: the threshold of the masked sum minus the clients that may
        collude.

    Returns
    -------
    float
        The standard deviation of the noise of one client.

    Examples
    --------
    >>> from flower_pca.layers.noise import noise_share
    >>> noise_share(12.0, survivors=9)
    4.0
    """
    checks.number("std", std, least=0.0)
    checks.integer("survivors", survivors, least=1)
    return std / float(np.sqrt(survivors))


def requested_noise(instructions: Arrays, summed: int) -> float:
    """Return the standard deviation of the noise that a message asks a client to add.

    The server sees only sums of at least `summed` answers. Raise ProtocolError if the message divides the noise
    among more clients than `summed`.
    """
    _, std, _ = _noise_of_message(instructions)
    among = instructions.get(_AMONG, np.array(1))
    if among.ndim or among.dtype.kind not in "iu" or not 1 <= int(among) <= summed:
        got = "several numbers" if among.ndim else f"{among} clients"
        raise ProtocolError(
            f"A message divides its noise among {got}, but the server may see a sum of only "
            f"{labels.count(summed, 'answer')}. {OTHER_SERVER}"
        )
    return noise_share(std, int(among))


def privacy_cost(instructions: Arrays) -> float:
    """Return the cost of answering a message with noise, as mu^2: (sensitivity / deviation)^2."""
    clip, std, _ = _noise_of_message(instructions)
    ratio = clip * clip / std
    return ratio * ratio  # An overflow yields infinity, while `ratio**2` would raise an error.


def budget_of_message(instructions: Arrays) -> float:
    """Return the run's privacy budget, as mu^2, from a message."""
    return _noise_of_message(instructions)[2]


def _check_bounded(work: Work) -> None:
    """Raise ProtocolError unless a row of norm R changes the answer by at most R^2.

    This holds for bounded stages and matrices with a norm of at most 1.
    """
    if not work.stage.bounded:
        raise ProtocolError(
            f"The answers of {work.stage.name} have no bound, so noise cannot hide a row. Use ssi, krylov or "
            "covariance."
        )
    for name, Z in work.arrays.items():
        if Z.ndim == 0:
            continue
        if Z.ndim != 2:
            raise ProtocolError(
                f"The array {name} of a message with noise has {labels.count(Z.ndim, 'dimension')} instead of two. "
                f"{OTHER_SERVER}"
            )
        norm = linalg.norm2(np.asarray(Z, dtype=np.float64))
        if norm > 1.0 + _ROUNDING:
            raise ProtocolError(
                f"The array {name} of a message with noise has the norm {norm:g}, but the largest allowed norm is 1. "
                f"{OTHER_SERVER}"
            )


def _noise_of_message(instructions: Arrays) -> tuple[float, float, float]:
    if strange := instructions.keys() - _ARRAYS:
        raise ProtocolError(
            f"A message with noise has unknown arrays: {', '.join(sorted(strange))[:100]}. Only these are known: "
            f"{', '.join(sorted(_ARRAYS))}. {OTHER_SERVER}"
        )
    # `float` would raise an error of another class for an array of several numbers.
    if several := [name for name in instructions if np.ndim(instructions[name])]:
        raise ProtocolError(
            f"A message with noise has several numbers in {', '.join(several)} instead of one. {OTHER_SERVER}"
        )
    clip, std, budget = (float(instructions.get(name, np.nan)) for name in (_CLIP, _NOISE, _BUDGET))
    if not all(np.isfinite(value) and value > 0.0 for value in (clip, std, budget)):
        raise ProtocolError(
            f"A message with noise must have a positive {_CLIP}, {_NOISE} and {_BUDGET}, but has {clip:g}, {std:g}, "
            f"{budget:g}. {OTHER_SERVER}"
        )
    return clip, std, budget
