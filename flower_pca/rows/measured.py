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
from flower_pca.rows.by_columns import ColumnBlocks
from flower_pca.rows.frame import (
    Frame,
    ImplicitRows,
    Moments,
    ScatterOfRows,
    blocks_about_mean,
    column_sums,
    fill_sparse_gaps,
    means_of_present,
    merge_moments,
    moments_of,
    sparse_moments,
)

_SAMPLE: Final = 2**14  # target number of entries in a sample of rows
_MOST: Final = 64  # maximum number of rows in a sample
_GAPS: Final = 2**23  # Positions of at most this many missing values are kept, which take five bytes each.
_LEAST: Final = 9  # A sample has at least about this many rows, however long they are.
_AS_STORED: Final = "as stored"  # the key of the measurements of the columns in the order in which they are stored

# A function of this type reads all entries block by block. It returns the number of missing values, or raises an
# error about the first entry that is not allowed.
Look = Callable[[Iterator[Array]], int]
# A function of this type gets each block of dense rows in the first pass over them, so that it needs no other pass. The
# columns are in the order in which they are stored.
Watch = Callable[[Array], None]
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
    moments : Moments or None, default=None
        The moments of the present values, if they are known.
    watch : Watch or None, default=None
        The function that gets each block of the first pass. Without such a pass, it gets none.

    Attributes
    ----------
    rows : Blocks
        The rows.
    n : int
        The number of rows.
    d : int
        The number of columns.
    columns : ColumnBlocks or None
        The rows as blocks of columns, if their file is stored by columns, or None.
    sparse : bool
        Whether the rows are a scipy sparse array.
    dtype : dtype
        The precision in which products are computed.
    missing : int
        The number of missing values.
    only : ndarray or None
        The rows as one array if they are a single block in memory, or None.
    watch : Watch or None
        The function that got the blocks of the first pass.
    """

    # A simulation has thousands of these objects, most of them with few rows, so slots save memory.
    __slots__ = ("_facts", "columns", "d", "dtype", "missing", "n", "only", "rows", "sparse", "watch")

    def __init__(
        self,
        rows: Blocks,
        look: Look | None,
        *,
        missing: bool,
        moments: Moments | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.rows, self.watch = rows, watch
        self.n, self.d = rows.shape
        self.sparse = source.is_sparse(rows)
        # The axis is checked first, because checking for the methods of a protocol takes as long as a small product.
        self.columns = rows if rows.axis == 1 and isinstance(rows, ColumnBlocks) else None
        self.dtype = source.product_precision(rows.dtype)
        self._facts: dict[Hashable, Any] = {} if moments is None else {"moments": moments}
        # Most clients of a simulation have so few rows that they are a single block, which is kept here.
        self.only = adapters.only_block(rows)
        self.missing = 0
        if look is not None:
            self.missing = self._count_missing(look, allowed=missing)

    def select_columns(self, rows: Blocks, columns: Array, look: Look) -> Measured:
        """Return the measurements of `rows`, which are these columns. `look` checks the entries of the columns."""
        known: Measured | None = self._facts.get(_AS_STORED)
        if known is not None and rows is known.rows:
            del self._facts[_AS_STORED]  # They are measured again if a later run asks for other columns in between.
            return known
        return Measured(rows, look if self.missing else None, missing=True, moments=self._moments_of_columns(columns))

    @property
    def _in_stored_order(self) -> Blocks | None:
        """The rows before their columns were put into another order, or None if some columns were left out."""
        rows = self.rows
        if isinstance(rows, adapters.PickedColumns) and len(rows.columns) == rows.source.shape[1] and not self.sparse:
            return rows.source
        return None

    def _moments_of_columns(self, columns: Array) -> Moments | None:
        """Return the moments of some columns of rows that are stored by columns, if they are known.

        These moments follow from sums of whole numbers, so another pass over the file would find the same.
        """
        known: Moments | None = self._facts.get("moments")
        if self.columns is None or known is None:
            return None
        count = None if known.count is None else known.count[columns]
        if count is not None and (count == self.n).all():
            count = None
        return Moments(self.n, known.mean[columns], known.m2[columns], count)

    def release_mean(self) -> None:
        """Release the mean of few rows after its use, because it takes memory at thousands of clients.

        It is computed again if it is needed again.
        """
        if self.only is not None and not self.sparse and self.n < self.d:
            self._facts.pop("mean", None)

    def select_rows(self, rows: Array) -> Measured:
        """Return the measurements of the rows with these ascending indices, which are copied into memory."""
        look: Look = functools.partial(checks.finite, "the rows", missing=True)
        return Measured(adapters.as_blocks(self.rows_at(rows)), look, missing=bool(self.missing))

    def cached(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return the value that `make` computes from the rows. After the first use, it is cached under `what`."""
        if what not in self._facts:
            self._facts[what] = make()
        return cast(T, self._facts[what])

    def cached_if(self, what: Hashable, fits: Callable[[T], bool], make: Callable[[], T]) -> T:
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
        return source.computing_dtype(self.rows.dtype)

    @property
    def csr_matrix(self) -> Any:
        """The sparse rows in memory, without any frame."""
        return source.all_rows(self.rows)

    def rows_at(self, rows: Array) -> Any:
        """Return the rows with these ascending indices as one array, dense or sparse."""
        if self.only is not None:
            return self.only[rows]
        return source.all_rows(adapters.rows_of_source(self.rows, rows))

    def stored_array(self) -> Any:
        """Return all rows as one array, dense or sparse. A dense array is a copy of the source."""
        if self.sparse:
            return self.csr_matrix
        if not self.n:
            return np.empty((0, self.d), self.dtype)
        return source.joined_rows(self.stored_blocks(), (self.n, self.d), self.stored_dtype, copy=True)

    def blocks(self) -> Iterator[Array]:
        """Yield blocks of stored rows as dense arrays."""
        if self.sparse:
            yield from self.dense_pieces(self.stored_blocks())
        else:
            yield from self.stored_blocks()

    def dense_pieces(self, pieces: Iterator[Any]) -> Iterator[Array]:
        """Yield these pieces of sparse rows as dense blocks."""
        for S in pieces:
            yield from (S[i : i + self.block_rows].toarray() for i in range(0, S.shape[0], self.block_rows))

    def stored_blocks(self) -> Iterator[Any]:
        """Return an iterator over blocks of rows, or over pieces of sparse rows, in the data type for computations."""
        if self.only is not None:
            return iter((self.only,))
        if self.sparse:
            return source.complete_pieces(self.rows)
        pieces = source.complete_pieces(self.rows)
        return map(source.as_computing_block, source.cut_into_blocks(pieces, self.block_rows))

    @property
    def block_rows(self) -> int:
        """The number of rows in a block."""
        return source.rows_of_a_block(self.d, self.rows.dtype)

    def sample(self) -> Array:
        """Return a few evenly spaced rows as an array."""
        return self.cached("sample", self._sample)

    def _sample(self) -> Array:
        few = min(max(_SAMPLE // self.d, _LEAST), _MOST)
        some = adapters.rows_of_source(self.rows, np.arange(0, self.n, -(-self.n // few)))
        return np.asarray(some)

    def observed_moments(self) -> Moments:
        """Return the moments of the present values."""
        if self.columns is not None:
            return self._moments_by_columns()
        return self.cached("moments", lambda: self.moments(with_local_means=False))

    def approximate_means(self) -> tuple[Array, Any]:
        """Return the means of the present values, up to a few rounding errors, and the numbers of present values."""
        if self.missing or self.sparse:
            there = self.observed_moments()
            return there.mean, there.value_counts
        return self.approximate_mean, self.n

    def _moments_by_columns(self) -> Moments:
        """Return the moments of rows that are stored by columns."""
        columns = self.columns
        assert columns is not None
        return self.cached("moments", lambda: by_columns.moments_by_column(columns))

    def product_about_mean(self, Z: Array) -> Array:
        """Return X'(XZ) of rows stored by columns, about their own mean. Missing values are replaced by the mean."""
        assert self.columns is not None
        mean = self.observed_moments().mean
        return self.product_by_columns(Z, Frame(mean, fill=mean if self.missing else None))

    def product_by_columns(self, Z: Array, frame: Frame) -> Array:
        """Return X'(XZ) of rows stored by columns, in a frame with replacements for missing values if there are any."""
        columns = self.columns
        assert columns is not None
        gaps = None
        if 0 < self.missing <= _GAPS:
            counts = self.counts_or_none
            assert counts is not None
            gaps = self.cached("gaps", lambda: by_columns.gap_matrix(columns, self.n - counts))
        return by_columns.product_by_columns(columns, Z, frame, gaps)

    def largest_absolute(self) -> Array:
        """Return the largest absolute value in each stored column."""
        if self.columns is not None:
            return by_columns.peaks_by_column(self.columns)
        largest = np.zeros(self.d)
        for block in self.stored_blocks():
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
        return self.cached("fingerprint", self._fingerprint)

    def _fingerprint(self) -> int:
        if self.columns is not None:
            return self.columns.digest()
        total = hashlib.blake2b(digest_size=16)
        for block in self.stored_blocks():
            for part in (block.data, block.indices, block.indptr) if self.sparse else (block,):
                total.update(np.ascontiguousarray(part).data)
        return int.from_bytes(total.digest(), "big")

    def first_row_checksum(self) -> int:
        """Return a checksum of the first row, which is the same for all kinds of storage."""
        row = next(iter(self.stored_blocks()))[:1]
        values = np.asarray(row.toarray() if self.sparse else row, dtype=np.float64)
        return zlib.crc32(values.tobytes())

    def local_means(self) -> Array:
        """Return the local means, which may replace missing values. The mean of a column without values is 0."""
        return self.observed_moments().mean

    def scatter(self) -> ScatterOfRows:
        """Return the moments and X'X of complete dense rows about their own mean."""
        return self.cached("spread", self._scatter)

    @property
    def moments_with_scatter(self) -> Moments | None:
        """The moments that were computed with X'X, which differ from `moments` by rounding, or None without X'X."""
        known: ScatterOfRows | None = self._facts.get("spread")
        return None if known is None else known.moments

    def _scatter(self) -> ScatterOfRows:
        mean = self.approximate_mean
        return ScatterOfRows.from_deviations(blocks_about_mean(self.stored_blocks(), mean), self.n, mean, self.dtype)

    def moments(self, *, with_local_means: bool) -> Moments:
        """Return the moments of the present values, or of rows with gaps filled by local means."""
        if self.sparse:
            return self.sparse_about_mean(with_local_means=with_local_means)[0]
        there = (
            self._moments_by_columns()
            if self.columns is not None
            else moments_of(self.deviations(), self.n, self.approximate_mean, self.counts_or_none)
        )
        if with_local_means:
            return self.moments_with_local_means(there)
        return there

    def moments_with_local_means(self, moments: Moments) -> Moments:
        """Return the moments of rows whose missing values are filled with the local means.

        Columns without values are not filled, so their count is 0.
        """
        seen = self.observed_moments().value_counts
        if np.all(seen > 0):
            return replace(moments, count=None)
        return replace(moments, count=np.where(seen > 0, moments.n, 0))

    def sparse_about_mean(self, *, with_local_means: bool) -> tuple[Moments, Iterator[ImplicitRows]]:
        """Return the moments of sparse rows, and the pieces of the rows about their mean.

        If `with_local_means` is true, the moments describe rows whose missing values are filled with the local means.
        """
        pieces = self.without_gaps(self.local_means() if with_local_means else None)
        there = functools.reduce(merge_moments, map(sparse_moments, pieces))
        frame = Frame(there.mean)
        fill = None
        if self.missing:
            fill = self.local_means() if with_local_means else there.mean
        rows = (ImplicitRows(S, frame) for S in self.without_gaps(fill))
        return (self.moments_with_local_means(there) if with_local_means else there), rows

    def without_gaps(self, fill: Array | None) -> Iterator[Any]:
        """Return an iterator over the pieces of sparse rows, with missing values replaced by `fill` if it is given."""
        if fill is None or not self.missing:
            return self.stored_blocks()
        return (fill_sparse_gaps(S, fill) for S in self.stored_blocks())

    def deviations(self) -> Iterator[Array]:
        """Yield blocks of dense rows minus their approximate mean, with 0 for missing values.

        All blocks use the same memory.
        """
        return blocks_about_mean(self.stored_blocks(), self.approximate_mean, 0.0 if self.missing else None)

    @property
    def approximate_mean(self) -> Array:
        """The means of the columns of dense rows, up to a few rounding errors."""
        if self.columns is not None:
            return self._moments_by_columns().mean
        if self.missing:
            return self._means_of_present[0]
        return self.cached("mean", lambda: column_sums(self.stored_blocks(), self.d) / max(self.n, 1))

    @property
    def _means_of_present(self) -> tuple[Array, Array]:
        """The mean and the number of the present values in each column."""
        return self.cached("means there", lambda: means_of_present(self.stored_blocks(), self.d))

    @property
    def counts_or_none(self) -> Array | None:
        """The number of present values in each column of dense rows, or None if no value is missing."""
        if not self.missing:
            return None
        if self.columns is not None:
            return self._moments_by_columns().count
        return self._means_of_present[1]

    def _count_missing(self, look: Look, *, allowed: bool) -> int:
        """Return the number of missing values.

        The function `look` raises an error for infinite entries, and for missing values unless they are `allowed`.
        """
        if self.columns is not None:
            seen = self._moments_by_columns().count
            if seen is None:
                return 0
            return self.n * self.d - int(seen.sum()) if allowed else look(self.value_blocks())
        if not self.sparse:
            if self.rows.dtype.kind != "f":
                return 0
            if (stored := self._in_stored_order) is not None:
                # A run often asks for the stored order, in which columns need not be moved.
                found = Measured(stored, lambda _: look(self.value_blocks()), missing=allowed, watch=self.watch)
                self._facts[_AS_STORED] = found
                return found.missing
            # If an entry is not finite, the sum of its column is not finite. The mean needs these sums in any case.
            mean = column_sums(self._watched_blocks(), self.d) / max(self.n, 1)
            # A sum may overflow although all entries are finite, so such rows are checked entry by entry.
            if np.isfinite(mean).all():
                self._facts["mean"] = mean
                return 0
            if allowed and np.isfinite(self._means_of_present[0]).all():
                return self.n * self.d - int(self._means_of_present[1].sum())
        return look(self.value_blocks())

    def _watched_blocks(self) -> Iterator[Array]:
        """Yield the blocks of rows, each of which is shown to `watch` while it is in the processor's cache."""
        for block in self.stored_blocks():
            if self.watch is not None:
                self.watch(block)
            yield block

    def value_blocks(self) -> Iterator[Array]:
        """Return an iterator over blocks of stored entries."""
        return (block.data if self.sparse else block for block in self.stored_blocks())
