"""The client's side of differential privacy: rows are clipped, and noise is added, before anything leaves the node.

A message that asks for noise carries a clip, a deviation and a budget (`instruction`, `sharing`). `answer` then runs
the stage's client half on `Clipped` rows, which offer no other statistic, adds noise to all that comes back, and keeps
count of what the client has spent. `Floor` is what a node insists on, whatever a message says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ProtocolError, sentence
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays, Stage
from flower_pca.dp.draw import Bits, noised
from flower_pca.rows.local import LocalData

_CLIP, _NOISE, _BUDGET, _AMONG = "dp.clip", "layers.noise", "dp.budget", "dp.among"
NAMES: Final = frozenset((_CLIP, _NOISE, _BUDGET, _AMONG))  # of what a message says that asks for noise
_SPENT: Final = "dp.spent"
_ROUNDING: Final = 1e-9  # by which an orthonormal block, or a budget added up, may pass its bound


class Clipped:
    """A client's rows in the frame, each scaled down to norm `clip` where it is longer.

    It offers what bounded stages need, and nothing else: no other statistic of the rows can get out by mistake.
    Products are taken in float64. Sparse rows become dense a block at a time.
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
            B[~np.isfinite(norms)] = 0.0  # a frame that blows rows up beyond all numbers shall not tell which
            yield B

    def matmat(self, Z: Array) -> Array:
        """X'(XZ)."""
        Z = np.asarray(Z, dtype=np.float64)
        return sum((B.T @ (B @ Z) for B in self.rows()), np.zeros(Z.shape))

    def gram(self) -> Array:
        """X'X."""
        return sum((B.T @ B for B in self.rows()), np.zeros((self.d, self.d)))


@dataclass(frozen=True)
class Floor:
    """What a node insists on, whatever the server asks for.

    Args:
        noise: The least deviation of the noise, in multiples of clip^2; with it, answers without noise are refused.
            Where the noise is shared out, it is that of the sum: the node then relies on the shares of others.
        clip: The largest norm to which rows may be clipped; likewise.
    """

    noise: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "clip"):
            if getattr(self, name) is not None:
                checks.number(f"The node's own bound on {name}", getattr(self, name), least=0.0)

    def refusal(self, arrays: Arrays) -> str | None:
        """Why this message is not answered, if it is not."""
        if self.noise is None and self.clip is None:
            return None
        remedy = "Ask the node's operator."
        if not asked(arrays):
            return sentence("A message to this node", "one that asks for noise", "one without dp", remedy)
        clip, std, _ = _instruction(arrays)
        if self.noise is not None and std < self.noise * clip**2:
            rule = f"at least {self.noise:g} clip^2"
            return sentence("The noise at this node", rule, f"{std / clip**2:g} clip^2", remedy)
        if self.clip is not None and clip > self.clip:
            return sentence("The clip at this node", f"at most {self.clip:g}", f"{clip:g}", remedy)
        return None


def instruction(*, clip: float, std: float, budget: float) -> Arrays:
    """What a message says beside its arrays: norm, deviation, and the sum of mu^2 that the run may reach."""
    return {_CLIP: np.array(clip), _NOISE: np.array(std), _BUDGET: np.array(budget)}


def sharing(among: int) -> Arrays:
    """What a message under masks says beside its instruction: how many clients alone shall have the whole noise."""
    return {_AMONG: np.array(among)}


def noise_share(std: float, survivors: int) -> float:
    """The deviation that each client adds where sums are masked, so that `survivors` of them alone reach `std`.

    N clients together then add std sqrt(N / survivors). `survivors` is the number of honest clients that must remain:
    the threshold of the masked sum, less those that may collude.
    """
    checks.number("std", std, least=0.0)
    checks.integer("survivors", survivors, least=1)
    return std / float(np.sqrt(survivors))


def asked_share(arrays: Arrays, summed: int) -> float:
    """The deviation that a message asks a client to add, whose answer is seen in a sum of at least `summed` only."""
    _, std, _ = _instruction(arrays)
    return noise_share(std, _among(arrays, summed))


def cost(arrays: Arrays) -> float:
    """What an answer to a message with noise costs, as mu^2: sensitivity over deviation, squared."""
    clip, std, _ = _instruction(arrays)
    ratio = clip * clip / std
    return ratio * ratio  # beyond all numbers it is infinite, where a power would raise


def named_budget(arrays: Arrays) -> float:
    """What the run that a message belongs to may cost, as it says itself; likewise."""
    return _instruction(arrays)[2]


def uncounted(memory: Arrays) -> Arrays:
    """What a client keeps beside the count of what it has told."""
    return {name: a for name, a in memory.items() if name != _SPENT}


def asked(names: Iterable[str]) -> bool:
    """Whether a message with arrays of these names asks for noise."""
    return not NAMES.isdisjoint(names)


def answer(
    stage: type[Stage[Any]], arrays: Arrays, data: LocalData, memory: Arrays, bits: Bits, *, summed: int = 1
) -> tuple[Arrays, Arrays]:
    """The answer of a client's half on clipped rows, with noise on all of it; `n` becomes 1, and counts clients.

    The client keeps count of what it has told: past the budget that the run has named it answers no more. It adds less
    than all of the noise only where the answer is seen in a sum, and at least so many are in that: `summed`.
    """
    clip, _, budget = _instruction(arrays)
    share = asked_share(arrays, summed)
    if not stage.bounded:
        remedy = "Use ssi, krylov or covariance."
        raise ProtocolError("A stage with noise", must="one with bounded answers", got=stage.name, then=remedy)
    plain = {name: a for name, a in arrays.items() if name not in NAMES}
    for name, Z in plain.items():
        if Z.ndim == 0:
            continue
        if Z.ndim != 2:
            got = labels.count(Z.ndim, "dimension")
            raise ProtocolError(f"{name} with noise", must="a matrix", got=got, then="Check the sender.")
        norm = linalg.norm2(np.asarray(Z, dtype=np.float64))
        if norm > 1.0 + _ROUNDING:
            raise ProtocolError(
                f"The norm of {name} with noise", must="at most 1", got=f"{norm:g}", then="Check the sender."
            )
    spent = float(memory.get(_SPENT, 0.0)) + cost(arrays)
    if spent > budget * (1.0 + _ROUNDING):
        got, remedy = f"{spent / budget:.3g} of it", "Start a new run with a budget of its own."
        raise ProtocolError("What this client tells", must="within the run's privacy budget", got=got, then=remedy)
    up, after = stage.client(plain, cast(LocalData, Clipped(data, clip)), uncounted(memory))
    parts, sent = stage.parts(plain, data.d), {}
    for name, a in up.items():
        counts = parts[name].kind.counts_rows  # how many rows there are is told by nobody: it counts clients
        sent[name] = np.array(1) if counts else noised(a, share, bits)
    return sent, {**after, _SPENT: np.array(spent)}


def _instruction(arrays: Arrays) -> tuple[float, float, float]:
    values = tuple(float(arrays.get(name, np.nan)) for name in (_CLIP, _NOISE, _BUDGET))
    if not all(np.isfinite(value) and value > 0.0 for value in values):
        rule, got = f"{_CLIP}, {_NOISE} and {_BUDGET}, each above 0", ", ".join(f"{value:g}" for value in values)
        raise ProtocolError("What a message with noise says", must=rule, got=got, then="Check the sender.")
    return values[0], values[1], values[2]


def _among(arrays: Arrays, summed: int) -> int:
    """Among how many clients the noise is shared out: no more than are sure to be in the sum."""
    among = arrays.get(_AMONG, np.array(1))
    if among.ndim or among.dtype.kind not in "iu" or not 1 <= int(among) <= summed:
        rule = f"from 1 to {summed}, the answers that nobody sees but together"
        got = f"{among}" if among.ndim == 0 else "several numbers"
        raise ProtocolError("The clients that share the noise", must=rule, got=got, then="Check the sender.")
    return int(among)
