"""Make the texts that nodes with keys sign, and check that the server has told all nodes the same about a set-up.

In the first phase, a node makes its mask keys and signs them. `publications` reads the keys and signatures of the
peers, so that the node can check them against its list of trusted keys. In the second phase, the node knows the
members, the run and the threshold, and signs a text with all three (`text_to_sign`). With the first upload message, the
node gets the signature of every peer, which must belong to the same text (`check_vouchers`). Therefore, the server
cannot tell two nodes of a set-up different members, thresholds or runs. Nodes that require signatures refuse sums with
a node that did not sign.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages
from flower_pca.masking.messages import SumConditions, require_valid_message, rows_as_texts
from flower_pca.masking.secrets import SetupSecrets


def publications(
    arrays: Arrays, setup: bytes, peers: list[int], exchanges: list[bytes]
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the text with each peer's published keys, and the peers' signatures, both by peer.

    If the message has no signatures, the texts are empty and the second mapping has no entries.
    """
    if "mask.signatures" not in arrays:
        return dict.fromkeys(peers, b""), {}
    keys = rows_as_texts(arrays["mask.firsts"])
    published = [messages.text_of_publication(setup, *both) for both in zip(exchanges, keys, strict=True)]
    signatures = rows_as_texts(arrays["mask.signatures"])
    return dict(zip(peers, published, strict=True)), dict(zip(peers, signatures, strict=True))


def text_to_sign(arrays: Arrays, setup: bytes, run: str, own_position: bytes) -> bytes:
    """Return the text that nodes sign about the group: the set-up, the run, the threshold and all members' keys.

    If a client exchanges shares with only some of the members, the message must list the keys of all members.
    """
    members = near = {own_position, *rows_as_texts(arrays["mask.exchanges"])}
    if "mask.members" in arrays:
        members = set(rows_as_texts(arrays["mask.members"]))
    require_valid_message(
        near <= members, "The list of members of this set-up does not contain this client and all of its peers."
    )
    return messages.text_of_group(setup, run, int(arrays["mask.needed"]), members)


def check_vouchers(arrays: Arrays, secrets: SetupSecrets, peers: list[int], demands: SumConditions) -> Array:
    """Return the peers that have signed the same text as this client, now or for an earlier sum.

    All of `peers` must have signed this text.
    """
    before = set(secrets.vouched.tolist())
    # A peer that first appears in a later sum must have signed, too. Otherwise, a server could pretend that the peer
    # was absent from the first sum.
    new = [peer for peer in peers if peer not in before]
    if demands.identity is not None and new:
        named = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.names), strict=True))
        came = rows_as_texts(arrays.get("mask.agreed", np.empty(0)))
        # If the message has no signatures, the mapping is empty, and the error names the first peer.
        signatures: Mapping[int, bytes] = dict(zip(peers, came, strict=bool(came)))
        newcomers = {peer: named[peer] for peer in new}
        demands.identity.check_agreed(secrets.agreed.tobytes(), newcomers, signatures)
    return np.array(sorted({*before, *peers}), dtype=np.int64)
