"""Products with C until the singular values are right to 1.1e-7, not centered, on the synthetic problems."""

from __future__ import annotations

from typing import Any

import numpy as np
from builders import arithmetic, deal, evenly, geometric, uneven

from benchmarks import table
from flower_pca import simulate

TARGET, MOST, SEEDS = 1.1e-7, 400, range(3)


class _ReachedError(Exception):
    pass


def products(algorithm: str, shards: list[Any], k: int, seed: int) -> str:
    """Messages that carried a product, the opening included, until the relative error is at most TARGET."""
    C = sum(X.T @ X for X in shards)
    true = np.sqrt(np.linalg.eigvalsh(C)[::-1][:k])
    count = 0

    def on_round(session: Any) -> None:
        nonlocal count
        count += 1
        Z = session.estimate()
        found = np.sqrt(np.linalg.eigvalsh(Z.T @ C @ Z)[::-1][:k])
        if np.linalg.norm(found - true) <= TARGET * np.linalg.norm(true):
            raise _ReachedError

    try:
        simulate(
            algorithm, shards, n_components=k, center=False, seed=seed, tol=0.0, max_rounds=MOST, patience=MOST,
            on_round=on_round,
        )  # fmt: skip
    except _ReachedError:
        return str(count)
    return f"> {MOST}"


def problems() -> dict[str, tuple[list[Any], int, tuple[str, ...]]]:
    """Name: rows by client, k, algorithms that end in reasonable time."""
    every = ("krylov", "ssi(oversample=0)", "faps")
    return {
        "1.01^(1-j), d=1000, k=10": (evenly(geometric(2000, 1000, ratio=1.01, seed=0), 8), 10, every),
        "1.01^(1-j), d=2000, k=20": (evenly(geometric(4000, 2000, ratio=1.01, seed=0), 8), 20, ("krylov",)),
        "1.001^(1-j), d=1000, k=10": (evenly(geometric(2000, 1000, ratio=1.001, seed=0), 8), 10, ("krylov",)),
        "arithmetic, condition 100, d=1000, k=10": (
            evenly(arithmetic(2000, 1000, condition=100.0, seed=0), 8), 10, ("krylov",),
        ),
        "1.01^(1-j), 8 clients of 1000 i rows": (
            deal(geometric(36000, 1000, ratio=1.01, seed=0), uneven(36000, 8)), 10, every,
        ),
    }  # fmt: skip


if __name__ == "__main__":
    rows: list[list[object]] = []
    for name, (shards, k, algorithms) in problems().items():
        counts = {a: ", ".join(products(a, shards, k, seed) for seed in SEEDS) for a in algorithms}
        rows.append([name, *(counts.get(a, "not run") for a in ("krylov", "faps", "ssi(oversample=0)"))])
    print(table(["singular values", "krylov", "faps", "ssi"], rows))
