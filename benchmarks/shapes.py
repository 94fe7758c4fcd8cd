"""Shapes of rows: tall and wide ones, sparse ones, columns in order, close eigenvalues, many small sites.

`python -m benchmarks.shapes`, one run in turns with the solvers. `python -m benchmarks.shapes wide row` runs the shapes
whose names begin with these words.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.decomposition import PCA

from benchmarks import table
from benchmarks.pooled import SOLVERS
from flower_pca import PCAResult, simulate


@dataclass(frozen=True)
class Shape:
    """Rows of several clients, and how many components are wanted of them."""

    name: str
    rows: Callable[[], Any]
    clients: int
    k: int
    tol: float = 1e-8
    frames: bool = False  # whether each client has a pandas frame
    times: int = 3

    def arrays(self, X: Any) -> list[Any]:
        """Return the rows of each client."""
        ends = np.linspace(0, X.shape[0], self.clients + 1).astype(int)
        return [X[a:b] for a, b in itertools.pairwise(ends)]

    def shards(self, X: Any) -> list[Any]:
        """Return what each client has: its rows, as they are or as a frame in column order."""
        if not self.frames:
            return self.arrays(X)
        names = [f"x{j}" for j in range(X.shape[1])]
        return [pd.DataFrame(np.asfortranarray(part), columns=names) for part in self.arrays(X)]


def wide(n: int, d: int) -> Any:
    """Ten components and noise."""
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, d))
    scores = rng.standard_normal((n, 10)) * np.linspace(3.0, 1.0, 10)
    return X + scores @ rng.standard_normal((10, d)) / 2


def sparse(n: int, d: int, share: float = 0.01) -> Any:
    """Entries of which few are stored, without any structure, so that eigenvalues are close."""
    return scipy.sparse.random_array((n, d), density=share, format="csr", rng=np.random.default_rng(n))


def pictures(n: int) -> Any:
    """Rows like the pixels of MNIST: 784 numbers from 0 to 255, of ten kinds, most of them zero near the edges."""
    rng = np.random.default_rng(n)
    side = np.abs(np.arange(28) - 13.5)
    inside = np.exp(-((np.maximum.outer(side, side).reshape(-1) / 9.0) ** 4))
    strokes = np.linalg.qr(rng.standard_normal((784, 60)))[0] * np.linspace(12.0, 1.5, 60)
    kinds = rng.standard_normal((10, 784)) * 0.6
    X = rng.standard_normal((n, 60)) @ strokes.T
    X += kinds[rng.integers(10, size=n)]
    X += 0.3 * rng.standard_normal((n, 784))
    np.clip(np.rint(90.0 * X * inside), 0.0, 255.0, out=X)
    return X


def falling(d: int, ratio: float, n: int = 2_000) -> Any:
    """Rows whose covariance has eigenvalues ratio^j."""
    rng = np.random.default_rng(d)
    U, V = (np.linalg.qr(rng.standard_normal((side, d)))[0] for side in (n, d))
    return (U * ratio ** (np.arange(d) / 2)) @ V.T


def plain(n: int, d: int) -> Any:
    """Deviations that fall like the root of the reciprocal, and a mean."""
    return np.random.default_rng(d).standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)) + 1.0


SHAPES = (
    Shape("tall, 200,000 x 100", lambda: plain(200_000, 100), 16, 5),
    Shape("pixels, 20,000 x 784, k = 50", lambda: pictures(20_000), 16, 50),
    Shape("pixels, 60,000 x 784, k = 50", lambda: pictures(60_000), 16, 50),
    Shape("wide, 500 x 50,000, k = 2", lambda: wide(500, 50_000), 5, 2, 1e-6),
    Shape("wide, 500 x 50,000, k = 10", lambda: wide(500, 50_000), 5, 10, 1e-6),
    Shape("wide, 500 x 50,000, k = 50", lambda: wide(500, 50_000), 5, 50, 1e-6),
    Shape("sparse, 2,000 x 100,000, k = 10", lambda: sparse(2_000, 100_000), 4, 10, 1e-6),
    Shape("sparse, 2,000 x 300,000, k = 10", lambda: sparse(2_000, 300_000), 4, 10, 1e-6),
    Shape("sparse, 1 %, 20,000 x 800", lambda: sparse(20_000, 800, 0.01), 16, 5),
    Shape("sparse, 5 %, 20,000 x 800", lambda: sparse(20_000, 800, 0.05), 16, 5),
    Shape("sparse, 12 %, 20,000 x 800", lambda: sparse(20_000, 800, 0.12), 16, 5),
    Shape("row order, 200,000 x 54", lambda: plain(200_000, 54), 16, 5),
    Shape("column order, 200,000 x 54", lambda: np.asfortranarray(plain(200_000, 54)), 16, 5),
    Shape("pandas frames in column order, 200,000 x 54", lambda: plain(200_000, 54), 16, 5, frames=True),
    Shape("row order, 40,000 x 300", lambda: plain(40_000, 300), 16, 5),
    Shape("column order, 40,000 x 300", lambda: np.asfortranarray(plain(40_000, 300)), 16, 5),
    Shape("pandas frames in column order, 40,000 x 300", lambda: plain(40_000, 300), 16, 5, frames=True),
    Shape("eigenvalues .9^j, 2,000 x 500", lambda: falling(500, 0.9), 4, 5),
    Shape("eigenvalues .99^j, 2,000 x 500", lambda: falling(500, 0.99), 4, 5),
    Shape("eigenvalues .999^j, 2,000 x 500", lambda: falling(500, 0.999), 4, 5),
    Shape("1,000 sites of 20 x 100", lambda: plain(20_000, 100), 1_000, 5),
    Shape("10,000 sites of 20 x 100", lambda: plain(200_000, 100), 10_000, 5),
    Shape("100,000 sites of 20 x 100", lambda: plain(2_000_000, 100), 100_000, 5, times=1),
)


def measured(shape: Shape) -> list[object]:
    """A row of the table."""
    pooled = shape.rows()
    shards = shape.shards(pooled)
    n, d = pooled.shape

    def run() -> PCAResult:
        return simulate("auto", shards, n_components=shape.k, tol=shape.tol)

    found, peak = traced(run)
    arrays = shape.arrays(pooled)
    fits: dict[str, Callable[[], Any]] = {"run": run, "bare": lambda: bare(arrays, found, shape)}
    for name, given in SOLVERS.items():
        fits_sparse = name != "randomized" or not scipy.sparse.issparse(pooled)
        if (name != "covariance_eigh" or d <= min(n, 5_000)) and fits_sparse:
            fits[name] = lambda given=given: PCA(shape.k, **given).fit(pooled)
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(shape.times):
        for name, fit in fits.items():
            began = time.process_time()
            fit()
            times[name].append(time.process_time() - began)
    took = {name: statistics.median(seconds) for name, seconds in times.items()}
    best = min((name for name in took if name in SOLVERS), key=took.__getitem__)
    sine, error = exactness(found, pooled, shape.k)
    sent = sum(record.bytes_up + record.bytes_down for record in found.history) / len(shards)
    return [
        shape.name,
        len(found.history),
        f"{sent / 1e3:,.0f}",
        f"{peak / 1e6:,.0f}",
        f"{took['run'] / took['bare']:.1f}",
        f"{took['run'] / took[best]:.2f} ({best})",
        f"{sine:.0e}",
        f"{error:.0e}",
    ]


def traced(run: Callable[[], PCAResult]) -> tuple[PCAResult, int]:
    """The result, and the most memory that was taken beside what there was before."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bare(shards: Sequence[Any], found: PCAResult, shape: Shape) -> None:
    """The products of the messages of a run, with nothing around them."""
    block = np.random.default_rng(0).standard_normal((found.n_features_in_, shape.k + 2))
    for record in found.history:
        for X in shards:
            if record.stage == "covariance":
                X.T @ X
            else:
                X.T @ (X @ block)


def exactness(found: PCAResult, pooled: Any, k: int) -> tuple[float, float]:
    """The sine of the largest angle to the components by LAPACK, and the largest relative error of the variances."""
    n, d = pooled.shape
    mean = np.asarray(pooled.mean(axis=0)).reshape(-1)
    if d <= n:
        centered = (pooled.toarray() if scipy.sparse.issparse(pooled) else pooled) - mean
        values, V = np.linalg.eigh(centered.T @ centered)
        values, V = values[::-1][:k], V[:, ::-1][:, :k]
    else:
        # Sparse rows need not be filled.
        along = np.asarray(pooled @ mean)
        products = pooled @ pooled.T
        products = products.toarray() if scipy.sparse.issparse(products) else products
        values, U = np.linalg.eigh(products - along[:, None] - along + mean @ mean)
        values, U = values[::-1][:k], U[:, ::-1][:, :k]
        V = np.linalg.qr(pooled.T @ U - np.outer(mean, U.sum(axis=0)))[0]
    W = found.components_.T
    sine = float(np.linalg.norm(W - V @ (V.T @ W), ord=2))
    return sine, float(np.abs(found.explained_variance_ * (n - 1) / values - 1.0).max())


def main(*words: str) -> None:
    """Print the table."""
    head = [
        "shape",
        "messages",
        "kB a client",
        "MB beside the rows",
        "bare products",
        "best solver",
        "sine",
        "variances",
    ]
    print(table(head, [measured(shape) for shape in SHAPES if shape.name.startswith(words or "")]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
