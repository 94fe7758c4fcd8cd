"""Measured: what follows from the rows of one client alone, whatever the frame. It is the only cache of rows.

Moments, means, X'X about the mean, the largest entries, a digest: each is measured when it is first needed, and shared
by all views of the rows. It receives the rows as blocks, and knows no names.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import numpy as np

from flower_pca.base import checks
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters, source
from flower_pca.blocks.source import Blocks
from flower_pca.rows import by_columns
from flower_pca.rows.by_columns import ByColumns
from flower_pca.rows.frame import (
    Frame,
    ImplicitRows,
    Moments,
    Spread,
    about_mean,
    column_sums,
    fill_gaps,
    means_there,
    merge,
    moments_of,
    sparse_moments,
)

_SAMPLE: Final = 2**14  # entries of a sample of rows: of at most
_MOST: Final = 64  # rows, or of at least
_LEAST: Final = 9  # however long they are

# Goes through all entries, one block after another. It counts the missing ones, or raises an error about the first.
Look = Callable[[Iterator[Array]], int]
T = TypeVar("T")


class Measured:
    """The rows of one client, and what has been measured of them.

    Parameters
    ----------
    rows : Blocks
        The rows.
    look : Look or None
        What goes through the entries if some are not finite; None of rows that are known to be finite.
    missing : bool
        Whether NaN may stand for a missing value.

    Attributes
    ----------
    rows : Blocks
        The rows.
    n
        How many rows there are.
    d
        How many columns.
    sparse
        Whether the rows are a scipy sparse array.
    dtype
        The precision in which products are computed.
    missing : bool
        How many values are missing.
    """

    # A simulation has thousands of these, most of a few rows: no dictionary of attributes beside the one of facts.
    __slots__ = ("_facts", "_only", "d", "dtype", "missing", "n", "rows", "sparse")

    def __init__(self, rows: Blocks, look: Look | None, *, missing: bool) -> None:
        self.rows = rows
        self.n, self.d = rows.shape
        self.sparse = source.is_sparse(rows)
        self.dtype = source.precision(rows.dtype)
        self._facts: dict[Hashable, Any] = {}
        # The rows of most clients of a simulation: every pass over them would cut them into the same single block.
        self._only = adapters.only_block(rows)
        self.missing = 0
        if look is not None:
            self.missing = self._require_finite(look, allowed=missing)

    def of_columns(self, rows: Blocks, look: Look) -> Measured:
        """The same of some columns of these rows; `look` goes through their entries."""
        return Measured(rows, look if self.missing else None, missing=True)

    def part(self, rows: Array) -> Measured:
        """The same of the rows with these indices, which grow, in memory."""
        look: Look = functools.partial(checks.finite, "the rows", missing=True)
        return Measured(adapters.of(self.some(rows)), look, missing=bool(self.missing))

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return what another module computes from the rows. It is computed on first use, and kept."""
        if what not in self._facts:
            self._facts[what] = make()
        return cast(T, self._facts[what])

    def newest(self, what: Hashable, fits: Callable[[T], bool], make: Callable[[], T]) -> T:
        """Return what was last computed under this name if it fits. Otherwise, compute it anew and keep that."""
        key = ("newest", what)
        found = self._facts.get(key)
        if found is None or not fits(found):
            self._facts[key] = found = None  # The one before may be as large as the rows.
            self._facts[key] = found = make()
        return cast(T, found)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The type of the entries as they are worked on."""
        return source.worked_on(self.rows.dtype)

    @property
    def csr(self) -> Any:
        """Sparse rows as they are stored, in memory."""
        return source.whole(self.rows)

    def some(self, rows: Array) -> Any:
        """The rows with these indices, which grow, as one array, dense or sparse."""
        return source.whole(adapters.part(self.rows, rows))

    def plain(self) -> Any:
        """All rows as one array, dense or sparse."""
        if self.sparse:
            return self.csr
        if not self.n:
            return np.empty((0, self.d), self.dtype)
        return np.concatenate(list(self.stored()))

    def blocks(self) -> Iterator[Array]:
        """Blocks of stored rows as arrays, of sparse rows too."""
        if self.sparse:
            yield from self.filled(self.stored())
        else:
            yield from self.stored()

    def filled(self, pieces: Iterator[Any]) -> Iterator[Array]:
        """Blocks of these pieces of sparse rows, as arrays."""
        for S in pieces:
            yield from (S[i : i + self.block_rows].toarray() for i in range(0, S.shape[0], self.block_rows))

    def stored(self) -> Iterator[Any]:
        """Blocks of rows as they are worked on; pieces of sparse ones."""
        if self._only is not None:
            return iter((self._only,))
        if self.sparse:
            return self.rows.pieces()
        return map(source.native, source.cut(self.rows.pieces(), self.block_rows))

    @property
    def block_rows(self) -> int:
        """How many rows make a block."""
        return source.rows_of_a_block(self.d, self.rows.dtype)

    def sample(self) -> Array:
        """A few stored rows from all over the table, as an array."""
        return self.once("sample", self._sample)

    def _sample(self) -> Array:
        few = min(max(_SAMPLE // self.d, _LEAST), _MOST)
        some = adapters.part(self.rows, np.arange(0, self.n, -(-self.n // few)))
        return np.asarray(some)

    @property
    def columns(self) -> ByColumns | None:
        """The rows as blocks of columns, if they lie by columns in their file; else None."""
        return self.rows if isinstance(self.rows, ByColumns) else None

    def observed(self) -> Moments:
        """The moments of the values that are not missing."""
        if self.columns is not None:
            return self._counted()
        return self.once("moments", lambda: self.moments(own=False))

    def _counted(self) -> Moments:
        """The moments of rows that lie by columns."""
        columns = self.columns
        assert columns is not None
        return self.once("moments", lambda: by_columns.moments(columns))

    def product_about_mean(self, Z: Array) -> Array:
        """X'(XZ) of the rows less their own mean, which also stands for missing values, if they lie by columns."""
        assert self.columns is not None
        mean = self.observed().mean
        return by_columns.product(self.columns, Z, Frame(mean, fill=mean if self.missing else None))

    def peak(self) -> Array:
        """The largest |x| of each stored column."""
        largest = np.zeros(self.d)
        for block in self.stored():
            if self.sparse:
                # fmax passes over missing values.
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
        return self.once("fingerprint", self._fingerprint)

    def _fingerprint(self) -> int:
        if self.columns is not None:
            return self.columns.digest()
        total = hashlib.blake2b(digest_size=16)
        for block in self.stored():
            for part in (block.data, block.indices, block.indptr) if self.sparse else (block,):
                total.update(np.ascontiguousarray(part).data)
        return int.from_bytes(total.digest(), "big")

    def first_row(self) -> int:
        """A checksum of the first stored row, the same however the rows are stored."""
        row = next(iter(self.stored()))[:1]
        values = np.asarray(row.toarray() if self.sparse else row, dtype=np.float64)
        return zlib.crc32(values.tobytes())

    def own_fill(self) -> Array:
        """What stands for missing values where these are the rows' own: their mean; 0 in a column without any."""
        return self.observed().mean

    def spread(self) -> Spread:
        """X'X of dense rows without gaps about their own mean, and their moments."""
        mean = self.mean
        return self.once("spread", lambda: Spread.of(about_mean(self.stored(), mean), self.n, mean, self.dtype))

    def moments(self, *, own: bool) -> Moments:
        """The moments of the values that are there, or of all with `own` means in the gaps."""
        if self.sparse:
            return self.sparse_about_mean(own=own)[0]
        there = (
            self._counted()
            if self.columns is not None
            else moments_of(self.deviations(), self.n, self.mean, self.count)
        )
        if own:
            return self.whole(there)
        return there

    def whole(self, there: Moments) -> Moments:
        """The moments of rows that are filled with their own means, but for columns of which no value is there."""
        seen = self.observed().seen
        if np.all(seen > 0):
            return replace(there, count=None)
        return replace(there, count=np.where(seen > 0, there.n, 0))

    def sparse_about_mean(self, *, own: bool) -> tuple[Moments, Iterator[ImplicitRows]]:
        """Sparse rows: moments, and pieces of the rows less their mean; with it in their gaps, if `own`."""
        pieces = self.without_gaps(self.own_fill() if own else None)
        there = functools.reduce(merge, map(sparse_moments, pieces))
        frame = Frame(there.mean)
        fill = None
        if self.missing:
            fill = self.own_fill() if own else there.mean
        rows = (ImplicitRows(S, frame) for S in self.without_gaps(fill))
        return (self.whole(there) if own else there), rows

    def without_gaps(self, fill: Array | None) -> Iterator[Any]:
        """Pieces of sparse rows, with these values where one is missing."""
        if fill is None or not self.missing:
            return self.stored()
        return (fill_gaps(S, fill) for S in self.stored())

    def deviations(self) -> Iterator[Array]:
        """Blocks of dense rows less about their mean, each in the memory of the one before; 0 where one is missing."""
        return about_mean(self.stored(), self.mean, 0.0 if self.missing else None)

    @property
    def mean(self) -> Array:
        """The means of the columns of dense rows, to a few roundings."""
        if self.columns is not None:
            return self._counted().mean
        if self.missing:
            return self._means_there[0]
        return self.once("mean", lambda: column_sums(self.stored(), self.d) / max(self.n, 1))

    @property
    def _means_there(self) -> tuple[Array, Array]:
        """The means of the values that are there, and how many of these each column has."""
        return self.once("means there", lambda: means_there(self.stored(), self.d))

    @property
    def count(self) -> Array | None:
        """How many values each column of dense rows has, where some are missing."""
        if not self.missing:
            return None
        if self.columns is not None:
            return self._counted().count
        return self._means_there[1]

    def _require_finite(self, look: Look, *, allowed: bool) -> int:
        """How many values are missing. It raises an error if an entry is infinite, or missing though not `allowed`."""
        if self.columns is not None:
            seen = self._counted().count
            if seen is None:
                return 0
            return self.n * self.d - int(seen.sum()) if allowed else look(self.values())
        if not self.sparse:
            if self.rows.dtype.kind != "f":
                return 0
            # What is not finite shows in the sums of columns, which are known with the mean at no
            # cost.
            mean = column_sums(self.stored(), self.d) / max(self.n, 1)
            # A sum may overflow though no entry does: what is not finite here is looked at entry by
            # entry.
            if np.isfinite(mean).all():
                self._facts["mean"] = mean
                return 0
            if allowed and np.isfinite(self._means_there[0]).all():
                return self.n * self.d - int(self._means_there[1].sum())
        return look(self.values())

    def values(self) -> Iterator[Array]:
        """The stored entries, block by block."""
        return (block.data if self.sparse else block for block in self.stored())
