"""Table: what a source gives. Rows of numbers, and columns that say whose a row is.

What all readers of files share: errors that name the file, and the words for optional packages.
"""

from __future__ import annotations

import csv
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean, double, nameless, unlike
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.names.columns import Columns, enumeration, no_numbers
from flower_pca.names.sites import Origin, SiteRows

_LARGE: Final = 2**28  # bytes of rows that are read from a file of any size
_PACKED: Final = 200  # times the size of a file that its rows may take beyond that


@contextmanager
def reading(path: object, rule: str) -> Iterator[Path]:
    """The file to read; what goes wrong with it becomes a DataError that names it."""
    if not isinstance(path, str):
        raise ConfigError("path", must="text", got=shown(path), then="Put it in quotes.")
    file = Path(path).expanduser().absolute()
    what = f"The data file {file}"
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise DataError(f"{file} is a pipe or a device, which may never end. Name a file or a folder.", setting="path")
    try:
        yield file
    except FileNotFoundError as error:
        raise not_found(path) from error
    except IsADirectoryError as error:
        raise DataError(what, must="a file", got="a folder", then=f"Write folder(path={path!r}).") from error
    except PermissionError as error:
        raise DataError(what, must="readable", got="no permission", then="Ask whoever owns it.") from error
    except (ConfigError, DataError):
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        raise DataError(
            what, must=rule, got=in_one_line(error), then="Check the file, or name another source."
        ) from error


def require_size(file: Path, size: int) -> None:
    """Refuse a file whose rows take far more memory than the file has bytes, as those of a forged file may."""
    most = max(_LARGE, _PACKED * file.stat().st_size)
    if size > most:
        raise DataError(
            f"The rows of {file} take {size / 1e6:,.0f} MB of memory, which is more than {_PACKED} times the size of "
            "the file. If the file is right, save it without compression as .npy."
        )


def not_found(path: str) -> DataError:
    """The error about a path at which there is nothing; of a relative one, it says where that begins."""
    begins = "" if Path(path).expanduser().is_absolute() else f" The path begins at {Path.cwd()}."
    return DataError(f"No file or folder named {shown(path)}.{begins}", setting="path", value=path)


def in_one_line(error: Exception) -> str:
    """What another package says is wrong, and its kind."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")


def no_rows(file: object) -> DataError:
    """The error about a file with nothing in it."""
    return DataError(f"The data file {file}", must="one with rows", got="none", then="Mend it, or take it away.")


def texts(what: str, value: object) -> tuple[str, ...]:
    """Names of columns: a list of text."""
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(map(clean, value))
    raise ConfigError(what, must="a list of names", got=shown(value), then=f"Write {what}=['a', 'b'].")


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
            raise ConfigError(what, must=f"among {enumeration(there)}", got=shown(pattern), then=remedy)


def with_ids(beside: Any, ids: object) -> Any:
    """The names of columns beside the features, with that of the ids."""
    if ids is None:
        return beside
    if not isinstance(ids, str) or not ids:
        raise ConfigError("ids", must="the name of a column", got=shown(ids), then=f"Write {option('ids', 'patient')}.")
    return [*texts("beside", beside), *(() if ids in beside else (ids,))]


def chosen(
    file: object, names: Sequence[str], columns: object, beside: object
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """The names of the features, of the columns beside them, and of those that cannot be used, with
    what is wrong.

    If no features are chosen, all are that are not beside, and have a name of their own.
    """
    apart = texts("beside", beside)
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    unfit = {name: double(name) for name in twice}
    if "" in names and "" not in apart:
        places = [j for j, name in enumerate(names) if not name]
        unfit[""] = nameless(places, len(names))
    features = tuple(name for name in names if name not in apart and name not in unfit)
    if columns is not None:
        features = texts("columns", columns)
    for name in (*features, *apart):
        if name in unfit:
            raise no_numbers(file, {name: unfit[name]})
        if name not in names:
            raise ConfigError(
                f"The columns of {file}",
                must="there, for all that are asked for",
                got=f"none called {name!r}",
                then=_instead(name, names),
            )
    if columns is None and not features and unfit:
        raise no_numbers(file, unfit)
    return features, apart, {} if columns is not None else unfit


def _instead(name: str, names: Sequence[str]) -> str:
    """What to do about a name that is none of these."""
    if near := unlike([name], names):
        return f"{near}."
    other = "Name others, or mend the file."
    if list(names) == [str(j + 1) for j in range(len(names))]:
        other = f"They have no names: they are 1 to {len(names)}."
    return checks.did_you_mean(name, list(filter(None, names)), other)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with what is known of them.

    Attributes:
        parts: The rows, n x d (dense, memory-mapped or sparse); in several parts if the source
            knows its clients.
        names: Names of the columns, where they have any.
        beside: Columns that are no features, by name: labels, or the client that a row is of.
        words: Columns that hold no numbers, and were not kept apart: what is in each, in words.
        source: The file or the folder, for messages.
        origin: The files, and where in them the rows are, for messages; None of rows from
            elsewhere.
        sites: Names of the clients, where the parts have them.
        ids: Whose row each is, where a column of the source says so.
        texts: Columns that a run may have others made of, as they are written, by name.
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...] = ()
    beside: Mapping[str, Array] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    origin: Origin | None = None
    sites: tuple[str, ...] = ()
    ids: tuple[Any, ...] | None = None
    texts: Mapping[str, Array] = field(default_factory=dict)

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(clean, self.names)))

    @classmethod
    def of_file(
        cls,
        file: Path,
        rows: Any,
        names: tuple[str, ...] = (),
        beside: Mapping[str, Array] | None = None,
        words: Mapping[str, str] | None = None,
        *,
        ids: str | None = None,
    ) -> Table:
        """All rows of one file; `ids` names the column beside them that says whose they are."""
        origin = Origin.of(file, sum(rows.shape[:1]))
        return cls((rows,), names, beside or {}, words or {}, str(file), origin).with_ids(ids)

    @property
    def rows(self) -> Any:
        """All rows, one part after the other."""
        if len(self.parts) == 1:
            return self.parts[0]
        if any(hasattr(part, "tocsr") for part in self.parts):
            from scipy.sparse import vstack

            return vstack(self.parts, format="csr")
        return np.concatenate(self.parts)

    @property
    def text(self) -> bool:
        """Whether the rows are lines of text files."""
        if self.origin is None:
            return False
        return any(part.line is not None for part in self.origin.stretches)

    def whole(self) -> Table:
        """The same, if all columns hold numbers."""
        if self.words:
            raise no_numbers(self.source, self.words)
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns that are no labels, whether they hold numbers or not."""
        return (*self.names, *self.words)

    def without(self, columns: Collection[str]) -> Table:
        """The table less these columns."""
        if not set(columns) & set(self.columns):
            return self
        rest = tuple(name for name in self.names if name not in columns)
        words = {name: bad for name, bad in self.words.items() if name not in columns}
        return replace(self.pick(rest), words=words)

    def with_ids(self, ids: str | None) -> Table:
        """The same, with the column of this name beside the rows as their ids."""
        if ids is None:
            return self
        beside = dict(self.beside)
        return replace(self, ids=tuple(beside.pop(ids).tolist()), beside=beside)

    def with_words(self, columns: Collection[str]) -> Table:
        """The same, with these columns beside the rows as words, for others to be made of them."""
        if absent := [name for name in columns if name not in self.beside]:
            raise ConfigError(
                "levels",
                must="of columns that the data names",
                got=enumeration(absent),
                then="Name the columns in the file.",
            )
        beside = {name: cells for name, cells in self.beside.items() if name not in columns}
        return replace(self, beside=beside, texts={name: self.beside[name] for name in columns})

    def pick(self, columns: tuple[str, ...]) -> Table:
        """The columns of these names, in this order."""
        if columns == self.names:
            return self
        if not self.names:
            raise ConfigError(
                "columns",
                must="left out of data without names of columns",
                got=enumeration(columns),
                then="Name the columns in the file.",
            )
        places = Columns(self.names, self.source or "the data").places(columns, self.words)
        parts = tuple(part[:, places] for part in self.parts)
        return replace(self, parts=parts, names=columns, words={})

    def site_rows(self, values: Any, index: Any = None, site: str = "") -> Any:
        """Some of the rows, at this index among all, with what belongs to them; as they are, where nothing does."""
        if not (self.names or site or self.texts) and self.origin is None and self.ids is None:
            return values
        table = self
        if index is not None:
            table = replace(
                self,
                origin=self.origin and self.origin.some(index),
                ids=self.ids and tuple(np.array(self.ids, dtype=object)[index]),
                texts={name: cells[index] for name, cells in self.texts.items()},
            )
        source = (table.origin and table.origin.file) or self.source
        names: tuple[str, ...] | None = self.names
        if not self.texts:
            names = names or None
        return SiteRows(values, names, self.words, source, site, table.origin, table.ids, table.texts)


def take(rows: Any, index: Array) -> Any:
    """The rows with these indices; consecutive ones stay on disk if they are mapped."""
    if len(index) == 0:
        return rows[:0]
    first, last = int(index[0]), int(index[-1])
    if last - first + 1 == len(index) and np.all(np.diff(index) == 1):
        return rows[first : last + 1]
    return rows[index]
