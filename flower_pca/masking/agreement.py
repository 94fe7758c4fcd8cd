"""Make the texts about a set-up that nodes with keys sign, and check that the server told all nodes the same.

When keys are made, a node signs its own keys. `publications` reads what peers have published, so that it can be
compared with the list of trusted keys. When shares are made, the node knows the members, the run and the threshold, and
signs a text with all three (`text`). With the first upload, it gets every peer's signature, which must belong to the
same text (`check_vouchers`). Therefore, the server cannot tell two nodes of a set-up different members, thresholds or
runs. A node that did not sign takes part in no sum with nodes that require signatures.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages
from flower_pca.masking.messages import Demands, require, texts
from flower_pca.masking.secrets import Secrets


def publications(
    arrays: Arrays, setup: bytes, peers: list[int], exchanges: list[bytes]
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the text that each peer has published according to the server, and each peer's signature, if any."""
    if "mask.signatures" not in arrays:
        return dict.fromkeys(peers, b""), {}
    keys = texts(arrays["mask.firsts"])
    published = [messages.publication(setup, *both) for both in zip(exchanges, keys, strict=True)]
    signatures = texts(arrays["mask.signatures"])
    return dict(zip(peers, published, strict=True)), dict(zip(peers, signatures, strict=True))


def text(arrays: Arrays, setup: bytes, run: str, mine: bytes) -> bytes:
    """Return the text about the group that nodes sign: the set-up, the run, the threshold and all members' keys.

    If clients have only some of the members as neighbors, the message lists the keys of all members.
    """
    members = near = {mine, *texts(arrays["mask.exchanges"])}
    if "mask.members" in arrays:
        members = set(texts(arrays["mask.members"]))
    require(near <= members, "The list of members of this set-up does not contain this client and all of its peers.")
    return messages.group(setup, run, int(arrays["mask.needed"]), members)


def check_vouchers(arrays: Arrays, secrets: Secrets, peers: list[int], demands: Demands) -> Array:
    """Return the peers that have signed the same text as this client, now or for an earlier sum.

    All of `peers` must have signed this text.
    """
    before = set(secrets.vouched.tolist())
    # A peer that first appears in a later sum must have signed, too. Otherwise, a server could pretend that the peer
    # was absent from the first sum.
    new = [peer for peer in peers if peer not in before]
    if demands.identity is not None and new:
        named = dict(zip(secrets.peers.tolist(), texts(secrets.names), strict=True))
        came = texts(arrays.get("mask.agreed", np.empty(0)))
        # If there is no signature at all, the error names the first peer.
        signatures: Mapping[int, bytes] = dict(zip(peers, came, strict=bool(came)))
        newcomers = {peer: named[peer] for peer in new}
        demands.identity.check_agreed(secrets.agreed.tobytes(), newcomers, signatures)
    return np.array(sorted({*before, *peers}), dtype=np.int64)
