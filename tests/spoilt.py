"""Rows of low rank with outlying entries, and what a robust PCA made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from flower_pca import PCAResult

Array = np.ndarray[Any, Any]


def pose(n: int, r: int, s: float, seed: int, d: int | None = None) -> tuple[Array, Array]:
    """Low rank plus far entries of the size of the paper's, from a stream of their own."""
    d = n if d is None else d
    rng = np.random.default_rng([seed, 77])
    L = rng.standard_normal((n, r)) @ rng.standard_normal((r, d))
    S = np.zeros(n * d)
    places = rng.choice(n * d, round(s * n * d), replace=False)
    S[places] = np.sqrt(n * d) * rng.choice([-1.0, 1.0], len(places))
    return L, S.reshape(n, d)


def own(result: PCAResult, name: str) -> Array:
    return np.vstack([result.local[i][name] for i in sorted(result.local)])


def rel(result: PCAResult, L: Array) -> float:
    return float(np.linalg.norm(own(result, "L") - L) / np.linalg.norm(L))


def err(result: PCAResult, L: Array, S: Array) -> float:
    """The paper's measure (30)."""
    off = np.sum((own(result, "L") - L) ** 2) + np.sum((own(result, "S") - S) ** 2)
    return float(off / (np.sum(L**2) + np.sum(S**2)))


def sv_error(result: PCAResult, L: Array, r: int) -> float:
    s, true = (np.linalg.svd(A, compute_uv=False) for A in (own(result, "L"), L))
    return float(np.abs(s - true).max() / true[r - 1])


SMALL = pose(120, 5, 0.05, seed=4, d=80)
ROWS = SMALL[0] + SMALL[1]
