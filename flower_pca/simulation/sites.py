"""The sites of a simulation: their rows with the names that belong to them, checked as a deployment checks them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, hints
from flower_pca.base.errors import DataError
from flower_pca.data import faults
from flower_pca.names.sites import SiteRows
from flower_pca.results import saved
from flower_pca.results.pca import PCAResult
from flower_pca.rows.frame import Frame, merge
from flower_pca.rows.local import LocalData

# entries of all rows together, 16 MB: larger tables are worked through in blocks
_ROOM: Final = 2**21


def sites_of(shards: Any) -> list[SiteRows]:
    """The shards with the names that they have; in a mapping, those of their sites are the keys."""
    if isinstance(shards, Mapping) and shards:
        return [SiteRows.of(X, who=str(site), site=str(site)) for site, X in shards.items()]
    several = isinstance(shards, list | tuple) or (isinstance(shards, np.ndarray) and shards.ndim == 3)
    if not several or len(shards) == 0:
        got = type(shards).__name__ + (f" of shape {shards.shape}" if hasattr(shards, "shape") else "")
        if several:
            got = "none"
        raise DataError("shards", must="a list of arrays, one per client", got=got, then="Use [X] for one client.")
    return [SiteRows.of(X, who=f"client {i}") for i, X in enumerate(shards)]


def common_order(sites: Sequence[SiteRows]) -> tuple[str, ...] | None:
    """The names of the columns in the order that they have at all sites; None where they differ, or are sorted."""
    orders = {(site.names, bool(site.words)) for site in sites}
    names, words = next(iter(orders))
    if len(orders) > 1 or words or names is None or list(names) == sorted(names):
        return None
    return names


def clients_of(shards: Any, *, missing: bool, columns: tuple[str, ...] | None = None) -> list[LocalData]:
    """The shards as the clients see them, all with the same columns: those named, or all that they have."""
    return rows_of(sites_of(shards), missing=missing, columns=columns)


def rows_of(sites: Sequence[SiteRows], *, missing: bool, columns: tuple[str, ...] | None = None) -> list[LocalData]:
    """What the clients with these shards see of them, likewise."""
    found = enumerate(sites)
    if columns is None:
        clients = [LocalData(X.whole(f"client {i}"), who=f"client {i}", missing=missing) for i, X in found]
    else:  # values may be missing in columns that are left out
        clients = [LocalData(X, who=f"client {i}", missing=True).arrange(columns) for i, X in found]
        for client in clients if not missing else ():
            client.require_whole()
    first = clients[0]
    for client in clients:
        if not client.heading.like(first.heading):
            raise client.heading.mismatch(client.who, first.heading, first.who).error(DataError)
    return clients


@contextmanager
def room(clients: Sequence[LocalData]) -> Iterator[None]:
    """While a run goes on, clients may keep a copy of their rows less the common mean, if all of these are few."""
    roomy = sum(client.n * client.d for client in clients) <= _ROOM
    for client in clients:
        client.roomy = roomy
    try:
        yield
    finally:
        for client in clients:
            client.roomy = False
            # the newest view now, so that the one before goes, and its copy
            client.in_frame(client.frame)


def handed_over(private: Collection[int], n_clients: int) -> list[int]:
    """The clients whose own results are handed over: all but those in `private`."""
    for client in private:
        checks.integer("Every client in private", client, most=n_clients - 1, remedy="Give positions in shards.")
    hidden = frozenset(private)
    return [client for client in range(n_clients) if client not in hidden]


def looked_at(result: PCAResult, clients: Sequence[LocalData], frame: Frame) -> PCAResult:
    """The result, with hints about what is seen of the rows, under a budget of noise without.

    They are about columns that number the rows, about first lines that may be names, and about faults of files.
    """
    if result.privacy is not None:  # nothing else is said of rows then
        return result
    lines = hints.of_first_lines(file for client in clients for file in client.headerless)
    names = saved.plain(result.feature_names_in_)
    found = hints.find_identifiers(clients, names)
    most = faults.CHEAP
    if names is None:
        most = faults.BARE
    odd = faults.find(clients, names, most=most)
    if not result.hints:
        return replace(result, hints=(*lines, *hints.of_identifiers(found, names), *odd))
    m = functools.reduce(merge, (client.in_frame(frame, keep=False).moments() for client in clients))
    sizes = np.sqrt(m.m2 / m.seen + (0.0 if result.centered else m.mean**2))
    first = hints.of_largest(sizes, names, clients) or result.hints
    return replace(result, hints=(*lines, *first, *hints.of_identifiers(found, names, hints.alone(sizes)), *odd))
