"""What differential privacy leaves of the components: `python -m sims.private`.

The largest angle to the true space of five components, and the variance that the components found hold of what the true
ones do, against epsilon. Ten clients, rows shuffled. "Local": every client adds the noise in full, as without masks.
"Masked": under masks each adds a share, of which the six have it all that a sum cannot do without. "Summed": the noise
is added once, the least that is possible. delta is 1e-6, and 1e-7 for covtype. Units and clips are chosen from what is
public: grey values lie between 0 and 255; the ranges of covtype's columns count as known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import DP, simulate
from sims.common import data, problems, report
from sims.common.problems import Array

K: Final = 5
CLIENTS: Final = 10
KINDS: Final = {"summed": (1, False), "masked": (CLIENTS, True), "local": (CLIENTS, False)}  # clients, and masks
EPSILONS: Final = (0.5, 2.0, 8.0)
METHODS: Final = (
    "ssi(oversample=5, max_rounds=2)",
    "ssi(oversample=5, max_rounds=4)",
    "ssi(oversample=5, max_rounds=8)",
    "krylov(oversample=5, max_rounds=2)",
    "krylov(oversample=5, max_rounds=4)",
    "krylov(oversample=5, max_rounds=8)",
    "covariance",
)


@dataclass(frozen=True)
class Setting:
    """A data set in public units, and the clips that suit them."""

    units: Callable[[Array], Array]
    clip: float
    reach: float
    delta: float


SETS: Final = {
    "fashion_mnist": Setting(lambda X: X / np.float32(255.0), clip=10.0, reach=20.0, delta=1e-6),
    "covtype": Setting(lambda X: (X / np.abs(X).max(axis=0)).astype(np.float32), clip=2.0, reach=3.0, delta=1e-7),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line names."""
    report.main(argv, room="private", about=__doc__ or "", experiments=EXPERIMENTS, seeds=SEEDS)


def utility(name: str, X: Array, setting: Setting, *, seeds: int) -> report.Found:
    """A line for each algorithm and kind of noise: median angle in degrees / share of the variance, by epsilon."""
    C, V = truth(X)
    rows: list[list[object]] = [["algorithm", "noise", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]]
    for method in METHODS:
        for kind in KINDS:
            report.progress(f"{name}: {method}, {kind}")
            cells = [cell(X, C, V, setting, method, kind, epsilon, seeds) for epsilon in EPSILONS]
            rows.append([method, kind, *cells])
    n, d = X.shape
    bounds = f"clip {setting.clip:g}, reach {setting.reach:g}, delta {setting.delta:g}"
    note = f"Degrees / share of the variance. {n} rows of {d} columns, {bounds}."
    return report.Found(f"{name}: largest angle of {K} components, {CLIENTS} clients", rows, note)


def cell(X: Array, C: Array, V: Array, setting: Setting, method: str, kind: str, epsilon: float, seeds: int) -> str:
    """The medians over the seeds."""
    angles, shares = [], []
    clients, mask = KINDS[kind]
    for seed in range(seeds):
        dp = DP(epsilon=epsilon, delta=setting.delta, clip=setting.clip, reach=setting.reach, noise_seed=seed)
        shards = problems.evenly(problems.shuffled(X, seed), clients)
        found = simulate(method, shards, n_components=K, seed=seed, dp=dp, mask=mask).components_
        sine = float(np.linalg.norm(V - (V @ found.T) @ found, 2))
        angles.append(np.degrees(np.arcsin(min(1.0, sine))))
        shares.append(np.trace(found @ C @ found.T) / np.trace(V @ C @ V.T))
    return f"{np.median(angles):.1f} / {np.median(shares):.3f}"


def truth(X: Array) -> tuple[Array, Array]:
    """The covariance of all rows, and its leading eigenvectors as rows."""
    F = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    C = np.zeros((X.shape[1], X.shape[1]))
    for i in range(0, len(F), 4096):
        B = F[i : i + 4096].astype(np.float64)
        C += B.T @ B
    return C, np.linalg.eigh(C)[1][:, : -K - 1 : -1].T


def experiment(name: str, setting: Setting) -> Callable[[report.Options], report.Found]:
    """The table of one data set."""

    def run(given: report.Options) -> report.Found:
        X = setting.units(data.read(given.data_dir / f"{name}.npz").astype(np.float32))
        return utility(name, X, setting, seeds=given.seeds)

    return run


SEEDS: Final = (1, 5)  # in small size, and with --paper
EXPERIMENTS: Final[report.Experiments] = {name: experiment(name, setting) for name, setting in SETS.items()}

if __name__ == "__main__":
    report.command(main)
