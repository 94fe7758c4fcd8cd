"""Table: what a source gives. Rows of numbers, and beside them columns that say whose or of which kind a row is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.names.columns import Columns, enumeration, no_numbers
from flower_pca.names.origin import Origin
from flower_pca.names.sites import SiteRows
from flower_pca.names.spelling import clean


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(map(clean, self.names)))

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
        return self.origin is not None and any(part.line is not None for part in self.origin.stretches)

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
        kept = tuple(name for name in self.names if name not in columns)
        words = {name: bad for name, bad in self.words.items() if name not in columns}
        return replace(self.pick(kept), words=words)

    def with_ids(self, ids: str | None) -> Table:
        """The same, with the column of this name beside the rows as their ids."""
        if ids is None:
            return self
        beside = dict(self.beside)
        return replace(self, ids=tuple(beside.pop(ids).tolist()), beside=beside)

    def with_words(self, columns: Collection[str]) -> Table:
        """The same, with these columns beside the rows as words, for others to be made of them."""
        if not columns:
            return self
        beside = {name: cells for name, cells in self.beside.items() if name not in columns}
        return replace(self, beside=beside, texts={name: self.beside[name] for name in columns})

    def pick(self, columns: tuple[str, ...]) -> Table:
        """The columns of these names, in this order."""
        if columns == self.names:
            return self
        if not self.names:
            rule, remedy = "left out of data without names of columns", "Name the columns in the file."
            raise ConfigError("columns", must=rule, got=enumeration(columns), then=remedy)
        places = Columns(self.names, self.source or "the data").places(columns, self.words)
        return replace(self, parts=tuple(part[:, places] for part in self.parts), names=columns, words={})

    def site_rows(self, values: Any, index: Any = None, site: str = "") -> Any:
        """Some of the rows, at this index among all, with what belongs to them; as they are, where nothing does."""
        if not (self.names or site or self.texts) and self.origin is None and self.ids is None:
            return values
        if self.origin is None or index is None:
            origin = self.origin
        else:
            origin = self.origin.some(index)
        if origin is None:
            source = self.source
        else:
            source = origin.file or self.source
        if self.ids is None or index is None:
            known = self.ids
        else:
            known = tuple(np.array(self.ids, dtype=object)[index])
        texts = {name: cells if index is None else cells[index] for name, cells in self.texts.items()}
        names = self.names or None
        if texts:
            names = self.names
        return SiteRows(values, names, self.words, source, site, origin, known, texts)


def take(rows: Any, index: Array) -> Any:
    """The rows with these indices; consecutive ones are not copied, so that memory-mapped rows stay on disk."""
    if len(index) == 0:
        return rows[:0]
    first, last = int(index[0]), int(index[-1])
    if last - first + 1 == len(index) and np.all(np.diff(index) == 1):
        return rows[first : last + 1]
    return rows[index]
