"""The sealed shares that clients of a set-up send one another through the server.

Each letter is sealed with its own key, which is derived from the secret of sender and receiver, and bound to set-up,
sum and both positions. It contains the sender's shares for the receiver and the sender's public key for the sum, which
the server also sends.
"""

from __future__ import annotations

from flower_pca.base.linalg import Array
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import require, rows, texts
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.masking.secrets import Secrets


def secrets_of(common: bytes, mine: bytes, other: bytes) -> bytes:
    """Return the secrets of letters to a peer and from it. They differ, because the server might swap positions."""
    both = messages.letters(mine, other), messages.letters(other, mine)
    return b"".join([primitives.derive(common, context) for context in both])


def deal(secrets: Secrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes, bytes]:
    """Return sealed shares and the public key for each peer, the client's own seeds and shares, and its key."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    key = primitives.public(seeds[-SEED:])
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    # Shares are ranked in this order, in which the server numbers them to combine them.
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
        # The seal contains the key in use, so the receiver notices if the server names another one.
        sealed.append(primitives.seal(lock, own[peer] + key, context))
    size = primitives.seal_size(secrets.kinds)
    return rows(sealed, size), seeds + own[position], key


def open_shares(secrets: Secrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """Open the shares that peers have sent for a sum. Each must be intact and name the key in use."""
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    shares = []
    require(len(sealed) == len(peers), "The message does not have exactly one sealed share from each peer.")
    for peer, public, text in zip(peers, keys, texts(sealed), strict=True):
        context = messages.envelope(setup, number, peer, position)
        key = primitives.derive(common[peer][KEY:], context)
        letter = primitives.unseal(key, text, context)
        share, key = letter[:-KEY], letter[-KEY:]
        # A server may have told other clients about self-masks, but not this client.
        require(len(share) == secrets.kinds * SEED, "A sealed share belongs to a different kind of set-up.")
        require(key == public, "A peer's key for this sum differs from the key that the peer sealed.")
        shares.append(share)
    return shares
