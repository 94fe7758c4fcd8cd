"""MaskedSums: what a caller may choose about masks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError
from flower_pca.core.stage import Stage

_ALL: Final = 100  # clients up to which every two of them share a mask
_PER_DOUBLING, _BASE = 3, 16  # beyond: neighbours for every doubling of the clients, and to begin with


@dataclass(frozen=True, kw_only=True)
class MaskedSums:
    """Settings of masked sums; `mask=True` stands for the defaults.

    Args:
        threshold: A client's mask is found again, and a sum is had, if more than this share of the client and its
            neighbours survive; at least one half, below which a server that lies about drop-outs could see an answer.
        bound: The largest entry, in absolute value, that any client may have to send after the opening. Left out, it
            follows from the sums that the opening has brought. A client with a larger one sends nothing, and says so.
        neighbours: With how many others a client shares masks; an even number. Left out, with all others up to 100
            clients, and with 3 log2 N + 16 of N beyond.
        self_masks: Whether a client adds a mask of its own to those that it shares with others. Without them a sum
            takes one message while nobody drops out, not two; but a server that lies about drop-outs could unmask an
            upload, and one that is only curious, an upload that comes late. Nodes have to agree, by `single_masks`.
    """

    threshold: float = 0.5
    bound: float | None = None
    neighbours: int | None = None
    self_masks: bool = True

    def __post_init__(self) -> None:
        remedy = "Use 0.5."
        checks.number("threshold of the masks", self.threshold, least=0.5, most=0.99, remedy=remedy)
        if self.bound is not None:
            checks.number("bound of the masks", self.bound, least=1e-300, remedy="Leave it out.")
        if self.neighbours is not None:
            checks.integer("neighbours of the masks", self.neighbours, least=2, remedy="Leave it out.")
            if self.neighbours % 2:
                got = self.neighbours
                raise ConfigError("neighbours of the masks", must="even", got=got, then=f"Use {got + 1}.")
        checks.choice("self_masks of the masks", self.self_masks, (True, False))

    @classmethod
    def of(cls, mask: bool | MaskedSums | str | None) -> MaskedSums | None:
        """The settings that `mask` stands for, such as "masks(neighbours=20)"; None for no masks."""
        if isinstance(mask, MaskedSums):
            return mask
        if mask is None or isinstance(mask, bool | np.bool_):
            return cls() if mask else None
        if isinstance(mask, str) and mask.lower() in ("true", "false"):  # as a configuration may have them
            return cls() if mask.lower() == "true" else None
        rule = 'True, False, a MaskedSums, or a string such as "masks(neighbours=20)"'
        return specs.bind(mask, {"masks": cls, "MaskedSums": cls}, what="mask", rule=rule)()

    def check(self, algorithm: Stage[Any], *, scale: object = None, dp: object = None, channel: object = None) -> None:
        """Require of a run what masks need: all messages of the algorithm answered by sums, and nothing beside them."""
        if algorithm.sums_remedy:
            rule = "one whose clients send sums and nothing else"
            raise ConfigError("The algorithm under masks", must=rule, got=algorithm.spec, then=algorithm.sums_remedy)
        if scale == "max_abs":
            rule = "None or 'std', which follow from sums"
            raise ConfigError("scale under masks", must=rule, got="'max_abs'", then="Use 'std'.")
        if dp is not None and self.bound is not None:
            then = "It follows from the noise."
            raise ConfigError("bound of the masks", must="left out with dp", got=self.bound, then=then)
        if dp is not None and not self.self_masks:
            then = "Leave it out: else an upload that comes late could be opened, with its share of noise."
            raise ConfigError("self_masks of the masks", must="True with dp", got=False, then=then)
        if channel is not None:
            raise ConfigError("channel under masks", must="left out", got=repr(channel), then="Leave one of them out.")

    def degree(self, clients: int) -> int:
        """Neighbours of each of so many clients."""
        if self.neighbours is not None:
            return min(self.neighbours, clients - 1)
        if clients <= _ALL:
            return clients - 1
        return 2 * math.ceil((_PER_DOUBLING * math.log2(clients) + _BASE) / 2)

    def needed(self, group: int) -> int:
        """How many of a client and its neighbours, together so many, have to survive."""
        return min(group, math.floor(self.threshold * group) + 1)
