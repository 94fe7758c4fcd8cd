"""Define `Blocks`, the protocol through which all computations read rows, and the sizes of pieces and blocks.

The size of a *piece* suits the storage. A piece has about 16 MB and consists of whole chunks, because many short reads
from a chunked file are slow. The size of a *block* suits the processor's cache. `cut_into_blocks` cuts pieces into
blocks. The rows at which blocks begin do not depend on the pieces, so all sources of the same rows give identical
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

# A block of rows has about this many entries, which fit a processor's cache.
_BLOCK: Final = 2**17
_ENTRIES: Final = 2**21  # maximum number of stored entries in a piece of sparse rows, unless a single row has more
_PLAIN: Final = (np.dtype(np.float64), np.dtype(np.float32))
_PIECE: Final = 2**24  # number of bytes in a piece
_FEWEST: Final = 64  # minimum number of rows in a block, however long the rows are
# In single precision, a block has at most this many rows. Sums over blocks are in double precision.
_SINGLE: Final = 128


@dataclass(frozen=True)
class Place:
    """The place of rows in a memory-mapped file. Another process can use it to open the same rows.

    Attributes
    ----------
    file : str
        The path of the file.
    dtype : str
        The type of the entries, in numpy's notation.
    offset : int
        The position in the file of the first byte of the first entry.
    shape : tuple of int
        The numbers of rows and columns.
    strides : tuple of int
        The number of bytes from an entry to the next entry in the next row, and in the next column.
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
    """Return the bytes of a file as a memory map, which all rows in the file share."""
    return np.memmap(file, dtype=np.uint8, mode="r")


@runtime_checkable
class Blocks(Protocol):
    """A source of rows (n x d), which is read from the first row to the last. Pieces are CSR if `sparse` is true."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""

    @property
    def axis(self) -> int:
        """The order of storage: 0 if entries are stored row by row, 1 if column by column. See `rows.by_columns`."""

    def pieces(self) -> Iterator[Any]:
        """Yield all rows in order as arrays or CSR. Every call must yield the same pieces."""

    def place(self) -> Place | None:
        """Return the place from which another process can open the same rows, or None if there is no such place."""


class Stored:
    """The base class of the sources in this package. numpy can convert a source to an array."""

    __slots__ = ()

    axis: int = 0

    @property
    def ndim(self) -> int:
        """The number of dimensions, which is always 2."""
        return 2

    def place(self) -> Place | None:
        """Return None. Sources whose rows can be mapped from a file override this method."""
        return None

    def rows_between(self, start: int, stop: int) -> Blocks | None:
        """Return the rows from `start` up to, but not including, `stop`.

        Return None if the source cannot read these rows without the rows before them.
        """
        return None

    def __len__(self: Blocks) -> int:
        return self.shape[0]

    def __array__(self: Blocks, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return all rows as a dense array in memory."""
        rows = all_rows(self)
        return np.asarray(rows.toarray() if is_sparse(self) else rows, dtype=dtype)


def is_sparse(source: Blocks) -> bool:
    """Return whether the pieces of a source are CSR."""
    return bool(getattr(source, "sparse", False))


def rows_between(source: Blocks, start: int, stop: int) -> Blocks | None:
    """Return the rows of a source from `start` up to, but not including, `stop`.

    Return None if the source cannot read these rows without the rows before them.
    """
    return source.rows_between(start, stop) if isinstance(source, Stored) else None


def complete_pieces(source: Blocks) -> Iterator[Any]:
    """Yield the pieces of a source. Raise a DataError if they have more or fewer rows than the source says."""
    n = 0

    def counted(piece: Any) -> Any:
        nonlocal n
        n += piece.shape[0]
        return piece

    # Unlike a loop, `map` does not keep a piece in memory while the next piece is read.
    yield from map(counted, source.pieces())
    if n != source.shape[0]:
        raise DataError(
            f"The pieces of {type(source).__name__} have {n:,} rows, but its shape says {source.shape[0]:,}. Make both "
            "numbers agree, or rows would be missing or count twice."
        )


def all_rows(source: Blocks) -> Any:
    """Return all rows of a source in memory, as a single array or CSR matrix."""
    if not is_sparse(source):
        return joined_rows(complete_pieces(source), source.shape, source.dtype)
    from scipy.sparse import csr_array, vstack

    pieces = list(complete_pieces(source))
    if len(pieces) == 1:
        return pieces[0]
    return vstack(pieces, format="csr") if pieces else csr_array(source.shape, dtype=source.dtype)


def joined_rows(pieces: Iterable[Array], shape: tuple[int, int], dtype: np.dtype[Any], *, copy: bool = False) -> Array:
    """Return pieces of rows as one array. Only one piece is in memory in addition to the array.

    `shape` is the shape of all rows together, and `dtype` is the type of the array if there are no pieces. A single
    piece is copied only if `copy` is true.
    """
    rows: Array | None = None
    n = 0
    for piece in pieces:
        if rows is None and len(piece) >= shape[0] and not copy:
            rows = piece
        elif rows is None:
            # Pieces that are stored by columns stay so.
            rows = np.empty_like(piece, dtype=piece.dtype.newbyteorder("="), shape=shape, subok=False)
        elif (common := np.promote_types(rows.dtype, piece.dtype)) != rows.dtype:
            rows = rows.astype(common)
        # If there are too many rows, `complete_pieces` raises an error after the last piece.
        if rows is not piece and n + len(piece) <= len(rows):
            rows[n : n + len(piece)] = piece
        n += len(piece)
    return np.empty(shape, dtype) if rows is None else rows


def rows_of_a_block(d: int, dtype: np.dtype[Any]) -> int:
    """Return the number of rows in a block, for rows with d columns of this type."""
    rows = max(_FEWEST, _BLOCK // max(d, 1))
    if product_precision(dtype) == np.float64:
        return rows
    return min(rows, _SINGLE)


def rows_of_a_piece(d: int, dtype: np.dtype[Any]) -> int:
    """Return the number of rows in a piece, for rows with d columns of this type."""
    return max(_PIECE // max(d * dtype.itemsize, 1), 1)


def dtype_of(rows: Any) -> np.dtype[Any]:
    """Return the type of the entries as a numpy dtype."""
    if isinstance(getattr(rows, "dtype", None), np.dtype):
        dtype: np.dtype[Any] = rows.dtype
        return dtype
    return np.asarray(rows[:0]).dtype


def supports_slices(X: Any) -> bool:
    """Return whether X is two-dimensional and supports slices of rows, but is not an array in memory."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "__getitem__") and not hasattr(X, "__array_interface__")


def product_precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the precision of products of rows of this type: single for floats of at most four bytes, else double."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def computing_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which computations use blocks of rows that are stored in this type.

    Floats get the precision of products. Other types are only converted to the native byte order.
    """
    return product_precision(dtype) if dtype.kind == "f" else dtype.newbyteorder("=")


def cut_into_blocks(pieces: Iterable[Array], rows: int) -> Iterator[Array]:
    """Yield blocks of `rows` rows from pieces of any lengths. The last block may be shorter."""
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


def sparse_piece_bounds(indptr: Array) -> Iterator[tuple[int, int]]:
    """Yield the first row of each piece of CSR and the row after its last. Pieces are the same for any storage."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = max(_end_of_piece(indptr, start, _ENTRIES), start + 1)
        yield start, stop
        start = stop


def recut_sparse(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the pieces of a CSR matrix that `sparse_piece_bounds` would choose, from pieces of any lengths.

    At most two pieces are in memory at a time.
    """
    held: list[Any] = []
    stored = 0
    for piece in pieces:
        start, n = 0, piece.shape[0]
        while start < n:
            stop = max(_end_of_piece(piece.indptr, start, _ENTRIES - stored), start + (not held))
            if stop > start:
                held.append(piece[start:stop] if stop - start < n else piece)
                stored += int(piece.indptr[stop] - piece.indptr[start])
            if stop < n:
                yield _join_pieces(held)
                held, stored = [], 0
            start = stop
    if held:
        yield _join_pieces(held)


def _end_of_piece(indptr: Array, start: int, room: int) -> int:
    """Return the end of the longest piece of a CSR matrix that begins at row `start` and has at most `room` entries."""
    return int(np.searchsorted(indptr, indptr[start] + room, side="right")) - 1


def _join_pieces(pieces: list[Any]) -> Any:
    from scipy.sparse import vstack

    return pieces[0] if len(pieces) == 1 else vstack(pieces, format="csr")


def as_computing_block(block: Array) -> Array:
    """Return a block in the type for computations, with the entries of each row or each column adjacent in memory.

    A block that is stored by columns is not converted, because BLAS multiplies it without a copy, too.
    """
    if block.dtype not in _PLAIN:
        block = block.astype(computing_dtype(block.dtype), copy=False)
    if block.itemsize in block.strides and min(block.strides) > 0:
        return block
    return np.ascontiguousarray(block)
