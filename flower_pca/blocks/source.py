"""Blocks: a source of rows, as all code that computes sees it, and the sizes in which it is read and worked on.

Two sizes are kept apart. A *piece* suits the storage: it has about 16 MB and consists of whole chunks, because many
short reads from a chunked file are slow. A *block* suits the processor's cache: `cut` cuts pieces into blocks. Blocks
begin at the same rows whatever the pieces are, so that all sources of the same rows give results of the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from flower_pca.base.linalg import Array

# The entries of a block of rows. A processor's cache holds so many while they are worked on.
_BLOCK: Final = 2**17
_ENTRIES: Final = 2**21  # stored entries of a piece of sparse rows, at most, unless a single row has more
_PLAIN: Final = (np.dtype(np.float64), np.dtype(np.float32))
_PIECE: Final = 2**24  # bytes of a piece
_FEWEST: Final = 64  # rows of a block, however long they are
# Single precision may add up the products of so many rows, before the sums are added up in double precision.
_SINGLE: Final = 128


@dataclass(frozen=True)
class Place:
    """Where rows lie in a file that is mapped into memory, so that another process can open the same rows.

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
    """The bytes of a file, mapped into memory once for all rows in it."""
    return np.memmap(file, dtype=np.uint8, mode="r")


@runtime_checkable
class Blocks(Protocol):
    """A source of rows, n x d. It needs no random access to them. One with `sparse = True` has pieces of CSR."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""

    @property
    def axis(self) -> int:
        """Along which axis the rows are stored: 0 if row by row, 1 if column by column: see `rows.by_columns`."""

    def pieces(self) -> Iterator[Any]:
        """The rows from the first to the last, as arrays or CSR; the same ones whenever it is called."""

    def place(self) -> Place | None:
        """Where another process can open the same rows; None if they are only in this one's memory."""


class Stored:
    """What every source of this package can do beside giving its pieces: numpy makes an array of it, if it is asked."""

    __slots__ = ()

    axis: int = 0

    @property
    def ndim(self) -> int:
        """Two: rows and columns."""
        return 2

    def place(self) -> Place | None:
        """None, unless the rows lie in a file as they are."""
        return None

    def between(self, start: int, stop: int) -> Blocks | None:
        """The rows from `start` on and before `stop`, read without all others; None if that is not possible."""
        return None

    def __len__(self: Blocks) -> int:
        return self.shape[0]

    def __array__(self: Blocks, dtype: Any = None, copy: bool | None = None) -> Array:
        """All rows in memory, dense."""
        rows = whole(self)
        return np.asarray(rows.toarray() if is_sparse(self) else rows, dtype=dtype)


def is_sparse(source: Blocks) -> bool:
    """Whether the pieces of a source are CSR."""
    return bool(getattr(source, "sparse", False))


def whole(source: Blocks) -> Any:
    """All rows of a source in memory, as one array or one CSR."""
    pieces = list(source.pieces())
    if len(pieces) == 1:
        return pieces[0]
    if not is_sparse(source):
        return np.concatenate(pieces) if pieces else np.empty(source.shape, source.dtype)
    from scipy.sparse import csr_array, vstack

    return vstack(pieces, format="csr") if pieces else csr_array(source.shape, dtype=source.dtype)


def rows_of_a_block(d: int, dtype: np.dtype[Any]) -> int:
    """How many rows of d columns make a block."""
    rows = max(_FEWEST, _BLOCK // max(d, 1))
    if precision(dtype) == np.float64:
        return rows
    return min(rows, _SINGLE)


def rows_of_a_piece(d: int, dtype: np.dtype[Any]) -> int:
    """How many rows of d columns make a piece."""
    return max(_PIECE // max(d * dtype.itemsize, 1), 1)


def dtype_of(rows: Any) -> np.dtype[Any]:
    """The type of the entries, in numpy's words."""
    if isinstance(getattr(rows, "dtype", None), np.dtype):
        dtype: np.dtype[Any] = rows.dtype
        return dtype
    return np.asarray(rows[:0]).dtype


def gives_slices(X: Any) -> bool:
    """Whether rows can be had by slices without the others: what has its entries in memory needs none."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "__getitem__") and not hasattr(X, "__array_interface__")


def precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The precision in which products of rows of this type are computed: single for at most four bytes of a float."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def worked_on(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which blocks of this stored type are worked on: floats in their precision, others as they are."""
    return precision(dtype) if dtype.kind == "f" else dtype.newbyteorder("=")


def cut(pieces: Iterable[Array], rows: int) -> Iterator[Array]:
    """Cut pieces into blocks of so many rows, the last one shorter, whatever the lengths of the pieces are."""
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
    """Where pieces of CSR begin and end, the same however the rows are stored, so that results have the same bits."""
    start, n = 0, len(indptr) - 1
    while start < n:
        stop = max(_end(indptr, start, _ENTRIES), start + 1)
        yield start, stop
        start = stop


def cut_again(pieces: Iterable[Any]) -> Iterator[Any]:
    """The same rows of CSR, cut where `cut_sparse` cuts them. At most a piece is held beside the next one."""
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
    """The row before which CSR ends that begins at `start` and has room for so many stored entries."""
    return int(np.searchsorted(indptr, indptr[start] + room, side="right")) - 1


def _one(pieces: list[Any]) -> Any:
    from scipy.sparse import vstack

    return pieces[0] if len(pieces) == 1 else vstack(pieces, format="csr")


def native(block: Array) -> Array:
    """A block as it is worked on: in the type for that, and with rows or columns that lie together in memory.

    Rows stay rows and columns stay columns: BLAS multiplies both without a copy.
    """
    if block.dtype not in _PLAIN:
        block = block.astype(worked_on(block.dtype), copy=False)
    if block.itemsize in block.strides and min(block.strides) > 0:
        return block
    return np.ascontiguousarray(block)
