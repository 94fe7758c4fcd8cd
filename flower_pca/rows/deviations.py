"""Deviations: one pass over dense rows without gaps, less about their mean, for all that the rows' own mean centres.

`sums` is the pass before it, which rows are checked by as well: what is not finite shows in the sum of its column. The
mean that follows is right to a few roundings. Blocks less it are formed in the same memory, one after another, and what
rounding has left in the mean (`rest`) is taken off what they add up to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Moments

_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))


def sums(blocks: Iterable[Array], d: int) -> Array:
    """The sums of columns: infinite or NaN where an entry is, or where they overflow."""
    total = np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            rows = block if block.dtype in _NATIVE else block.astype(np.float64)
            total += np.ones(len(rows), dtype=rows.dtype) @ rows
    return total


def about(blocks: Iterable[Array], mean: Array) -> Iterator[Array]:
    """Blocks of rows less `mean`, in its precision. Each lies where the one before it did."""
    room: Array | None = None
    for block in blocks:
        room = np.empty(block.shape, dtype=mean.dtype) if room is None else room
        yield np.subtract(block, mean, out=room[: len(block)], casting="same_kind")


def moments(deviations: Iterable[Array], n: int, mean: Array) -> Moments:
    """The moments of n rows, from their deviations from about their mean."""
    return product(deviations, n, mean, np.empty((len(mean), 0)), np.dtype(np.float64))[0]


def product(deviations: Iterable[Array], n: int, mean: Array, Z: Array, dtype: np.dtype[Any]) -> tuple[Moments, Array]:
    """The moments, and the product of the rows less their own mean with a block, in this precision."""
    left, squares, total = np.zeros(len(mean)), np.zeros(len(mean)), np.zeros(Z.shape)
    for D in deviations:
        left += np.ones(len(D)) @ D
        squares += np.einsum("ij,ij->j", D, D)
        if Z.shape[1]:
            rows = D.astype(dtype, copy=False)
            total += rows.T @ (rows @ Z)
    rest = left / n
    total -= (n * rest)[:, None] * (rest @ Z)
    return Moments(n, mean + rest, np.maximum(squares - n * rest**2, 0.0)), total
