"""Define `FixedData`: a client's rows in the global frame, like `LocalData`, but represented by fixed statistics.

The fixed statistics n, mu, C and R are defined in `statistics`. In a frame with mean m and scale s, let e = mu - m and
D = diag(s). Then X'X = D^-1 (C + n e e') D^-1, and the matrix A = [R; sqrt(n) e'] D^-1 satisfies A'A = X'X. A stage can
request everything except single rows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows import adjusted_statistics, moves, statistics
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame, Moments
from flower_pca.rows.local import DIRECT, LocalData, RowOperator
from flower_pca.rows.statistics import Product, Source, Statistics


def fixed_parts(data: LocalData | FixedData) -> tuple[FixedData, ...]:
    """Return the parts of the rows (see `folds`) in their frame, represented by the fixed statistics of each part.

    The parts are the same for `LocalData` and `FixedData`, so choices that use the parts are the same, too.
    """
    if isinstance(data, FixedData):
        return data.parts()
    return _parts(data, data.frame.fill is not None and not data.frame.own)


def _parts(data: LocalData, gaps: bool) -> tuple[FixedData, ...]:
    sources, who = _sources_of_parts(data, gaps), data.who
    return tuple(FixedData(part, data.frame, who=who, whole=whole) for part, whole in sources)


def _sources_of_parts(data: LocalData, gaps: bool) -> list[Source]:
    if data.joint is None:
        return statistics.statistics_of_parts(data, gaps=gaps)
    covariates, move = data.frame.covariates, None
    assert covariates is not None
    if covariates.changes_rows:
        move = moves.row_map_of(data.joint.in_frame(Frame(own=data.frame.own)), data.d, covariates)
    parts = statistics.statistics_of_parts(data.joint, gaps=gaps)
    return [adjusted_statistics.adjusted_source(_source_with_fill(part, data.frame), data.d, move) for part in parts]


def _source_with_fill(joint: Source, frame: Frame) -> Source:
    """Return the statistics of a joint table, with missing values filled by the frame's replacements if it has any."""
    known, whole = joint
    if frame.fill is None or frame.own:
        return joint
    covariates = known.mean[len(frame.fill) :]  # Covariates have no missing values, so nothing is filled.
    return known.with_fill(np.concatenate([frame.fill, covariates])), whole


class FixedData(RowOperator):
    """The rows X (n x d) of one client in a frame, represented by statistics that no message has influenced.

    Answers are float64, and every bit of them depends on the message and the statistics only.
    """

    answers: ClassVar[str] = "fixed"
    sparse: ClassVar[bool] = False
    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(
        self,
        statistics: Statistics,
        frame: Frame,
        *,
        who: str,
        whole: Product | None = None,
        parts: Callable[[], tuple[FixedData, ...]] = tuple,
        joint: Source | None = None,
        dense: Callable[[], Statistics] | None = None,
    ) -> None:
        self.who = who
        self._dense = dense
        self._joint = joint
        self.frame = frame
        self._whole = whole
        self.parts = parts
        self._stored = self._T = statistics
        if frame.fill is not None and not frame.own:
            self._T = statistics.with_fill(frame.fill)
        self.n, self.d = statistics.n, statistics.d
        self.missing = int(np.sum(self.n - statistics.seen))
        self._empty = statistics.seen == 0
        # A column without values gets the common replacement as its mean.
        self._mean = np.where(self._empty, frame.fill_values, self._T.mean)

    @classmethod
    def of_rows(cls, data: LocalData, path: Path | None = None, *, gaps: bool = False) -> FixedData:
        """Return the fixed data for these rows in their frame. The most recent result is cached.

        Parameters
        ----------
        data : LocalData
            The rows.
        path : path or None, default=None
            The node's private file for the statistics. By default, the statistics are not stored in a file.
        gaps : bool, default=False
            Whether a frame may choose the replacements for missing values. If not, they are the local means.
        """
        if path is not None:
            path = path.with_stem(path.stem + data.FILE)

        def make() -> FixedData:
            parts = functools.partial(_parts, data, gaps)
            if data.joint is not None:
                joint = statistics.statistics_of(data.joint, path, gaps=gaps)
                return cls._with_joint_covariates(joint, data.frame, data.d, data.who, parts)
            source, whole = statistics.statistics_of(data, path, gaps=gaps)
            dense = whole and statistics.measure_dense(data, gaps=gaps)
            return cls(source, data.frame, who=data.who, whole=whole, parts=parts, dense=dense)

        return data.measured.cached_if(("fixed", gaps), lambda newest: newest.frame.maps_rows_alike(data.frame), make)

    @classmethod
    def _with_joint_covariates(
        cls, known: Source, frame: Frame, d: int, who: str, parts: Callable[[], tuple[FixedData, ...]]
    ) -> FixedData:
        """Return the fixed data of d features in a frame with covariates, from the statistics of the joint table."""
        covariates, move = frame.covariates, None
        assert covariates is not None
        if covariates.changes_rows:
            joint = FixedData(known[0], Frame(own=True), who=who, whole=known[1])
            move = moves.row_map_of(joint, d, covariates)
        found, whole = adjusted_statistics.adjusted_source(_source_with_fill(known, frame), d, move)
        return cls(found, frame, who=who, whole=whole, parts=parts, joint=known)

    def with_covariates(self, covariates: Covariates) -> FixedData:
        """Return the same features in the same frame, with these new parameters for covariates."""
        assert self._joint is not None
        frame = replace(self.frame, covariates=covariates)
        return FixedData._with_joint_covariates(self._joint, frame, self.d, self.who, self.parts)

    def joint_in(self, frame: Frame) -> FixedData:
        """Return features and covariates as one table in this frame, represented by their statistics."""
        assert self._joint is not None
        known, whole = self._joint
        return FixedData(known, frame, who=self.who, whole=whole)

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """Return X'(XZ). `reuse` has no effect."""
        self.require_complete_rows()
        Z1 = self.frame.unscale(np.asarray(Z, dtype=np.float64))
        between = self.n * np.outer(self._offset_of_mean, self._offset_of_mean @ Z1)
        return self.frame.unscale(self._scatter_times(self._T, Z1) + between)

    def gram(self, *, keep: bool = True) -> Array:
        """Return X'X (d x d). `keep` has no effect."""
        self.require_complete_rows()
        return self._cached_gram

    def root(self) -> Array:
        """Return a matrix A with A'A = X'X, which has at most n + 1 or d + 1 rows."""
        self.require_complete_rows()
        return self._cached_root

    def sketch(self, Z: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return a matrix S with S'S = Z'X'XZ, and a function that maps a block Y with as many rows as S to X'Y."""
        if self._whole is None:
            A = self.root()
            return A @ Z, lambda Y: A.T @ Y
        product = self.matmat(Z)
        values, V = linalg.eigh_descending(Z.T @ product)
        rounding = len(values) * np.finfo(np.float64).eps
        # Smaller eigenvalues are rounding errors, and dividing by their roots would magnify the errors.
        large = values > rounding * max(float(values[0]), 0.0)
        lengths = np.sqrt(values[large])
        V, sizes = V[:, large], lengths[:, None]
        return sizes * V.T, lambda Y: product @ (V @ (Y / sizes))

    def squared_error(self, Z: Array) -> float:
        """Return ||X - XZZ'||_F^2 for orthonormal Z."""
        Z = np.asarray(Z, dtype=np.float64)
        # Square the residual itself if R is known, because the differences of sums of squares that are used below lose
        # digits if the residual is small.
        if self._T.factor is not None:
            A = self.root()
            return float(np.sum((A - (A @ Z) @ Z.T) ** 2))
        if self._T.scatter is not None:
            E = self.gram() - Z @ (Z.T @ self.gram())
            return max(float(np.trace(E) - np.sum((E @ Z) * Z)), 0.0)
        along = np.sum(Z * self.matmat(Z))
        return max(float(self.squares().sum() - along), 0.0)

    def squares(self) -> Array:
        """Return the sum of squares of each column."""
        squares = self._T.m2 + self.n * self._offset_of_mean**2
        return np.asarray(squares / self.frame.column_divisors**2)

    def _gram_eigenpairs(self, k: int) -> tuple[Array, Array]:
        if self._T.factor is not None:
            _, s, Vt = np.linalg.svd(self.root(), full_matrices=False)
            return s**2, Vt.T
        if self._T.scatter is not None and self.d <= DIRECT:
            return linalg.eigh_descending(self.gram())
        eps = float(np.finfo(np.float64).eps)
        return linalg.lanczos(self.matmat, self.d, min(k, self.n, self.d - 1), tol=eps)

    def moments(self) -> Moments:
        """Return the moments of the present values, or of all values if local means replace missing values."""
        T = self._stored
        if not self.missing or (self.frame.own and not self._empty.any()):
            return Moments(self.n, T.mean, T.m2)
        seen = np.where(self._empty, 0, self.n) if self.frame.own else T.seen
        return Moments(self.n, T.mean, T.m2, seen)

    def local_product(self, block: Array) -> tuple[Moments, Array]:
        """Return the moments, and C Z for a block Z, where C is the scatter matrix of the rows about their mean."""
        Z = np.asarray(block, dtype=np.float64)
        return self.moments(), self._scatter_times(self._stored, Z)

    def sums_where_seen(self, columns: slice) -> Array:
        """Return sums of these p complete columns about their means, as an array (d x p).

        Line j holds the sums over the rows that have a value in column j.
        """
        T = self._stored
        total = np.zeros((self.d, columns.stop - columns.start))
        if T.scatter is not None:
            total[T.gaps] = -T.scatter[self.d :, columns]
        elif T.factor is not None:
            total[T.gaps] = -T.factor[:, self.d :].T @ T.factor[:, columns]
        return total

    def largest_absolute(self) -> Array:
        """Return the largest absolute value in each column."""
        return self._T.peak

    def fingerprint(self) -> int:
        """Return a digest of the statistics."""
        total = hashlib.blake2b(digest_size=16)
        for a in self._stored.arrays.values():
            total.update(np.ascontiguousarray(a).data)
        return int.from_bytes(total.digest(), "big")

    @functools.cached_property
    def _offset_of_mean(self) -> Array:
        # Both means may be far from 0. So their difference is formed first, and no digits of `rest` are lost.
        return np.asarray((self._mean - self.frame.column_centers) + self._T.rest)

    def _scatter_times(self, T: Statistics, Z: Array) -> Array:
        """Return C Z for the scatter matrix C of these statistics."""
        if T.scatter is not None:
            return np.asarray(T.scatter[: self.d, : self.d] @ Z)
        if T.factor is not None:
            R = T.factor[:, : self.d]
            return np.asarray(R.T @ (R @ Z))
        assert self._whole is not None
        return self._whole(Z, None if T is self._stored else self.frame.fill)

    @functools.cached_property
    def _full_statistics(self) -> Statistics:
        """The statistics with C or R. If products use whole numbers, C or R is measured when a stage first needs it."""
        T = self._T
        if T.factor is not None or T.scatter is not None:
            return T
        if self._dense is None:
            raise DataError(
                f"The {self.n:,} rows and {self.d:,} columns of {self.who} are too many for this algorithm. Use "
                "krylov or ssi, whose messages are narrow."
            )
        T, frame = self._dense(), self.frame
        return T if frame.fill is None or frame.own else T.with_fill(frame.fill)

    @functools.cached_property
    def _cached_gram(self) -> Array:
        T = self._full_statistics
        if T.scatter is None:
            return np.asarray(self._cached_root.T @ self._cached_root)
        between = self.n * np.outer(self._offset_of_mean, self._offset_of_mean)
        G = T.scatter[: self.d, : self.d] + between
        if self.frame.scale is None:
            return np.asarray(G)
        scale = self.frame.scale
        return np.asarray(G / scale / scale[:, None])

    @functools.cached_property
    def _cached_root(self) -> Array:
        e = np.sqrt(self.n) * self._offset_of_mean
        A = np.vstack([self._full_statistics.root, e])
        if self.frame.scale is not None:
            A /= self.frame.scale
        return A
