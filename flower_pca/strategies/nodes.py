"""Nodes, a transport that composes, sends and reads messages for the nodes of a Flower grid.

`FailureRecord` decides which nodes are asked again after a failure, and which nodes are left out until they
return. A node is left out after two silences in a row, because each silence costs the timeout of a round.
After the opening of a run, a node is also left out after two failures of any kind in a row, because each
failure may send all nodes back to the opening. An answer to an opening, or to the set-up of masks, does
not show that a node can answer the later messages, because these need more memory. In a run without an
opening, such as the run of a tracker, an immediate failure has no such cost and does not count.

`FailureRecord` also records which nodes have sent anything in a run. This distinguishes a node that stops
answering from a node whose processes never start. A node that was left out is asked again after Flower has
reported that it was disconnected or restarted.
"""

from __future__ import annotations

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
from flower_pca.base import labels, large
from flower_pca.base.errors import ConfigError, DataError, NotEnoughNodes, ProtocolError, safe_for_log
from flower_pca.base.history import Round
from flower_pca.base.options import option
from flower_pca.core.drive import Driven
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum, Traffic, with_traffic
from flower_pca.masking import messages
from flower_pca.results.left_out import site_fields
from flower_pca.stages.opening import blames_start
from flower_pca.strategies import memory
from flower_pca.strategies.exchange import exchange, list_nodes, log
from flower_pca.strategies.node_settings import NodeSettings
from flower_pca.wire import records
from flower_pca.wire.records import Content

_IN_A_ROW: Final = 2


@dataclass
class FailureRecord:
    """A record of consecutive failures of nodes. It decides which nodes are left out."""

    # The nodes that have sent anything: an answer, a refusal, or an error
    speakers: set[int] = field(default_factory=set)
    _silences: dict[int, int] = field(default_factory=dict)  # the number of silences in a row
    _failures: dict[int, int] = field(default_factory=dict)  # the number of failures in a row after the opening
    # The times at which the connected nodes were started
    _since: Mapping[int, str] = field(default_factory=dict)
    # The nodes that are left out, with the times at which they were started
    _left: dict[int, str] = field(default_factory=dict)
    # The nodes that have been disconnected since they were left out
    _away: set[int] = field(default_factory=set)

    def record_failure(self, node: int, *, silent: bool, counts: bool) -> bool:
        """Record a failure, and return whether the node is left out from now on.

        `silent` is True if the node has sent nothing. `counts` is True if the failure happened after the opening.
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

    def record_answer(self, node: int, *, counts: bool) -> None:
        """Record an answer. `counts` is True if it answers a message after the opening of a run."""
        self.speakers.add(node)
        self._silences.pop(node, None)
        if counts:
            self._failures.pop(node, None)

    def returned_nodes(self, connected: Mapping[int, str]) -> frozenset[int]:
        """Return the nodes that are asked again, because they were disconnected or restarted.

        `connected` maps the connected nodes to the times at which they were started.
        """
        self._since = connected
        self._away |= self._left.keys() - connected.keys()
        back = frozenset(n for n, since in self._left.items() if n in connected and self._has_returned(n, since))
        for node in back:
            del self._left[node]
            self._away.discard(node)
            self._silences.pop(node, None)
            self._failures.pop(node, None)
        return back

    def _has_returned(self, node: int, since: str) -> bool:
        # If a node restarts between two polls, no poll shows that it was disconnected, but its start time has changed.
        return node in self._away or self._since[node] != since


_POLL: Final = 0.2  # the number of seconds between two polls for nodes
_FOR_ACTIONS: Final = 60.0  # the number of seconds in which a node must list the actions of its app
_NO_FUNCTION: Final = "function registered with name"  # a part of Flower's error for a ClientApp without the function
# Flower's codes of errors that mean that no answer will arrive
EXPIRED, _GONE, _CRASHED = (3, 4), 5, 8
_MUTE: Final = "it has answered no message of this run; its log shows whether its processes start"
# The reasons why a node has no answer if a subclass's hook left it out, by the kind of the message
_UNASKED: Final = {kind: f"the strategy's own configure_{kind} did not ask it" for kind in ("train", wire.EVALUATE)}
_UNCOUNTED: Final = {kind: f"the strategy's own aggregate_{kind} did not count its reply" for kind in _UNASKED}
_UNKNOWN: Final = 2**63  # a node's key before its first answer, which is larger than all partition-ids


class StoppedError(Exception):
    """The exception that ends a run before its next message, if the caller's should_stop has returned True."""


@dataclass
class Nodes:
    """The nodes of a grid as the transport of one run.

    Answers are added up in the order of the nodes' lasting keys, which the nodes send with their first
    answers. The result therefore does not depend on which node answers first.

    Parameters
    ----------
    grid : Grid
        The grid of nodes.
    run : Driven
        The run whose messages are sent to the nodes.
    node_settings : NodeSettings
        The settings for waiting for nodes and sending them messages.
    configs : dict
        The caller's values for the nodes, by the kind of the message.
    checkpoint : path or None, default=None
        The file of the run's checkpoint, which the log names.
    """

    kind: ClassVar[str] = "server checkpoint"
    noun: ClassVar[str] = "node"  # the word for a client in log messages

    grid: Grid
    run: Driven
    node_settings: NodeSettings
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    checkpoint: Path | None = None
    num_rounds: int = 0  # the maximum number of rounds, which the log shows, or 0 if there is no limit
    # The name of the run, with which nodes separate its memory from the memory of other runs
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    keys: dict[int, int] = field(default_factory=dict)  # the lasting keys of nodes
    # The site names that nodes have sent
    sites: dict[int, str] = field(default_factory=dict)
    # The nodes that have reported that they keep a state for the run
    _keepers: set[int] = field(default_factory=set)
    # The names under which nodes were registered at the SuperLink
    _called: dict[int, str] = field(default_factory=dict)
    _patience: FailureRecord = field(default_factory=FailureRecord)
    # The message layouts of nodes that have answered
    _layouts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _memory_was_logged: bool = False  # whether the memory for large messages was logged
    _sizes: dict[int, int] = field(default_factory=dict)  # the number of bytes of the newest message to each node
    stopped: bool = False  # whether the caller has stopped the run
    connected: int = 0  # the number of clients that could be reached before the newest message
    _unanswered: dict[int, str] = field(default_factory=dict)  # the reasons why nodes have not answered
    _asked: set[int] = field(default_factory=set)  # the nodes to which a hook has sent a message of the run
    _misfits: set[int] = field(default_factory=set)  # the nodes whose columns do not match the start components
    _strangers: dict[int, str] = field(default_factory=dict)  # nodes without a function for this run, and the remedy
    _actions: list[str] | None = None  # the actions of PCA at the first such node, or None if it was not asked
    # The messages that Flower's loop sends, by node
    _composed: dict[int, Message] = field(default_factory=dict)
    purpose: str = "train"  # the kind of the current message in Flower's terms
    remarks: list[str] = field(default_factory=list)  # remarks about hooks, which the result shows as hints
    _step: int = -1  # the newest step of a tracker
    _began: float = 0.0  # the time at which this step began

    def present(self) -> list[int]:
        """Wait until enough nodes are connected, and return the nodes that can be asked, in the order of their keys.

        If all connected nodes are left out, return immediately. The run then ends with an error about these nodes.
        """
        if self.run.is_finished:
            return []
        if self.node_settings.interval:
            self._wait_for_step(self.run.position.state.step)
        least, deadline = self.node_settings.min_nodes, time.monotonic() + self.node_settings.node_timeout
        while True:
            connected = self.reachable(within=deadline - time.monotonic())
            self.connected = len(connected)
            self.run.readmit(self._patience.returned_nodes(connected))
            nodes = sorted(connected.keys() - self.run.roll.banned, key=self.sort_key)
            late, crowd = time.monotonic() >= deadline, len(connected) >= least
            if crowd and len(nodes) < least and self._strangers.keys() >= connected.keys() - set(nodes):
                raise self._unserved_error(len(connected))
            if len(nodes) >= least or (crowd and (late or not nodes)):
                return nodes
            if late:
                raise NotEnoughNodes(
                    f"Only {len(connected)} of at least {least} nodes are connected after "
                    f"{self.node_settings.node_timeout:g} s. Start more nodes, or lower {option('min_nodes')}."
                )
            time.sleep(min(_POLL, max(deadline - time.monotonic(), 0.0)))

    def reachable(self, *, within: float) -> dict[int, str]:
        """Return the clients that can be reached, with the times at which they were started.

        In this class, every node is a client.
        """
        nodes = list_nodes(self.grid, seconds=within)
        if nodes is None:
            raise NotEnoughNodes(
                f"The SuperLink did not list the connected nodes within {max(within, 0.0):.3g} s. Check that it runs "
                f"and can be reached, or raise {option('node_timeout')}."
            )
        self._called = {node.node_id: node.name for node in nodes if node.name}
        return {node.node_id: node.last_activated_at for node in nodes}

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints about nodes that get no messages of the run."""
        return ()

    def nodes_for(self, message: Broadcast) -> list[int]:
        """Return the nodes to which a message is sent, in order."""
        return list(message.to)

    def answers_in(
        self, node: int, reply: Message | str, message: Broadcast, *, release: bool = False
    ) -> Iterable[Reply | Sum | Failure]:
        """Return the answers of a node's client or clients. `reply` is a message, or the reason for a missing reply."""
        return (self.read_answer(node, reply, message, release=release),)

    def answers_with_bytes(
        self, node: int, reply: Message | str, message: Broadcast, *, release: bool = False
    ) -> Iterator[Reply | Sum | Failure]:
        """Yield the answers of a node. The first answer counts the bytes of the node's message and reply.

        With `release`, large arrays are removed from the reply while they are read, because nobody else reads it.
        """
        up = 0 if isinstance(reply, str) or not reply.has_content() else records.size_of(reply.content)
        traffic = Traffic(self._sizes.pop(node, 0), up)
        answers = self.answers_in(node, reply, message, release=release)
        del reply
        if traffic.down + traffic.up > large.BYTES:
            large.release_memory()
        for answer in answers:
            yield with_traffic(answer, traffic)
            traffic = Traffic()

    def ask(self, message: Broadcast) -> Iterator[Reply | Sum | Failure]:
        """Yield the answers in the order of the nodes' keys, independently of the order of their arrival."""
        timeout = self.node_settings.round_timeout
        self.log_begin(message)
        self.log_sample(message)
        ordered = exchange(self.grid, self.nodes_for(message), self.message_maker(message), timeout=timeout)
        answers = self._read_in_turn(ordered, message)
        if all(node in self.keys for node in message.to):
            yield from answers
        else:  # Nodes send their keys with their first answers, so the order is known only after all answers.
            yield from self.in_order_of_keys(answers)

    def _read_in_turn(
        self, replies: Iterable[tuple[int, Message | str]], message: Broadcast
    ) -> Iterator[Reply | Sum | Failure]:
        """Yield the answers in these replies.

        Each reply is released before its answers are merged and before the next reply arrives.
        """
        for node, reply in replies:
            answers = self.answers_with_bytes(node, reply, message, release=True)
            del reply
            yield from answers

    def log_begin(self, message: Broadcast) -> None:
        """Log the beginning of a round, as Flower's own strategies do.

        The number of a closing round can exceed `num_rounds`.

        Raises
        ------
        StoppedError
            If the caller has stopped the run.
        """
        if self.stopped:
            raise StoppedError
        self.purpose = wire.message_kind(message.purpose)
        number = message.number + 1
        log(INFO, "")
        if number <= self.num_rounds:
            log(INFO, "[ROUND %d/%d]", number, self.num_rounds)
        else:
            log(INFO, "[ROUND %d]", number)

    def log_sample(self, message: Broadcast) -> None:
        """Log the number of nodes to which the message is sent, like Flower's strategies."""
        asked = len(self.nodes_for(message))
        log(INFO, "configure_%s: Sampled %d nodes (out of %d)", self.purpose, asked, self.connected)

    def send_and_receive(self, messages: Iterable[Message]) -> list[Message]:
        """Send the messages that a hook has returned, and return the replies that have arrived."""
        given = list(messages)
        self._unanswered = {}
        self._asked = {message.metadata.dst_node_id for message in given if is_pca_message(message)}
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

    def failures_from_hook(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Return the failures of a node whose reply a hook did not get, or did not pass on."""
        otherwise = _UNCOUNTED if node in self._asked else _UNASKED
        return self.answers_with_bytes(node, self._unanswered.get(node, otherwise[self.purpose]), message)

    def compose(self, message: Broadcast) -> list[Message]:
        """Return the messages of a round, which hooks can pass on."""
        made = list(map(self.message_maker(message), self.nodes_for(message)))
        self._composed = {each.metadata.dst_node_id: each for each in made}
        return made

    def failures_from_loop(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """Return the failures of a node from which Flower's loop has no reply.

        Flower assigns an id to a message when it sends the message. If other messages have an id and the node's
        message has none, a wrapper around the strategy has not sent the message.
        """
        sent = {to for to, each in self._composed.items() if each.metadata.message_id}
        why = _UNASKED[self.purpose] if sent and node not in sent else "no answer"
        return self.answers_with_bytes(node, why, message)

    def in_order_of_keys(self, answers: Iterable[Reply | Sum | Failure]) -> list[Reply | Sum | Failure]:
        """Return the answers in the order of the nodes' keys."""
        return sorted(answers, key=lambda a: self.sort_key(a.clients[0] if isinstance(a, Sum) else a.client))

    def sort_key(self, node: int) -> tuple[int, int]:
        """Return the sort key of a node: its lasting key, then its node id. Nodes without a known key come last."""
        return self.keys.get(node, _UNKNOWN), node

    def checkpoint_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state for a checkpoint: the run's name, the nodes' keys and names, and the nodes with a state."""
        keys, sites = ({str(node): value for node, value in of.items()} for of in (self.keys, self.sites))
        return {"name": self.name, "keys": keys, "sites": sites, "keepers": sorted(self._keepers)}, {}

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Restore the state that `checkpoint_state` returned, so that the run continues under its earlier name."""
        self.name = str(header["name"])
        self.keys = {int(node): key for node, key in header["keys"].items()}
        self.sites = {int(node): name for node, name in header["sites"].items()}
        self._keepers = set(header["keepers"])
        # Nodes with a key have answered before, so their processes can start.
        self._patience.speakers.update(self.lasting_keys)
        count = len(header.get("messages", header["history"]))
        log(INFO, "Continuing from %s after %d messages", self.checkpoint, count)

    def log_answers(self, record: Round) -> None:
        """Log the numbers of answers and failures, and the reason of each failure with the name of the node.

        Raises
        ------
        DataError
            If the nodes together report more rows than `max_rows` allows.
        """
        failures = len(record.failures)
        log(INFO, "aggregate_%s: Received %d results and %d failures", self.purpose, record.answered, failures)
        log(INFO, "\t└──> %s: %s", record.stage, record.words)
        for node, reason in record.failures.items():
            log(WARNING, "\t%s %s%s was left out: %s", self.noun, node, self._name_in_brackets(int(node)), reason)
        for node, note in record.notes.items():
            log(WARNING, "\t%s %s%s: %s", self.noun, node, self._name_in_brackets(int(node)), note)
        self._require_rows_of_all()

    def _name_in_brackets(self, node: int) -> str:
        """Return the name by which operators know a node, in brackets, or an empty string if it has no name.

        This is its site name, its partition-id, or the name under which it was registered.
        """
        key = self.lasting_keys.get(node)
        number = "" if key is None else f"partition-id {key}"
        called = self.sites.get(node) or number or self._called.get(node, "")
        if called:
            return f" ({safe_for_log(called)})"
        return ""

    def _wait_for_step(self, step: int) -> None:
        """Wait until a new step of a tracker is due."""
        if step != self._step:
            if self._step >= 0:
                time.sleep(max(0.0, self._began + self.node_settings.interval - time.monotonic()))
            self._step, self._began = step, time.monotonic()

    def message_maker(self, message: Broadcast) -> Callable[[int], Message]:
        """Return a function that takes a node and returns its message. Parts common to all nodes are created once."""
        kind = self.node_settings.message_type(wire.message_kind(message.stage))
        write = self.content_maker(message)
        ttl, group, sites = self.node_settings.round_timeout, str(message.number), len(self.nodes_for(message))

        def compose(node: int) -> Message:
            content = write(node)
            self._sizes[node] = records.size_of(content)
            self._log_memory(self._sizes[node], sites)
            return Message(content, node, kind, ttl=ttl, group_id=group)

        return compose

    def _log_memory(self, size: int, sites: int) -> None:
        """Log the memory that large messages need, once before the first one, with a warning if memory is low."""
        if self._memory_was_logged or size <= large.BYTES:
            return
        self._memory_was_logged = True
        free = memory.free_bytes()
        if free is None or memory.bytes_needed(size, sites) <= free / 2:
            log(INFO, "%s", memory.memory_in_words(size, sites))
            return
        log(WARNING, "%s", memory.memory_in_words(size, sites))
        log(
            WARNING,
            "The ServerApp needs more than half of the %.0f MB of free memory here. Use a machine with more memory.",
            free / 1e6,
        )

    def content_maker(self, message: Broadcast) -> Callable[[int], Content]:
        """Return a function that takes a node and returns the records of its message."""
        write: Callable[..., Content] = partial(wire.write_request, message, **self.common_keywords(message))
        if message.personal:
            return lambda node: write(node, layouts=self._layouts_of(node))
        common: dict[Sequence[str], Content] = {}
        left = set(self.nodes_for(message))

        def shared(node: int) -> Content:
            layouts = self._layouts_of(node)
            if layouts not in common:
                common[layouts] = write(message.to[0], layouts=layouts)
            content = common[layouts]
            left.discard(node)
            if not left:
                common.clear()  # This releases large blocks, which are no longer needed.
            return content

        return shared

    def _layouts_of(self, node: int) -> tuple[str, ...]:
        """Return the message layouts for a node. While it is unknown whether its app has a client_fn, use both."""
        if self.node_settings.action is not None:
            return (wire.MESSAGE_API,)  # An app with a client_fn has no actions.
        return self._layouts.get(node, wire.BOTH)

    def common_keywords(self, message: Broadcast) -> dict[str, Any]:
        """Return the keywords for `wire.write_request` that are the same for all nodes."""
        extra = self.configs.get(wire.message_kind(message.purpose), {})
        position = self.run.position
        asks: dict[str, Any] = {"asks_names": position.model.heading is None, "alternative": position.alternative}
        return {"algorithm": position.required_algorithms, "run": self.name, "extra": extra, **asks}

    def read_answer(
        self, node: int, reply: Message | str, message: Broadcast, *, release: bool = False
    ) -> Reply | Failure:
        """Return a node's answer to a message. `reply` is a message, or the reason for a missing reply."""
        # This key applies until the node sends its own key, so that the run does not wait for a node without a key.
        self.keys.setdefault(node, _UNKNOWN)
        if isinstance(reply, str) or reply.has_error():
            return self.failure_without_answer(node, reply)
        kind = kind_of(reply)
        layout = wire.layout_of_reply(reply.content, kind)
        if layout is not None:
            self._layouts[node] = (layout,)
        try:
            answer = wire.read_reply(reply.content, kind, release=release)
        except ProtocolError as error:
            return self.answer_or_failure(node, error, message)
        return self.answer_or_failure(node, answer, message)

    def failure_without_answer(self, node: int, reply: Message | str) -> Failure:
        """Return the failure of a client that has not answered, or for which Flower has sent an error.

        An error counts as a missing answer if it means that no process can answer.
        """
        if isinstance(reply, str) and reply in _UNASKED.values():
            return Failure(node, reply, unasked=True)
        self._layouts.pop(node, None)  # The node may return with another app.
        if isinstance(reply, str):
            if reply in _UNCOUNTED.values():
                return self._record_failure_of(node, reply)
            return self._record_failure_of(node, self._reason_of_silence(node, reply), silent=True)
        error = reply.error
        # Flower sends an error for a dead process, but only after the whole timeout.
        if error.code == _CRASHED:
            return self._record_failure_of(
                node, "the process of its ClientApp has died, possibly because it lacked memory", silent=True
            )
        if error.code in EXPIRED:
            waited = f"no answer within {self.node_settings.round_timeout:g} s"
            return self._record_failure_of(
                node, self._reason_of_silence(node, waited, "the process of its ClientApp may have died"), silent=True
            )
        lines = (error.reason or "").strip().splitlines() or ["no reason given"]
        if unanswerable := self._without_function(node, lines[-1]):
            self._strangers[node] = unanswerable
            return Failure(node, unanswerable, lasting=True)
        return self._record_failure_of(
            node, f"error {error.code}: {safe_for_log(lines[-1])}", silent=error.code == _GONE
        )

    def _unserved_error(self, connected: int) -> ConfigError:
        """Return the error for a run if too many nodes have no function for its messages."""
        return ConfigError(
            f"{len(self._strangers)} of {labels.count(connected, 'node')} have no function for this run, the first "
            f"because {next(iter(self._strangers.values()))}."
        )

    def _without_function(self, node: int, error: str) -> str | None:
        """Return the problem and remedy for a ClientApp without a function for this run, or None for other errors."""
        action = self.node_settings.action
        if action is not None and "Invalid message type" in error:
            return f"its ClientApp has a client_fn, so it has no actions. Leave action={action!r} out of the strategy"
        if _NO_FUNCTION not in error:
            return None
        if self._actions is None:
            self._actions = self._ask_for_actions(node)
        if self._actions is None:
            name = self.node_settings.message_type("train")
            return f"its ClientApp has no function {name!r}. Check the call of clients.register in this app"
        if not self._actions:
            wanted = repr(action or "pca")
            return (
                f"its ClientApp has no function of flower_pca. Call clients.register(app, load, action={wanted}) "
                f"in this app, and give the strategy action={wanted}"
            )
        if "default" in self._actions:
            return f"its ClientApp has PCA without an action. Leave action={action!r} out of the strategy"
        there, first = labels.join_with_and([repr(each) for each in self._actions]), repr(self._actions[0])
        actions = labels.pluralize(len(self._actions), "action")
        instead = f", not {action!r}" if action else ""
        return f"its ClientApp has PCA under the {actions} {there}{instead}. Give the strategy action={first}"

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

    def _reason_of_silence(self, node: int, why: str, otherwise: str = "") -> str:
        """Return the reason for a missing answer. If the node has never answered, the reason refers to its log."""
        if node not in self._patience.speakers:
            otherwise = _MUTE
        return ": ".join(filter(None, [why, otherwise]))

    def answer_or_failure(
        self, node: int, answer: wire.ClientAnswer | ProtocolError, message: Broadcast
    ) -> Reply | Failure:
        """Return a client's answer for the run, or a failure if the answer is a refusal or cannot be used."""
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
                # If nodes are asked again, other nodes may have accepted the start components before.
                if self._misfits.issuperset(message.to) and not self.run.roll.awaited:
                    raise ConfigError(answer.refusal)
            why = f"{answer.site}: {answer.refusal}" if answer.site else answer.refusal
            return self.failure_of_refusal(node, why, lasting=answer.lasting)
        if why := self._too_many_rows(answer.arrays):
            return Failure(node, why, lasting=True)
        # An answer to the set-up of masks does not show that the node can answer the later messages.
        if message.stage != messages.STAGE or messages.inner_stage(message.arrays) is not None:
            self._patience.record_answer(node, counts=self._is_past_opening)
        forgot = self._has_lost_state(node, answer, message)
        return Reply(node, answer.number, answer.arrays, answer.heading, answer.site, answer.declines, forgot)

    def _too_many_rows(self, arrays: Arrays) -> str:
        """Return the reason why an answer reports too many rows, or an empty string if `max_rows` allows them."""
        most = self.node_settings.max_rows
        # Steps of a tracker report the number of rows as `rows`, and all other stages as `n`.
        said = [arrays[name] for name in ("n", "rows") if name in arrays]
        if most is None or all(np.size(count) != 1 or count <= most for count in said):
            return ""
        return f"it reports {int(np.max(said)):,} rows, but max_rows allows {most:,}"

    def _require_rows_of_all(self) -> None:
        """Raise DataError if the nodes together report more rows than `max_rows` allows.

        Under masks or noise, only this sum is known.
        """
        most, found, members = self.node_settings.max_rows, self.run.position.model.n, len(self.run.roll.members)
        if most is not None and members and found > most * members:
            raise DataError(
                f"{labels.count(members, self.noun)} of this run together report {found:,} rows, but max_rows allows "
                f"only {most:,} each. Under masks or noise, the server cannot see which one reports too many. Ask the "
                f"operator of each for its number of rows, or raise the limit: {option('max_rows', found)}."
            )

    def _has_lost_state(self, node: int, answer: wire.ClientAnswer, message: Broadcast) -> bool:
        """Return whether a node has lost the state that it kept for the run. Also record whether it has one now."""
        if message.stage in (wire.EVALUATE, messages.STAGE):  # Answers of these stages do not report a state.
            return False
        forgot = node in self._keepers and not answer.recalls
        if answer.keeps:
            self._keepers.add(node)
        else:
            self._keepers.discard(node)
        return forgot

    def failure_of_refusal(self, node: int, why: str, *, lasting: bool) -> Failure:
        """Return the failure of a client that refuses a message. If `lasting`, the client is not asked again."""
        if lasting:
            return Failure(node, why, lasting=True)
        return self._record_failure_of(node, why)

    @property
    def site_names(self) -> dict[int, str]:
        """The site names of nodes, by lasting key, or by node id for nodes without a key."""
        return {self.lasting_keys.get(node, node): name for node, name in sorted(self.sites.items())}

    def site_fields(self) -> dict[str, Any]:
        """Return the fields `site_names` and `left_out` of a result.

        The first field names the nodes whose rows are in the result, and the second names the other nodes with
        reasons. If a node was left out and sends no name, the name under which it was registered is used.
        """
        there = self.run.roll.contributors
        registered = {node: name for node, name in self._called.items() if node in self.keys and node not in there}
        return site_fields(
            {**registered, **self.sites},
            self.keys,
            there,
            self.run.history,
            otherwise="it was no longer connected",
            keys=self.lasting_keys,
        )

    @property
    def lasting_keys(self) -> dict[int, int]:
        """The lasting keys of all nodes with a known key."""
        return {node: key for node, key in self.keys.items() if key != _UNKNOWN}

    def _record_failure_of(self, node: int, why: str, *, silent: bool = False) -> Failure:
        return Failure(
            node, why, lasting=self._patience.record_failure(node, silent=silent, counts=self._is_past_opening)
        )

    @property
    def _is_past_opening(self) -> bool:
        """Whether the run has an opening and is past it, so that the failure of a node may affect all other nodes."""
        position = self.run.position
        return position.opens and not position.is_opening


def is_pca_message(message: Message) -> bool:
    """Return whether a message to a node belongs to a run of this package."""
    return any(map(wire.is_request, message.content.config_records.values()))


def kind_of(message: Message) -> str:
    """Return the kind of a message, which is its Flower message type without the action."""
    return str(message.metadata.message_type).split(".")[0]
