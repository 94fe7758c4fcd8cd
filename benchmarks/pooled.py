"""A run beside scikit-learn's solvers on the pooled rows: six shapes. `python -m benchmarks.pooled`.

A run of `auto` is given the largest tol, of the powers of ten, with which its variances are at least as exact as those
of the fastest of the solvers, or right to 1e-12.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from benchmarks import table
from flower_pca import simulate

CLIENTS, K, TIMES = 16, 5, 3
RIGHT = 1e-12  # relative error below which none is counted
TOLS = tuple(10.0**-i for i in range(2, 10))
SHAPES = ((400_000, 50), (100_000, 100), (60_000, 200), (20_000, 784), (4_000, 2_000), (600, 5_000))
SOLVERS: dict[str, dict[str, Any]] = {
    "randomized": {"svd_solver": "randomized", "random_state": 0},
    "covariance_eigh": {"svd_solver": "covariance_eigh"},
    "arpack": {"svd_solver": "arpack", "random_state": 0},
}


def rows(n: int, d: int) -> Any:
    """Correlated columns with a mean: a spectrum that falls like the root of the reciprocal."""
    rng = np.random.default_rng(n)
    mixed = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))
    for start in range(0, n, 10_000):
        mixed[start : start + 10_000] = mixed[start : start + 10_000] @ turn(d) + 1.0
    return mixed


def turn(d: int) -> Any:
    """Householder's reflection of the diagonal, as a matrix."""
    v = np.full(d, d**-0.5)
    return np.eye(d) - 2.0 * np.outer(v, v)


def seconds(fit: Any) -> tuple[float, Any]:
    """Processor time, and what came of it."""
    began = time.process_time()
    found = fit()
    return time.process_time() - began, found


def compared(n: int, d: int) -> list[object]:
    """The times of one shape over the best of scikit-learn's, and the errors of the variances."""
    X = rows(n, d)
    shards = np.array_split(X, CLIENTS)
    squares = np.linalg.eigvalsh(_gram(X - X.mean(axis=0)))[::-1][:K] / (n - 1)
    fits: dict[str, Any] = {}
    for name, given in SOLVERS.items():
        if name != "covariance_eigh" or d <= n:
            fits[name] = lambda given=given: PCA(K, **given).fit(X)
    found = {name: seconds(fit) for name, fit in fits.items()}
    errors = {name: float(np.abs(r.explained_variance_ / squares - 1).max()) for name, (_, r) in found.items()}
    asked = errors[min(found, key=lambda name: found[name][0])]
    for tol in TOLS:
        run = simulate("auto", shards, n_components=K, tol=tol)
        errors["simulate"] = float(np.abs(run.explained_variance_ / squares - 1).max())
        if errors["simulate"] <= max(asked, RIGHT):
            break
    fits["simulate"] = lambda: simulate("auto", shards, n_components=K, tol=tol)
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(TIMES):
        for name, fit in fits.items():
            times[name].append(seconds(fit)[0])
    took_by = {name: statistics.median(took) for name, took in times.items()}
    best = min(took for name, took in took_by.items() if name != "simulate")
    cells = [f"{took_by[n] / best:.2f} ({errors[n]:.0e})" if n in took_by else "-" for n in ("simulate", *SOLVERS)]
    return [f"{n:,} x {d:,}", f"{tol:.0e}", *cells]


def _gram(X: Any) -> Any:
    return X.T @ X if X.shape[1] <= X.shape[0] else X @ X.T


def main() -> None:
    """Print the table."""
    print(table(["rows x columns", "tol", "simulate", *SOLVERS], [compared(*shape) for shape in SHAPES]))


if __name__ == "__main__":
    main()
