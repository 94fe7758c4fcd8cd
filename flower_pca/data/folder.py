"""A folder of one file per client."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.data.reading import no_rows, reading, texts
from flower_pca.data.table import Table
from flower_pca.names.columns import Columns, difference, listed, no_numbers
from flower_pca.names.origin import Origin
from flower_pca.names.sites import SiteRows

Reader = Callable[..., Table]

_NAMED: Final = "Give the files of all clients names of columns, or of none."
_IDS: Final = "If a column says whose row it is, name it: ids='patient'."
_ALIGN: Final = "Give every client the same features, or name those of the run with columns=[...]."


def read(
    readers: Mapping[str, Reader],
    *,
    path: str,
    pattern: str = "*",
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    options: Mapping[str, Any],
) -> Table:
    """One part for each file, in the order of their names, numbers by their size; the names go beside, as file.

    Args:
        readers: The functions that read a file, by the ending of its name; files with other endings are passed over.
        path: The folder.
        pattern: Which files: "*.csv", say.
        columns: Names of the columns to use, of files that have names.
        beside: Names of columns that are no features, of files that can have them.
        options: How csv files are read.
    """
    place, files = _files(readers, path, pattern)
    apart = tuple(name for name in texts("beside", beside) if name != "file")
    wanted = {name: value for name, value in (("columns", columns), ("beside", apart)) if value} | dict(options)
    tables = [_one(readers[file.suffix.lower()], file, wanted) for file in files]
    tables = [_like(tables[0], table, files[0], file) for table, file in zip(tables, files, strict=True)]
    sites = _sites(files)
    parts = tuple(table.parts[0] for table in tables)
    sizes = [int(part.shape[0]) for part in parts]
    columns_apart = {name: np.concatenate([table.beside[name] for table in tables]) for name in tables[0].beside}
    beside_rows = {**columns_apart, "file": np.repeat(np.array(sites), sizes)}
    origin = Origin(tuple(stretch for table in tables if table.origin for stretch in table.origin.stretches))
    return Table(parts, tables[0].names, beside_rows, {}, str(place), origin, tuple(sites))


def parties(
    readers: Mapping[str, Reader], *, path: str, pattern: str = "*", ids: str | None, options: Mapping[str, Any]
) -> list[SiteRows]:
    """The table of each party, one for each file: different columns of the same people.

    `ids` is the name of the column that says whose row it is; None for none. The others are as of `read`.
    """
    _, files = _files(readers, path, pattern)
    wanted = ({} if ids is None else {"ids": ids}) | dict(options)
    tables = [_one(readers[file.suffix.lower()], file, wanted, then=_IDS if ids is None else "") for file in files]
    return [table.site_rows(table.rows, site=site) for table, site in zip(tables, _sites(files), strict=True)]


def _files(readers: Mapping[str, Reader], path: str, pattern: str) -> tuple[Path, list[Path]]:
    with reading(path, "a folder with one file per client") as place:
        if not place.is_dir():
            raise (NotADirectoryError if place.exists() else FileNotFoundError)(str(place))
        found = [f for f in place.glob(str(pattern)) if f.suffix.lower() in readers and not f.name.startswith(".")]
        files = sorted((file for file in found if file.is_file()), key=_natural)
    if not files:
        rule = f"one with files that match {pattern!r} and end in {', '.join(readers)}"
        raise DataError(f"The folder {place}", must=rule, got="none", then="Check the folder.")
    return place, files


def _sites(files: Sequence[Path]) -> list[str]:
    whole = [file.stem for file in files]
    return whole if len(set(whole)) == len(whole) else [file.name for file in files]


def _one(reader: Reader, file: Path, wanted: Mapping[str, Any], *, then: str = "") -> Table:
    known = inspect.signature(reader).parameters
    for name in wanted:
        if name not in known:
            remedy = "Leave it out, or use files with named columns."
            raise ConfigError(f"{name} of {file}", must="left out", got=repr(wanted[name]), then=remedy)
    table = reader(path=str(file), **wanted)
    if table.words and then:
        raise DataError(f"The columns of {file}", must="numbers", got=listed(table.words.values()), then=then)
    if table.words:
        raise no_numbers(file, table.words)
    if table.parts[0].ndim == 2 and table.parts[0].shape[0] == 0:
        raise no_rows(file)
    return table


def _like(first: Table, table: Table, one: Path, other: Path) -> Table:
    """The columns in the order of the first file's, by their names."""
    rows, d = table.parts[0], first.parts[0].shape[-1]
    if table.names == first.names and rows.shape[-1] == d:
        return table
    if table.names and sorted(table.names) == sorted(first.names):
        arranged = rows[:, Columns(table.names).places(first.names)]
        return replace(table, parts=(arranged,), names=first.names)
    if table.names and first.names:
        rule, got = f"those of {one.name}", f"{len(table.names)}, {difference(table.names, first.names)}"
    else:
        count = f"{d} without names, as in {one.name}" if table.names else f"{d}, as in {one.name}"
        rule = f"those of {one.name}: {listed(first.names)}" if first.names else count
        got = listed(table.names) or f"{rows.shape[-1]}{' without names' if first.names else ''}"
    raise DataError(
        f"The columns of {other}", must=rule, got=got, then=_ALIGN if bool(table.names) == bool(first.names) else _NAMED
    )


def _natural(file: Path) -> list[Any]:
    """client2 before client10."""
    return [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in re.split(r"(\d+)", file.name)]
