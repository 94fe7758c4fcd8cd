"""Messages out, replies in: few in flight, polled often, never waiting for ever.

Flower's own send_and_receive polls every three seconds over real transport and, in simulation, slows down with the
square of the messages in flight; this loop keeps at most a window of them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from flwr.app import Message
from flwr.serverapp import Grid

_SHORTEST, _LONGEST, _GROWTH = 0.01, 0.3, 1.2  # seconds between two looks, growing while nothing arrives
WINDOW: Final = 32


def exchange(
    grid: Grid,
    nodes: Sequence[int],
    compose: Callable[[int], Message],
    *,
    timeout: float,
    window: int = WINDOW,
) -> Iterator[tuple[int, Message | str]]:
    """Ask every node, and yield (node, reply) in the order of `nodes`; instead of a reply, why there is none.

    At most `window` messages are in flight or waiting for their turn, so that no more replies are ever held. Each node
    has `timeout` seconds from when it is asked: one that is silent delays the others, but takes nothing from them. It
    is given up by a look that brings nothing: as long as replies come, its own may be among the next.
    """
    waiting = deque(nodes)
    sent: dict[str, int] = {}
    due: dict[int, float] = {}
    arrived: dict[int, Message | str] = {}
    for node in nodes:
        pause = _SHORTEST
        while node not in arrived:
            while waiting and len(sent) + len(arrived) < window:
                to = waiting.popleft()
                if identity := _push(grid, compose(to)):
                    sent[identity], due[to] = to, time.monotonic() + timeout
                else:
                    arrived[to] = "the message could not be sent"
            came = list(grid.pull_messages(list(sent))) if sent else []
            for reply in came:
                arrived[sent.pop(reply.metadata.reply_to_message_id)] = reply
            late = -math.inf if came else time.monotonic()
            for identity in [i for i, to in sent.items() if due[to] <= late]:
                arrived[sent.pop(identity)] = f"no answer within {timeout:g} s"
            if node not in arrived:
                pause = _SHORTEST if came else min(pause * _GROWTH, _LONGEST)
                time.sleep(pause)
        yield node, arrived.pop(node)


def _push(grid: Grid, message: Message) -> str | None:
    identities = [identity for identity in grid.push_messages([message]) if identity]
    return identities[0] if identities else None
