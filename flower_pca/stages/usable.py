"""Whether the rows of all clients can be used, from the totals of the opening: what columns are divided by, and what
stands for missing values. Columns that leave nothing to find are named in an error.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays

_CONSTANT: Final = 8.0  # a deviation within so many roundings of the mean is none
_ALIKE: Final = 64.0  # likewise, where it is so in all columns
_LEAST: Final = 1e-290  # of squares: what is smaller has lost its digits, or soon will
_LEAST_SINGLE: Final = 1e-36  # likewise, in single precision
_SINGLE: Final = 1e-10  # between the two precisions
_LARGEST: Final = 1e139  # of sums of squares
_LARGEST_SINGLE: Final = 1e37  # likewise, in single precision
_USUAL: Final = "1e-145 at least"


def require_size(data: Any, squares: Array) -> None:
    """Raise DataError if the rows of a client are so large that their sums of squares are none.

    It hangs on the rows alone, not on what is asked of them, and says nothing of how large they are: else a server
    could ask with larger and larger blocks until it is told so, and measure the rows by that.
    """
    if data.dtype == np.float32:
        largest = _LARGEST_SINGLE
    else:
        largest = _LARGEST
    if float(squares.sum(dtype=np.float64)) <= largest:  # which NaN is not
        return
    rule = "of usual size, at most 1e+65, or 1e+16 in single precision"
    remedy = "Scale the data, or mend it: a number so large often stands for a missing value."
    peak, names = data.peak(), getattr(data, "names", None)
    j = int(np.argmax(peak))
    got = f"a larger one in column {j if names is None else names[j]}"
    raise DataError(f"The data of {data.who}", must=rule, got=got, then=remedy)


def fill(total: Arrays, names: Sequence[str] | None) -> Array | None:
    """What missing values become: the mean of those that are there."""
    if "count" not in total:
        return None
    _refuse("Every column of rows with gaps", "there at some client", "empty", total["count"] == 0, "Drop them.", names)
    return total["mean"]


def require_variance(squares: Array, mean: Array, n: int, eps: float) -> None:
    """Raise DataError if there is nothing to find: the same row everywhere, or squares that are next to nothing.

    `mean` is what has been subtracted, in absolute value; `eps` the precision of the coarsest client.
    """
    what, least = "The rows of all clients together", _LEAST if eps < _SINGLE else _LEAST_SINGLE
    if (np.sqrt(squares / n) <= _ALIKE * np.finfo(np.float64).eps * mean).all():
        if (mean**2 >= _LEAST).any():
            got = "the same row everywhere"
        else:
            got = "zeros only, or numbers whose squares are 0"
        raise DataError(what, must="different from one another", got=got, then="Check the columns.")
    if squares.sum() < least:
        rule, got = f"of usual size, {np.sqrt(least):.0e} at least", f"squares of {squares.sum():.1e} together"
        raise DataError(what, must=rule, got=got, then="Scale the data.")


def scale(kind: str | None, total: Arrays, names: Sequence[str] | None, shared: Collection[str] = ()) -> Array | None:
    """What each column is divided by: its deviation, its largest absolute value, or nothing.

    Where deviations are all that is wanted ("deviation"), a column that is the same everywhere is left as it is. Those
    that are `shared` are divided by the root of their mean, which is the share of the rows that are 1 there.
    """
    if shared:
        return _with_shares(kind, total, list(names or ()), shared)
    match kind:
        case None:
            return None
        case "max_abs":
            small = (total["peak"] > 0.0) & (total["peak"] ** 2 < _LEAST)
            _refuse('Every column under scale="max_abs"', _USUAL, "smaller", small, "Scale them first.", names)
            return np.where(total["peak"] > 0.0, total["peak"], 1.0)
    deviation = np.sqrt(total["m2"] / total.get("count", total["n"]))
    constant = deviation <= _CONSTANT * np.finfo(np.float64).eps * np.abs(total["mean"])
    small = (deviation > 0.0) & (deviation**2 < _LEAST)
    if kind == "deviation":
        return np.where(constant | small, 1.0, deviation)
    _refuse('The deviation of every column under scale="std"', _USUAL, "smaller", small, "Scale them first.", names)
    _refuse('Every column under scale="std"', "varying", "constant", constant, "Drop them, or use scale=None.", names)
    return np.asarray(deviation)


def _with_shares(kind: str | None, total: Arrays, names: list[str], shared: Collection[str]) -> Array:
    """The same, where some columns are divided by roots of shares; one that no row has is left as it is."""
    means, by_share = total["mean"], np.array([name in shared for name in names])
    divisor = np.where(by_share & (means > 0.0), np.sqrt(np.abs(means)), 1.0)
    others = {name: a[~by_share] if np.shape(a) == means.shape else a for name, a in total.items()}
    left = [name for name in names if name not in shared]
    if left and (found := scale(kind, others, left)) is not None:
        divisor[~by_share] = found
    return divisor


def _refuse(what: str, rule: str, kind: str, bad: Array, remedy: str, names: Sequence[str] | None) -> None:
    """Raise DataError if any column is bad, with their names or numbers."""
    columns = np.flatnonzero(bad)
    if len(columns):
        if len(columns) == 1:
            then = remedy.replace("them", "it")
        else:
            then = remedy
        named = ", ".join(str(j if names is None else names[j]) for j in columns[:10]) + (
            f" and {len(columns) - 10} more" if len(columns) > 10 else ""
        )
        raise DataError(what, must=rule, got=f"{kind} {labels.noun(len(columns), 'column')} {named}", then=then)
