"""Hints: sentences about columns that make components other than the ones a reader may think of.

A PCA follows variance. So a column that numbers the rows, or is measured in small units, becomes the first component
whatever the others do. From the totals of the opening the server knows every column's deviation: `of_sizes` speaks of
these. Where rows are at hand, `find_identifiers` looks for columns that number rows or people, whatever their size.
They hold whole numbers of which no two are alike, and go up by one, over each client's rows or over all of them
together, in whatever order rows are; or the column is called as such a one is: id, patient_nr, MRN. Ages, counts and
codes have gaps or come twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array

_ALONE: Final = 0.99  # of the total variance: then one column is the first component
# of what component 1 explains: above, it is the mean more than anything else
_MEAN: Final = 0.5
# a deviation over that of the lower quarter, from which columns differ by their units
_APART: Final = 100.0
# rows from which whole numbers that are all different are no accident
_FEWEST: Final = 20
_LOOK: Final = 64  # rows of each client that tell most columns from an identifier
_UNITS: Final = (
    'Leave it out if it numbers the rows, or use scale="std" if it is measured in other units than the rest.'
)
_OUT: Final = "Leave it out if it numbers the rows: name the others with columns=[...]."
_NUMBERS: Final = "It holds whole numbers, no two alike, as an identifier does: leave it out."
_LAST_WORDS: Final = {  # of a name that says so by itself
    *("id", "ids", "idx", "index", "key", "mrn", "pid", "uid", "uuid", "identifier", "pseudonym", "unnamed"),
    *("recordid", "patientid", "patid", "patnr", "patientennummer", "fallnr", "fallnummer", "kennung"),
}
_WHOSE: Final = {
    *("patient", "subject", "person", "participant", "case", "encounter"),
    *("record", "row", "sample", "study", "visit"),
}
_NUMBER: Final = {"id", "nr", "no", "num", "number", "nummer", "code", "key", "index"}


def of_sizes(sizes: Array, names: Sequence[str] | None) -> tuple[str, ...]:
    """Hints about columns of these sizes (d,), roots of mean squares, whose components nobody has scaled."""
    if alone(sizes) is not None:
        return (_alone(sizes, names, _UNITS),)
    varying = np.sort(sizes[sizes > 0.0])
    if len(varying) < 2:
        return ()
    low = float(np.quantile(varying, 0.25))
    high = float(varying[-1])
    if high < _APART * low:
        return ()
    j = int(np.argmax(sizes))
    i = int(np.argmin(np.where(sizes >= low, sizes, np.inf)))
    larger = f"column {_label(j, names)} has a deviation of {high:.3g}"
    smaller = f"column {_label(i, names)} one of {sizes[i]:.3g}"
    remedy = 'Use scale="std" if they are measured in different units.'
    return (f"Columns differ much in size: {larger}, {smaller}. {remedy}",)


def of_mean(offset: float, first: float) -> tuple[str, ...]:
    """A hint where rows were not centred, and their mean weighs more than half of what component 1 explains.

    Args:
        offset: n times the squared length of the mean.
        first: The sum of squares along component 1.
    """
    if offset <= _MEAN * first:
        return ()
    if offset > first:
        weight = "more than all"
    else:
        weight = f"{offset / first:.0%}"
    words = f"Rows were not centred, and their mean weighs {weight} of component 1, which then shows no differences"
    return (f"{words} between rows. Use center=True.",)


def alone(sizes: Array) -> int | None:
    """The column that has nearly all of the variance, if one has."""
    squares = sizes**2
    j = int(np.argmax(squares))
    if len(sizes) > 1 and squares[j] >= _ALONE * squares.sum():
        return j
    return None


def of_first_lines(files: Iterable[str]) -> tuple[str, ...]:
    """A hint about text files whose first line was taken for a row, as it is all numbers."""
    first, *more = dict.fromkeys(files) or ("",)
    if not first:
        return ()
    if more:
        others = f", and of {labels.count(len(more), 'more file')},"
    else:
        others = ""
    return (f"The first line of {first}{others} was taken for a row of numbers; header=True makes it names.",)


def of_largest(sizes: Array, names: Sequence[str] | None, tables: Iterable[Any]) -> tuple[str, ...]:
    """A hint about a column that has nearly all variance, and numbers these clients' rows as far as one can see."""
    j = alone(sizes)
    if j is None or not all(_numbers(table, j) for table in tables):
        return ()
    return (_alone(sizes, names, _NUMBERS),)


def of_identifiers(columns: Mapping[int, bool], names: Sequence[str] | None, but: int | None = None) -> tuple[str, ...]:
    """Hints about what `find_identifiers` has found, but for one column of which something is said already."""
    why = {True: "which go up by one", False: "and is called as an identifier is"}
    others = {j: counts for j, counts in columns.items() if j != but}
    start = "holds whole numbers, no two alike,"
    return tuple(f"Column {_label(j, names)} {start} {why[counts]}. {_OUT}" for j, counts in others.items())


def is_called_identifier(name: str) -> bool:
    """Whether a column is called as an identifier is."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    whose = any(word in _WHOSE for word in words)
    numbers = len(words) == 1 or words[-1] in _NUMBER
    return words[-1] in _LAST_WORDS or (whose and numbers) or words in (["nr"], ["index", "level"])


def find_identifiers(tables: Sequence[Any], names: Sequence[str] | None) -> dict[int, bool]:
    """The columns of these clients' stored rows that are identifiers: whether they go up by one, or are called so only.

    Args:
        tables: What has its rows in `blocks()`, and says whether they are `sparse`.
        names: Names of the columns, where they have any.
    """
    if not tables or any(table.sparse for table in tables) or sum(table.n for table in tables) < _FEWEST:
        return {}
    columns = _candidates(tables)
    if not len(columns):
        return {}
    by_name = {int(j) for j in columns if names is not None and is_called_identifier(str(names[j]))}
    ranges = [_range(table, columns) for table in tables]
    sizes = np.array([table.n for table in tables])
    low, high, whole = (np.array(side) for side in zip(*ranges, strict=True))
    each = (high - low + 1.0 == sizes[:, None]).all(axis=0) & (sizes.max() >= _FEWEST)
    together = high.max(axis=0) - low.min(axis=0) + 1.0 == sizes.sum()
    identifiers: dict[int, bool] = {}
    for i, j in enumerate(map(int, columns)):
        counts = bool(each[i] or together[i])
        if whole[:, i].all() and (counts or j in by_name) and _different(tables, j, together=bool(together[i])):
            identifiers[j] = counts
    return identifiers


def _candidates(tables: Sequence[Any]) -> Array:
    """The columns that may be identifiers by a few rows of each client."""
    columns = np.arange(tables[0].d)
    for table in tables:
        block = next(iter(table.blocks()))
        # one row tells columns of whole numbers from most others
        for few in (1, _LOOK):
            columns = columns[_unlike(block[:few, columns])]
        if not len(columns):
            break
    return columns


def _unlike(block: Array) -> Array:
    """Which columns hold whole numbers, no two of them alike."""
    if block.dtype.kind not in "fiu":
        return np.zeros(block.shape[1], dtype=bool)
    steps = np.diff(np.sort(block, axis=0), axis=0)
    return np.asarray(_whole(block) & (steps != 0).all(axis=0))


def _whole(block: Array) -> Array:
    """Which columns hold nothing but whole numbers, and gaps."""
    with np.errstate(invalid="ignore"):
        return np.asarray(((np.rint(block) == block) & ~np.isinf(block) | np.isnan(block)).all(axis=0))


def _range(table: Any, columns: Array) -> tuple[Array, Array, Array]:
    """The least and the largest value of each column, and whether all are whole."""
    low = np.inf
    high = -np.inf
    whole = np.ones(len(columns), dtype=bool)
    for block in table.blocks():
        part = block[:, columns].astype(np.float64)
        low = np.fmin(low, np.fmin.reduce(part))
        high = np.fmax(high, np.fmax.reduce(part))
        whole &= _whole(part)
    return np.asarray(low), np.asarray(high), whole


def _different(tables: Sequence[Any], j: int, *, together: bool) -> bool:
    """Whether no two values of a column are alike, at each client or at all of them."""
    parts = [_column(table, j) for table in tables]
    if together:
        parts = [np.concatenate(parts)]
    parts = [part[part == part] for part in parts]
    return any(map(len, parts)) and all(len(np.unique(part)) == len(part) for part in parts)


def _numbers(table: Any, j: int) -> bool:
    """Whether a column of a client's stored rows has whole numbers of which no two are alike."""
    values = _column(table, j)
    return len(values) >= _FEWEST and bool(np.all(values == np.rint(values))) and len(np.unique(values)) == len(values)


def _column(table: Any, j: int) -> Array:
    return np.concatenate([block[:, j] for block in table.blocks()])


def _alone(sizes: Array, names: Sequence[str] | None, remedy: str) -> str:
    j = int(np.argmax(sizes))
    share = sizes[j] ** 2 / np.sum(sizes**2)
    if share < 0.99995:
        shown = f"{share:.2%}"
    else:
        shown = "all but 0.01%"
    return f"Column {_label(j, names)} alone has {shown} of the variance, so component 1 is that column. {remedy}"


def _label(j: int, names: Sequence[str] | None) -> str:
    return str(j if names is None else names[j])
