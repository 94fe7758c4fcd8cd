"""Nodes: the nodes of a Flower grid as a transport, which composes, sends and reads messages.

`Patience` decides which nodes are asked again after a failure, and which are left out until they are
back. A node is left out after two silences in a row, because each costs the timeout of a round. It is
also left out after two failures of any kind in a row during the work of a run, because each of them may
send all nodes back to the opening. An answer to an opening, or to the set-up of masks, does not show
that a node can do this work, because these need less memory. In a run without an opening, such as that
of a tracker, a failure that comes at once costs nothing, and does not count.

`Patience` also remembers which nodes have never said anything in a run, because a node that has fallen
silent differs from one whose processes never begin. A node that was left out is asked again after it
was away, or has been restarted, which Flower reports.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from flower_pca import wire
from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError, NotEnoughNodes, ProtocolError, harmless
from flower_pca.base.history import Round
from flower_pca.base.options import option
from flower_pca.core.drive import Driven
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum, Traffic, carried
from flower_pca.masking import messages
from flower_pca.results.left_out import parted
from flower_pca.stages.opening import blames_start
from flower_pca.strategies import memory
from flower_pca.strategies.exchange import exchange, log, reach
from flower_pca.strategies.node_settings import NodeSettings
from flower_pca.wire import records
from flower_pca.wire.records import Content

_IN_A_ROW: Final = 2


@dataclass
class Patience:
    """The failures of nodes in a row, and the nodes that are left out because of them."""

    # Nodes that have sent anything: an answer, a refusal, or an error
    speakers: set[int] = field(default_factory=set)
    _silences: dict[int, int] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)  # failures during the work of a run
    # When the connected nodes were started
    _since: Mapping[int, str] = field(default_factory=dict)
    # When the nodes that are left out were started
    _left: dict[int, str] = field(default_factory=dict)
    # Nodes that have been disconnected since they were left out
    _away: set[int] = field(default_factory=set)

    def fail(self, node: int, *, silent: bool, counts: bool) -> bool:
        """Record a failure, and return whether the node is left out now. `counts` says that it happened
        during the work of a run.
        """
        if silent:
            self._silences[node] = self._silences.get(node, 0) + 1
        else:
            self.speakers.add(node)
            self._silences[node] = 0
        if counts:
            self._failures[node] = self._failures.get(node, 0) + 1
        enough = max(self._silences[node], self._failures.get(node, 0)) >= _IN_A_ROW
        if enough:
            self._left[node] = self._since.get(node, "")
        return enough

    def hear(self, node: int, *, counts: bool) -> None:
        """Record an answer. `counts` says that it happened during the work of a run."""
        self.speakers.add(node)
        self._silences.pop(node, None)
        if counts:
            self._failures.pop(node, None)

    def back(self, connected: Mapping[int, str]) -> frozenset[int]:
        """Return the nodes to ask again, from the times at which the connected nodes were started."""
        self._since = connected
        self._away |= self._left.keys() - connected.keys()
        back = frozenset(n for n, since in self._left.items() if n in connected and self._anew(n, since))
        for node in back:
            del self._left[node]
            self._away.discard(node)
            self._silences.pop(node, None)
            self._failures.pop(node, None)
        return back

    def _anew(self, node: int, since: str) -> bool:
        # A node that restarts between two polls is never seen to be away.
        return node in self._away or self._since[node] != since


_POLL: Final = 0.2  # seconds between two polls for nodes
_FOR_ACTIONS: Final = 60.0  # seconds within which a node has to list the actions of its app
_NO_FUNCTION: Final = "function registered with name"  # words in Flower's error about a ClientApp
# Flower's codes of errors after which no answer will come
EXPIRED, _GONE, _CRASHED = (3, 4), 5, 8
_MUTE: Final = "it has answered no message of this run; its own log says whether its processes start"
# Descriptions of what a subclass's hooks have done with a node, by Flower's word for the stage
_UNASKED: Final = {kind: f"the strategy's own configure_{kind} did not ask it" for kind in ("train", wire.EVALUATE)}
_UNCOUNTED: Final = {kind: f"the strategy's own aggregate_{kind} did not count its reply" for kind in _UNASKED}
_UNKNOWN: Final = 2**63  # a node's key before its first answer, which comes after all partition-ids


class StoppedError(Exception):
    """The run has a message to send, but the caller's should_stop has ended it."""


@dataclass
class Nodes:
    """The nodes of a grid, for one run.

    Sums are taken in the order of the nodes' lasting keys, which come with their first answers. So the
    result does not depend on which node answers first.

    Parameters
    ----------
    grid : Grid
        The grid.
    run : Driven
        The run for which they are asked.
    node_settings : NodeSettings
        How long to wait for nodes, and how to ask them.
    configs : dict
        The caller's values for the nodes, by the kind of the message.
    checkpoint : path or None, default=None
        The file of the run's checkpoint, for the log.
    """

    kind: ClassVar[str] = "server checkpoint"
    noun: ClassVar[str] = "node"  # the word for a client in logs

    grid: Grid
    run: Driven
    node_settings: NodeSettings
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    checkpoint: Path | None = None
    num_rounds: int = 0  # the most rounds, for the log, or 0 if there is no limit
    # The name of the run, by which nodes distinguish its memory from others
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    keys: dict[int, int] = field(default_factory=dict)
    # The names of nodes that send theirs
    sites: dict[int, str] = field(default_factory=dict)
    # Nodes that have reported that they keep a state for the run
    _keepers: set[int] = field(default_factory=set)
    # The names with which nodes were registered
    _called: dict[int, str] = field(default_factory=dict)
    _patience: Patience = field(default_factory=Patience)
    # the message layouts of nodes that have answered
    _layouts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _said_memory: bool = False  # whether the memory for large messages was logged
    _sizes: dict[int, int] = field(default_factory=dict)  # the bytes of the newest message to each node
    stopped: bool = False  # whether the caller has stopped the run
    connected: int = 0  # how many clients could be reached before the newest message
    _unanswered: dict[int, str] = field(default_factory=dict)  # why a node that was asked has not answered
    _asked: set[int] = field(default_factory=set)  # nodes to which a hook has sent our message
    _misfits: set[int] = field(default_factory=set)  # nodes whose columns differ from those of the start
    _strangers: dict[int, str] = field(default_factory=dict)  # nodes without a function for this run, and the remedy
    _actions: list[str] | None = None  # the actions of PCA at the first of these nodes, once it was asked
    # The messages for Flower's loop, which sends them
    _composed: dict[int, Message] = field(default_factory=dict)
    purpose: str = "train"  # Flower's word for the stage of the present message
    remarks: list[str] = field(default_factory=list)  # remarks about hooks for the result
    _step: int = -1  # the newest step of a tracker
    _began: float = 0.0

    def present(self) -> list[int]:
        """Return the nodes that can be asked now, in the order of their keys. Wait until there are enough.

        If all connected nodes are left out, return at once, and the run says why it ends.
        """
        if self.run.is_finished:
            return []
        if self.node_settings.interval:
            self._pace(self.run.position.state.step)
        least, deadline = self.node_settings.min_nodes, time.monotonic() + self.node_settings.node_timeout
        while True:
            connected = self.reachable(within=deadline - time.monotonic())
            self.connected = len(connected)
            self.run.readmit(self._patience.back(connected))
            nodes = sorted(connected.keys() - self.run.roll.banned, key=self.order)
            late, crowd = time.monotonic() >= deadline, len(connected) >= least
            if crowd and len(nodes) < least and self._strangers.keys() >= connected.keys() - set(nodes):
                raise self._unserved(len(connected))
            if len(nodes) >= least or (crowd and (late or not nodes)):
                return nodes
            if late:
                raise NotEnoughNodes(
                    f"Only {len(connected)} of at least {least} nodes are connected after "
                    f"{self.node_settings.node_timeout:g} s. Start more nodes, or lower {option('min_nodes')}."
                )
            time.sleep(min(_POLL, max(deadline - time.monotonic(), 0.0)))

    def reachable(self, *, within: float) -> dict[int, str]:
        """Return the clients that can be reached, which here are the nodes, and when they were started."""
        nodes = reach(self.grid, within=within)
        if nodes is None:
            raise NotEnoughNodes(
                f"The SuperLink did not say within {max(within, 0.0):.3g} s which nodes are connected. Check that it "
                f"runs and can be reached, or raise {option('node_timeout')}."
            )
        self._called = {node.node_id: node.name for node in nodes if node.name}
        return {node.node_id: node.last_activated_at for node in nodes}

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints about nodes that are in no message of the run."""
        return ()

    def carriers(self, message: Broadcast) -> list[int]:
        """Return the nodes to ask for the answers to a message, in order."""
        return list(message.to)

    def answers(self, node: int, reply: Message | str, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Return the answers of a node's client or clients. `reply` may be the reason why there is none."""
        return (self.read(node, reply, message),)

    def counted(self, node: int, reply: Message | str, message: Broadcast) -> Iterator[Reply | Sum | Failure]:
        """Return the answers of a node. The first answer has the bytes of the node's message and reply."""
        up = 0 if isinstance(reply, str) or not reply.has_content() else records.size_of(reply.content)
        traffic = Traffic(self._sizes.pop(node, 0), up)
        answers = self.answers(node, reply, message)
        del reply
        if traffic.down + traffic.up > memory.LARGE:
            # Flower's records refer to themselves, so their bytes stay until Python collects reference cycles,
            # which may take many messages.
            gc.collect()
        for answer in answers:
            yield carried(answer, traffic)
            traffic = Traffic()

    def ask(self, message: Broadcast) -> Iterator[Reply | Sum | Failure]:
        """Return the answers in the order of the nodes' keys, independent of the order of their arrival."""
        timeout = self.node_settings.round_timeout
        self.begin(message)
        self.log_sample(message)
        ordered = exchange(self.grid, self.carriers(message), self.composer(message), timeout=timeout)
        answers = self._read_in_turn(ordered, message)
        if all(node in self.keys for node in message.to):
            yield from answers
        else:  # the keys come with the first answers, so all of these are awaited
            yield from self.in_order(answers)

    def _read_in_turn(
        self, replies: Iterable[tuple[int, Message | str]], message: Broadcast
    ) -> Iterator[Reply | Sum | Failure]:
        """Return the answers in these replies. A reply is released before its answers are merged or the
        next one is awaited.
        """
        for node, reply in replies:
            answers = self.counted(node, reply, message)
            del reply
            yield from answers

    def begin(self, message: Broadcast) -> None:
        """Log the beginning of a round, as Flower's own strategies do. A closing round may follow those of
        `num_rounds`.

        Raises
        ------
        StoppedError
            If the caller has stopped the run.
        """
        if self.stopped:
            raise StoppedError
        self.purpose = wire.kind(message.purpose)
        number = message.number + 1
        log(INFO, "")
        if number <= self.num_rounds:
            log(INFO, "[ROUND %d/%d]", number, self.num_rounds)
        else:
            log(INFO, "[ROUND %d]", number)

    def log_sample(self, message: Broadcast) -> None:
        """Log how many nodes are asked, as Flower's own strategies do."""
        asked = len(self.carriers(message))
        log(INFO, "configure_%s: Sampled %d nodes (out of %d)", wire.kind(message.purpose), asked, self.connected)

    def deliver(self, messages: Iterable[Message]) -> list[Message]:
        """Send the messages that a hook has returned, and return the replies that have arrived."""
        given = list(messages)
        self._unanswered = {}
        self._asked = {message.metadata.dst_node_id for message in given if is_ours(message)}
        for message in given:
            self._sizes[message.metadata.dst_node_id] = records.size_of(message.content)
        if not given:
            return []
        came = list[Message]()
        timeout = self.node_settings.round_timeout
        for place, reply in exchange(self.grid, range(len(given)), given.__getitem__, timeout=timeout):
            if isinstance(reply, str):
                self._unanswered[given[place].metadata.dst_node_id] = reply
            else:
                came.append(reply)
        return came

    def missing(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Return what takes the place of a node's answers if a hook did not get its reply, or did not pass it on."""
        otherwise = _UNCOUNTED if node in self._asked else _UNASKED
        return self.counted(node, self._unanswered.get(node, otherwise[self.purpose]), message)

    def compose(self, message: Broadcast) -> list[Message]:
        """Return the messages of a round, which hooks pass on."""
        made = list(map(self.composer(message), self.carriers(message)))
        self._composed = {each.metadata.dst_node_id: each for each in made}
        return made

    def missing_in_loop(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Return what takes the place of a node's answers if Flower's loop has no reply of it.

        Flower gives a message an identity when it is sent. If other messages have one and this one does
        not, a wrapper around the strategy has not sent it.
        """
        sent = {to for to, each in self._composed.items() if each.metadata.message_id}
        why = _UNASKED[self.purpose] if sent and node not in sent else "no answer"
        return self.counted(node, why, message)

    def in_order(self, answers: Iterable[Reply | Sum | Failure]) -> list[Reply | Sum | Failure]:
        """Return the answers in the order of the nodes' keys."""
        return sorted(answers, key=lambda a: self.order(a.clients[0] if isinstance(a, Sum) else a.client))

    def order(self, node: int) -> tuple[int, int]:
        """Return the sort key of a node: its lasting key. Nodes without a known key come last, by their own number."""
        return self.keys.get(node, _UNKNOWN), node

    def keep(self) -> tuple[dict[str, Any], Arrays]:
        """Return the name of the run, the nodes' keys and names, and which nodes keep a state."""
        keys, sites = ({str(node): value for node, value in of.items()} for of in (self.keys, self.sites))
        return {"name": self.name, "keys": keys, "sites": sites, "keepers": sorted(self._keepers)}, {}

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Continue the run with this name."""
        self.name = str(header["name"])
        self.keys = {int(node): key for node, key in header["keys"].items()}
        self.sites = {int(node): name for node, name in header["sites"].items()}
        self._keepers = set(header["keepers"])
        # Nodes with a key have answered before, so their processes do begin.
        self._patience.speakers.update(self.lasting_keys)
        count = len(header.get("messages", header["history"]))
        log(INFO, "Continuing from %s after %d messages", self.checkpoint, count)

    def report(self, record: Round) -> None:
        """Log the answers to a message. Nodes are named as their operators know them.

        Raises
        ------
        DataError
            If their sum has more rows than they may have.
        """
        failures = len(record.failures)
        log(INFO, "aggregate_%s: Received %d results and %d failures", self.purpose, record.answered, failures)
        log(INFO, "\t└──> %s: %s", record.stage, record.words)
        for node, reason in record.failures.items():
            log(WARNING, "\t%s %s%s was left out: %s", self.noun, node, self._known_as(int(node)), reason)
        for node, note in record.notes.items():
            log(WARNING, "\t%s %s%s: %s", self.noun, node, self._known_as(int(node)), note)
        self._require_rows_of_all()

    def _known_as(self, node: int) -> str:
        """Return the name by which operators know a node: its own name, or the one with which it was registered."""
        key = self.lasting_keys.get(node)
        number = "" if key is None else f"partition-id {key}"
        called = self.sites.get(node) or number or self._called.get(node, "")
        if called:
            return f" ({harmless(called)})"
        return ""

    def _pace(self, step: int) -> None:
        """Wait until a new step is due."""
        if step != self._step:
            if self._step >= 0:
                time.sleep(max(0.0, self._began + self.node_settings.interval - time.monotonic()))
            self._step, self._began = step, time.monotonic()

    def composer(self, message: Broadcast) -> Callable[[int], Message]:
        """Return a function from a node to its message. Common parts are written once."""
        kind = self.node_settings.message_type(wire.kind(message.stage))
        write = self.writer(message)
        ttl, group = self.node_settings.round_timeout, str(message.number)

        def compose(node: int) -> Message:
            content = write(node)
            self._sizes[node] = records.size_of(content)
            self._say_memory(self._sizes[node], len(self.carriers(message)))
            return Message(content, node, kind, ttl=ttl, group_id=group)

        return compose

    def _say_memory(self, size: int, sites: int) -> None:
        """Log once, before the first large message, the memory that it needs, with a warning if there is too little."""
        if self._said_memory or size < memory.LARGE:
            return
        self._said_memory = True
        free = memory.free()
        if free is None or memory.needed(size, sites) <= free / 2:
            log(INFO, "%s", memory.words_of(size, sites))
            return
        log(WARNING, "%s", memory.words_of(size, sites))
        log(WARNING, "That is more than half of the %.0f MB that are free here. Use a larger machine.", free / 1e6)

    def writer(self, message: Broadcast) -> Callable[[int], Content]:
        """Return a function from a node to the records of its message."""
        write: Callable[..., Content] = partial(wire.write_request, message, **self.terms(message))
        if message.personal:
            return lambda node: write(node, layouts=self._layouts_of(node))
        common: dict[Sequence[str], Content] = {}
        left = set(self.carriers(message))

        def shared(node: int) -> Content:
            layouts = self._layouts_of(node)
            if layouts not in common:
                common[layouts] = write(message.to[0], layouts=layouts)
            content = common[layouts]
            left.discard(node)
            if not left:
                common.clear()  # large blocks are not needed any more
            return content

        return shared

    def _layouts_of(self, node: int) -> tuple[str, ...]:
        """Return the layouts for a node: both while it is unknown whether its app has a client_fn."""
        if self.node_settings.action is not None:
            return (wire.MESSAGE_API,)  # a client_fn has no actions
        return self._layouts.get(node, wire.BOTH)

    def terms(self, message: Broadcast) -> dict[str, Any]:
        """Return what nodes are told in addition to the message itself."""
        extra = self.configs.get(wire.kind(message.purpose), {})
        position = self.run.position
        asks: dict[str, Any] = {"asks_names": position.model.heading is None, "alternative": position.alternative}
        return {"algorithm": position.service, "run": self.name, "extra": extra, **asks}

    def read(self, node: int, reply: Message | str, message: Broadcast) -> Reply | Failure:
        """Return a node's answer to a message. `reply` may be the reason why there is none."""
        # This key applies until the node sends its own, so that nobody waits for a node that never does.
        self.keys.setdefault(node, _UNKNOWN)
        if isinstance(reply, str) or reply.has_error():
            return self.no_answer(node, reply)
        layout = wire.layout_of_reply(reply.content, kind_of(reply))
        if layout is not None:
            self._layouts[node] = (layout,)
        try:
            answer = wire.read_reply(reply.content, kind_of(reply))
        except ProtocolError as error:
            return self.take(node, error, message)
        return self.take(node, answer, message)

    def no_answer(self, node: int, reply: Message | str) -> Failure:
        """Return the failure of a client without an answer, because it is silent or Flower has sent an
        error in its place.

        Errors which mean that nobody is there to answer count as silence.
        """
        if isinstance(reply, str) and reply in _UNASKED.values():
            return Failure(node, reply, unasked=True)
        self._layouts.pop(node, None)  # the node may come back with another app
        if isinstance(reply, str):
            if reply in _UNCOUNTED.values():
                return self._fail(node, reply)
            return self._fail(node, self._silence(node, reply), silent=True)
        error = reply.error
        # Flower answers in place of a dead process, but only after the whole timeout.
        if error.code == _CRASHED:
            return self._fail(
                node, "the process of its ClientApp has died, possibly because it lacked memory", silent=True
            )
        if error.code in EXPIRED:
            waited = f"no answer within {self.node_settings.round_timeout:g} s"
            return self._fail(
                node, self._silence(node, waited, "the process of its ClientApp may have died"), silent=True
            )
        lines = (error.reason or "").strip().splitlines() or ["no reason given"]
        if unanswerable := self._without_function(node, lines[-1]):
            self._strangers[node] = unanswerable
            return Failure(node, unanswerable, lasting=True)
        return self._fail(node, f"error {error.code}: {harmless(lines[-1])}", silent=error.code == _GONE)

    def _unserved(self, connected: int) -> ConfigError:
        """Return the error of a run for which too many nodes have no function."""
        return ConfigError(
            f"{len(self._strangers)} of {labels.count(connected, 'node')} have no function for this run, the first "
            f"because {next(iter(self._strangers.values()))}."
        )

    def _without_function(self, node: int, error: str) -> str | None:
        """Return the remedy for a ClientApp without a function for messages of this run, or None for other errors."""
        action = self.node_settings.action
        if action is not None and "Invalid message type" in error:
            return f"its ClientApp has a client_fn, which knows no actions. Leave action={action!r} out of the strategy"
        if _NO_FUNCTION not in error:
            return None
        if self._actions is None:
            self._actions = self._ask_for_actions(node)
        if self._actions is None:
            name = self.node_settings.message_type("train")
            return f"its ClientApp has no function {name!r}. Look at its clients.register"
        if not self._actions:
            wanted = repr(action or "pca")
            return (
                f"its ClientApp has no function of flower_pca. Write clients.register(app, load, action={wanted}) "
                f"there, and give the strategy action={wanted}"
            )
        if "default" in self._actions:
            return f"its ClientApp has PCA without an action. Leave action={action!r} out of the strategy"
        there, first = labels.series([repr(each) for each in self._actions]), repr(self._actions[0])
        if len(self._actions) > 1:
            found = f"has PCA under the actions {there}" + (f", not {action!r}" if action else "")
        else:
            found = f"has PCA under the action {there}" + (f", not {action!r}" if action else "")
        return f"its ClientApp {found}. Give the strategy action={first}"

    def _ask_for_actions(self, node: int) -> list[str] | None:
        """Return the actions under which a node's app has PCA, or None if the node does not answer."""
        content = wire.write_directory_query(self.run.history.count + 1)
        timeout = min(self.node_settings.round_timeout, _FOR_ACTIONS)

        def compose(node: int) -> Message:
            return Message(content, node, f"query.{wire.DIRECTORY}", ttl=timeout)

        for _, reply in exchange(self.grid, [node], compose, timeout=timeout):
            if isinstance(reply, str):
                return None
            if not reply.has_error():
                return wire.read_actions(reply.content)
            if _NO_FUNCTION in (reply.error.reason or ""):
                return []
        return None

    def _silence(self, node: int, why: str, otherwise: str = "") -> str:
        """Describe a silent node. The processes of a node that has never answered may not even begin."""
        if node not in self._patience.speakers:
            otherwise = _MUTE
        return ": ".join(filter(None, [why, otherwise]))

    def take(self, node: int, answer: wire.Answer | ProtocolError, message: Broadcast) -> Reply | Failure:
        """Return a client's answer to a message as the run gets it, or what is wrong with it."""
        if isinstance(answer, ProtocolError):
            return Failure(node, str(answer), lasting=True)
        self._patience.speakers.add(node)
        if answer.key != wire.NO_KEY:
            self.keys[node] = answer.key
        if answer.site:
            self.sites[node] = answer.site
        if answer.refusal is not None:
            if blames_start(answer.refusal):
                self._misfits.add(node)
                # A node that is asked again may be the only one that does not fit.
                if self._misfits.issuperset(message.to) and not self.run.roll.awaited:
                    raise ConfigError(answer.refusal)
            why = f"{answer.site}: {answer.refusal}" if answer.site else answer.refusal
            return self.refuse(node, why, lasting=answer.lasting)
        if why := self._too_many_rows(answer.arrays):
            return Failure(node, why, lasting=True)
        # A set-up of masks does not count as work of the run.
        if message.stage != messages.STAGE or messages.inner_stage(message.arrays) is not None:
            self._patience.hear(node, counts=self._works)
        forgot = self._forgot(node, answer, message)
        return Reply(node, answer.number, answer.arrays, answer.heading, answer.site, answer.declines, forgot)

    def _too_many_rows(self, arrays: Arrays) -> str:
        """Describe an answer that claims more rows than a node may have, or return ""."""
        most = self.node_settings.max_rows
        # Steps of a tracker report the number of rows as `rows`, and all other stages as `n`.
        said = [arrays[name] for name in ("n", "rows") if name in arrays]
        if most is None or all(np.size(count) != 1 or count <= most for count in said):
            return ""
        return f"it reports {int(np.max(said)):,} rows, but max_rows allows {most:,}"

    def _require_rows_of_all(self) -> None:
        """Refuse a sum of more rows than its nodes may have. Nobody knows which node claims too many."""
        most, found, members = self.node_settings.max_rows, self.run.position.model.n, len(self.run.roll.members)
        if most is not None and members and found > most * members:
            raise DataError(
                f"{labels.count(members, self.noun)} of this run have {found:,} rows together, as they report. "
                f"max_rows allows {most:,} each. Under masks or noise nobody can say which one reports too many. Ask "
                f"the operator of each for its number of rows, or raise the limit: {option('max_rows', found)}."
            )

    def _forgot(self, node: int, answer: wire.Answer, message: Broadcast) -> bool:
        """Return whether a node has answered without the state that it had reported to keep."""
        if message.stage in (wire.EVALUATE, messages.STAGE):  # their answers say nothing about it
            return False
        forgot = node in self._keepers and not answer.recalls
        if answer.keeps:
            self._keepers.add(node)
        else:
            self._keepers.discard(node)
        return forgot

    def refuse(self, node: int, why: str, *, lasting: bool) -> Failure:
        """Return the failure of a client that refuses a message, for good if one of its rules requires this."""
        if lasting:
            return Failure(node, why, lasting=True)
        return self._fail(node, why)

    @property
    def site_names(self) -> dict[int, str]:
        """The names of nodes by key, or by node id if there is no key."""
        return {self.lasting_keys.get(node, node): name for node, name in sorted(self.sites.items())}

    def of_sites(self) -> dict[str, Any]:
        """Return the fields `site_names` and `left_out` of a result: nodes whose rows are in it, and the
        others with reasons.

        If a node was left out and sends no name, the name with which it was registered is used.
        """
        there = self.run.roll.contributors
        registered = {node: name for node, name in self._called.items() if node in self.keys and node not in there}
        return parted(
            {**registered, **self.sites},
            self.keys,
            there,
            self.run.history,
            otherwise="it was no longer connected",
            keys=self.lasting_keys,
        )

    @property
    def lasting_keys(self) -> dict[int, int]:
        """The keys of nodes that have one."""
        return {node: key for node, key in self.keys.items() if key != _UNKNOWN}

    def _fail(self, node: int, why: str, *, silent: bool = False) -> Failure:
        return Failure(node, why, lasting=self._patience.fail(node, silent=silent, counts=self._works))

    @property
    def _works(self) -> bool:
        """Whether the present message belongs to the work of a run with an opening, in which a failure
        affects the others.
        """
        position = self.run.position
        return position.opens and not position.opening


def is_ours(message: Message) -> bool:
    """Return whether a message to a node asks for a step of a run of this package."""
    return any(map(wire.is_request, message.content.config_records.values()))


def kind_of(message: Message) -> str:
    """Return the kind of a message, without its action."""
    return str(message.metadata.message_type).split(".")[0]
