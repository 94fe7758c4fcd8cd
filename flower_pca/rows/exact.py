"""C as an exact sum: the same bits on every machine, whatever the order of the rows and the size of blocks.

Each column lives on a grid of 2^-45 of the power of two above its largest deviation. A deviation is then a whole number
of 46 bits with its sign, split into two slices of 23. Products of 64 rows of slices are whole numbers below 2^53, which
float64 adds without rounding; they are collected in integers, and C is rounded once, at the end. The mean is such an
exact sum as well, of what is left of a row less the middle of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_GRID, _SLICE = 45, 23  # bits of a deviation, and of its lower slice
_FINE: Final = 51  # bits of the grid of the mean
_BLOCK: Final = 64  # rows whose products of slices float64 adds exactly: 2 * 22 + 6 bits, and carries
_CARRY: Final = 2**17  # rows after which sums of products are carried on: 64 bits hold twice as many
_EXACT: Final = 2**53  # up to which every whole number is a float64
_ROOM: Final = 2**16  # of a highest word that fits into 64 bits with the next one


def scatter(blocks: Callable[[], Iterator[Array]], d: int) -> tuple[Array, Array, Array]:
    """The column means, the sums of x - mean, and C = sum (x - mean)(x - mean)' on the grid; NaN deviates by 0.

    `blocks` gives the rows in any order and in blocks of any size, each time the same ones.
    """
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for block in blocks():
        low = np.fmin(low, np.fmin.reduce(block, axis=0))
        high = np.fmax(high, np.fmax.reduce(block, axis=0))
    low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)
    middle = low + (high - low) / 2.0
    mean = middle + _mean(blocks, middle, np.maximum(high - middle, middle - low))
    exponents = _above(np.maximum(high - mean, mean - low)) - _GRID
    return mean, *_collected(blocks, mean, exponents)


def _above(size: Array) -> Array:
    """The exponents of the powers of two above these sizes."""
    return np.asarray(np.frexp(size)[1])


def _whole(block: Array, middle: Array, exponents: Array) -> Array:
    """Deviations from the middle in units of 2^exponents; none where a value is missing."""
    return np.asarray(np.rint(np.ldexp(np.nan_to_num(block - middle, nan=0.0), -exponents)))


def _mean(blocks: Callable[[], Iterator[Array]], middle: Array, size: Array) -> Array:
    """The mean of what is left of the rows less the middle, rounded once; of 2^40 rows at most."""
    exponents = _above(size) - _FINE
    upper, lower = (np.zeros(len(middle), dtype=np.int64) for _ in range(2))
    seen = np.zeros(len(middle), dtype=np.int64)
    for block in blocks():
        whole = _whole(block, middle, exponents).astype(np.int64)
        upper += (whole >> _SLICE).sum(axis=0)
        lower += (whole & (2**_SLICE - 1)).sum(axis=0)
        seen += len(block) - np.isnan(block).sum(axis=0)
    sums = [((int(h) << _SLICE) + int(w)) / max(int(m), 1) for h, w, m in zip(upper, lower, seen, strict=True)]
    return np.asarray(np.ldexp(sums, exponents))


def _collected(blocks: Callable[[], Iterator[Array]], mean: Array, exponents: Array) -> tuple[Array, Array]:
    d = len(mean)
    total = np.zeros((3, d, d), dtype=np.int64)  # words of 46 bits, the highest one signed
    sums = np.zeros((3, d, d), dtype=np.int64)  # of products of lower slices, of both, of upper ones
    singles = np.zeros((2, d), dtype=np.int64)  # of lower slices, of upper ones
    since = 0
    for block in blocks():
        for start in range(0, len(block), _BLOCK):
            whole = _whole(block[start : start + _BLOCK], mean, exponents)
            upper = np.rint(np.ldexp(whole, -_SLICE))
            lower = whole - np.ldexp(upper, _SLICE)
            across = upper.T @ lower
            singles += np.stack([lower.sum(axis=0), upper.sum(axis=0)]).astype(np.int64)
            sums[0] += (lower.T @ lower).astype(np.int64)
            sums[1] += (across + across.T).astype(np.int64)
            sums[2] += (upper.T @ upper).astype(np.int64)
            since += len(whole)
            if since >= _CARRY:
                _carry(total, sums)
                since = 0
    _carry(total, sums)
    rest = np.array([float((int(high) << _SLICE) + int(low)) for low, high in singles.T])
    return np.ldexp(rest, exponents), np.ldexp(_rounded(total), np.add.outer(exponents, exponents))


def _carry(total: Array, sums: Array) -> None:
    """Add the sums to the total, and leave zeros."""
    word = 2 * _SLICE
    total[0] += sums[0] + ((sums[1] & (2**_SLICE - 1)) << _SLICE)
    total[1] += sums[2] + (sums[1] >> _SLICE)
    for low, high in ((0, 1), (1, 2)):
        moved = total[low] >> word
        total[low] -= moved << word
        total[high] += moved
    sums[...] = 0


def _rounded(total: Array) -> Array:
    """The whole numbers in their words as the nearest float64."""
    word, more = 2 * _SLICE, 8
    lower, middle, upper = total
    above = (np.clip(upper, -_ROOM, _ROOM) << word) + middle
    C = np.ldexp(above.astype(np.float64), word) + lower  # rounded once, where `above` is a float64 itself
    # Else an odd last bit stands for what follows: what is rounded is then on the right side of every tie.
    longer = (above << more) + (lower >> (word - more))
    longer |= (lower & (2 ** (word - more) - 1)) != 0
    C = np.where(np.abs(above) < _EXACT, C, np.ldexp(longer.astype(np.float64), word - more))
    whole = (above | (lower != 0)).astype(np.float64)
    C = np.where(np.abs(above) < 4 * _EXACT, C, np.ldexp(whole, word))
    for place in zip(*np.nonzero(np.abs(upper) >= _ROOM), strict=True):  # of millions of rows
        C[place] = float((((int(upper[place]) << word) + int(middle[place])) << word) + int(lower[place]))
    return np.asarray(C)
