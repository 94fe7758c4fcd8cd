"""Hints: what the sizes of the columns say about components that are not the ones a reader may think of.

A PCA follows variance. So a column that numbers the rows, or is measured in small units, becomes the first component
whatever the others do. From the totals of the opening the server knows every column's deviation, and a hint is a
sentence about them. Where rows are at hand, `identifier` looks whether such a column is one of whole numbers of which
no two are alike, and `identifiers` speaks of those that number the rows, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array

_ALONE: Final = 0.99  # of the total variance: then one column is the first component
_APART: Final = 100.0  # a deviation over that of the lower quarter, from which columns differ by their units
_FEWEST: Final = 20  # rows from which whole numbers that are all different are no accident
_UNITS: Final = (
    'Leave it out if it numbers the rows, or use scale="std" if it is measured in other units than the rest.'
)
_OUT: Final = "Leave it out if it numbers the rows: name the others with columns=[...]."
_NUMBERS: Final = "It holds whole numbers, no two alike, as an identifier does: leave it out."


def of_sizes(sizes: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Hints about columns of these sizes (d,), roots of mean squares, whose components nobody has scaled."""
    if alone(sizes) is not None:
        return (_alone(sizes, names, _UNITS),)
    varying = np.sort(sizes[sizes > 0.0])
    if len(varying) < 2:
        return ()
    low, high = float(np.quantile(varying, 0.25)), float(varying[-1])
    if high < _APART * low:
        return ()
    j, i = int(np.argmax(sizes)), int(np.argmin(np.where(sizes >= low, sizes, np.inf)))
    larger, smaller = (str(number if names is None else names[number]) for number in (j, i))
    sizes_of = f"column {larger} has a deviation of {high:.3g}, column {smaller} one of {sizes[i]:.3g}"
    return (f'Columns differ much in size: {sizes_of}. Use scale="std" if they are measured in different units.',)


def alone(sizes: Array) -> int | None:
    """The column that has nearly all of the variance, if one has."""
    squares = sizes**2
    j = int(np.argmax(squares))
    return j if len(sizes) > 1 and squares[j] >= _ALONE * squares.sum() else None


def identifier(sizes: Array, names: Sequence[str] | None, tables: Iterable[Any]) -> tuple[str, ...]:
    """Likewise, of a column that numbers the rows of these clients as far as one can see; else ()."""
    j = alone(sizes)
    if j is None or not all(_numbers(table, j) for table in tables):
        return ()
    return (_alone(sizes, names, _NUMBERS),)


def identifiers(found: Mapping[int, bool], names: Sequence[str] | None, said: int | None = None) -> tuple[str, ...]:
    """Hints about columns that `identifiers.found` has found, but for one of which something is said already."""
    why = {True: "which go up by one", False: "and is called as an identifier is"}
    kept = [(_name(j, names), why[counted]) for j, counted in found.items() if j != said]
    return tuple(f"{name} holds whole numbers, no two alike, {reason}. {_OUT}" for name, reason in kept)


def first_lines(files: Iterable[str]) -> tuple[str, ...]:
    """A hint about text files whose first line was taken for a row, as it is all numbers."""
    first, *more = dict.fromkeys(files) or ("",)
    if not first:
        return ()
    others = f", and of {labels.count(len(more), 'more file')}," if more else ""
    return (f"The first line of {first}{others} was taken for a row of numbers; header=True makes it names.",)


def _alone(sizes: Array, names: Sequence[str] | None, remedy: str) -> str:
    j = int(np.argmax(sizes))
    share = sizes[j] ** 2 / np.sum(sizes**2)
    shown = f"{share:.2%}" if share < 0.99995 else "all but 0.01%"
    return f"{_name(j, names)} alone has {shown} of the variance, so component 1 is that column. {remedy}"


def _numbers(table: Any, j: int) -> bool:
    """Whether a column of a client's stored rows has whole numbers of which no two are alike."""
    values = np.concatenate([block[:, j] for block in table.blocks()])
    return len(values) >= _FEWEST and bool(np.all(values == np.rint(values))) and len(np.unique(values)) == len(values)


def _name(j: int, names: Sequence[str] | None) -> str:
    return f"Column {j if names is None else names[j]}"
