"""Define `Measured`: the cache of measurements that depend on the rows of a client only, not on a frame.

Moments, means, X'X about the mean, the largest entries and a digest are measured when they are first needed, and are
shared by all views of the rows. The class receives the rows as blocks, without names. There is no other cache of rows.
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

_SAMPLE: Final = 2**14  # target number of entries in a sample of rows
_MOST: Final = 64  # maximum number of rows in a sample
_LEAST: Final = 9  # A sample has at least about this many rows, however long they are.

# A function of this type reads all entries block by block. It returns the number of missing values, or raises an
# error about the first entry that is not allowed.
Look = Callable[[Iterator[Array]], int]
T = TypeVar("T")


class Measured:
    """The rows of one client, with the cached measurements of these rows.

    Parameters
    ----------
    rows : Blocks
        The rows.
    look : Look or None
        The function that checks the entries if some are not finite. None for rows that are known to be finite.
    missing : bool
        Whether NaN may stand for a missing value.

    Attributes
    ----------
    rows : Blocks
        The rows.
    n : int
        The number of rows.
    d : int
        The number of columns.
    columns : ByColumns or None
        The rows as blocks of columns, if their file is stored by columns, or None.
    sparse : bool
        Whether the rows are a scipy sparse array.
    dtype : dtype
        The precision in which products are computed.
    missing : int
        The number of missing values.
    """

    # A simulation has thousands of these objects, most of them with few rows, so slots save memory.
    __slots__ = ("_facts", "_only", "columns", "d", "dtype", "missing", "n", "rows", "sparse")

    def __init__(self, rows: Blocks, look: Look | None, *, missing: bool) -> None:
        self.rows = rows
        self.n, self.d = rows.shape
        self.sparse = source.is_sparse(rows)
        # The axis is checked first, because checking for the methods of a protocol takes as long as a small product.
        self.columns = rows if rows.axis == 1 and isinstance(rows, ByColumns) else None
        self.dtype = source.precision(rows.dtype)
        self._facts: dict[Hashable, Any] = {}
        # Most clients of a simulation have so few rows that they are a single block, which is kept here.
        self._only = adapters.only_block(rows)
        self.missing = 0
        if look is not None:
            self.missing = self._count_missing(look, allowed=missing)

    def of_columns(self, rows: Blocks, look: Look) -> Measured:
        """Return the measurements of some columns of these rows. `look` checks the entries of these columns."""
        return Measured(rows, look if self.missing else None, missing=True)

    def part(self, rows: Array) -> Measured:
        """Return the measurements of the rows with these ascending indices, which are copied into memory."""
        look: Look = functools.partial(checks.finite, "the rows", missing=True)
        return Measured(adapters.of(self.some(rows)), look, missing=bool(self.missing))

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return the value that `make` computes from the rows. After the first use, it is cached under `what`."""
        if what not in self._facts:
            self._facts[what] = make()
        return cast(T, self._facts[what])

    def newest(self, what: Hashable, fits: Callable[[T], bool], make: Callable[[], T]) -> T:
        """Return the value that is cached as `what` if it `fits`. Otherwise, compute it by `make` and cache it."""
        key = ("newest", what)
        found = self._facts.get(key)
        if found is None or not fits(found):
            self._facts[key] = found = None  # Release the previous value first, because it may be as large as the rows.
            self._facts[key] = found = make()
        return cast(T, found)

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The data type of the entries in computations."""
        return source.worked_on(self.rows.dtype)

    @property
    def csr(self) -> Any:
        """The sparse rows in memory, without any frame."""
        return source.whole(self.rows)

    def some(self, rows: Array) -> Any:
        """Return the rows with these ascending indices as one array, dense or sparse."""
        return source.whole(adapters.part(self.rows, rows))

    def plain(self) -> Any:
        """Return all rows as one array, dense or sparse."""
        if self.sparse:
            return self.csr
        if not self.n:
            return np.empty((0, self.d), self.dtype)
        return np.concatenate(list(self.stored()))

    def blocks(self) -> Iterator[Array]:
        """Yield blocks of stored rows as dense arrays."""
        if self.sparse:
            yield from self.filled(self.stored())
        else:
            yield from self.stored()

    def filled(self, pieces: Iterator[Any]) -> Iterator[Array]:
        """Yield these pieces of sparse rows as dense blocks."""
        for S in pieces:
            yield from (S[i : i + self.block_rows].toarray() for i in range(0, S.shape[0], self.block_rows))

    def stored(self) -> Iterator[Any]:
        """Return an iterator over blocks of rows, or over pieces of sparse rows, in the data type for computations."""
        if self._only is not None:
            return iter((self._only,))
        if self.sparse:
            return self.rows.pieces()
        return map(source.native, source.cut(self.rows.pieces(), self.block_rows))

    @property
    def block_rows(self) -> int:
        """The number of rows in a block."""
        return source.rows_of_a_block(self.d, self.rows.dtype)

    def sample(self) -> Array:
        """Return a few evenly spaced rows as an array."""
        return self.once("sample", self._sample)

    def _sample(self) -> Array:
        few = min(max(_SAMPLE // self.d, _LEAST), _MOST)
        some = adapters.part(self.rows, np.arange(0, self.n, -(-self.n // few)))
        return np.asarray(some)

    def observed(self) -> Moments:
        """Return the moments of the present values."""
        if self.columns is not None:
            return self._moments_by_columns()
        return self.once("moments", lambda: self.moments(own=False))

    def means(self) -> tuple[Array, Any]:
        """Return the means of the present values, up to a few rounding errors, and the numbers of present values."""
        if self.missing or self.sparse:
            there = self.observed()
            return there.mean, there.seen
        return self.mean, self.n

    def _moments_by_columns(self) -> Moments:
        """Return the moments of rows that are stored by columns."""
        columns = self.columns
        assert columns is not None
        return self.once("moments", lambda: by_columns.moments(columns))

    def product_about_mean(self, Z: Array) -> Array:
        """Return X'(XZ) of rows stored by columns, about their own mean. Missing values are replaced by the mean."""
        assert self.columns is not None
        mean = self.observed().mean
        return by_columns.product(self.columns, Z, Frame(mean, fill=mean if self.missing else None))

    def peak(self) -> Array:
        """Return the largest absolute value in each stored column."""
        if self.columns is not None:
            return by_columns.peak(self.columns)
        largest = np.zeros(self.d)
        for block in self.stored():
            if self.sparse:
                # fmax ignores missing values.
                np.fmax.at(largest, block.indices, np.abs(block.data))
                continue
            low = np.fmin.reduce(block, axis=0)
            high = np.fmax.reduce(block, axis=0)
            # Convert to double precision before negating, because the smallest signed integer has no positive
            # counterpart. Blocks of |x| would take more memory.
            above, below = high.astype(np.float64), low.astype(np.float64)
            largest = np.fmax(largest, np.fmax(above, -below))
        return largest

    def fingerprint(self) -> int:
        """Return a cryptographic digest of the stored rows."""
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
        """Return a checksum of the first row, which is the same for all kinds of storage."""
        row = next(iter(self.stored()))[:1]
        values = np.asarray(row.toarray() if self.sparse else row, dtype=np.float64)
        return zlib.crc32(values.tobytes())

    def own_fill(self) -> Array:
        """Return the local means, which may replace missing values. The mean of a column without values is 0."""
        return self.observed().mean

    def spread(self) -> Spread:
        """Return the moments and X'X of complete dense rows about their own mean."""
        mean = self.mean
        return self.once("spread", lambda: Spread.of(about_mean(self.stored(), mean), self.n, mean, self.dtype))

    def moments(self, *, own: bool) -> Moments:
        """Return the moments of the present values, or, if `own` is true, of rows with gaps filled by local means."""
        if self.sparse:
            return self.sparse_about_mean(own=own)[0]
        there = (
            self._moments_by_columns()
            if self.columns is not None
            else moments_of(self.deviations(), self.n, self.mean, self.count)
        )
        if own:
            return self.whole(there)
        return there

    def whole(self, there: Moments) -> Moments:
        """Return the moments of rows whose missing values are filled with the local means.

        Columns without values are not filled, so their count is 0.
        """
        seen = self.observed().seen
        if np.all(seen > 0):
            return replace(there, count=None)
        return replace(there, count=np.where(seen > 0, there.n, 0))

    def sparse_about_mean(self, *, own: bool) -> tuple[Moments, Iterator[ImplicitRows]]:
        """Return the moments of sparse rows, and the pieces of the rows about their mean.

        If `own` is true, the moments describe rows whose missing values are filled with the local means.
        """
        pieces = self.without_gaps(self.own_fill() if own else None)
        there = functools.reduce(merge, map(sparse_moments, pieces))
        frame = Frame(there.mean)
        fill = None
        if self.missing:
            fill = self.own_fill() if own else there.mean
        rows = (ImplicitRows(S, frame) for S in self.without_gaps(fill))
        return (self.whole(there) if own else there), rows

    def without_gaps(self, fill: Array | None) -> Iterator[Any]:
        """Return an iterator over the pieces of sparse rows, with missing values replaced by `fill` if it is given."""
        if fill is None or not self.missing:
            return self.stored()
        return (fill_gaps(S, fill) for S in self.stored())

    def deviations(self) -> Iterator[Array]:
        """Yield blocks of dense rows minus their approximate mean, with 0 for missing values.

        All blocks use the same memory.
        """
        return about_mean(self.stored(), self.mean, 0.0 if self.missing else None)

    @property
    def mean(self) -> Array:
        """The means of the columns of dense rows, up to a few rounding errors."""
        if self.columns is not None:
            return self._moments_by_columns().mean
        if self.missing:
            return self._means_there[0]
        return self.once("mean", lambda: column_sums(self.stored(), self.d) / max(self.n, 1))

    @property
    def _means_there(self) -> tuple[Array, Array]:
        """The mean and the number of the present values in each column."""
        return self.once("means there", lambda: means_there(self.stored(), self.d))

    @property
    def count(self) -> Array | None:
        """The number of present values in each column of dense rows, or None if no value is missing."""
        if not self.missing:
            return None
        if self.columns is not None:
            return self._moments_by_columns().count
        return self._means_there[1]

    def _count_missing(self, look: Look, *, allowed: bool) -> int:
        """Return the number of missing values.

        The function `look` raises an error for infinite entries, and for missing values unless they are `allowed`.
        """
        if self.columns is not None:
            seen = self._moments_by_columns().count
            if seen is None:
                return 0
            return self.n * self.d - int(seen.sum()) if allowed else look(self.values())
        if not self.sparse:
            if self.rows.dtype.kind != "f":
                return 0
            # If an entry is not finite, the sum of its column is not finite. The mean needs these sums in any case.
            mean = column_sums(self.stored(), self.d) / max(self.n, 1)
            # A sum may overflow although all entries are finite, so such rows are checked entry by entry.
            if np.isfinite(mean).all():
                self._facts["mean"] = mean
                return 0
            if allowed and np.isfinite(self._means_there[0]).all():
                return self.n * self.d - int(self._means_there[1].sum())
        return look(self.values())

    def values(self) -> Iterator[Array]:
        """Return an iterator over blocks of stored entries."""
        return (block.data if self.sparse else block for block in self.stored())
