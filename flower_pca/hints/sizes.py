"""Hints about columns that make a component by their size or their mean alone, or whose sizes differ as units do.

PCA follows the variance. So a column that numbers the rows, or is measured in small units, becomes the
first component, whatever the other columns are. The server knows the deviation of every column from the
totals of the opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.hints.identifiers import label, numbers_rows

_ALONE: Final = 0.99  # A column with at least this share of the total variance is the first component.
# Above this share of what component 1 explains, component 1 is mostly the mean.
_MEAN: Final = 0.5
# Columns whose largest deviation is at least this many times the lower quartile differ as units do.
_APART: Final = 100.0
_STD: Final = option("scale", "std")
_SCALE_IT: Final = f"Leave it out if it numbers the rows, or use {_STD} if its unit differs from the other columns."
_NUMBERS: Final = "It holds whole numbers, all different, like an identifier. Leave it out."


def hints_of_sizes(sizes: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return hints about columns with these root mean squares (d,), for a run that did not scale them."""
    if column_alone(sizes) is not None:
        return (_alone(sizes, names, _SCALE_IT),)
    varying = np.sort(sizes[sizes > 0.0])
    if len(varying) < 2:
        return ()
    low = float(np.quantile(varying, 0.25))
    high = float(varying[-1])
    if high < _APART * low:
        return ()
    j = int(np.argmax(sizes))
    i = int(np.argmin(np.where(sizes >= low, sizes, np.inf)))
    larger = f"column {label(j, names)} has a standard deviation of {high:.3g}"
    smaller = f"column {label(i, names)} one of {sizes[i]:.3g}"
    differ = f"Columns differ much in size: {larger}, {smaller}."
    return (f"{differ} Use {_STD} if they are measured in different units.",)


def hints_of_mean(offset: float, first: float) -> tuple[str, ...]:
    """Return a hint if rows were not centered and their mean makes up over half of what component 1 explains.

    Parameters
    ----------
    offset : float
        n times the squared length of the mean.
    first : float
        The sum of squares along component 1.
    """
    if offset <= _MEAN * first:
        return ()
    if offset > first:
        weight = "more than all"
    else:
        weight = f"{offset / first:.0%}"
    words = f"Rows were not centered, and their mean weighs {weight} of component 1, which then shows no differences"
    return (f"{words} between rows. Use {option('center', True)}.",)


def column_alone(sizes: Array) -> int | None:
    """Return the column that has nearly all of the variance, or None."""
    squares = sizes**2
    j = int(np.argmax(squares))
    if len(sizes) > 1 and squares[j] >= _ALONE * squares.sum():
        return j
    return None


def hints_of_largest(sizes: Array, names: Sequence[str] | None, tables: Iterable[Any]) -> tuple[str, ...]:
    """Return a hint about a column with nearly all of the variance if it holds different whole numbers."""
    j = column_alone(sizes)
    if j is None or not all(numbers_rows(table, j) for table in tables):
        return ()
    return (_alone(sizes, names, _NUMBERS),)


def _alone(sizes: Array, names: Sequence[str] | None, remedy: str) -> str:
    j = int(np.argmax(sizes))
    share = sizes[j] ** 2 / np.sum(sizes**2)
    # A larger share would be rounded to 100.00%, which is not true.
    if share < 0.99995:
        shown = f"{share:.2%}"
    else:
        shown = "all but 0.01%"
    words = f"Column {label(j, names)} alone has {shown} of the variance, so component 1 is that column. "
    return words + remedy
