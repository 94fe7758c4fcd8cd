"""The secrets of a masked set-up that a client keeps."""

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
class Secrets:
    """The secrets of a client in a set-up. All fields are arrays, so that any driver can keep them.

    `common` holds for each peer the secret of letters to it and the secret of letters from it. Both come from the
    exchange keys of the two clients, and seal shares. `own` and `coming` are for the sum `number` and for the next one:
    the seed of the self-mask, the seed of the mask key, and the client's shares of both. `deposits` are the shares that
    belong to the peers in `holders`, for the sum `number`. `names` are the names of the peers' keys if they have
    signed, else zeros. A set-up without self-masks (`single`) has no seeds and no shares of self-masks. `agreed` is
    what the client has signed about the group, or would have signed. `vouched` are the peers that have signed the same.
    `past` is the digest of the messages on which the rest of the client's memory depends, or zeros if there are none.
    `earlier` is the digest before the newest answer.
    `columns` is what each of the `peers` has written about its columns, and last what the client itself has, if the
    client requires this.
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
    def kinds(self) -> int:
        """The number of seeds for a sum: self-mask and mask key, or only the mask key, which is the last."""
        return 2 - bool(self.single)

    @property
    def summed(self) -> int:
        """The number of uploads that the server sees only together. Without self-masks, a late one could be opened."""
        if self.single:
            return 1
        return int(self.needed)

    @property
    def key(self) -> bytes:
        """The seed of the mask key."""
        last = slice((self.kinds - 1) * SEED, self.kinds * SEED)
        return self.own.tobytes()[last]

    @classmethod
    def begin(cls, *, setup: Array, single: Array, exchange: Array, own: Array, past: Array, earlier: Array) -> Secrets:
        """Begin with a client that has keys and knows no peer yet."""
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
    def of(cls, memory: Arrays) -> Secrets | None:
        """Return the secrets in a client's memory, if there are any."""
        try:
            return cls(*_found(memory))
        except KeyError:
            return None

    def to_memory(self) -> Arrays:
        """Return the secrets as parts of a client's memory."""
        pairs = zip(_NAMES, _values(self), strict=True)
        return {name: np.asarray(a) for name, a in pairs}


_FIELDS: Final = tuple(f.name for f in fields(Secrets))


_NAMES: Final = tuple(f"{messages.PREFIX}{name}" for name in _FIELDS)  # The names in a client's memory.


_found: Final = itemgetter(*_NAMES)


_values: Final = attrgetter(*_FIELDS)
