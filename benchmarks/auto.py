"""What krylov and covariance take at d columns and k components, and which of them auto takes: docs/choosing.md.

`python -m benchmarks.auto FOLDER`: the folder holds a9a.npz, connect4.npz, covtype.npz and fashion_mnist.npz, each with
X, and debates_counts.npz, sparse. 10,000 rows of each at four clients, d of its varying columns, evenly chosen, scaled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks import table
from flower_pca import simulate

SETS, COLUMNS, COMPONENTS = ("a9a", "connect4", "covtype", "fashion_mnist"), (10, 50, 100, 200, 1000), (2, 5, 10)


def rows(folder: Path) -> list[Any]:
    """10,000 rows of each set, without columns that never vary; of the words, the thousand most frequent."""
    found = [np.load(folder / f"{name}.npz")["X"] for name in SETS]
    words = scipy.sparse.load_npz(folder / "debates_counts.npz").toarray()
    found.append(words[:, np.argsort(-words.sum(axis=0))[:1000]])
    drawn = [X[np.random.default_rng(0).permutation(len(X))[:10_000]].astype(np.float64) for X in found]
    return [X[:, X.std(axis=0) > 0.0] for X in drawn]


def span(values: list[Any]) -> str:
    """The least and the largest value, or the one that there is."""
    least, most = (f"{value:,.0f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


if __name__ == "__main__":
    every, lines = rows(Path(sys.argv[1])), list[list[object]]()
    for d in COLUMNS:
        for k in COMPONENTS:
            cells, taken = [], set()
            fit = [X[:, np.linspace(0, X.shape[1] - 1, d).astype(int)] for X in every if X.shape[1] >= d]
            for algorithm in ("krylov", "covariance", "auto"):
                runs = [simulate(algorithm, np.array_split(X, 4), n_components=k, scale="std") for X in fit]
                sizes = [(r.history.bytes_up + r.history.bytes_down) / 4e3 for r in runs]
                cells.append(f"{span([len(r.history) for r in runs])} / {span(sizes)}")
                taken = {r.algorithm.split("(")[0] for r in runs}
            lines.append([d, k, *cells[:2], ", ".join(sorted(taken))])
            print(d, k, "done", file=sys.stderr)
    print(table(["d", "k", "krylov", "covariance", "auto takes"], lines))
