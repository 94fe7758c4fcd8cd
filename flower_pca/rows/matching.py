"""The columns of new rows as those of a result: by name, or by position where one of them has no names."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from typing import Any, Final

from flower_pca.base.errors import ConfigError
from flower_pca.rows import columns
from flower_pca.rows.columns import Columns, listed
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.named import SiteRows
from flower_pca.rows.naming import clean, unlike

_WHO: Final = "the rows given"
_NO_NAMES: Final = "The result has names of columns, the rows have none: they are matched by position."
_NOT_KNOWN: Final = "The rows have names of columns, the result has none: they are matched by position."


def matched(X: Any, frame: Frame, d: int, *, digest: str = "") -> LocalData:
    """The rows in the frame of a result, with its columns.

    Args:
        X: The rows; a text is the path or the spec of a file.
        frame: The frame, with the names of its columns where they are known.
        d: How many columns there are.
        digest: Of their sorted names, where only this is known.

    Raises:
        ConfigError: If a column is missing, by its name.
    """
    names = None if frame.names is None else tuple(map(clean, frame.names))
    rows = named(X, names, digest)
    frame = replace(frame, names=None if rows.names is None else names)
    data = LocalData(rows, who=_WHO, missing=rows.names is not None or frame.fill is not None)
    data = data.framed(frame, keep=False)
    if data.d != d:
        remedy = "Give the features that the run had, in its order."
        raise ConfigError("The number of columns", must=str(d), got=data.d, then=remedy)
    return data


def named(X: Any, names: tuple[str, ...] | None, known: str) -> SiteRows:
    """The rows; with names if their columns are to be matched by these, and all that are needed are there."""
    if isinstance(X, str | os.PathLike):
        from flower_pca.data import sources

        X = sources.make(os.fspath(X))
    rows = SiteRows.of(X, who=_WHO)
    by_name = names is not None or bool(known)
    if by_name != (rows.names is not None):
        warnings.warn(_NO_NAMES if rows.names is None else _NOT_KNOWN, UserWarning, stacklevel=5)
    if rows.names is None or not by_name:
        return SiteRows(rows.whole().values)
    _check(rows, rows.names, names, known)
    return rows


def arranged(X: Any, names: tuple[str, ...] | None, known: str) -> Any:
    """The rows as they are, with their columns in the order of these names, or of their own sorted ones."""
    names = None if names is None else tuple(map(clean, names))
    rows = named(X, names, known)
    if rows.names is None:
        return rows.values
    own = Columns(rows.names, _WHO)
    return rows.values[:, own.places(own.sorted if names is None else names, rows.words)]


def _check(rows: SiteRows, names: tuple[str, ...], wanted: tuple[str, ...] | None, known: str) -> None:
    if wanted is None:
        if columns.digest(names) != known:
            raise _others("those of the result, by name", f"{len(names)} of other names")
        return
    there = {*names, *rows.words}
    if lacking := [name for name in wanted if name not in there]:
        near = unlike(lacking, there)
        got = f"{len(names)}, without {listed(map(repr, lacking))}{f' ({near})' if near else ''}"
        raise _others(f"{f'the {len(wanted)}' if len(wanted) > 1 else 'that'} of the result, by name", got)


def _others(rule: str, got: str) -> ConfigError:
    remedy = "Give all features that the run had."
    return ConfigError("The columns of the rows given", must=rule, got=got, then=remedy)
