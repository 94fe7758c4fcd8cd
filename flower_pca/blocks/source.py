"""Blocks, the form in which all code that computes reads rows, and the sizes of pieces and blocks.

A *piece* suits the storage: it has about 16 MB and consists of whole chunks, because many short reads
from a chunked file are slow. A *block* suits the processor's cache: `cut` cuts pieces into blocks.
Blocks begin at the same rows whatever the pieces are, so results have the same bits for all sources of
the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from flower_pca.base.linalg import Array

# the number of entries of a block of rows, which fits a processor's cache
_BLOCK: Final = 2**17
_ENTRIES: Final = 2**21  # the most stored entries in a piece of sparse rows, unless a single row has more
_PLAIN: Final = (np.dtype(np.float64), np.dtype(np.float32))
_PIECE: Final = 2**24  # bytes of a piece
_FEWEST: Final = 64  # the fewest rows of a block, however long they are
# the most rows whose products are added up in single precision before the sums are added up in double precision
_SINGLE: Final = 128


@dataclass(frozen=True)
class Place:
    """The place of rows in a file that is mapped into memory, with which another process can open the same rows.

    Attributes
    ----------
    file : str
        The path of the file.
    dtype : str
        The type of the entries, as numpy writes it.
    offset : int
        The byte in the file at which the first entry begins.
    shape : tuple of int
        The numbers of rows and columns.
    strides : tuple of int
        The bytes from an entry to the next one, by row and by column.
    """

    file: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def open(self) -> Array:
        """Map the rows into memory."""
        if not all(self.shape):
            return np.empty(self.shape, np.dtype(self.dtype))
        return np.ndarray(self.shape, np.dtype(self.dtype), _bytes_of(self.file), self.offset, self.strides)


@lru_cache(maxsize=64)
def _bytes_of(file: str) -> Array:
    """Return the bytes of a file, mapped into memory once for all rows in it."""
    return np.memmap(file, dtype=np.uint8, mode="r")


@runtime_checkable
class Blocks(Protocol):
    """A source of rows, n x d, that is read from first to last. If it has `sparse = True`, its pieces are CSR."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""

    @property
    def axis(self) -> int:
        """The axis along which rows are stored: 0 if row by row, 1 if column by column. See `rows.by_columns`."""

    def pieces(self) -> Iterator[Any]:
        """Yield the rows from first to last as arrays or CSR, the same at every call."""

    def place(self) -> Place | None:
        """Return where another process can open the same rows, or None if they are only in this process's memory."""


class Stored:
    """The base of all sources of this package, which numpy can turn into arrays."""

    __slots__ = ()

    axis: int = 0

    @property
    def ndim(self) -> int:
        """Two: rows and columns."""
        return 2

    def place(self) -> Place | None:
        """Return None; sources whose rows are in a file as they are override this."""
        return None

    def between(self, start: int, stop: int) -> Blocks | None:
        """Return the rows from `start` up to, but without, `stop`, or None if the source cannot read them alone."""
        return None

    def __len__(self: Blocks) -> int:
        return self.shape[0]

    def __array__(self: Blocks, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return all rows in memory, dense."""
        rows = whole(self)
        return np.asarray(rows.toarray() if is_sparse(self) else rows, dtype=dtype)


def is_sparse(source: Blocks) -> bool:
    """Return whether the pieces of a source are CSR."""
    return bool(getattr(source, "sparse", False))


def whole(source: Blocks) -> Any:
    """Return all rows of a source in memory, as one array or one CSR."""
    pieces = list(source.pieces())
    if len(pieces) == 1:
        return pieces[0]
    if not is_sparse(source):
        return np.concatenate(pieces) if pieces else np.empty(source.shape, source.dtype)
    from scipy.sparse import csr_array, vstack

    return vstack(pieces, format="csr") if pieces else csr_array(source.shape, dtype=source.dtype)


def rows_of_a_block(d: int, dtype: np.dtype[Any]) -> int:
    """Return how many rows of d columns make a block."""
    rows = max(_FEWEST, _BLOCK // max(d, 1))
    if precision(dtype) == np.float64:
        return rows
    return min(rows, _SINGLE)


def rows_of_a_piece(d: int, dtype: np.dtype[Any]) -> int:
    """Return how many rows of d columns make a piece."""
    return max(_PIECE // max(d * dtype.itemsize, 1), 1)


def dtype_of(rows: Any) -> np.dtype[Any]:
    """Return the type of the entries as numpy's dtype."""
    if isinstance(getattr(rows, "dtype", None), np.dtype):
        dtype: np.dtype[Any] = rows.dtype
        return dtype
    return np.asarray(rows[:0]).dtype


def gives_slices(X: Any) -> bool:
    """Return whether X is two-dimensional and gives rows by slices, but is no array in memory."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "__getitem__") and not hasattr(X, "__array_interface__")


def precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision for products of rows of this type: single for floats of at most four bytes, else double."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def worked_on(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of blocks of this stored type: the precision of products for floats, else the native type."""
    return precision(dtype) if dtype.kind == "f" else dtype.newbyteorder("=")


def cut(pieces: Iterable[Array], rows: int) -> Iterator[Array]:
    """Yield the rows of pieces in blocks of `rows` rows, the last one shorter, for pieces of any lengths."""
    left: Array | None = None
    for piece in pieces:
        start = 0
        if left is not None:
            start = rows - len(left)
            left = np.concatenate([left, piece[:start]])
            if len(left) < rows:
                continue
            yield left
            left = None
        whole = start + (len(piece) - start) // rows * rows
        for i in range(start, whole, rows):
            yield piece[i : i + rows]
        if whole < len(piece):
            left = piece[whole:]
    if left is not None:
        yield left


def cut_sparse(indptr: Array) -> Iterator[tuple[int, int]]:
    """Yield the first and the end row of pieces of CSR, which do not depend on how the rows are stored."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = max(_end(indptr, start, _ENTRIES), start + 1)
        yield start, stop
        start = stop


def cut_again(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the same rows of CSR, cut where `cut_sparse` cuts them; at most one piece is held beside the next one."""
    held: list[Any] = []
    stored = 0
    for piece in pieces:
        start, n = 0, piece.shape[0]
        while start < n:
            stop = max(_end(piece.indptr, start, _ENTRIES - stored), start + (not held))
            if stop > start:
                held.append(piece[start:stop] if stop - start < n else piece)
                stored += int(piece.indptr[stop] - piece.indptr[start])
            if stop < n:
                yield _one(held)
                held, stored = [], 0
            start = stop
    if held:
        yield _one(held)


def _end(indptr: Array, start: int, room: int) -> int:
    """Return the row before which CSR ends that begins at `start` and has room for `room` stored entries."""
    return int(np.searchsorted(indptr, indptr[start] + room, side="right")) - 1


def _one(pieces: list[Any]) -> Any:
    from scipy.sparse import vstack

    return pieces[0] if len(pieces) == 1 else vstack(pieces, format="csr")


def native(block: Array) -> Array:
    """Return a block in the type that it is worked on, with adjacent rows or columns in memory.

    A block stored by rows stays so, and so does one by columns: BLAS multiplies both without a copy.
    """
    if block.dtype not in _PLAIN:
        block = block.astype(worked_on(block.dtype), copy=False)
    if block.itemsize in block.strides and min(block.strides) > 0:
        return block
    return np.ascontiguousarray(block)
