"""Rounds and final angles on real sets, scaled by the largest |x|, not centered, k = 5, as in the LocalPower paper.

`python -m benchmarks.real FOLDER`: the folder holds a9a.npz, abalone.npz, connect4.npz and covtype.npz, each with X.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from builders import evenly

from benchmarks import table
from flower_pca import make, simulate

CLIENTS = {"a9a": 32, "abalone": 4, "connect4": 60, "covtype": 60}
RUNS = {
    "ssi": "ssi(oversample=0)",
    "q=4": "local_power(oversample=0, local_steps=4, decay=False)",
    "decay 8": "local_power(oversample=0, local_steps=8, halve_every=3)",
    "krylov": "krylov(oversample=0)",
}
LEVELS, MOST, K, SEEDS = (5e-2, 1e-3, 1e-6), 200, 5, range(3)


def errors(algorithm: str, shards: list[Any], basis: Any, seed: int) -> list[float]:
    """The sine of the largest angle after each message that carried a product."""
    course: list[float] = []

    def on_round(session: Any) -> None:
        Z = session.estimate()
        course.append(float(np.linalg.norm(basis - Z @ (Z.T @ basis), 2)))

    simulate(
        make(algorithm, tol=1e-9, max_rounds=MOST, patience=MOST), shards, n_components=K, center=False,
        scale="max_abs", seed=seed, on_round=on_round,
    )  # fmt: skip
    return course


def first(course: list[float], level: float) -> str:
    """The message after which the error stays at most `level`."""
    above = [i for i, error in enumerate(course) if error > level]
    below = above[-1] + 2 if above else 1
    return str(below) if below <= len(course) else "-"


if __name__ == "__main__":
    rows: list[list[object]] = []
    for name, clients in CLIENTS.items():
        X = np.load(Path(sys.argv[1]) / f"{name}.npz")["X"].astype(np.float64)
        peak = np.abs(X).max(axis=0)
        Y = X / np.where(peak > 0, peak, 1.0)
        basis = np.linalg.eigh(Y.T @ Y)[1][:, ::-1][:, :K]
        for label, algorithm in RUNS.items():
            cells = []
            for seed in SEEDS:
                shards = evenly(X[np.random.default_rng(seed).permutation(len(X))], clients)
                course = errors(algorithm, shards, basis, seed)
                cells.append("/".join(first(course, level) for level in LEVELS))
            rows.append([name, label, *cells])
        print(f"{name} done", file=sys.stderr)
    print(table(["data", "algorithm", *(f"seed {seed}" for seed in SEEDS)], rows))
