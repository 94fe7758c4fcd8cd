"""Compressed: sparse rows (CSR) that lie in a group of an HDF5 or zarr file, as .h5ad files have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Blocks, Stored, cut_sparse

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

    def pieces(self) -> Iterator[Any]:
        """Rows with about 2^21 stored entries."""
        for start, stop in cut_sparse(self._indptr):
            a, b = int(self._indptr[start]), int(self._indptr[stop])
            part = np.asarray(self._group["data"][a:b]), np.asarray(self._group["indices"][a:b])
            yield canonical(_csr(*part, self._indptr[start : stop + 1] - a, self.shape[1]))

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
    """Some columns of a source of CSR, in another order. They are picked piece by piece."""

    sparse = True

    def __init__(self, source: Blocks, columns: Array) -> None:
        self._source, self._columns = source, columns
        self.shape, self.dtype = (source.shape[0], len(columns)), source.dtype

    def pieces(self) -> Iterator[Any]:
        """Pieces that begin where those of the same rows in memory do."""
        return _cut_again(canonical(piece[:, self._columns]) for piece in self._source.pieces())


def picked_sparse(source: Blocks, columns: Array) -> Any:
    """These columns of a source of CSR: in memory if they take little of it, else as a source."""
    from scipy.sparse import csr_array, vstack

    lazy, size, pieces = PickedSparse(source, columns), 0, []
    for piece in lazy.pieces():
        pieces.append(piece)
        size += piece.data.nbytes + piece.indices.nbytes
        if size > _HELD:
            return lazy
    return vstack(pieces, format="csr") if pieces else csr_array(lazy.shape, dtype=lazy.dtype)


def _cut_again(pieces: Iterable[Any]) -> Iterator[Any]:
    """The same rows, cut where CSR in memory is cut: each cut follows from the one before it."""
    from scipy.sparse import vstack

    left: Any = None
    for piece in pieces:
        left = piece if left is None else vstack([left, piece], format="csr")
        *done, (start, stop) = cut_sparse(left.indptr)
        yield from (left[a:b] for a, b in done)
        left = left[start:stop]
    if left is not None:
        yield left
