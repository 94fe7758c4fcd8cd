"""Two tables with the same statistics, and a message for every stage that compares no rows.

The tables are of whole numbers: with Q = 11'/2 - I on every four rows, QX has the sums and the squares of X, all exact.
"""

import numpy as np

from flower_pca import registry

D = 9
SPLIT = {"columns_opening", "loadings"}  # stages of runs over columns: a node answers with scores by its own rule
SILENT = {"standardize", "names"}  # stages that ask for nothing about the rows
PLAIN = sorted(name for name, stage in registry.STAGES.items() if not stage.by_row and name not in SPLIT | SILENT)


def twins(n=64, seed=0, kind=np.asarray):
    """Two tables with no row in common and the same statistics; the last rows, with the peaks, are those of both."""
    rng = np.random.default_rng([seed, n])
    X = 2 * rng.integers(-20, 20, (n, D)) * (rng.random((n, D)) < 0.7)
    X += 8 * rng.integers(-4, 5, (n, 1)) * np.arange(D)
    X[-4:-2], X[-2:] = 1000, -1000
    Y = X.copy()
    for i in range(0, n - 4, 4):
        Y[i : i + 4] = X[i : i + 4].sum(axis=0) // 2 - X[i : i + 4]
    order = rng.permutation(n)
    return kind(X.astype(np.float64)), kind(Y[order].astype(np.float64))


def questions(rng, Z):
    """A message for every stage that compares no rows."""
    number = lambda value: np.array(value)  # noqa: E731
    return {
        "opening": {"peaks": number(True), "block": Z},
        "summed_opening": {"peaks": number(False), "reference": rng.standard_normal(D) * 1e15, "block": Z},
        "median_pca": {"rank": number(3), "weighted": number(False)}, "medians": {"Z": Z},
        "adjusted_opening": {"peaks": number(True), "block": Z, "covariates": number(0)},
        "adjusted_summed_opening": {"peaks": number(False), "reference": rng.standard_normal(D) * 1e15, "block": Z,
                          "covariates": number(0)},
        "harmonized_opening": {"covariates": number(0)}, "harmonized_summed_opening": {"covariates": number(0)},
        "explain": {"Z": Z, "places": np.zeros(0)},
        "sparse_pca": {"Z": Z}, "oblique": {"Z": Z}, "shared": {"B": Z},
        "ritz": {"Z": Z}, "evaluate": {"Z": Z}, "ssi": {"Z": Z}, "krylov": {"B": Z}, "fed_oapm": {"U": Z},
        "local_power": {"Z": Z, "steps": number(3), "aligned": number(True)},
        "faps": {"Z": Z, "inner_steps": number(2), "inner_tol": number(0.0)},
        "uda": {"rank": number(3), "weighted": number(False)}, "wda": {"rank": number(3), "weighted": number(True)},
        "dist_pca": {"rank": number(5), "weighted": number(False)},
        "dr_svd": {"step": number(2), "block": Z, "part": rng.standard_normal((3, 3))},
        "covariance": {"columns": number(D)},
        "per_pca": {"U": Z, "b": Z[:, :1], "own": number(2), "samples": number(False), "eta": number(1e-3),
                    "choice": number(1), "polar": number(True), "seed": number(1)},
        "exact_per_pca": {"U": Z, "b": Z[:, :1], "own": number(2), "samples": number(True), "steps": number(0)},
        "personal": {"U": Z, "b": Z[:, :1], "own": number(2), "exact": number(True), "steps": number(0),
                     "collect": number(True)},
    }  # fmt: skip
