"""Flower's Grid in memory: a federation of ClientApp nodes in this process, with every fault that a network has."""

from __future__ import annotations

import itertools
import logging
import uuid
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from builders import pooled

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.supercore.task_identity import TaskIdentity

    from flower_pca import wire
    from flower_pca.clients import client_app
    from flower_pca.clients.policy.rules import allowed_names
    from flower_pca.strategies import exchange

Array = np.ndarray[Any, Any]
_RUNS = itertools.count(1)  # numbers of Flower runs: a node loads its rows and rules once in each


@contextmanager
def in_a_run() -> Iterator[list[str]]:
    """Flower's identity of a running task, short pauses between two looks for replies, and what is logged.

    A call to a fake grid takes as long as its nodes compute: if the machine stands still meanwhile, it does not hang.
    """
    names, pauses = ("_run_id", "_task_id", "_node_id"), (exchange._SHORTEST, exchange._LONGEST, exchange._LEAST)
    before = [getattr(TaskIdentity, name) for name in names]
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("flwr")
    others = list(logger.handlers)
    logger.handlers[:] = [handler]
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 0
    exchange._SHORTEST, exchange._LONGEST, exchange._LEAST = 1e-6, 0.01, 60.0  # type: ignore[misc]
    try:
        yield lines
    finally:
        exchange._SHORTEST, exchange._LONGEST, exchange._LEAST = pauses  # type: ignore[misc]
        logger.handlers[:] = others
        for name, value in zip(names, before, strict=True):
            setattr(TaskIdentity, name, value)


def logged_by_flower(error):
    """What Flower logs of a ServerApp that has ended with this error."""
    with in_a_run() as lines:
        logger = logging.getLogger("flwr")
        formatter = logging.Formatter("%(message)s")
        logger.handlers[0].emit = lambda record: lines.append(formatter.format(record))
        logger.error("%s raised an exception", "ServerApp", exc_info=error)
    return lines


class FakeGrid(Grid):
    """Nodes with random ids; replies come shuffled, half of those that are ready at a time.

    Hooks, all None at first:
        on_push(message): called before a message goes out; it may kill and add nodes, or raise.
        on_pull(): called before replies are fetched; likewise.
        tamper(message, reply) -> reply: what is given in its place; None if the reply is lost.
        delay(message) -> int: by so many pulls a reply is late.
    """

    def __init__(self, app: ClientApp, n: int, *, seed: int = 0, partitions: bool = True) -> None:
        self.app, self.rng, self._partitions = app, np.random.default_rng(seed), partitions
        self.number = next(_RUNS)
        self.nodes: dict[int, Context] = {}
        self.on_push: Callable[[Message], None] | None = None
        self.on_pull: Callable[[], None] | None = None
        self.tamper: Callable[[Message, Message], Message | None] | None = None
        self.delay: Callable[[Message], int] | None = None
        self.sent: list[Message] = []
        self.held: weakref.WeakSet[Message] = weakref.WeakSet()
        self._ready: dict[str, list[Any]] = {}
        self._joined = 0
        for _ in range(n):
            self.add()

    def add(self) -> int:
        """A node more."""
        node, i = int(self.rng.integers(1, 2**64, dtype=np.uint64)), self._joined
        config = {"partition-id": i} if self._partitions else {"which": i}
        self.nodes[node] = Context(self.number, node, config, RecordDict(), {})
        self._joined += 1
        return node

    def kill(self, node: int) -> None:
        """A node is gone: no longer listed, and messages to it are answered by Flower, with an error."""
        del self.nodes[node]

    def forget(self, node: int) -> None:
        """A node is restarted under its old id: its state is gone."""
        self.nodes[node].state = RecordDict()

    def node(self, position: int) -> int:
        """The id of the node that has the rows at this position."""
        return next(n for n, c in self.nodes.items() if position in c.node_config.values())

    @property
    def counts(self) -> Counter[int]:
        """Messages sent to each node."""
        return Counter(m.metadata.dst_node_id for m in self.sent)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=self.number)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [int(n) for n in self.rng.permutation(np.array(list(self.nodes), dtype=np.uint64))]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identities = []
        for message in messages:
            identity = str(uuid.UUID(bytes=self.rng.bytes(16)))
            message.metadata.__dict__["_message_id"] = identity
            identities.append(identity)
            self.sent.append(message)
            if self.on_push is not None:
                self.on_push(message)
            reply: Message | None = self._answer(message)
            if self.tamper is not None and reply is not None:
                reply = self.tamper(message, reply)
            if reply is not None:
                self._ready[identity] = [self.delay(message) if self.delay else 0, reply]
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        if self.on_pull is not None:
            self.on_pull()
        waiting = [i for i in message_ids if i in self._ready]
        ready = [i for i in waiting if self._ready[i][0] <= 0]
        for i in waiting:
            self._ready[i][0] -= 1
        self.rng.shuffle(ready)
        came = [self._ready.pop(i)[1] for i in ready[: (len(ready) + 1) // 2]]
        self.held.update(came)
        return came

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        identities = list(self.push_messages(messages))
        self.rng.shuffle(identities)
        return [self._ready.pop(i)[1] for i in identities if i in self._ready]

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if node not in self.nodes:
            return Message(Error(code=5, reason="Node Unavailable"), reply_to=message)
        try:
            return self.app(message, self.nodes[node])
        except Exception as error:  # as a SuperNode does
            return Message(Error(code=2, reason=f"ClientApp failed\n{error!r}"), reply_to=message)


def config_of(message: Message) -> Any:
    """The configuration in a request of ours."""
    return message.content.config_records["config"]


def request_of(message: Message, kind: str = "train") -> tuple[list[Array], dict[str, Any]]:
    """The arrays and the configuration in a request of ours, as a NumPyClient gets them."""
    return wire.open_request(message.content, kind)


def metrics_of(reply: Message) -> Any:
    """What an answer of ours says beside its arrays."""
    return reply.content.config_records["config"]


def examples_of(reply: Message) -> Any:
    """The number of rows that an answer of ours tells Flower."""
    return reply.content.metric_records["metrics"]["num-examples"]


def listen_to(grid: FakeGrid, what: Callable[[Message], Any]) -> list[Any]:
    """What each reply of the grid's nodes says from now on, in their order."""
    found: list[Any] = []

    def listen(message: Message, reply: Message) -> Message:
        found.append(what(reply))
        return reply

    grid.tamper = listen
    return found


def arrays_in(reply: Message) -> dict[str, Array]:
    """The arrays in an answer of ours, by name."""
    return {name: a.numpy() for name, a in reply.content.array_records["arrays"].items()}


def with_arrays(reply: Message, arrays: dict[str, Array]) -> Message:
    """The reply with these arrays instead of its own."""
    reply.content["arrays"] = ArrayRecord({name: FlowerArray(np.asarray(a)) for name, a in arrays.items()})
    return reply


def kill_when(grid: FakeGrid, nodes: Collection[int], due: Callable[[Message], bool], *, when: str = "before") -> None:
    """Kill each of these nodes before it gets the message that is due, or after it has answered it."""

    def kill(message: Message, reply: Message | None = None) -> Message | None:
        node = message.metadata.dst_node_id
        if node in nodes and node in grid.nodes and due(message):
            grid.kill(node)
        return reply

    if when == "before":
        grid.on_push = kill  # type: ignore[assignment]
    else:
        grid.tamper = kill


# Rules of nodes that answer as the clients of a simulation do: all that they are asked, by the same products and noise.
LIKE_SIMULATED: dict[str, Any] = {"answers": "rows", "missing": "mean", "noise_seed": 0}


def app_of(shards: Sequence[Any], **policy: Any) -> ClientApp:
    """A ClientApp whose nodes hold these rows, by position, and answer like simulated clients."""
    rules = {"allow": allowed_names(), **LIKE_SIMULATED, **policy}
    return client_app(lambda context: shards[next(iter(context.node_config.values()))], **rules)


def grid_of(shards: Sequence[Any], n: int | None = None, *, seed: int = 0, **policy: Any) -> FakeGrid:
    """A grid with a node for each of the first n of these shards; later ones are for nodes that join."""
    return FakeGrid(app_of(shards, **policy), len(shards) if n is None else n, seed=seed)


def hosts_of(shards: Sequence[Any], each: int = 4, **policy: Any) -> FakeGrid:
    """A grid of virtual nodes that host so many clients each, with a shard for each client."""

    def hosts(context: Context) -> range:
        first = int(context.node_config["partition-id"]) * each
        return range(first, min(first + each, len(shards)))

    rules = {"allow": allowed_names(), **LIKE_SIMULATED, **policy}
    app = client_app(lambda context: shards[int(context.node_config["partition-id"])], hosts=hosts, **rules)
    return FakeGrid(app, -(-len(shards) // each))


def is_pca_of(result: Any, shards: Sequence[Array], *, angle: float = 1e-5) -> bool:
    """Whether a result is the PCA of the rows of these shards together."""
    reference, k = pooled(shards), len(result.components_)
    same = result.n_samples_ == reference.n and np.allclose(result.mean_, reference.mean, rtol=0, atol=1e-12)
    return bool(
        same
        and np.linalg.norm(result.components_ - reference.signed(k), ord=2) <= angle
        and np.allclose(result.explained_variance_, reference.variances[:k], rtol=angle**2 + 1e-12, atol=0)
    )


def failed(result: Any, node: str) -> list[str]:
    """Why a node's answers are missing, round by round."""
    return [r.failures[node] for r in result.history if node in r.failures]


def context(node: int = 7, **config: Any) -> Context:
    """What Flower hands to a node's app, before its first message."""
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
