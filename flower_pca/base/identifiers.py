"""Identifiers: columns that number rows or people, found by a look at the rows; where these are at hand only.

Such a column holds whole numbers of which no two are alike. They go up by one, over each client's rows or over all of
them together, in whatever order rows are; or the column is called as such a one is: id, patient_nr, MRN. Ages, counts
and codes have gaps or come twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array

_FEWEST: Final = 20  # rows from which whole numbers that go up by one are no accident
_LOOK: Final = 64  # rows of each client that tell most columns from an identifier
_ALONE: Final = {  # the last word of a name that says so by itself
    *("id", "ids", "idx", "index", "key", "mrn", "pid", "uid", "uuid", "identifier", "pseudonym", "unnamed"),
    *("recordid", "patientid", "patid", "patnr", "patientennummer", "fallnr", "fallnummer", "kennung"),
}
_WHOSE: Final = {
    *("patient", "subject", "person", "participant", "case", "encounter"),
    *("record", "row", "sample", "study", "visit"),
}
_NUMBER: Final = {"id", "nr", "no", "num", "number", "nummer", "code", "key", "index"}


def named(name: str) -> bool:
    """Whether a column is called as an identifier is."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    whose = any(word in _WHOSE for word in words)
    numbered = len(words) == 1 or words[-1] in _NUMBER
    return words[-1] in _ALONE or (whose and numbered) or words in (["nr"], ["index", "level"])


def found(tables: Sequence[Any], names: Sequence[str] | None) -> dict[int, bool]:
    """The columns of these clients' stored rows that are identifiers: whether they go up by one, or are called so only.

    Args:
        tables: What has its rows in `blocks()`, and says whether they are `sparse`.
        names: Names of the columns, where they have any.
    """
    if not tables or any(table.sparse for table in tables) or sum(table.n for table in tables) < _FEWEST:
        return {}
    columns = np.arange(tables[0].d)
    for table in tables:
        block = next(iter(table.blocks()))
        for few in (1, _LOOK):  # one row tells columns of whole numbers from most others
            columns = columns[_unlike(block[:few, columns])]
        if not len(columns):
            return {}
    called = {int(j) for j in columns if names is not None and named(str(names[j]))}
    ranges = [_range(table, columns) for table in tables]
    sizes = np.array([table.n for table in tables])
    low, high, whole = (np.array(side) for side in zip(*ranges, strict=True))
    each = (high - low + 1.0 == sizes[:, None]).all(axis=0) & (sizes.max() >= _FEWEST)
    together = high.max(axis=0) - low.min(axis=0) + 1.0 == sizes.sum()
    said: dict[int, bool] = {}
    for i, j in enumerate(map(int, columns)):
        counted = bool(each[i] or together[i])
        if whole[:, i].all() and (counted or j in called) and _different(tables, j, together=bool(together[i])):
            said[j] = counted
    return said


def _unlike(block: Array) -> Array:
    """Which columns hold whole numbers, no two of them alike."""
    if block.dtype.kind not in "fiu":
        return np.zeros(block.shape[1], dtype=bool)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(block).all(axis=0) & (np.rint(block) == block).all(axis=0)
    steps = np.diff(np.sort(block, axis=0), axis=0)
    return np.asarray(whole & (steps != 0).all(axis=0))


def _range(table: Any, columns: Array) -> tuple[Array, Array, Array]:
    """The least and the largest value of each column, and whether all are whole."""
    low, high, whole = np.inf, -np.inf, np.ones(len(columns), dtype=bool)
    for block in table.blocks():
        part = block[:, columns].astype(np.float64)
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
        with np.errstate(invalid="ignore"):
            whole &= np.isfinite(part).all(axis=0) & (np.rint(part) == part).all(axis=0)
    return np.asarray(low), np.asarray(high), whole


def _different(tables: Sequence[Any], j: int, *, together: bool) -> bool:
    """Whether no two values of a column are alike, at each client or at all of them."""
    parts = [np.concatenate([block[:, j] for block in table.blocks()]) for table in tables]
    parts = [np.concatenate(parts)] if together else parts
    return all(len(np.unique(part)) == len(part) for part in parts)
