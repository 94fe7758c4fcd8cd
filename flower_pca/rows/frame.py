"""Frames and moments of stored rows, and rows to which a frame is applied only in their products.

For dense rows, one pass over the deviations from their own mean gives moments and X'X. `column_sums` is
an earlier pass, which also finds entries that are not finite, because they show in the sum of their
column. It gives the mean up to a few rounding errors. Blocks less this mean are formed one after another
in the same memory. The error of the mean (`rest`) is then subtracted from their sums. Missing values have
a deviation of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.columns import write_names
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.gram import GramSum, blas
from flower_pca.rows.split import Split

_ONE_COPY: Final = 0.5  # A single copy of an allele counts 1, so a smaller count is rounding.


@dataclass(frozen=True)
class Frame:
    """The coordinates of all clients: a row x becomes (x - mean) / scale. A part that is None is not applied.

    `fill` replaces missing values of x, column by column. If it is None, no value may be missing. With
    `own`, the mean of the client's own values replaces them, and `fill` only in columns without values.
    `names` gives the columns in their order. Without it, the columns are those that all clients have,
    sorted by name if they have names. With a `split`, clients hold different columns of the same people,
    and each client prepares its own columns accordingly. With `covariates`, some columns are not features,
    and the part that they explain is subtracted before the mean: see `rows.covariates`.
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
        """Return whether both frames map every row in the same way."""
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
        """Return the frame for these columns, or this very frame if it already has them."""
        if (self.names, self.split) == (names, split):
            return self
        return replace(self, names=names, split=split)

    def unscale(self, Z: Array) -> Array:
        """Return D^-1 Z for a block Z (d x p), where D has the scale on its diagonal."""
        if self.scale is None:
            return Z
        return Z / self.scale[:, None]

    def unscale_gram(self, G: Array) -> Array:
        """Return D^-1 G D^-1."""
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
        """The divisor of each column: its scale, or 1."""
        if self.scale is None:
            return 1.0
        return self.scale

    @cached_property
    def filling(self) -> Array | float:
        """The replacement for missing values, which is 0 before it is known."""
        if self.fill is None:
            return 0.0
        return self.fill

    @property
    def bare(self) -> Frame:
        """The frame's columns, without the transformation of their values."""
        covariates = None if self.covariates is None else self.covariates.bare
        return Frame(names=self.names, split=self.split, covariates=covariates)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the frame in a message, in addition to the names of columns."""
        every = {"mean": self.mean, "scale": self.scale, "fill": self.fill}
        found = {name: a for name, a in every.items() if a is not None}
        if self.covariates is not None:
            found |= self.covariates.arrays
        return found

    @property
    def length(self) -> int:
        """The bytes of the names of columns in a message."""
        covariates = () if self.covariates is None else self.covariates.names
        return sum(len(write_names(names)) for names in (self.names, covariates) if names)


def genotype_scale(mean: Array, n: int) -> Array:
    """Return sqrt(2 p (1 - p)), the deviation of an allele with frequency p in n people, half the mean.

    A column that is the same for all people is not scaled (Patterson, Price, Reich 2006).
    """
    varying = (mean * n >= _ONE_COPY) & ((2.0 - mean) * n >= _ONE_COPY)
    return np.sqrt(np.where(varying, mean * (1.0 - mean / 2.0), 1.0))


@dataclass(frozen=True)
class Moments:
    """The count, mean, and squared deviations from the mean, of each column.

    If values are missing, `count` is the number of values in each column, and mean and m2 are those of
    the present values.
    """

    n: int
    mean: Array
    m2: Array
    count: Array | None = None

    __repr__ = brief

    @property
    def seen(self) -> Any:
        """The number of values behind mean and m2: n, or a number for each column."""
        if self.count is None:
            return self.n
        return self.count

    def sums(self, frame: Frame) -> tuple[Array, Array]:
        """Return the sum of the rows in a frame and the sum of squares of each column, with missing values filled."""
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
    """Return the moments of two sets of rows together, without cancellation (Chan, Golub, LeVeque 1979)."""
    before, there = a.seen, b.seen
    seen = before + there
    divisor, count = seen, None
    if a.count is not None or b.count is not None:
        divisor = np.maximum(seen, 1)  # A column may not have any value.
        count = np.asarray(seen)
    delta = b.mean - a.mean
    mean = a.mean + delta * (there / divisor)
    between = delta**2 * (before * there / divisor)
    m2 = a.m2 + b.m2 + between
    return Moments(a.n + b.n, mean, m2, count)


def sparse_moments(S: Any) -> Moments:
    """Return the moments of the present values of sparse rows."""
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
    deviation = mean[columns]
    np.subtract(data, deviation, out=deviation)  # A piece has 2^21 entries, so each copy takes 16 MB.
    # The error that rounding left in the mean.
    rest = (np.bincount(columns, weights=deviation, minlength=d) - zeros * mean) / divisor
    squares = np.bincount(columns, weights=np.square(deviation, out=deviation), minlength=d)
    m2 = squares + zeros * mean**2 - seen * rest**2
    return Moments(n, mean + rest, np.maximum(m2, 0.0), count)


def fill_gaps(S: Any, fill: Array) -> Any:
    """Return sparse rows whose stored missing values are replaced by these values."""
    gaps = np.isnan(S.data)
    filled = np.where(gaps, fill[S.indices], S.data)
    data = filled.astype(S.data.dtype)
    return type(S)((data, S.indices, S.indptr), shape=S.shape)


def apply(frame: Frame, X: Array, dtype: np.dtype[Any]) -> Array:
    """Return dense rows in a frame."""
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
    """Return single-precision rows less a double-precision mean, in two halves, accurate to the last bit but one."""
    most = mean.astype(np.float32)
    rows = X - most
    rows -= (mean - most).astype(np.float32)
    return np.asarray(rows)


class ImplicitRows:
    """Stored rows S in a frame, (S - 1 mean') / scale, without ever forming them: sparse ones, or ones that are `near`.

    The mean is subtracted from products, which loses digits if the mean is large compared with the
    deviations.
    """

    def __init__(self, S: Any, frame: Frame) -> None:
        self._S, self._frame = S, frame
        self.shape = S.shape

    def __matmul__(self, Z: Array) -> Array:
        # Subtracting here would cost single precision its last digits.
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
    """Return X'(XZ) for blocks of stored rows in a frame, summed in double precision.

    The frame is applied once, to the sum over all blocks.
    """
    # numpy would copy single-precision rows into double precision for a double-precision block.
    W = frame.unscale(Z).astype(Z.dtype, copy=False)
    less = None if frame.mean is None else frame.mean @ W
    total: Array | None = None
    sums = np.zeros(Z.shape[1])
    for S in blocks:
        Y = np.asarray(S @ W)
        if less is not None:
            Y -= less
            # BLAS takes a fifth of numpy's time for sums of so few columns.
            sums += np.ones(len(Y)) @ Y
        if total is None and not isinstance(S, np.ndarray):
            # scipy makes the product anew, and to touch the memory of a second sum takes as long as the product.
            total = np.asarray(S.T @ Y, dtype=np.float64)
        else:
            total = np.zeros(Z.shape) if total is None else total
            _add_product(total, S, Y)
        del S  # A piece of a file need not be in memory while the next one is read.
    if total is None:
        return np.zeros(Z.shape)
    if frame.mean is not None:
        _add_product(total, frame.mean[None], -sums[None])
    return frame.unscale(total)


def _add_product(total: Array, S: Any, Y: Array) -> None:
    """Add S'Y to a sum, in place if the sum is large: to make and to add such a matrix takes as long as the product."""
    if total.size >= _LARGE and isinstance(S, np.ndarray) and S.flags.c_contiguous and S.dtype == Y.dtype == np.float64:
        # BLAS counts by columns, so that everything is transposed here.
        blas().dgemm(1.0, Y.T, S.T, beta=1.0, c=total.T, trans_b=True, overwrite_c=True)
    else:
        total += np.asarray(S.T @ Y)


_LARGE: Final = 2**18  # entries of a sum of products
_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))
_BYTE: Final = 255  # the largest number that a byte holds
_ROUNDS: Final = 8  # messages with a block each way that cost as much as X'X
_ANYHOW: Final = 2**14  # X'X with at most so many entries is cheap for any number of rows.
# Rows of X'X that are computed at a time, because a second matrix of this size takes longer to allocate than to fill.
_AT_ONCE: Final = 64


def column_sums(blocks: Iterable[Array], d: int) -> Array:
    """Return the sums of columns, which are infinite or NaN if an entry is, or if they overflow."""
    total = np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks:
            if rows.dtype not in _NATIVE:
                # BLAS multiplies floats only.
                rows = rows.astype(np.float64)
            total += np.ones(len(rows), dtype=rows.dtype) @ rows
    return total


def means_there(blocks: Iterable[Array], d: int) -> tuple[Array, Array]:
    """Return the means of the present values, and the number of these in each column."""
    total, count = np.zeros(d), np.zeros(d, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in about_mean(blocks, np.zeros(d), 0.0, count):
            total += np.ones(len(rows)) @ rows
    return total / np.maximum(count, 1), count


def about_mean(blocks: Iterable[Array], mean: Array, gap: Any = None, count: Array | None = None) -> Iterator[Array]:
    """Yield blocks of rows less `mean` in its precision, `gap` for missing values, all in the same memory.

    The number of values in each column is added to `count`.
    """
    buffer: Array | None = None
    for block in blocks:
        if buffer is None:
            # All blocks have the same size, except the last one. The memory layout by columns is kept.
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
    """Put a value, or one for each column, in place of missing values."""
    if np.ndim(gap) or gap != 0.0:
        np.copyto(rows, gap, where=gaps, casting="same_kind")
        return
    # Branches would be unpredictable, so a bit mask is used: -1 keeps all bits, 0 keeps none.
    bits = rows.view(f"i{rows.itemsize}")
    bits &= np.subtract(gaps.view(np.int8), 1, dtype=np.int8)


def _by_column(gaps: Array) -> Array:
    """Count the true entries of each column, in bytes while these can hold the counts."""
    few = gaps.view(np.uint8)
    total = np.zeros(gaps.shape[1], dtype=np.int64)
    for start in range(0, len(few), _BYTE):
        total += np.add.reduce(few[start : start + _BYTE], axis=0, dtype=np.uint8)
    return total


def moments_of(deviations: Iterable[Array], n: int, mean: Array, count: Array | None = None) -> Moments:
    """Return the moments of n rows, from their deviations from their approximate mean."""
    none = np.empty((len(mean), 0))
    return product_and_moments(deviations, n, mean, none, np.dtype(np.float64), count)[0]


def product_and_moments(
    deviations: Iterable[Array], n: int, mean: Array, Z: Array, dtype: np.dtype[Any], count: Array | None = None
) -> tuple[Moments, Array]:
    """Return the moments, and the product of the rows less their own mean with a block, in this precision.

    With a `count` of the values in each column, missing values have a deviation of 0.
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
    """Return whether X'X is small and saves time for this many products X'(XZ) of n x d rows with p columns.

    It is small if it has at most an eighth of the entries of the rows, or as many as the rows for so few columns that
    `auto` will probably ask for X'X next. On 40,000 x 784 numbers at 16 clients with k = 50, rows that are multiplied
    twice take 1.3 times as long.
    In one unit of measured time, forming it takes n d^2. A product then takes 30 d^2, and n d (57 + 2 p) without it,
    because narrow products wait for memory.
    """
    share = 1 if _ROUNDS * 4 * p >= d else 8
    if d > n or d**2 > max(n * d // share, _ANYHOW):
        return False
    return n * d <= reuse * ((57 + 2 * p) * n - 30 * d)


@dataclass(frozen=True)
class Spread:
    """What one pass over complete dense rows computes for all later products with them.

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
        """Compute the spread of n rows, from blocks of their deviations from their approximate mean."""
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
        for i in range(0, len(gram), _AT_ONCE):
            gram[i : i + _AT_ONCE] -= np.outer(n * rest[i : i + _AT_ONCE], rest)
        squares = squares - n * rest**2
        if dtype == np.float64:  # Double-precision products are accurate enough.
            squares = np.diagonal(gram)
        moments = Moments(n, mean + rest, np.maximum(squares, 0.0))
        return cls(moments, mean, rest, gram)

    def times(self, Z: Array, frame: Frame) -> Array:
        """Return X'(XZ) for the rows in a frame."""
        if frame.scale is not None:
            Z = frame.unscale(Z)
        # Both means are far from 0 if the rows are, so their difference is formed first, and the rest keeps its digits.
        e = (self.about - frame.centre) + self.rest
        product = self.gram @ Z
        product += np.dot((self.moments.n * e)[:, None], (e @ Z)[None])
        if frame.scale is not None:
            product = frame.unscale(product)
        return np.asarray(product)

    def in_frame(self, frame: Frame) -> Array:
        """Return X'X for the rows in a frame."""
        e = (self.about - frame.centre) + self.rest
        total = np.empty_like(self.gram)
        for i in range(0, len(total), _AT_ONCE):
            rows = total[i : i + _AT_ONCE]
            np.outer(self.moments.n * e[i : i + _AT_ONCE], e, out=rows)
            rows += self.gram[i : i + _AT_ONCE]
        return frame.unscale_gram(total)
