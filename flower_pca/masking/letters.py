"""Letters: the shares that clients of a set-up send one another, sealed, through the server.

Each is sealed by a key of its own, from what sender and receiver agree on, and bound to set-up, sum
and both positions. It holds the sender's shares for the receiver and its public key of the sum,
which the server names as well.

Secrets: what a client keeps of a set-up of masks.

Agreement: what nodes with keys of their own sign of a set-up, and how each finds out that all were
told the same.

When keys are made, a node signs its own: `publications` reads what peers have published, to be held
against the list of trusted keys. When shares are made it knows with whom, for which run, and by
which threshold; that is what it signs then (`text`). With the first upload every peer's signature
comes round, and must be of the same text (`check_vouchers`): so no two nodes of a set-up have been
told of other members, another threshold or another run. Whoever did not sign that is in no sum with
those that ask for signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Final

import numpy as np

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import Demands, rows, texts
from flower_pca.masking.primitives import KEY, SEED


@dataclass(frozen=True)
class Secrets:
    """All arrays, so that any driver can keep them.

    `common` is what the client's own exchange key and those of its peers agree on, for shares to be
    sealed with: for each peer, the secret of letters to it, and that of letters from it. `own` and
    `coming` are the seed of the self-mask, that of the mask key, and the client's shares of both,
    for the sum `number` and for the next one; `deposits` are the shares of the peers named in
    `holders`, for the sum `number`. `names` are those of the peers' keys where they have signed,
    else zeros. In a set-up without self-masks (`single`) there is no seed of one, and no share.
    `agreed` is what the client has signed of the group, or would have, `vouched` the peers that
    have signed the same. `past` is the course of messages that all else in the client's memory is
    made of; zeros where it is made of none. `columns` is what each of the `peers` has written about
    its columns, and last what the client itself has, if it asks for that.
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
    columns: Array

    @cached_property
    def kinds(self) -> int:
        """How many seeds a sum has: self-mask and mask key, or the latter only; it is the last."""
        return 2 - bool(self.single)

    @property
    def summed(self) -> int:
        """How many uploads the server sees but together. Without self-masks one that comes late could be opened."""
        if self.single:
            return 1
        return int(self.needed)

    @property
    def key(self) -> bytes:
        """The seed of the mask key."""
        last = slice((self.kinds - 1) * SEED, self.kinds * SEED)
        return self.own.tobytes()[last]

    @classmethod
    def begin(cls, *, setup: Array, single: Array, exchange: Array, own: Array, past: Array) -> Secrets:
        """Those of a client that has keys, and knows of no peer yet."""
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
            columns=none,
        )

    @classmethod
    def of(cls, memory: Arrays) -> Secrets | None:
        """The secrets in a client's memory, if there are any."""
        try:
            return cls(*_found(memory))
        except KeyError:
            return None

    def to_memory(self) -> Arrays:
        """As parts of a client's memory."""
        pairs = zip(_NAMES, _values(self), strict=True)
        return {name: np.asarray(a) for name, a in pairs}


_FIELDS: Final = tuple(f.name for f in fields(Secrets))
_NAMES: Final = tuple(f"{messages.PREFIX}{name}" for name in _FIELDS)  # in a memory
_found: Final = itemgetter(*_NAMES)
_values: Final = attrgetter(*_FIELDS)


def secrets_of(common: bytes, mine: bytes, other: bytes) -> bytes:
    """The secrets of letters to a peer and from it: two, as the server might swap positions."""
    both = messages.letters(mine, other), messages.letters(other, mine)
    return b"".join([primitives.derive(common, context) for context in both])


def deal(secrets: Secrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes, bytes]:
    """Shares of the seeds and the public key, sealed for each peer; own seeds and shares; key."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    key = primitives.public(seeds[-SEED:])
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    # shares go by rank in this order, as the server numbers them to combine them
    group = sorted([*peers, position])
    starts = range(0, len(seeds), SEED)
    kinds = [seeds[start : start + SEED] for start in starts]
    dealt = [primitives.split(seed, int(secrets.needed), len(group)) for seed in kinds]
    by_member = zip(group, *dealt, strict=True)
    own = {member: b"".join(shares) for member, *shares in by_member}
    sealed = []
    for peer in peers:
        context = messages.envelope(setup, number, position, peer)
        lock = primitives.derive(common[peer][:KEY], context)
        # with the key in use: should the server name another in its place, the receiver sees it
        sealed.append(primitives.seal(lock, own[peer] + key, context))
    size = primitives.seal_size(secrets.kinds)
    return rows(sealed, size), seeds + own[position], key


def open_shares(secrets: Secrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """The shares that peers have sent this client for a sum, each whole and with the key in use."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    shares = []
    require("The sealed shares for a sum", "one of each peer", len(sealed) == len(peers))
    for peer, public, text in zip(peers, keys, texts(sealed), strict=True):
        context = messages.envelope(setup, number, peer, position)
        key = primitives.derive(common[peer][KEY:], context)
        letter = primitives.unseal(key, text, context)
        share, key = letter[:-KEY], letter[-KEY:]
        # a server may have told others of self-masks, and this client of none
        require("A sealed share", "one of a set-up of the same kind", len(share) == secrets.kinds * SEED)
        require("The key of a peer for a sum", "the one that it has sealed", key == public)
        shares.append(share)
    return shares


def require(what: str, rule: str, holds: bool) -> None:
    """Refuse a message that no server of ours sends; what was asked of it, and nothing of what the client knows."""
    if not holds:
        raise ProtocolError(what, must=rule, got="others", then="Nothing was sent in return.")


def publications(
    arrays: Arrays, setup: bytes, peers: list[int], exchanges: list[bytes]
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """By peer: what it is said to have published, and its signature if anybody has signed."""
    if "mask.signatures" not in arrays:
        return dict.fromkeys(peers, b""), {}
    keys = texts(arrays["mask.firsts"])
    published = [messages.publication(setup, *both) for both in zip(exchanges, keys, strict=True)]
    signatures = texts(arrays["mask.signatures"])
    return dict(zip(peers, published, strict=True)), dict(zip(peers, signatures, strict=True))


def text(arrays: Arrays, setup: bytes, run: str, mine: bytes) -> bytes:
    """What is signed of the group: set-up, run, threshold, and all members' keys.

    Where each has few neighbours, the message names the others as well.
    """
    members = near = {mine, *texts(arrays["mask.exchanges"])}
    if "mask.members" in arrays:
        members = set(texts(arrays["mask.members"]))
    require("The members of a set-up", "all of its peers, and this client", near <= members)
    return messages.group(setup, run, int(arrays["mask.needed"]), members)


def check_vouchers(arrays: Arrays, secrets: Secrets, peers: list[int], demands: Demands) -> Array:
    """The peers that have signed the same group, those before included; each of these must have."""
    before = set(secrets.vouched.tolist())
    # those that come in later as well: a server may say that one was away in the first sum
    new = [peer for peer in peers if peer not in before]
    if demands.identity is not None and new:
        named = dict(zip(secrets.peers.tolist(), texts(secrets.names), strict=True))
        came = texts(arrays.get("mask.agreed", np.empty(0)))
        # where none has come at all, the first peer is refused by its name
        signatures: Mapping[int, bytes] = dict(zip(peers, came, strict=bool(came)))
        newcomers = {peer: named[peer] for peer in new}
        demands.identity.check_agreed(secrets.agreed.tobytes(), newcomers, signatures)
    return np.array(sorted({*before, *peers}), dtype=np.int64)
