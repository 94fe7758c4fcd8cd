"""Rows as they are stored and as they are seen: frames, moments, and rows that are framed in their products only.

Of dense rows about their own mean, one pass over their deviations tells moments and X'X.
`column_sums` is the pass before it, which rows are checked by as well: what is not finite shows in
the sum of its column. The mean that follows is right to a few roundings. Blocks less it are formed
in the same memory, one after another, and what rounding has left in the mean (`rest`) is taken off
what they add up to. Values that are missing have a deviation of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.gram import GramSum
from flower_pca.rows.split import Split

_ONE_COPY: Final = 0.5  # a single copy of an allele counts 1: less is rounding


@dataclass(frozen=True)
class Frame:
    """The coordinates all clients share: a row x becomes (x - mean) / scale; None: not that part.

    `fill` is what stands in x for a missing value, column by column; with None, none may be
    missing. With `own` it is the mean of the client's own values, and `fill` only in columns of
    which it has none. With `names`, these are the columns, in this order; without, they are those
    that all clients have, sorted by name if they have names. With a `split` clients hold different
    columns of the same people, and each prepares its own as that says. With `covariates`, some columns
    are no features, and rows are taken less what these explain before the mean: see `rows.covariates`.
    """

    mean: Array | None = None
    scale: Array | None = None
    fill: Array | None = None
    own: bool = False
    names: tuple[str, ...] | None = None
    split: Split | None = None
    covariates: Covariates | None = None

    __repr__ = brief

    def same(self, other: Frame) -> bool:
        """Whether both frames map every row alike."""
        if self is other:
            return True
        if (self.own, self.names) != (other.own, other.names):
            return False
        for a, b in ((self.mean, other.mean), (self.scale, other.scale), (self.fill, other.fill)):
            if a is not b and (a is None or b is None or not np.array_equal(a, b)):
                return False
        if self.covariates is None or other.covariates is None:
            return self.covariates is other.covariates
        return self.covariates.same(other.covariates)

    def with_names(self, names: tuple[str, ...] | None, split: Split | None = None) -> Frame:
        """The same, of these columns; this very frame if it is of them, which clients know without comparing."""
        if (self.names, self.split) == (names, split):
            return self
        return replace(self, names=names, split=split)

    def unscale(self, Z: Array) -> Array:
        """D^-1 Z, for a block Z (d x p), with the scale on the diagonal of D."""
        if self.scale is None:
            return Z
        return Z / self.scale[:, None]

    def unscale_gram(self, G: Array) -> Array:
        """D^-1 G D^-1."""
        if self.scale is None:
            return G
        return np.asarray(G / np.outer(self.scale, self.scale))

    @cached_property
    def centre(self) -> Array | float:
        """What is subtracted from each column: its mean, or 0."""
        if self.mean is None:
            return 0.0
        return self.mean

    @cached_property
    def divisor(self) -> Array | float:
        """What each column is divided by: its scale, or 1."""
        if self.scale is None:
            return 1.0
        return self.scale

    @cached_property
    def filling(self) -> Array | float:
        """What stands for a missing value; 0 before that is known."""
        if self.fill is None:
            return 0.0
        return self.fill

    @property
    def bare(self) -> Frame:
        """Which columns, without what becomes of their values."""
        covariates = None if self.covariates is None else self.covariates.bare
        return Frame(names=self.names, split=self.split, covariates=covariates)

    @property
    def arrays(self) -> dict[str, Array]:
        """What a message brings of the frame, beside the names of columns."""
        every = {"mean": self.mean, "scale": self.scale, "fill": self.fill}
        found = {name: a for name, a in every.items() if a is not None}
        if self.covariates is not None:
            found |= self.covariates.arrays
        return found

    @property
    def length(self) -> int:
        """The bytes that the names of columns take in a message."""
        names = self.names or ()
        if self.covariates is not None:
            names = (*names, *self.covariates.names)
        return sum(len(name.encode()) + 1 for name in names)


def genotype_scale(mean: Array, n: int) -> Array:
    """sqrt(2 p (1 - p)), the deviation of an allele that n people have with the frequency p, half the mean.

    A column that is the same in everybody is left as it is (Patterson, Price, Reich 2006).
    """
    varying = (mean * n >= _ONE_COPY) & ((2.0 - mean) * n >= _ONE_COPY)
    return np.sqrt(np.where(varying, mean * (1.0 - mean / 2.0), 1.0))


@dataclass(frozen=True)
class Moments:
    """Count, mean, and squared deviations from the mean, of each column.

    Where values are missing, `count` says how many each column has, and mean and m2 are those of
    these values.
    """

    n: int
    mean: Array
    m2: Array
    count: Array | None = None

    __repr__ = brief

    @property
    def seen(self) -> Any:
        """The values that mean and m2 are of: n, or a number for each column."""
        if self.count is None:
            return self.n
        return self.count

    def sums(self, frame: Frame) -> tuple[Array, Array]:
        """The sum of the rows in a frame, and the sum of the squares of each column, filled as the frame says."""
        seen, centre = np.asarray(self.seen, dtype=np.float64), frame.centre
        off = np.where(seen > 0, self.mean - centre, 0.0)
        sums = seen * off
        squares = self.m2 + seen * off**2
        if frame.fill is not None:
            filled = frame.fill - centre
            sums = sums + (self.n - seen) * filled
            squares = squares + (self.n - seen) * filled**2
        divisor = frame.divisor
        return sums / divisor, squares / divisor**2


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of two sets of rows together (Chan, Golub, LeVeque 1979), without cancelling."""
    before, there = a.seen, b.seen
    seen = before + there
    divisor, count = seen, None
    if a.count is not None or b.count is not None:
        divisor = np.maximum(seen, 1)  # a column may not have a single value
        count = np.asarray(seen)
    delta = b.mean - a.mean
    mean = a.mean + delta * (there / divisor)
    between = delta**2 * (before * there / divisor)
    m2 = a.m2 + b.m2 + between
    return Moments(a.n + b.n, mean, m2, count)


def sparse_moments(S: Any) -> Moments:
    """The moments of sparse rows, of the values that are there."""
    n, d = S.shape
    data, columns, count = S.data, S.indices, None
    gaps = np.isnan(data)
    if gaps.any():
        count = n - np.bincount(columns[gaps], minlength=d)
        data, columns = data[~gaps], columns[~gaps]
    data = data.astype(np.float64)
    seen: Any = n if count is None else count
    divisor = np.maximum(seen, 1)
    mean = np.bincount(columns, weights=data, minlength=d) / divisor
    zeros = seen - np.bincount(columns, minlength=d)
    deviation = data - mean[columns]
    # what rounding left in the mean
    rest = (np.bincount(columns, weights=deviation, minlength=d) - zeros * mean) / divisor
    squares = np.bincount(columns, weights=deviation**2, minlength=d)
    m2 = squares + zeros * mean**2 - seen * rest**2
    return Moments(n, mean + rest, np.maximum(m2, 0.0), count)


def fill_gaps(S: Any, fill: Array) -> Any:
    """Sparse rows with these values where stored ones are missing."""
    gaps = np.isnan(S.data)
    filled = np.where(gaps, fill[S.indices], S.data)
    data = filled.astype(S.data.dtype)
    return type(S)((data, S.indices, S.indptr), shape=S.shape)


def apply(frame: Frame, X: Array, dtype: np.dtype[Any]) -> Array:
    """Dense rows in a frame."""
    if frame.fill is not None and X.dtype.kind == "f":
        X = np.where(np.isnan(X), frame.fill, X)
    if frame.mean is not None and X.dtype == np.float32 == dtype:
        X = _less(X, frame.mean)
    elif frame.mean is not None:
        X = X - frame.mean
    if frame.scale is not None:
        X = X / frame.scale
    return X.astype(dtype, copy=False)


def _less(X: Array, mean: Array) -> Array:
    """Rows in single precision less a mean in double, taken off in two halves: right to their last bit but one."""
    most = mean.astype(np.float32)
    rows = X - most
    rows -= (mean - most).astype(np.float32)
    return np.asarray(rows)


class ImplicitRows:
    """Stored rows S in a frame, (S - 1 mean') / scale, without ever forming them: sparse ones, or ones that are `near`.

    What is subtracted is subtracted from products, which costs digits where the mean is large
    beside the deviations.
    """

    def __init__(self, S: Any, frame: Frame) -> None:
        self._S, self._frame = S, frame
        self.shape = S.shape

    def __matmul__(self, Z: Array) -> Array:
        # what is subtracted here would cost single precision its last digits
        Z = self._frame.unscale(Z.astype(np.float64, copy=False))
        Y = np.asarray(self._S @ Z)
        if self._frame.mean is not None:
            Y -= self._frame.mean @ Z
        return Y

    @property
    def T(self) -> Adjoint:
        """The adjoint, as an operator."""
        return Adjoint(self._S, self._frame)


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of rows in a frame."""

    S: Any
    frame: Frame

    def __matmul__(self, Y: Array) -> Array:
        Y = Y.astype(np.float64, copy=False)
        Z = np.asarray(self.S.T @ Y)
        if self.frame.mean is not None:
            Z -= np.outer(self.frame.mean, Y.sum(axis=0))
        return self.frame.unscale(Z)


def product(blocks: Iterable[Any], Z: Array, frame: Frame) -> Array:
    """X'(XZ) for blocks of stored rows in a frame, summed in double precision.

    The frame is taken off once, from what all blocks come to.
    """
    # Beside a block in double precision numpy would copy rows of single precision into it.
    W = frame.unscale(Z).astype(Z.dtype, copy=False)
    less = None if frame.mean is None else frame.mean @ W
    total = np.zeros(Z.shape)
    sums = np.zeros(Z.shape[1])
    for S in blocks:
        Y = np.asarray(S @ W)
        if less is not None:
            Y -= less
            # By BLAS: numpy takes five times as long for sums of so few columns.
            sums += np.ones(len(Y)) @ Y
        total += np.asarray(S.T @ Y)
        del S  # A piece of a file need not be in memory while the next one is read.
    if frame.mean is not None:
        total -= np.dot(frame.mean[:, None], sums[None])
    return frame.unscale(total)


_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))
_BYTE: Final = 255  # the largest number that a byte holds
_ANYHOW: Final = 2**14  # entries of X'X that are few, however few rows there are


def column_sums(blocks: Iterable[Array], d: int) -> Array:
    """The sums of columns: infinite or NaN where an entry is, or where they overflow."""
    total = np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks:
            if rows.dtype not in _NATIVE:
                # BLAS multiplies floats only.
                rows = rows.astype(np.float64)
            total += np.ones(len(rows), dtype=rows.dtype) @ rows
    return total


def means_there(blocks: Iterable[Array], d: int) -> tuple[Array, Array]:
    """The means of the values that are there, and how many of these each column has."""
    total, count = np.zeros(d), np.zeros(d, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in about_mean(blocks, np.zeros(d), 0.0, count):
            total += np.ones(len(rows)) @ rows
    return total / np.maximum(count, 1), count


def about_mean(blocks: Iterable[Array], mean: Array, gap: Any = None, count: Array | None = None) -> Iterator[Array]:
    """Blocks of rows less `mean`, in its precision, with `gap` where a value is missing. Each lies where the last did.

    A `count` is added to by how many values each column has.
    """
    buffer: Array | None = None
    for block in blocks:
        if buffer is None:
            # All blocks have one size, only the last one is shorter. Columns stay columns in memory.
            columns = block.strides[0] < block.strides[1]
            buffer = np.empty(block.shape, dtype=mean.dtype, order="F" if columns else "C")
        part = np.subtract(block, mean, out=buffer[: len(block)], casting="same_kind")
        if gap is not None:
            gaps = np.isnan(part)
            set_gaps(part, gap, gaps)
            if count is not None:
                count += len(part) - _by_column(gaps)
        yield part


def set_gaps(rows: Array, gap: Any, gaps: Array) -> None:
    """Put a value, or one for each column, in the gaps of rows."""
    if np.ndim(gap) or gap != 0.0:
        np.copyto(rows, gap, where=gaps, casting="same_kind")
        return
    # No entry is branched on, as gaps are where nobody can foretell: -1 keeps all bits, 0 none.
    bits = rows.view(f"i{rows.itemsize}")
    bits &= np.subtract(gaps.view(np.int8), 1, dtype=np.int8)


def _by_column(gaps: Array) -> Array:
    """How many there are in each column, added up in bytes as long as these can hold them."""
    few = gaps.view(np.uint8)
    total = np.zeros(gaps.shape[1], dtype=np.int64)
    for start in range(0, len(few), _BYTE):
        total += np.add.reduce(few[start : start + _BYTE], axis=0, dtype=np.uint8)
    return total


def moments_of(deviations: Iterable[Array], n: int, mean: Array, count: Array | None = None) -> Moments:
    """The moments of n rows, from their deviations from about their mean."""
    none = np.empty((len(mean), 0))
    return product_and_moments(deviations, n, mean, none, np.dtype(np.float64), count)[0]


def product_and_moments(
    deviations: Iterable[Array], n: int, mean: Array, Z: Array, dtype: np.dtype[Any], count: Array | None = None
) -> tuple[Moments, Array]:
    """The moments, and the product of the rows less their own mean with a block, in this precision.

    With a `count` of the values that each column has, the others have a deviation of 0.
    """
    left, squares = np.zeros((2, len(mean)))
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
    m2 = np.maximum(squares - seen * rest**2, 0.0)
    return Moments(n, mean + rest, m2, count), total


def pays(n: int, d: int, p: int, reuse: int) -> bool:
    """Whether X'X is small, and saves time in so many products X'(XZ) of n x d rows with p columns.

    In one unit of measured time it takes n d^2 to form it; a product takes 30 d^2 with it, and n d
    (57 + 2 p) without, as narrow ones wait for memory.
    """
    if d > n or d**2 > max(n * d // 8, _ANYHOW):
        return False
    return n * d <= reuse * ((57 + 2 * p) * n - 30 * d)


@dataclass(frozen=True)
class Spread:
    """What one pass over dense rows without gaps tells of all products with them.

    Attributes
    ----------
    moments : Moments
        Count, mean and squared deviations.
    about : ndarray
        The mean, but for what rounding has left in it.
    rest : ndarray
        That: beside a mean that is far from 0, its digits count.
    gram : ndarray
        X'X (d x d) of the rows less their mean, in double precision.
    """

    moments: Moments
    about: Array
    rest: Array
    gram: Array

    __repr__ = brief

    @classmethod
    def of(cls, deviations: Iterable[Array], n: int, mean: Array, dtype: np.dtype[Any]) -> Spread:
        """That of n rows, by blocks of their deviations from about their mean."""
        left, squares = np.zeros((2, len(mean)))
        sums = GramSum(len(mean), dtype)
        for D in deviations:
            left += np.ones(len(D)) @ D
            sums.add(D)
            # Products of single-precision rows have too few digits for moments.
            if dtype != np.float64:
                squares += np.einsum("ij,ij->j", D, D)
        rest = left / n
        gram = sums.total()
        gram -= np.dot((n * rest)[:, None], rest[None])
        squares = squares - n * rest**2
        if dtype == np.float64:  # Products in double precision are as good.
            squares = np.diagonal(gram)
        moments = Moments(n, mean + rest, np.maximum(squares, 0.0))
        return cls(moments, mean, rest, gram)

    def times(self, Z: Array, frame: Frame) -> Array:
        """X'(XZ) for the rows in a frame."""
        if frame.scale is not None:
            Z = frame.unscale(Z)
        # Both means are far from 0 where the rows are: their difference first, so that the rest
        # keeps its digits.
        e = (self.about - frame.centre) + self.rest
        product = self.gram @ Z
        product += np.dot((self.moments.n * e)[:, None], (e @ Z)[None])
        if frame.scale is not None:
            product = frame.unscale(product)
        return np.asarray(product)

    def in_frame(self, frame: Frame) -> Array:
        """X'X for the rows in a frame."""
        e = (self.about - frame.centre) + self.rest
        total = np.outer(self.moments.n * e, e)
        total += self.gram
        return frame.unscale_gram(total)
