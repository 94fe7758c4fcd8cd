"""Send messages and receive replies over a grid, with few messages in flight, frequent polls and time limits.

Flower's own send_and_receive polls every three seconds over a real transport, and in simulation slows
down with the square of the number of messages in flight. This loop keeps at most a window of them in
flight. Over a network, Flower's calls retry for minutes. So they are made in a thread of their own, and
awaited only as long as a message has time left.

The log is Flower's own logger, so that a run reads as Flower's users know it.
"""

from __future__ import annotations

import gc
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

from flower_pca.base.errors import FlowerPCAError
from flower_pca.strategies import memory
from flower_pca.wire import records

_logger: Final = logging.getLogger("flwr")
log: Final = _logger.log


class _SentenceAlone(logging.Filter):
    """A filter that prints an error of this package as its sentence alone.

    Flower logs the error that ends a ServerApp with a traceback of about 40 lines, most of which are Flower's own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback of an error of this package."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, FlowerPCAError):
            record.msg, record.args, record.exc_info, record.exc_text = "%s", (error.words,), None, None
        return True


_logger.addFilter(_SentenceAlone())


# Seconds between two polls, which grow while nothing arrives
_SHORTEST, _LONGEST, _GROWTH = 0.01, 0.3, 1.2
# Every poll may take at least this many seconds, because the server may be slow itself.
_LEAST: Final = 1.0


def exchange(
    grid: Grid, nodes: Sequence[int], compose: Callable[[int], Message], *, timeout: float, window: int = memory.WINDOW
) -> Iterator[tuple[int, Message | str]]:
    """Ask every node, and yield (node, reply) in the order of `nodes`, or the reason why there is no reply.

    At most `window` messages are in flight or waiting for their turn, so no more replies are in memory.
    Each node has `timeout` seconds from when it is asked. A silent node delays the others, but takes
    nothing from their time. It is given up by a poll that begins after its time and brings nothing,
    because as long as replies arrive, its own may be among the next ones. If the SuperLink does not
    answer for this long, the exchange ends, also for the nodes that are not asked yet.

    The replies to large messages are fetched one at a time, so that the others stay at the SuperLink
    until their turn.
    """
    under_way = _Exchange(grid, timeout)
    waiting = deque(nodes)
    try:
        for node in nodes:
            pause = _SHORTEST
            while node not in under_way.arrived:
                # While a call hangs, no message would leave, although the node's time would run.
                while waiting and under_way.load < window and not under_way.thread.busy:
                    to = waiting.popleft()
                    under_way.send(to, compose(to))
                    if under_way.large and not waiting:
                        gc.collect()  # Flower's records refer to themselves, so only this releases what was sent.
                if under_way.look():
                    pause = _SHORTEST
                elif node not in under_way.arrived:
                    pause = min(pause * _GROWTH, _LONGEST)
                if under_way.cut_off:
                    under_way.give_up(waiting)
                    waiting.clear()
                if node not in under_way.arrived:
                    time.sleep(pause)
            yield node, under_way.arrived.pop(node)
    finally:
        # This also runs if the caller stops reading or a call raises an error. Otherwise the thread would stay.
        under_way.thread.close()


def reach(grid: Grid, *, within: float) -> list[Any] | None:
    """Return the nodes that the SuperLink lists, or None if it has not answered within this many seconds."""
    thread, listed = _CallThread(), list[Any]()
    try:
        answered = thread.have_done(grid.get_nodes, listed.extend, within=max(within, _LEAST))
    finally:
        thread.close()
    if answered:
        return listed
    return None


class _Exchange:
    """The messages of one exchange: those in flight, and the replies that wait for their turn.

    Parameters
    ----------
    grid : Grid
        The grid.
    timeout : float
        The seconds that each node has.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.thread = _CallThread()
        self.arrived: dict[int, Message | str] = {}
        self.large = False  # whether a message was large
        self._grid, self._timeout = grid, timeout
        self._sent: dict[str, int] = {}
        self._due: dict[int, float] = {}  # until when each node may answer

    @property
    def cut_off(self) -> bool:
        """Whether the SuperLink has not answered for as long as a node may take."""
        return self.thread.busy and time.monotonic() >= self.thread.heard + self._timeout

    @property
    def load(self) -> int:
        """The number of messages in flight and of replies that wait."""
        return len(self._due) + len(self.arrived)

    def send(self, node: int, message: Message) -> None:
        """Ask a node."""
        self._due[node] = time.monotonic() + self._timeout
        self.large = self.large or records.size_of(message.content) > memory.LARGE
        self._call(partial(self._grid.push_messages, [message]), partial(self._note, node))

    def look(self) -> bool:
        """Take the replies that have arrived. If there are none, give up the nodes whose time is over.
        Return whether any came.
        """
        before, began = len(self._due), time.monotonic()
        polls = [list(self._sent)]
        if self.large:
            polls = [[identity] for identity in self._sent]
        for identities in polls:
            answered = self._call(partial(self._grid.pull_messages, identities), self._take)
            if answered and len(self._due) < before:
                return True
            if not answered:
                break
        # The time is that of the poll's beginning, because replies that arrive during the poll come with the
        # next one.
        self.give_up([node for node, due in self._due.items() if due <= began])
        return False

    def give_up(self, nodes: Iterable[int]) -> None:
        """Stop waiting for these nodes."""
        why = f"no answer within {self._timeout:g} s"
        if self.thread.busy:
            why += ", nor one of the SuperLink"
        for node in nodes:
            self._due.pop(node, None)
            self.arrived[node] = why

    def _call(self, work: Callable[[], Iterable[Any]], then: Callable[[Iterable[Any]], None]) -> bool:
        """Make a call, and wait for it until the first node's time is over. Return whether it has returned."""
        until = min(self._due.values(), default=self.thread.heard + self._timeout)
        return self.thread.have_done(work, then, within=max(until - time.monotonic(), _LEAST))

    def _note(self, node: int, identities: Iterable[str | None]) -> None:
        identity = next(filter(None, identities), None)
        if identity is not None:
            self._sent[identity] = node
        elif self._due.pop(node, None) is not None:
            self.arrived[node] = "the message could not be sent"

    def _take(self, replies: Iterable[Message]) -> None:
        for reply in replies:
            node = self._sent.pop(reply.metadata.reply_to_message_id, None)
            # otherwise, the node was given up before
            if node is not None and self._due.pop(node, None) is not None:
                self.arrived[node] = reply


class _CallThread:
    """A thread that calls the grid, one call at a time, so that the caller waits only for a limited time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Iterable[Any]] | None] = SimpleQueue()
        self._returned: SimpleQueue[list[Any] | BaseException] = SimpleQueue()
        # The function that takes the result of the present call
        self._then: Callable[[Iterable[Any]], None] | None = None
        self.heard = time.monotonic()  # when the last call returned
        # A call may hang for minutes, and must not delay the end of the process.
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call has not returned."""
        return self._then is not None

    def have_done(
        self, call: Callable[[], Iterable[Any]], then: Callable[[Iterable[Any]], None], *, within: float
    ) -> bool:
        """Make a call, and pass its result on. Return False if it, or the call before, has not returned in time."""
        if self._then is not None:
            began = time.monotonic()
            if not self._finish(within):
                return False
            # The call before has used some of the time, which limits both together.
            within = max(within - (time.monotonic() - began), 0.0)
        self._then = then
        self._calls.put(call)
        return self._finish(within)

    def close(self) -> None:
        """End the thread after its call has returned."""
        self._calls.put(None)

    def _finish(self, within: float) -> bool:
        """Pass on the result of the present call, if there is one. Return whether no call is left."""
        if self._then is None:
            return True
        try:
            returned = self._returned.get(timeout=within)
        except Empty:
            return False
        # The result of a late call also goes to the function that waits for it.
        then, self._then = self._then, None
        self.heard = time.monotonic()
        if isinstance(returned, BaseException):
            raise returned
        then(returned)
        return True

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._returned.put(list(call()))
            except BaseException as error:  # the error goes to the caller
                self._returned.put(error)
