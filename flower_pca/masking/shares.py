"""The letters with sealed shares that the clients of a set-up send each other through the server.

Each letter is sealed with its own key. This key is derived from the common secret of sender and receiver, and bound to
the set-up, the sum and both positions. A letter contains the sender's shares for the receiver, and the sender's public
key for the sum. The receiver compares this key with the key that the server sends.
"""

from __future__ import annotations

from flower_pca.base.linalg import Array
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import require, rows, texts
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.masking.secrets import Secrets


def secrets_of(common: bytes, mine: bytes, other: bytes) -> bytes:
    """Return the secret for letters to a peer, followed by the secret for letters from this peer.

    The two secrets differ. Otherwise, the server could pass off a client's own letter as a letter from the peer.
    """
    both = messages.letters(mine, other), messages.letters(other, mine)
    return b"".join([primitives.derive(common, context) for context in both])


def deal(secrets: Secrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes, bytes]:
    """Split seeds into shares for the peers and the client itself.

    Return the sealed letters to the peers, the seeds followed by the client's own shares, and the public key for the
    sum.
    """
    position, setup = int(secrets.position), secrets.setup.tobytes()
    key = primitives.public(seeds[-SEED:])
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    # Shares are numbered in the order of positions, because the server combines them in this order.
    group = sorted([*peers, position])
    starts = range(0, len(seeds), SEED)
    kinds = [seeds[start : start + SEED] for start in starts]
    dealt = [primitives.split(seed, int(secrets.needed), len(group)) for seed in kinds]
    own = {member: b"".join(shares) for member, *shares in zip(group, *dealt, strict=True)}
    sealed = []
    for peer in peers:
        context = messages.envelope(setup, number, position, peer)
        lock = primitives.derive(common[peer][:KEY], context)
        # The letter contains the public key for the sum, so that the receiver notices if the server sends another key.
        sealed.append(primitives.seal(lock, own[peer] + key, context))
    size = primitives.seal_size(secrets.kinds)
    return rows(sealed, size), seeds + own[position], key


def open_shares(secrets: Secrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """Return the shares that peers have sent for a sum.

    Raises
    ------
    ProtocolError
        If a letter was changed, or if it does not contain the peer's key that the server has sent.
    """
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), texts(secrets.common), strict=True))
    shares = []
    require(len(sealed) == len(peers), "The message does not have exactly one sealed share from each peer.")
    for peer, public, text in zip(peers, keys, texts(sealed), strict=True):
        context = messages.envelope(setup, number, peer, position)
        key = primitives.derive(common[peer][KEY:], context)
        letter = primitives.unseal(key, text, context)
        share, key = letter[:-KEY], letter[-KEY:]
        # A server may have started the set-up with self-masks at this client and without them at the peer, or vice
        # versa.
        require(len(share) == secrets.kinds * SEED, "A sealed share belongs to a different kind of set-up.")
        require(key == public, "A peer's key for this sum differs from the key that the peer sealed.")
        shares.append(share)
    return shares
