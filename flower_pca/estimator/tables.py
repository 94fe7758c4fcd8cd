"""The tables that `fit` accepts: one table with the site of each row, or several tables, one for each client.

scikit-learn checks each table (`checked_rows`), but supports only strings as names of columns. Therefore this module
converts other labels to strings. It also selects columns by name, and adds the name of the column to errors about
cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_array, validate_data

from flower_pca.base.checks import finite
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean_name, count, is_missing
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.blocks.adapters import as_blocks, is_stored
from flower_pca.blocks.source import all_rows
from flower_pca.core.config import COVARIATES
from flower_pca.names.annotated import is_annotated
from flower_pca.names.columns import ColumnNames, Heading, position_of_majority, split_names, unusable_columns_error
from flower_pca.names.frames import text_of_label
from flower_pca.names.ids import as_text, as_texts
from flower_pca.names.levels import Coding
from flower_pca.names.table import Table

DTYPES: Final = (np.float64, np.float32)


def checked_shards(estimator: Any, X: Any, sites: Any) -> list[Table]:
    """Return the checked rows of each client, with the names of columns and sites."""
    found = separate_tables(X)
    if found is None:
        parts, whose = deal_by_site(checked_rows(estimator, X, reset=True, who="X"), sites)
    elif sites is not None:
        raise ConfigError(
            "sites is given together with several tables, but each of these tables is a site already. Give one table "
            "with sites, or several tables without sites.",
            setting="sites",
        )
    else:
        tables, whose = found
        every = enumerate(tables if estimator.columns is not None else align_columns(tables, whose))
        parts = [_store_names(estimator, table, first=i == 0, who=whose.get(i, f"client {i}")) for i, table in every]
    names = getattr(estimator, "feature_names_in_", None)
    if _has_columns_by_name(estimator):
        return [replace(part, site=whose.get(i, part.site)) for i, part in enumerate(parts)]
    texts = ColumnNames(tuple(map(clean_name, names)), "X").names if names is not None else None
    numbered = enumerate(parts)
    return [Table(part, texts, site=whose.get(i, "")) for i, part in numbered]


def columns_of_run(estimator: Any, shards: Sequence[Table]) -> tuple[tuple[str, ...] | None, int]:
    """Return the names of the columns of a run over these shards, and the number of independent columns.

    The sum of the indicator columns of one text column is 1, so one of these columns depends on the others.
    """
    coding: Coding | None = estimator._coding
    if coding is None:
        if not estimator._covariates:
            return shards[0].names, shards[0].shape[1]
        features = tuple(name for name in estimator.feature_names_in_ if name not in estimator._covariates)
        return features, len(features)
    names = tuple(estimator.feature_names_in_)
    found = coding.with_levels_of_sites(
        [coding.levels_at_site(rows, rows.site or f"client {i}") for i, rows in enumerate(shards)]
    )
    return names, max(len(found.with_indicators(names)) - len(found.words), 1)


def separate_tables(X: Any) -> tuple[list[Any], dict[int, str]] | None:
    """Return the tables in a list or a mapping, and the names of their sites by position, or None for a single table.

    A list of rows, each of which is a list of numbers, is a single table.
    """
    if isinstance(X, Mapping):
        tables = list(X.values())
    elif isinstance(X, list | tuple):
        tables = list(X)
    else:
        tables = []
    tables = list(map(_as_table, tables))
    if not tables or any(len(getattr(table, "shape", ())) != 2 for table in tables):
        return None
    own = {i: table.site for i, table in enumerate(tables) if isinstance(table, Table) and table.site}
    return tables, {i: str(site) for i, site in enumerate(X)} if isinstance(X, Mapping) else own


def align_columns(tables: list[Any], sites: dict[int, str]) -> list[Any]:
    """Return the tables with columns in the order of the first table, if all names are strings.

    If a name is missing or is not a string, the tables are unchanged. Raise DataError if the names differ.
    """
    names = [list(column_labels(table) or ()) for table in tables]
    if not all(found and all(isinstance(name, str) for name in found) for found in names):
        return tables
    headings = [Heading.of_names(found, len(found)) for found in names]
    usual = position_of_majority(headings)
    for i, heading in enumerate(headings):
        if not heading.has_same_columns(headings[usual]):
            who, most = (sites.get(j, f"client {j}") for j in (i, usual))
            raise heading.mismatch(who, headings[usual], most).error(DataError, "Align the tables.")
    numbered = enumerate(tables)
    return [pick_columns(table, names[0], who=sites.get(i, f"client {i}")) for i, table in numbered]


def deal_by_site(rows: Any, sites: Any) -> tuple[list[Any], dict[int, str]]:
    """Return the rows of each site, and the sorted names of the sites by position."""
    if sites is None:
        return [rows], {}
    names, place = sites_of(rows, sites)
    return [rows[place == i] for i in range(len(names))], dict(enumerate(names))


def sites_of(rows: Any, sites: Any) -> tuple[list[str], Any]:
    """Return the sorted names of the sites, and for each row the position of its site among them."""
    if isinstance(sites, str):
        raise ConfigError(
            f"sites is {shown(sites)}, but it must contain the site of each row. Give the column itself, for example "
            "sites=X['ward'], and name the columns to use by columns=[...].",
            setting="sites",
        )
    whose = column_or_1d(sites, warn=True)
    check_consistent_length(rows, whose)
    if unnamed := sum(is_missing(label) for label in whose.tolist()):
        raise DataError(
            f"sites has no name for {count(unnamed, 'row')}. Name the site of each row, or leave these rows out.",
            setting="sites",
        )
    kinds = {type(label) for label in whose.tolist()}
    # Labels of different types cannot be sorted. As texts, "7" and "7.0" are the same site.
    by_type = len(kinds) == 1 and not any(issubclass(kind, str) for kind in kinds)
    names, place = np.unique(whose if by_type else as_texts(whose), return_inverse=True)
    return [as_text(name) for name in names.tolist()], place


def column_labels(table: Any) -> list[Any] | None:
    """Return the labels of a table's columns, or None if the columns have only positions."""
    if isinstance(table, Table):
        if table.names is None:
            return None
        return [*table.names, *table.words]
    if not (hasattr(table, "columns") and hasattr(table, "to_numpy")):
        return None
    found = list(table.columns)
    if found == list(range(len(found))):
        return None
    return found


def pick_columns(table: Any, names: Sequence[str] | None, *, who: str) -> Any:
    """Return the columns with these names in this order, or all columns if `names` is None.

    The names of columns are converted to strings. A table without names is returned unchanged.
    """
    known = column_labels(table)
    if known is None:
        return table
    texts = list(map(text_of_label, known))
    own = ColumnNames(tuple(texts), who)
    if isinstance(table, Table):
        if names is None:
            return table
        return table.pick(names, who)
    if 0 < sum(isinstance(label, str) for label in known) < len(known):
        Table.of(table, who=who)  # This call raises the error about names of which only some are strings.
    if texts != known:
        table = table.set_axis(texts, axis=1)
    if names is None or list(names) == texts:
        return table
    own.positions_of(names)
    return table[list(names)]


def checked_rows(estimator: Any, X: Any, *, reset: bool, who: str, least: int = 1) -> Any:
    """Return the rows of a table, checked by scikit-learn, according to the estimator's `columns` and `missing`.

    The table must have at least `least` rows, which is 0 for one of several tables. A table with text columns is
    checked by the run instead, because scikit-learn's checks do not support text.

    Raises
    ------
    ValueError
        If scikit-learn refuses the table. If more is known about the fault, for example the name of the column, the
        error is a DataError.
    """
    X, columns = _as_table(X), split_names(estimator.columns)
    if _has_columns_by_name(estimator):
        return _with_words(estimator, X, columns, reset=reset, who=who)
    if columns is not None and reset and column_labels(X) is None:
        raise ConfigError(
            f"{option('columns')} selects columns by name, but X, {shown(X)}, has no column names. Give data frames, "
            f"or leave {option('columns')} out.",
            setting="columns",
        )
    X = pick_columns(X, columns, who=who)
    finite: bool | str = "allow-nan"
    if estimator.missing == "error":
        finite = True
    try:
        if isinstance(X, Table):
            return _checked_rows(estimator, X, reset=reset, who=who, finite=finite, least=least)
        return _validated(estimator, X, finite, reset=reset, least=least)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        _raise_cell_error(X, error, who, gaps=finite == "allow-nan")
        with hiding_cells(X, who):
            raise


def _as_table(X: Any) -> Any:
    """Return an AnnData object as a table in memory with the names of its genes. Return other data unchanged."""
    if not is_annotated(X) and not isinstance(X, Table):
        return X
    table = Table.of(X, who="X")
    if not is_stored(table.values):
        return table
    return replace(table, values=all_rows(as_blocks(table.values)), parts=())


@contextmanager
def hiding_cells(X: Any, who: str) -> Iterator[None]:
    """Within the block, replace errors of scikit-learn and numpy that quote cells by errors without cells."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if "could not convert" in text:
            raise DataError(
                f"{who} must be a table of numbers, but some cells of {shown(X)} are text. Leave out the columns with "
                "text."
            ) from None
        if "Expected 2D array" in text:
            beginning, _, _ = text.partition("\n")
            remedy = "Reshape your data with X.reshape(1, -1) if it is a single row."
            raise DataError(f"{beginning.rstrip(':')}: {shown(X)}. {remedy}") from None
        raise


def _has_columns_by_name(estimator: Any) -> bool:
    """Return whether the run needs the names of columns, because of text columns or covariates."""
    return estimator._coding is not None or bool(estimator._covariates)


def _with_words(estimator: Any, X: Any, columns: tuple[str, ...] | None, *, reset: bool, who: str) -> Table:
    """Return the rows with their text columns, unchecked, because the run codes text columns and checks the rows."""
    coding: Coding | None = estimator._coding
    words: tuple[str, ...] = estimator._covariates
    if coding is not None:
        words = (*coding.words, *words)
    if column_labels(X) is None:
        setting = coding.field if coding is not None else next(s for s in COVARIATES if getattr(estimator, s))
        raise ConfigError(
            f"{option(setting)} names columns, but X, {shown(X)}, has no column names. Give data frames, or leave "
            f"{option(setting)} out.",
            setting=setting,
        )
    X = pick_columns(X, None, who=who)
    if reset:
        names = dict.fromkeys(clean_name(name) for name in (*(columns or column_labels(X) or ()), *words))
        estimator.feature_names_in_ = np.array(list(names), dtype=object)
        estimator.n_features_in_ = len(names)
    return Table.of(X, who=who)


def _store_names(estimator: Any, table: Any, *, first: bool, who: str) -> Any:
    try:
        return checked_rows(estimator, table, reset=first, who=who, least=0)
    except ValueError as error:
        if not isinstance(error, DataError):  # A DataError already names the owner of the table.
            error.add_note(f"in the table of {who}")
        raise


def _validated(estimator: Any, X: Any, finite: bool | str, *, reset: bool, least: int) -> Any:
    return validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=DTYPES, ensure_all_finite=finite, ensure_min_samples=least
    )


def _checked_rows(estimator: Any, X: Table, *, reset: bool, who: str, finite: bool | str, least: int) -> Any:
    """Return the checked rows of a `Table`, whose column names scikit-learn would not recognize."""
    known = getattr(estimator, "feature_names_in_", None)
    if X.words:
        raise unusable_columns_error(who, X.words, file=False)
    if X.names is None or reset or known is None:
        rows = _validated(estimator, X.values, finite, reset=reset, least=least)
        if reset and X.names is not None:
            estimator.feature_names_in_ = np.array(X.names, dtype=object)
        return rows
    values = pick_columns(X, list(known), who=who).values
    return check_array(
        values,
        estimator=estimator,
        input_name="X",
        accept_sparse="csr",
        dtype=DTYPES,
        ensure_all_finite=finite,
        ensure_min_samples=least,
    )


def _raise_cell_error(X: Any, error: Exception, who: str, *, gaps: bool) -> None:
    """Raise a DataError that names the column, if `error` is an error about the cells of a column.

    If `gaps` is True, missing values are allowed.
    """
    if "fill value" in str(error):
        raise DataError(
            f"The sparse columns of {who} have a fill value other than 0. Use X.sparse.to_dense()."
        ) from error
    if len(getattr(X, "shape", ())) != 2 or 0 in X.shape or "feature names" in str(error):
        return
    rows = Table.of(X, who=who)
    if rows.words:
        raise unusable_columns_error(who, rows.words, file=False) from error
    if getattr(rows.values, "dtype", np.dtype(object)).kind == "f":
        values = rows.values
        if hasattr(values, "toarray"):
            values = values.toarray()
        if gaps:
            values = np.nan_to_num(values, posinf=np.inf, neginf=-np.inf)
        finite(who, [values], names=rows.names)
