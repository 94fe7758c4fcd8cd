"""Adapters: rows of every kind as a source of Blocks. `of` picks the one for an object.

It decides by what the object can do, never by its class, and imports no package for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Blocks, Place, cut, native, rows_of_a_block

_PIECE: Final = 2**24  # bytes of a piece
# Rows of a block from which columns are worked on as they lie in memory. Blocks of wide tables have fewer: they have a
# short stretch of each of many columns, and a run on 3,000 x 2,000 then takes 1.2 times as long as on a copy by rows.
_STRETCH: Final = 256
_ONE_ROW: Final = "a two-dimensional array of real numbers, one row per sample"


def of(X: Any, who: str = "the rows") -> Blocks:
    """Rows of any kind as a source of blocks.

    Args:
        X: An array in memory or mapped from a file; a scipy sparse matrix; an object with a shape that gives rows by
            slices, such as a dataset of an HDF5 file; or what numpy makes an array of.
        who: Whose rows they are, for messages.

    Raises:
        DataError: If these are no rows of real numbers.
    """
    if hasattr(X, "pieces"):
        source: Blocks = X
        return source
    if np.ma.is_masked(X):
        got = f"{int(np.ma.getmaskarray(X).sum())} masked entries"
        raise DataError(f"The data of {who}", must="whole", got=got, then="Fill them before the run.")
    rows: Any = X
    if not (hasattr(X, "tocsr") or _gives_slices(X)):
        rows = np.asarray(X)
    _require_table(rows, who)
    if hasattr(rows, "tocsr"):
        return Sliced(_canonical(rows.tocsr()))
    sliced = Sliced(rows)
    if sliced.by_columns and rows_of_a_block(sliced.shape[1], sliced.dtype) < _STRETCH and sliced.place() is None:
        return Sliced(np.ascontiguousarray(rows))
    return sliced


def _gives_slices(X: Any) -> bool:
    """Whether rows can be had by slices without the others: what has its entries in memory needs none."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "__getitem__") and not hasattr(X, "__array_interface__")


def _require_table(rows: Any, who: str) -> None:
    dtype = _dtype(rows)
    if rows.ndim != 2 or dtype.kind not in "fiub":
        got = f"{labels.count(rows.ndim, 'dimension')} of dtype {dtype}"
        raise DataError(
            f"The data of {who}", must=_ONE_ROW, got=got, then="Convert it first; a vector becomes x[:, None]."
        )


def _dtype(rows: Any) -> np.dtype[Any]:
    """The type of the entries, in numpy's words."""
    if isinstance(getattr(rows, "dtype", None), np.dtype):
        dtype: np.dtype[Any] = rows.dtype
        return dtype
    return np.asarray(rows[:0]).dtype


def _canonical(S: Any) -> Any:
    """CSR of floating point that stores each place once."""
    if S.dtype.kind != "f":
        S = S.astype(np.float64)
    if not S.has_canonical_format:
        # Moments count stored entries, so a place that is stored twice would count twice.
        S = S.copy()  # which is the caller's
        S.sum_duplicates()
    return S


def is_sparse(source: Blocks) -> bool:
    """Whether the pieces of a source are CSR."""
    return bool(getattr(source, "sparse", False))


class Sliced:
    """Rows that are had by slices, X[i:j]. Those in memory, or mapped into it, are one piece, which is not copied."""

    __slots__ = ("_X", "dtype", "shape", "sparse")

    axis: Final = 0

    def __init__(self, X: Any) -> None:
        self._X = X
        self.shape: tuple[int, int] = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = _dtype(X)
        self.sparse = hasattr(X, "tocsr")

    @property
    def by_columns(self) -> bool:
        """Whether the entries of a column lie together in memory, and those of a row do not."""
        strides = getattr(self._X, "strides", None)
        return strides is not None and strides[0] < strides[1]

    def pieces(self) -> Iterator[Any]:
        """Whole chunks of rows, about 16 MB of them."""
        if self.sparse or hasattr(self._X, "__array_interface__"):
            yield self._X if self.sparse else np.asarray(self._X)
            return
        chunk = (getattr(self._X, "chunks", None) or (1,))[0]
        chunk = chunk if isinstance(chunk, int) else int(chunk[0])
        rows = max(_PIECE // max(self.shape[1] * self.dtype.itemsize, 1) // chunk, 1) * chunk
        for i in range(0, self.shape[0], rows):
            yield np.asarray(self._X[i : i + rows])

    def place(self) -> Place | None:
        """Where the rows lie in the file that they are mapped from, whichever view of it this is."""
        return place_of(self._X)

    @property
    def array(self) -> Array | None:
        """The rows, if they are an array of numpy in memory; else None."""
        return self._X if type(self._X) is np.ndarray else None


def only_block(source: Blocks) -> Array | None:
    """The rows of a source, if they are an array in memory that is one block as it is; else None."""
    found = source.array if isinstance(source, Sliced) else None
    if found is None or len(found) > rows_of_a_block(found.shape[1], found.dtype) or native(found) is not found:
        return None
    return found


def place_of(X: Any) -> Place | None:
    """Where an array lies in the file that it is mapped from; None if it is in memory."""
    if not hasattr(X, "__array_interface__"):
        return None
    array, mapped = np.asarray(X), X
    while mapped is not None and not hasattr(mapped, "filename"):
        mapped = getattr(mapped, "base", None)
    if mapped is None or mapped.filename is None or min(array.strides, default=0) < 0 or not array.size:
        return None
    # The first view of a mapped file begins at `offset`, and its bytes lie in memory as in the file.
    while hasattr(mapped.base, "filename"):
        mapped = mapped.base
    start = mapped.__array_interface__["data"][0] - mapped.offset
    offset = array.__array_interface__["data"][0] - start
    return Place(str(mapped.filename), array.dtype.str, offset, array.shape, array.strides)


@dataclass(frozen=True)
class Picked:
    """Some columns of a source, in another order. They are picked block by block."""

    source: Blocks
    columns: Array

    axis: Final = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.source.shape[0], len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.source.dtype

    def pieces(self) -> Iterator[Array]:
        """Blocks with these columns, which are rows or columns in memory as those of the source are."""
        for block in cut(self.source.pieces(), rows_of_a_block(len(self.columns), self.dtype)):
            yield pick(native(block), self.columns)

    def place(self) -> None:
        """None: no file has just these rows and columns."""
        return


def picked(source: Blocks, columns: Array) -> Picked:
    """These columns of a source; of columns that have been picked already, in one step."""
    if isinstance(source, Picked):
        return Picked(source.source, source.columns[columns])
    return Picked(source, columns)


def pick(block: Array, columns: Array) -> Array:
    """These columns of a dense block. What lies together in memory, rows or columns, still does so."""
    if block.strides[0] < block.strides[1]:
        return block.T[columns].T
    return np.take(block, columns, axis=1)


@dataclass(frozen=True)
class Part:
    """The rows of a source with these indices, which grow. They are taken while the pieces pass."""

    source: Blocks
    rows: Array

    axis: Final = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.rows), self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.source.dtype

    @property
    def sparse(self) -> bool:
        """Whether the pieces are CSR."""
        return is_sparse(self.source)

    def pieces(self) -> Iterator[Any]:
        """Of each piece the rows that are wanted."""
        start = 0
        for piece in self.source.pieces():
            end = start + piece.shape[0]
            first, last = np.searchsorted(self.rows, (start, end))
            if first < last:
                yield piece[self.rows[first:last] - start]
            start = end

    def place(self) -> None:
        """None: no file has just these rows and columns."""
        return


def part(source: Blocks, rows: Array) -> Blocks:
    """The rows of a source with these indices, which grow. Columns are picked of these rows only."""
    if isinstance(source, Picked):
        return Picked(Part(source.source, rows), source.columns)
    return Part(source, rows)


@dataclass(frozen=True)
class Joined:
    """One source after another, as one."""

    sources: tuple[Blocks, ...]

    axis: Final = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return sum(source.shape[0] for source in self.sources), self.sources[0].shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return np.result_type(*(source.dtype for source in self.sources))

    @property
    def sparse(self) -> bool:
        """Whether the pieces are CSR."""
        return any(map(is_sparse, self.sources))

    def pieces(self) -> Iterator[Any]:
        """The pieces of the first source, then those of the next one."""
        for source in self.sources:
            yield from source.pieces()

    def place(self) -> None:
        """None: no file has just these rows and columns."""
        return
