"""Products S'(SZ) of large sparse rows in whole numbers, which are rounded only after summing all rows.

X'X of such rows does not fit into memory, so every product is computed from the rows, and exactly. Each
column of S is rounded to a grid of 2^-26 times the power of two above its largest entry, and each column
of Z to a grid of 2^-52. Whole numbers are split into limbs: digits with so few bits that no sum exceeds 64
bits. A row's product is split again before rows are summed. The limbs of this sum are digits of an entry
of S'SZ. Only they become float64, so rounding reveals nothing about a single row.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

_ENTRY: Final = 26  # bits of an entry of the rows


_BLOCK: Final = 52  # Bits of an entry of the block.


_SUM: Final = 61  # Bits of a sum of products. One more is for the carry.


class WholeRows:
    """Sparse rows on the grid. NaN becomes the value of `fill`, as close as the grid has it."""

    def __init__(self, S: Any, fill: Array, who: str) -> None:
        self.n, self.d = map(int, S.shape)
        filled = np.where(np.isnan(S.data), fill[S.indices], S.data)
        data = filled.astype(np.float64)
        largest = np.zeros(self.d)
        np.maximum.at(largest, S.indices, np.abs(data))
        # The unit is a power of two, so that only the rounding to the grid remains.
        self._units = np.frexp(largest)[1] - _ENTRY
        in_units = np.ldexp(data, -self._units[S.indices])
        whole = np.rint(in_units).astype(np.int64)
        self._S = type(S)((whole, S.indices, S.indptr), shape=S.shape)
        in_rows = np.diff(S.indptr)
        in_columns = np.bincount(S.indices, minlength=self.d)
        most = max(in_rows.max(initial=1), in_columns.max(initial=1))
        # The digits are so short that a sum of `most` products of an entry and a digit stays below 2^61.
        self._bits = min(_ENTRY, _SUM - _ENTRY - int(most).bit_length())
        if self._bits < 2:
            raise DataError(
                f"The rows of {who} are too many for exact products: {labels.count(most, 'entry')} in a row or "
                "column. Split them between several nodes."
            )

    @functools.cached_property
    def mean(self) -> Array:
        """The column means."""
        sums = self._S.T @ np.ones((self.n, 1), dtype=np.int64)
        return np.asarray(np.ldexp(sums[:, 0] / self.n, self._units))

    @functools.cached_property
    def squares(self) -> Array:
        """The sum of squares of each column."""
        count = 2 * _ENTRY // self._bits + 1
        digits = digits_of(self._S.data**2, self._bits, count)
        words = np.zeros((len(digits), self.d), dtype=np.int64)
        for word, digit in zip(words, digits, strict=True):
            np.add.at(word, self._S.indices, digit)
        return np.asarray(np.ldexp(as_float(words, self._bits), 2 * self._units))

    def scatter_times(self, Z: Array, fill: Array | None = None) -> Array:
        """Return C Z for a block. Missing values have been filled before, whatever `fill` is."""
        between = self.n * np.outer(self.mean, self.mean @ Z)
        return np.asarray(self.product(Z) - between)

    def product(self, Z: Array) -> Array:
        """Return S'(SZ) for a block rounded to its own grid."""
        W = np.ldexp(Z, self._units[:, None])
        largest = np.abs(W).max(axis=0, initial=0.0)
        units = np.frexp(largest)[1] - _BLOCK
        in_units = np.rint(np.ldexp(W, -units))
        down = self.whole(in_units.astype(np.int64))
        exponents = np.add.outer(self._units, units)
        return np.asarray(np.ldexp(as_float(down, self._bits), exponents))

    def whole(self, W: Array) -> Array:
        """Return S'(SW) for whole numbers of 52 bits, in the columns' units, as words of `bits`, lowest first."""
        digits = digits_of(W, self._bits, _BLOCK // self._bits + 1)
        across = np.stack([self._S @ digit for digit in digits])
        carry(across, self._bits)
        carried = digits_of(across[-1], self._bits, (_SUM + 1) // self._bits + 1)
        rows = [*across[:-1], *carried]
        # Digits that are 0 in all rows add nothing, but would cost as much time as others.
        while len(rows) > 1 and not rows[-1].any():
            rows.pop()
        down = np.stack([self._S.T @ digit for digit in rows])
        carry(down, self._bits)
        return down


def digits_of(whole: Array, bits: int, count: int) -> list[Array]:
    """Split into digits from -2^(bits - 1) to below 2^(bits - 1), lowest first. The highest is the remainder."""
    digits, half = [], 2 ** (bits - 1)
    for _ in range(count - 1):
        above = (whole + half) >> bits
        digits.append(whole - (above << bits))
        whole = above
    return [*digits, whole]


def carry(words: Array, bits: int) -> None:
    """Reduce all words except the highest to digits, in place, so that each number has a unique form."""
    half = 2 ** (bits - 1)
    for low, high in itertools.pairwise(words):
        above = (low + half) >> bits
        low -= above << bits
        high += above


def as_float(words: Array, bits: int) -> Array:
    """Return the numbers with these digits, lowest first."""
    total = np.zeros(words.shape[1:])
    for place, word in enumerate(words):
        total += np.ldexp(word.astype(np.float64), bits * place)
    return total
