"""Hosts: virtual nodes that host many clients each, as a transport. One message goes to a node, for all its clients.

Before the first message every node is asked once which clients it hosts. These are the clients of
the run, by their own numbers; all that is said of a node, that it is silent, say, is said of each
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from logging import WARNING
from typing import ClassVar, Final

from flwr.app import Message

from flower_pca import wire
from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.model import Claim
from flower_pca.core.replies import Judge, check_arrays, check_opening, claim, columns_of, telling
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum
from flower_pca.hosting import messages as hosted
from flower_pca.stages.opening import SAID, Opening, block_of
from flower_pca.strategies.exchange import exchange, log
from flower_pca.strategies.nodes import EXPIRED, Nodes, Patience, kind_of
from flower_pca.strategies.waits import SUMMED
from flower_pca.wire.records import Content

_SUM: Final = "The sum of a node"


@dataclass
class Hosts(Nodes):
    """The virtual nodes of a grid, for one run; see `Nodes`. Clients are called by their numbers, nodes by Flower's."""

    noun: ClassVar[str] = "client"

    # the clients of each node
    _hosts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _homes: dict[int, int] = field(default_factory=dict)  # the node of each client
    # of a node's rows in the opening, all or one by one
    _said: dict[int, list[Arrays]] = field(default_factory=dict)
    # nodes that have not said which clients they host, and why
    _unknown: dict[int, str] = field(default_factory=dict)
    _silent: set[int] = field(default_factory=set)  # those of them that are not asked again
    _meetings: Patience = field(default_factory=Patience)

    def reachable(self, *, within: float) -> dict[int, str]:
        """The clients that can be reached, and when their nodes were started."""
        nodes = super().reachable(within=within)
        self._silent -= self._meetings.back(nodes)
        self._meet([node for node in nodes if node not in self._hosts and node not in self._silent], nodes)
        hosted = self._hosts
        return {client: since for node, since in nodes.items() for client in hosted.get(node, ())}

    @property
    def hints(self) -> tuple[str, ...]:
        """What readers of the result should know of nodes that are in no message of it."""
        return tuple(
            f"Node {node}, whose clients nobody knows, was left out: {why}" for node, why in self._unknown.items()
        )

    def carriers(self, message: Broadcast) -> list[int]:
        """The nodes of the clients that a message is for, in the order of these."""
        return list(dict.fromkeys(self._homes[client] for client in message.to))

    def answers(self, node: int, reply: Message | str, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """What a node says for those of its clients that the message is for."""
        clients = self._clients(node, message)
        if isinstance(reply, str) or reply.has_error():
            yield from (self.no_answer(client, reply) for client in clients)
            return
        try:
            # all of it first: of a reply that turns out wrong in its midst no answer is to count
            answers = list(self._read(node, reply, message, clients))
        except ProtocolError as error:
            answers = [self.take(client, error, message) for client in clients]
        if message.stage == Opening.name:
            uploads = [answer.arrays for answer in answers if not isinstance(answer, Failure)]
            self._said[node] = [{name: arrays[name] for name in SAID if name in arrays} for arrays in uploads]
        yield from answers

    def writer(self, message: Broadcast) -> Callable[[int], Content]:
        """From a node to the records of its message."""
        write = hosted.Writer(message, summed=self._sums(message), **self.terms(message))
        return lambda node: write.request(self._clients(node, message))

    def _sums(self, message: Broadcast) -> bool:
        """Whether nodes add up the answers; those to an opening of rows with gaps depend on how they are grouped."""
        return self.waits.hosted == SUMMED and not (message.stage == Opening.name and "gaps" in message.arrays)

    def _read(
        self, node: int, reply: Message, message: Broadcast, clients: list[int]
    ) -> Iterable[Reply | Sum | Failure]:
        """The answers of a node's clients, or their sum, as the run gets them."""
        kind = kind_of(reply)
        if not self._sums(message):
            found = hosted.read_reply(reply.content, kind, clients)
            yield from (self.take(client, answer, message) for client, answer in found.items())
            return
        added = hosted.read_sum(reply.content, kind)
        counted: tuple[int, ...] = ()
        if added.sum is not None:
            self._check(node, added.sum, message, clients)
            counted = added.sum.clients
            yield added.sum
        self.sites |= {client: site for client, site in added.sites.items() if client in clients}
        for client in counted:
            self._patience.hear(client, counts=self._works)
        for client in sorted(set(clients).difference(counted)):
            why, lasting = added.failures.get(client, (str(hosted.LACKING), True))
            yield self.refuse(client, why, lasting=lasting)

    def _check(self, node: int, total: Sum, message: Broadcast, clients: list[int]) -> None:
        """Require of a sum what is required of a single answer; and that it is of the node's own clients, each once."""
        now, heading, here = self.run.standing, total.heading, set(total.clients)
        if not total.clients or len(here) < len(total.clients) or not here <= set(clients):
            raise ProtocolError(
                _SUM,
                must="of clients that it hosts and that were asked, each once",
                got="one of others",
                then="Check the node.",
            )
        if total.number != message.number:
            raise ProtocolError(
                _SUM,
                must=f"one to message {message.number}",
                got=f"one to message {total.number}",
                then="It was not counted.",
            )
        if now.model.heading is not None and heading is not None and not heading.like(now.model.heading):
            raise heading.mismatch(f"node {node}", now.model.heading).error(ProtocolError)
        single = now.stage.parts(message.arrays, now.model.d or None)
        # of as many columns as the sum itself speaks of, so that all of its parts are held to them
        if columns := columns_of(telling(single), total.arrays, now.model.d):
            single = now.stage.parts(message.arrays, columns)
        parts = {name: _of_sum(part) for name, part in single.items()}
        check_arrays(Reply(total.clients[0], total.number, total.arrays), parts)
        now.stage.inspect(now.state, total.arrays)
        if isinstance(now.stage, Opening):
            block = block_of(message.arrays, len(total.arrays["mean"]))
            check_opening(total.arrays, block, bits=now.stage.bits)
        elif said := self._said.get(node):
            self._hold(said, total, message, parts)

    def _hold(self, said: list[Arrays], total: Sum, message: Broadcast, parts: Mapping[str, Part]) -> None:
        """Hold the mean of the clients' answers against the mean of what they said of their rows.

        Bounds of single answers grow with a client's squares, or with their root. So their sum over
        the clients is at most so many times the bound of a client with the mean of the squares,
        whoever of them has not answered now.
        """
        now, first = self.run.standing, total.clients[0]
        many = len(self._hosts[self._homes[first]])
        claims = [claim(arrays, now.model.frame) for arrays in said]
        rows = sum(c.n for c in claims)
        squares = sum(c.squares for c in claims)
        # rounded up, as a bound that falls short would refuse honest answers
        mean = Claim(-(-rows // many), squares / many)
        judge = Judge(now.stage, now.state, replace(now.model, claims={first: mean}))
        judge.check(first, {name: a / many for name, a in total.arrays.items()}, parts, message.arrays)

    def _known_as(self, node: int) -> str:
        return f" ({self.sites[node]})" if node in self.sites else ""

    def _clients(self, node: int, message: Broadcast) -> list[int]:
        return [client for client in self._hosts[node] if client in message.addressees]

    def _meet(self, nodes: list[int], connected: Mapping[int, str]) -> None:
        """Ask nodes which clients they host: each is hosted by one of those that are connected."""
        kind, ttl = self.waits.message_type("query"), self.waits.round_timeout

        def query(node: int) -> Message:
            return Message(wire.write_query(), node, kind, ttl=ttl)

        for node, reply in exchange(self.grid, nodes, query, timeout=ttl):
            if isinstance(reply, str) or reply.has_error():
                self._miss(node, reply)
                continue
            try:
                clients = hosted.read_properties(reply.content)
            except ProtocolError as error:
                log(WARNING, "\tnode %s was left out: %s", node, error)
                # known to host nobody, it is not asked again
                self._hosts[node], self._unknown[node] = (), str(error)
                continue
            self._unknown.pop(node, None)
            if not clients:
                raise ConfigError(
                    "Every node",
                    must=f"one that hosts clients where hosted={self.waits.hosted!r}",
                    got=f"node {node}, which is a client itself",
                    then="Leave hosted, or shards-per-node, out.",
                )
            for client in clients:
                self._claim(client, node, connected)
            self._hosts[node] = clients

    def _miss(self, node: int, reply: Message | str) -> None:
        """A node has not said which clients it hosts: asked again, but not after two silences."""
        why, waited = str(reply), True
        if not isinstance(reply, str):
            why, waited = f"error {reply.error.code}", reply.error.code in EXPIRED
        self._unknown[node] = why
        if waited and self._meetings.fail(node, silent=True, counts=False):
            self._silent.add(node)
            log(WARNING, "\tnode %s was left out: %s", node, why)

    def _claim(self, client: int, node: int, connected: Mapping[int, str]) -> None:
        """Take a client for one of this node's. Of two that claim it nobody knows who is right."""
        home = self._homes.get(client)
        # a client of a node that is gone may have come up at another one
        if home in connected and home != node:
            raise ConfigError(
                "Every client",
                must="hosted by one node",
                got=f"client {client} at nodes {home} and {node}",
                then="Check their hosts, and the numbers of their clients.",
            )
        self._homes[client] = node
        self.keys[client] = client


def _of_sum(part: Part) -> Part:
    """What a sum of such parts is: no longer a whole number of one client's rows."""
    if part.kind.counts_rows:
        return replace(part, kind=Kind.COUNT)
    return part
