"""Find columns that determine a component by their size or mean, or that seem to be measured in different units.

PCA follows the variance. So a column that numbers the rows, or a column in small units, becomes the first component,
whatever the other columns are. The server computes the standard deviation of every column from the totals that clients
send at the start of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.hints.identifiers import column_label, numbers_rows

_ALONE: Final = 0.99  # A column with at least this share of the total variance is the first component.
# If the mean exceeds this share of the sum of squares along component 1, component 1 is mostly the mean.
_MEAN: Final = 0.5
# Units seem to differ if the largest standard deviation is at least this many times the lower quartile.
_APART: Final = 100.0
_STD: Final = option("scale", "std")
_SCALE_IT: Final = f"Leave it out if it numbers the rows, or use {_STD} if its unit differs from the other columns."
_NUMBERS: Final = "It holds whole numbers, all different, like an identifier. Leave it out."


def hints_of_sizes(sizes: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return hints about columns with these root mean squares (d,), for a run that did not scale them."""
    if dominating_column(sizes) is not None:
        return (_hint_of_largest(sizes, names, _SCALE_IT),)
    varying = np.sort(sizes[sizes > 0.0])
    if len(varying) < 2:
        return ()
    low = float(np.quantile(varying, 0.25))
    high = float(varying[-1])
    if high < _APART * low:
        return ()
    j = int(np.argmax(sizes))
    i = int(np.argmin(np.where(sizes >= low, sizes, np.inf)))
    larger = f"column {column_label(j, names)} has a standard deviation of {high:.3g}"
    smaller = f"column {column_label(i, names)} has a standard deviation of {sizes[i]:.3g}"
    differ = f"Columns differ much in size: {larger}, but {smaller}."
    return (f"{differ} Use {_STD} if they are measured in different units.",)


def hints_of_mean(offset: float, first: float) -> tuple[str, ...]:
    """Return a hint if rows were not centered and their mean makes up more than half of component 1.

    Parameters
    ----------
    offset : float
        n times the squared length of the mean.
    first : float
        The sum of squares along component 1.
    """
    if offset <= _MEAN * first:
        return ()
    weight = "more than 100%" if offset > first else f"{offset / first:.0%}"
    words = f"Rows were not centered, and their mean makes up {weight} of component 1, which then hides differences"
    return (f"{words} between rows. Use {option('center', True)}.",)


def dominating_column(sizes: Array) -> int | None:
    """Return the position of the column that has at least 99% of the variance, or None if no column has so much."""
    squares = sizes**2
    j = int(np.argmax(squares))
    if len(sizes) > 1 and squares[j] >= _ALONE * squares.sum():
        return j
    return None


def hints_of_largest(sizes: Array, names: Sequence[str] | None, tables: Iterable[Any]) -> tuple[str, ...]:
    """Return a hint if a column has at least 99% of the variance and holds whole numbers that are all different."""
    j = dominating_column(sizes)
    if j is None or not all(numbers_rows(table, j) for table in tables):
        return ()
    return (_hint_of_largest(sizes, names, _NUMBERS),)


def _hint_of_largest(sizes: Array, names: Sequence[str] | None, remedy: str) -> str:
    j = int(np.argmax(sizes))
    share = sizes[j] ** 2 / np.sum(sizes**2)
    # A larger share would be rounded to 100.00%, which would be wrong.
    shown = f"{share:.2%}" if share < 0.99995 else "all but 0.01%"
    words = f"Column {column_label(j, names)} alone has {shown} of the variance, so component 1 is that column. "
    return words + remedy
