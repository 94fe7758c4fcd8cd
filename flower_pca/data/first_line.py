"""The first line of a text file of numbers: a row as the others, or names that happen to be numbers.

Wave numbers, times and years are names that look like values, and a row too many turns the components without a word.
So a line is refused whose numbers are unlike those below: far from them in all columns, or going up, going down or in
equal steps, as hardly a line below does. What is rare among n rows is the first one's by accident about once in n.
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
from flower_pca.data.cells import Cells

_WHOLE: Final = r"\s*\d+\s*"
_LINES, _CELLS = 200, 2**18  # that are looked at, at most
_FEWEST: Final = 5  # lines below from which something can be said
_MANY: Final = 100  # lines below among which something that happens to few columns by accident would be seen
_RARE: Final = 0.01  # of the lines below
_FAR: Final = 5.0  # spreads of a column


def require_clear(file: Path, first: Sequence[str], below: Iterable[Sequence[str]], cells: Cells) -> None:
    """Refuse a first line that may be names or values: years, codes, or numbers unlike those below."""
    index = len(first) > 1 and not first[0].strip()
    codes = first[1:] if index else first
    if len(codes) < 2 or not all(code.strip() and cells.number(code) for code in codes):
        return
    second, *more = itertools.islice(below, max(min(_LINES, _CELLS // len(first)), _FEWEST)) or ([],)
    what = _whole(codes, () if index else second)
    if not what:
        lines = [line[index:] for line in (second, *more) if len(line) == len(first)]
        what = _unlike(_numbers([codes], cells)[0], _numbers(lines, cells))
    if what:
        got = f"{'an empty cell and ' if index else ''}{what.format(', '.join(codes[:3]))}"
        remedy = f"Write csv(path={str(file)!r}, header=True) or header=False; of a folder, folder(..., header=True)."
        raise DataError(f"The first line of {file}", must="clearly names, or clearly values", got=got, then=remedy)


def _whole(codes: Sequence[str], second: Sequence[str]) -> str:
    """Different whole numbers that count columns, as pandas does, or that stand above broken ones."""
    if len(set(codes)) != len(codes) or not all(re.fullmatch(_WHOLE, code) for code in codes):
        return ""
    counted = [int(code) for code in codes] == list(range(len(codes)))
    return "whole numbers, {}, ..." if counted or any(map(_broken, second)) else ""


def _broken(cell: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+\s*", cell) is None and Cells(",", ".").number(cell)


def _unlike(first: Array, rows: Array) -> str:
    """In what a line is unlike the rows below it, in words; "" where it is like them."""
    n, d = rows.shape
    if n < _FEWEST or not np.isfinite(first).all():
        return ""
    orders = {"go up": (_up, 5), "go down": (_down, 5), "go in equal steps": (_even, 3)}
    for words, (has, fewest) in orders.items():
        if d >= (3 if n >= _MANY else fewest) and has(first[None])[0] and has(rows).mean() <= _RARE:
            return f"numbers that {words}, {{}}, ..., unlike those of the lines below"
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    spread = high - low
    varies = spread > 0.0
    far = np.maximum(low - first, first - high)[varies] > _FAR * spread[varies]
    return "numbers far from those of the lines below, {}, ..." if varies.sum() >= 2 and far.all() else ""


def _up(rows: Array) -> Array:
    return np.asarray((np.diff(rows) > 0.0).all(axis=1))


def _down(rows: Array) -> Array:
    return _up(-rows)


def _even(rows: Array) -> Array:
    steps = np.diff(rows)
    off = np.abs(steps - steps[:, :1])
    return np.asarray((steps[:, 0] != 0.0) & (off <= 1e-6 * np.abs(steps[:, :1])).all(axis=1))


def _numbers(lines: Sequence[Sequence[str]], cells: Cells) -> Array:
    """The cells as numbers; NaN of gaps, and of those that are none."""
    values = [[cells.value(cell) if cells.number(cell) else np.nan for cell in line] for line in lines]
    return np.array(values, dtype=np.float64).reshape(len(lines), -1)
