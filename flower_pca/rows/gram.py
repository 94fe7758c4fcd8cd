"""X'X of rows, summed block by block in one matrix.

`GramSum` takes dense blocks. BLAS adds each of them to one triangle of the sum, so no second
d x d matrix is formed and added for each block. `sparse_gram` takes sparse rows of which few
entries are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array

# From so many columns on, BLAS adds to the sum itself. Below that, the product of a block fits the processor's cache,
# and nothing is gained. Relative to the time of a single product X'X, it took 1.26 before and takes 1.00 now on 20,000
# x 784 numbers; on 6,000 x 2,000 numbers, it took 2.46 and takes 1.09.
_LARGE: Final = 256
# Columns from which rows of single precision are added in double precision. It takes .95 of the time at 784 columns and
# .5 at 2,000, because a product in single precision must be converted before it is added.
_LARGE_SINGLE: Final = 1024
# The side of the squares in which a triangle is copied to the other one. Squares of 256 columns take three times as
# long, because they do not fit into the processor's cache.
_TILE: Final = 64
# The share of stored entries up to which sparse rows are multiplied as they are. Measured beside dense blocks: at 1 %
# .07 to .2 of their time, at 3 % .25 to 1.2, at 5 % .5 to 3.3.
_SPARSE: Final = 0.04
_FILLED: Final = 0.1  # fill above which a product is added as a dense matrix
_PRODUCTS: Final = 2**22  # products of two entries that are formed before they are added to the sum


@lru_cache(maxsize=1)
def blas() -> Any:
    """Load BLAS's functions when they are first needed."""
    from scipy.linalg import blas as functions

    return functions


class GramSum:
    """The sum of B'B over blocks B of rows, in double precision.

    Parameters
    ----------
    d : int
        The number of columns.
    dtype : dtype
        The precision in which a block is multiplied; a block of single precision may have at most as many rows as
        single precision can add up.
    """

    def __init__(self, d: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._in_place = d >= (_LARGE if dtype == np.float64 else _LARGE_SINGLE)
        # BLAS counts by columns, so the lower triangle that it writes is the upper one here.
        self._sum = np.zeros((d, d))

    def add(self, rows: Array) -> None:
        """Add a block of rows."""
        if not self._in_place:
            rows = rows.astype(self._dtype, copy=False)
            self._sum += rows.T @ rows
            return
        rows = np.asarray(rows, dtype=np.float64)
        self._sum = blas().dsyrk(1.0, rows.T, beta=1.0, c=self._sum.T, lower=1, overwrite_c=1).T

    def total(self) -> Array:
        """Return the sum (d x d). No block may be added afterwards."""
        if self._in_place:
            _mirror(self._sum)
        return self._sum


def _mirror(G: Array) -> None:
    """Copy the upper triangle to the lower one by squares, because a whole copy would double the memory."""
    for i in range(0, len(G), _TILE):
        j = i + _TILE
        tile = G[i:j, i:j]
        tile[:] = np.triu(tile) + np.triu(tile, 1).T
        G[j:, i:j] = G[i:j, j:].T


def few_stored(pieces: Iterable[Any], n: int, d: int) -> bool:
    """Return whether sparse rows have so few stored entries that `sparse_gram` is faster than dense blocks."""
    # The products of two entries of one row, of which S'S is the sum.
    products = sum(int(np.sum(np.diff(S.indptr).astype(np.int64) ** 2)) for S in pieces)
    return bool(products <= n * (_SPARSE * d) ** 2)


def sparse_gram(rows: Iterable[Any], n: int, mean: Array, *, about: Array | float) -> Array:
    """Return (S - 1 about')'(S - 1 about) in double precision, for n sparse rows S with this mean.

    S'S is formed from pieces with few rows, so that a piece needs little memory compared with the sum.
    """
    d = len(mean)
    total = np.zeros((d, d))
    flat = total.reshape(-1)
    for piece in (piece for S in rows for piece in _pieces(S)):
        product = piece.T @ piece
        if product.nnz > _FILLED * d * d:
            total += product.toarray()
        else:
            product = product.tocoo()
            # Each place occurs once in a product, so plain indexing adds all of it.
            flat[product.row.astype(np.int64) * d + product.col] += product.data
    # About their own mean first: a difference of two large numbers would cancel digits of both.
    total -= np.outer(n * mean, mean)
    off = mean - about
    total += np.outer(n * off, off)
    return total


def _pieces(S: Any) -> Iterator[Any]:
    """Yield sparse rows in double precision, in pieces with a limited number of products of two entries."""
    products = np.cumsum(np.diff(S.indptr).astype(np.int64) ** 2)
    start = 0
    while start < S.shape[0]:
        before = products[start - 1] if start else 0
        end = max(int(np.searchsorted(products, before + _PRODUCTS, side="right")), start + 1)
        yield S[start:end].astype(np.float64)
        start = end
