"""Match the columns of new rows with the columns of a result: by name, or by position if either has no names."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array
from flower_pca.names.columns import ColumnNames, Heading, enumeration, missing_columns
from flower_pca.names.levels import source_of
from flower_pca.names.table import Table
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

_WHO: Final = "the rows given"
_FEATURES: Final = "Give all features of the run."
_NO_NAMES: Final = "The result has column names but the rows have none, so they are matched by position."
_NOT_KNOWN: Final = "The rows have column names but the result has none, so they are matched by position."


def rows_in_frame(X: Any, frame: Frame, d: int, *, digest: str = "") -> LocalData:
    """Return new rows in the frame of a result, with the columns of the result.

    Parameters
    ----------
    X : array-like
        The rows. A string is the path or the spec of a file.
    frame : Frame
        The frame of the result, with the names of its columns if they are known.
    d : int
        The number of columns of the result.
    digest : str, default=""
        The digest of the sorted names of the columns, if only the digest is known.

    Raises
    ------
    ConfigError
        If a column is missing (the error names it), or if the number of columns differs.
    """
    names = _names_or_none(frame.names)
    if frame.covariates is not None and frame.covariates.names:
        rows = _rows_beside_covariates(X, names, frame.covariates)
    else:
        rows = rows_by_name(X, names, digest)
    frame = replace(frame, names=None if rows.names is None else names)
    data = LocalData(rows, who=_WHO, missing=True).in_frame(frame, once=True)
    if frame.fill is None:
        data.require_whole(new=True)
    if data.d != d:
        raise ConfigError(
            f"The rows have {data.d} columns, but the run had {d}. Give all columns of the run, in the same order."
        )
    return data


def _rows_beside_covariates(X: Any, names: tuple[str, ...] | None, covariates: Covariates) -> Table:
    """Return the rows as a table. Raise a ConfigError if a feature or covariate is missing."""
    if names is None:
        raise ConfigError(
            "The result has no column names, so the covariates of new rows cannot be distinguished from features. "
            "Run again with rows that have column names."
        )
    rows = rows_as_table(X, (*names, *covariates.names))
    there = {*(rows.names or ()), *rows.texts, *rows.coded}
    if absent := [name for name in covariates.names if not {name, source_of(name)} & there]:
        raise ConfigError(
            f"The rows given have no column {enumeration(absent)}, but the run removed its effect. Add this column to "
            "the rows."
        )
    _check_columns(rows, rows.names or (), names, "")
    return rows


def _names_or_none(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(map(clean_name, names))


def rows_by_name(X: Any, names: tuple[str, ...] | None, known: str) -> Table:
    """Return the rows as a table with all needed columns.

    If columns are matched by position, the table has no column names. `known` is the digest of the result's sorted
    names, or "". Issue a UserWarning if only the rows or only the result has names. Raise a ConfigError if a column is
    missing.
    """
    rows = rows_as_table(X, names)
    by_name = names is not None or bool(known)
    if by_name != (rows.names is not None):
        warnings.warn(_NO_NAMES if rows.names is None else _NOT_KNOWN, UserWarning, stacklevel=5)
    if rows.names is None or not by_name:
        return replace(rows.whole(), names=None)
    _check_columns(rows, rows.names, names, known)
    return rows


def rows_as_table(X: Any, names: tuple[str, ...] | None = None) -> Table:
    """Return the rows as a table. If X is text, read the file or spec that it names."""
    if isinstance(X, str | os.PathLike):
        from flower_pca.data import sources

        X = sources.make(os.fspath(X), names)
    return Table.of(X, who=_WHO)


def with_columns_in_order(X: Any, names: tuple[str, ...] | None, known: str) -> Any:
    """Return the rows with columns in the order of these names, or sorted by name if `names` is None.

    Columns without names keep their order. `known` is the digest of the result's sorted names, or "".
    """
    names = _names_or_none(names)
    rows = rows_by_name(X, names, known)
    if rows.names is None:
        return rows.values
    columns = ColumnNames(rows.names, _WHO)
    wanted = columns.sorted_names if names is None else names
    return rows.pick(wanted, _WHO).values


def components_in_order(components: Array, names: Any, names_wanted: Any) -> Array:
    """Return the components of another result with columns in the wanted order, or unchanged if names are missing.

    Raise a ConfigError if the two results have different columns.
    """
    if names is None or names_wanted is None:
        return components
    other = Heading.of_names(names, len(names))
    ours = Heading.of_names(names_wanted, len(names_wanted))
    if not other.has_same_columns(ours):
        remedy = "Compare results with the same columns."
        raise other.mismatch("the other result", ours, "this result").error(ConfigError, remedy)
    places = ColumnNames(tuple(names)).positions_of(tuple(names_wanted))
    return np.asarray(components[:, places])


def _check_columns(rows: Table, names: tuple[str, ...], wanted: tuple[str, ...] | None, known: str) -> None:
    if wanted is None:
        own = Heading.of_names(names, len(names))
        if own.digest != known:
            raise own.mismatch(_WHO, Heading(len(names), known), "the result").error(ConfigError, _FEATURES)
        return
    columns, there = {*names}, {*names, *rows.texts}
    needed = [name for name in wanted if name in columns or source_of(name) not in there]
    if absent := missing_columns(_WHO, needed, names, rows.words, "the result"):
        raise absent.error(ConfigError, _FEATURES)
