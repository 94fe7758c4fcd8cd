"""PCA of daily temperature curves that five weather services keep to themselves: python examples/quickstart.py."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from flower_pca import Table, simulate

# name: days of records, mean temperature, daily swing, spread of the swing, hour of the peak, noise
SERVICES = {
    "north": (1800, 6.0, 2.5, 1.0, 14.0, 0.6),
    "coast": (650, 11.0, 3.0, 0.8, 12.5, 0.4),
    "plains": (1200, 12.0, 6.0, 2.2, 15.0, 0.9),
    "desert": (300, 17.0, 9.0, 1.5, 16.5, 0.5),
    "islands": (90, 14.0, 1.5, 0.5, 12.0, 1.2),
}
HOURS = np.arange(24)
NAMES = tuple(f"{hour:02d}:00" for hour in HOURS)  # of the columns; a data frame would bring its own


def temperatures(seed: int = 7) -> dict[str, np.ndarray]:
    """One row per day, one column per hour, for every service."""
    rng = np.random.default_rng(seed)
    shards = {}
    for name, (days, mean, swing, spread, peak, noise) in SERVICES.items():
        level = mean + 4.0 * rng.standard_normal((days, 1))
        amplitude = swing + spread * rng.standard_normal((days, 1))
        hour = peak + 0.8 * rng.standard_normal((days, 1))
        day = amplitude * np.cos(2.0 * np.pi * (HOURS - hour) / 24.0)
        passes, drop = rng.uniform(0.0, 24.0, (days, 1)), np.abs(2.0 * rng.standard_normal((days, 1)))
        front = -drop / (1.0 + np.exp(-(HOURS - passes) / 1.2))
        shards[name] = level + day + front + noise * rng.standard_normal((days, 24))
    return shards


def angle(A: np.ndarray, B: np.ndarray) -> float:
    """Largest angle in degrees between two spaces spanned by orthonormal rows."""
    return float(np.degrees(np.arcsin(min(1.0, np.linalg.norm(A - (A @ B.T) @ B, 2)))))


def top(X: np.ndarray, k: int) -> np.ndarray:
    """The first k components of one array, as rows, with the signs that scikit-learn gives them."""
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]
    largest = np.abs(V).argmax(axis=1)
    return V * np.sign(V[np.arange(k), largest])[:, None]


def main() -> None:
    """Run, compare with the pooled data, and keep the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results (default: out)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    sites = temperatures()
    shards = list(sites.values())
    tables = {site: Table(X, names=NAMES) for site, X in sites.items()}
    result = simulate("krylov", tables, n_components=3)
    one_shot = simulate("uda", tables, n_components=3)

    pooled = top(np.vstack(shards), 3)
    average = np.linalg.svd(np.mean([top(X, 3) for X in shards], axis=0), full_matrices=False)[2]

    print("Five weather services, 24 hourly temperatures a day:")
    print("  " + ", ".join(f"{name} {len(X)}" for name, X in zip(SERVICES, shards, strict=True)) + " days\n")
    print(result.table())
    print(f"\n{result.status}")
    print(f"{len(result.history)} messages, {result.history.bytes_up / 1e3:.0f} kB sent by all clients together\n")
    print("Angle to the PCA of the pooled rows, in degrees:")
    print(f"  krylov                              {angle(result.components_, pooled):10.1e}")
    print(f"  uda, an average of local subspaces  {angle(one_shot.components_, pooled):10.1f}")
    print(f"  plain average of local components   {angle(average, pooled):10.1f}\n")
    print(f"components  {result.save(out / 'quickstart.npz').resolve()}")
    print(f"picture     {result.plot('overview', out / 'quickstart.png').resolve()}")


if __name__ == "__main__":
    main()
