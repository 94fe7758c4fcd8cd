"""Decide whether a first line of numbers is a row or holds the names of the columns.

Wavelengths, times and years are names that look like values. If they are read as a row, the components are wrong
without any error. So a first line is refused if its numbers differ from the lines below: if they are far away in all
columns, or if they increase, decrease or have equal steps although hardly any line below does so. With n rows, a valid
first row is refused by accident about once in n files.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.data.dialect import CellRules

_LINES, _CELLS = 200, 2**18  # maximum number of lines and of cells that are compared with the first line
_FEWEST: Final = 5  # With fewer lines below, the first line cannot be judged.
# With at least this many lines below, three columns instead of five are enough to judge a pattern in the first line,
# because a common pattern would also occur in the lines below.
_MANY: Final = 100
_RARE: Final = 0.01  # A pattern is rare if at most this share of the lines below has it.
# A number is far from a column if its distance to the column's range exceeds the width of the range by this factor.
_FAR: Final = 5.0


def require_clear_header(file: Path, first: Sequence[str], below: Iterable[Sequence[str]], cells: CellRules) -> None:
    """Raise a DataError if a first line of numbers may hold names instead of values, such as years or codes."""
    # If pandas writes its index as the first column, the cell above it is empty.
    index = len(first) > 1 and not first[0].strip()
    codes = first[index:]
    if len(codes) < 2 or not all(code.strip() and cells.is_number(code) for code in codes):
        return
    most = max(min(_LINES, _CELLS // len(first)), _FEWEST)
    second, *more = itertools.islice(below, most)
    beside: Sequence[str] = second
    got = ""
    # With an index, whole numbers are suspect only if they count the columns, so the second line is not compared.
    if index:
        beside, got = (), "an empty cell and "
    what = _describe_whole_numbers(codes, beside)
    if not what:
        alike = [line for line in (second, *more) if len(line) == len(first)]
        lines = [line[index:] for line in alike]
        what = _describe_difference(_cells_as_numbers([codes], cells)[0], _cells_as_numbers(lines, cells))
    if what:
        got += what
        raise DataError(
            f"The first line of {file} may be names or values: it has {got}. Write csv(path={str(file)!r}, "
            "header=True) or header=False, whichever is right. For a folder, write folder(..., header=True).",
            place=str(file),
        )


def _describe_whole_numbers(codes: Sequence[str], second: Sequence[str]) -> str:
    """Describe a first line of whole numbers that count the columns, or that differ from decimals in the second line.

    Return "" for any other first line.
    """
    if len(set(codes)) != len(codes) or not all(re.fullmatch(r"\s*\d+\s*", code) for code in codes):
        return ""
    counted = [int(code) for code in codes] == list(range(len(codes)))
    if counted or any(map(_is_decimal, second)):
        return "different whole numbers"
    return ""


def _is_decimal(cell: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+\s*", cell) is None and CellRules(",").is_number(cell)


def _describe_difference(first: Array, rows: Array) -> str:
    """Describe how a line differs from the rows below it. Return "" if it does not differ."""
    n, d = rows.shape
    if n < _FEWEST or not np.isfinite(first).all():
        return ""
    for words, has, fewest in (
        ("go up", _increase, 5),
        ("go down", _decrease, 5),
        ("go in equal steps", _have_equal_steps, 3),
    ):
        if n >= _MANY:
            fewest = 3
        if d >= fewest and has(first[None])[0] and has(rows).mean() <= _RARE:
            return f"numbers that {words}, unlike the lines below"
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    spread = high - low
    varies = spread > 0.0
    beyond = np.maximum(low - first, first - high)
    far = beyond[varies] > _FAR * spread[varies]
    if varies.sum() >= 2 and far.all():
        return "numbers far from the numbers below"
    return ""


def _increase(rows: Array) -> Array:
    return np.asarray((np.diff(rows) > 0.0).all(axis=1))


def _decrease(rows: Array) -> Array:
    return _increase(-rows)


def _have_equal_steps(rows: Array) -> Array:
    steps = np.diff(rows)
    first = steps[:, :1]
    even = np.abs(steps - first) <= 1e-6 * np.abs(first)
    return np.asarray((steps[:, 0] != 0.0) & even.all(axis=1))


def _cells_as_numbers(lines: Sequence[Sequence[str]], cells: CellRules) -> Array:
    """Return the cells of these lines as numbers, with NaN for missing values and words."""
    number, value = cells.is_number, cells.parse_cell
    values = [[value(cell) if number(cell) else np.nan for cell in line] for line in lines]
    return np.array(values, dtype=np.float64).reshape(len(lines), -1)
