"""Adapt rows of every kind to the protocol `Blocks`. `as_blocks` returns the adapter for an object.

The adapter is chosen by the methods of an object, not by its class, so no package has to be imported for the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import in_one_line
from flower_pca.blocks.compressed import (
    CompressedRows,
    csr_pieces,
    is_compressed,
    with_sparse_columns,
    without_duplicates,
)
from flower_pca.blocks.groups import RowGroups, is_grouped
from flower_pca.blocks.loader import LoaderRows, is_loader
from flower_pca.blocks.source import (
    Blocks,
    Place,
    Stored,
    all_rows,
    as_computing_block,
    cut_into_blocks,
    dtype_of,
    is_sparse,
    rows_between,
    rows_of_a_block,
    rows_of_a_piece,
    supports_slices,
)
from flower_pca.blocks.tensors import is_tensor, tensor_as_array

# If a block has at least this many rows, an array that is stored by columns is used without a copy. Blocks of wide
# tables have fewer rows. If a wide table is stored by columns, a block consists of many short stretches of memory, and
# reading them is slow: a run on 3,000 x 2,000 numbers took 1.2 times as long as on a copy stored by rows.
_STRETCH: Final = 256
_ACCEPTED: Final = (
    "Give an array, a data frame, a scipy sparse matrix, a torch tensor or DataLoader, a dataset of h5py or zarr, an "
    "AnnData object, a parquet or Arrow file opened by pyarrow, or an object with __array__. For a file, give what "
    "flower_pca.data.sources.make(path) returns."
)


def as_blocks(X: Any, who: str = "the rows") -> Blocks:
    """Return rows of any kind as a source of blocks.

    Parameters
    ----------
    X : array-like
        The rows. Possible objects are an array in memory or mapped from a file, a tensor, a scipy sparse matrix, an
        object with a shape and slices, such as a dataset of an HDF5 file, a group of such a file that holds CSR, a
        parquet or Arrow file that pyarrow has opened, a loader of batches, and everything that numpy can convert to an
        array.
    who : str, default="the rows"
        The owner of the rows, for messages.

    Raises
    ------
    DataError
        If X is not a table of real numbers.
    """
    if hasattr(X, "pieces"):
        source: Blocks = X
        return source
    if type(X) is np.ndarray:  # A plain array needs none of the checks below. A simulation has thousands of arrays.
        return _sliced(X, X, who)
    if np.ma.is_masked(X):
        masked = int(np.ma.getmaskarray(X).sum())
        raise DataError(
            f"The data of {who} is a masked array in which {labels.count(masked, 'entry')} "
            f"{'is' if masked == 1 else 'are'} missing. Call .filled(np.nan) to mark them as missing values, or fill "
            "them before the run."
        )
    if (adapter := _adapter_for(X)) is not None:
        return adapter(X, who)
    rows: Any = X
    if not (hasattr(X, "tocsr") or supports_slices(X)):
        rows = _as_array(X, who)
    return _sliced(rows, X, who)


def _sliced(rows: Any, X: Any, who: str) -> SlicedRows:
    """Return rows that can be sliced as a source of blocks. X is the object from which they come, for errors."""
    _require_table(rows, X, who)
    if hasattr(rows, "tocsr"):
        return SlicedRows(without_duplicates(rows.tocsr()))
    sliced = SlicedRows(rows)
    if sliced.by_columns and rows_of_a_block(sliced.shape[1], sliced.dtype) < _STRETCH and sliced.place() is None:
        return SlicedRows(np.ascontiguousarray(rows))
    return sliced


def is_stored(X: Any) -> bool:
    """Return whether only an adapter can read these rows, for example because they are in a file or a loader."""
    if hasattr(X, "pieces") or _adapter_for(X) is not None:
        return True
    return supports_slices(X) and not (hasattr(X, "tocsr") or hasattr(X, "columns"))


_Adapter = Callable[[Any, str], Blocks]
_STORAGE: Final[tuple[tuple[Callable[[Any], bool], _Adapter], ...]] = (
    (is_tensor, lambda X, who: SlicedRows(tensor_as_array(X, who))),
    (is_loader, LoaderRows),
    (is_compressed, CompressedRows.from_group),
    (is_grouped, RowGroups.from_opened),
)


def _adapter_for(X: Any) -> _Adapter | None:
    """Return the adapter for a tensor, a loader, a CSR group, or parquet or Arrow data, or None for other objects."""
    if hasattr(X, "__array_interface__"):  # An array in memory or mapped from a file needs no adapter.
        return None
    return next((adapter for known, adapter in _STORAGE if known(X)), None)


def _as_array(X: Any, who: str) -> Array:
    """Convert X to an array with numpy, or raise a DataError if this fails."""
    try:
        return np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_rows(X, who, in_one_line(error)) from error


def _no_rows(X: Any, who: str, why: str = "") -> DataError:
    """Return the error for an object from which no adapter can read rows."""
    what = f"The rows of {who} cannot be read from {_type_name(X)}"
    return DataError(f"{what}, because {why}. {_ACCEPTED}" if why else f"{what}. {_ACCEPTED}")


def _type_name(X: Any) -> str:
    if isinstance(X, str):
        return "text"
    name = type(X).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def _require_table(rows: Any, X: Any, who: str) -> None:
    dtype = dtype_of(rows)
    if hasattr(X, "keys") and hasattr(X, "attrs") and not hasattr(X, "shape"):
        members = list(X.keys())
        if not members:
            raise DataError(f"The data of {who} is an empty group. Store the rows in it as an array, or name an array.")
        raise DataError(
            f"The data of {who} is a group of arrays, not an array of rows or a sparse matrix stored by rows (CSR). "
            f"Name one of its arrays: {labels.join_with_and(members)}."
        )
    if rows.ndim == 0 and dtype.kind in "OUS":
        raise _no_rows(X, who, "it can be read once only" if isinstance(X, Iterator) else "")
    if rows.ndim != 2 or dtype.kind not in "fiub":
        raise DataError(
            f"The data of {who} must be a two-dimensional array of real numbers with one row per sample. This one has "
            f"{labels.count(rows.ndim, 'dimension')} and dtype {dtype}. Convert it first{_conversion(rows.ndim, dtype)}"
        )


def _conversion(dimensions: int, dtype: np.dtype[Any]) -> str:
    """Return the end of the advice to convert an array that is no table of numbers."""
    if dtype.names:
        return f": for example, store its {labels.count(len(dtype.names), 'field')} as columns of an array."
    if dtype.kind not in "fiub":
        return "."
    if dimensions == 1:
        return ": for example, x[:, None] turns a vector into a column."
    if dimensions > 2:
        return ": for example, x.reshape(len(x), -1) makes a row of each sample."
    return "."


class SlicedRows(Stored):
    """Rows that are read by slices, X[i:j]. A dense array or memory map is a single piece, without a copy."""

    __slots__ = ("_X", "_start", "dtype", "shape", "sparse")

    def __init__(self, X: Any, start: int = 0, stop: int | None = None) -> None:
        self._X, self._start = X, start
        self.shape: tuple[int, int] = (int(X.shape[0] if stop is None else stop) - start, int(X.shape[1]))
        self.dtype = dtype_of(X)
        self.sparse = hasattr(X, "tocsr")

    @property
    def _in_memory(self) -> bool:
        return hasattr(self._X, "__array_interface__")

    @property
    def by_columns(self) -> bool:
        """Whether the array is stored by columns, with the entries of a column adjacent in memory."""
        strides = getattr(self._X, "strides", None)
        return strides is not None and strides[0] < strides[1]

    def pieces(self) -> Iterator[Any]:
        """Yield the rows in pieces.

        A dense array in memory is a single piece, and CSR in memory is cut without a copy. Other rows are read in
        pieces of about 16 MB that consist of whole chunks.
        """
        if self.sparse:
            yield from csr_pieces(self._X)
            return
        if self._in_memory:
            yield np.asarray(self._X)
            return
        chunk = (getattr(self._X, "chunks", None) or (1,))[0]
        chunk = chunk if isinstance(chunk, int) else int(chunk[0])
        rows = max(rows_of_a_piece(self.shape[1], self.dtype) // chunk, 1) * chunk
        first, end = self._start, self._start + self.shape[0]
        while first < end:
            last = min((first // rows + 1) * rows, end)
            yield np.asarray(self._X[first:last])
            first = last

    def rows_between(self, start: int, stop: int) -> SlicedRows:
        """Return the rows from `start` up to, but not including, `stop`."""
        if self.sparse or self._in_memory:
            return SlicedRows(self._X[start:stop])
        return SlicedRows(self._X, self._start + start, self._start + stop)

    def place(self) -> Place | None:
        """Return the place of the rows in the file from which they are mapped, or None for other rows."""
        return place_of(self._X)

    @property
    def array(self) -> Array | None:
        """The rows as a numpy array, or None if they are not a plain numpy array in memory."""
        return self._X if type(self._X) is np.ndarray else None


def only_block(source: Blocks) -> Array | None:
    """Return the rows of a source as an array if they are a single block in memory. Otherwise, return None."""
    found = source.array if isinstance(source, SlicedRows) else None
    if (
        found is None
        or len(found) > rows_of_a_block(found.shape[1], found.dtype)
        or as_computing_block(found) is not found
    ):
        return None
    return found


def place_of(X: Any) -> Place | None:
    """Return the place of an array in the file from which it is mapped, or None if it is not mapped."""
    if not hasattr(X, "__array_interface__"):
        return None
    array, mapped = np.asarray(X), X
    while mapped is not None and not hasattr(mapped, "filename"):
        mapped = getattr(mapped, "base", None)
    if mapped is None or mapped.filename is None or min(array.strides, default=0) < 0 or not array.size:
        return None
    # Find the first view of the mapped file, which begins at the byte `offset` of the file.
    while hasattr(mapped.base, "filename"):
        mapped = mapped.base
    start = mapped.__array_interface__["data"][0] - mapped.offset
    offset = array.__array_interface__["data"][0] - start
    return Place(str(mapped.filename), array.dtype.str, offset, array.shape, array.strides)


@dataclass(frozen=True)
class PickedColumns(Stored):
    """Some columns of a source, in any order, which are selected block by block."""

    source: Blocks
    columns: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.source.shape[0], len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.source.dtype

    def pieces(self) -> Iterator[Array]:
        """Yield blocks with these columns. They are stored by rows or by columns, like the blocks of the source."""
        for block in cut_into_blocks(self.source.pieces(), rows_of_a_block(len(self.columns), self.dtype)):
            yield columns_of_block(as_computing_block(block), self.columns)


def with_columns(source: Blocks, columns: Array) -> Blocks:
    """Return these columns of a source in this order.

    Columns of dense rows are selected block by block. Columns of sparse rows are selected at once, unless they are
    large and in a file. If the source is itself a selection of columns, both selections are combined.
    """
    if is_sparse(source):
        return as_blocks(with_sparse_columns(source, columns))
    if isinstance(source, PickedColumns):
        whole, places = source.source, source.columns[columns]
        # A client sorts its columns by name, and then a run often requests them in their original order.
        if np.array_equal(places, np.arange(whole.shape[1])):
            return whole
        return PickedColumns(whole, places)
    if hasattr(source, "select_columns"):
        alone: Blocks = source.select_columns(columns)
        return alone
    return PickedColumns(source, columns)


def columns_of_block(block: Array, columns: Array) -> Array:
    """Return these columns of a dense block. The result is stored by rows or by columns, like the block."""
    if block.strides[0] < block.strides[1]:
        return block.T[columns].T
    return np.take(block, columns, axis=1)


@dataclass(frozen=True)
class RowSubset(Stored):
    """Some rows of a source, which are selected while it is read. `rows` holds their indices in increasing order."""

    source: Blocks
    rows: Array

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
        """Yield the selected rows of each piece."""
        start = 0
        for piece in self.source.pieces():
            end = start + piece.shape[0]
            first, last = np.searchsorted(self.rows, (start, end))
            if first < last:
                yield piece[self.rows[first:last] - start]
            start = end


def rows_of_source(source: Blocks, rows: Array) -> Blocks:
    """Return the rows of a source with these increasing indices. Rows are selected before columns."""
    if isinstance(source, PickedColumns):
        return PickedColumns(rows_of_source(source.source, rows), source.columns)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        stretch = rows_between(source, int(rows[0]), int(rows[-1]) + 1)
        if stretch is not None:
            return stretch
    return RowSubset(source, rows)


def rows_in_any_order(source: Blocks, rows: Array) -> Any:
    """Return the rows of a source with these indices: as a source if the indices increase, else in memory."""
    if (np.diff(rows) > 0).all():
        return rows_of_source(source, rows)
    wanted, where = np.unique(rows, return_inverse=True)
    return all_rows(rows_of_source(source, wanted))[where]


@dataclass(frozen=True)
class JoinedRows(Stored):
    """The rows of several sources, one source after another."""

    sources: tuple[Blocks, ...]

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
        """Yield the pieces of all sources, in the order of the sources."""
        for source in self.sources:
            yield from source.pieces()
