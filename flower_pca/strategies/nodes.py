"""Nodes: those of a Flower grid as a transport, where messages are composed, sent and read.

Patience: which nodes that fail are asked again, and which are left out until they are back.

Two things in a row leave a node out: two silences, every one of which costs the timeout of a round;
and two failures of whatever kind at the work of a run, as each of them may send all others back to
the opening. To answer an opening, or the set-up of masks, is no sign that a node can do that work:
less memory is needed there. In a run without an opening, as of a tracker, a failure that comes at
once costs nobody anything, and does not count.

Whoever has said nothing at all in a run is known too: a node that has fallen silent is another
matter than one whose processes never begin.

A node that is left out so is asked again once it has been away, or has been started anew: Flower
says since when.
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
from flower_pca.strategies.waits import Waits
from flower_pca.wire import records
from flower_pca.wire.records import Content

_IN_A_ROW: Final = 2


@dataclass
class Patience:
    """How often nodes have failed in a row, and who is left out for it."""

    # nodes that have said anything: an answer, a refusal, an error
    speakers: set[int] = field(default_factory=set)
    _silences: dict[int, int] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)  # Nodes at the work of a run.
    # when those that are connected were started
    _since: Mapping[int, str] = field(default_factory=dict)
    # when those that are left out were started
    _left: dict[int, str] = field(default_factory=dict)
    # Nodes that have been disconnected since.
    _away: set[int] = field(default_factory=set)

    def fail(self, node: int, *, silent: bool, counts: bool) -> bool:
        """Whether a node is left out after a failure; `counts` if at the work of a run."""
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
        """A node has answered; `counts` where that was at the work of a run."""
        self.speakers.add(node)
        self._silences.pop(node, None)
        if counts:
            self._failures.pop(node, None)

    def back(self, connected: Mapping[int, str]) -> frozenset[int]:
        """Of those connected, and when they were started, the nodes that are to be asked again."""
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
        # A restart may fall between two looks: such a node has never been seen to be away.
        return node in self._away or self._since[node] != since


_POLL: Final = 0.2  # seconds between two looks for nodes
_FOR_ACTIONS: Final = 60.0  # seconds that a node may take to say which actions its app has
_NO_FUNCTION: Final = "function registered with name"  # Flower's error about a ClientApp contains these words.
# Flower's codes of errors where no answer will come, for want of a node
EXPIRED, _GONE, _CRASHED = (3, 4), 5, 8
_MUTE: Final = "it has answered no message of this run, and its own log says whether its processes begin"
# what hooks of a subclass have done with a node, by Flower's word for the stage
_UNASKED: Final = {kind: f"the strategy's own configure_{kind} has not asked it" for kind in ("train", wire.EVALUATE)}
_UNCOUNTED: Final = {kind: f"the strategy's own aggregate_{kind} has not counted its reply" for kind in _UNASKED}
_UNKNOWN: Final = 2**63  # a node's key before its first answer: after all partition ids


class StoppedError(Exception):
    """The run has a message to send, but the caller's should_stop has ended it."""


@dataclass
class Nodes:
    """The nodes of a grid, for one run.

    Sums are taken in the order of the nodes' lasting keys, which come with their first answers: so
    the result does not depend on who answers first.

    Parameters
    ----------
    grid : Grid
        The grid.
    run : Driven
        The run that they are asked for.
    waits : Waits
        How they are waited for.
    configs : dict
        What the caller has the nodes told beside our own, by the kind of the message.
    checkpoint : path or None, default=None
        Where the run is kept, for the log.
    """

    kind: ClassVar[str] = "server checkpoint"
    noun: ClassVar[str] = "node"  # what logs call a client

    grid: Grid
    run: Driven
    waits: Waits
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    checkpoint: Path | None = None
    num_rounds: int = 0  # The most rounds, for the log. 0 if the caller has not said.
    # The name of the run, by which nodes tell its memory from another's.
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    keys: dict[int, int] = field(default_factory=dict)
    # names of nodes, of those that tell theirs
    sites: dict[int, str] = field(default_factory=dict)
    # nodes that have said that they keep something of the run
    _keepers: set[int] = field(default_factory=set)
    # Nodes that were registered with a name.
    _called: dict[int, str] = field(default_factory=dict)
    _patience: Patience = field(default_factory=Patience)
    _layouts: dict[int, tuple[str, ...]] = field(default_factory=dict)  # The columns of nodes that have answered.
    _said_memory: bool = False  # whether the log says what large messages take
    _sizes: dict[int, int] = field(default_factory=dict)  # the bytes of the newest message to each node
    stopped: bool = False  # whether the caller wants no further message to be sent
    connected: int = 0  # how many clients could be reached before the newest message
    _unanswered: dict[int, str] = field(default_factory=dict)  # why a node that was asked has not answered
    _asked: set[int] = field(default_factory=set)  # nodes that a hook has let have our message
    _misfits: set[int] = field(default_factory=set)  # nodes whose columns are not those that the run starts from
    _strangers: dict[int, str] = field(default_factory=dict)  # nodes without a function for this run, and what to do
    _actions: list[str] | None = None  # under which the first of them has PCA, once it was asked
    # The messages for a loop of Flower's, which sends them.
    _composed: dict[int, Message] = field(default_factory=dict)
    purpose: str = "train"  # Flower's word for the stage that the message under way is sent for.
    remarks: list[str] = field(default_factory=list)  # what readers of the result should know of hooks
    _step: int = -1  # the tracker's step that was begun last
    _began: float = 0.0

    def present(self) -> list[int]:
        """The nodes that can be asked now, in the order of keys; waits until there are enough.

        It does not wait where all that are connected are left out: the run then says why.
        """
        if self.run.is_finished:
            return []
        if self.waits.interval:
            self._pace(self.run.standing.state.step)
        least, deadline = self.waits.min_nodes, time.monotonic() + self.waits.node_timeout
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
                    f"Only {len(connected)} of at least {least} nodes are connected after {self.waits.node_timeout:g} "
                    f"s. Start more nodes, or lower {option('min_nodes')}."
                )
            time.sleep(min(_POLL, max(deadline - time.monotonic(), 0.0)))

    def reachable(self, *, within: float) -> dict[int, str]:
        """The clients that can be reached, and when they were started: the nodes themselves."""
        nodes = reach(self.grid, within=within)
        if nodes is None:
            raise NotEnoughNodes(
                f"The SuperLink has not said within {max(within, 0.0):.3g} s which nodes are connected. Look whether "
                f"it runs and can be reached, or raise {option('node_timeout')}."
            )
        self._called = {node.node_id: node.name for node in nodes if node.name}
        return {node.node_id: node.last_activated_at for node in nodes}

    @property
    def hints(self) -> tuple[str, ...]:
        """What readers of the result should know of nodes that are in no message of it."""
        return ()

    def carriers(self, message: Broadcast) -> list[int]:
        """The nodes to ask for the answers to a message, in the order of these."""
        return list(message.to)

    def answers(self, node: int, reply: Message | str, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """What a node says for its client, or clients; `reply` may be why there is nothing."""
        return (self.read(node, reply, message),)

    def counted(self, node: int, reply: Message | str, message: Broadcast) -> Iterator[Reply | Sum | Failure]:
        """The answers of a node. The first of them says how many bytes its message and its reply took."""
        up = 0 if isinstance(reply, str) or not reply.has_content() else records.size_of(reply.content)
        traffic = Traffic(self._sizes.pop(node, 0), up)
        answers = self.answers(node, reply, message)
        del reply
        if traffic.down + traffic.up > memory.LARGE:
            # Flower's records refer to themselves, so their bytes stay until Python looks for such circles. It may take
            # many messages until it does so by itself.
            gc.collect()
        for answer in answers:
            yield carried(answer, traffic)
            traffic = Traffic()

    def ask(self, message: Broadcast) -> Iterator[Reply | Sum | Failure]:
        """Answers in the order of the nodes' keys, whatever the order they came in."""
        timeout = self.waits.round_timeout
        self.begin(message)
        self.log_sample(message)
        ordered = exchange(self.grid, self.carriers(message), self.composer(message), timeout=timeout)
        answers = self._read_in_turn(ordered, message)
        if all(node in self.keys for node in message.to):
            yield from answers
        else:  # keys come with the first answer, so these wait for one another
            yield from self.in_order(answers)

    def _read_in_turn(
        self, replies: Iterable[tuple[int, Message | str]], message: Broadcast
    ) -> Iterator[Reply | Sum | Failure]:
        """The answers in these replies. No reply is held while an answer in it is merged, or the next one awaited."""
        for node, reply in replies:
            answers = self.counted(node, reply, message)
            del reply
            yield from answers

    def begin(self, message: Broadcast) -> None:
        """Log that a round begins, as Flower's own strategies do. A closing round may follow those of `num_rounds`.

        Raises
        ------
        StoppedError
            If the caller wants no further message to be sent.
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
        """Log how many nodes are asked, likewise."""
        asked = len(self.carriers(message))
        log(INFO, "configure_%s: Sampled %d nodes (out of %d)", wire.kind(message.purpose), asked, self.connected)

    def deliver(self, messages: Iterable[Message]) -> list[Message]:
        """Send messages that a hook has returned, and return the replies that have come."""
        given = list(messages)
        self._unanswered = {}
        self._asked = {message.metadata.dst_node_id for message in given if is_ours(message)}
        for message in given:
            self._sizes[message.metadata.dst_node_id] = records.size_of(message.content)
        if not given:
            return []
        came = list[Message]()
        timeout = self.waits.round_timeout
        for place, reply in exchange(self.grid, range(len(given)), given.__getitem__, timeout=timeout):
            if isinstance(reply, str):
                self._unanswered[given[place].metadata.dst_node_id] = reply
            else:
                came.append(reply)
        return came

    def missing(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """What stands for the answers of a node whose reply a hook was not given, or has not handed on."""
        otherwise = _UNCOUNTED if node in self._asked else _UNASKED
        return self.counted(node, self._unanswered.get(node, otherwise[self.purpose]), message)

    def compose(self, message: Broadcast) -> list[Message]:
        """The messages of a round, for hooks to hand on."""
        made = list(map(self.composer(message), self.carriers(message)))
        self._composed = {each.metadata.dst_node_id: each for each in made}
        return made

    def missing_in_loop(self, node: int, message: Broadcast) -> Iterable[Reply | Sum | Failure]:
        """What stands for the answers of a node of which a loop of Flower's has no reply.

        Flower gives a message an identity when it is sent. If it has done so with others, then somebody around the
        strategy has not let this one be sent.
        """
        sent = {to for to, each in self._composed.items() if each.metadata.message_id}
        why = _UNASKED[self.purpose] if sent and node not in sent else "no answer"
        return self.counted(node, why, message)

    def in_order(self, answers: Iterable[Reply | Sum | Failure]) -> list[Reply | Sum | Failure]:
        """In the order of the nodes' keys."""
        return sorted(answers, key=lambda a: self.order(a.clients[0] if isinstance(a, Sum) else a.client))

    def order(self, node: int) -> tuple[int, int]:
        """By key; nodes whose key is not known yet come last, by their own number."""
        return self.keys.get(node, _UNKNOWN), node

    def keep(self) -> tuple[dict[str, Any], Arrays]:
        """The name of the run, the nodes' keys and names, and which of them keep something."""
        keys, sites = ({str(node): value for node, value in of.items()} for of in (self.keys, self.sites))
        return {"name": self.name, "keys": keys, "sites": sites, "keepers": sorted(self._keepers)}, {}

    def resume(self, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Go on as the run of that name."""
        self.name = str(header["name"])
        self.keys = {int(node): key for node, key in header["keys"].items()}
        self.sites = {int(node): name for node, name in header["sites"].items()}
        self._keepers = set(header["keepers"])
        # A key has come with an answer, so these have begun, whatever they say from here on.
        self._patience.speakers.update(self.lasting_keys)
        count = len(header.get("messages", header["history"]))
        log(INFO, "Going on from %s after %d messages", self.checkpoint, count)

    def report(self, record: Round) -> None:
        """Log what a message came to; nodes are named as their operators know them.

        Raises
        ------
        DataError
            If their sum is one of more rows than they may have.
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
        """What operators know a node by: what it has said, or else how it was registered."""
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
                time.sleep(max(0.0, self._began + self.waits.interval - time.monotonic()))
            self._step, self._began = step, time.monotonic()

    def composer(self, message: Broadcast) -> Callable[[int], Message]:
        """From a node to its message. What all nodes get alike is written once."""
        kind = self.waits.message_type(wire.kind(message.stage))
        write = self.writer(message)
        ttl, group = self.waits.round_timeout, str(message.number)

        def compose(node: int) -> Message:
            content = write(node)
            self._sizes[node] = records.size_of(content)
            self._say_memory(self._sizes[node], len(self.carriers(message)))
            return Message(content, node, kind, ttl=ttl, group_id=group)

        return compose

    def _say_memory(self, size: int, sites: int) -> None:
        """Say once, before the first large message, what such messages take; as a warning if there is little memory."""
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
        """From a node to the records of its message."""
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
                common.clear()  # large blocks, which nobody is sent any more
            return content

        return shared

    def _layouts_of(self, node: int) -> tuple[str, ...]:
        """The layouts for a node: both as long as nobody knows whether its app has a client_fn."""
        if self.waits.action is not None:
            return (wire.MESSAGE_API,)  # a client_fn knows no actions
        return self._layouts.get(node, wire.BOTH)

    def terms(self, message: Broadcast) -> dict[str, Any]:
        """What nodes are told beside a message itself."""
        extra = self.configs.get(wire.kind(message.purpose), {})
        standing = self.run.standing
        asks: dict[str, Any] = {"asks_names": standing.model.heading is None, "alternative": standing.alternative}
        return {"algorithm": standing.service, "run": self.name, "extra": extra, **asks}

    def read(self, node: int, reply: Message | str, message: Broadcast) -> Reply | Failure:
        """A node's answer to a message; `reply` may be why there is none."""
        # The key holds until the node says its own, so that nobody waits for a node that never does.
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
        """The failure of a client without an answer: of one that is silent, or of Flower's error in its place.

        Some errors mean that nobody is there to answer: that is silence.
        """
        if isinstance(reply, str) and reply in _UNASKED.values():
            return Failure(node, reply, unasked=True)
        self._layouts.pop(node, None)  # it may come back with another app
        if isinstance(reply, str):
            if reply in _UNCOUNTED.values():
                return self._fail(node, reply)
            return self._fail(node, self._silence(node, reply), silent=True)
        error = reply.error
        # Flower answers in place of a dead process, but late: each time costs the whole timeout.
        if error.code == _CRASHED:
            return self._fail(node, "the process of its ClientApp has died: it may lack memory", silent=True)
        if error.code in EXPIRED:
            waited = f"no answer within {self.waits.round_timeout:g} s"
            return self._fail(
                node, self._silence(node, waited, "the process of its ClientApp may have died"), silent=True
            )
        lines = (error.reason or "").strip().splitlines() or ["no reason given"]
        if unanswerable := self._without_function(node, lines[-1]):
            self._strangers[node] = unanswerable
            return Failure(node, unanswerable, lasting=True)
        return self._fail(node, f"error {error.code}: {harmless(lines[-1])}", silent=error.code == _GONE)

    def _unserved(self, connected: int) -> ConfigError:
        """The error of a run that the apps of too many nodes know nothing of."""
        return ConfigError(
            f"{len(self._strangers)} of {labels.count(connected, 'node')} have no function for this run, the first "
            f"because {next(iter(self._strangers.values()))}."
        )

    def _without_function(self, node: int, error: str) -> str | None:
        """What to do about a ClientApp that has no function for the messages of this run; None if that is not it."""
        action = self.waits.action
        if action is not None and "Invalid message type" in error:
            return f"its ClientApp has a client_fn, which knows no actions. Leave action={action!r} out of the strategy"
        if _NO_FUNCTION not in error:
            return None
        if self._actions is None:
            self._actions = self._ask_for_actions(node)
        if self._actions is None:
            return f"its ClientApp has no function {self.waits.message_type('train')!r}. Look at its clients.register"
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
            found = f"has PCA under the actions {there}" + (f", and {action!r} is none of them" if action else "")
        else:
            found = f"has PCA under the action {there}" + (f", not {action!r}" if action else "")
        return f"its ClientApp {found}. Give the strategy action={first}"

    def _ask_for_actions(self, node: int) -> list[str] | None:
        """Under which actions a node's app has PCA; None if it does not say."""
        content = wire.write_directory_query(self.run.history.count + 1)
        timeout = min(self.waits.round_timeout, _FOR_ACTIONS)

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
        """What is said of a silent node: one that has never spoken may not even begin."""
        if node not in self._patience.speakers:
            otherwise = _MUTE
        return ": ".join(filter(None, [why, otherwise]))

    def take(self, node: int, answer: wire.Answer | ProtocolError, message: Broadcast) -> Reply | Failure:
        """A client's answer to a message as the run gets it, once read, or what is wrong with it."""
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
                # Whoever is awaited may be the only one that does not fit.
                if self._misfits.issuperset(message.to) and not self.run.roll.awaited:
                    raise ConfigError(answer.refusal)
            why = f"{answer.site}: {answer.refusal}" if answer.site else answer.refusal
            return self.refuse(node, why, lasting=answer.lasting)
        if why := self._too_many_rows(answer.arrays):
            return Failure(node, why, lasting=True)
        # a set-up of masks is none of a run's work
        if message.stage != messages.STAGE or messages.inner_stage(message.arrays) is not None:
            self._patience.hear(node, counts=self._works)
        forgot = self._forgot(node, answer, message)
        return Reply(node, answer.number, answer.arrays, answer.heading, answer.site, answer.declines, forgot)

    def _too_many_rows(self, arrays: Arrays) -> str:
        """What is wrong with an answer of more rows than a node may have: "" if nothing is, or no answer says it."""
        most = self.waits.max_rows
        # Each step of a tracker says how many rows have come as `rows`, every other stage as `n`.
        said = [arrays[name] for name in ("n", "rows") if name in arrays]
        if most is None or all(np.size(count) != 1 or count <= most for count in said):
            return ""
        return f"it says that it has {int(np.max(said)):,} rows, and max_rows allows {most:,}"

    def _require_rows_of_all(self) -> None:
        """Refuse a sum of more rows than the nodes in it may have together: nobody can say who has claimed too many."""
        most, found, members = self.waits.max_rows, self.run.standing.model.n, len(self.run.roll.members)
        if most is not None and members and found > most * members:
            raise DataError(
                f"{labels.count(members, self.noun)} of this run have {found:,} rows together, by what they say. "
                f"max_rows allows {most:,} each. Under masks or noise nobody can say who claims too many. Ask the "
                f"operator of each for its number of rows, or raise the limit: {option('max_rows', found)}."
            )

    def _forgot(self, node: int, answer: wire.Answer, message: Broadcast) -> bool:
        """Whether a node has answered without what it had said that it keeps."""
        if message.stage in (wire.EVALUATE, messages.STAGE):  # these say nothing of it
            return False
        forgot = node in self._keepers and not answer.recalls
        if answer.keeps:
            self._keepers.add(node)
        else:
            self._keepers.discard(node)
        return forgot

    def refuse(self, node: int, why: str, *, lasting: bool) -> Failure:
        """The failure of a client that refuses a message, for good if a rule of its own says so."""
        if lasting:
            return Failure(node, why, lasting=True)
        return self._fail(node, why)

    @property
    def site_names(self) -> dict[int, str]:
        """The names of nodes by key, or by node where there is none."""
        return {self.lasting_keys.get(node, node): name for node, name in sorted(self.sites.items())}

    def of_sites(self) -> dict[str, Any]:
        """The fields `site_names` and `left_out` of a result: nodes whose rows are in it, and the others with reasons.

        A node that does not tell its name is called as it was registered, if it was left out.
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
        """Whether the message under way is of the work of a run with an opening: a failure there costs the others."""
        standing = self.run.standing
        return standing.opens and not standing.opening


def is_ours(message: Message) -> bool:
    """Whether a message to a node asks for a step of a run of this package."""
    return any(map(wire.is_request, message.content.config_records.values()))


def kind_of(message: Message) -> str:
    """The kind of a message, whatever its action."""
    return str(message.metadata.message_type).split(".")[0]
