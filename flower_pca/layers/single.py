"""Numbers that differ by client, in a message that is the same for all clients, as masks require.

A number that differs by client is sent as a table. The first entry of the table is for all clients that
are not named. One entry for each named client follows. Named clients are identified by their position or
by the digest of their site's name. A stage adds the table to its arrays (`table_arrays`), and the layer sends it
separately from these arrays. Every client replaces the table by the client's own number before the stage
reads the message.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.core.kinds import Message
from flower_pca.core.layer import ClientIdentity, Layer, Work
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import SINGLE

OTHERS: Final = "others"  # the key of the number for clients that are not named
NumbersByClient: TypeAlias = Mapping[int | str, int]

_POSITIONS, _NAMES, _HAS_OTHERS = ".positions", ".names", ".others"


def number_for_clients(what: str, numbers: object) -> dict[int | str, int]:
    """Return the mapping from clients to numbers. Raise ConfigError unless all numbers are whole and at least 0."""
    if not isinstance(numbers, Mapping) or not numbers:
        raise ConfigError(
            f"{what} must be a whole number of at least 0, or a mapping from clients to such numbers, not "
            f"{shown(numbers)}. For example, give {{0: 3, '{OTHERS}': 1}}."
        )
    for client, number in numbers.items():
        if not (isinstance(client, str) and client):
            checks.integer(
                f"Every client in {what}",
                client,
                remedy=f"Name clients by position or by the name of their site, and all other clients as '{OTHERS}'.",
            )
        checks.integer(f"{what} for client {client!r}", number)
    return {client if isinstance(client, str) else int(client): int(n) for client, n in numbers.items()}


def require_all_clients(what: str, numbers: NumbersByClient, names: Sequence[str]) -> None:
    """Raise ConfigError unless the mapping has exactly one number for each client, and names no unknown client.

    `names` are the names of the clients' sites, or "" for a client without a name.
    """
    found = [client for client in numbers if client != OTHERS]
    places: set[int] = set()
    for client in found:
        at = names.index(client) if isinstance(client, str) and client in names else client
        if not isinstance(at, int) or at >= len(names):
            close = difflib.get_close_matches(str(client), [name for name in names if name], n=1)
            remedy = f"Did you mean {close[0]!r}?" if close else "Leave it out."
            raise ConfigError(
                f"{what} names client {shown(client)}, but the run has {labels.count(len(names), 'client')}, named by "
                f"position (from 0) or by site. {remedy}"
            )
        if at in places:
            raise ConfigError(f"{what} names client {at} twice. Name each client once.")
        places.add(at)
    if OTHERS not in numbers and len(places) < len(names):
        first = next(i for i in range(len(names)) if i not in places)
        who = labels.client_name({first: names[first]} if names[first] else {}, first)
        raise ConfigError(
            f"{what} has no number for {who}. Add a number for this client, or add '{OTHERS}' for all other clients."
        )


def table_arrays(name: str, numbers: NumbersByClient) -> dict[str, Array]:
    """Return the arrays of a table in a message, from which each client reads its own value of the number `name`."""
    found = {client: number for client, number in numbers.items() if client != OTHERS}
    return {
        name: np.array([numbers.get(OTHERS, 0), *found.values()]),
        f"{name}{_POSITIONS}": np.array([client if isinstance(client, int) else -1 for client in found], np.int64),
        f"{name}{_NAMES}": np.array([_digest_of_name(c) if isinstance(c, str) else 0 for c in found], np.uint64),
        f"{name}{_HAS_OTHERS}": np.array(OTHERS in numbers),
    }


@dataclass(frozen=True)
class NumberTables(Layer):
    """The layer that sends tables of numbers, from which each client reads its own number."""

    name: ClassVar[str] = SINGLE

    def change_message(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Return the message with its tables in the layer's arrays.

        In the stage's arrays, the number for clients that are not named replaces each table.
        """
        arrays, tables = dict(message.arrays), dict[str, Array]()
        for name in _table_names(arrays):
            tables[name] = arrays[name]
            arrays[name] = arrays[name][0]
            tables |= {beside: arrays.pop(beside) for beside in _other_arrays(name)}
        if not tables:
            return message
        return replace(message, arrays=arrays, layers={**message.layers, SINGLE: tables})

    @staticmethod
    def read_message(instructions: Arrays, work: Work) -> Work:
        own = {name: np.array(_own_number(instructions, name, work.who)) for name in _table_names(instructions)}
        return replace(work, arrays=Message({**work.arrays, **own}))


def has_unequal_numbers(instructions: Mapping[str, Array]) -> bool:
    """Return whether the message has a table from which clients read different numbers."""
    read = {name: np.ravel(instructions.get(name, [])) for name in _table_names(instructions)}
    for name, numbers in read.items():
        # The first number is for clients that are not named, and counts only if the table has such a number.
        if not np.all(instructions[f"{name}{_HAS_OTHERS}"]):
            numbers = numbers[1:]
        if np.unique(numbers).size > 1:
            return True
    return False


def tables_of_message(instructions: Mapping[str, Array]) -> tuple[dict[str, Array], frozenset[str]]:
    """Return the numbers of each table by its name, and the names of the arrays that do not belong to a table."""
    named = {name: instructions[name] for name in _table_names(instructions) if name in instructions}
    belongs = {beside for name in named for beside in (name, *_other_arrays(name))}
    return named, frozenset(instructions.keys() - belongs)


def _table_names(arrays: Mapping[str, Array]) -> list[str]:
    return [key.removesuffix(_HAS_OTHERS) for key in arrays if key.endswith(_HAS_OTHERS)]


def _other_arrays(name: str) -> tuple[str, ...]:
    """Return the names of the other arrays of a table: positions, digests of names, and a flag."""
    return f"{name}{_POSITIONS}", f"{name}{_NAMES}", f"{name}{_HAS_OTHERS}"


def _own_number(instructions: Arrays, name: str, who: ClientIdentity) -> int:
    numbers = np.atleast_1d(instructions[name])
    there = np.zeros(np.size(instructions[name]) - 1, dtype=bool)
    if who.name:
        there = instructions[f"{name}{_NAMES}"] == _digest_of_name(who.name)
    if not there.any() and who.position >= 0:
        there = instructions[f"{name}{_POSITIONS}"] == who.position
    if there.any():
        return int(numbers[1 + int(np.argmax(there))])
    if not instructions[f"{name}{_HAS_OTHERS}"]:
        raise DataError(
            f"The run has no number for this client. Add a number for this client, or add '{OTHERS}' for all other "
            "clients."
        )
    return int(numbers[0])


def _digest_of_name(name: str) -> np.uint64:
    digest = hashlib.sha256(name.encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))
