"""Statistics of a client's rows that are fixed before the first message, and that its answers are computed from.

A product X'(XZ) from rows is no secret-keeper: a frame or a block that makes the large parts of a row's dot product
cancel turns the rounding of what is left into a comparison, and the answer is the sum of the rows above a threshold.
So a node in a deployment looks at its rows once, with no number of any message in hand, and keeps T = (n, mu, C):

  mu  its own column means; C = sum (x - mu)(x - mu)', by blocks of rows less mu;
  R   instead of C where there are fewer rows than columns: the triangular factor of the rows less mu, R'R = C.

Whatever is asked later is a function of the message and T. A value that is missing counts as the mean of its column
(a deviation of 0). A node that lets a server say what stands for it has a column more for each one with gaps, which is
1 where a value is missing, less its mean: rows that are filled are then sums of columns of T as well.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import archive, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows.frame import filled
from flower_pca.rows.stored import StoredRows

_CANCELS: Final = 2.0**-20  # of a column's squares: below it the deviations are formed before they are multiplied
_LARGEST: Final = 2**27  # entries of C or R
_COLUMNS: Final = 64  # of sparse rows that are multiplied at a time
_KEPT: Final = 8  # sets of rows whose statistics a process keeps ready
_FILE: Final = "statistics of the rows"


@dataclass(frozen=True)
class Statistics:
    """What is known of a client's rows before the first message, all in float64.

    Attributes:
        n: The number of rows.
        mean: mu, of the values that are there; 0 for a column that has none.
        seen: How many values each column has.
        peak: The largest |x| of each column.
        gaps: The columns whose gaps have a column of their own in C or R, after those of the rows.
        m2: The squared deviations from the mean, by column.
        rest: What rounding has left out of the mean: where that is far from 0, its last digits count.
        scatter: C; or None where there is R, or only a product.
        factor: R; or None.
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

    @property
    def d(self) -> int:
        """The number of columns."""
        return len(self.mean)

    def of_columns(self, places: Array) -> Statistics:
        """The statistics of these columns, in this order: numbers of these, none of them computed anew."""
        where = {int(column): new for new, column in enumerate(places)}
        kept = np.array([i for i, column in enumerate(self.gaps) if int(column) in where], dtype=np.int64)
        gaps = np.array([where[int(column)] for column in self.gaps[kept]], dtype=np.int64)
        every = np.concatenate([places, self.d + kept])
        by_column = {name: getattr(self, name)[places] for name in ("mean", "seen", "peak", "m2", "rest")}
        scatter = None if self.scatter is None else np.ascontiguousarray(self.scatter[np.ix_(every, every)])
        factor = None if self.factor is None else np.ascontiguousarray(self.factor[:, every])
        return Statistics(self.n, **by_column, gaps=gaps, scatter=scatter, factor=factor)

    def filled(self, fill: Array) -> Statistics:
        """The statistics of the rows with these values in their gaps."""
        j = self.gaps
        if not len(j):
            return self
        step = (fill - self.mean)[j]
        mean = self.mean.copy()
        mean[j] += step * ((self.n - self.seen[j]) / self.n)
        whole = replace(self, mean=mean, seen=np.full_like(self.seen, self.n), gaps=j[:0])
        d = self.d
        if self.factor is not None:
            R = self.factor[:, :d].copy()
            R[:, j] += self.factor[:, d:] * step
            return replace(whole, factor=R, m2=linalg.column_norms(R) ** 2)
        assert self.scatter is not None
        C = self.scatter[:d, :d].copy()
        beside = self.scatter[:d, d:] * step
        C[:, j] += beside
        C[j, :] += beside.T
        C[np.ix_(j, j)] += self.scatter[d:, d:] * np.outer(step, step)
        return replace(whole, scatter=C, m2=np.diagonal(C).copy())

    @functools.cached_property
    def root(self) -> Array:
        """A with A'A = C: R, or from the eigenvectors of C with its columns scaled to unit length."""
        if self.factor is not None:
            return self.factor[:, : self.d]
        assert self.scatter is not None
        lengths = np.sqrt(np.maximum(self.m2, 0.0))
        units = np.where(lengths > 0.0, lengths, 1.0)
        values, V = np.linalg.eigh(self.scatter[: self.d, : self.d] / units / units[:, None])
        return np.ascontiguousarray(np.sqrt(np.maximum(values, 0.0))[:, None] * V.T * lengths)


def measure(data: StoredRows, *, gaps: bool = False) -> Statistics:
    """The statistics of stored rows.

    Cost: a pass for the mean and 2 n d min(n, d) flops, once.

    Args:
        data: The rows.
        gaps: Whether gaps have columns of their own, for `Statistics.filled`.
    """
    moments = data.there()
    seen = np.broadcast_to(np.asarray(moments.seen, dtype=np.float64), data.d).copy()
    columns = np.flatnonzero(seen < data.n) if gaps else np.empty(0, dtype=np.int64)
    mean = moments.mean
    C: Array | None = None
    R: Array | None = None
    means = np.concatenate([mean, (data.n - seen[columns]) / data.n])
    width = len(means)
    rest = np.zeros(width)
    if data.n < width:
        rest, R = _triangle(data, columns, means)
    elif data.sparse:
        C = _sparse_scatter(data, columns, mean, means)
    else:
        C = np.zeros((width, width))
        for B in _deviations(data, columns, means):
            C += B.T @ B
            rest += B.sum(axis=0)
    squares = np.diagonal(C).copy() if C is not None else linalg.column_norms(np.asarray(R)) ** 2
    return Statistics(data.n, mean, seen, data.peak(), columns, squares[: data.d], rest[: data.d] / data.n, C, R)


def large(data: StoredRows) -> bool:
    """Whether rows are sparse and too many and too wide for C and R."""
    return data.sparse and min(data.n, data.d) * data.d > _LARGEST


def _blocks(data: StoredRows, columns: Array) -> Iterator[Array]:
    """Blocks of stored rows in float64, NaN where a value is missing; and for these columns, whether one is."""
    for block in data.blocks():
        rows = block.astype(np.float64)
        yield np.hstack([rows, np.isnan(rows[:, columns])]) if len(columns) else rows


def _deviations(data: StoredRows, columns: Array, means: Array) -> Iterator[Array]:
    for block in _blocks(data, columns):
        block -= means
        if data.missing:
            block[np.isnan(block)] = 0.0
        yield block


def _triangle(data: StoredRows, columns: Array, means: Array) -> tuple[Array, Array]:
    """The sums of deviations, and R, which is made in their place: they are as large as the rows."""
    from scipy.linalg import lapack

    rows, start = np.empty((data.n, len(means)), order="F"), 0
    for block in data.blocks():
        part = rows[start : start + len(block)]
        part[:, : data.d], part[:, data.d :] = block, np.isnan(block[:, columns])
        part -= means
        part[np.isnan(part)] = 0.0
        start += len(block)
    rest, work = rows.sum(axis=0), int(lapack.dgeqrf_lwork(*rows.shape)[0])
    R = lapack.dgeqrf(rows, lwork=work, overwrite_a=1)[0]
    for j in range(min(R.shape)):
        R[j + 1 :, j] = 0.0
    return rest, R


def _sparse_scatter(data: StoredRows, columns: Array, mean: Array, means: Array) -> Array:
    """C = S'S - n mu mu'; columns whose squares would cancel are centred before they are multiplied."""
    from scipy import sparse

    S: Any = data.stored.astype(np.float64)
    if data.missing:
        gaps = sparse.csr_array((np.isnan(S.data).astype(np.float64), S.indices, S.indptr), shape=S.shape)[:, columns]
        S = sparse.csr_array(sparse.hstack([filled(S, mean), gaps]))
    T, C = S.T.tocsr(), np.empty((S.shape[1],) * 2)
    for start in range(0, len(C), _COLUMNS):
        part = slice(start, start + _COLUMNS)
        C[:, part] = (T @ S[:, part]).toarray()
    squares = np.diagonal(C).copy()
    C -= data.n * np.outer(means, means)
    cancelled = np.flatnonzero(np.diagonal(C) < _CANCELS * squares)
    for start in range(0, len(cancelled), _COLUMNS):
        j = cancelled[start : start + _COLUMNS]
        part = S[:, j].toarray() - means[j]
        C[:, j] = T @ part - np.outer(means, part.sum(axis=0))
        C[j, :] = C[:, j].T
        C[np.ix_(j, j)] = part.T @ part
    return C


ready: OrderedDict[tuple[Any, ...], Statistics] = OrderedDict()


def recall(data: StoredRows, path: Path | None = None, *, gaps: bool = False) -> Statistics:
    """The statistics of these rows: at hand, from the node's own file, or measured now and written to it.

    The file serves as long as the rows are the same by their fingerprint, so that a node that has been restarted
    answers with the same bits, and reads no more than this file.
    """
    mark = [data.n, data.d, data.stored.dtype.str, data.fingerprint(), bool(gaps)]
    key = tuple(mark)
    stored = None if path is None else _read(path, mark)
    found = stored or ready.get(key)
    if found is None:
        found = measure(data, gaps=gaps)
    if path is not None and stored is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {name: a for name, a in vars(found).items() if isinstance(a, np.ndarray) and name in _ARRAYS}
        archive.write(path, _FILE, {"rows": mark, "n": found.n}, arrays, private=True)
    ready[key] = found
    ready.move_to_end(key)
    if len(ready) > _KEPT:
        ready.popitem(last=False)
    return found


def forget(data: StoredRows) -> None:
    """Keep the statistics of these rows ready no longer."""
    for key in [key for key in ready if key[3] == data.fingerprint()]:
        del ready[key]


_ARRAYS: Final = ("mean", "seen", "peak", "gaps", "m2", "rest", "scatter", "factor")


def _read(path: Path, mark: list[Any]) -> Statistics | None:
    try:
        header, arrays = archive.read(path, _FILE, private=True)
    except (FileNotFoundError, DataError):  # of another version: they are measured anew
        return None
    return Statistics(header["n"], **arrays) if header.get("rows") == mark else None
