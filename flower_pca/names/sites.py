"""SiteRows: rows of one site with the names that belong to them, of their columns and of the site.

Origin: which file each row of a table is from, and its place there. For messages; nothing is
computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca.base.errors import DataError, private
from flower_pca.base.labels import clean, count, is_gap
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names import ids
from flower_pca.names.columns import Columns, is_nameless, no_numbers


@dataclass(frozen=True)
class Stretch:
    """The rows of one file.

    Attributes:
        file: Its path.
        n: How many rows it has.
        line: From a row to the line that it is on, of a text file: looked up there where it is
            needed.
        guessed: Whether its first line was taken for a row, which nobody has said that it is.
    """

    file: str
    n: int
    line: Callable[[int], int] | None = None
    guessed: bool = False

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        if self.line is None:
            return f"row {row} of {self.file} (from 0 on)"
        return f"line {self.line(row)} of {self.file}"


@dataclass(frozen=True, eq=False)
class Origin:
    """Rows of files, one file after the other; all of them, or some.

    Attributes:
        stretches: The files.
        rows: Which of their rows these are; None for all.
    """

    stretches: tuple[Stretch, ...]
    rows: range | Array | None = None

    __repr__ = brief

    @classmethod
    def of(cls, file: object, n: int, line: Callable[[int], int] | None = None, *, guessed: bool = False) -> Origin:
        """All rows of one file."""
        return cls((Stretch(str(file), n, line, guessed),))

    @property
    def headerless(self) -> tuple[str, ...]:
        """The names of the files whose first line was taken for a row, though nobody said so."""
        return tuple(Path(part.file).name for part in self.stretches if part.guessed)

    @property
    def file(self) -> str:
        """The file, if these rows are all of one; else ""."""
        if self.rows is None or len(self.stretches) == 1:
            if len(self.stretches) == 1:
                return self.stretches[0].file
            return ""
        if isinstance(self.rows, np.ndarray):
            ends = self.rows
        else:
            ends = np.array([*self.rows[:1], *self.rows[-1:]])
        start = 0
        for part in self.stretches:
            if len(ends) and start <= ends.min() and ends.max() < start + part.n:
                return part.file
            start += part.n
        return ""

    def some(self, index: Any) -> Origin:
        """Of these rows those at a slice, at indices, or where a mask is true."""
        if self.rows is None:
            every: Any = range(sum(part.n for part in self.stretches))
        else:
            every = self.rows
        if isinstance(index, slice):
            return replace(self, rows=every[index])
        chosen = np.asarray(index)
        rows = np.asarray(every)[chosen] if len(every) else chosen[:0]
        return replace(self, rows=rows)

    def place(self, row: int) -> str:
        """Where a row is, in words: its file, and the line or the row there."""
        if self.rows is None:
            at = row
        else:
            at = int(self.rows[row])
        for part in self.stretches:
            if at < part.n:
                return part.place(at)
            at -= part.n
        return f"row {row} (from 0 on)"


def require_site(sites: Iterable[Any], column: str = "", place: Callable[[int], str] | None = None) -> None:
    """Refuse rows of which a `column`, or list, does not say whose they are, and say where."""
    bare = [(i, value) for i, value in enumerate(sites) if is_gap(value)]
    if not bare:
        return
    what = "The site of every row"
    if column:
        what = f"The site of every row, {column},"
    got = f"none in {count(len(bare), 'row')}"
    row, value = bare[0]
    # the others are what Python prints for no value
    if str(value).strip() not in ("", "None", "nan", "NaT", "<NA>"):
        got = f"{value.strip()!r}, which stands for none, in {count(len(bare), 'row')}"
    if place is not None:
        got = f"{got}, the first in {place(row)}"
    raise DataError(what, must="there", got=got, then="Fill it, or drop these rows.")


@dataclass(frozen=True, eq=False)
class SiteRows:
    """Rows with their names: what a source of data gives, and what a client takes.

    Attributes:
        values: The rows, n x d: dense, memory-mapped or sparse.
        names: Names of the columns; None where they go by position.
        words: Columns beside these that hold no numbers, by name: what is in each, in words. No run
            can ask for them.
        source: Where the rows come from, for messages: a file, say.
        site: The name of the site; "" if it has none.
        origin: Which file each row is from, and where in it, for messages; None of rows from
            elsewhere.
        ids: Whose row each is, where that is known: for runs whose clients hold different columns
            of the same people.
        texts: What stands in the columns of words, by name, where that is known: see
            `names.coding`.
        coded: The columns of words of which columns here have been made.
        made: The names of columns that have been made of words, one or several of each.
    """

    values: Any
    names: tuple[str, ...] | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    site: str = ""
    origin: Origin | None = None
    ids: tuple[str, ...] | None = None
    texts: Mapping[str, Array] = field(default_factory=dict)
    coded: tuple[str, ...] = ()
    made: frozenset[str] = frozenset()

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", tuple(clean(n) if isinstance(n, str) else n for n in self.names))
        if self.site:
            object.__setattr__(self, "site", clean(self.site))
        if self.words:
            object.__setattr__(self, "words", {clean(name): what for name, what in self.words.items()})
        if self.texts:
            object.__setattr__(self, "texts", {clean(name): cells for name, cells in self.texts.items()})
        if self.ids is not None:
            object.__setattr__(self, "ids", ids.texts(self.ids))
            if len(self.ids) != len(self):
                got = f"{len(self.ids)} for {count(len(self), 'row')}"
                raise DataError(
                    "The ids of rows", must="one for each row", got=got, then="Give as many as there are rows."
                )

    @classmethod
    def of(cls, X: Any, *, who: str = "the rows", site: str = "") -> SiteRows:
        """Rows of any kind with the names that they have: a data frame's columns, or none."""
        if isinstance(X, cls):
            if not site:
                return X
            return replace(X, site=site)
        # a lazy frame of polars
        if hasattr(X, "collect_schema") and hasattr(X, "collect"):
            X = X.collect()
        # of pandas, polars and their like
        if hasattr(X, "columns") and hasattr(X, "to_numpy"):
            return _of_frame(X, who, site)
        return cls(X, site=site)

    def quiet(self) -> SiteRows:
        """The same without what no message may tell: words in the columns, and a file's path."""
        if not (self.words or self.source or self.origin or self.texts):
            return self
        words = {name: bad if is_nameless(name, bad) else f"text in column {name}" for name, bad in self.words.items()}
        return replace(self, words=words, source="", origin=None, texts={})

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        if self.origin is None:
            return f"row {row} (from 0 on)"
        return self.origin.place(row)

    def whole(self, who: str = "the rows") -> SiteRows:
        """The same, if all columns hold numbers."""
        if self.words:
            raise no_numbers(self.source or self.site or who, self.words, file=bool(self.source))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(np.shape(self.values))

    @property
    def ndim(self) -> int:
        """Two, if the rows are a table."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the rows."""
        found: np.dtype[Any] = self.values.dtype
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> SiteRows:
        """Some of the rows: a slice, indices, or a mask."""
        if hasattr(self.values, "tocsr"):
            values = self.values.tocsr()
        else:
            values = np.asanyarray(self.values)
        # As objects: numpy would make texts of its own kind of them.
        known = self.ids and tuple(np.array(self.ids, dtype=object)[rows])
        texts = {name: np.asarray(cells, dtype=object)[rows] for name, cells in self.texts.items()}
        origin = self.origin and self.origin.some(rows)
        return replace(self, values=values[rows], origin=origin, ids=known, texts=texts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The rows alone, by position, if all columns are numbers."""
        self.whole()
        if copy:
            return np.array(self.values, dtype=dtype)
        return np.asarray(self.values, dtype=dtype)


def _of_frame(frame: Any, who: str, site: str) -> SiteRows:
    """A data frame's columns, in one array; those that hold no numbers are told apart."""
    names = list(frame.columns)
    # what pandas counts columns by that were not given names
    if names == list(range(len(names))):
        return SiteRows(np.asarray(frame.to_numpy()), site=site, ids=_index(frame))
    texts = [isinstance(name, str) for name in names]
    if any(texts) and not all(texts):
        got = f"{names[texts.index(True)]!r} and {names[texts.index(False)]!r}"
        raise DataError(
            f"The names of the columns of {who}", must="all text, or none of them", got=got, then="Rename the others."
        )
    # else one would give several columns
    unique = Columns(tuple(clean(text_of_label(name)) for name in names), who).names
    if (whole := _of_one_kind(frame)) is not None:
        return SiteRows(whole, unique, site=site, ids=_index(frame))
    pairs = zip(unique, names, strict=True)
    parts = {text: _numbers(frame[name]) for text, name in pairs}
    numbers = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    words = {name: f"{part!r} in column {name}" for name, part in parts.items() if name not in numbers}
    if not parts:
        with private():
            raise no_numbers(who, words, file=False)
    spelt = dict(zip(unique, names, strict=True))
    cells = {text: np.asarray(frame[spelt[text]].to_numpy()) for text in words}
    if numbers:
        values = np.column_stack(list(numbers.values()))
    else:
        values = np.empty((len(next(iter(cells.values()))), 0))
    return SiteRows(values, tuple(numbers), words, site=site, ids=_index(frame), texts=cells)


def _of_one_kind(frame: Any) -> Array | None:
    """The values of a data frame whose columns all have one dtype, of numbers; None of any other."""
    if len(set(getattr(frame, "dtypes", ()))) != 1:
        return None
    values = np.asarray(frame.to_numpy())
    if values.dtype.kind not in "fiub":
        return None
    return values


def _index(frame: Any) -> tuple[Any, ...] | None:
    """Whose row each is, by the index of pandas; None where that only counts the rows."""
    index = getattr(frame, "index", None)
    if index is None or not hasattr(index, "tolist"):
        return None
    found = index.tolist()
    if found == list(range(len(found))):
        return None
    return tuple(text_of_label(label) if isinstance(label, tuple) else label for label in found)


def text_of_label(name: Any) -> str:
    """A label as text: a year or a code as it is printed, several parts with slashes between."""
    if isinstance(name, tuple):
        return "/".join(map(str, name))
    return str(name)


def _numbers(column: Any) -> Any:
    """The numbers of a column of a data frame, NaN in its gaps; of one that holds others, an entry or their kind."""
    values = np.asarray(column.to_numpy())
    if values.dtype.kind in "fiub":
        return values
    if values.dtype.kind in "OUST":
        entries = values.tolist()
    else:
        entries = [str(column.dtype)]
    there = [entry for entry in entries if not is_gap(entry)]
    words = [entry for entry in there if not isinstance(entry, Real)]
    if words:
        return words[0]
    numbers = [entry if isinstance(entry, Real) else np.nan for entry in entries]
    return np.array(numbers, dtype=np.float64)
