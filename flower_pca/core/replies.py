"""What the server accepts as an answer: the right message, names, shapes, and finite numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.core.kinds import Part, fault
from flower_pca.core.stage import Arrays, Broadcast, Reply


class UnawaitedError(ProtocolError):
    """An answer that nobody waits for: discarded, and not held against its client."""


def name_of(reply: Reply) -> str:
    """A client, by its own name too if it has one."""
    return title(reply.client, reply.site)


def declined_by(reply: Reply) -> str:
    """That a client declines what the run may go on with instead, and why."""
    if reply.declines:
        return f"{name_of(reply)}: {reply.declines}"
    return ""


def title(client: int, site: str) -> str:
    """A client by its number, and by the name of its site if it has told one."""
    if site:
        return f"client {client} ({site})"
    return f"client {client}"


def telling(parts: Mapping[str, Part]) -> list[str]:
    """The parts of an answer as long as its columns are many, where that is not known yet."""
    return [name for name, part in parts.items() if part.kind.by_column and part.open]


def columns_of(telling: Iterable[str], arrays: Arrays, d: int | None) -> int:
    """How many columns an answer speaks of; 0 where neither it nor the run says so."""
    for name in telling:
        if np.ndim(arrays.get(name, 0.0)) == 1:
            return len(arrays[name])
    return d or 0


def unusable(error: np.linalg.LinAlgError) -> DataError:
    """What to say of sums of which LAPACK cannot make anything."""
    return DataError(
        f"LAPACK fails on the sums of a round ({error}): their numbers are too large or too small. Scale the data."
    )


def check(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    if reply.client not in sent.addressees:
        raise UnawaitedError(
            f"Client {reply.client} answered a message that it was not sent. Its answer was not counted."
        )
    if reply.number != sent.number:
        raise UnawaitedError(
            f"Client {reply.client} answered message {reply.number} when message {sent.number} was open. Its answer "
            "came late, and was not counted."
        )
    if reply.client in answered:
        raise UnawaitedError(f"Client {reply.client} answered twice. The second answer was not counted.")


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, naming the client, unless its answer is these parts, all finite."""
    if reply.arrays.keys() != expected.keys():
        got = ", ".join(sorted(reply.arrays)) or "nothing"
        raise ProtocolError(
            f"The answer of client {reply.client} has {got}, and should have {', '.join(sorted(expected))}. Install "
            "the same flower_pca everywhere."
        )
    if wrong := fault(reply.arrays, expected):
        name, rule, got = wrong
        raise ProtocolError(
            f"{name} in the answer of client {reply.client} must be {rule}. Got {got}. Check the client's data."
        )
