"""Exchange of messages and replies over a grid, with few messages in flight, frequent polls and time limits.

Flower's send_and_receive polls every three seconds over a real transport. In a simulation, it slows down
with the square of the number of messages in flight. The loop in this module keeps only a limited number
of messages in flight. Over a network, Flower's calls retry for minutes. They are therefore made in a
separate thread, and the loop waits for them only as long as a message has time left.

The module logs to Flower's logger, so that the log of a run looks familiar to Flower's users.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from flwr.app import Message
from flwr.serverapp import Grid

from flower_pca.base import large
from flower_pca.base.errors import FlowerPCAError
from flower_pca.strategies import memory
from flower_pca.wire import records

_logger: Final = logging.getLogger("flwr")
log: Final = _logger.log


class _WithoutTraceback(logging.Filter):
    """A logging filter that logs errors of this package without a traceback.

    Flower logs the error that ends a ServerApp with a traceback of about 40 lines, most of which are about
    Flower's own code.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback from a log record of an error of this package, and accept the record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, FlowerPCAError):
            record.msg, record.args, record.exc_info, record.exc_text = "%s", (error.words,), None, None
        return True


_logger.addFilter(_WithoutTraceback())


# The pause between two polls grows from the shortest to the longest number of seconds while nothing arrives.
_SHORTEST, _LONGEST, _GROWTH = 0.01, 0.3, 1.2
# The minimum number of seconds that the loop waits for a call, because the SuperLink itself may be slow
_LEAST: Final = 1.0


def exchange(
    grid: Grid, nodes: Sequence[int], compose: Callable[[int], Message], *, timeout: float, window: int = memory.WINDOW
) -> Iterator[tuple[int, Message | str]]:
    """Send a message to every node, and yield (node, reply) in the order of `nodes`.

    If a node does not answer, the reason takes the place of its reply. At most `window` messages are in flight
    or have replies that wait for their turn, so memory holds at most this many replies. Each node has `timeout`
    seconds from the time when its message is sent. A silent node delays other nodes, but does not shorten their
    time. A node is given up if a poll begins after the node's time and returns no replies at all, because as long
    as replies arrive, the next poll may return the reply of this node. If the SuperLink does not answer for
    `timeout` seconds, the exchange ends, even for nodes whose messages have not been sent yet.

    The replies to large messages are fetched one at a time, so that the other replies stay at the SuperLink
    until their turn.
    """
    under_way = _ExchangeInFlight(grid, timeout)
    waiting = deque(nodes)
    try:
        for node in nodes:
            pause = _SHORTEST
            while node not in under_way.arrived:
                # While a call hangs, a new message would not be sent, but the node's time would already run.
                while waiting and under_way.load < window and not under_way.thread.is_busy:
                    to = waiting.popleft()
                    under_way.send(to, compose(to))
                    if under_way.large and not waiting:
                        large.release_memory()
                if under_way.collect_replies():
                    pause = _SHORTEST
                elif node not in under_way.arrived:
                    pause = min(pause * _GROWTH, _LONGEST)
                if under_way.is_cut_off:
                    under_way.give_up(waiting)
                    waiting.clear()
                if node not in under_way.arrived:
                    time.sleep(pause)
            yield node, under_way.arrived.pop(node)
    finally:
        # The thread must also end if the caller stops reading or if a call raises an error.
        under_way.thread.close()


def list_nodes(grid: Grid, *, seconds: float) -> list[Any] | None:
    """Return the nodes that the SuperLink lists, or None if it does not answer within `seconds` seconds."""
    thread, listed = _CallThread(), list[Any]()
    try:
        answered = thread.call_within(grid.get_nodes, listed.extend, within=max(seconds, _LEAST))
    finally:
        thread.close()
    if answered:
        return listed
    return None


class _ExchangeInFlight:
    """The messages of one exchange that are in flight, and the replies that wait for their turn.

    Parameters
    ----------
    grid : Grid
        The grid.
    timeout : float
        The number of seconds that each node has for its answer.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.thread = _CallThread()
        self.arrived: dict[int, Message | str] = {}
        self.large = False  # whether a message was large
        self._grid, self._timeout = grid, timeout
        self._sent: dict[str, int] = {}
        self._due: dict[int, float] = {}  # the time until which each node may answer

    @property
    def is_cut_off(self) -> bool:
        """Whether the SuperLink has not answered a call for the `timeout` seconds that a node has."""
        return self.thread.is_busy and time.monotonic() >= self.thread.heard + self._timeout

    @property
    def load(self) -> int:
        """The number of messages in flight, plus the number of replies that wait for their turn."""
        return len(self._due) + len(self.arrived)

    def send(self, node: int, message: Message) -> None:
        """Send a message to a node."""
        self._due[node] = time.monotonic() + self._timeout
        self.large = self.large or records.size_of(message.content) > large.BYTES
        self._call_and_wait(partial(self._grid.push_messages, [message]), partial(self._store_identity, node))

    def collect_replies(self) -> bool:
        """Collect the replies that have arrived, and return whether any replies have arrived.

        If none have arrived, give up the nodes whose time is over.
        """
        before, began = len(self._due), time.monotonic()
        polls = [[identity] for identity in self._sent] if self.large else [list(self._sent)]
        for identities in polls:
            answered = self._call_and_wait(partial(self._grid.pull_messages, identities), self._store_replies)
            if answered and len(self._due) < before:
                return True
            if not answered:
                break
        # A node's time is compared with the start of the poll, because a reply that arrives during the poll is
        # returned only by the next poll.
        self.give_up([node for node, due in self._due.items() if due <= began])
        return False

    def give_up(self, nodes: Iterable[int]) -> None:
        """Record that these nodes have no reply, and stop waiting for them."""
        why = f"no answer within {self._timeout:g} s"
        if self.thread.is_busy:
            why += ", because the SuperLink did not answer"
        for node in nodes:
            self._due.pop(node, None)
            self.arrived[node] = why

    def _call_and_wait(self, work: Callable[[], Iterable[Any]], use_result: Callable[[Iterable[Any]], None]) -> bool:
        """Make a call, wait for it until the time of the first node is over, and return whether it has returned."""
        until = min(self._due.values(), default=self.thread.heard + self._timeout)
        return self.thread.call_within(work, use_result, within=max(until - time.monotonic(), _LEAST))

    def _store_identity(self, node: int, identities: Iterable[str | None]) -> None:
        identity = next(filter(None, identities), None)
        if identity is not None:
            self._sent[identity] = node
        elif self._due.pop(node, None) is not None:
            self.arrived[node] = "the message could not be sent"

    def _store_replies(self, replies: Iterable[Message]) -> None:
        for reply in replies:
            node = self._sent.pop(reply.metadata.reply_to_message_id, None)
            # A node without an entry in `_due` was given up before.
            if node is not None and self._due.pop(node, None) is not None:
                self.arrived[node] = reply


class _CallThread:
    """A thread that calls the grid, one call at a time, so that the caller waits only for a limited time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Iterable[Any]] | None] = SimpleQueue()
        self._returned: SimpleQueue[list[Any] | BaseException] = SimpleQueue()
        # The function that receives the result of the current call
        self._then: Callable[[Iterable[Any]], None] | None = None
        self.heard = time.monotonic()  # the time at which the last call returned
        # The thread is a daemon, because a call may hang for minutes and must not delay the end of the process.
        threading.Thread(target=self._serve_calls, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a call has not returned yet."""
        return self._then is not None

    def call_within(
        self, call: Callable[[], Iterable[Any]], use_result: Callable[[Iterable[Any]], None], *, within: float
    ) -> bool:
        """Make a call, pass its result to `use_result`, and return whether this happened within `within` seconds.

        If the previous call is still running, wait for it first. If it does not return in time, the new call is not
        made.
        """
        if self._then is not None:
            began = time.monotonic()
            if not self._wait_for_call(within):
                return False
            # The time limit applies to both calls together, and the previous call has used some of the time.
            within = max(within - (time.monotonic() - began), 0.0)
        self._then = use_result
        self._calls.put(call)
        return self._wait_for_call(within)

    def close(self) -> None:
        """End the thread after its current call has returned."""
        self._calls.put(None)

    def _wait_for_call(self, within: float) -> bool:
        """Pass on the result of the current call, and return whether the call has ended within `within` seconds."""
        if self._then is None:
            return True
        try:
            returned = self._returned.get(timeout=within)
        except Empty:
            return False
        # Even if the call was late, its result is passed to its own function.
        then, self._then = self._then, None
        self.heard = time.monotonic()
        if isinstance(returned, BaseException):
            raise returned
        then(returned)
        return True

    def _serve_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._returned.put(list(call()))
            except BaseException as error:  # The main thread raises the error.
                self._returned.put(error)
