"""How far exact_per_pca is off its end where it ends by what the objective gains: drawn problems, drawn and real rows.

`python -m benchmarks.gains FOLDER --first 40`: a problem a seed. The folder holds the papers' data sets; clients have
rows of two kinds (labels), or rows as they come, or planted rows. The end is where 1,000 rounds with tol=1e-9 lead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from benchmarks import table
from flower_pca import ExactPerPCA, PersonalResult, simulate
from flower_pca.base.linalg import Array, sin_theta

SETS = {"mnist": "y", "fashion_mnist": "y", "covtype": "y7", "a9a": "y", "ijcnn1": "y", "w8a": "", "connect4": ""}
GAINS = (1e-4, 1e-5, 1e-6)
MOST_COLUMNS = 200


def planted(rng: np.random.Generator) -> tuple[str, list[Array]]:
    """Shared and own directions that fall in size, or are hardly larger than the noise, or are not there."""
    d, clients = int(rng.integers(15, 60)), int(rng.integers(3, 15))
    r1, r2 = int(rng.integers(1, 5)), int(rng.integers(0, 6))
    shared, own, noise = np.exp(rng.uniform(-1.0, 1.5, 3))
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    U, rest = Q[:, :r1], Q[:, r1:]
    shards = []
    for _ in range(clients):
        n = int(rng.integers(20, 300))
        V = rest @ np.linalg.qr(rng.standard_normal((d - r1, d - r1)))[0][:, :r2]
        rows = shared * rng.standard_normal((n, r1)) * np.linspace(1.0, 0.5, r1) @ U.T
        rows += own * rng.standard_normal((n, r2)) @ V.T + noise * rng.standard_normal((n, d))
        shards.append(rows)
    return f"planted {shared:.1f} {own:.1f} {noise:.1f}", shards


def real(rng: np.random.Generator, folder: Path) -> tuple[str, list[Array]]:
    """Rows of a set, by label or as they come, of up to 200 columns that vary."""
    name = str(rng.choice(["digits", *SETS]))
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        with np.load(folder / f"{name}.npz") as file:
            X = file["X"]
            y = np.zeros(len(X))
            if SETS[name]:
                y = file[SETS[name]]
    clients, n = int(rng.integers(4, 21)), int(rng.integers(40, 200))
    kinds, by_label = np.unique(y), rng.random() < 0.6
    shards = []
    for _ in range(clients):
        here = np.arange(len(X))
        if by_label and len(kinds) > 1:
            here = np.flatnonzero(np.isin(y, rng.choice(kinds, min(2, len(kinds) - 1), replace=False)))
        shards.append(X[rng.choice(here, min(n, len(here)), replace=False)].astype(np.float64))
    varies = np.flatnonzero(np.vstack(shards).std(axis=0) > 0.0)
    columns = np.sort(rng.choice(varies, min(MOST_COLUMNS, len(varies)), replace=False))
    return name, [rows[:, columns] for rows in shards]


def objective(result: PersonalResult) -> float:
    return max(r.metrics["objective"] for r in result.history if "objective" in r.metrics)


def compare(seed: int, folder: Path) -> list[object]:
    """Rounds to the end, and by each rule; how far each is off the end, in its objective and its components."""
    rng = np.random.default_rng([1309, seed])
    if seed % 3:
        name, shards = real(rng, folder)
    else:
        name, shards = planted(rng)
    d = shards[0].shape[1]
    most = max(1, min(6, d // 3))
    r1, r2 = int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))

    def run(**limits: float) -> PersonalResult:
        result = simulate(ExactPerPCA(local_components=r2, **limits), shards, n_components=r1, seed=seed)
        assert isinstance(result, PersonalResult)
        return result

    whole, usual = run(tol=1e-9, max_rounds=1000, patience=1000), run()
    end = objective(whole)
    cells: list[object] = [seed, name, f"{len(shards)} x {d}", f"{r1}, {r2}", len(whole.history)]
    for result in (usual, *(run(gain_tol=gain) for gain in GAINS)):
        gap = 1.0 - objective(result) / end
        sine = sin_theta(result.components_.T, whole.components_.T)
        cells.append(f"{len(result.history)} {result.status.outcome.value[:4]}, {gap:.1e}, {sine:.0e}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--problems", type=int, default=40)
    given = parser.parse_args()
    head = [
        "seed",
        "rows",
        "clients x d",
        "r1, r2",
        "rounds to 1e-9",
        "by default",
        *(f"gain_tol={g:g}" for g in GAINS),
    ]
    print(table(head, []), flush=True)
    for seed in range(given.first, given.first + given.problems):
        print(table(compare(seed, given.folder), []).splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
