"""Demands: what a node asks of those that it is summed with, whatever the server says of the group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flower_pca.base.errors import ProtocolError

if TYPE_CHECKING:
    from flower_pca.masking.identity import Identity


class Admit(Protocol):
    """Raises if the node may not be in a sum with the others of these names; `told` as in `Demands.check_group`."""

    def __call__(self, present: frozenset[bytes], /, *, told: bool) -> None:
        """Return if it may."""


@dataclass(frozen=True)
class Demands:
    """What a node asks of a group.

    Args:
        identity: What the node signs its keys with, and whose signatures it asks for.
        min_peers: How many others must be in a sum, when shares are made and when survivors are named.
        run: The name of the run that it is asked in.
        shares: Whether it counts on others for their share of the noise. A node without a list of trusted keys must
            not: a server can invent the others, and take their shares off.
        colluders: How many of those that share the noise of a sum may be in league with the server.
        admit: Asked for every sum whose peers have names, that is signed keys.
    """

    identity: Identity | None = None
    min_peers: int = 1
    colluders: int = 0
    admit: Admit | None = None
    run: str = ""
    shares: bool = True

    def sign(self, text: bytes) -> bytes:
        """The node's signature; nothing of a node without an identity."""
        if self.identity is None:
            return b""
        return self.identity.sign(text)

    def check_peers(self, peers: Iterable[int]) -> None:
        """Require enough others."""
        if (count := len(set(peers))) < self.min_peers:
            rule, remedy = f"at least {self.min_peers}: that is its min_peers", "Ask the node's operator."
            raise ProtocolError("The peers of this node in a masked sum", must=rule, got=count, then=remedy)

    def check_group(self, names: Iterable[bytes], *, told: bool = False) -> None:
        """Ask whether the node may be in a sum with those of these names; nameless ones count nothing.

        `told` says that the server learns this sum from what the node answers now.
        """
        if self.admit is None:
            return
        present = frozenset(name for name in names if any(name))
        if present:
            self.admit(present, told=told)

    def sharers(self, summed: int) -> int:
        """Among how many a message may share the noise of a sum out, if so many answers are in it for sure."""
        if not self.shares:
            return summed
        if summed <= self.colluders:
            rule, remedy = f"more than the {self.colluders} of its max_colluders", "Ask the node's operator."
            raise ProtocolError("The fewest clients of a sum with noise", must=rule, got=summed, then=remedy)
        return summed - self.colluders
