"""Compute products C Z of allele counts in whole numbers, which are rounded only after summing over all people.

An entry is 0, 1, 2 or missing, so products with whole numbers need no rounding. The filled table is F = G + M D. In G,
missing values are 0. M is 1 for missing values and 0 otherwise, and D is the diagonal matrix of the replacements for
missing values of each column. Each column of Z is rounded to a grid. In units of this grid, Z is the whole matrix W,
and D Z is the whole matrix V. Y = G W + M V has at most 53 bits, which float64 holds exactly, in any order of
summation. Y is split into digits, with so few bits that the products of G' and M' with them are exact, too. The sums
over people become float64 only as digits of an entry of G'Y, M'Y or 1'Y. So rounding reveals nothing about a single
person, and the result does not depend on the blocks, on the machine, or on the order of the people.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.by_columns import ColumnBlocks
from flower_pca.rows.frame import Moments
from flower_pca.rows.whole_numbers import carry_digits, digits_as_floats, digits_of

_EXACT: Final = 53  # maximum number of bits of a whole number that double precision holds exactly


class ExactCounts:
    """Allele counts with their moments, for exact products."""

    def __init__(self, source: ColumnBlocks, moments: Moments) -> None:
        self._source, self._mean = source, moments.mean
        self.n, self.d = source.shape
        self._lacking = (self.n - np.broadcast_to(moments.value_counts, self.d)) / self.n
        self._missing = moments.count is not None
        # For entries w of W and v of V, sums of 2 |w| or |v| over all columns stay below 2^52. So the mean of a
        # column of Y can be subtracted without exceeding 53 bits.
        self._across = _EXACT - 1 - self.d.bit_length()
        # Digits are so small that the sum of 2 x digit over all people stays below 2^53.
        self._bits = _EXACT - self.n.bit_length()
        self._count = -(-(_EXACT + 1) // self._bits)

    def scatter_times(self, Z: Array, fill: Array | None = None) -> Array:
        """Return C Z of the rows, with missing values replaced by `fill`, or by the means of the rows by default."""
        fill = self._mean if fill is None else np.where(self._lacking > 0, fill, self._mean)
        mean = self._mean + (fill - self._mean) * self._lacking
        largest = np.abs(Z * np.maximum(2.0, np.abs(fill))[:, None]).max(axis=0, initial=0.0)
        if not np.isfinite(largest).all():
            return np.full(Z.shape, np.nan)
        units = np.frexp(largest)[1] - self._across
        W = np.rint(np.ldexp(Z, -units))
        V = np.rint(np.ldexp(fill[:, None] * Z, -units))
        Y = self._product_of_counts(W, V)
        # From each column, subtract a whole number close to its mean. C Z stays the same, but loses fewer digits.
        Y -= np.rint(Y.sum(axis=0) / self.n)
        digits = np.stack(digits_of(Y.astype(np.int64), self._bits, self._count))
        total = digits.sum(axis=1)
        down, lost = self._adjoint_digits(digits.astype(np.float64))
        less = np.outer(mean, self._digits_as_numbers(total))
        product = self._digits_as_numbers(down) - less
        if self._missing:
            product += fill[:, None] * self._digits_as_numbers(lost)
        return np.asarray(np.ldexp(product, units))

    def _product_of_counts(self, W: Array, V: Array) -> Array:
        """Return G W + M V."""
        Y = np.zeros((self.n, W.shape[1]))
        for columns, rows, G, M in self._count_blocks():
            Y[rows] += G.T @ W[columns]
            if M is not None:
                Y[rows] += M.T @ V[columns]
        return Y

    def _adjoint_digits(self, digits: Array) -> tuple[Array, Array]:
        """Return the sums of digits in G'Y and M'Y, before carrying."""
        count = len(digits)
        Y = np.hstack(list(digits))
        down = np.zeros((self.d, Y.shape[1]))
        lost = np.zeros(down.shape if self._missing else (0, Y.shape[1]))
        for columns, rows, G, M in self._count_blocks():
            down[columns] += G @ Y[rows]
            if M is not None:
                lost[columns] += M @ Y[rows]
        return _sums_by_digit(down, count), _sums_by_digit(lost, count)

    def _count_blocks(self) -> Iterator[tuple[slice, slice, Array, Any]]:
        """Yield blocks of columns: the columns and the rows as slices, the counts, and a mask of the missing values.

        The mask is a sparse matrix, or None if the block has no missing values.
        """
        from scipy.sparse import csr_array

        for columns, rows, counts, gaps in self._source.count_blocks():
            gone: Any = None
            if len(gaps[0]):
                gone = csr_array((np.ones(len(gaps[0])), gaps), shape=counts.shape)
            yield columns, rows, counts, gone

    def _digits_as_numbers(self, words: Array) -> Array:
        """Return the numbers with these sums of digits. Carrying first makes them independent of the summation."""
        carry_digits(words, self._bits)
        return digits_as_floats(words, self._bits)


def _sums_by_digit(sums: Array, count: int) -> Array:
    """Return the sums of each digit as whole numbers, with the lowest digit first."""
    return np.stack(np.split(sums, count, axis=1)).astype(np.int64)
