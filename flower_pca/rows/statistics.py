"""Measure the fixed statistics of a client's rows before the first message. All answers are computed from them.

A product X'(XZ) that is computed from rows can reveal single rows. A malicious server can choose a frame or a block for
which the large parts of a row's dot product cancel. The rounding of the remainder then acts as a comparison, and the
answer is the sum of the rows above a threshold. A node in a deployment therefore reads its rows once, independently of
any message, and keeps T = (n, mu, C):

  mu  the node's column means
  C   the scatter matrix, sum (x - mu)(x - mu)', summed over blocks of rows minus mu
  R   the triangular factor of the rows minus mu, with R'R = C, instead of C if there are fewer rows than columns

All later answers are functions of the message and T. A missing value counts as the mean of its column (a deviation of
0). If a node lets a server choose the replacements, C or R has an additional column for each column with missing
values. The additional column is 1 for a missing value and 0 otherwise, minus its mean. Filled rows are then linear
combinations of the columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from flower_pca.base import files, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief
from flower_pca.rows import folds
from flower_pca.rows.frame import fill_sparse_gaps
from flower_pca.rows.gram import sum_of_sparse_products
from flower_pca.rows.local import LocalData
from flower_pca.rows.measured import Measured
from flower_pca.rows.whole_counts import ExactCounts
from flower_pca.rows.whole_numbers import GridRows

# A function of this type returns C Z for a block Z, given the replacements for missing values (None for local means).
Product: TypeAlias = Callable[[Array, Array | None], Array]
# A source has the statistics from which answers are computed, and a function for products if they lack both C and R.
Source: TypeAlias = "tuple[Statistics, Product | None]"

# If the deviations of a sparse column are below this share of its squares, the column is centered before multiplying.
_CANCELS: Final = 2.0**-20
_LARGEST: Final = 2**27  # maximum number of entries of C or R, which take one gigabyte
# Rows stored by columns hold allele counts, and their products in whole numbers need no memory. On 585 x 60,000 counts,
# a product with 12 columns takes 0.16 s in whole numbers, and 0.13 s with R, which takes 3.9 s and 281 MB once.
_LARGEST_COUNTED: Final = 2**24  # maximum number of entries of C or R for rows stored by columns
# With at most this many rows, LAPACK computes R one reflection at a time, so R is identical for any workspace.
_ONE_BY_ONE: Final = 128
_COLUMNS: Final = 64  # number of sparse columns that are multiplied at a time
_FILE: Final = "statistics of the rows"


@dataclass(frozen=True)
class Statistics:
    """The statistics of a client's rows that are measured before the first message, in float64.

    Attributes
    ----------
    n : int
        The number of rows.
    mean : ndarray
        mu, the mean of the present values, or 0 for a column without values.
    seen : ndarray
        The number of values in each column.
    peak : ndarray
        The largest |x| of each column.
    gaps : ndarray
        The positions of the columns whose missing values have an additional column in C or R. The additional columns
        come last.
    m2 : ndarray
        The sum of squared deviations from the mean in each column.
    rest : ndarray
        The rounding error of the mean, which matters if the mean is far from 0.
    scatter : ndarray or None
        The scatter matrix C. None if R or a function for products is used instead.
    factor : ndarray or None
        The triangular factor R, or None.
    """

    n: int
    mean: Array
    seen: Array
    peak: Array
    gaps: Array
    m2: Array
    rest: Array
    scatter: Array | None = None
    factor: Array | None = None

    __repr__ = brief

    @property
    def d(self) -> int:
        """The number of columns."""
        return len(self.mean)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that are not None, by name."""
        return {name: a for name in _ARRAYS if (a := getattr(self, name)) is not None}

    def select_columns(self, positions: Array) -> Statistics:
        """Return the statistics of these columns in this order, by selecting entries only."""
        _, beside, gaps = np.intersect1d(self.gaps, positions, assume_unique=True, return_indices=True)
        every = np.concatenate([positions, self.d + beside])
        scatter, factor = self.scatter, self.factor
        if scatter is not None:
            scatter = np.ascontiguousarray(scatter[np.ix_(every, every)])
        if factor is not None:
            factor = np.ascontiguousarray(factor[:, every])
        return Statistics(
            self.n,
            mean=self.mean[positions],
            seen=self.seen[positions],
            peak=self.peak[positions],
            gaps=gaps,
            m2=self.m2[positions],
            rest=self.rest[positions],
            scatter=scatter,
            factor=factor,
        )

    def with_fill(self, fill: Array) -> Statistics:
        """Return the statistics of the rows with missing values replaced by `fill`."""
        j = self.gaps
        if not len(j):
            return self
        step = (fill - self.mean)[j]
        mean = self.mean.copy()
        lacking = (self.n - self.seen[j]) / self.n
        mean[j] += step * lacking
        seen = np.full_like(self.seen, self.n)
        whole = replace(self, mean=mean, seen=seen, gaps=j[:0])
        d = self.d
        if self.factor is None and self.scatter is None:
            m2 = self.m2.copy()
            m2[j] += step**2 * lacking * self.seen[j]
            return replace(whole, m2=m2)
        if self.factor is not None:
            R = self.factor[:, :d].copy()
            R[:, j] += self.factor[:, d:] * step
            return replace(whole, factor=R, m2=linalg.column_norms(R) ** 2)
        assert self.scatter is not None
        C = self.scatter[:d, :d].copy()
        beside = self.scatter[:d, d:] * step
        C[:, j] += beside
        C[j, :] += beside.T
        beside = self.scatter[d:, d:]
        C[np.ix_(j, j)] += beside * np.outer(step, step)
        return replace(whole, scatter=C, m2=np.diagonal(C).copy())

    @functools.cached_property
    def root(self) -> Array:
        """A matrix A with A'A = C: R, or a root that is computed from the eigenvectors of C."""
        if self.factor is not None:
            return self.factor[:, : self.d]
        assert self.scatter is not None
        lengths = np.sqrt(np.maximum(self.m2, 0.0))
        # Scale columns to unit length first. Rounding errors are relative to the largest eigenvalue, so small columns
        # would be lost in them.
        units = np.where(lengths > 0.0, lengths, 1.0)
        of_rows = self.scatter[: self.d, : self.d]
        values, V = np.linalg.eigh(of_rows / units / units[:, None])
        roots = np.sqrt(np.maximum(values, 0.0))
        return np.ascontiguousarray(roots[:, None] * V.T * lengths)


def statistics_of(data: LocalData, path: Path | None = None, *, gaps: bool) -> Source:
    """Return the statistics of the rows. They are measured once for all runs, on all columns of the table."""

    def make() -> Source:
        every = data.all_columns.measured
        if every.columns is not None and is_too_large(every):
            return _statistics_of_counts(data.measured, gaps)
        if data.places is None:
            return _measure_source(data.measured, data.who, path, gaps)
        return _select_columns_of(data, *statistics_of(data.all_columns, path, gaps=gaps))

    return data.measured.cached(("fixed", gaps), make)


def measure_dense(data: LocalData, *, gaps: bool) -> Callable[[], Statistics] | None:
    """Return a function that measures C or R, or None if the matrix would have more than `_LARGEST` entries."""
    every, places = data.all_columns.measured, data.places
    if min(every.n, every.d) * every.d > _LARGEST:
        return None

    def make() -> Statistics:
        found = every.cached(("dense", gaps), lambda: measure_statistics(every, gaps=gaps))
        return found if places is None else found.select_columns(places)

    return make


def statistics_of_parts(data: LocalData, *, gaps: bool) -> list[Source]:
    """Return the statistics of each part of the rows. They are measured on first use and not stored in a file."""
    rows = data.all_columns.measured
    parts = rows.cached(
        ("parts", gaps), lambda: [_measure_source(part, data.who, None, gaps) for part in folds.parts_of_rows(rows)]
    )
    if data.places is None:
        return parts
    return [_select_columns_of(data, *part) for part in parts]


def _select_columns_of(data: LocalData, statistics: Statistics, product: Product | None) -> Source:
    """Return the statistics of the columns that the run uses, with a function for products if `product` is given."""
    assert data.places is not None
    return statistics.select_columns(data.places), product and functools.partial(
        _product_of_columns, data.places, statistics.d, product
    )


def _product_of_columns(positions: Array, d: int, of_all: Product, Z: Array, fill: Array | None) -> Array:
    """Return C Z for the columns of the run. The function `of_all` computes C Z for all d columns."""
    every = np.zeros((d, Z.shape[1]))
    every[positions] = Z
    return np.asarray(of_all(every, fill)[positions])


def _measure_source(data: Measured, who: str, path: Path | None, gaps: bool) -> Source:
    """Return statistics with C or R, and None. If the rows are too large for C and R, return a function for products.

    This function computes products in whole numbers.
    """
    if not is_too_large(data):
        if path is None:
            return measure_statistics(data, gaps=gaps), None
        return read_or_measure(data, path, gaps=gaps), None
    if gaps and data.missing:
        raise DataError(
            f"The sparse rows of {who} have missing values, but too many columns to replace them with values that the "
            f"server chooses. Use {option('missing', 'local_mean')}."
        )
    there = data.observed_moments()
    whole = GridRows(data, there.mean, who)
    seen = np.broadcast_to(np.asarray(there.value_counts, dtype=np.float64), data.d)
    m2 = np.maximum(whole.squares - data.n * whole.mean**2, 0.0)
    none = np.empty(0, dtype=np.int64)
    rest = np.zeros(data.d)
    return Statistics(data.n, whole.mean, seen, data.largest_absolute(), none, m2, rest), whole.scatter_times


def _statistics_of_counts(data: Measured, gaps: bool) -> Source:
    """Return the statistics of allele counts, and a function that computes products exactly."""
    assert data.columns is not None
    there = data.observed_moments()
    seen = np.broadcast_to(np.asarray(there.value_counts, dtype=np.float64), data.d)
    columns = np.flatnonzero(gaps & (seen < data.n))
    found = Statistics(data.n, there.mean, seen, data.largest_absolute(), columns, there.m2, np.zeros(data.d))
    return found, ExactCounts(data.columns, there).scatter_times


def measure_statistics(data: Measured, *, gaps: bool = False) -> Statistics:
    """Measure the statistics of stored rows.

    This takes one pass for the mean, and 2 n d min(n, d) floating-point operations.

    Parameters
    ----------
    data : Measured
        The rows.
    gaps : bool, default=False
        Whether columns with missing values get an additional column, which `Statistics.with_fill` needs.
    """
    there, d = data.observed_moments(), data.d
    seen = np.full(d, there.value_counts, dtype=np.float64)
    columns = np.flatnonzero(gaps & (seen < data.n))
    shares = (data.n - seen[columns]) / data.n
    means = np.concatenate([there.mean, shares])
    C: Array | None = None
    R: Array | None = None
    rest = np.zeros(len(means))
    if data.n < len(means):
        rest, R = _triangular_root(data, columns, means)
        squares = linalg.column_norms(R) ** 2
    else:
        if data.sparse:
            C = _sparse_scatter(data, columns, there.mean, means)
        else:
            rest, C = _scatter_matrix(data, columns, means)
        squares = np.diagonal(C).copy()
    m2 = squares[:d]
    means_off = rest[:d] / data.n
    return Statistics(data.n, there.mean, seen, data.largest_absolute(), columns, m2, means_off, C, R)


def is_too_large(data: Measured) -> bool:
    """Return whether C and R of these rows would be too large, so that products must use whole numbers."""
    if data.columns is not None:
        return min(data.n, data.d) * data.d > _LARGEST_COUNTED
    return data.sparse and min(data.n, data.d) * data.d > _LARGEST


def _scatter_matrix(data: Measured, columns: Array, means: Array) -> tuple[Array, Array]:
    """Return the sums of the deviations of dense rows, and their scatter matrix C."""
    C = np.zeros(means.shape * 2)
    rest = np.zeros(means.shape)
    for block in data.blocks():
        rows = block.astype(np.float64)
        if len(columns):
            rows = np.hstack([rows, np.isnan(rows[:, columns])])
        rows -= means
        if data.missing:
            rows[np.isnan(rows)] = 0.0
        C += rows.T @ rows
        rest += rows.sum(axis=0)
    return rest, C


def _triangular_root(data: Measured, columns: Array, means: Array) -> tuple[Array, Array]:
    """Return the sums of the deviations, and R. R overwrites the deviations, because it is as large as they are."""
    from scipy.linalg import lapack

    # LAPACK does not copy an array in Fortran order.
    rows, start = np.empty((data.n, len(means)), order="F"), 0
    for block in data.blocks():
        part = rows[start : start + len(block)]
        part[:, : data.d] = block
        part[:, data.d :] = np.isnan(block[:, columns])
        part -= means
        part[np.isnan(part)] = 0.0
        start += len(block)
    rest = rows.sum(axis=0)
    # For few rows, the optimal workspace of 32 rows may be larger than the rows themselves.
    work = rows.shape[1] if len(rows) <= _ONE_BY_ONE else int(lapack.dgeqrf_lwork(*rows.shape)[0])
    R = lapack.dgeqrf(rows, lwork=work, overwrite_a=1)[0]
    # np.triu would make a copy as large as the rows.
    for j in range(min(R.shape)):
        R[j + 1 :, j] = 0.0
    return rest, R


def _sparse_scatter(data: Measured, columns: Array, mean: Array, means: Array) -> Array:
    """Return C = S'S - n mu mu' of sparse rows. Columns for which this difference would cancel are centered first."""
    C = sum_of_sparse_products(_sparse_pieces(data, columns, mean), len(means))
    squares = np.diagonal(C).copy()
    C -= data.n * np.outer(means, means)
    canceled = np.flatnonzero(np.diagonal(C) < _CANCELS * squares)
    for start in range(0, len(canceled), _COLUMNS):
        j = canceled[start : start + _COLUMNS]
        products, own, sums = np.zeros((len(C), len(j))), np.zeros((len(j), len(j))), np.zeros(len(j))
        for S in _sparse_pieces(data, columns, mean):
            part = S[:, j].toarray() - means[j]
            sums += part.sum(axis=0)
            products += S.T @ part
            own += part.T @ part
        C[:, j] = products - np.outer(means, sums)
        C[j, :] = C[:, j].T
        # For products of two such columns, both must be centered.
        C[np.ix_(j, j)] = own
    return C


def _sparse_pieces(data: Measured, columns: Array, mean: Array) -> Iterator[Any]:
    """Yield pieces of sparse rows in double precision, with means for missing values.

    For each of these columns, an additional column is 1 for a missing value and 0 otherwise.
    """
    from scipy import sparse

    for stored in data.stored_blocks():
        S = stored.astype(np.float64)
        if data.missing:
            gone = np.isnan(S.data).astype(np.float64)
            gaps = sparse.csr_array((gone, S.indices, S.indptr), shape=S.shape)[:, columns]
            S = sparse.csr_array(sparse.hstack([fill_sparse_gaps(S, mean), gaps]))
        yield S


def read_or_measure(data: Measured, path: Path, *, gaps: bool) -> Statistics:
    """Return the statistics of these rows from the node's file, or measure them and write the file.

    The file is valid as long as the fingerprint of the rows is the same. So the answers of a restarted node are
    identical, and it does not have to measure its rows again.
    """
    mark = [data.n, data.d, data.stored_dtype.str, data.fingerprint(), gaps]
    if (kept := _read(path, mark)) is not None:
        return kept
    found = measure_statistics(data, gaps=gaps)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, _FILE, {"rows": mark, "n": found.n}, found.arrays, private=True)
    return found


_ARRAYS: Final = ("mean", "seen", "peak", "gaps", "m2", "rest", "scatter", "factor")


def _read(path: Path, mark: list[Any]) -> Statistics | None:
    try:
        header, arrays = files.read(path, _FILE, private=True)
    except (FileNotFoundError, DataError):  # If another version wrote the file, the rows are measured again.
        return None
    if header.get("rows") != mark:
        return None
    return Statistics(header["n"], **arrays)
