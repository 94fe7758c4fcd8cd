"""Compute products and moments of rows stored by columns, such as genotypes.

A product takes two passes over blocks of columns. A block stays in the processor's cache while it is decoded, centered
and multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments, fill_gaps_in_place


@runtime_checkable
class ColumnBlocks(Protocol):
    """A source of rows that also yields blocks of columns, and counts the values of columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    def column_blocks(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the columns and the rows of each block as slices, and its entries with one line per column."""

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


def product_by_columns(source: ColumnBlocks, Z: Array, frame: Frame) -> Array:
    """Return X'(XZ) for the rows X in a frame, summed in double precision."""
    if not Z.shape[1]:
        return np.zeros(Z.shape)
    W = frame.unscale(Z).astype(Z.dtype, copy=False)
    Y = np.zeros((source.shape[0], Z.shape[1]))
    for columns, rows, entries in _blocks_in_frame(source, frame):
        Y[rows] += entries.T @ W[columns]
    total, Y = np.zeros(Z.shape), Y.astype(Z.dtype, copy=False)
    for columns, rows, entries in _blocks_in_frame(source, frame):
        total[columns] += entries @ Y[rows]
    return frame.unscale(total)


def _blocks_in_frame(source: ColumnBlocks, frame: Frame) -> Iterator[tuple[slice, slice, Array]]:
    """Yield the columns and rows of each block as slices, and its entries, centered and filled but not scaled."""
    gap: Any = None if frame.fill is None else frame.fill - frame.column_centers
    if gap is not None and not np.any(gap):  # The fill is usually the mean itself, so the gap is 0.
        gap = 0.0
    for columns, rows, entries in source.column_blocks():
        if frame.mean is not None:
            entries -= frame.mean[columns, None].astype(entries.dtype)
        if gap is not None:
            fill_gaps_in_place(entries, gap if np.ndim(gap) == 0 else gap[columns, None], np.isnan(entries))
        yield columns, rows, entries
