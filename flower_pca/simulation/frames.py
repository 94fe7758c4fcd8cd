"""The function `from_frame`, which splits one table into the rows of several sites."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.hints.owners import require_site
from flower_pca.names.columns import ColumnNames, enumeration
from flower_pca.names.ids import as_text, as_texts
from flower_pca.names.table import Table


def from_frame(frame: Any, *, by: Any) -> list[Table]:
    """Split one table into one table for each site.

    The tables keep the names of the columns, and have the names of their sites.

    Parameters
    ----------
    frame
        A data frame of pandas, polars or a similar package, or other rows.
    by
        The site of each row. This is the name of a column or of a level of the index, or one site for each row, as a
        series (such as a column of the table), an array or a list. All other columns are features.

    Returns
    -------
    list of Table
        The tables of the sites, in the order of the sites' names, as input for `simulate`.

    Raises
    ------
    ConfigError
        If `by` is not a name in the table and does not have one site for each row.
    DataError
        If a row has no site, or if the table has no rows or no features.

    Examples
    --------
    >>> import pandas as pd
    >>> from flower_pca import from_frame
    >>> table = pd.DataFrame({"age": [61, 48, 73, 55], "bmi": [24.1, 22.0, 27.9, 25.3], "ward": ["a", "b", "a", "b"]})
    >>> [(part.site, part.values.shape) for part in from_frame(table, by="ward")]
    [('a', (2, 2)), ('b', (2, 2))]
    """
    # A lazy frame of polars must be collected first.
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    shape = _shape_of(frame)
    if len(shape) != 2:
        raise DataError(
            f"from_frame cannot read {shown(frame)} as a table of rows and columns. Give a data frame, or an array "
            "with by=[...]."
        )
    if _is_column(frame, by):
        by = by.name
    if _is_name(by):
        rest, site_of_row = _without_column(frame, by)
    else:
        rest, site_of_row = (frame, _sites_by_row(frame, by, shape[0]))
    require_site(site_of_row.tolist(), str(by) if _is_name(by) else "")
    for side, noun in zip(_shape_of(rest), ("rows", "columns except the column of the sites"), strict=True):
        if not side:
            raise DataError(f"The table has no {noun}. Give a table with rows and features.")
    rows = Table.of(rest, who="the table")
    # Labels of different types cannot be sorted, so they are compared as text.
    found, which = np.unique(
        as_texts(site_of_row) if site_of_row.dtype.kind in "OU" else site_of_row, return_inverse=True
    )
    return [replace(rows[which == i], site=as_text(site)) for i, site in enumerate(found.tolist())]


class _OtherColumns:
    """A view of some columns of a data frame. The view reads each column by name, so it works with any package."""

    def __init__(self, frame: Any, columns: list[Any]) -> None:
        self.frame, self.columns = frame, columns
        self.shape = (_shape_of(frame)[0], len(columns))

    def __getitem__(self, name: Any) -> Any:
        return self.frame[name]

    def to_numpy(self) -> Array:
        return np.column_stack([self.frame[name].to_numpy() for name in self.columns])


def _shape_of(table: Any) -> tuple[int, ...]:
    """Return the shape of a table. For any other object, return a tuple whose length is not 2."""
    known = getattr(table, "shape", None)
    if known is None and hasattr(table, "columns") and hasattr(table, "to_numpy"):
        known = np.shape(table.to_numpy())
    return tuple(known or ())


def _is_name(by: Any) -> bool:
    """Return whether `by` can be the name of a column: None, a text, a number, or a tuple of labels."""
    return isinstance(by, str | int | np.integer | tuple) or by is None


def _is_column(frame: Any, by: Any) -> bool:
    """Return whether `by` is a column of the table, as in by=table["site"]."""
    name, names = getattr(by, "name", None), list(getattr(frame, "columns", ()))
    return hasattr(by, "equals") and name is not None and names.count(name) == 1 and bool(frame[name].equals(by))


def _without_column(frame: Any, by: Any) -> tuple[Any, Array]:
    """Return the table without the column named `by`, and the values of this column.

    If `by` is a level of the index, the table is returned unchanged, with the values of this level.

    Raises
    ------
    ConfigError
        If the table has no column or level named `by`.
    """
    if isinstance(frame, Table):
        names = list(frame.names or ())
        if by not in names:
            raise _no_such_column(by, names)
        return frame.without([by]), np.asarray(frame.values)[:, names.index(by)]
    names = list(getattr(frame, "columns", ()))
    if by in names:
        if names.count(by) > 1:
            ColumnNames(tuple(map(str, names)), "the table")  # This raises the error about names that occur twice.
        return _OtherColumns(frame, [name for name in names if name != by]), np.asarray(frame[by].to_numpy())
    if by is not None and by in getattr(getattr(frame, "index", None), "names", ()):
        return frame, np.asarray(frame.index.get_level_values(by).to_numpy())
    raise _no_such_column(by, names)


def _sites_by_row(frame: Any, by: Any, n: int) -> Array:
    """Return `by` as an array with one site for each of n rows, or raise ConfigError if it has another form."""
    site_of_row = np.empty(())
    if isinstance(by, Iterable) and not isinstance(by, dict | set | bytes):
        site_of_row = np.asarray(by.to_numpy() if hasattr(by, "to_numpy") else list(by))
    if site_of_row.ndim != 1 or len(site_of_row) != n:
        got = f"has {labels.count(len(site_of_row), 'site')}" if site_of_row.ndim == 1 else f"is {shown(by)}"
        raise ConfigError(
            f"by {got}. Name the column of the sites, or give one site for each of the {n:,} rows.", setting="by"
        )
    each: Any = site_of_row.tolist()
    if any(isinstance(label, Collection) and not isinstance(label, str) for label in each):
        raise ConfigError(
            f"by is {shown(by)}, in which some entries are not single sites. Give one site for each row, as text or as "
            "a number."
        )
    own: Any = getattr(frame, "index", None)
    other: Any = getattr(by, "index", None)
    # If the indexes differ, matching by position could assign sites to the wrong rows without any error.
    if hasattr(own, "equals") and hasattr(other, "equals") and not own.equals(other):
        raise ConfigError(
            "The index of by differs from the index of the table. If by is in the order of the rows, give "
            "by=by.to_numpy().",
            setting="by",
        )
    return site_of_row


def _no_such_column(by: Any, names: list[Any]) -> ConfigError:
    known = f", only {enumeration(map(str, names))}" if names else ""
    return ConfigError(
        f"The table has no column named {shown(by)}{known}. Name the column of the sites, or give the site of each "
        "row.",
        setting="by",
    )
