"""Compute X'X of rows, summed block by block in a single matrix.

`GramSum` is for dense blocks. BLAS adds the product of each block to one triangle of the sum, so no second d x d matrix
is formed. `sparse_gram` is for sparse rows with few stored entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array, load_blas

# With at least this many columns, BLAS adds a product directly to the sum. With fewer columns, the product of a block
# fits the processor's cache, and adding directly would not be faster. On 20,000 x 784 numbers, forming products first
# took 1.26 times as long as a single product X'X, and adding directly took 1.00 times as long. On 6,000 x 2,000
# numbers, the factors were 2.46 and 1.09.
_LARGE: Final = 256
# With at least this many columns, rows of single precision are multiplied and added in double precision. This takes
# 0.95 times as long at 784 columns and 0.5 times as long at 2,000, because a product in single precision would have to
# be converted before it is added.
_LARGE_SINGLE: Final = 1024
# Side of the squares in which one triangle is copied to the other triangle. Squares of 256 columns do not fit into the
# processor's cache, and take three times as long.
_TILE: Final = 64
_BELOW: Final = np.tri(_TILE, k=-1, dtype=bool)  # the places below the diagonal of such a square
# In one unit of measured time, a dense block takes 1 for each of its rows and each entry of X'X. A sparse product takes
# _PER_PRODUCT for each product of two stored entries of a row, and _PER_ENTRY for each entry of the result.
_PER_PRODUCT, _PER_ENTRY = 128, 640
# Dense blocks in single precision take this share of the time of blocks in double precision.
_SINGLE: Final = 0.6
# S'S is formed from pieces with at most _PRODUCTS products of two entries, or _PER_PIECE for each entry of S'S up to
# _MOST_PRODUCTS, which take at most 400 MB. Smaller pieces would take longer, because their products are soon full.
_PRODUCTS, _PER_PIECE, _MOST_PRODUCTS = 2**22, 16, 2**25
# S'S of a piece is formed in one stripe of rows for every so many stored entries of a row, if all its entries have a
# product. Each stripe has the entries from the diagonal on, so that many stripes form little more than half of S'S.
_PER_STRIPE: Final = 8
_AT_ONCE: Final = 64  # the number of rows of S'S that are updated at a time


class GramSum:
    """The sum of B'B over blocks B of rows, in double precision.

    Parameters
    ----------
    d : int
        The number of columns.
    dtype : dtype
        The precision in which a block is multiplied. If it is single, a block must have so few rows that single
        precision is enough to sum their products.
    """

    def __init__(self, d: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._in_place = d >= (_LARGE if dtype == np.float64 else _LARGE_SINGLE)
        # BLAS stores matrices by columns, so its lower triangle is the upper triangle here.
        self._sum = np.zeros((d, d))

    def add(self, rows: Array) -> None:
        """Add a block of rows."""
        if not self._in_place:
            rows = rows.astype(self._dtype, copy=False)
            self._sum += rows.T @ rows
            return
        rows = np.asarray(rows, dtype=np.float64)
        by_columns = rows.strides[0] < rows.strides[1]
        given = rows if by_columns else rows.T  # BLAS would get a copy of rows in another order.
        self._sum = load_blas().dsyrk(1.0, given, beta=1.0, c=self._sum.T, trans=by_columns, lower=1, overwrite_c=1).T

    def gram(self) -> Array:
        """Return the sum (d x d). No block may be added afterwards."""
        if self._in_place:
            _mirror(self._sum)
        return self._sum


def _mirror(G: Array) -> None:
    """Copy the upper triangle of G to the lower one in small squares, because a whole copy would double the memory."""
    for i in range(0, len(G), _TILE):
        j = i + _TILE
        tile = G[i:j, i:j]
        np.copyto(tile, tile.T.copy(), where=_BELOW[: len(tile), : len(tile)])
        G[j:, i:j] = G[i:j, j:].T


def has_few_stored(pieces: Iterable[Any], n: int, d: int, dtype: np.dtype[Any]) -> bool:
    """Return whether sparse rows have so few stored entries that `sparse_gram` is faster than dense blocks."""
    # S'S is a sum of this many products of two entries of the same row.
    products = sum(int(_products_by_row(S).sum()) for S in pieces)
    dense = n * d * d * (1.0 if dtype == np.float64 or d >= _LARGE_SINGLE else _SINGLE)
    return _PER_PRODUCT * products + _PER_ENTRY * min(products, d * d) <= dense


def sparse_gram(rows: Iterable[Any], n: int, mean: Array, *, about: Array | float) -> Array:
    """Return (S - 1 about')'(S - 1 about') in double precision, for n sparse rows S with this mean."""
    total = sum_of_sparse_products(rows, len(mean))
    d, off = len(mean), mean - about
    for i in range(0, d, _AT_ONCE):
        some = slice(i, i + _AT_ONCE)
        # Subtract the rows' own mean first, because the difference of two large numbers would lose digits.
        total[some] -= np.outer(n * mean[some], mean)
        total[some] += np.outer(n * off[some], off)
    return total


def sum_of_sparse_products(rows: Iterable[Any], d: int) -> Array:
    """Return S'S of sparse rows with d columns in double precision.

    It is formed from pieces of rows, and a piece's product takes at most a few times the memory of the sum.
    """
    total: Array | None = None
    by_stripes = False
    for piece in (piece for S in rows for piece in _double_pieces(S)):
        if (stripes := _stripes(piece)) > 1:
            by_stripes = True
            total = np.zeros((d, d)) if total is None else total
            _add_upper_triangle(total, piece, stripes)
            continue
        # The transpose of the product is stored by rows, like the sum.
        product = (piece.T @ piece).T.toarray()
        total = product if total is None else np.add(total, product, out=total)
    if by_stripes and total is not None:
        _mirror(total)
    return np.zeros((d, d)) if total is None else total


def _stripes(S: Any) -> int:
    """Return in how many stripes S'S is formed in the least time."""
    products = int(_products_by_row(S).sum())
    return products // (_PER_STRIPE * S.nnz) if S.nnz and products >= S.shape[1] ** 2 else 1


def _products_by_row(S: Any) -> Array:
    """Return the number of products of two stored entries of each row."""
    return np.asarray(np.diff(S.indptr).astype(np.int64) ** 2)


def _add_upper_triangle(total: Array, S: Any, stripes: int) -> None:
    """Add to `total` the upper triangle of S'S, and some entries below it, for sparse rows S."""
    d = S.shape[1]
    columns, width = S.tocsc().T, -(-d // stripes)
    for start in range(0, d, width):
        total[start : start + width, start:] += (columns[start : start + width] @ S).toarray()
        S = S[:, width:]


def _double_pieces(S: Any) -> Iterator[Any]:
    """Yield pieces of sparse rows in double precision, with a limited number of products of two entries each."""
    products = np.cumsum(_products_by_row(S))
    most = max(_PRODUCTS, min(_PER_PIECE * S.shape[1] ** 2, _MOST_PRODUCTS))
    start = 0
    while start < S.shape[0]:
        before = products[start - 1] if start else 0
        end = max(int(np.searchsorted(products, before + most, side="right")), start + 1)
        yield S[start:end].astype(np.float64)
        start = end
