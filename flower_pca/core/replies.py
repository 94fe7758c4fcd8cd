"""The checks of an answer at the server: the right message, names, shapes and finite numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.core.kinds import Part, fault
from flower_pca.core.stage import Arrays, Broadcast, Reply


class UnawaitedError(ProtocolError):
    """An answer that nobody waits for. It is discarded, and its client is not blamed."""


def name_of(reply: Reply) -> str:
    """Name a client, with its site's name if it has one."""
    return title(reply.client, reply.site)


def declined_by(reply: Reply) -> str:
    """Say that a client declines the algorithm that the run may change to, and why."""
    if reply.declines:
        return f"{name_of(reply)}: {reply.declines}"
    return ""


def title(client: int, site: str) -> str:
    """Name a client by its number, and by its site if it has sent a name."""
    if site:
        return f"client {client} ({site})"
    return f"client {client}"


def telling(parts: Mapping[str, Part]) -> list[str]:
    """Return the parts of an answer that show the number of columns, if it is not known yet."""
    return [name for name, part in parts.items() if part.kind.by_column and part.open]


def columns_of(telling: Iterable[str], arrays: Arrays, d: int | None) -> int:
    """Return the number of columns of an answer, or 0 if neither the answer nor the run shows it."""
    for name in telling:
        if np.ndim(arrays.get(name, 0.0)) == 1:
            return len(arrays[name])
    return d or 0


def unusable(error: np.linalg.LinAlgError) -> DataError:
    """Describe sums that LAPACK cannot decompose."""
    return DataError(
        f"LAPACK fails on the sums of a round ({error}), because their numbers are too large or too small. Scale the "
        "data."
    )


def check(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, which names the client, unless this is its only answer to the message sent."""
    if reply.client not in sent.addressees:
        raise UnawaitedError(
            f"Client {reply.client} answered a message that it was not sent. Its answer was not counted."
        )
    if reply.number != sent.number:
        raise UnawaitedError(
            f"Client {reply.client} answered message {reply.number} when message {sent.number} was open. This late "
            "answer was not counted."
        )
    if reply.client in answered:
        raise UnawaitedError(f"Client {reply.client} answered twice. The second answer was not counted.")


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, which names the client, unless its answer has these parts, all finite."""
    if reply.arrays.keys() != expected.keys():
        got = ", ".join(sorted(reply.arrays)) or "nothing"
        raise ProtocolError(
            f"The answer of client {reply.client} has {got}, but should have {', '.join(sorted(expected))}. Install "
            "the same version of flower_pca everywhere."
        )
    if wrong := fault(reply.arrays, expected):
        name, rule, got = wrong
        raise ProtocolError(
            f"{name} in the answer of client {reply.client} must be {rule}, but {got}. Check the client's data."
        )
