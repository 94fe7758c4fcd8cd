"""The secrets that a client keeps for a masked set-up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages
from flower_pca.masking.primitives import SEED


@dataclass(frozen=True)
class SetupSecrets:
    """The secrets of a client in a set-up. All fields are arrays, so that any driver can store them.

    `common` contains, for each peer, the secret for letters to this peer and the secret for letters from this peer.
    Both are derived from the exchange keys of the two clients, and letters with shares are sealed with them. `own`
    belongs to the sum `number`, and `coming` to the next sum: each contains the seed of the self-mask, the seed of the
    mask key, and the client's own shares of both. `deposits` are the shares that the peers in `holders` have given to
    this client for the sum `number`. `names` are the names of the peers' keys, or zeros for peers that have not signed.
    A set-up without self-masks (`single`) has no seeds and no shares of self-masks. `agreed` is the text about the
    group that the client has signed, or would sign if it had a key. `vouched` are the peers that have signed this text.
    `past` is the digest of the messages on which the rest of the client's memory depends, or zeros if there are none.
    `earlier` is this digest before the newest answer. `columns` are the letters about columns of all `peers`, followed
    by the client's own letter, if the client requires letters.
    """

    setup: Array
    single: Array
    exchange: Array
    step: Array
    number: Array
    own: Array
    needed: Array
    position: Array
    peers: Array
    common: Array
    coming: Array
    holders: Array
    deposits: Array
    names: Array
    agreed: Array
    vouched: Array
    past: Array
    earlier: Array
    columns: Array

    @cached_property
    def seeds_per_sum(self) -> int:
        """The number of seeds for a sum: 2 (self-mask and mask key), or 1 without self-masks (only the mask key)."""
        return 2 - bool(self.single)

    @property
    def min_uploads_in_sum(self) -> int:
        """The smallest number of uploads whose sum the server can see.

        Without self-masks, the server could unmask a single late upload, so the number is 1.
        """
        if self.single:
            return 1
        return int(self.needed)

    @property
    def mask_key_seed(self) -> bytes:
        """The seed of the mask key."""
        last = slice((self.seeds_per_sum - 1) * SEED, self.seeds_per_sum * SEED)
        return self.own.tobytes()[last]

    @classmethod
    def begin(
        cls, *, setup: Array, single: Array, exchange: Array, own: Array, past: Array, earlier: Array
    ) -> SetupSecrets:
        """Return the secrets of a client that has made its keys and knows no peers yet."""
        zero, none = np.array(0), np.empty(0, dtype=np.uint8)
        return cls(
            setup=setup,
            single=single,
            exchange=exchange,
            step=np.array(int(messages.Phase.SHARES)),
            number=zero,
            own=own,
            needed=zero,
            position=zero,
            peers=none,
            common=none,
            coming=none,
            holders=none,
            deposits=none,
            names=none,
            agreed=none,
            vouched=none,
            past=past,
            earlier=earlier,
            columns=none,
        )

    @classmethod
    def from_memory(cls, memory: Arrays) -> SetupSecrets | None:
        """Return the secrets in a client's memory, or None if the memory has none."""
        try:
            return cls(*_found(memory))
        except KeyError:
            return None

    def to_memory(self) -> Arrays:
        """Return the secrets as parts of a client's memory."""
        return {name: np.asarray(a) for name, a in zip(_NAMES, _values(self), strict=True)}


_FIELDS: Final = tuple(f.name for f in fields(SetupSecrets))


_NAMES: Final = tuple(f"{messages.PREFIX}{name}" for name in _FIELDS)  # the names of these fields in a client's memory


_found: Final = itemgetter(*_NAMES)


_values: Final = attrgetter(*_FIELDS)
