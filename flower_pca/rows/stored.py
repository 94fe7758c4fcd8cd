"""StoredRows: one client's rows as they are at rest, with the names of their columns if they have any.

What has been measured of the rows is in `Measured`, which all views of the rows share.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters
from flower_pca.names import coding
from flower_pca.names.columns import Columns, Heading, no_numbers, not_named
from flower_pca.names.table import Table
from flower_pca.rows.frame import Moments, Spread
from flower_pca.rows.measured import Measured, of_columns


class StoredRows:
    """The rows (n x d) of one client, stored dense, sparse or memory-mapped. They are passed over in the same blocks.

    All columns of a table that have names are in the sorted order of these: that is its `origin`. A
    run that names columns of its own gets a view of them, in its order.

    Args:
        X: The rows, with the names of their columns and of their site, where they have any.
        who: Whose they are, in messages.
        missing: Whether NaN may stand for a value that is missing.
        columns: Where in X the columns are, in their order; None for all, in the order of their
            names.

    Attributes:
        n: How many rows there are.
        d: How many columns.
        missing: How many values are missing.
        sparse: Whether the rows are a scipy sparse array.
        dtype: In which precision products are computed.
        origin: The rows with all columns that the table has.
        places: Where these columns are in the origin, of a view; else None.
        site: The name of the site; "" if it has none.
        words: Columns of the table that hold no numbers: what is in each, by name.
        ids: Whose row each is, where that is known.
        coded: The columns of words of which columns here have been made.
        made: The names of columns that have been made of words.
        measured: What follows from the stored rows alone, for all their views.
    """

    origin: Self
    places: Array | None = None

    def __init__(self, X: Any, *, who: str, missing: bool, columns: Array | None = None) -> None:
        given: Table = X if isinstance(X, Table) else Table.of(X, who=who)
        self.who = who
        if given.site:
            self.who = f"{who} ({given.site})"
        self.site = given.site
        self.words = given.words
        self.ids = given.ids
        self.coded, self._texts, self.made = given.coded, given.texts, given.made
        self.source, self._lines = given.source, given.origin
        self._columns: Columns | None = None
        if given.names is not None:
            self._columns, columns = self._sort(given)
        rows = adapters.of(given.values, self.who)
        if columns is not None:
            rows = of_columns(rows, columns)
        n, d = rows.shape
        if n == 0 or (d == 0 and not self._texts):
            what = f"The data of {self.who}"
            if self.source:
                what += f", {self.source},"
            raise DataError(what, must="at least one row and one column", got=(n, d), then="Leave it out.")
        self._take(Measured(rows, functools.partial(self._look, missing=missing), missing=missing))
        self.origin = self  # type: ignore[assignment]  # of the same class, whatever that is

    def _take(self, measured: Measured) -> None:
        self.measured = measured
        self.n, self.d, self.sparse = measured.n, measured.d, measured.sparse
        self.dtype, self.missing = measured.dtype, measured.missing

    def _sort(self, given: Table) -> tuple[Columns, Array | None]:
        """The names in their own order, and where these columns are; None if in it already."""
        assert given.names is not None
        whole = Columns(given.names, self._file)
        if given.shape[1:] != (len(whole.names),):
            got = f"shape {given.shape} and {labels.count(len(whole.names), 'name')}"
            raise DataError(
                f"The columns of {self._file}", must="of all that have names", got=got, then="Name each column."
            )
        if whole.names == whole.in_order:
            return whole, None
        return Columns(whole.in_order, self._file), whole.places(whole.in_order)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, in their order; None where they go by position."""
        if self._columns is None:
            return None
        return self._columns.names

    @property
    def _written(self) -> Sequence[str] | None:
        """What the columns are called where the rows are written: those made of words as these, each by its source."""
        if self.names is None or not self.made:
            return self.names
        return [coding.source_of(name) if name in self.made else name for name in self.names]

    @property
    def _file(self) -> str:
        return self.source or self.who

    @property
    def has_places(self) -> bool:
        """Whether it is known of each row where it is from: not at nodes, which forget it."""
        return self._lines is not None

    @property
    def headerless(self) -> tuple[str, ...]:
        """The files whose first line was taken for a row, which nobody has said that it is."""
        if self._lines is None:
            return ()
        return self._lines.headerless

    def place(self, row: int) -> str:
        """Where a row is, in words: its file, and the line or row there, where known."""
        if self._lines is not None:
            return self._lines.place(row)
        if self.source:
            return f"row {row} of {self.source} (from 0 on)"
        return f"row {row} (from 0 on)"

    @functools.cached_property
    def heading(self) -> Heading:
        """What these rows say of their columns."""
        if self._columns is None:
            return Heading(self.d)
        return self._columns.heading

    def select(self, names: tuple[str, ...] | None) -> Self:
        """The columns that a run asks for: these, or without names all of them, which must then all hold numbers."""
        if names is not None:
            return self.arrange(names)
        if self.words:
            raise no_numbers(self._file, self.words, file=bool(self.source))
        return self

    def arrange(self, names: tuple[str, ...]) -> Self:
        """The columns of these names, in their order."""
        if names == self.names:
            return self
        if self._columns is None:
            raise not_named(self._file, self.d).error(DataError)
        # A message asks for the same columns as the one before, mostly.
        origin = self.origin
        return origin.measured.newest(
            "columns", lambda found: found[0] == names, lambda: (names, origin._arranged(names))
        )[1]

    def _arranged(self, names: tuple[str, ...]) -> Self:
        assert self._columns is not None
        if self.coded or not set(names) <= set(self._columns.names):
            whole, names = self._with_made(names)
            if whole is not self:
                return whole.arrange(names)
        view = self._view()
        view.places = self._columns.places(names, self.words)
        view._columns, view.words = Columns(names, self._file), {}
        view._take(self.measured.of_columns(view.places, functools.partial(view._look, missing=True)))
        return view

    def _with_made(self, names: tuple[str, ...]) -> tuple[Self, tuple[str, ...]]:
        """The rows with all of these columns that are made of words, and the columns: one of words stands for its own.

        They are rows by themselves, so that what is measured of rows is measured of all that a run has of
        them.
        """
        assert self._columns is not None
        names = coding.expand(names, known=self._columns.names, words=self.coded)
        return self.measured.newest("grown", lambda found: found[1] == names, lambda: (self._grown(names), names))

    def _grown(self, names: tuple[str, ...]) -> Self:
        whole = coding.grown(self._with_words(), names, self._file)
        if whole is None:
            return self
        grown = type(self)(whole, who=self.who, missing=True)
        grown.site, grown.words, grown.ids = self.site, self.words, self.ids
        return grown

    def _with_words(self) -> Table:
        """The rows with what is known of their columns of words."""
        return Table(
            self.plain(),
            self.names,
            source=self.source,
            origin=self._lines,
            texts=self._texts,
            coded=self.coded,
            made=self.made,
        )

    def _view(self) -> Self:
        """These rows once more, to be changed and shown; what is known of them is shared.

        What is cached goes with this view of them.
        """
        kind = type(self)
        view = object.__new__(kind)
        for name, value in self.__dict__.items():
            if not isinstance(getattr(kind, name, None), functools.cached_property):
                view.__dict__[name] = value
        return view

    def _look(self, values: Iterator[Array], *, missing: bool) -> int:
        """Go through entries of which some are not finite: see `checks.finite`."""
        place = None  # nodes, which allow gaps, tell no places
        if self.has_places or not missing:
            place = self.place
        return checks.finite(self.who, values, missing=missing, names=self._written, place=place)

    def require_whole(self, *, new: bool = False) -> None:
        """Raise DataError if values are missing: where the first one is, and what to do in a run, or of `new` rows."""
        if self.missing:
            values = self.measured.values()
            checks.finite(self.who, values, names=self._written, place=self.place, new=new)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The type of the entries as they are worked on."""
        return self.measured.stored_dtype

    @property
    def csr(self) -> Any:
        """Sparse rows as they are stored."""
        return self.measured.csr

    def some(self, rows: Array) -> StoredRows:
        """The rows with these indices, which grow, in memory and without names."""
        return StoredRows(self.measured.some(rows), who=self.who, missing=bool(self.missing))

    def plain(self) -> Any:
        """All rows as one array, dense or sparse."""
        return self.measured.plain()

    def blocks(self) -> Iterator[Array]:
        """Blocks of stored rows as arrays, of sparse rows too."""
        return self.measured.blocks()

    def there(self) -> Moments:
        """The moments of the values that are there."""
        return self.measured.there()

    def peak(self) -> Array:
        """The largest |x| of each stored column."""
        return self.measured.peak()

    def fingerprint(self) -> int:
        """A digest of the stored rows, which nobody can give to others."""
        return self.measured.fingerprint()

    def first_row(self) -> int:
        """A checksum of the first stored row, the same however the rows are stored."""
        return self.measured.first_row()

    def spread(self) -> Spread:
        """X'X of dense rows without gaps about their own mean, and their moments."""
        return self.measured.spread()
