"""Compute products and moments of rows stored by columns, such as genotypes.

A product takes two passes over blocks of columns. A block stays in the processor's cache while it is decoded and
multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments

_STRIPE: Final = 2**14  # number of columns whose products with missing values are computed at a time


@runtime_checkable
class ColumnBlocks(Protocol):
    """A source of rows that also yields blocks of columns, and counts the values of columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    def count_other_allele(self, columns: Array) -> ColumnBlocks:
        """Return the counts with the copies of the other allele in these columns."""

    def column_blocks(self, *, gaps: bool = False) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the columns and the rows of each block as slices, and its entries with one line per column.

        Missing values are 0. If `gaps` is true, they are 1, and all other entries are 0.
        """

    def gap_positions(self) -> Iterator[tuple[slice, slice, tuple[Array, Array]]]:
        """Yield the columns and the rows of each block as slices, and the positions of its missing values."""

    def count_blocks(self) -> Iterator[tuple[slice, slice, Array, tuple[Array, Array]]]:
        """Yield the blocks of `column_blocks` with 0 for missing values, and the positions of these values."""

    def tallies(self) -> tuple[Array, Array, Array]:
        """Return, for each column, the number of values, their sum and the sum of their squares."""

    def digest(self) -> int:
        """Return a digest of the entries."""


def moments_by_column(source: ColumnBlocks) -> Moments:
    """Return the moments of the present values, computed from sums of whole numbers."""
    n = source.shape[0]
    count, sums, squares = source.tallies()
    seen = np.maximum(count, 1)
    # These are whole numbers, so the difference does not lose digits.
    m2 = (count * squares - sums**2) / seen
    # A copy does not keep the memory of the other sums.
    return Moments(n, sums / seen, m2, None if (count == n).all() else count.copy())


def peaks_by_column(source: ColumnBlocks) -> Array:
    """Return the largest entry of each column: 0, 1 or 2."""
    _, sums, squares = source.tallies()
    # The sum of squares exceeds the sum by 2 for each person with two copies.
    return np.where(squares > sums, 2.0, np.where(sums > 0, 1.0, 0.0))


def gap_matrix(source: ColumnBlocks, number: Array) -> Any:
    """Return the missing values as a sparse matrix with a line per column: 1 for a missing value.

    `number` is the number of missing values in each column. It gives each of them its place in the matrix, so that the
    blocks take no memory once they are read.
    """
    from scipy.sparse import csr_array

    n, d = source.shape
    ends = np.zeros(d + 1, dtype=np.int32)
    np.cumsum(number, out=ends[1:])
    free, people = ends[:-1].copy(), np.zeros(ends[-1], dtype=np.int32)
    for columns, rows, (lines, found) in source.gap_positions():
        some = np.bincount(lines, minlength=columns.stop - columns.start)
        first = free[columns] - (np.cumsum(some) - some)
        people[np.repeat(first, some) + np.arange(len(lines))] = found + rows.start
        free[columns] += some
    return csr_array((np.ones(len(people), dtype=np.int8), people, ends), shape=(d, n))


def product_by_columns(source: ColumnBlocks, Z: Array, frame: Frame, gaps: Any = None) -> Array:
    """Return X'(XZ) for the rows X in a frame, summed in double precision.

    The blocks hold counts of alleles. Their mean and the replacements of missing values are applied to the products,
    because a pass over a block takes as long as a product with it.

    Parameters
    ----------
    source : ColumnBlocks
        The rows.
    Z : ndarray of shape (d, p)
        The block to multiply.
    frame : Frame
        The frame. It has a `fill` only if values are missing.
    gaps : sparse matrix or None, default=None
        The missing values as `gap_matrix` returns them. None to decode them again in each pass.
    """
    if not Z.shape[1]:
        return np.zeros(Z.shape)
    W = frame.unscale(Z).astype(Z.dtype, copy=False)
    mean, fill, turned = frame.mean, frame.fill, None
    if mean is not None and (mean > 1.0).any():
        # The counts of the rarer allele are near 0, so subtracting the mean from products costs hardly any digits.
        turned = mean > 1.0
        source, W, mean = source.count_other_allele(turned), np.where(turned[:, None], -W, W), _turn(mean, turned)
        fill = None if fill is None else _turn(fill, turned)
    Y = _times(source, W, mean, fill, gaps).astype(Z.dtype, copy=False)
    total = _adjoint_times(source, Y, mean, fill, gaps)
    if turned is not None:
        total[turned] *= -1.0
    return frame.unscale(total)


def _turn(counts: Array, turned: Array) -> Array:
    """Return counts of an allele as counts of the other allele in some columns."""
    return np.where(turned, 2.0 - counts, counts)


def _times(source: ColumnBlocks, W: Array, mean: Array | None, fill: Array | None, gaps: Any) -> Array:
    """Return X W for counts X with missing values filled and the mean subtracted."""
    Y = np.zeros((source.shape[0], W.shape[1]))
    for columns, rows, entries in source.column_blocks():
        Y[rows] += entries.T @ W[columns]
    less = np.zeros(W.shape[1])
    for columns in _stripes(len(W)):
        V = W[columns].astype(np.float64, copy=False)
        if mean is not None:
            less += mean[columns] @ V
        if fill is not None and gaps is not None:
            V = fill[columns, None] * V
            Y += gaps[columns].T @ V
    if fill is not None and gaps is None:
        for columns, rows, entries in source.column_blocks(gaps=True):
            Y[rows] += entries.T @ (fill[columns, None] * W[columns]).astype(W.dtype, copy=False)
    return Y - less


def _adjoint_times(source: ColumnBlocks, Y: Array, mean: Array | None, fill: Array | None, gaps: Any) -> Array:
    """Return X'Y for counts X with missing values filled and the mean subtracted."""
    total = np.zeros((source.shape[1], Y.shape[1]))
    for columns, rows, entries in source.column_blocks():
        total[columns] += entries @ Y[rows]
    if fill is not None and gaps is None:
        for columns, rows, entries in source.column_blocks(gaps=True):
            total[columns] += fill[columns, None] * (entries @ Y[rows])
    Y = Y.astype(np.float64, copy=False)
    sums = Y.sum(axis=0)
    for columns in _stripes(len(total)):
        if mean is not None:
            total[columns] -= np.outer(mean[columns], sums)
        if fill is not None and gaps is not None:
            total[columns] += fill[columns, None] * (gaps[columns] @ Y)
    return total


def _stripes(d: int) -> Iterator[slice]:
    """Yield stretches of columns, whose products take little memory."""
    for start in range(0, d, _STRIPE):
        yield slice(start, min(start + _STRIPE, d))
