"""Dense rows about their own mean: their deviations, and what one pass over these tells, moments and X'X.

`sums` is the pass before it, which rows are checked by as well: what is not finite shows in the sum of its column. The
mean that follows is right to a few roundings. Blocks less it are formed in the same memory, one after another, and what
rounding has left in the mean (`rest`) is taken off what they add up to. Values that are missing have a deviation of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments

_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))
_BYTE: Final = 255  # the largest number that a byte holds
_ANYHOW: Final = 2**14  # entries of X'X that are few, however few rows there are


def sums(blocks: Iterable[Array], d: int) -> Array:
    """The sums of columns: infinite or NaN where an entry is, or where they overflow."""
    total = np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            if block.dtype in _NATIVE:
                rows = block
            else:
                rows = block.astype(np.float64)
            total += np.ones(len(rows), dtype=rows.dtype) @ rows
    return total


def sums_there(blocks: Iterable[Array], d: int) -> tuple[Array, Array]:
    """The sums of the values that are there, and how many each column has."""
    total, count = np.zeros(d), np.zeros(d, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in about(blocks, np.zeros(d), 0.0, count):
            total += np.ones(len(rows)) @ rows
    return total, count


def about(blocks: Iterable[Array], mean: Array, gap: Any = None, count: Array | None = None) -> Iterator[Array]:
    """Blocks of rows less `mean`, in its precision, with `gap` where a value is missing. Each lies where the last did.

    A `count` is added to by how many values each column has.
    """
    room: Array | None = None
    for block in blocks:
        if room is None:  # blocks are of one size, but for the last
            room = np.empty(block.shape, dtype=mean.dtype)
        part = np.subtract(block, mean, out=room[: len(block)], casting="same_kind")
        if gap is not None:
            gaps = np.isnan(part)
            if np.ndim(gap) == 0 and gap == 0.0:
                _blank(part, gaps)
            else:
                np.copyto(part, gap, where=gaps, casting="same_kind")
            if count is not None:
                count += len(part) - _by_column(gaps)
        yield part


def _blank(rows: Array, gaps: Array) -> None:
    """Zeros in the gaps. No entry is branched on, as gaps are where nobody can foretell: -1 keeps all bits, 0 none."""
    bits = rows.view(f"i{rows.itemsize}")
    bits &= np.subtract(gaps.view(np.int8), 1, dtype=np.int8)


def _by_column(gaps: Array) -> Array:
    """How many there are in each column, added up in bytes as long as these can hold them."""
    few = gaps.view(np.uint8)
    total = np.zeros(gaps.shape[1], dtype=np.int64)
    for start in range(0, len(few), _BYTE):
        total += np.add.reduce(few[start : start + _BYTE], axis=0, dtype=np.uint8)
    return total


class Less:
    """Blocks of rows less the mean of a frame, with what then stands in their gaps: made anew each time, or `kept`.

    What is still to be taken off products is the `rest`: single precision leaves one of the mean, which has no digits
    beside the rows.
    """

    def __init__(self, frame: Frame, dtype: np.dtype[Any], *, kept: bool) -> None:
        assert frame.mean is not None
        self._mean = frame.mean.astype(dtype, copy=False)
        self._gap: Any = None
        if frame.fill is not None:
            self._gap = frame.fill - self._mean
            if not self._gap.any():  # as the mean itself is the fill, mostly
                self._gap = 0.0
        if dtype == np.float64:
            rest = None
        else:
            rest = frame.mean - self._mean
        self.rest = Frame(rest, frame.scale)
        self._keep = kept
        self._parts: list[Array] = []

    def of(self, stored: Iterable[Array]) -> Iterable[Array]:
        """These rows less the mean; always the same rows, where they are kept."""
        if not self._keep:
            return about(stored, self._mean, self._gap)
        if not self._parts:
            self._parts = [part for block in stored for part in about([block], self._mean, self._gap)]
        return self._parts


def of_deviations(deviations: Iterable[Array], n: int, mean: Array, count: Array | None = None) -> Moments:
    """The moments of n rows, from their deviations from about their mean."""
    return product(deviations, n, mean, np.empty((len(mean), 0)), np.dtype(np.float64), count)[0]


def product(
    deviations: Iterable[Array], n: int, mean: Array, Z: Array, dtype: np.dtype[Any], count: Array | None = None
) -> tuple[Moments, Array]:
    """The moments, and the product of the rows less their own mean with a block, in this precision.

    With a `count` of the values that each column has, the others have a deviation of 0.
    """
    left = np.zeros(len(mean))
    squares = np.zeros(len(mean))
    total = np.zeros(Z.shape)
    for D in deviations:
        left += np.ones(len(D)) @ D
        squares += np.einsum("ij,ij->j", D, D)
        if Z.shape[1]:
            rows = D.astype(dtype, copy=False)
            total += rows.T @ (rows @ Z)
    seen = n if count is None else count
    rest = left / np.maximum(seen, 1)
    if count is None:
        total -= np.outer(n * rest, rest @ Z)
    return Moments(n, mean + rest, np.maximum(squares - seen * rest**2, 0.0), count), total


def pays(n: int, d: int, p: int, reuse: int) -> bool:
    """Whether X'X is small, and saves time in so many products X'(XZ) of n x d rows with p columns.

    In one unit of measured time it takes n d^2 to form it; a product takes 30 d^2 with it, and n d (57 + 2 p) without,
    as narrow ones wait for memory.
    """
    if d > n or d**2 > max(n * d // 8, _ANYHOW):
        return False
    return n * d <= reuse * ((57 + 2 * p) * n - 30 * d)


@dataclass(frozen=True)
class Spread:
    """What one pass over dense rows without gaps tells of all products with them.

    Attributes:
        moments: Count, mean and squared deviations.
        about: The mean, but for what rounding has left in it.
        rest: That: beside a mean that is far from 0, its digits count.
        gram: X'X (d x d) of the rows less their mean, in double precision.
    """

    moments: Moments
    about: Array
    rest: Array
    gram: Array

    @classmethod
    def of(cls, deviations: Iterable[Array], n: int, mean: Array, dtype: np.dtype[Any]) -> Spread:
        """That of n rows, by blocks of their deviations from about their mean, multiplied in this precision."""
        d = len(mean)
        left = np.zeros(d)
        squares = np.zeros(d)
        gram = np.zeros((d, d))
        for D in deviations:
            left += np.ones(len(D)) @ D
            rows = D.astype(dtype, copy=False)
            gram += rows.T @ rows
            if dtype != np.float64:
                squares += np.einsum("ij,ij->j", D, D)
        rest = left / n
        gram -= np.dot((n * rest)[:, None], rest[None])
        squares = squares - n * rest**2
        if dtype == np.float64:  # whose products are as good
            squares = np.diagonal(gram)
        return cls(Moments(n, mean + rest, np.maximum(squares, 0.0)), mean, rest, gram)

    def times(self, Z: Array, frame: Frame) -> Array:
        """X'(XZ) for the rows in a frame."""
        Z = frame.unscale(Z)
        e = self._offset(frame)
        product = self.gram @ Z
        product += np.dot((self.moments.n * e)[:, None], (e @ Z)[None])
        return np.asarray(frame.unscale(product))

    def in_frame(self, frame: Frame) -> Array:
        """X'X for the rows in a frame."""
        e = self._offset(frame)
        return frame.unscale_gram(self.gram + np.outer(self.moments.n * e, e))

    def _offset(self, frame: Frame) -> Array:
        """How far the rows' own mean is from that of the frame."""
        if frame.mean is None:
            return self.moments.mean
        # Both means are far from 0 where the rows are: their difference first, so that the rest keeps its digits.
        return (self.about - frame.mean) + self.rest
