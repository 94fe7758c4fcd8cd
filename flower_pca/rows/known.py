"""What is known of a client's rows, and of each of their parts, before a message: on all columns that they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows import folds
from flower_pca.rows.limbs import WholeRows
from flower_pca.rows.local import LocalData
from flower_pca.rows.statistics import Statistics, large, measure, recall
from flower_pca.rows.stored import StoredRows

Product: TypeAlias = Callable[[Array], Array]  # S'(SZ) of a block Z
Found: TypeAlias = tuple[Statistics, Product | None]


def of(data: LocalData, path: Path | None = None, *, gaps: bool) -> Found:
    """What is known of rows: it is measured on all columns of a table in their own order, whichever a run asks for."""
    if data.places is None:
        return _measured(data, path, gaps)
    key = ("fixed", gaps)
    if key not in data.origin.known:
        data.origin.known[key] = _measured(data.origin, path, gaps)
    return _of_columns(data, *data.origin.known[key])


def of_parts(data: LocalData, *, gaps: bool) -> list[Found]:
    """The same of each part of the rows, measured when it is first asked for; no file keeps it."""
    known, key = data.origin.known, ("parts", gaps)
    if key not in known:
        known[key] = [_part(part, gaps) for part in folds.parts(data.origin)]
    found: list[Found] = known[key]
    return found if data.places is None else [_of_columns(data, *part) for part in found]


def _of_columns(data: LocalData, statistics: Statistics, whole: Product | None) -> Found:
    """What is known of the columns that the run asks for."""
    places = data.places
    assert places is not None
    if whole is None:
        return statistics.of_columns(places), None
    of_all: Product = whole

    def product(Z: Array) -> Array:
        every = np.zeros((data.origin.d, Z.shape[1]))
        every[places] = Z
        return np.asarray(of_all(every)[places])

    return statistics.of_columns(places), product


def _part(part: StoredRows, gaps: bool) -> Found:
    """As of whole rows, but a process does not keep it in the place of other nodes' statistics."""
    if large(part):
        return _measured(part, None, gaps)
    return measure(part, gaps=gaps), None


def _measured(data: StoredRows, path: Path | None, gaps: bool) -> Found:
    if not large(data):
        return recall(data, path, gaps=gaps), None
    if gaps and data.missing:
        rule, remedy = "complete", 'Use missing="own_mean".'
        raise DataError(f"Sparse rows of {data.who} without room for X'X", must=rule, got="gaps", then=remedy)
    there = data.there()
    whole = WholeRows(data.stored, there.mean, data.who)
    seen = np.broadcast_to(np.asarray(there.seen, dtype=np.float64), data.d)
    none = np.empty(0, dtype=np.int64)
    m2 = np.maximum(whole.squares - data.n * whole.mean**2, 0.0)
    return Statistics(data.n, whole.mean, seen, data.peak(), none, m2, np.zeros(data.d)), whole.product
