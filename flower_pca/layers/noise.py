"""The noise of a privacy budget: rows are clipped, and noise added, before a node tells anything.

The server's half deals the budget out to the messages, and knows what a lost one means (`Budget`);
each carries a clip, a deviation and the budget. The client's half runs the stage's on `ClippedRows`
rows, which offer no other statistic, adds noise to all that comes back, and keeps count of what the
client has spent. `Floor` is what a node insists on, whatever a message says.
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
from flower_pca.dp.certainty import longest
from flower_pca.dp.drawing import add_noise
from flower_pca.dp.outlook import Outlook
from flower_pca.dp.spent import Spent
from flower_pca.layers import NOISE
from flower_pca.rows.local import LocalData
from flower_pca.settings.budget import DP

# The keys of a message that asks for noise.
_CLIP, _NOISE, _BUDGET, _AMONG = "clip", "noise", "budget", "among"
_SAID: Final = frozenset((_CLIP, _NOISE, _BUDGET, _AMONG))
_SPENT: Final = "dp.spent"  # The key in a client's memory.
# An orthonormal block, or a budget that is added up, may pass its bound by this much.
_ROUNDING: Final = 1e-9


class ClippedRows:
    """A client's rows in the frame, each scaled down to norm `clip` where it is longer.

    It offers what bounded stages need, and nothing else: no other statistic of the rows can get out
    by mistake. Products are taken in float64. Sparse rows become dense a block at a time.
    """

    def __init__(self, data: LocalData, clip: float) -> None:
        self.n, self.d, self.clip = data.n, data.d, clip
        self._data = data

    def rows(self) -> Iterator[Array]:
        """Blocks of clipped rows."""
        for block in self._data.dense():
            with np.errstate(over="ignore", invalid="ignore"):
                B = block.astype(np.float64) / self.clip
                norms = np.sqrt(np.einsum("ij,ij->i", B, B))
                B *= (self.clip / np.maximum(norms, 1.0))[:, None]
            # a frame that blows rows up beyond all numbers shall not tell which
            B[~np.isfinite(norms)] = 0.0
            yield B

    def matmat(self, Z: Array) -> Array:
        """X'(XZ)."""
        Z = np.asarray(Z, dtype=np.float64)
        images = (B.T @ (B @ Z) for B in self.rows())
        return sum(images, np.zeros(Z.shape))

    def gram(self) -> Array:
        """X'X."""
        squares = (B.T @ B for B in self.rows())
        return sum(squares, np.zeros((self.d, self.d)))


@runtime_checkable
class Sharing(Protocol):
    """A stage's state that has to know among how many the noise in its sum is shared out."""

    def divide(self, among: int) -> Any:
        """The state that knows."""


@dataclass(frozen=True)
class Budget(Layer):
    """How a budget is dealt out: a share to the frame, the rest evenly to the algorithm.

    In terms of mu = sensitivity / deviation, which add up in squares, the budget is mu^2.

    Attributes
    ----------
    dp : DP
        The budget.
    rounds : int
        Rounds of the algorithm that it is dealt out to.
    opening : str
        The name of the stage that measures the frame.
    among : int
        Clients that share the noise of a sum under masks; 0 where each adds all of it.
    losses : tuple of str
        Stages of messages whose answers gave no sum: they have cost what others cost.
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
        """mu^2 of the whole run."""
        return gaussian.noise_of(self.dp.epsilon, self.dp.delta) ** 2

    @property
    def noise(self) -> float:
        """The deviation of the noise on a message of the algorithm: s clip^2."""
        rounds_share = self.budget * (1.0 - self.dp.frame_share)
        return self.dp.clip**2 * float(np.sqrt(self.rounds / rounds_share))

    @property
    def frame_noise(self) -> float:
        """The deviation of the noise on the opening."""
        return self.reach**2 / float(np.sqrt(self.budget * self.dp.frame_share))

    @property
    def reach(self) -> float:
        """The norm to which raw rows are clipped."""
        return self.dp.reach or self.dp.clip

    def _terms(self, opening: bool) -> tuple[float, float]:
        """The norm to which rows are clipped for a message, and the deviation of the noise on it."""
        if opening:
            return self.reach, self.frame_noise
        return self.dp.clip, self.noise

    def deviation_of_one(self, *, opening: bool) -> float:
        return noise_share(self._terms(opening)[1], self.among or 1)

    def ask(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        clip, std = self._terms(opening)
        says = instruction(clip=clip, std=std, budget=self.budget)
        if self.among:
            says |= sharing(self.among)
        return replace(message, layers={**message.layers, NOISE: says})

    @staticmethod
    def read(says: Arrays, work: Work) -> Work:
        """On clipped rows. Past the budget that the run has named the client answers no more."""
        _check_bounded(work)
        clip, _, budget = _instruction(says)
        asked_share(says, work.summed)  # refused before anything is done
        # a row would move all that have a gap in its columns
        if work.data.missing and work.data.frame.own:
            raise DataError(
                "A run with noise cannot fill a client's missing values with the client's own means, because one row "
                "would move them. Impute before the run."
            )
        spent = float(work.memory.get(_SPENT, 0.0)) + cost(says)
        if spent > budget * (1.0 + _ROUNDING):
            raise ProtocolError(
                f"With this message the client would spend {spent / budget:.3g} of the run's privacy budget. Start a "
                "new run with a budget of its own."
            )
        return replace(
            work,
            data=ClippedRows(work.data, clip),
            # what a client keeps beside the count of what it has told
            memory={name: a for name, a in work.memory.items() if name != _SPENT},
            keeps={**work.keeps, _SPENT: np.array(spent)},
        )

    @staticmethod
    def seal(says: Arrays, work: Work, up: Arrays) -> Arrays:
        """With noise on all of it, in full but where the answer is seen in a sum; n becomes 1, and counts clients."""
        share = asked_share(says, work.summed)
        parts = work.stage.parts(work.arrays, work.data.d)
        # a server can invent the peers that share it with this client, and take their shares off
        if not work.trusts:
            share = _instruction(says)[1]
        rows = {name for name in up if parts[name].kind.counts_rows}
        noisy = {name: add_noise(a, share, work.bits) for name, a in up.items() if name not in rows}
        # how many rows there are is told by nobody
        return {**dict.fromkeys(up, np.array(1)), **noisy}

    def divide(self, needed: int) -> Budget:
        """Those that a sum needs, less those that may collude, shall have the whole noise."""
        colluding = self.dp.colluding
        if needed <= colluding:
            raise NotEnoughNodes(
                f"A masked sum needs more clients than may collude, but it has {needed} and {colluding} may collude. "
                "Start more clients, or lower colluding."
            )
        return replace(self, among=needed - colluding)

    def outlook(self, *, rows: int, columns: int, clients: int) -> Outlook:
        """What can be seen of a table of this size: noise alone has the eigenvalues of `end`."""
        together = math.sqrt(clients / (self.among or 1))
        noise = together * self.noise * (math.sqrt(2.0 * columns) + 1.0)
        # see `PrivateOpening`
        deviation = together * self.frame_noise * math.sqrt(3.0)
        off = deviation * longest(columns) / self.reach
        return Outlook(rows, columns, clients, noise=noise, off=off, ranged=bool(self.dp.public_ranges))

    def inform(self, state: Any) -> Any:
        if isinstance(state, Sharing):
            return state.divide(self.among)
        return state

    def write_off(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Budget, Algorithm[Any]]:
        """The algorithm has as many rounds less as answers were given in vain: clients have spent what they told."""
        after = replace(self, losses=(*self.losses, stage))
        frames, share = after.losses.count(self.opening), self.dp.frame_share
        # Each failed opening has cost the share of an opening.
        left = (1.0 - (1 + frames) * share) / (1.0 - share)
        # The rounds that the budget still pays for, after the answers that gave no sum.
        room = left * self.rounds - (len(after.losses) - frames)
        rounds = math.floor(room + _ROUNDING)
        if rounds < 1 or algorithm.fixed_set:
            raise NotEnoughNodes(
                f"A sum that costs privacy was not complete ({why.rstrip('.')}), and the budget does not allow "
                "another attempt. Start a new run with a budget of its own."
            )
        if isinstance(algorithm, Iterative):
            # all of them, as an early end would depend on the rows
            algorithm = replace(algorithm, min_rounds=rounds, max_rounds=rounds)
        return after, algorithm

    def reopen(self) -> None:
        raise NotEnoughNodes(
            "The set of clients changed while the privacy budget was spent. Use ssi, which continues with the "
            "remaining clients."
        )

    def end(self, model: Model) -> Model:
        """A run with noise ends with its budget; residuals measure the noise, not the way.

        The largest eigenvalue that noise alone has in such a sum, and one deviation more: see
        `dp.certainty`.
        """
        assert model.status is not None
        together = np.sqrt(model.clients / (self.among or 1))
        columns = np.sqrt(2.0 * model.d) + 1.0
        blur = float(together * self.noise * columns)
        return replace(model, status=self._ending(model.status, model.rounds), noise=blur)

    def _ending(self, status: Status, rounds: int) -> Status:
        if status.outcome is Outcome.DONE:
            return status
        done = f"all {self.rounds} planned rounds are done"
        if self.rounds == 1:
            done = "the one planned round is done"
        if rounds < self.rounds:
            planned = labels.count(self.rounds, "planned round")
            done = f"{rounds} of {planned} gave a sum, and the others were spent without a result"
        return Status(Outcome.BUDGET_SPENT, f"the privacy budget is spent: {done}")

    def measure(self, model: Model) -> Model:
        assert model.status is not None
        return replace(model, status=replace(model.status, words=model.status.words + model.doubts))

    def with_privacy(self, result: Result, stages: Sequence[str], *, shared: bool) -> Result:
        return replace(result, privacy=self.spending(stages, shared=shared))

    def spending(self, stages: Sequence[str], *, shared: bool) -> Spent:
        """What messages of these stages cost: a client gives no answer that would take it past the whole budget."""
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


def plan(dp: DP, algorithm: Algorithm[Any], opening: str) -> tuple[Budget, Algorithm[Any]]:
    """The budget, and the algorithm in all its rounds: an early end would depend on the rows.

    It has a column more than is wanted, which shows the next eigenvalue: a row changes an answer by
    no more for it.
    """
    if not isinstance(algorithm, Iterative):
        return Budget(dp, 1, opening), algorithm
    rounds = algorithm.max_rounds
    finite = replace(algorithm, min_rounds=rounds, oversample=max(algorithm.oversample, 1))
    return Budget(dp, rounds, opening), finite


@dataclass(frozen=True)
class Floor:
    """What a node insists on, whatever the server asks for.

    Parameters
    ----------
    noise : float or None, default=None
        The least deviation of the noise, in multiples of clip^2; with it, answers without noise are refused. Where the
        noise is shared out, it is that of the sum: the node then relies on the shares of others.
    clip : float or None, default=None
        The largest norm to which rows may be clipped; likewise.
    """

    noise: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "clip"):
            if getattr(self, name) is not None:
                checks.number(f"The node's own bound on {name}", getattr(self, name), least=0.0)

    def refusal(self, says: Arrays | None) -> str | None:
        """Why this message is not answered, or ""; `says` is what it says of noise, if at all."""
        if self.noise is None and self.clip is None:
            return None
        remedy = "Ask the node's operator."
        if says is None:
            return f"This node answers only with noise, but the message asks for none. {remedy}"
        clip, std, _ = _instruction(says)
        if self.noise is not None and std < self.noise * clip**2:
            rule = f"This node answers only with noise of at least {self.noise:g} clip^2"
            return f"{rule}, but the message has {std / clip**2:g} clip^2. {remedy}"
        if self.clip is not None and clip > self.clip:
            return f"This node clips rows at {self.clip:g} or below, but the message asks for {clip:g}. {remedy}"
        return None


def instruction(*, clip: float, std: float, budget: float) -> Arrays:
    """What a message says beside its arrays: norm, deviation, and the run's sum of mu^2."""
    return {_CLIP: np.array(clip), _NOISE: np.array(std), _BUDGET: np.array(budget)}


def sharing(among: int) -> Arrays:
    """What a message under masks says beside its instruction: how many clients alone shall have the whole noise."""
    return {_AMONG: np.array(among)}


def noise_share(std: float, survivors: int) -> float:
    """The deviation that each client adds to a masked sum, so that `survivors` reach `std`.

    N clients together then add std sqrt(N / survivors). `survivors` is the number of honest clients
    that must remain: the threshold of the masked sum, less those that may collude.
    """
    checks.number("std", std, least=0.0)
    checks.integer("survivors", survivors, least=1)
    return std / float(np.sqrt(survivors))


def asked_share(says: Arrays, summed: int) -> float:
    """The deviation that a message asks a client to add, whose answer is seen in a sum of at least `summed` only.

    The noise is shared out among no more clients than are sure to be in the sum.
    """
    _, std, _ = _instruction(says)
    among = says.get(_AMONG, np.array(1))
    if among.ndim or among.dtype.kind not in "iu" or not 1 <= int(among) <= summed:
        got = "several numbers" if among.ndim else f"{among}"
        raise ProtocolError(
            f"A message divides its noise among {got} clients, but the server sees only sums of {summed} answers. "
            f"{OTHER_SERVER}"
        )
    return noise_share(std, int(among))


def cost(says: Arrays) -> float:
    """What an answer to a message with noise costs, as mu^2: (sensitivity / deviation)^2."""
    clip, std, _ = _instruction(says)
    ratio = clip * clip / std
    return ratio * ratio  # beyond all numbers it is infinite, where a power would raise


def named_budget(says: Arrays) -> float:
    """What the run that a message belongs to may cost, as it says itself; likewise."""
    return _instruction(says)[2]


def _check_bounded(work: Work) -> None:
    """Require a stage, and matrices, of which a row of norm R changes the answer by at most R^2."""
    if not work.stage.bounded:
        raise ProtocolError(
            f"{work.stage.name} has no bounded answers, so noise hides nothing. Use ssi, krylov or covariance."
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
                f"The array {name} of a message with noise has the norm {norm:g}, but at most 1 is possible. "
                f"{OTHER_SERVER}"
            )


def _instruction(says: Arrays) -> tuple[float, float, float]:
    if strange := says.keys() - _SAID:
        raise ProtocolError(
            f"A message with noise has {', '.join(sorted(strange))[:100]}, but should have only "
            f"{', '.join(sorted(_SAID))}. {OTHER_SERVER}"
        )
    # float() raises on several numbers, and what it raises is no refusal
    if several := [name for name in says if np.ndim(says[name])]:
        raise ProtocolError(
            f"A message with noise has several numbers in {', '.join(several)} instead of one. {OTHER_SERVER}"
        )
    clip, std, budget = (float(says.get(name, np.nan)) for name in (_CLIP, _NOISE, _BUDGET))
    if not all(np.isfinite(value) and value > 0.0 for value in (clip, std, budget)):
        raise ProtocolError(
            f"A message with noise must have a positive {_CLIP}, {_NOISE} and {_BUDGET}, but has {clip:g}, {std:g}, "
            f"{budget:g}. {OTHER_SERVER}"
        )
    return clip, std, budget
