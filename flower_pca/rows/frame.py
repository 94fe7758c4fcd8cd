"""Define frames and moments of stored rows, and compute products of rows in a frame.

For dense rows, one pass over the deviations from their own mean gives the moments and X'X. An earlier pass,
`column_sums`, computes this mean up to a few rounding errors. It also detects entries that are not finite, because the
sum of their column is not finite. The deviations are formed block by block in the same memory, and a missing value has
a deviation of 0. The error of the mean (`rest`) is subtracted from the sums afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array, load_blas
from flower_pca.base.shown import brief
from flower_pca.names.columns import write_names
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.gram import GramSum
from flower_pca.rows.split import ColumnPreparation

# If fewer than one value in this many is missing, replacing single values takes two thirds of the time of a bit mask.
# If one value in 20 is missing, it takes four times as long.
_RARE: Final = 100
_ONE_COPY: Final = 0.5  # A single copy of an allele counts 1, so a smaller count is a rounding error.


@dataclass(frozen=True)
class Frame:
    """The common coordinates of all clients, in which a row x becomes (x - mean) / scale.

    Attributes
    ----------
    mean : ndarray of shape (d,) or None
        The mean that is subtracted. None if nothing is subtracted.
    scale : ndarray of shape (d,) or None
        The divisor of each column. None if columns are not scaled.
    fill : ndarray of shape (d,) or None
        The replacements for missing values of each column. If it is None and `own` is false, no value may be missing.
    own : bool
        Whether the client's own column means replace missing values. Then `fill` is used in columns without values.
    names : tuple of str or None
        The columns in their order. If it is None, all columns are used, sorted by name if they have names.
    split : ColumnPreparation or None
        The preparation of the columns, if clients hold different columns of the same people.
    covariates : Covariates or None
        The columns that are not features. The part that they explain is subtracted before the mean: see
        `rows.covariates`.
    """

    mean: Array | None = None
    scale: Array | None = None
    fill: Array | None = None
    own: bool = False
    names: tuple[str, ...] | None = None
    split: ColumnPreparation | None = None
    covariates: Covariates | None = None

    __repr__ = brief

    def maps_rows_alike(self, other: Frame) -> bool:
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
        return self.covariates.changes_rows_alike(other.covariates)

    def with_names(self, names: tuple[str, ...] | None, split: ColumnPreparation | None = None) -> Frame:
        """Return the frame for these columns. If the frame already has these columns, return the same object."""
        if (self.names, self.split) == (names, split):
            return self
        return replace(self, names=names, split=split)

    def unscale(self, Z: Array) -> Array:
        """Return D^-1 Z for a block Z (d x p), where D has the scale on its diagonal."""
        if self.scale is None:
            return Z
        return Z / self.scale[:, None]

    def unscale_gram(self, G: Array) -> Array:
        """Return D^-1 G D^-1 for a matrix G (d x d), where D has the scale on its diagonal."""
        if self.scale is None:
            return G
        return np.asarray(G / np.outer(self.scale, self.scale))

    @cached_property
    def column_centers(self) -> Array | float:
        """The number that is subtracted from each column: the mean, or 0."""
        if self.mean is None:
            return 0.0
        return self.mean

    @cached_property
    def column_divisors(self) -> Array | float:
        """The divisor of each column: its scale, or 1."""
        if self.scale is None:
            return 1.0
        return self.scale

    @cached_property
    def fill_values(self) -> Array | float:
        """The replacements for missing values, or 0 if the frame has no replacements."""
        if self.fill is None:
            return 0.0
        return self.fill

    @property
    def without_transformation(self) -> Frame:
        """A frame with the same columns that does not transform values."""
        covariates = None if self.covariates is None else self.covariates.without_arrays
        return Frame(names=self.names, split=self.split, covariates=covariates)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the frame in a message, by name. The names of columns are sent separately."""
        every = {"mean": self.mean, "scale": self.scale, "fill": self.fill}
        found = {name: a for name, a in every.items() if a is not None}
        if self.covariates is not None:
            found |= self.covariates.arrays
        return found

    @property
    def bytes_of_names(self) -> int:
        """The number of bytes that the names of columns take in a message."""
        if self.names is None and self.covariates is None:
            return 0
        covariates = () if self.covariates is None else self.covariates.names
        return sum(len(write_names(names)) for names in (self.names, covariates) if names)


def genotype_scale(mean: Array, n: int) -> Array:
    """Return sqrt(2 p (1 - p)), the standard deviation of a count of an allele with frequency p = mean / 2.

    A column that is the same for all n people is not scaled (Patterson, Price, Reich 2006).
    """
    varying = (mean * n >= _ONE_COPY) & ((2.0 - mean) * n >= _ONE_COPY)
    return np.sqrt(np.where(varying, mean * (1.0 - mean / 2.0), 1.0))


@dataclass(frozen=True)
class Moments:
    """The number of rows n, and the mean and the sum of squared deviations from the mean (m2) of each column.

    If values are missing, `count` holds the number of values in each column, and mean and m2 describe the present
    values.
    """

    n: int
    mean: Array
    m2: Array
    count: Array | None = None

    __repr__ = brief

    @property
    def value_counts(self) -> Any:
        """The number of values behind mean and m2: n, or a number for each column."""
        if self.count is None:
            return self.n
        return self.count

    def sums_in_frame(self, frame: Frame) -> tuple[Array, Array]:
        """Return the sum and the sum of squares of each column of the rows in a frame, with missing values filled."""
        seen, centre = np.asarray(self.value_counts, dtype=np.float64), frame.column_centers
        off = np.where(seen > 0, self.mean - centre, 0.0)
        sums = seen * off
        squares = self.m2 + seen * off**2
        if frame.fill is not None:
            filled = frame.fill - centre
            sums = sums + (self.n - seen) * filled
            squares = squares + (self.n - seen) * filled**2
        divisor = frame.column_divisors
        return sums / divisor, squares / divisor**2


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the union of two sets of rows, without cancellation (Chan, Golub, LeVeque 1979)."""
    before, there = a.value_counts, b.value_counts
    seen = before + there
    # The maxima avoid a division by 0 if both sets are empty, and in columns without values.
    divisor, count = max(a.n + b.n, 1), None
    if a.count is not None or b.count is not None:
        divisor, count = np.maximum(seen, 1), np.asarray(seen)
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
    np.subtract(data, deviation, out=deviation)  # Reuse the memory, because a copy takes 16 MB.
    # This is the rounding error of the mean.
    rest = (np.bincount(columns, weights=deviation, minlength=d) - zeros * mean) / divisor
    squares = np.bincount(columns, weights=np.square(deviation, out=deviation), minlength=d)
    m2 = squares + zeros * mean**2 - seen * rest**2
    return Moments(n, mean + rest, np.maximum(m2, 0.0), count)


def fill_sparse_gaps(S: Any, fill: Array) -> Any:
    """Return the sparse rows with missing values replaced by the value of `fill` for their column."""
    gaps = np.isnan(S.data)
    filled = np.where(gaps, fill[S.indices], S.data)
    data = filled.astype(S.data.dtype)
    return type(S)((data, S.indices, S.indptr), shape=S.shape)


def rows_in_frame(frame: Frame, X: Array, dtype: np.dtype[Any]) -> Array:
    """Return the dense rows X in a frame, with this data type."""
    if frame.fill is not None and X.dtype.kind == "f":
        X = np.where(np.isnan(X), frame.fill, X)
    if frame.mean is not None and X.dtype == np.float32 == dtype:
        X = _subtract_mean(X, frame.mean)
    elif frame.mean is not None:
        X = X - frame.mean
    if frame.scale is not None:
        X = X / frame.scale
    return X.astype(dtype, copy=False)


def _subtract_mean(X: Array, mean: Array) -> Array:
    """Return single-precision rows minus a double-precision mean. Only the last bit of a result may be wrong.

    The mean is subtracted in two single-precision parts.
    """
    most = mean.astype(np.float32)
    rows = X - most
    rows -= (mean - most).astype(np.float32)
    return np.asarray(rows)


class ImplicitRows:
    """The rows (S - 1 mean') / scale of a frame as an operator, for stored rows S that are sparse or near their mean.

    The rows are never formed, because the mean is subtracted from products. This loses digits if the mean is large
    compared with the deviations.
    """

    def __init__(self, S: Any, frame: Frame) -> None:
        self._S, self._frame = S, frame
        self.shape = S.shape

    def __matmul__(self, Z: Array) -> Array:
        # In single precision, the subtraction below would lose the last digits.
        Z = self._frame.unscale(Z.astype(np.float64, copy=False))
        Y = np.asarray(self._S @ Z)
        if self._frame.mean is not None:
            Y -= self._frame.mean @ Z
        return Y

    @property
    def T(self) -> Adjoint:
        """The adjoint (transpose) as an operator."""
        return Adjoint(self._S, self._frame)


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of `ImplicitRows` as an operator."""

    S: Any
    frame: Frame

    def __matmul__(self, Y: Array) -> Array:
        Y = Y.astype(np.float64, copy=False)
        Z = np.asarray(self.S.T @ Y)
        if self.frame.mean is not None:
            Z -= np.outer(self.frame.mean, Y.sum(axis=0))
        return self.frame.unscale(Z)


def product_in_frame(blocks: Iterable[Any], Z: Array, frame: Frame) -> Array:
    """Return X'(XZ) for the rows X in a frame, summed in double precision, from blocks of stored rows.

    The frame is applied once, to the sum over all blocks.
    """
    # Use the precision of Z, because numpy would copy single-precision rows for a double-precision block.
    W = frame.unscale(Z).astype(Z.dtype, copy=False)
    less = None if frame.mean is None else frame.mean @ W
    total: Array | None = None
    sums = np.zeros(Z.shape[1])
    for S in blocks:
        Y = np.asarray(S @ W)
        if less is not None:
            Y -= less
            # BLAS takes a fifth of the time that numpy's sum takes for so few columns.
            sums += np.ones(len(Y)) @ Y
        if total is None and not isinstance(S, np.ndarray):
            # scipy allocates the product anyway. Adding it to a second array would take as long as the product.
            total = np.asarray(S.T @ Y, dtype=np.float64)
        elif total is None and _takes_stripes(Z.size, S, Y) and min(Y.shape) > 1:
            # Adding the first product to zeros would take two more passes over a large sum.
            total = np.empty(Z.shape)
            for part, columns in _stripes(total, S):
                np.matmul(columns.T, Y, out=part)
        else:
            total = np.zeros(Z.shape) if total is None else total
            _add_product(total, S, Y)
        del S  # Release this piece of a file before the next piece is read.
    if total is None:
        return np.zeros(Z.shape)
    if frame.mean is not None:
        _add_product(total, frame.mean[None], -sums[None])
    return frame.unscale(total)


def _add_product(total: Array, S: Any, Y: Array) -> None:
    """Add S'Y to a sum. A large sum is updated a few columns of S at a time.

    A temporary matrix as large as the sum, or one call of BLAS that adds to all of it, takes up to twice as long.
    """
    if not _takes_stripes(total.size, S, Y):
        total += np.asarray(S.T @ Y)
    elif min(Y.shape) == 1:
        # BLAS stores matrices by columns, so all matrices are transposed here.
        load_blas().dgemm(1.0, Y.T, S.T, beta=1.0, c=total.T, trans_b=True, overwrite_c=True)
    else:
        product = np.empty((_STRIPE, Y.shape[1]))
        for part, columns in _stripes(total, S):
            part += np.matmul(columns.T, Y, out=product[: len(part)])


def _takes_stripes(size: int, S: Any, Y: Array) -> bool:
    """Return whether a sum with this number of entries is updated a few columns of S at a time."""
    return size >= _LARGE and isinstance(S, np.ndarray) and S.flags.c_contiguous and S.dtype == Y.dtype == np.float64


def _stripes(total: Array, S: Array) -> Iterator[tuple[Array, Array]]:
    """Yield a few rows of a sum at a time, with the columns of S that belong to them."""
    for start in range(0, len(total), _STRIPE):
        yield total[start : start + _STRIPE], S[:, start : start + _STRIPE]


_LARGE: Final = 2**18  # A sum of products with at least this many entries is updated in stripes.
_STRIPE: Final = 1024  # the number of rows of such a sum that are updated at a time
_NATIVE = (np.dtype(np.float64), np.dtype(np.float32))
_BYTE: Final = 255  # the largest number that a byte holds
# If blocks in both directions take as much traffic as X'X within this many rounds, `auto` will probably request X'X.
_ROUNDS: Final = 8
_ANYHOW: Final = 2**14  # If X'X has at most this many entries, it is cheap for any number of rows.
# X'X is computed this many rows at a time, because allocating a second d x d matrix takes longer than filling it.
_AT_ONCE: Final = 64


def column_sums(blocks: Iterable[Array], d: int) -> Array:
    """Return the sums of columns. A sum is not finite if an entry of its column is not finite, or if it overflows."""
    total = np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks:
            if rows.dtype not in _NATIVE:
                # BLAS only multiplies floats.
                rows = rows.astype(np.float64)
            total += np.ones(len(rows), dtype=rows.dtype) @ rows
    return total


def means_of_present(blocks: Iterable[Array], d: int) -> tuple[Array, Array]:
    """Return the mean and the number of the present values in each column."""
    total, count = np.zeros(d), np.zeros(d, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in blocks_about_mean(blocks, np.zeros(d), 0.0, count):
            total += np.ones(len(rows)) @ rows
    return total / np.maximum(count, 1), count


def blocks_about_mean(
    blocks: Iterable[Array], mean: Array, gap: Any = None, count: Array | None = None
) -> Iterator[Array]:
    """Yield blocks of rows minus `mean`, in the precision of `mean`. All blocks use the same memory.

    Missing values become `gap`. If `count` is given, the number of values in each column is added to it.
    """
    buffer: Array | None = None
    for block in blocks:
        if buffer is None:
            # No block is larger than the first one. Blocks that are stored by columns stay so.
            columns = block.strides[0] < block.strides[1]
            buffer = np.empty(block.shape, dtype=mean.dtype, order="F" if columns else "C")
        part = np.subtract(block, mean, out=buffer[: len(block)], casting="same_kind")
        if gap is not None:
            gaps = np.isnan(part)
            fill_gaps_in_place(part, gap, gaps)
            if count is not None:
                count += len(part) - _count_by_column(gaps)
        yield part


def fill_gaps_in_place(rows: Array, gap: Any, gaps: Array) -> None:
    """Replace missing values by `gap`, a single value or one value per column, in place."""
    if np.ndim(gap) or gap != 0.0 or np.count_nonzero(gaps) * _RARE < gaps.size:
        np.copyto(rows, gap, where=gaps, casting="same_kind")
        return
    # A bit mask is faster than branches, which would be unpredictable. -1 keeps all bits, and 0 clears them.
    bits = rows.view(f"i{rows.itemsize}")
    bits &= np.subtract(gaps.view(np.int8), 1, dtype=np.int8)


def _count_by_column(gaps: Array) -> Array:
    """Return the number of true entries in each column. Stretches of 255 rows are counted in bytes."""
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
    """Return the moments of n rows, and the product X'(XZ) of the rows about their own mean.

    The rows are given by their deviations from their approximate mean. They are multiplied in the precision `dtype`. If
    values are missing, `count` is the number of values in each column, and missing values have a deviation of 0.
    """
    left, squares = np.zeros((2, len(mean)))
    total = np.zeros(Z.shape)
    for D in deviations:
        left += np.ones(len(D)) @ D
        squares += np.einsum("ij,ij->j", D, D)
        if Z.shape[1]:
            rows = D.astype(dtype, copy=False)
            _add_product(total, rows, rows @ Z)
    seen = n if count is None else count
    rest = left / np.maximum(seen, 1)
    if count is None:
        _add_product(total, n * rest[None], -(rest @ Z)[None])
    m2 = np.maximum(squares - seen * rest**2, 0.0)
    return Moments(n, mean + rest, m2, count), total


def gram_saves_time(n: int, d: int, p: int, reuse: int) -> bool:
    """Return whether X'X is small and saves time for `reuse` products X'(XZ) of n x d rows with p columns.

    X'X is small if it has at most an eighth of the entries of the rows. If d is so small that `auto` will probably
    request X'X next, X'X may have as many entries as the rows: on 40,000 x 784 numbers at 16 clients with k = 50,
    multiplying the rows twice takes 1.3 times as long. In one unit of measured time, forming X'X takes n d^2, and a
    product with it takes 30 d^2. A product without X'X takes n d (57 + 2 p), because narrow products wait for memory.
    """
    share = 1 if _ROUNDS * 4 * p >= d else 8
    if d > n or d**2 > max(n * d // share, _ANYHOW):
        return False
    return n * d <= reuse * ((57 + 2 * p) * n - 30 * d)


@dataclass(frozen=True)
class ScatterOfRows:
    """The moments and X'X of complete dense rows, computed in one pass and used by all later products.

    Attributes
    ----------
    moments : Moments
        The number of rows, and the mean and squared deviations of each column.
    about : ndarray
        The mean, up to rounding errors.
    rest : ndarray
        The rounding errors of `about`, which matter if the mean is far from 0.
    gram : ndarray
        X'X (d x d) of the rows about their mean, in double precision.
    """

    moments: Moments
    about: Array
    rest: Array
    gram: Array

    __repr__ = brief

    @classmethod
    def from_deviations(cls, deviations: Iterable[Array], n: int, mean: Array, dtype: np.dtype[Any]) -> ScatterOfRows:
        """Return the spread of n rows, computed from blocks of their deviations from their approximate mean."""
        left, squares = np.zeros((2, len(mean)))
        sums = GramSum(len(mean), dtype)
        for D in deviations:
            left += np.ones(len(D)) @ D
            sums.add(D)
            # Products in single precision are not accurate enough for the moments.
            if dtype != np.float64:
                squares += np.einsum("ij,ij->j", D, D)
        rest = left / n
        gram = sums.gram()
        for i in range(0, len(gram), _AT_ONCE):
            gram[i : i + _AT_ONCE] -= np.outer(n * rest[i : i + _AT_ONCE], rest)
        squares = squares - n * rest**2
        if dtype == np.float64:  # Double-precision products are accurate enough.
            squares = np.diagonal(gram)
        moments = Moments(n, mean + rest, np.maximum(squares, 0.0))
        return cls(moments, mean, rest, gram)

    def product_in_frame(self, Z: Array, frame: Frame) -> Array:
        """Return X'(XZ) for the rows in a frame."""
        if frame.scale is not None:
            Z = frame.unscale(Z)
        # Both means may be far from 0. So their difference is formed first, and no digits of `rest` are lost.
        e = (self.about - frame.column_centers) + self.rest
        product = self.gram @ Z
        product += np.dot((self.moments.n * e)[:, None], (e @ Z)[None])
        if frame.scale is not None:
            product = frame.unscale(product)
        return np.asarray(product)

    def gram_in_frame(self, frame: Frame) -> Array:
        """Return X'X for the rows in a frame."""
        e = (self.about - frame.column_centers) + self.rest
        total = np.empty_like(self.gram)
        for i in range(0, len(total), _AT_ONCE):
            rows = total[i : i + _AT_ONCE]
            np.outer(self.moments.n * e[i : i + _AT_ONCE], e, out=rows)
            rows += self.gram[i : i + _AT_ONCE]
        return frame.unscale_gram(total)
