"""Read sparse rows (CSR) from a group of an HDF5 or zarr file, such as an .h5ad file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Blocks, Stored, recut_sparse, rows_between, sparse_piece_bounds

_HELD: Final = 2**26  # Selected columns are kept in memory if they take at most this many bytes.


def is_compressed(X: Any) -> bool:
    """Return whether X is a group that holds a sparse matrix, or anndata's object for such a group."""
    return _encoding(getattr(X, "group", X)).startswith(("csr", "csc"))


def _encoding(group: Any) -> str:
    """Return the encoding of the matrix in a group, from an attribute written by anndata, or "" if it has none."""
    attributes = getattr(group, "attrs", None)
    if attributes is None or not hasattr(group, "keys"):
        return ""
    return str(attributes.get("encoding-type", attributes.get("h5sparse_format", "")))


class CompressedRows(Stored):
    """A CSR matrix in a group with the arrays `data`, `indices` and `indptr`. Only `indptr` is held in memory."""

    sparse = True

    def __init__(self, group: Any, indptr: Array, d: int, who: str = "the rows") -> None:
        self._group, self._indptr, self._who = group, indptr, who
        self.shape = (len(indptr) - 1, d)
        kind = np.dtype(group["data"].dtype)
        self.dtype = kind if kind.kind == "f" else np.dtype(np.float64)

    @classmethod
    def from_group(cls, X: Any, who: str = "the rows") -> CompressedRows:
        """Return the CSR matrix in a group. Raise a DataError if the group does not hold a valid CSR matrix."""
        group = getattr(X, "group", X)
        if _encoding(group).startswith("csc"):
            raise DataError(
                f"The sparse matrix of {who} is stored by columns (CSC), so its rows cannot be read one after another. "
                "Convert it with adata.X = adata.X.tocsr(), and write the file again."
            )
        if lacking := [name for name in ("data", "indices", "indptr") if name not in group]:
            raise DataError(f"The sparse matrix of {who} has no {lacking[0]}. Write the file again.")
        attributes = group.attrs
        n, d = (int(side) for side in attributes.get("shape", attributes.get("h5sparse_shape", (0, 0))))
        indptr = np.asarray(group["indptr"][:], dtype=np.int64)
        stored = int(group["data"].shape[0])
        if (
            group["indices"].shape[0] != stored
            or len(indptr) != n + 1
            or indptr[0] != 0
            or int(indptr[-1]) != stored
            or (np.diff(indptr) < 0).any()
        ):
            raise DataError(
                f"The sparse matrix of {who} is damaged: its indices or indptr do not match its {n:,} rows and "
                f"{stored:,} stored entries. Write the file again."
            )
        if np.dtype(group["data"].dtype).kind not in "fiub":
            raise DataError(
                f"The sparse matrix of {who} holds entries of the type {group['data'].dtype}, but a PCA needs real "
                "numbers. Write the file again with real numbers."
            )
        return cls(group, indptr, d, who)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the stored entries and their column indices."""
        stored = int(self._indptr[-1] - self._indptr[0])
        return stored * (self.dtype.itemsize + int(self._group["indices"].dtype.itemsize))

    def pieces(self) -> Iterator[Any]:
        """Yield pieces of rows with about 2^21 stored entries each."""
        for start, stop in sparse_piece_bounds(self._indptr):
            a, b = int(self._indptr[start]), int(self._indptr[stop])
            yield without_duplicates(self._stored_between(a, b, self._indptr[start : stop + 1] - a))

    def _stored_between(self, a: int, b: int, indptr: Array) -> Any:
        """Return the rows with the stored entries from `a` up to, but not including, `b`.

        This is a separate function, so that no variable keeps a piece in memory while the next piece is read.
        """
        data, indices = (np.asarray(self._group[name][a:b]) for name in ("data", "indices"))
        # scipy does not check the indices. An invalid index would make it access memory beyond its arrays.
        if indices.size and not 0 <= indices.min() <= indices.max() < self.shape[1]:
            raise DataError(
                f"The sparse matrix of {self._who} has entries outside its {self.shape[1]:,} columns. Write the file "
                "again."
            )
        return _csr(data, indices, indptr, self.shape[1])

    def rows_between(self, start: int, stop: int) -> CompressedRows:
        """Return the rows from `start` up to, but not including, `stop`."""
        return CompressedRows(self._group, self._indptr[start : stop + 1], self.shape[1], self._who)


def _csr(data: Array, indices: Array, indptr: Array, d: int) -> Any:
    from scipy.sparse import csr_array

    # scipy copies the indices into the wider type of both arrays, which would take twice the memory of 32-bit indices.
    if indices.dtype == np.int32 and indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32, copy=False)
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, d))


def csr_pieces(S: Any) -> Iterator[Any]:
    """Yield CSR in memory in the same pieces as CSR in a file. The pieces share the memory of the matrix."""
    if S.nnz == 0 or len(cuts := list(sparse_piece_bounds(S.indptr))) == 1:
        yield S
        return
    for start, stop in cuts:
        a, b = int(S.indptr[start]), int(S.indptr[stop])
        part = _csr(S.data[a:b], S.indices[a:b], S.indptr[start : stop + 1] - a, S.shape[1])
        # The whole matrix is canonical, so scipy does not have to check each piece at each pass.
        part.has_canonical_format = True
        yield part


def without_duplicates(S: Any) -> Any:
    """Return CSR of floating-point numbers in which each entry is stored only once."""
    if S.dtype.kind != "f":
        S = S.astype(np.float64)
    if not S.has_canonical_format:
        # Moments count stored entries, so an entry that is stored twice would count twice.
        S = S.copy()  # The array of the caller is not changed.
        S.sum_duplicates()
    return S


class PickedSparseColumns(Stored):
    """Some columns of a source of CSR, in any order and each at most once, which are selected piece by piece."""

    sparse = True

    def __init__(self, source: Blocks, columns: Array) -> None:
        self.source, self.columns = source, columns
        self.shape, self.dtype = (source.shape[0], len(columns)), source.dtype

    def rows_between(self, start: int, stop: int) -> PickedSparseColumns | None:
        """Return the rows from `start` up to, but not including, `stop`.

        Return None if the source cannot read these rows without the rows before them.
        """
        stretch = rows_between(self.source, start, stop)
        return None if stretch is None else PickedSparseColumns(stretch, self.columns)

    def pieces(self) -> Iterator[Any]:
        """Yield pieces that begin at the same rows as the pieces of the same matrix in memory."""
        place = np.full(self.source.shape[1], -1, dtype=np.int32)
        place[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        # Unlike a generator, `map` does not keep a piece of the source while its copy is used.
        placed = map(partial(_move_columns, new_positions=place, d=len(self.columns)), self.source.pieces())
        # If all columns are selected, each row keeps its number of entries, so pieces already begin at the right rows.
        if isinstance(self.source, CompressedRows) and self.shape[1] == self.source.shape[1]:
            return placed
        return recut_sparse(placed)


def _move_columns(S: Any, new_positions: Array, d: int) -> Any:
    """Return CSR with each entry of column j moved to column `new_positions[j]`, or dropped if this is -1."""
    data, indices, indptr = S.data, new_positions[S.indices], S.indptr
    if d < len(new_positions):
        kept = indices >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])
        data, indices, indptr = data[kept], indices[kept], ends[indptr]
    else:
        data = data.copy()  # The copy is needed because the entries are sorted in place below.
    placed = _csr(data, indices, indptr, d)
    placed.sort_indices()
    # The source stores each entry only once, so scipy does not have to check this.
    placed.has_canonical_format = True
    return placed


def with_sparse_columns(source: Blocks, columns: Array) -> Any:
    """Return these columns of a source of CSR, in memory if they take at most 64 MB, and as a source otherwise."""
    from scipy.sparse import csr_array, vstack

    if isinstance(source, PickedSparseColumns):
        columns, source = source.columns[columns], source.source
    if np.array_equal(columns, np.arange(source.shape[1])):
        return source
    lazy, size, pieces = PickedSparseColumns(source, columns), 0, []
    if lazy.shape == source.shape and getattr(source, "nbytes", 0) > _HELD:
        return lazy  # If all entries are selected, their size is known without reading them.
    for piece in lazy.pieces():
        pieces.append(piece)
        size += piece.data.nbytes + piece.indices.nbytes
        if size > _HELD:
            return lazy
    return vstack(pieces, format="csr") if pieces else csr_array(lazy.shape, dtype=lazy.dtype)
