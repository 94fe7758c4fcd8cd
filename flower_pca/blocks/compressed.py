"""Compressed: sparse rows (CSR) that lie in a group of an HDF5 or zarr file, as .h5ad files have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Blocks, Stored, cut_again, cut_sparse

_HELD: Final = 2**26  # bytes of picked columns that are kept in memory; more are picked again at each pass


def is_compressed(X: Any) -> bool:
    """Whether it is a group with a sparse matrix in it, or an object of anndata about such a group."""
    return _encoding(getattr(X, "group", X)).startswith(("csr", "csc"))


def _encoding(group: Any) -> str:
    """How a group says that its matrix is stored; files of old versions say it in another place."""
    attributes = getattr(group, "attrs", None)
    if attributes is None or not hasattr(group, "keys"):
        return ""
    return str(attributes.get("encoding-type", attributes.get("h5sparse_format", "")))


class Compressed(Stored):
    """CSR in a group: `data`, `indices` and `indptr`. Where rows begin is held in memory, and nothing else."""

    sparse = True

    def __init__(self, group: Any, indptr: Array, d: int) -> None:
        self._group, self._indptr = group, indptr
        self.shape = (len(indptr) - 1, d)
        kind = np.dtype(group["data"].dtype)
        self.dtype = kind if kind.kind == "f" else np.dtype(np.float64)

    @classmethod
    def of(cls, X: Any, who: str = "the rows") -> Compressed:
        """The matrix in a group."""
        group = getattr(X, "group", X)
        if _encoding(group).startswith("csc"):
            raise DataError(
                f"The sparse matrix of {who} is stored by columns (CSC), so its rows cannot be read one after another. "
                "Write it by rows: adata.X = adata.X.tocsr()."
            )
        if lacking := [name for name in ("data", "indices", "indptr") if name not in group]:
            raise DataError(f"The sparse matrix of {who} has no {lacking[0]}. Write the file again.")
        attributes = group.attrs
        n, d = (int(side) for side in attributes.get("shape", attributes.get("h5sparse_shape", (0, 0))))
        indptr = np.asarray(group["indptr"][:], dtype=np.int64)
        stored = int(group["data"].shape[0])
        if len(indptr) != n + 1 or indptr[0] != 0 or int(indptr[-1]) != stored or (np.diff(indptr) < 0).any():
            raise DataError(
                f"The sparse matrix of {who} says that it has {n:,} rows and {stored:,} stored entries, but where its "
                "rows begin does not fit these. Write the file again."
            )
        if np.dtype(group["data"].dtype).kind not in "fiub":
            raise DataError(f"The sparse matrix of {who} holds {group['data'].dtype}. Write it with real numbers.")
        return cls(group, indptr, d)

    @property
    def nbytes(self) -> int:
        """The bytes of the stored entries with their columns."""
        stored = int(self._indptr[-1] - self._indptr[0])
        return stored * (self.dtype.itemsize + int(self._group["indices"].dtype.itemsize))

    def pieces(self) -> Iterator[Any]:
        """Rows with about 2^21 stored entries."""
        for start, stop in cut_sparse(self._indptr):
            a, b = int(self._indptr[start]), int(self._indptr[stop])
            yield canonical(self._between(a, b, self._indptr[start : stop + 1] - a))

    def _between(self, a: int, b: int, indptr: Array) -> Any:
        """The stored entries from `a` on and before `b` as rows. No name here keeps a piece while the next is read."""
        data, indices = (np.asarray(self._group[name][a:b]) for name in ("data", "indices"))
        return _csr(data, indices, indptr, self.shape[1])

    def between(self, start: int, stop: int) -> Compressed:
        """The rows from `start` on and before `stop`."""
        return Compressed(self._group, self._indptr[start : stop + 1], self.shape[1])


def _csr(data: Array, indices: Array, indptr: Array, d: int) -> Any:
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, d))


def parts_of(S: Any) -> Iterator[Any]:
    """CSR in memory in the same pieces, which share its entries."""
    if S.nnz == 0 or len(cuts := list(cut_sparse(S.indptr))) == 1:
        yield S
        return
    for start, stop in cuts:
        a, b = int(S.indptr[start]), int(S.indptr[stop])
        part = _csr(S.data[a:b], S.indices[a:b], S.indptr[start : stop + 1] - a, S.shape[1])
        # The whole is in this form, and scipy would look for it in each piece at each pass.
        part.has_canonical_format = True
        yield part


def canonical(S: Any) -> Any:
    """CSR of floating point that stores each place once."""
    if S.dtype.kind != "f":
        S = S.astype(np.float64)
    if not S.has_canonical_format:
        # Moments count stored entries, so a place that is stored twice would count twice.
        S = S.copy()  # The caller keeps its own array.
        S.sum_duplicates()
    return S


class PickedSparse(Stored):
    """Some columns of a source of CSR, each at most once, in another order. They are picked piece by piece."""

    sparse = True

    def __init__(self, source: Blocks, columns: Array) -> None:
        self.source, self.columns = source, columns
        self.shape, self.dtype = (source.shape[0], len(columns)), source.dtype

    def between(self, start: int, stop: int) -> PickedSparse | None:
        """The rows from `start` on and before `stop`, if the source has them without all others."""
        stretch = getattr(self.source, "between", lambda start, stop: None)(start, stop)
        return None if stretch is None else PickedSparse(stretch, self.columns)

    def pieces(self) -> Iterator[Any]:
        """Pieces that begin where those of the same rows in memory do."""
        place = np.full(self.source.shape[1], -1, dtype=np.int32)
        place[self.columns] = np.arange(len(self.columns), dtype=np.int32)
        return cut_again(_placed(piece, place, len(self.columns)) for piece in self.source.pieces())


def _placed(S: Any, place: Array, d: int) -> Any:
    """The entries of CSR, each in the column at the place of its own; what has no place, -1, is left out."""
    data, indices, indptr = S.data, place[S.indices], S.indptr
    if d < len(place):
        kept = indices >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])
        data, indices, indptr = data[kept], indices[kept], ends[indptr]
    else:
        data = data.copy()  # Entries change their places below.
    placed = _csr(data, indices, indptr, d)
    placed.sort_indices()
    # The source stores each place once, so that scipy need not look for it.
    placed.has_canonical_format = True
    return placed


def picked_sparse(source: Blocks, columns: Array) -> Any:
    """These columns of a source of CSR: in memory if they take little of it, else as a source."""
    from scipy.sparse import csr_array, vstack

    if isinstance(source, PickedSparse):
        columns, source = source.columns[columns], source.source
    if np.array_equal(columns, np.arange(source.shape[1])):
        return source
    lazy, size, pieces = PickedSparse(source, columns), 0, []
    if lazy.shape == source.shape and getattr(source, "nbytes", 0) > _HELD:
        return lazy  # All entries are taken, so none need be read to count them.
    for piece in lazy.pieces():
        pieces.append(piece)
        size += piece.data.nbytes + piece.indices.nbytes
        if size > _HELD:
            return lazy
    return vstack(pieces, format="csr") if pieces else csr_array(lazy.shape, dtype=lazy.dtype)
