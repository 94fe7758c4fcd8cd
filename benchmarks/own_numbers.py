"""How many of the numbers that clients choose by local_components="auto" are those planted: docs/personal.md.

`python -m benchmarks.own_numbers [SEED]`: six clients with 0 to 8 own directions beside two common ones, in 17 draws of
each kind: noise alike in all columns, or spread over them evenly between two deviations, or by equal ratios. And how
many by n_components="shared": 1 to 4 of 20 to 60 columns, 3 to 12 clients of 40 to 200 rows.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks import table
from flower_pca import PersonalResult, simulate
from flower_pca.base.linalg import Array, sin_theta

TRUE, DRAWS, SHARED = (0, 1, 2, 3, 5, 8), 17, 100
KINDS = {
    "alike, .2": np.linspace(0.2, 0.2, 30),
    "evenly, .12 to .54": np.linspace(0.12, 0.54, 30),
    "by ratios, .05 to .5": np.geomspace(0.05, 0.5, 30),
    "by ratios, .01 to 1": np.geomspace(0.01, 1.0, 30),
}


def problem(deviations: Array, n: int, *, seed: int) -> tuple[list[Array], Array]:
    """Rows of the clients, and the common directions."""
    rng, d = np.random.default_rng([99, seed]), len(deviations)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    U, rest, deviations = Q[:, :2], Q[:, 2:], rng.permutation(deviations)
    shards = []
    for r in TRUE:
        V = rest @ np.linalg.qr(rng.standard_normal((d - 2, d - 2)))[0][:, :r]
        rows = 2.0 * rng.standard_normal((n, 2)) @ U.T + 3.0 * rng.standard_normal((n, r)) @ V.T
        shards.append(rows + deviations * rng.standard_normal((n, d)))
    return shards, U


def row(deviations: Array, n: int, seed: int) -> list[object]:
    """How many are right of all; the largest sine to the common space; the most messages."""
    right, sines, rounds = 0, [], []
    for draw in range(DRAWS):
        shards, U = problem(deviations, n, seed=1000 * seed + draw)
        result = simulate('exact_per_pca(local_components="auto")', shards, n_components=2, center=False)
        assert isinstance(result, PersonalResult)
        chosen = [len(result.local_components_of(i)) for i in range(len(TRUE))]
        right += int(np.sum(np.equal(chosen, TRUE)))
        sines.append(sin_theta(result.components_.T, U))
        rounds.append(len(result.history))
    return [f"{right} of {DRAWS * len(TRUE)}", f"{max(sines):.3f}", max(rounds)]


def shared_problem(rng: np.random.Generator, ratio: float) -> tuple[list[Array], int]:
    """Rows of clients, with noise of this ratio over the columns, and how many directions they share."""
    d, clients = int(rng.choice([20, 30, 60])), int(rng.choice([3, 4, 6, 12]))
    r1, n = int(rng.integers(1, 5)), int(rng.choice([40, 100, 200]))
    U, rest = np.hsplit(np.linalg.qr(rng.standard_normal((d, d)))[0], [r1])
    deviations = np.full(d, 0.2)
    if ratio > 1.0:
        deviations = rng.permutation(np.geomspace(1.0 / ratio, 1.0, d))
    shards = []
    for _ in range(clients):
        r2 = int(rng.integers(0, d // 6 + 1))
        V = rest @ np.linalg.qr(rng.standard_normal((d - r1, d - r1)))[0][:, :r2]
        rows = 2.0 * rng.standard_normal((n, r1)) @ U.T + 3.0 * rng.standard_normal((n, r2)) @ V.T
        shards.append(rows + deviations * rng.standard_normal((n, d)))
    return shards, r1


def shared(ratio: float, seed: int) -> str:
    """How many of the shared numbers are right."""
    right = 0
    for draw in range(SHARED):
        shards, r1 = shared_problem(np.random.default_rng([98, seed, draw, round(ratio)]), ratio)
        algorithm = "exact_per_pca(local_components=1, max_rounds=1)"
        right += simulate(algorithm, shards, n_components="shared", center=False).n_components_ == r1
    return f"{right} of {SHARED}"


if __name__ == "__main__":
    start = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for ratio in (1.0, 100.0):
        print(f"Shared numbers right with noise of ratio {ratio:.0f}: {shared(ratio, start)}", flush=True)
    lines = [[kind, n, *row(s, n, start)] for kind, s in KINDS.items() for n in (40, 200)]
    print(table(["noise", "rows", "numbers right", "sine at most", "messages at most"], lines))
