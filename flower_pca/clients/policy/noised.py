"""Prepare the rows of a node with `max_epsilon`, so that a fault in one row affects only this row.

Noise hides whether one row is present. It does not hide that an answer is refused, or has different columns,
because of one row. Nothing in the rows of such a node therefore decides what it answers:

    a column with text in a cell         counts as numeric, like all other columns
    a cell that is not a finite number   counts as the constant that gap_values names for the
                                         column; without a constant, the whole row counts as zeros
    a row without any number             counts as zeros
    few rows, no rows, or rare values    do not prevent an answer

The node's log tells its operator about faults in the rows.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, marked_private
from flower_pca.base.linalg import Array
from flower_pca.clients.policy.rules import Rules
from flower_pca.names.columns import has_unusable_name
from flower_pca.names.table import Table

_NAMED: Final = 5  # the maximum number of columns that a warning names


def usable_table(rows: Table, rules: Rules) -> Table:
    """Return the rows with a number or NaN in every cell. Text columns become numeric columns if they have a name."""
    values, names = rows.values, rows.names
    if not hasattr(values, "dtype"):
        values = np.asarray(values)
    if values.ndim == 2 and values.dtype.kind in "OUST":
        values = np.array([_cells_as_numbers(row) for row in values]).reshape(values.shape)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        return rows  # Rows that are not a table of numbers or text are refused elsewhere, whatever their contents.
    named = [name for name, said in rows.words.items() if not has_unusable_name(name, said)]
    texts = [*dict.fromkeys([*named, *rows.texts])]
    if texts and names is not None:
        unread = [name for name in texts if name not in rows.texts]
        if unread:
            with marked_private():
                raise ConfigError(
                    f"The rows of this node have text in column {unread[0]}. Because they are not a pandas table, the "
                    "text cannot be read as numbers. Give a pandas table, or leave the column out."
                )
        read = np.column_stack([_cells_as_numbers(rows.texts[name]) for name in texts])
        values = np.column_stack([values, read]) if names else read
        names = (*names, *texts)
    words = {name: said for name, said in rows.words.items() if name not in texts}
    values = _infinite_as_nan(values)
    if values.shape[0] == 0:
        # A row without any number counts as zeros, so a table without rows is replaced by one such row.
        values = np.full((1, values.shape[1]), np.nan)
    if values.shape[1] == 0:
        return rows
    ids = None if rows.ids is None or len(rows.ids) != values.shape[0] else rows.ids
    values = _with_constants(values, rules.gap_constants(names, values.shape[1]))
    _warn_of_unusable_rows(values, names, rules)
    return replace(rows, values=values, names=names, words=words, texts={}, ids=ids, origin=None)


def _cells_as_numbers(cells: Array) -> Array:
    """Return the cells of a column as numbers, with NaN for every cell that is not a number."""
    return np.array([_cell_as_number(cell) for cell in np.asarray(cells).tolist()], dtype=np.float64)


def _cell_as_number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _infinite_as_nan(values: Any) -> Any:
    """Return the values with NaN in place of infinite values. If all values are finite, return the same array."""
    if values.dtype.kind != "f":
        return values
    if hasattr(values, "tocsr"):
        if np.isfinite(values.data).all():
            return values
        found = values.copy()
        found.data = np.where(np.isfinite(found.data), found.data, np.nan)
        return found
    if np.isfinite(values).all():
        return values
    return np.where(np.isfinite(values), values, np.nan)


def _with_constants(values: Any, constants: Array | None) -> Any:
    """Return the values with the columns' constants in place of missing values. Rows without any number stay NaN."""
    if constants is None or values.dtype.kind != "f":
        return values
    if hasattr(values, "tocsr"):
        found = values.tocsr().copy()
        gaps = np.isnan(found.data)
        found.data = np.where(gaps, constants[found.indices], found.data)
        return found
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    return np.where(gaps & ~gaps.all(axis=1)[:, None], constants, values)


def _warn_of_unusable_rows(values: Any, names: tuple[str, ...] | None, rules: Rules) -> None:
    """Warn the operator in the node's log about too few rows, and about cells that are not numbers."""
    n, d = map(int, values.shape)
    log = logging.getLogger("flwr")
    if n < rules.min_rows:
        log.warning(
            "This node has %s, fewer than its min_rows=%d. It still answers, because noise protects the rows.",
            labels.count(n, "row"),
            rules.min_rows,
        )
    gaps = _count_gaps(values, d)
    listed = labels.column_names(names, d)
    found = [f"{listed[j]} ({labels.count(int(gaps[j]), 'row')})" for j in np.flatnonzero(gaps)]
    if found:
        log.warning(
            "Some cells of this node are not numbers: %s%s. A row with such a cell counts as a row of zeros in every "
            "run of that column. Name constants in gap_values, correct the file, or leave the column out.",
            ", ".join(found[:_NAMED]),
            "" if len(found) <= _NAMED else f" and {len(found) - _NAMED} more",
        )


def _count_gaps(values: Any, d: int) -> Array:
    """Return, for each column, the number of cells that are not numbers."""
    if values.dtype.kind != "f":
        return np.zeros(d, dtype=np.int64)
    if hasattr(values, "tocsr"):
        stored = values.tocsr()
        return np.bincount(stored.indices[np.isnan(stored.data)], minlength=d)
    return np.asarray(np.isnan(values).sum(axis=0))
