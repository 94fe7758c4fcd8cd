"""StoredRows: one client's rows as they are at rest, in blocks, with the names of their columns where they have any.

This is the one store of what follows from the rows alone, before any frame: moments, means, peaks,
X'X about the mean, a checksum. It is measured once and shared by all views of the rows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Self, cast

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters, source
from flower_pca.names import coding
from flower_pca.names.columns import Columns, Heading, no_numbers, not_named
from flower_pca.names.sites import SiteRows
from flower_pca.rows.frame import (
    Frame,
    ImplicitRows,
    Moments,
    Spread,
    about_mean,
    column_sums,
    fill_gaps,
    means_there,
    moments_of,
    sparse_moments,
)

_SAMPLE: Final = 2**14  # entries to judge all of them by, of
_MOST: Final = 64  # rows, or of
_LEAST: Final = 9  # however long they are


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
        known: What follows from the stored rows alone, for all their views.
    """

    origin: Self
    places: Array | None = None
    _newest: Self | None = None  # of the views in other orders
    # with the columns made of words that a run has asked for
    _grown: tuple[tuple[str, ...], Self] | None = None

    def __init__(self, X: Any, *, who: str, missing: bool, columns: Array | None = None) -> None:
        given: SiteRows = X if isinstance(X, SiteRows) else SiteRows.of(X, who=who)
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
        self._source = adapters.of(given.values, self.who)
        self.sparse = adapters.is_sparse(self._source)
        self.dtype = source.precision(self._source.dtype)
        self.n, self.d = self._source.shape
        if columns is not None:
            self._pick(columns)
        if self.n == 0 or (self.d == 0 and not self._texts):
            what = f"The data of {self.who}"
            if self.source:
                what += f", {self.source},"
            raise DataError(what, must="at least one row and one column", got=(self.n, self.d), then="Leave it out.")
        self.known: dict[Any, Any] = {}
        self.missing = self._require_finite(allowed=missing)
        self.origin = self  # type: ignore[assignment]  # of the same class, whatever that is

    def _sort(self, given: SiteRows) -> tuple[Columns, Array | None]:
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
        origin = self.origin
        if origin._newest is None or origin._newest.names != names:
            if origin.coded or not set(names) <= set(self._columns.names):
                whole, names = origin._with_made(names)
                if whole is not origin:
                    return whole.arrange(names)
            origin._newest = origin._view_of(names)
        return origin._newest

    def _with_made(self, names: tuple[str, ...]) -> tuple[Self, tuple[str, ...]]:
        """The rows with all of these columns that are made of words, and the columns: one of words stands for its own.

        They are rows by themselves, so that what is known of rows is known of all that a run has of
        them.
        """
        assert self._columns is not None
        names = coding.expand(names, known=self._columns.names, words=self.coded)
        if self._grown is None or self._grown[0] != names:
            whole = coding.grown(self._with_words(), names, self._file)
            if whole is None:
                return self, names
            grown = type(self)(whole, who=self.who, missing=True)
            grown.site, grown.words, grown.ids = self.site, self.words, self.ids
            self._grown = names, grown
        return self._grown[1], names

    def _with_words(self) -> SiteRows:
        """The rows with what is known of their columns of words."""
        return SiteRows(
            self.plain(),
            self.names,
            source=self.source,
            origin=self._lines,
            texts=self._texts,
            coded=self.coded,
            made=self.made,
        )

    def _view_of(self, names: tuple[str, ...]) -> Self:
        assert self._columns is not None
        view = self._view()
        view.places = self._columns.places(names, self.words)
        view._pick(view.places)
        # What is known of the rows goes by the order of their columns.
        view._columns, view.known, view.words = Columns(names, self._file), {}, {}
        if self.missing:
            view.missing = view._require_finite(allowed=True)
        return view

    def _view(self) -> Self:
        """These rows once more, to be changed and shown; what is known of them is shared.

        What is cached goes with this view of them.
        """
        kind = type(self)
        view = object.__new__(kind)
        for name, value in self.__dict__.items():
            if not isinstance(getattr(kind, name, None), functools.cached_property):
                view.__dict__[name] = value
        view._newest = view._grown = None
        return view

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The type of the entries as they are worked on."""
        return source.worked_on(self._source.dtype)

    @property
    def csr(self) -> Any:
        """Sparse rows as they are stored."""
        return next(self._source.pieces())

    def some(self, rows: Array) -> StoredRows:
        """The rows with these indices, which grow, in memory and without names."""
        pieces = list(adapters.part(self._source, rows).pieces())
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return StoredRows(whole, who=self.who, missing=bool(self.missing))

    def plain(self) -> Any:
        """All rows as one array, dense or sparse."""
        if self.sparse:
            return self.csr
        return np.concatenate(list(self._blocks()))

    def blocks(self) -> Iterator[Array]:
        """Blocks of stored rows as arrays, of sparse rows too."""
        if self.sparse:
            starts = range(0, self.n, self._block_rows)
            yield from (self.csr[i : i + self._block_rows].toarray() for i in starts)
        else:
            yield from self._blocks()

    def _blocks(self) -> Iterator[Any]:
        """Blocks of rows as they are worked on; sparse ones in one piece."""
        if self.sparse:
            yield from self._source.pieces()
        else:
            yield from map(source.native, source.cut(self._source.pieces(), self._block_rows))

    @functools.cached_property
    def _block_rows(self) -> int:
        return source.rows_of_a_block(self.d, self._source.dtype)

    def sample(self) -> Array:
        """A few stored rows from all over the table, as an array."""
        if "sample" not in self.known:
            few = min(max(_SAMPLE // self.d, _LEAST), _MOST)
            some = adapters.part(self._source, np.arange(0, self.n, -(-self.n // few)))
            self.known["sample"] = np.concatenate(list(some.pieces()))
        return cast(Array, self.known["sample"])

    def _pick(self, columns: Array) -> None:
        """Take these columns, in this order. Those of dense rows are picked block by block."""
        self.d = len(columns)
        if self.sparse:
            self._source = adapters.of(self.csr[:, columns])
        else:
            self._source = adapters.picked(self._source, columns)

    # What is known of the rows, whatever the frame.

    def there(self) -> Moments:
        """The moments of the values that are there."""
        if "moments" not in self.known:
            self.known["moments"] = self._moments(own=False)
        return cast(Moments, self.known["moments"])

    def peak(self) -> Array:
        """The largest |x| of each stored column."""
        largest = np.zeros(self.d)
        for block in self._blocks():
            if self.sparse:
                # which passes over missing values
                np.fmax.at(largest, block.indices, np.abs(block.data))
                continue
            low = np.fmin.reduce(block, axis=0)
            high = np.fmax.reduce(block, axis=0)
            # In double first: the least of the signed integers has no negative of its own kind, and
            # blocks of |x| would be copies.
            above, below = high.astype(np.float64), low.astype(np.float64)
            largest = np.fmax(largest, np.fmax(above, -below))
        return largest

    def fingerprint(self) -> int:
        """A digest of the stored rows, which nobody can give to others."""
        if "fingerprint" not in self.known:
            total = hashlib.blake2b(digest_size=16)
            for block in self._blocks():
                for part in (block.data, block.indices, block.indptr) if self.sparse else (block,):
                    total.update(np.ascontiguousarray(part).data)
            self.known["fingerprint"] = int.from_bytes(total.digest(), "big")
        return int(self.known["fingerprint"])

    def own_fill(self) -> Array:
        """What stands for missing values where these are the rows' own: their mean; 0 in a column without any."""
        return self.there().mean

    def spread(self) -> Spread:
        """X'X of dense rows without gaps about their own mean, and their moments."""
        if "spread" not in self.known:
            mean = self._mean
            self.known["spread"] = Spread.of(about_mean(self._blocks(), mean), self.n, mean, self.dtype)
        return cast(Spread, self.known["spread"])

    def _moments(self, *, own: bool) -> Moments:
        """The moments of the values that are there, or of all with `own` means in the gaps."""
        if self.sparse:
            return self._about_mean(own=own)[0]
        there = moments_of(self._deviations(), self.n, self._mean, self._count)
        if own:
            return self._whole(there)
        return there

    def _whole(self, there: Moments) -> Moments:
        """The moments of rows that are filled with their own means, but for columns of which no value is there."""
        seen = self.there().seen
        if np.all(seen > 0):
            return replace(there, count=None)
        return replace(there, count=np.where(seen > 0, there.n, 0))

    def _about_mean(self, *, own: bool) -> tuple[Moments, ImplicitRows]:
        """Sparse rows: moments, and the rows less their mean; with it in their gaps, if `own`."""
        S = self.csr
        if own:
            S = fill_gaps(S, self.own_fill())
        there = sparse_moments(S)
        if own:
            return self._whole(there), ImplicitRows(S, Frame(there.mean))
        if self.missing:
            S = fill_gaps(S, there.mean)
        return there, ImplicitRows(S, Frame(there.mean))

    def _deviations(self) -> Iterator[Array]:
        """Blocks of dense rows less about their mean, each in the memory of the one before; 0 where one is missing."""
        return about_mean(self._blocks(), self._mean, 0.0 if self.missing else None)

    @property
    def _mean(self) -> Array:
        """The means of the columns of dense rows, to a few roundings."""
        if self.missing:
            return self._means_there[0]
        if "mean" not in self.known:
            self.known["mean"] = column_sums(self._blocks(), self.d) / self.n
        return cast(Array, self.known["mean"])

    @property
    def _means_there(self) -> tuple[Array, Array]:
        """The means of the values that are there, and how many of these each column has."""
        if "means there" not in self.known:
            self.known["means there"] = means_there(self._blocks(), self.d)
        return cast(tuple[Array, Array], self.known["means there"])

    @property
    def _count(self) -> Array | None:
        """How many values each column of dense rows has, where some are missing."""
        if not self.missing:
            return None
        return self._means_there[1]

    def _require_finite(self, *, allowed: bool) -> int:
        """DataError if an entry is not finite, or missing where that is not `allowed`; how many are."""
        if not self.sparse:
            if self._source.dtype.kind != "f":
                return 0
            # What is not finite shows in the sums of columns, which are known with the mean at no
            # cost.
            mean = column_sums(self._blocks(), self.d) / self.n
            # A sum may overflow though no entry does: what is not finite here is looked at entry by
            # entry.
            if np.isfinite(mean).all():
                self.known["mean"] = mean
                return 0
            if allowed and np.isfinite(self._means_there[0]).all():
                return self.n * self.d - int(self._means_there[1].sum())
        place = None  # nodes, which allow gaps, tell no places
        if self.has_places or not allowed:
            place = self.place
        return checks.finite(self.who, self._values(), missing=allowed, names=self._written, place=place)

    def require_whole(self, *, new: bool = False) -> None:
        """Raise DataError if values are missing: where the first one is, and what to do in a run, or of `new` rows."""
        if self.missing:
            checks.finite(self.who, self._values(), names=self._written, place=self.place, new=new)

    def _values(self) -> Iterator[Array]:
        """The stored entries, block by block."""
        return (block.data if self.sparse else block for block in self._blocks())
