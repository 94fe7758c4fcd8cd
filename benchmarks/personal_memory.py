"""Personalized PCA without any d x d matrix, against S_i = X_i'X_i / n_i formed: time, memory, and the difference.

Ten clients of 60 rows and 2000 columns, 20 rounds of choice 1 by the client's half of PerPCA, and the same in plain
numpy on S_i. Ratios taken in one run. `python -m benchmarks.personal_memory`
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from benchmarks import table
from flower_pca import make
from flower_pca.base.linalg import Array
from flower_pca.rows.local import LocalData

CLIENTS, N, D, R1, R2, ROUNDS, ETA = 10, 60, 2000, 2, 3, 20, 0.1


def products(shards: list[Array], U: Array) -> Array:
    """PerPCA's own halves."""
    stage = make("per_pca", local_components=R2, eta=ETA)
    clients, memory = [LocalData(X) for X in shards], [{"V": start(i)} for i in range(len(shards))]
    small = {name: np.array(value) for name, value in {"own": R2, "eta": ETA, "choice": 1}.items()}
    flags = {name: np.array(value) for name, value in {"samples": False, "polar": True}.items()}
    for _ in range(ROUNDS):
        total = np.zeros_like(U)
        for i, data in enumerate(clients):
            up, memory[i] = stage.client({"U": U, "b": U[:, :1], **small, **flags}, data, memory[i])
            total += up["M"]
        U = np.linalg.qr(total)[0]
    return U


def formed(shards: list[Array], U: Array) -> Array:
    """The paper's formula on S_i."""
    S, V = [X.T @ X / len(X) for X in shards], [start(i) for i in range(len(shards))]
    for _ in range(ROUNDS):
        total = np.zeros_like(U)
        for i, C in enumerate(S):
            W = np.hstack([U, np.linalg.qr(V[i] - U @ (U.T @ V[i]))[0]])
            G = C @ W
            W = W + ETA * (G - W @ (W.T @ G + G.T @ W) / 2.0)
            total += W[:, :R1]
            V[i] = np.linalg.qr(W[:, R1:])[0]  # the span is what counts
        U = np.linalg.qr(total)[0]
    return U


def start(i: int) -> Array:
    return np.linalg.qr(np.random.default_rng([1, i]).standard_normal((D, R2)))[0]


def measured(run: Callable[[list[Array], Array], Array], shards: list[Array], U: Array) -> tuple[Array, float, float]:
    """The result, the least time of three runs, and the peak of what a run allocates in MB."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        result = run(shards, U)
        times.append(time.perf_counter() - began)
    tracemalloc.start()
    run(shards, U)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, min(times), peak / 2**20


def main() -> None:
    rng = np.random.default_rng(0)
    shards = [rng.standard_normal((N, D)) / 10.0 for _ in range(CLIENTS)]
    U = np.linalg.qr(rng.standard_normal((D, R1)))[0]
    (a, fast, small), (b, slow, large) = (measured(run, shards, U) for run in (products, formed))
    off = float(np.linalg.norm(a @ a.T @ b - b, 2))
    rows: list[list[object]] = [["rows", "1", f"{small:.1f}", f"{off:.0e}"]]
    rows.append(["S_i formed", f"{slow / fast:.1f}", f"{large:.1f}", "0"])
    print(table(["form", "time", "MB allocated at the peak", "sine between the results"], rows))


if __name__ == "__main__":
    main()
