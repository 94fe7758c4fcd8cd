"""How far triple_pca is off the shared directions, beside what could be had: sines of the largest angle.

`python -m benchmarks.far_entries [SEED] [DRAWS]`: eight clients of 200 rows and 40 columns, three shared and two own
directions, noise of .1 (root mean square over the columns, whose deviations have the given ratio), far entries of 20 to
30. Beside it, on the same rows without far entries: `exact_per_pca`, and least squares where own directions and all
coordinates are known, which nothing that has to find them can pass.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks import table
from flower_pca import simulate
from flower_pca.base import linalg
from flower_pca.base.linalg import Array, sin_theta

RATIOS, SHARES = (1.0, 10.0, 100.0), (0.02, 0.05, 0.1)
CLIENTS, ROWS, COLUMNS, SHARED, OWN = 8, 200, 40, 3, 2
SIZES = np.array([3.0] * SHARED + [2.0] * OWN)


def draw(ratio: float, share: float, seed: int) -> list[float]:
    """The three sines of one problem."""
    rng = np.random.default_rng([95, seed])
    U = linalg.orth(rng.standard_normal((COLUMNS, SHARED)))
    deviations = rng.permutation(np.geomspace(1.0 / ratio, 1.0, COLUMNS))
    deviations *= 0.1 / np.sqrt(np.mean(deviations**2))
    clean, spoilt, scores, rest = [], [], [], []
    for _ in range(CLIENTS):
        V = linalg.orth(linalg.complement(rng.standard_normal((COLUMNS, OWN)), U))
        T = SIZES * rng.standard_normal((ROWS, SHARED + OWN))
        noise = deviations * rng.standard_normal((ROWS, COLUMNS))
        X = T @ np.hstack([U, V]).T + noise
        sizes = rng.choice([-1.0, 1.0], X.shape) * rng.uniform(20.0, 30.0, X.shape)
        clean.append(X)
        spoilt.append(X + np.where(rng.random(X.shape) < share, sizes, 0.0))
        scores.append(T[:, :SHARED])
        rest.append(X - T[:, SHARED:] @ V.T)
    ours = simulate(f"triple_pca(local_components={OWN})", spoilt, n_components=SHARED)
    plain = simulate(f"exact_per_pca(local_components={OWN}, tol=1e-8)", clean, n_components=SHARED, center=False)
    known = np.linalg.lstsq(np.vstack(scores), np.vstack(rest), rcond=None)[0].T
    return [sin_theta(Z, U) for Z in (ours.components_.T, plain.components_.T, linalg.orth(known))]


def row(ratio: float, share: float, seed: int, draws: int) -> list[object]:
    """Medians and the largest."""
    sines: Array = np.array([draw(ratio, share, 1000 * seed + i) for i in range(draws)])
    cells = [f"{np.median(column):.4f}, {column.max():.4f}" for column in sines.T]
    return [f"{ratio:.0f}", f"{share:.0%}", *cells]


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    lines = [row(ratio, share, first, count) for ratio in RATIOS for share in SHARES]
    heads = [
        "ratio of noise",
        "far entries",
        "triple_pca: median, most",
        "exact_per_pca without them",
        "all else known",
    ]
    print(table(heads, lines))
