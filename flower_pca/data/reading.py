"""What all readers of files share: errors that name the file, and the words for optional packages."""

from __future__ import annotations

import csv
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.names.columns import enumeration, no_numbers
from flower_pca.names.spelling import clean, double, nameless, unlike


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
    except IsADirectoryError as error:
        raise DataError(what, must="a file", got="a folder", then=f"Write folder(path={path!r}).") from error
    except PermissionError as error:
        raise DataError(what, must="readable", got="no permission", then="Ask whoever owns it.") from error
    except (ConfigError, DataError):
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        got = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise DataError(what, must=rule, got=got, then="Check the file, or name another source.") from error


def no_rows(file: object) -> DataError:
    """The error about a file with nothing in it."""
    return DataError(f"The data file {file}", must="one with rows", got="none", then="Mend it, or take it away.")


def texts(what: str, value: object) -> tuple[str, ...]:
    """Names of columns: a list of text."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(map(clean, value))
    raise ConfigError(what, must="a list of names", got=repr(value), then=f"Write {what}=['a', 'b'].")


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Those of the names that one of the patterns describes: "lab_*", say."""
    wanted = [clean(pattern) for pattern in patterns]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]


def require_matches(what: str, names: Iterable[str], patterns: Iterable[str]) -> None:
    """Refuse a pattern that describes none of the names."""
    there = list(dict.fromkeys(names))
    for pattern in patterns:
        if not matching(there, [pattern]):
            remedy = checks.did_you_mean(pattern, there, "Leave it out.")
            raise ConfigError(what, must=f"among {enumeration(there)}", got=repr(pattern), then=remedy)


def with_ids(beside: Any, ids: object) -> Any:
    """The names of columns beside the features, with that of the ids."""
    if ids is None:
        return beside
    if not isinstance(ids, str) or not ids:
        raise ConfigError("ids", must="the name of a column", got=repr(ids), then="Write ids='patient'.")
    return [*texts("beside", beside), *(() if ids in beside else (ids,))]


def chosen(
    file: object, names: Sequence[str], columns: object, beside: object
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """The names of the features, of the columns beside them, and of those that cannot be used, with
    what is wrong.

    If no features are chosen, all are that are not beside, and have a name of their own.
    """
    apart, twice = texts("beside", beside), [name for name, count in Counter(names).items() if name and count > 1]
    unfit = {name: double(name) for name in twice}
    if "" in names and "" not in apart:
        unfit[""] = nameless([j for j, name in enumerate(names) if not name], len(names))
    every = tuple(name for name in names if name not in apart and name not in unfit)
    if columns is None:
        features = every
    else:
        features = texts("columns", columns)
    for name in (*features, *apart):
        if name in unfit:
            raise no_numbers(file, {name: unfit[name]})
        if name not in names:
            near, known = unlike([name], names), [name for name in names if name]
            counted = known == [str(j + 1) for j in range(len(names))]
            if counted:
                other = f"They have no names: they are 1 to {len(names)}."
            else:
                other = "Name others, or mend the file."
            if near:
                remedy = f"{near}."
            else:
                remedy = checks.did_you_mean(name, known, other)
            rule = "there, for all that are asked for"
            raise ConfigError(f"The columns of {file}", must=rule, got=f"none called {name!r}", then=remedy)
    if columns is None and not features and unfit:
        raise no_numbers(file, unfit)
    return features, apart, {} if columns is not None else unfit
