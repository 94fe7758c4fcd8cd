"""A run message by message, with what clients keep in between: for figures of a client's own state along the way.

The one file here that goes below the package's public face.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flower_pca import assembly
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.session import Session
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class Step:
    """A message, the run after it, and the clients' memories then."""

    message: Broadcast
    session: Session
    memories: list[Arrays]


def steps(algorithm: Algorithm[Any], shards: Sequence[Any], *, n_components: int, seed: int) -> Iterator[Step]:
    """All messages of a run in process; every client answers each."""
    session = assembly.session(algorithm, n_components=n_components, seed=seed)
    clients, memories = [LocalData(X) for X in shards], [Arrays() for _ in shards]
    while (message := session.pending(range(len(clients)))) is not None:
        replies = []
        for i in message.to:
            rows, arrays = clients[i].framed(message.frame), message.arrays_for(i)
            up, memories[i] = assembly.answer(message.stage, arrays, rows, memories[i])
            replies.append(Reply(i, message.number, up))
        session.advance(replies)
        yield Step(message, session, memories)
