"""Columns that tell of few rows: in which few have a value, or few have another than most.

A sum over all rows is then one over these few: the carrier of a rare code is told by the products
with that column.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.names.columns import enumeration
from flower_pca.rows.local import LocalData

_CHUNK: Final = 64  # columns that are looked at at a time


def find(data: LocalData, rules: Rules) -> list[str]:
    """The names of the columns that tell of fewer than min_rows rows, but for those that the rules let pass."""
    if rules.rare_columns is True or rules.min_rows < 2:
        return []
    found = _find(data, rules.min_rows)
    names = labels.column_names(data.names, data.d)
    return [names[i] for i in found if names[i] not in _exceptions(rules)]


def check(data: LocalData, rules: Rules) -> None:
    """Refuse rows with columns that tell of fewer than min_rows of them: by name to the operator, to no server."""
    if named := find(data, rules):
        logging.getLogger("flwr").warning(
            "Fewer than min_rows=%d rows of this node have a value, or another than most, in %s (rare_columns).",
            rules.min_rows,
            enumeration(named),
        )
        raise RefusalError(
            "The columns of this node",
            must="ones in which at least min_rows rows have a value, and none or so many another than most",
            got="others",
            then="Run without them, or ask the node's operator.",
        )


def _exceptions(rules: Rules) -> Collection[str]:
    given = rules.rare_columns
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    if isinstance(given, Collection):
        return given
    return ()


def _find(data: LocalData, least: int) -> list[int]:
    """The places of the columns that tell of so few rows; looked for once."""
    key = ("rare", least)
    if key not in data.known:
        found = []
        for start in range(0, data.d, _CHUNK):
            columns = slice(start, start + _CHUNK)
            # All columns at once would be a copy of rows that may be memory-mapped.
            part = np.concatenate([block[:, columns] for block in data.blocks()])
            few = [j for j, column in enumerate(part.T) if _tells_few(column, least)]
            found += [start + j for j in few]
        data.known[key] = found
    places: list[int] = data.known[key]
    return places


def _tells_few(column: Array, least: int) -> bool:
    there = column[column == column]  # NaN is not
    if len(there) < least:
        return len(there) > 0
    # A value that all but fewer than `least` have is the most frequent of any 2 least - 1 rows.
    values, counts = np.unique(there[: 2 * least - 1], return_counts=True)
    often = values[np.argmax(counts)]
    if len(there) >= 2 * least - 1 and counts.max() < least:
        return False
    others = int(np.count_nonzero(there != often))
    # where no value repeats, none is frequent
    return 0 < others < least and len(there) - others > 1
