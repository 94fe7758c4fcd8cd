"""Find columns that number rows or people, and write hints about them.

An identifier column holds whole numbers, no two of them equal. In addition, its values are consecutive numbers in some
order, at each client or over all clients, or its name looks like an identifier: id, patient_nr or MRN. Ages, counts and
codes skip or repeat numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.names.identifiers import is_called_identifier

# If at least this many rows hold different whole numbers, this is no accident.
_FEWEST: Final = 20
_LOOK: Final = 64  # number of rows of each client that suffice to rule out most columns
_OUT: Final = f"If it numbers the rows, leave it out: name the other columns with {option('columns', ['...'])}."


def hints_of_identifiers(
    columns: Mapping[int, bool], names: Sequence[str] | None, id_column: int | None = None
) -> tuple[str, ...]:
    """Return hints about the columns that `find_identifiers` returns, except for the column `id_column`."""
    if not columns:
        return ()
    why = {True: "which are consecutive", False: "and its name looks like an identifier"}
    others = {j: counts for j, counts in columns.items() if j != id_column}
    start = "holds whole numbers, all different,"
    return tuple(f"Column {column_label(j, names)} {start} {why[counts]}. {_OUT}" for j, counts in others.items())


def find_identifiers(tables: Sequence[Any], names: Sequence[str] | None) -> dict[int, bool]:
    """Return the positions of the columns that look like identifiers.

    Each position is mapped to True if the values of the column are consecutive numbers, and to False if only its name
    looks like an identifier.

    Parameters
    ----------
    tables : sequence
        The rows of each client: objects with a method `blocks()` and the attributes `n`, `d` and `sparse`.
    names : sequence of str or None
        Names of the columns, if they have names.
    """
    sizes = np.array([0 if table.sparse else table.n for table in tables])
    if not sizes.all() or sizes.sum() < _FEWEST:
        return {}
    columns = _candidates(tables)
    if not len(columns):
        return {}
    by_name = {int(j) for j in columns if names is not None and is_called_identifier(str(names[j]))}
    ranges = [_range(table, columns) for table in tables]
    low, high, whole = (np.array(side) for side in zip(*ranges, strict=True))
    each = (high - low + 1.0 == sizes[:, None]).all(axis=0) & (sizes.max() >= _FEWEST)
    together = high.max(axis=0) - low.min(axis=0) + 1.0 == sizes.sum()
    identifiers: dict[int, bool] = {}
    for i, j in enumerate(map(int, columns)):
        counts = bool(each[i] or together[i])
        if whole[:, i].all() and (counts or j in by_name) and _has_no_repeats(tables, j, together=bool(together[i])):
            identifiers[j] = counts
    return identifiers


def _candidates(tables: Sequence[Any]) -> Array:
    """Return the positions of the columns that may be identifiers according to a few rows of each client."""
    columns = np.arange(tables[0].d)
    for table in tables:
        block = next(iter(table.blocks()))
        # A single row rules out most columns that hold decimals, and a few rows most columns of small numbers, such as
        # genotypes. So only few columns of many rows are copied.
        for few in (1, 4, 16, _LOOK):
            columns = columns[_hold_different_numbers(block[:few, columns])]
            if not len(columns):
                return columns
    return columns


def _hold_different_numbers(block: Array) -> Array:
    """Return which columns of a block hold whole numbers, no two of them equal."""
    if block.dtype.kind not in "fiu":
        return np.zeros(block.shape[1], dtype=bool)
    steps = np.diff(np.sort(block, axis=0), axis=0)
    return np.asarray(_hold_whole_numbers(block) & (steps != 0).all(axis=0))


def _hold_whole_numbers(block: Array) -> Array:
    """Return which columns hold only whole numbers and missing values."""
    with np.errstate(invalid="ignore"):
        whole = (np.rint(block) == block) & ~np.isinf(block)
        return np.asarray((whole | np.isnan(block)).all(axis=0))


def _range(table: Any, columns: Array) -> tuple[Array, Array, Array]:
    """Return the smallest and the largest value of each column, and whether all of its values are whole numbers."""
    low = np.inf
    high = -np.inf
    whole = np.ones(len(columns), dtype=bool)
    for block in table.blocks():
        part = block[:, columns].astype(np.float64)
        low = np.fmin(low, np.fmin.reduce(part))
        high = np.fmax(high, np.fmax.reduce(part))
        whole &= _hold_whole_numbers(part)
    return np.asarray(low), np.asarray(high), whole


def _has_no_repeats(tables: Sequence[Any], j: int, *, together: bool) -> bool:
    """Return whether a column has no two equal values at any client, or over all clients if `together` is true."""
    parts = [_column(table, j) for table in tables]
    if together:
        parts = [np.concatenate(parts)]
    parts = [part[part == part] for part in parts]
    return any(map(len, parts)) and all(len(np.unique(part)) == len(part) for part in parts)


def numbers_rows(table: Any, j: int) -> bool:
    """Return whether a column of a client's stored rows holds at least 20 whole numbers, no two of them equal."""
    values = _column(table, j)
    return len(values) >= _FEWEST and bool(np.all(values == np.rint(values))) and len(np.unique(values)) == len(values)


def _column(table: Any, j: int) -> Array:
    return np.concatenate([block[:, j] for block in table.blocks()])


def column_label(j: int, names: Sequence[str] | None) -> str:
    """Return the name of a column, or its number if the columns have no names."""
    return str(j if names is None else names[j])
