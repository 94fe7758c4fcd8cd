"""Make a table from the columns of a file that another package has read. Columns of words do not become features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.data.gaps import GapCodes, with_gaps_as_nan
from flower_pca.data.reading import chosen_columns, with_id_column
from flower_pca.names.columns import among_numbers, unusable_columns_error
from flower_pca.names.ids import as_text
from flower_pca.names.origin import Origin
from flower_pca.names.table import Table

_SHOWN: Final = 40  # maximum number of characters of a cell in a message


def table_of(
    file: Path,
    names: Sequence[str],
    columns: Sequence[Any],
    *,
    wanted: Sequence[str] | None,
    beside: Sequence[str],
    ids: str | None,
    gaps: Any,
    line: Callable[[int], int] | None = None,
) -> Table:
    """Return the table of a file from its columns, which are sequences of values. `line` maps a row to its line."""
    without, n = GapCodes.from_option(gaps), len(columns[0]) if columns else 0
    every = [labels.clean_name(name) for name in names]
    features, apart, words = chosen_columns(file, every, wanted, with_id_column(beside, ids))
    place = {name: j for j, name in reversed([*enumerate(every)])}
    numbers: dict[str, Array] = {}
    text: dict[str, str] = {}
    for name in features:
        values, bad = _numbers_and_words(columns[place[name]], without.words(name))
        if bad:
            row = bad[0]
            where = f"row {row}" if line is None else f"line {line(row)}"
            cell = labels.shorten(str(columns[place[name]][row]), _SHOWN)
            text[name] = among_numbers(f"{cell!r} in column {name} ({where})", bad=len(bad), total=n)
        else:
            numbers[name] = values
    if text and (wanted is not None or not numbers):
        raise unusable_columns_error(file, text)
    rows = np.column_stack(list(numbers.values())) if numbers else np.empty((n, 0))
    labels_of_rows = {name: _labels_of(columns[place[name]], without.words(name)) for name in apart}
    origin = Origin.of_file(file, n, line)
    found = Table.of_file(file, rows, tuple(numbers), labels_of_rows, {**words, **text}, origin=origin, ids=ids)
    return with_gaps_as_nan(found, without)


def _numbers_and_words(values: Any, words: frozenset[str]) -> tuple[Array, list[int]]:
    """Return the numbers of a column, with NaN for missing values, and the positions of rows that hold words."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64), []
    numbers, bad = np.empty(len(values)), []
    for i, value in enumerate(values):
        if isinstance(value, Real | bool | np.bool_):
            numbers[i] = float(value)
        elif labels.is_missing(value) or str(value).strip() in words:
            numbers[i] = math.nan
        else:
            numbers[i] = _number_in_cell(value)
            if math.isnan(numbers[i]):
                bad.append(i)
    return numbers, bad


def _number_in_cell(value: Any) -> float:
    """Return the number in a cell of text, as in some spreadsheets, or NaN if the cell holds no number."""
    try:
        return float(value) if isinstance(value, str) and "_" not in value else math.nan
    except ValueError:
        return math.nan


def _labels_of(values: Any, words: frozenset[str]) -> Array:
    """Return labels as numbers if all of them are numbers, else as text."""
    plain = list(values)
    if plain and all(isinstance(value, Real) and not isinstance(value, bool) for value in plain):
        return np.array(plain)
    gone = (labels.is_missing(value) or str(value).strip() in words for value in plain)
    return np.array(["" if gap else as_text(value) for value, gap in zip(plain, gone, strict=True)])
