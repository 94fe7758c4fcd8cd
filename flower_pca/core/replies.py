"""The server's checks of an answer: it must belong to the message, and have the right names, shapes and numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.core.kinds import Part, first_fault
from flower_pca.core.stage import Arrays, Broadcast, Reply


class UnawaitedError(ProtocolError):
    """The error for an answer that the run does not expect. The run discards the answer, but keeps the client."""


def name_of(reply: Reply) -> str:
    """Return the name of a client in errors and logs: its number, with its site's name if it has sent one."""
    return client_title(reply.client, reply.site)


def declined_by(reply: Reply) -> str:
    """Return the client's name and its reason if the client declines the alternative algorithm, or ""."""
    if reply.declines:
        return f"{name_of(reply)}: {reply.declines}"
    return ""


def client_title(client: int, site: str) -> str:
    """Return the name of a client in messages: its number, with the name of its site in parentheses if not empty."""
    if site:
        return f"client {client} ({site})"
    return f"client {client}"


def names_showing_columns(parts: Mapping[str, Part]) -> list[str]:
    """Return the names of the arrays in an answer that show the number of columns by their length."""
    return [name for name, part in parts.items() if part.kind.by_column and part.open]


def columns_of(names: Iterable[str], arrays: Arrays, d: int | None) -> int:
    """Return the number of columns of a client's rows, or 0 if neither the answer nor the run determines it.

    The arrays named in `names` have one entry for each column.
    """
    for name in names:
        if np.ndim(arrays.get(name, 0.0)) == 1:
            return len(arrays[name])
    return d or 0


def unusable_sums_error(error: np.linalg.LinAlgError) -> DataError:
    """Return the error for sums that LAPACK cannot decompose."""
    return DataError(
        f"LAPACK fails on the sums of a round ({error}), because their numbers are too large or too small. Rescale "
        "the data."
    )


def check_first_reply(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is the client's first answer to the message `sent`."""
    if reply.client not in sent.addressees:
        raise UnawaitedError(
            f"Client {reply.client} answered a message that it was not sent. Its answer was not counted."
        )
    if reply.number != sent.number:
        raise UnawaitedError(
            f"Client {reply.client} answered message {reply.number} while the run was waiting for answers to message "
            f"{sent.number}. This late answer was not counted."
        )
    if reply.client in answered:
        raise UnawaitedError(f"Client {reply.client} answered twice. The second answer was not counted.")


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, naming the client, unless its answer has exactly these arrays with finite numbers."""
    if reply.arrays.keys() != expected.keys():
        got = ", ".join(sorted(reply.arrays)) or "nothing"
        raise ProtocolError(
            f"The answer of client {reply.client} has {got}, but should have {', '.join(sorted(expected))}. Install "
            "the same version of flower_pca everywhere."
        )
    if wrong := first_fault(reply.arrays, expected):
        name, rule, got = wrong
        raise ProtocolError(
            f"{name} in the answer of client {reply.client} must be {rule}, but {got}. Check the client's data."
        )
