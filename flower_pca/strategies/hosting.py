"""HostingNodes, a transport for virtual nodes that host many clients each. One message serves all clients of a node.

Before the first message, every node is asked which clients it hosts. These clients, with their own
numbers, are the clients of the run. If a node fails, for example by not answering, each of its clients
counts as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import ClassVar

from flwr.app import Message

from flower_pca import wire
from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.core.stage import Broadcast, Failure, Reply
from flower_pca.hosting import messages as hosted
from flower_pca.strategies.exchange import exchange, log
from flower_pca.strategies.nodes import EXPIRED, FailureRecord, Nodes, kind_of
from flower_pca.wire.records import Content


@dataclass
class HostingNodes(Nodes):
    """The virtual nodes of a grid for one run (see `Nodes`).

    Clients are identified by their own numbers, and nodes by Flower's node ids.
    """

    noun: ClassVar[str] = "client"

    # The clients that each node hosts
    _hosts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _homes: dict[int, int] = field(default_factory=dict)  # the node that hosts each client
    # The reasons why nodes have not listed their clients
    _unknown: dict[int, str] = field(default_factory=dict)
    _silent: set[int] = field(default_factory=set)  # nodes that are not asked for their clients again
    _patience_with_queries: FailureRecord = field(default_factory=FailureRecord)

    def reachable(self, *, within: float) -> dict[int, str]:
        """Return the clients that can be reached, with the times at which their nodes were started."""
        nodes = super().reachable(within=within)
        self._silent -= self._patience_with_queries.returned_nodes(nodes)
        self._query_clients([node for node in nodes if node not in self._hosts and node not in self._silent], nodes)
        hosted = self._hosts
        return {client: since for node, since in nodes.items() for client in hosted.get(node, ())}

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints about nodes that get no messages of the run."""
        return tuple(
            f"Node {node}, whose clients are unknown, was left out: {why}" for node, why in self._unknown.items()
        )

    def nodes_for(self, message: Broadcast) -> list[int]:
        """Return the nodes that host the clients of a message, in the order of these clients."""
        return list(dict.fromkeys(self._homes[client] for client in message.to))

    def answers_in(
        self, node: int, reply: Message | str, message: Broadcast, *, release: bool = False
    ) -> Iterable[Reply | Failure]:
        """Yield the answers of those clients of a node to which the message is addressed."""
        clients = self._clients_on(node, message)
        if isinstance(reply, str) or reply.has_error():
            yield from (self.failure_without_answer(client, reply) for client in clients)
            return
        try:
            # The whole reply is read first. If one of its answers is invalid, none of its answers counts.
            read = hosted.read_reply(reply.content, kind_of(reply), clients)
            answers = [self.answer_or_failure(client, answer, message) for client, answer in read.items()]
        except ProtocolError as error:
            answers = [self.answer_or_failure(client, error, message) for client in clients]
        yield from answers

    def answers_with_bytes(
        self, node: int, reply: Message | str, message: Broadcast, *, release: bool = False
    ) -> Iterator[Reply | Failure]:
        """Yield the answers from a node's clients. The size of the node's message is not counted.

        Instead, each answer is counted with the number of bytes that the client would send if it were a node.
        """
        yield from self.answers_in(node, reply, message)

    def content_maker(self, message: Broadcast) -> Callable[[int], Content]:
        """Return a function that takes a node and returns the records of its message."""
        write = hosted.HostedMessageWriter(message, **self.common_keywords(message))
        return lambda node: write.request(self._clients_on(node, message))

    def _name_in_brackets(self, node: int) -> str:
        return f" ({self.sites[node]})" if node in self.sites else ""

    def _clients_on(self, node: int, message: Broadcast) -> list[int]:
        return [client for client in self._hosts[node] if client in message.addressees]

    def _query_clients(self, nodes: list[int], connected: Mapping[int, str]) -> None:
        """Ask nodes which clients they host, and raise ConfigError if two connected nodes host the same client."""
        kind, ttl = self.node_settings.message_type("query"), self.node_settings.round_timeout

        def query(node: int) -> Message:
            return Message(wire.write_query(), node, kind, ttl=ttl)

        for node, reply in exchange(self.grid, nodes, query, timeout=ttl):
            if isinstance(reply, str) or reply.has_error():
                self._record_failure(node, reply)
                continue
            try:
                clients = hosted.read_properties(reply.content)
            except ProtocolError as error:
                log(WARNING, "\tnode %s was left out: %s", node, error)
                # The node counts as a node without clients, so it is not asked again.
                self._hosts[node], self._unknown[node] = (), str(error)
                continue
            self._unknown.pop(node, None)
            if not clients:
                raise ConfigError(
                    f"Node {node} is a single client, but hosted={self.node_settings.hosted!r} needs nodes that host "
                    "several clients. Leave out hosted, or clients-per-node in a run-config."
                )
            for client in clients:
                self._assign(client, node, connected)
            self._hosts[node] = clients
        if nodes and self._strangers.keys() >= connected.keys():
            raise self._unserved_error(len(connected))

    def _record_failure(self, node: int, reply: Message | str) -> None:
        """Record that a node has not listed its clients. After two silences, the node is not asked again."""
        why, waited = str(reply), True
        if not isinstance(reply, str):
            why, waited = f"error {reply.error.code}", reply.error.code in EXPIRED
            if unanswerable := self._without_function(node, reply.error.reason or ""):
                self._strangers[node] = why = unanswerable
        self._unknown[node] = why
        if waited and self._patience_with_queries.record_failure(node, silent=True, counts=False):
            self._silent.add(node)
            log(WARNING, "\tnode %s was left out: %s", node, why)

    def _assign(self, client: int, node: int, connected: Mapping[int, str]) -> None:
        """Assign a client to a node, and raise ConfigError if another connected node hosts the client as well."""
        home = self._homes.get(client)
        # If a node has disconnected, its clients may have moved to another node.
        if home in connected and home != node:
            raise ConfigError(
                f"Client {client} is hosted by two nodes, {home} and {node}, but every client must have one node. "
                "Give the clients of all nodes different numbers."
            )
        self._homes[client] = node
        self.keys[client] = client
