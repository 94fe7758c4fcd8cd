"""The README's table of algorithms: messages until the components are right, on Fashion-MNIST, 16 clients, k = 5.

`python -m benchmarks.choose FOLDER`: the folder holds fashion_mnist.npz, whose rows X are sorted by class. Every third
row is taken. Unlike clients hold these rows as they come, one or two classes each; alike clients hold them shuffled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from builders import evenly

from benchmarks import table
from benchmarks.real import first
from flower_pca import make, registry, simulate
from flower_pca.core.algorithm import Iterative

LEVELS, MOST, K = (1e-2, 1e-6), 600, 5


def errors(algorithm: str, shards: list[Any], basis: Any) -> list[float]:
    """The sine of the largest angle after each message."""
    course: list[float] = []

    def on_round(session: Any) -> None:
        Z = session.estimate()
        course.append(float(np.linalg.norm(basis - Z @ (Z.T @ basis), 2)))

    iterative = issubclass(registry.ALGORITHMS[algorithm], Iterative)
    stop: dict[str, Any] = {"tol": 1e-8, "max_rounds": MOST, "patience": MOST} if iterative else {}
    stop |= {"oversample": 0} if algorithm in ("ssi", "local_power") else {}  # as many columns as components
    simulate(make(algorithm, **stop), shards, n_components=K, on_round=on_round)
    return course


def cell(course: list[float]) -> str:
    """Messages to each level, and where it ends if that is above the finest."""
    counts = [first(course, level) for level in LEVELS]
    return " / ".join(counts) + (f" (ends at {course[-1]:.1e})" if "-" in counts else "")


if __name__ == "__main__":
    X = np.load(Path(sys.argv[1]) / "fashion_mnist.npz")["X"][::3].astype(np.float64)
    basis = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:K].T
    shuffled = X[np.random.default_rng(0).permutation(len(X))]
    rows: list[list[object]] = []
    for name in registry.ALGORITHMS:
        rows.append([name, *(cell(errors(name, evenly(part, 16), basis)) for part in (shuffled, X))])
        print(f"{name} done", file=sys.stderr)
    print(table(["algorithm", "alike clients", "unlike clients"], rows))
