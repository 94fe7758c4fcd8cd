"""FixedData: a client's rows in the global frame as LocalData shows them, but without rows: from fixed statistics.

With the frame (m, s), e = mu - m and D = diag(s), X'X = D^-1 (C + n e e') D^-1, and [R; sqrt(n) e'] D^-1 is a matrix
with that Gram matrix. All that a stage asks of rows, other than to look at one, it can ask of these.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows import known
from flower_pca.rows.frame import Frame, Moments
from flower_pca.rows.known import Product
from flower_pca.rows.local import LocalData
from flower_pca.rows.statistics import Statistics

_DIRECT: Final = 4096  # sides up to which a full LAPACK factorisation beats an iterative one


def fixed(data: LocalData, path: Path | None = None, *, gaps: bool = False) -> FixedData:
    """What answers for these rows, in their frame.

    Args:
        data: The rows.
        path: The node's own file for the statistics.
        gaps: Whether a frame may say what stands for missing values; else it is the mean of the rows' own.
    """
    if path is not None:
        path = path.with_stem(path.stem + data.FILE)
    key = ("fixed", gaps)
    if key not in data.known:
        data.known[key] = known.of(data, path, gaps=gaps)
    statistics, whole = data.known[key]
    newest: FixedData | None = data.known.get((*key, "newest"))
    if newest is None or not newest.frame.same(data.frame):
        held = functools.partial(_parts, data, gaps)
        newest = FixedData(statistics, data.frame, who=data.who, whole=whole, parts=held)
        data.known[(*key, "newest")] = newest
    return newest


def parts(data: LocalData | FixedData) -> tuple[FixedData, ...]:
    """The rows in parts (see `folds`), in their frame, by statistics of each that are fixed as those of all rows are.

    Whatever else the rows are answered from, so that what is chosen by the parts is the same everywhere.
    """
    if isinstance(data, FixedData):
        return data.parts()
    return _parts(data, data.frame.fill is not None and not data.frame.own)


def _parts(data: LocalData, gaps: bool) -> tuple[FixedData, ...]:
    found = known.of_parts(data, gaps=gaps)
    return tuple(FixedData(statistics, data.frame, who=data.who, whole=whole) for statistics, whole in found)


class FixedData:
    """The rows X (n x d) of one client in a frame, by statistics that no message has touched.

    Answers are float64. Their bits follow from the message and the statistics, whatever the rows.
    """

    answers: ClassVar[str] = "fixed"
    sparse: ClassVar[bool] = False
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def __init__(
        self,
        statistics: Statistics,
        frame: Frame,
        *,
        who: str,
        whole: Product | None = None,
        parts: Callable[[], tuple[FixedData, ...]] = tuple,
    ) -> None:
        given = frame.fill if frame.fill is not None and not frame.own else None
        self.who, self.frame, self._whole, self.parts = who, frame, whole, parts
        self._stored = statistics
        self._T = statistics if given is None else statistics.filled(given)
        self.n, self.d = statistics.n, statistics.d
        self.missing = int(np.sum(self.n - statistics.seen))
        # A column without a single value stands where all others have it; before they are known, at 0.
        empty = statistics.seen == 0
        self._mean = np.where(empty, 0.0 if frame.fill is None else frame.fill, self._T.mean)
        self._empty = empty

    def complete(self) -> None:
        """Raise DataError if values are missing and the frame does not say what takes their place."""
        if self.missing and self.frame.fill is None and not self.frame.own:
            raise checks.not_finite(self.who, self.missing)

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """X'(XZ); `reuse` changes nothing."""
        self.complete()
        Z1 = self._unscaled(np.asarray(Z, dtype=np.float64))
        return self._unscaled(self._centred(self._T, Z1) + self.n * np.outer(self._e, self._e @ Z1))

    def gram(self) -> Array:
        """X'X (d x d)."""
        self.complete()
        return self._gram

    def root(self) -> Array:
        """A matrix A with A'A = X'X, of no more than n + 1 or d + 1 rows."""
        self.complete()
        return self._root

    def sketch(self, Z: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Coordinates S of rows along Z, as S'S = Z'X'XZ says, and Y -> X'Y for a block in these coordinates."""
        if self._whole is None:
            A = self.root()
            return A @ Z, lambda Y: A.T @ Y
        product = self.matmat(Z)
        values, V = linalg.eigh_descending(Z.T @ product)
        kept = values > len(values) * np.finfo(np.float64).eps * max(float(values[0]), 0.0)
        lengths, V = np.sqrt(values[kept]), V[:, kept]
        return lengths[:, None] * V.T, lambda Y: product @ (V @ (Y / lengths[:, None]))

    def squared_error(self, Z: Array) -> float:
        """||X - XZZ'||_F^2 for orthonormal Z."""
        Z = np.asarray(Z, dtype=np.float64)
        if self._T.factor is not None:
            A = self.root()
            return float(np.sum((A - (A @ Z) @ Z.T) ** 2))
        if self._T.scatter is not None:
            E = self.gram() - Z @ (Z.T @ self.gram())
            return max(float(np.trace(E) - np.sum((E @ Z) * Z)), 0.0)
        squares = self._T.m2 + self.n * self._e**2
        whole = squares if self.frame.scale is None else squares / self.frame.scale**2
        return max(float(whole.sum() - np.sum(Z * self.matmat(Z))), 0.0)

    def top(self, k: int) -> tuple[Array, Array]:
        """The leading eigenvectors (d x r) and eigenvalues (r) of X'X, with r = min(k, rank)."""
        side = min(self.n, self.d)
        if self._T.factor is not None:
            _, s, Vt = np.linalg.svd(self.root(), full_matrices=False)
            values, V = s**2, Vt.T
        elif self._T.scatter is not None and self.d <= _DIRECT:
            values, V = linalg.eigh_descending(self.gram())
        else:
            values, V = linalg.lanczos(self.matmat, self.d, min(k, side, self.d - 1), tol=np.finfo(np.float64).eps)
        floor = side * float(np.finfo(np.float64).eps) * max(float(values[0]), 0.0)
        r = int(np.sum(values[:k] > floor))
        return np.ascontiguousarray(V[:, :r]), np.ascontiguousarray(values[:r])

    def norm2(self, *, steps: int = 10) -> float:
        """||X||_2 squared, the largest eigenvalue of X'X, by a few block power steps: never above the true one."""
        return linalg.largest_eigenvalue(self.matmat, self.d, steps)

    def moments(self) -> Moments:
        """The moments of the rows: of the values that are there, or of whole rows where own means stand in gaps."""
        T = self._stored
        if not self.missing or (self.frame.own and not self._empty.any()):
            return Moments(self.n, T.mean, T.m2)
        return Moments(self.n, T.mean, T.m2, np.where(T.seen > 0, self.n, 0) if self.frame.own else T.seen)

    def products(self, block: Array) -> Iterator[tuple[Moments, Array]]:
        """The moments, and the product of the rows less their own mean with a block."""
        yield self.moments(), self._centred(self._stored, np.asarray(block, dtype=np.float64))

    def peak(self) -> Array:
        """The largest |x| of each column."""
        return self._T.peak

    def fingerprint(self) -> int:
        """A checksum of the statistics."""
        total = 0
        for a in vars(self._stored).values():
            total = zlib.crc32(np.ascontiguousarray(a).data, total) if isinstance(a, np.ndarray) else total
        return total

    @functools.cached_property
    def _e(self) -> Array:
        return (self._mean if self.frame.mean is None else self._mean - self.frame.mean) + self._T.rest

    def _unscaled(self, Z: Array) -> Array:
        return Z if self.frame.scale is None else Z / self.frame.scale[:, None]

    def _centred(self, T: Statistics, Z: Array) -> Array:
        """C Z."""
        if T.scatter is not None:
            return np.asarray(T.scatter[: self.d, : self.d] @ Z)
        if T.factor is not None:
            R = T.factor[:, : self.d]
            return np.asarray(R.T @ (R @ Z))
        assert self._whole is not None
        return np.asarray(self._whole(Z) - self.n * np.outer(T.mean, T.mean @ Z))

    @functools.cached_property
    def _gram(self) -> Array:
        if self._T.factor is not None:
            return np.asarray(self._root.T @ self._root)
        if self._T.scatter is None:
            rule, remedy = f"at most {_DIRECT}", "Use krylov or ssi, whose messages are narrow."
            raise DataError(f"The columns of sparse rows of {self.who}", must=rule, got=self.d, then=remedy)
        G = self._T.scatter[: self.d, : self.d] + self.n * np.outer(self._e, self._e)
        scale = self.frame.scale
        return np.asarray(G if scale is None else G / scale / scale[:, None])

    @functools.cached_property
    def _root(self) -> Array:
        A = np.vstack([self._T.root, np.sqrt(self.n) * self._e])
        return A if self.frame.scale is None else A / self.frame.scale
