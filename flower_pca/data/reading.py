"""Shared parts of all file readers: errors that name the file, and the choice of feature columns."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean_name, describe_difference, describe_duplicate, describe_nameless
from flower_pca.base.options import option
from flower_pca.base.shown import in_one_line, shown
from flower_pca.blocks.source import is_sparse
from flower_pca.names.columns import ColumnNames, enumeration, unusable_columns_error

_LARGE: Final = 2**28  # Rows of up to this many bytes in memory are accepted, however small their file is.
HELD: Final = 2**28  # Rows of at most this many bytes are kept in memory. A larger file is read again at each pass.
_NAMES: Final = ("feature_names", "columns")  # Arrays with these names hold the names of the columns.
_PACKED: Final = 200  # Larger rows may take at most this many times the size of their file.


def file_ending(path: object) -> str:
    """Return the ending of a file name, for example ".csv", or ".csv.gz" if the file is compressed."""
    suffixes = [suffix.lower() for suffix in Path(str(path)).suffixes]
    if suffixes[-1:] in ([".gz"], [".zip"]):
        return "".join(suffixes[-2:])
    return suffixes[-1] if suffixes else ""


def file_stem(path: Path) -> str:
    """Return the name of a file without its ending."""
    return path.name[: len(path.name) - len(file_ending(path))]


class UnchangedFile:
    """A check that a file has not changed, for files that are read again at each pass."""

    def __init__(self, file: Path) -> None:
        self._file, self._mark = file, _size_and_time(file)

    def require_unchanged(self) -> None:
        """Raise a DataError if the file has changed or disappeared since this check was made."""
        try:
            same = _size_and_time(self._file) == self._mark
        except OSError:
            same = False
        if not same:
            raise DataError(
                f"{self._file} has been changed or removed while a run was reading it. Start the run again, and do not "
                "change files during a run."
            )


def _size_and_time(file: Path) -> tuple[int, int]:
    there = file.stat()
    return there.st_size, there.st_mtime_ns


def in_memory_if_small(rows: Any) -> Any:
    """Return dense rows of at most 256 MB as an array, and other rows as a source that is read at each pass."""
    if is_sparse(rows) or rows.shape[0] * rows.shape[1] * rows.dtype.itemsize > HELD:
        return rows
    return np.asarray(rows)


def require_memory(file: Path, size: float, max_gb: float) -> None:
    """Raise a DataError if a file that can only be read whole needs more memory than `max_gb` allows."""
    checks.number("max_gb", max_gb, least=0.0, most=1e6, remedy="Use 1.0 for 1 GB.")
    if size > max_gb * 1e9:
        needed = float(f"{size / 1e9:.2g}")
        raise DataError(
            f"The rows of {file} take about {needed:g} GB of memory, because files of this kind can only be read "
            f"whole. Convert the file to parquet, which can be read in pieces, or write "
            f"max_gb={np.ceil(needed * 1.1):g} in its spec."
        )


_BROKEN: Final = (OSError, ValueError, TypeError, KeyError, EOFError, IndexError, AttributeError, RuntimeError)


@contextmanager
def reading_file(path: object, rule: str) -> Iterator[Path]:
    """Yield the path of a file to read. Errors within the block are raised again as a DataError that names the file."""
    if not isinstance(path, str):
        raise ConfigError(f"path is {shown(path)}, but it must be text. Put it in quotes.", setting="path")
    file = Path(path).expanduser().absolute()
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise DataError(f"{file} is a pipe or a device, which may never end. Name a file or a folder.", setting="path")
    try:
        yield file
    except FileNotFoundError as error:
        raise not_found_error(path) from error
    except IsADirectoryError as error:
        raise DataError(
            f"{file} is a folder, but this source reads a file. Write folder(path={path!r}).",
            setting="path",
            place=str(file),
        ) from error
    except PermissionError as error:
        raise DataError(
            f"This user may not read the data file {file}. Ask its owner for permission.",
            setting="path",
            place=str(file),
        ) from error
    except (ConfigError, DataError):
        raise
    except (*_BROKEN, zipfile.BadZipFile, zlib.error, csv.Error) as error:
        raise DataError(
            f"The data file {file} cannot be read as {rule} ({in_one_line(error)}). Check the file, or name another "
            "source.",
            setting="path",
            place=str(file),
        ) from error


def require_size(file: Path, size: int) -> None:
    """Raise a DataError if the rows would take far more memory than the file has bytes, as in a forged file."""
    most = max(_LARGE, _PACKED * file.stat().st_size)
    if size > most:
        raise DataError(
            f"The rows of {file} take {size / 1e6:,.0f} MB of memory, which is more than {_PACKED} times the size of "
            "the file. If the file is right, save it without compression as .npy."
        )


def not_found_error(path: str) -> DataError:
    """Return the error for a path that does not exist. For a relative path, the error names the current folder."""
    begins = "" if Path(path).expanduser().is_absolute() else f" The current folder is {Path.cwd()}."
    return DataError(f"No file or folder named {shown(path)}.{begins}", setting="path", value=path)


def no_rows_error(file: object) -> DataError:
    """Return the error for a file without rows."""
    return DataError(f"The data file {file} has no rows. Correct it, or remove it.", place=str(file))


def require_numbers(file: object, dtype: Any) -> None:
    """Raise a DataError if an array in a file holds texts, complex numbers or objects."""
    if np.dtype(dtype).kind in "cOSU":
        what = "complex numbers" if np.dtype(dtype).kind == "c" else f"entries of the type {dtype}"
        raise DataError(f"{file} holds {what}, but a PCA needs real numbers. Save real numbers.", place=str(file))


def tuple_of_names(what: str, value: object) -> tuple[str, ...]:
    """Return a list of names as a tuple. Raise a ConfigError if it is not a list of names."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(map(clean_name, value))
    raise ConfigError(
        f"{option(what)} is {shown(value)}, but it must be a list of names. For example, write {what}=['a', 'b'].",
        setting=what,
        value=value,
    )


def names_matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that match at least one of the patterns, such as "lab_*"."""
    wanted = [clean_name(pattern) for pattern in patterns]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]


def require_matches(what: str, names: Iterable[str], patterns: Iterable[str]) -> None:
    """Raise a ConfigError if a pattern matches none of the names."""
    there = list(dict.fromkeys(names))
    for pattern in patterns:
        if not names_matching(there, [pattern]):
            remedy = checks.did_you_mean(pattern, there, "Leave it out.")
            known = f"The names are {enumeration(there)}" if there else "The list is empty"
            raise ConfigError(f"No {what} matches {shown(pattern)}. {known}. {remedy}", value=pattern)


def with_id_column(beside: Any, ids: object) -> Any:
    """Return the names of the label columns, including the column of row identifiers."""
    if ids is None:
        return beside
    if not isinstance(ids, str) or not ids:
        raise ConfigError(
            f"{option('ids')} is {shown(ids)}, but it must be the name of a column. For example, write "
            f"{option('ids', 'patient')}.",
            setting="ids",
            value=ids,
        )
    return [*tuple_of_names("beside", beside), *(() if ids in beside else (ids,))]


def names_beside(
    file: Path, arrays: Any, key: str, shape: tuple[int, ...], read: Callable[[Any], Iterable[str]]
) -> tuple[str, ...]:
    """Return the names of the columns of the array `key`, which another array of the file may hold, or ().

    Raise a DataError if the number of names differs from the number of columns.
    """
    place = next((name for name in _NAMES if name in arrays and name != key), None)
    if place is None:
        return ()
    names = tuple(read(arrays[place]))
    if names and (len(shape) != 2 or len(names) != shape[1]):
        raise DataError(
            f"The array {place} of {file} has {labels.count(len(names), 'name')} for "
            f"{labels.count(shape[-1], 'column')}. Name each column, or remove this array.",
            place=str(file),
        )
    return ColumnNames(names, str(file)).names


def chosen_columns(
    file: object, names: Sequence[str], columns: object, beside: object
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """Return the names of the features, the names of the label columns, and the unusable columns with their faults.

    By default, every usable column that is not a label column is a feature. If `columns` names the features, no
    unusable columns are returned.
    """
    apart = tuple_of_names("beside", beside)
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    unfit = {name: describe_duplicate(name) for name in twice}
    if "" in names and "" not in apart:
        places = [j for j, name in enumerate(names) if not name]
        unfit[""] = describe_nameless(places, len(names))
    features = tuple(name for name in names if name not in apart and name not in unfit)
    if columns is not None:
        features = tuple_of_names("columns", columns)
    for name in (*features, *apart):
        if name in unfit:
            raise unusable_columns_error(file, {name: unfit[name]})
        if name not in names:
            raise ConfigError(
                f"{file} has no column {shown(name)}. {_advice_about_name(name, names)}",
                setting="columns",
                value=name,
                place=str(file),
            )
    if columns is None and not features and unfit:
        raise unusable_columns_error(file, unfit)
    return features, apart, {} if columns is not None else unfit


def _advice_about_name(name: str, names: Sequence[str]) -> str:
    """Return advice about a name that is not among the names of the columns."""
    if near := describe_difference([name], names):
        return f"{near}."
    other = "Name other columns, or correct the file."
    if list(names) == [str(j + 1) for j in range(len(names))]:
        other = f"Its columns have no names, only numbers from 1 to {len(names)}."
    return checks.did_you_mean(name, list(filter(None, names)), other)
