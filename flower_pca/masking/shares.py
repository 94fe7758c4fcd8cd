"""The letters with sealed shares that the clients of a set-up send each other through the server.

Each letter is sealed with its own key. This key is derived from the common secret of sender and receiver, and bound to
the set-up, the sum and both positions. A letter contains the sender's shares for the receiver, and the sender's public
key for the sum. The receiver compares this key with the key that the server sends.
"""

from __future__ import annotations

from flower_pca.base.linalg import Array
from flower_pca.masking import messages, primitives
from flower_pca.masking.messages import require_valid_message, rows_as_texts, texts_as_rows
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.masking.secrets import SetupSecrets


def letter_secrets(common: bytes, mine: bytes, other: bytes) -> bytes:
    """Return the secret for letters to a peer, followed by the secret for letters from this peer.

    The two secrets differ. Otherwise, the server could pass off a client's own letter as a letter from the peer.
    """
    both = messages.context_of_letters(mine, other), messages.context_of_letters(other, mine)
    return b"".join([primitives.derive_key(common, context) for context in both])


def deal_shares(secrets: SetupSecrets, number: int, seeds: bytes, peers: list[int]) -> tuple[Array, bytes, bytes]:
    """Split seeds into shares for the peers and the client itself.

    Return the sealed letters to the peers, the seeds followed by the client's own shares, and the public key for the
    sum.
    """
    position, setup = int(secrets.position), secrets.setup.tobytes()
    key = primitives.public_key(seeds[-SEED:])
    common = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.common), strict=True))
    # Shares are numbered in the order of positions, because the server combines them in this order.
    group = sorted([*peers, position])
    starts = range(0, len(seeds), SEED)
    kinds = [seeds[start : start + SEED] for start in starts]
    dealt = [primitives.split_secret(seed, int(secrets.needed), len(group)) for seed in kinds]
    own = {member: b"".join(shares) for member, *shares in zip(group, *dealt, strict=True)}
    sealed = []
    for peer in peers:
        context = messages.context_of_shares(setup, number, position, peer)
        lock = primitives.derive_key(common[peer][:KEY], context)
        # The letter contains the public key for the sum, so that the receiver notices if the server sends another key.
        sealed.append(primitives.encrypt(lock, own[peer] + key, context))
    size = primitives.encrypted_size(secrets.seeds_per_sum)
    return texts_as_rows(sealed, size), seeds + own[position], key


def open_shares(secrets: SetupSecrets, number: int, peers: list[int], keys: list[bytes], sealed: Array) -> list[bytes]:
    """Return the shares that peers have sent for a sum.

    Raises
    ------
    ProtocolError
        If a letter was changed, or if it does not contain the peer's key that the server has sent.
    """
    position, setup = int(secrets.position), secrets.setup.tobytes()
    common = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.common), strict=True))
    shares = []
    require_valid_message(
        len(sealed) == len(peers), "The message does not have exactly one sealed share from each peer."
    )
    for peer, public, text in zip(peers, keys, rows_as_texts(sealed), strict=True):
        context = messages.context_of_shares(setup, number, peer, position)
        key = primitives.derive_key(common[peer][KEY:], context)
        letter = primitives.decrypt(key, text, context)
        share, key = letter[:-KEY], letter[-KEY:]
        # A server may have started the set-up with self-masks at this client and without them at the peer, or vice
        # versa.
        require_valid_message(
            len(share) == secrets.seeds_per_sum * SEED, "A sealed share belongs to a different kind of set-up."
        )
        require_valid_message(key == public, "A peer's key for this sum differs from the key that the peer sealed.")
        shares.append(share)
    return shares
