"""What all readers of files share: errors that name the file, and the words for optional packages."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.rows.columns import Columns, listed


@contextmanager
def reading(path: object, rule: str) -> Iterator[Path]:
    """The file to read; what goes wrong with it becomes a DataError that names it."""
    if not isinstance(path, str):
        raise ConfigError("path", must="text", got=repr(path), then="Put it in quotes.")
    file = Path(path).expanduser().absolute()
    what = f"The data file {file}"
    try:
        yield file
    except FileNotFoundError as error:
        remedy = "Check its path; a relative one starts where the process runs."
        raise DataError(what, must="there", got="no such file", then=remedy) from error
    except (ConfigError, DataError):
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        got = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise DataError(what, must=rule, got=got, then="Check the file, or name another source.") from error


def texts(what: str, value: object) -> tuple[str, ...]:
    """Names of columns: a list of text."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise ConfigError(what, must="a list of names", got=repr(value), then=f"Write {what}=['a', 'b'].")


def chosen(
    file: object, names: Sequence[str], columns: object, beside: object
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the features and of the columns beside them; all that are not beside, if none are chosen."""
    Columns(tuple(names), str(file))
    apart = texts("beside", beside)
    features = tuple(name for name in names if name not in apart) if columns is None else texts("columns", columns)
    for name in (*features, *apart):
        if name not in names:
            remedy = checks.did_you_mean(name, names)
            raise ConfigError(f"A column of {file}", must=f"one of {listed(names)}", got=repr(name), then=remedy)
    return features, apart
