"""Compute products S'(SZ) of large sparse rows in integer arithmetic, and convert them to float64 only at the end.

X'X of such rows does not fit into memory, so every product is computed from the rows. First, S and Z are rounded: each
column of S to multiples of 2^-26, and each column of Z to multiples of 2^-52, of the power of two above its largest
entry. From then on, the arithmetic is exact. Integers are split into limbs, which are digits with so few bits that no
sum exceeds 64 bits. The product of a row is split again before rows are summed. The limbs of this sum are digits of an
entry of S'SZ. Only these digits become float64, so rounding reveals nothing about a single row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows.measured import Measured

_ENTRY: Final = 26  # number of bits of an entry of the rows
_BLOCK: Final = 52  # number of bits of an entry of the block
_SUM: Final = 61  # number of bits of a sum of products, to which carrying may add one bit


class GridRows:
    """Sparse rows that are rounded to the grid. NaN becomes the grid point closest to the value of `fill`.

    The rows are read piece by piece for every product, because their file may be larger than the memory.
    """

    def __init__(self, rows: Measured, fill: Array, who: str) -> None:
        self.n, self.d = rows.n, rows.d
        self._rows, self._fill = rows, fill
        largest = np.zeros(self.d)
        most, in_columns = 1, np.zeros(self.d, dtype=np.int64)
        for S in self._filled():
            np.maximum.at(largest, S.indices, np.abs(S.data))
            most = max(most, int(np.diff(S.indptr).max(initial=1)))
            in_columns += np.bincount(S.indices, minlength=self.d)
        most = max(most, int(in_columns.max(initial=1)))
        # The unit is a power of two, so rounding to the grid is the only rounding error.
        self._units = np.frexp(largest)[1] - _ENTRY
        # Digits have so few bits that a sum of `most` products of an entry and a digit stays below 2^61.
        self._bits = min(_ENTRY, _SUM - _ENTRY - most.bit_length())
        if self._bits < 2:
            raise DataError(
                f"The table of {who} is too large for exact products: one row or column has "
                f"{labels.count(most, 'entry')}. Split the rows among several nodes."
            )

    def _filled(self) -> Iterator[Any]:
        """Yield the pieces of the rows in double precision, with missing values replaced."""
        for S in self._rows.stored_blocks():
            if self._rows.missing:
                filled = np.where(np.isnan(S.data), self._fill[S.indices], S.data)
                S = type(S)((filled, S.indices, S.indptr), shape=S.shape)
            yield S.astype(np.float64, copy=False)

    def _whole(self) -> Iterator[Any]:
        """Yield the pieces of the rows as whole numbers, in units of the grid."""
        for S in self._filled():
            whole = np.rint(np.ldexp(S.data, -self._units[S.indices])).astype(np.int64)
            yield type(S)((whole, S.indices, S.indptr), shape=S.shape)

    @functools.cached_property
    def mean(self) -> Array:
        """The column means."""
        sums = np.zeros(self.d, dtype=np.int64)
        for S in self._whole():
            sums += S.T @ np.ones(S.shape[0], dtype=np.int64)
        return np.asarray(np.ldexp(sums / self.n, self._units))

    @functools.cached_property
    def squares(self) -> Array:
        """The sum of squares of each column."""
        words = np.zeros((2 * _ENTRY // self._bits + 1, self.d), dtype=np.int64)
        for S in self._whole():
            for word, digit in zip(words, digits_of(S.data**2, self._bits, len(words)), strict=True):
                np.add.at(word, S.indices, digit)
        return np.asarray(np.ldexp(digits_as_floats(words, self._bits), 2 * self._units))

    def scatter_times(self, Z: Array, fill: Array | None = None) -> Array:
        """Return C Z for a block Z. `fill` has no effect, because missing values have already been filled."""
        between = self.n * np.outer(self.mean, self.mean @ Z)
        return np.asarray(self.scatter_product(Z) - between)

    def scatter_product(self, Z: Array) -> Array:
        """Return S'(SZ) for a block Z, which is rounded to its own grid."""
        W = np.ldexp(Z, self._units[:, None])
        largest = np.abs(W).max(axis=0, initial=0.0)
        units = np.frexp(largest)[1] - _BLOCK
        in_units = np.rint(np.ldexp(W, -units))
        down = self.product_of_integers(in_units.astype(np.int64))
        exponents = np.add.outer(self._units, units)
        return np.asarray(np.ldexp(digits_as_floats(down, self._bits), exponents))

    def product_of_integers(self, W: Array) -> Array:
        """Return S'(SW) for a block W of whole numbers of 52 bits, as digits in units of the grid, lowest first."""
        digits = digits_of(W, self._bits, _BLOCK // self._bits + 1)
        down = np.zeros((0, *W.shape), dtype=np.int64)
        for S in self._whole():
            across = np.stack([S @ digit for digit in digits])
            carry_digits(across, self._bits)
            carried = digits_of(across[-1], self._bits, (_SUM + 1) // self._bits + 1)
            rows = [*across[:-1], *carried]
            # Drop the highest digits if they are 0 in all rows, because multiplying them would take time.
            while len(rows) > 1 and not rows[-1].any():
                rows.pop()
            if len(rows) > len(down):
                down = np.concatenate([down, np.zeros((len(rows) - len(down), *W.shape), dtype=np.int64)])
            for word, digit in zip(down, rows, strict=False):
                word += S.T @ digit
        carry_digits(down, self._bits)
        return down


def digits_of(integers: Array, bits: int, count: int) -> list[Array]:
    """Split whole numbers into `count` digits from -2^(bits - 1) to below 2^(bits - 1), with the lowest digit first.

    The highest digit is the remainder, which may be larger.
    """
    digits, half = [], 2 ** (bits - 1)
    for _ in range(count - 1):
        above = (integers + half) >> bits
        digits.append(integers - (above << bits))
        integers = above
    return [*digits, integers]


def carry_digits(words: Array, bits: int) -> None:
    """Carry from each word to the next higher one, in place, so that each number has a unique form.

    Afterwards, all words except the highest are digits.
    """
    half = 2 ** (bits - 1)
    for low, high in itertools.pairwise(words):
        above = (low + half) >> bits
        low -= above << bits
        high += above


def digits_as_floats(words: Array, bits: int) -> Array:
    """Return the numbers with these digits as floats. The lowest digit comes first."""
    total = np.zeros(words.shape[1:])
    for place, word in enumerate(words):
        total += np.ldexp(word.astype(np.float64), bits * place)
    return total
