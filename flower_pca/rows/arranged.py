"""ArrangedRows: stored rows whose columns may have names, in the order of these, or in that of a run."""

from __future__ import annotations

import functools
from typing import Any, Self

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.names.columns import Columns, Heading, no_numbers
from flower_pca.names.sites import SiteRows
from flower_pca.rows.stored import StoredRows


class ArrangedRows(StoredRows):
    """Rows with the names of their columns and of their site, where they have any.

    All columns of a table are there in the sorted order of their names: that is its `origin`. A run that names columns
    of its own gets these, in its order; `places` says where they are in the origin.
    """

    def __init__(self, X: Any, *, who: str, missing: bool) -> None:
        given = SiteRows.of(X, who=who)
        who = f"{who} ({given.site})" if given.site else who
        self.site, self.words, self.ids = given.site, given.words, given.ids
        self._columns: Columns | None = None
        self._source, self._origin = given.source, given.origin
        self._file = given.source or who
        order: Array | None = None
        if given.names is not None:
            whole = Columns(given.names, self._file)
            self._columns = Columns(whole.sorted, self._file)
            order = None if whole.names == whole.sorted else whole.places(whole.sorted)
            if given.shape[1:] != (len(whole.names),):
                rule = "of all that have names"
                got = f"shape {given.shape} and {labels.count(len(whole.names), 'name')}"
                raise DataError(f"The columns of {self._file}", must=rule, got=got, then="Name each column.")
        super().__init__(given.values, who=who, missing=missing, places=order)
        self.origin = self  # type: ignore[assignment]  # of the same class, whatever that is
        self.places = None
        self._newest: Self | None = None  # of the orders that were asked for

    origin: Self
    places: Array | None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, in their order; None where they go by position."""
        return None if self._columns is None else self._columns.names

    @property
    def source(self) -> str:
        """The file that the rows are from; "" if they are from none."""
        return self._source

    @property
    def located(self) -> bool:
        """Whether it is known of each row where it is from: not at nodes, which forget it."""
        return self._origin is not None

    @property
    def guessed(self) -> tuple[str, ...]:
        """The files whose first line was taken for a row, which nobody has said that it is."""
        return () if self._origin is None else self._origin.guessed

    def place(self, row: int) -> str:
        """Where a row is, in words: its file, and the line or the row there, where these are known."""
        if self._origin is not None:
            return self._origin.place(row)
        return f"row {row}{f' of {self.source}' if self.source else ''} (from 0 on)"

    @property
    def mark(self) -> str:
        """What tells these rows, whichever columns are asked for, from others."""
        return f"{self.n}x{self.origin.d}-{self.origin.fingerprint():08x}"

    @functools.cached_property
    def heading(self) -> Heading:
        """What these rows say of their columns."""
        return Heading(self.d) if self._columns is None else self._columns.heading

    def asked(self, names: tuple[str, ...] | None) -> Self:
        """The columns that a run asks for: these, or without names all of them, which must then all hold numbers."""
        if names is None and self.words:
            raise no_numbers(self._file, self.words, file=bool(self._source))
        return self if names is None else self.arranged(names)

    def arranged(self, names: tuple[str, ...]) -> Self:
        """The columns of these names, in their order."""
        if names == self.names:
            return self
        if self._columns is None:
            rule, remedy = "named, as the run names its columns", "Give data with names of columns."
            raise DataError(f"The columns of {self._file}", must=rule, got=f"{self.d} without names", then=remedy)
        origin = self.origin
        if origin._newest is None or origin._newest.names != names:
            origin._newest = origin._of(names)
        return origin._newest

    def _of(self, names: tuple[str, ...]) -> Self:
        assert self._columns is not None
        view = self._view()
        view.places = self._columns.places(names, self.words)
        view._arrange(view.places)
        view._columns, view.d, view.known, view.words = Columns(names, self._file), len(names), {}, {}
        view.missing = view._gaps(allowed=True) if self.missing else 0
        return view

    def _view(self) -> Self:
        """These rows once more, to be changed before they are shown."""
        view = object.__new__(type(self))
        view.__dict__.update({name: self.__dict__[name] for name in _SHARED}, _newest=None)
        return view


_SHARED = (
    *("_X", "_places", "sparse", "dtype", "n", "d", "missing", "who", "known"),
    *("site", "origin", "places", "_columns", "_file", "_source", "_origin", "words", "ids"),
)
