"""Subspaces that move, rows with gaps and outliers, and how wrong a tracked basis is: the problems of `sims.over_air`.

Arrays have samples as rows, n = d columns; J batches of alpha rows. Every part of a problem has a random stream of its
own, so that one may change without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

ALPHA: Final = 60
SPREAD: Final = 100.0  # f: coefficients are uniform on +-sqrt(f) in the first direction, +-sqrt(f)/2 in the last


@dataclass(frozen=True)
class Problem:
    """Observed rows with NaN where missing, the true rows, where outliers are, and the true basis of each batch."""

    Y: Array
    L: Array
    outliers: Array
    truth: Array
    r: int
    alpha: int = ALPHA

    def batches(self, clients: int = 1) -> list[list[Array]]:
        """The batches of every client: rows of a batch are dealt in turn."""
        cuts = range(0, len(self.Y), self.alpha)
        return [[self.Y[s : s + self.alpha][k::clients] for s in cuts] for k in range(clients)]


def orth(A: Array) -> Array:
    """An orthonormal basis of the span."""
    return np.linalg.qr(A)[0]


def se(P: Array, U: Array) -> float:
    """||(I - PP')U||_2: the sine of the largest angle, for orthonormal columns."""
    return float(np.linalg.norm(U - P @ (P.T @ U), 2))


def errors(bases: Sequence[Array], truth: Array) -> Array:
    """The error of each batch's basis (columns) against the truth (rows of components)."""
    return np.array([se(P, U.T) for P, U in zip(bases, truth, strict=True)])


def piecewise(*, n: int, r: int, d: int, change: int, rho: float, seed: int, mean: float = 0.0) -> Problem:
    """A fixed subspace that gives way to an independent one at row `change`."""
    basis, coefficients, gaps = (np.random.default_rng([seed, stream]) for stream in range(3))
    U = [orth(basis.standard_normal((n, r))) for _ in range(2)]
    A = _coefficients(coefficients, d, r) + mean
    L = np.vstack([A[:change] @ U[0].T, A[change:] @ U[1].T])
    truth = np.array([U[int(j * ALPHA >= change)].T for j in range(d // ALPHA)])
    return _observed(L, truth, r, gaps.random(L.shape) < rho)


def rotating(*, n: int, r: int, d: int, rho: float, seed: int, delta: float = 1e-4) -> Problem:
    """U_t = exp(delta B) U_{t-1} in every row, one skew-symmetric B; the truth is that of the rows of a batch."""
    from scipy.linalg import expm

    basis, coefficients, gaps = (np.random.default_rng([seed, stream]) for stream in range(3))
    G = basis.standard_normal((n, n))
    turn = expm(delta * (G - G.T) / 2)
    U, A = orth(basis.standard_normal((n, r))), _coefficients(coefficients, d, r)
    L = np.empty((d, n))
    for t in range(d):
        L[t] = U @ A[t]
        U = turn @ U
    parts = L.reshape(d // ALPHA, ALPHA, n)
    truth = np.array([np.linalg.svd(part, full_matrices=False)[2][:r] for part in parts])
    return _observed(L, truth, r, gaps.random(L.shape) < rho)


def corrupted(problem: Problem, *, seed: int, share: float = 0.05, moving: int = 0) -> Problem:
    """With outliers uniform on 15..25 on a random share of the observed entries, or on an object of `moving` columns.

    The object stands still for ten rows, then moves on by its own size, down and up again.
    """
    rng = np.random.default_rng([seed, 3])
    d, n = problem.Y.shape
    where = rng.random((d, n)) < share
    if moving:
        places = np.concatenate([np.arange(0, n - moving + 1, moving), np.arange(n - moving, -1, -moving)])
        where[:] = False
        for t in range(d):
            start = int(places[(t // 10) % len(places)])
            where[t, start : start + moving] = True
    where &= ~np.isnan(problem.Y)
    Y = problem.Y + np.where(where, rng.uniform(15.0, 25.0, (d, n)), 0.0)
    return Problem(Y, problem.L, where, problem.truth, problem.r, problem.alpha)


def block_missing(problem: Problem, *, width: int) -> Problem:
    """With a block of `width` columns missing beside the random gaps, which moves on with every batch."""
    Y = problem.Y.copy()
    for t in range(len(Y)):
        start = (t // problem.alpha * width) % (Y.shape[1] - width + 1)
        Y[t, start : start + width] = np.nan
    return Problem(Y, problem.L, problem.outliers, problem.truth, problem.r, problem.alpha)


def near(U: Array, sine: float, seed: int) -> Array:
    """A basis at this sine from the span of the columns of U."""
    D = np.random.default_rng([seed, 4]).standard_normal(U.shape)
    D -= U @ (U.T @ D)
    return orth(U + np.tan(np.arcsin(sine)) * D / np.linalg.norm(D, 2))


def low_rank(*, n: int, r: int, s: float, seed: int) -> tuple[Array, Array]:
    """Rows (r + 1 of them count) with singular values s, r times, and 1; and the leading r directions, as columns."""
    B = orth(np.random.default_rng([seed, 5]).standard_normal((n, 2 * (r + 1))))
    U, V = B[:, : r + 1], B[:, r + 1 :]
    return (V * np.append(np.full(r, s), 1.0)) @ U.T, U[:, :r]


def _coefficients(rng: np.random.Generator, d: int, r: int) -> Array:
    q = np.linspace(np.sqrt(SPREAD), np.sqrt(SPREAD) / 2, r)
    return np.asarray(rng.uniform(-q, q, (d, r)))


def _observed(L: Array, truth: Array, r: int, missing: Array) -> Problem:
    return Problem(np.where(missing, np.nan, L), L, np.zeros(L.shape, dtype=bool), truth, r)
