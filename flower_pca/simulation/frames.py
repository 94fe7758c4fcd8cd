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
from flower_pca.names.columns import Columns, enumeration
from flower_pca.names.table import Table


def from_frame(frame: Any, *, by: Any) -> list[Table]:
    """Split one table into the rows of each site, with the names of its columns and of the sites.

    Parameters
    ----------
    frame
        A data frame (of pandas, polars, or alike), or other rows.
    by
        Whose a row is: the name of the column that says so, or of a level of the index; or a site for each row, as a
        series (maybe a column of the table), an array or a list. The other columns are the features.

    Returns
    -------
    list of Table
        What `simulate` takes: the sites in the order of their names.

    Raises
    ------
    ConfigError
        If `by` is none of these.
    DataError
        If a row has no site, or the table has no row or no other column.

    Examples
    --------
    >>> import pandas as pd
    >>> from flower_pca import from_frame
    >>> table = pd.DataFrame({"age": [61, 48, 73, 55], "bmi": [24.1, 22.0, 27.9, 25.3], "ward": ["a", "b", "a", "b"]})
    >>> [(part.site, part.values.shape) for part in from_frame(table, by="ward")]
    [('a', (2, 2)), ('b', (2, 2))]
    """
    # a lazy frame of polars
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    shape = _shape(frame)
    if len(shape) != 2:
        raise DataError(
            f"from_frame cannot read {shown(frame)} as a table of rows and columns. Give a data frame, or an array "
            "with by=[...]."
        )
    if _is_column(frame, by):
        by = by.name
    if _is_name(by):
        rest, whose = _column(frame, by)
    else:
        rest, whose = (frame, _each(frame, by, shape[0]))
    require_site(whose.tolist(), str(by) if _is_name(by) else "")
    for side, noun in zip(_shape(rest), ("row", "column beside the sites"), strict=True):
        if not side:
            raise DataError(f"The table has no {noun}. Check how it was made.")
    rows = Table.of(rest, who="the table")
    # Labels of several types cannot be sorted, so compare them as text.
    found, which = np.unique(whose.astype(str) if whose.dtype == object else whose, return_inverse=True)
    # In a column that once had gaps, pandas stores whole numbers as floats: site 1.0 is site 1.
    whole = [int(label) if isinstance(label, float) and label.is_integer() else label for label in found.tolist()]
    return [replace(rows[which == i], site=str(site)) for i, site in enumerate(whole)]


class _Others:
    """Some columns of a data frame of any package, which are read by name."""

    def __init__(self, frame: Any, columns: list[Any]) -> None:
        self.frame, self.columns = frame, columns
        self.shape = (_shape(frame)[0], len(columns))

    def __getitem__(self, name: Any) -> Any:
        return self.frame[name]

    def to_numpy(self) -> Array:
        return np.column_stack([self.frame[name].to_numpy() for name in self.columns])


def _shape(table: Any) -> tuple[int, ...]:
    """Return the shape of a table; () or another number of dimensions for other objects."""
    known = getattr(table, "shape", None)
    if known is None and hasattr(table, "columns") and hasattr(table, "to_numpy"):
        known = np.shape(table.to_numpy())
    return tuple(known or ())


def _is_name(by: Any) -> bool:
    """Return whether `by` names one column: a text, a number, or the labels of several levels."""
    return isinstance(by, str | int | np.integer | tuple) or by is None


def _is_column(frame: Any, by: Any) -> bool:
    """Return whether `by` is a column of the table itself, as in by=table["site"]."""
    name, names = getattr(by, "name", None), list(getattr(frame, "columns", ()))
    return hasattr(by, "equals") and name is not None and names.count(name) == 1 and bool(frame[name].equals(by))


def _column(frame: Any, by: Any) -> tuple[Any, Array]:
    """Return the table without the column named `by`, and that column.

    If `by` is a level of the index, the table stays as it is.
    """
    if isinstance(frame, Table):
        names = list(frame.names or ())
        if by not in names:
            raise _unknown(by, names)
        return frame.without([by]), np.asarray(frame.values)[:, names.index(by)]
    names = list(getattr(frame, "columns", ()))
    if by in names:
        if names.count(by) > 1:
            Columns(tuple(map(str, names)), "the table")  # raises the error about names that occur twice
        return _Others(frame, [name for name in names if name != by]), np.asarray(frame[by].to_numpy())
    if by is not None and by in getattr(getattr(frame, "index", None), "names", ()):
        return frame, np.asarray(frame.index.get_level_values(by).to_numpy())
    raise _unknown(by, names)


def _each(frame: Any, by: Any, n: int) -> Array:
    """Return the sites in `by`, one for each of n rows, or raise a ConfigError."""
    whose = np.empty(())
    if isinstance(by, Iterable) and not isinstance(by, dict | set | bytes):
        whose = np.asarray(by.to_numpy() if hasattr(by, "to_numpy") else list(by))
    if whose.ndim != 1 or len(whose) != n:
        got = f"has {labels.count(len(whose), 'site')}" if whose.ndim == 1 else f"is {shown(by)}"
        raise ConfigError(
            f"by {got}. Name the column of the sites, or give one site for each of the {n:,} rows.", setting="by"
        )
    each: Any = whose.tolist()
    if any(isinstance(label, Collection) and not isinstance(label, str) for label in each):
        raise ConfigError(f"by must have one site for each row, as text or as a number. It is {shown(by)}.")
    own: Any = getattr(frame, "index", None)
    other: Any = getattr(by, "index", None)
    # By position, rows would get the sites of other rows without any error.
    if hasattr(own, "equals") and hasattr(other, "equals") and not own.equals(other):
        raise ConfigError(
            "The index of by differs from the index of the table. If by is in the order of the rows, give "
            "by=by.to_numpy().",
            setting="by",
        )
    return whose


def _unknown(by: Any, names: list[Any]) -> ConfigError:
    known = f", only {enumeration(map(str, names))}" if names else ""
    return ConfigError(
        f"The table has no column named {shown(by)}{known}. Name the column of the sites, or give the site of each "
        "row.",
        setting="by",
    )
