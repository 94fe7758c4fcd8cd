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
# Sparse rows are multiplied without conversion to dense blocks if at most this share of their entries is stored.
# Relative to dense blocks, this takes 0.07 to 0.2 times as long at 1%, 0.25 to 1.2 at 3%, and 0.5 to 3.3 at 5%.
_SPARSE: Final = 0.04
_FILLED: Final = 0.1  # If a larger share of a product's entries is stored, the product is added as a dense matrix.
_PRODUCTS: Final = 2**22  # maximum number of products of two entries that are formed before they are added to the sum


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
        self._sum = load_blas().dsyrk(1.0, rows.T, beta=1.0, c=self._sum.T, lower=1, overwrite_c=1).T

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


def has_few_stored(pieces: Iterable[Any], n: int, d: int) -> bool:
    """Return whether sparse rows have so few stored entries that `sparse_gram` is faster than dense blocks."""
    # S'S is a sum of this many products of two entries of the same row.
    products = sum(int(np.sum(np.diff(S.indptr).astype(np.int64) ** 2)) for S in pieces)
    return bool(products <= n * (_SPARSE * d) ** 2)


def sparse_gram(rows: Iterable[Any], n: int, mean: Array, *, about: Array | float) -> Array:
    """Return (S - 1 about')'(S - 1 about') in double precision, for n sparse rows S with this mean.

    S'S is formed from pieces of few rows, whose products need little memory compared with the sum.
    """
    d = len(mean)
    total = np.zeros((d, d))
    flat = total.reshape(-1)
    for piece in (piece for S in rows for piece in _double_pieces(S)):
        product = piece.T @ piece
        if product.nnz > _FILLED * d * d:
            total += product.toarray()
        else:
            product = product.tocoo()
            # Each entry of a product is stored once, so plain indexing adds all entries.
            flat[product.row.astype(np.int64) * d + product.col] += product.data
    # Subtract the rows' own mean first, because the difference of two large numbers would lose digits.
    total -= np.outer(n * mean, mean)
    off = mean - about
    total += np.outer(n * off, off)
    return total


def _double_pieces(S: Any) -> Iterator[Any]:
    """Yield pieces of sparse rows in double precision, with at most `_PRODUCTS` products of two entries each."""
    products = np.cumsum(np.diff(S.indptr).astype(np.int64) ** 2)
    start = 0
    while start < S.shape[0]:
        before = products[start - 1] if start else 0
        end = max(int(np.searchsorted(products, before + _PRODUCTS, side="right")), start + 1)
        yield S[start:end].astype(np.float64)
        start = end
