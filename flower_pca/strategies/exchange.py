"""Messages out, replies in: few in flight, polled often, never waiting for ever.

Flower's own send_and_receive polls every three seconds over real transport and, in simulation,
slows down with the square of the messages in flight; this loop keeps at most a window of them.
Flower's calls over a network try again and again for minutes. So they are made in a thread of their
own, and waited for as long as a message has time left.

Flower's own logger, so that a run reads as Flower's users know it.
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

from flower_pca.base.errors import FlowerPCAError

_logger: Final = logging.getLogger("flwr")
log: Final = _logger.log


class _SentenceAlone(logging.Filter):
    """Has Flower's logger print an error of this package as its sentence alone.

    Flower logs the error that ends a ServerApp with a traceback of some 40 lines, its own for the most part.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the traceback of such an error away."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, FlowerPCAError):
            record.msg, record.args, record.exc_info, record.exc_text = "%s", (error.words,), None, None
        return True


_logger.addFilter(_SentenceAlone())


# seconds between two looks, growing while nothing arrives
_SHORTEST, _LONGEST, _GROWTH = 0.01, 0.3, 1.2
# Flower's engine looks through all pending messages for every node: with more it is slower.
WINDOW: Final = 32
# seconds that a look may take, however late it is: a server that is slow itself takes one too
_LEAST: Final = 1.0


def exchange(
    grid: Grid, nodes: Sequence[int], compose: Callable[[int], Message], *, timeout: float, window: int = WINDOW
) -> Iterator[tuple[int, Message | str]]:
    """Ask every node, and yield (node, reply) in the order of `nodes`, or why there is none.

    At most `window` messages are in flight or waiting for their turn, so that no more replies are
    ever held. Each node has `timeout` seconds from when it is asked: one that is silent delays the
    others, but takes nothing from them. It is given up by a look that begins after them and brings
    nothing: as long as replies come, its own may be among the next. A SuperLink that has not
    answered for so long ends the exchange, for those too that are not asked yet.
    """
    under_way = _Exchange(grid, timeout)
    waiting = deque(nodes)
    try:
        for node in nodes:
            pause = _SHORTEST
            while node not in under_way.arrived:
                # While a call hangs no message would leave, and its node's time would run already.
                while waiting and under_way.load < window and not under_way.thread.busy:
                    to = waiting.popleft()
                    under_way.send(to, compose(to))
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
        # Also where the caller reads on no more, or a call has raised: else the thread would stay.
        under_way.thread.close()


def reach(grid: Grid, *, within: float) -> list[Any] | None:
    """The nodes that the SuperLink lists; None where it has not answered within so many seconds."""
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
        Seconds that a node has.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.thread = _CallThread()
        self.arrived: dict[int, Message | str] = {}
        self._grid, self._timeout = grid, timeout
        self._sent: dict[str, int] = {}
        self._due: dict[int, float] = {}  # Until when each node may answer.

    @property
    def cut_off(self) -> bool:
        """Whether the SuperLink has not answered for as long as a node may take."""
        return self.thread.busy and time.monotonic() >= self.thread.heard + self._timeout

    @property
    def load(self) -> int:
        """Messages in flight, and replies that wait."""
        return len(self._due) + len(self.arrived)

    def send(self, node: int, message: Message) -> None:
        """Ask a node."""
        self._due[node] = time.monotonic() + self._timeout
        self._call(partial(self._grid.push_messages, [message]), partial(self._note, node))

    def look(self) -> bool:
        """Take the replies that have come; if none has, give up the nodes whose time was over. Whether any came."""
        before, began = len(self._due), time.monotonic()
        answered = self._call(partial(self._grid.pull_messages, list(self._sent)), self._take)
        if answered and len(self._due) < before:
            return True
        # By when the look began: what came while it went on is there for the next one only.
        self.give_up([node for node, due in self._due.items() if due <= began])
        return False

    def give_up(self, nodes: Iterable[int]) -> None:
        """Wait for these nodes no longer."""
        why = f"no answer within {self._timeout:g} s"
        if self.thread.busy:
            why += ", nor one of the SuperLink"
        for node in nodes:
            self._due.pop(node, None)
            self.arrived[node] = why

    def _call(self, work: Callable[[], Iterable[Any]], then: Callable[[Iterable[Any]], None]) -> bool:
        """Make a call, and wait for it until the node's time is over; whether it has returned."""
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
            # Otherwise the node was given up before.
            if node is not None and self._due.pop(node, None) is not None:
                self.arrived[node] = reply


class _CallThread:
    """A thread that calls the grid, one call at a time, so that nobody waits for a call for longer than is said."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Iterable[Any]] | None] = SimpleQueue()
        self._returned: SimpleQueue[list[Any] | BaseException] = SimpleQueue()
        # What follows the call that is under way.
        self._then: Callable[[Iterable[Any]], None] | None = None
        self.heard = time.monotonic()  # when a call has last returned
        # A call may hang for minutes, and the end of the process shall not wait for it.
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call has not returned."""
        return self._then is not None

    def have_done(
        self, call: Callable[[], Iterable[Any]], then: Callable[[Iterable[Any]], None], *, within: float
    ) -> bool:
        """Make a call, and hand over what it returns; False if it, or the one before, has not returned by then."""
        if self._then is not None:
            began = time.monotonic()
            if not self._finish(within):
                return False
            # The call before has taken some of the time: both together may take no more.
            within = max(within - (time.monotonic() - began), 0.0)
        self._then = then
        self._calls.put(call)
        return self._finish(within)

    def close(self) -> None:
        """Let the thread end, once its call has returned."""
        self._calls.put(None)

    def _finish(self, within: float) -> bool:
        """Hand over what the call under way returns, if there is one; whether none is left."""
        if self._then is None:
            return True
        try:
            returned = self._returned.get(timeout=within)
        except Empty:
            return False
        # What a late call brings counts too: it goes to whoever has asked for that call.
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
            except BaseException as error:  # The error goes to whoever has asked for the call.
                self._returned.put(error)
