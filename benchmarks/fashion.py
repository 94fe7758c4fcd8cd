"""`flower-pca run` beside scikit-learn's randomized PCA on the same table, in one process, one after the other.

`python -m benchmarks.fashion FILE`: an npz whose X has 60000 rows of 784 pixels, as Fashion-MNIST has. The command
deals the rows to 16 clients and does all that it does for a user: it reads the file, runs, writes its three files.
scikit-learn is given the array in memory. The reference for the variances is its exact solver.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from benchmarks import table
from flower_pca import PCAResult, cli, simulate

CLIENTS, K, TOL, REPEATS = 16, 5, 1e-6, 3


def command(source: str, folder: str) -> tuple[float, PCAResult]:
    """Seconds of the whole command, and what it has written."""
    words = ["run", source, "--clients", str(CLIENTS), "--components", str(K), "--tol", str(TOL), "--out", folder]
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(words)
    seconds = time.perf_counter() - began
    assert code == 0
    return seconds, PCAResult.load(Path(folder) / "result.npz")


if __name__ == "__main__":
    X = np.load(sys.argv[1])["X"]
    rows: list[list[object]] = []
    exact = PCA(K, svd_solver="covariance_eigh").fit(X.astype(np.float64)).explained_variance_
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            whole, result = command(sys.argv[1], folder)
        began = time.perf_counter()
        simulate("krylov", np.array_split(X, CLIENTS), n_components=K, tol=TOL)
        run = time.perf_counter() - began
        began = time.perf_counter()
        randomized = PCA(K, svd_solver="randomized", random_state=0).fit(X)
        theirs = time.perf_counter() - began
        error = np.abs(result.explained_variance_ / exact - 1.0).max()
        other = np.abs(randomized.explained_variance_ / exact - 1.0).max()
        times = [f"{whole / theirs:.2f}", f"{run / theirs:.2f}"]
        rows.append([result.rounds, len(result.history), f"{error:.1e}", f"{other:.1e}", *times])
    head = ["rounds", "messages", "error of the variances", "scikit-learn's", "time of the command", "of the run"]
    print(table(head, rows))
