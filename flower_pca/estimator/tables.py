"""What `fit` may be given: one table with the site of each row, or several tables, one per client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from sklearn.utils import check_consistent_length, column_or_1d

from flower_pca.base.errors import DataError
from flower_pca.rows.columns import difference
from flower_pca.stages import start as starts
from flower_pca.stages.start import Known, Start

_UNNAMED: Final = ("None", "nan", "<NA>", "NaT")  # what stands for no name, as it is printed


def several(X: Any) -> tuple[list[Any], dict[int, str]] | None:
    """The tables of a list or a mapping, and in a mapping the names of their sites; None of a single table.

    A table that is written as a list of rows is one.
    """
    tables = list(X.values()) if isinstance(X, Mapping) else list(X) if isinstance(X, list | tuple) else []
    if not tables or any(len(getattr(table, "shape", ())) != 2 for table in tables):
        return None
    return tables, {i: str(site) for i, site in enumerate(X)} if isinstance(X, Mapping) else {}


def aligned(tables: list[Any], sites: dict[int, str]) -> list[Any]:
    """The tables, the columns of each in the order of the first one's, where all have names that are text."""
    names = [list(getattr(table, "columns", ())) for table in tables]
    if not all(found and all(isinstance(name, str) for name in found) for found in names):
        return tables
    for i, found in enumerate(names):
        if sorted(found) != sorted(names[0]):
            who, first = (sites.get(j, f"client {j}") for j in (i, 0))
            got = f"{len(found)}, {difference(found, names[0])}"
            raise DataError(f"The columns of {who}", must=f"those of {first}", got=got, then="Align the tables.")
    return [table[names[0]] for table in tables]


def dealt(rows: Any, sites: Any) -> tuple[list[Any], dict[int, str]]:
    """The rows of each client, in the order of the sites' names, and these names."""
    if sites is None:
        return [rows], {}
    labels = column_or_1d(sites, warn=True)
    check_consistent_length(rows, labels)
    if unnamed := sum(repr(label) in _UNNAMED for label in labels.tolist()):
        remedy = "Name them, or leave these rows out."
        raise DataError("sites", must="the name of one for each row", got=f"{unnamed} rows without", then=remedy)
    kinds = {type(label) for label in labels.tolist()}
    names, client = np.unique(labels if len(kinds) == 1 else labels.astype(str), return_inverse=True)
    return [rows[client == i] for i in range(len(names))], {i: str(name) for i, name in enumerate(names)}


def start(given: Start | None, names: Any) -> Known | None:
    """What a run begins with, its columns in the order of tables with these names, or by position."""
    if given is None:
        return None
    known = starts.known(given)
    if names is None or known.feature_names_in_ is None:
        return known._replace(feature_names_in_=None)
    return known.arranged(tuple(names))
