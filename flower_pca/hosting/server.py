"""Hosts: virtual nodes that host many clients each, as a transport. One message goes to a node, for all its clients.

Before the first message every node is asked once which clients it hosts. These are the clients of the run, by their own
numbers; all that is said of a node, that it is silent, say, is said of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from flower_pca.assembly import AnyRun
from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.core.stage import Broadcast, Failure, Reply, Sum
from flower_pca.hosting import messages as hosted
from flower_pca.stages.opening import Opening
from flower_pca.strategies.exchange import exchange
from flower_pca.strategies.nodes import Nodes, kind_of
from flower_pca.strategies.waits import SUMMED, Waits

_LACKING: Final = ProtocolError("The answer of a node", must="one for each client", got="none", then="Check the node.")


@dataclass
class Hosts(Nodes):
    """The virtual nodes of a grid, for one run; see `Nodes`. Clients are called by their numbers, nodes by Flower's."""

    noun: ClassVar[str] = "client"

    _hosts: dict[int, tuple[int, ...]] = field(default_factory=dict)  # the clients of each node
    _homes: dict[int, int] = field(default_factory=dict)  # the node of each client

    def connected(self) -> dict[int, str]:
        """The clients that can be reached, and when their nodes were started."""
        nodes = super().connected()
        self._meet([node for node in nodes if node not in self._hosts])
        return {client: since for node, since in nodes.items() for client in self._hosts.get(node, ())}

    def carriers(self, message: Broadcast) -> list[int]:
        """The nodes of the clients that a message is for, in the order of these."""
        return list(dict.fromkeys(self._homes[client] for client in message.to))

    def answers(self, node: int, reply: Message | str, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """What a node says for those of its clients that the message is for."""
        clients = self._asked(node, message)
        if isinstance(reply, str) or reply.has_error():
            yield from (self.unanswered(client, reply) for client in clients)
            return
        if self._sums(message):
            yield from self._added(hosted.read_sum(reply.content), clients)
            return
        found = hosted.read_reply(reply.content, kind_of(reply))
        yield from (self.taken(client, found.get(client, _LACKING), message) for client in clients)

    def writer(self, message: Broadcast) -> Callable[[int], RecordDict]:
        """From a node to the records of its message."""
        write = hosted.Writer(message, summed=self._sums(message), **self.told(message))
        return lambda node: write.request(self._asked(node, message))

    def _sums(self, message: Broadcast) -> bool:
        """Whether nodes add up the answers; those to an opening of rows with gaps depend on how they are grouped."""
        return self.waits.hosted == SUMMED and not (message.stage == Opening.name and "gaps" in message.arrays)

    def _added(self, added: hosted.Added, clients: list[int]) -> Iterable[Sum | Failure]:
        """A node's sum, and the failures of its clients that are not in it."""
        self.sites |= added.sites
        if added.sum is not None:
            yield added.sum
        there = () if added.sum is None else added.sum.clients
        for client in there:
            self._patience.heard(client, counts=self._works)
        for client in sorted(set(clients).difference(there)):
            why, lasting = added.failures.get(client, (str(_LACKING), True))
            yield self.refused(client, why, lasting=lasting)

    def _known_as(self, node: int) -> str:
        return f" ({self.sites[node]})" if node in self.sites else ""

    def _asked(self, node: int, message: Broadcast) -> list[int]:
        return [client for client in self._hosts[node] if client in message.asked]

    def _meet(self, nodes: list[int]) -> None:
        """Ask nodes which clients they host."""
        kind, ttl = self.waits.message_type("query"), self.waits.round_timeout
        asked = exchange(self.grid, nodes, lambda node: Message(hosted.write_query(), node, kind, ttl=ttl), timeout=ttl)
        for node, reply in asked:
            if isinstance(reply, str) or reply.has_error():
                continue  # it is asked again when nodes are looked for the next time
            clients = hosted.read_properties(reply.content)
            if not clients:
                rule, remedy = (
                    f"one that hosts clients where hosted={self.waits.hosted!r}",
                    "Leave hosted, or shards-per-node, out.",
                )
                raise ConfigError("Every node", must=rule, got=f"node {node}, which is a client itself", then=remedy)
            self._hosts[node] = clients
            for client in clients:
                self._homes[client] = node
                self.keys[client] = client


def reached(grid: Grid, run: AnyRun, waits: Waits, configs: Mapping[str, Mapping[str, Any]] | None = None) -> Nodes:
    """The nodes of a grid, each of them a client, or a host of many."""
    kind = Nodes if waits.hosted is None else Hosts
    return kind(grid, run, waits, dict(configs or {}))
