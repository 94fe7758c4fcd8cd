"""Convert data frames of pandas, polars and other libraries to tables with an array of numbers and columns of words."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from flower_pca.base.errors import DataError, marked_private
from flower_pca.base.labels import clean_names, is_missing
from flower_pca.base.linalg import Array
from flower_pca.base.shown import kind_of_cell, reads_as_number
from flower_pca.names.columns import ColumnNames, unusable_columns_error


def fields_of_frame(frame: Any, who: str) -> dict[str, Any]:
    """Return the fields of a `Table` for a data frame, by name.

    Columns that hold no numbers are described in the field `words`, and their cells become the field `texts`.
    """
    names = list(frame.columns)
    # pandas numbers the columns of a frame without column names from 0 on.
    if names == list(range(len(names))):
        return {"values": np.asarray(frame.to_numpy()), "ids": _index_as_ids(frame)}
    texts = [isinstance(name, str) for name in names]
    if any(texts) and not all(texts):
        got = f"{names[texts.index(True)]!r} and {names[texts.index(False)]!r}"
        raise DataError(f"Some column names of {who} are text, but others are not: {got}. Rename these columns.")
    # `Columns` refuses duplicate names, because a duplicate name would select several columns.
    unique = ColumnNames(clean_names(tuple(map(text_of_label, names))), who).names
    if (whole := _values_of_one_dtype(frame)) is not None:
        return {"values": whole, "names": unique, "ids": _index_as_ids(frame)}
    parts = {text: _numbers(frame[name]) for text, name in zip(unique, names, strict=True)}
    numbers = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    words = {name: f"{part} in column {name}" for name, part in parts.items() if name not in numbers}
    if not parts:
        with marked_private():
            raise unusable_columns_error(who, words, file=False)
    spelt = dict(zip(unique, names, strict=True))
    cells = {text: np.asarray(frame[spelt[text]].to_numpy()) for text in words}
    if numbers:
        values = np.column_stack(list(numbers.values()))
    else:
        values = np.empty((len(next(iter(cells.values()))), 0))
    return {"values": values, "names": tuple(numbers), "words": words, "ids": _index_as_ids(frame), "texts": cells}


def _values_of_one_dtype(frame: Any) -> Array | None:
    """Return the values of a data frame whose columns share one numeric dtype, else None."""
    if len(set(getattr(frame, "dtypes", ()))) != 1:
        return None
    values = np.asarray(frame.to_numpy())
    if values.dtype.kind not in "fiub":
        return None
    return values


def _index_as_ids(frame: Any) -> tuple[Any, ...] | None:
    """Return the row ids from the index of a pandas frame, or None if the index is missing or only counts the rows."""
    index = getattr(frame, "index", None)
    if index is None or not hasattr(index, "tolist"):
        return None
    if (getattr(index, "start", None), getattr(index, "step", None)) == (0, 1):
        return None  # a RangeIndex of pandas
    found = index.tolist()
    if found == list(range(len(found))):
        return None
    return tuple(text_of_label(label) if isinstance(label, tuple) else label for label in found)


def text_of_label(name: Any) -> str:
    """Return a label as text. The parts of a tuple are separated by slashes."""
    if isinstance(name, tuple):
        return "/".join(map(str, name))
    return str(name)


def _numbers(column: Any) -> Any:
    """Return the numbers of a column, with NaN for missing values.

    If the column holds values that are not numbers, describe the first of these values, or the data type of the column.
    """
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "fiub":
        return values
    if values.dtype.kind not in "OUST":
        return f"a value of type {column.dtype}"
    entries = values.tolist()
    there = [entry for entry in entries if not is_missing(entry)]
    words = [entry for entry in there if not isinstance(entry, Real)]
    if words:
        if not isinstance(words[0], str):
            return kind_of_cell(words[0])
        return "a number stored as text" if reads_as_number(words[0]) else repr(words[0])
    numbers = [entry if isinstance(entry, Real) else np.nan for entry in entries]
    return np.array(numbers, dtype=np.float64)
