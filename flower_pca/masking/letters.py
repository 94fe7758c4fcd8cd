"""Letters: the shares that clients of a set-up send one another, sealed, through the server.

Each is sealed by a key of its own, from what sender and receiver agree on, and bound to set-up, sum and both positions.
It holds the sender's shares for the receiver and its public key of the sum, which the server names as well.
"""

from __future__ import annotations

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import rows, texts
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.masking.secrets import Secrets


def secrets_of(common: bytes, mine: bytes, other: bytes) -> bytes:
    """The secrets of letters to a peer and from it: two, as the server might swap positions."""
    both = messages.letters(mine, other), messages.letters(other, mine)
    return b"".join([primitives.derive(common, context) for context in both])


def deal(secrets: Secrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes, bytes]:
    """Shares of the seeds and the public key, sealed for each peer; seeds and own shares; the key."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    key = primitives.public(seeds[-SEED:])
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    group = sorted([*peers, position])
    kinds = [seeds[start : start + SEED] for start in range(0, len(seeds), SEED)]
    dealt = [primitives.split(seed, int(secrets.needed), len(group)) for seed in kinds]
    own = {member: b"".join(shares) for member, *shares in zip(group, *dealt, strict=True)}
    sealed = []
    for peer in peers:
        context = messages.envelope(setup, number, position, peer)
        lock = primitives.derive(common[peer][:KEY], context)
        sealed.append(primitives.seal(lock, own[peer] + key, context))
    return rows(sealed, primitives.seal_size(secrets.kinds)), seeds + own[position], key


def open_shares(secrets: Secrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """The shares that peers have sent this client for a sum, each whole and with the key in use."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    held = []
    for peer, public, text in zip(peers, keys, texts(sealed), strict=True):
        context = messages.envelope(setup, number, peer, position)
        letter = primitives.unseal(primitives.derive(common[peer][KEY:], context), text, context)
        shares, key = letter[:-KEY], letter[-KEY:]
        require("A sealed share", "one of a set-up of the same kind", len(shares) == secrets.kinds * SEED)
        require("The key of a peer for a sum", "the one that it has sealed", key == public)
        held.append(shares)
    return held


def require(what: str, rule: str, holds: bool) -> None:
    """Refuse a message that no server of ours sends; what was asked of it, and nothing of what the client knows."""
    if not holds:
        raise ProtocolError(what, must=rule, got="others", then="Nothing was sent in return.")
