"""One table as the rows of several sites: a column, a level of the index, or a list beside it says whose a row is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.names.columns import Columns, enumeration
from flower_pca.names.sites import SiteRows

# what stands for no site, as it is printed
_GAPS: Final = ("", "nan", "NaT", "<NA>", "None")


def from_frame(frame: Any, *, by: Any) -> list[SiteRows]:
    """The rows of each site of one table, with the names of its columns and of the sites.

    Args:
        frame: A data frame (of pandas, polars, or alike), or other rows.
        by: Whose a row is: the name of the column that says so, or of a level of the index; or a site for each row, as
            a series (maybe a column of the table), an array or a list. The other columns are the features.

    Returns:
        What `simulate` takes: the sites in the order of their names.

    Raises:
        ConfigError: If `by` is none of these.
        DataError: If a row has no site, or the table has no row or no other column.
    """
    # a lazy one of polars
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    shape = _shape(frame)
    if len(shape) != 2:
        remedy = "Give a data frame, or an array with by=[...]."
        raise DataError("The table", must="of rows and columns", got=f"a {type(frame).__name__}", then=remedy)
    if _is_column(frame, by):
        by = by.name
    if _is_name(by):
        rest, whose = _column(frame, by)
    else:
        rest, whose = (frame, _each(frame, by, shape[0]))
    gaps = sum(value is None or str(value).strip() in _GAPS for value in whose.tolist())
    if gaps:
        if _is_name(by):
            what = f"The site of every row, {by},"
        else:
            what = "The site of every row"
        got = f"none in {labels.count(gaps, 'row')}"
        raise DataError(what, must="there", got=got, then="Fill it, or drop these rows.")
    for side, noun in zip(_shape(rest), ("row", "column beside the sites"), strict=True):
        if not side:
            raise DataError("The table", must=f"of at least one {noun}", got="none", then="Check how it was made.")
    rows = SiteRows.of(rest, who="the table")
    found, which = np.unique(whose.astype(str) if whose.dtype == object else whose, return_inverse=True)
    whole = [int(label) if isinstance(label, float) and label.is_integer() else label for label in found.tolist()]
    return [replace(rows[which == i], site=str(site)) for i, site in enumerate(whole)]


class _Others:
    """Some columns of a data frame of whatever package, which are taken by name."""

    def __init__(self, frame: Any, columns: list[Any]) -> None:
        self.frame, self.columns = frame, columns
        self.shape = (_shape(frame)[0], len(columns))

    def __getitem__(self, name: Any) -> Any:
        return self.frame[name]

    def to_numpy(self) -> Array:
        return np.column_stack([self.frame[name].to_numpy() for name in self.columns])


def _shape(table: Any) -> tuple[int, ...]:
    """Rows and columns; of what is no table () or another number of sides."""
    known = getattr(table, "shape", None)
    if known is None and hasattr(table, "columns") and hasattr(table, "to_numpy"):
        known = np.shape(table.to_numpy())
    return tuple(known or ())


def _is_name(by: Any) -> bool:
    """Whether it names one column: a text, a number, or the labels of several levels."""
    return isinstance(by, str | int | np.integer | tuple) or by is None


def _is_column(frame: Any, by: Any) -> bool:
    """Whether it is a column of the table itself, as in by=table["site"]."""
    name, names = getattr(by, "name", None), list(getattr(frame, "columns", ()))
    return hasattr(by, "equals") and name is not None and names.count(name) == 1 and bool(frame[name].equals(by))


def _column(frame: Any, by: Any) -> tuple[Any, Array]:
    """The table without the column of this name, and what is in it; or as it is, and what is in that level."""
    if isinstance(frame, SiteRows):
        names = list(frame.names or ())
        if by not in names:
            raise _unknown(by, names)
        kept = [j for j, name in enumerate(names) if name != by]
        others = replace(frame, values=frame.values[:, kept], names=tuple(names[j] for j in kept))
        return others, np.asarray(frame.values)[:, names.index(by)]
    names = list(getattr(frame, "columns", ()))
    if by in names:
        if names.count(by) > 1:
            Columns(tuple(map(str, names)), "the table")  # which says so
        return _Others(frame, [name for name in names if name != by]), np.asarray(frame[by].to_numpy())
    if by is not None and by in getattr(getattr(frame, "index", None), "names", ()):
        return frame, np.asarray(frame.index.get_level_values(by).to_numpy())
    raise _unknown(by, names)


def _each(frame: Any, by: Any, n: int) -> Array:
    """A site for each of n rows."""
    several = isinstance(by, Iterable) and not isinstance(by, dict | set | bytes)
    if several:
        whose = np.asarray(by.to_numpy() if hasattr(by, "to_numpy") else list(by))
    else:
        whose = np.empty(())
    if whose.ndim != 1 or len(whose) != n:
        if hasattr(by, "shape"):
            shape = f" of shape {by.shape}"
        else:
            shape = ""
        if whose.ndim == 1:
            got = labels.count(len(whose), "site")
        else:
            got = f"a {type(by).__name__}{shape}"
        rule = f"the name of a column, or the site of each of the {n:,} rows"
        raise ConfigError("by", must=rule, got=got, then="Name the sites' column.")
    own: Any = getattr(frame, "index", None)
    other: Any = getattr(by, "index", None)
    if hasattr(own, "equals") and hasattr(other, "equals") and not own.equals(other):
        rule, remedy = "that of the table, in its order", "Give by=by.to_numpy() if it is in the order of the rows."
        raise ConfigError("The index of by", must=rule, got="another", then=remedy)
    return whose


def _unknown(by: Any, names: list[Any]) -> ConfigError:
    rule = "a column of the table" + (f", such as {enumeration(map(str, names))}" if names else "")
    return ConfigError("by", must=rule, got=repr(by), then="Name the sites' column, or give the site of each row.")
