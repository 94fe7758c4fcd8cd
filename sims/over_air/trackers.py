"""What the paper of `sims.over_air` compares with: simple PCA, NORST, GROUSE, PETRELS, and AltProj for a start.

Each takes a problem and returns a basis (columns) per batch. Written from the papers' descriptions, one row at a time
where the method is one of single rows.
"""

from __future__ import annotations

import numpy as np

from sims.over_air.moving import Array, Problem, orth


def simple_pca(problem: Problem) -> list[Array]:
    """The leading directions of every batch alone, with zeros for missing entries."""
    return [_leading(np.nan_to_num(Y), problem.r) for Y in _batches(problem)]


def closed_form(problem: Problem) -> list[Array]:
    """STMiss as a loop over rows, each completed by its own normal equations; LAPACK's SVD of the batch."""
    bases: list[Array] = []
    for Y in _batches(problem):
        L = np.nan_to_num(Y) if not bases else np.array([_complete(bases[-1], y) for y in Y])
        bases.append(_leading(L, problem.r))
    return bases


def norst(
    problem: Problem, *, update: int, seed: int = 0, threshold: float = 7.5961e-4
) -> tuple[list[Array], list[int]]:
    """NORST-miss: `update` batches of imputation and SVD, then none until a change is detected; and the detections."""
    n = problem.Y.shape[1]
    P = orth(np.random.default_rng([seed, 6]).standard_normal((n, problem.r)))
    bases, found, updating, k = [], [], True, 0
    for j, Y in enumerate(_batches(problem)):
        L = np.array([_complete(P, y) for y in Y])
        if updating:
            P, k = _leading(L, problem.r), k + 1
            updating = k < update
        elif np.linalg.norm(L - (L @ P) @ P.T, 2) ** 2 >= len(Y) * threshold:
            found.append(j)
            updating, k = True, 0
        bases.append(P)
    return bases, found


def grouse(problem: Problem, *, seed: int = 0) -> list[Array]:
    """GROUSE with the greedy step of Zhang and Balzano, arctan(|residual| / |fit|), one row after the other."""
    n = problem.Y.shape[1]
    U = orth(np.random.default_rng([seed, 7]).standard_normal((n, problem.r)))
    bases = []
    for Y in _batches(problem):
        for y in Y:
            seen = ~np.isnan(y)
            w = np.linalg.lstsq(U[seen], y[seen], rcond=None)[0]
            p, residual = U @ w, np.zeros(n)
            residual[seen] = y[seen] - p[seen]
            size, fit = np.linalg.norm(residual), np.linalg.norm(p)
            if size <= 1e-15 * fit:
                continue
            angle = np.arctan(size / fit)
            step = (np.cos(angle) - 1.0) * p / fit + np.sin(angle) * residual / size
            U = U + np.outer(step, w / np.linalg.norm(w))
        U = orth(U)
        bases.append(U)
    return bases


def petrels(problem: Problem, *, forget: float = 0.98, seed: int = 0) -> list[Array]:
    """PETRELS: recursive least squares for each column of the data, with forgetting."""
    n, r = problem.Y.shape[1], problem.r
    U = orth(np.random.default_rng([seed, 8]).standard_normal((n, r)))
    inverse = np.tile(100.0 * np.eye(r), (n, 1, 1))
    bases = []
    for Y in _batches(problem):
        for y in Y:
            seen = np.flatnonzero(~np.isnan(y))
            a = np.linalg.lstsq(U[seen], y[seen], rcond=None)[0]
            inverse /= forget
            V = inverse[seen] @ a
            beta = 1.0 + V @ a
            U[seen] += ((y[seen] - U[seen] @ a) / beta)[:, None] * V
            inverse[seen] -= V[:, :, None] * V[:, None, :] / beta[:, None, None]
            inverse[seen] = (
                inverse[seen] + inverse[seen].transpose(0, 2, 1)
            ) / 2  # else rounding grows like 1/forget^t
        bases.append(orth(U))
    return bases


def alt_proj(Y: Array, *, r: int, steps: int = 20) -> Array:
    """A start under outliers: alternating projections (Netrapalli et al. 2014); columns of a basis.

    Missing entries are made as large as the largest one, as in the authors' scripts, so that they count as outliers.
    Stage k thresholds what rank k leaves at beta (sigma_{k+1} + 2^-t sigma_k), beta = 1 / sqrt(longer side).
    """
    missing = np.isnan(Y)
    M = np.where(missing, np.nanmax(np.abs(Y)), Y)
    beta = 1.0 / np.sqrt(max(M.shape))
    L = np.zeros_like(M)
    S = _hard(M, beta * np.linalg.norm(M, 2))
    for k in range(1, r + 1):
        for t in range(steps):
            U, s, Vt = np.linalg.svd(M - S, full_matrices=False)
            L = (U[:, :k] * s[:k]) @ Vt[:k]
            S = _hard(M - L, beta * (s[k] + 0.5**t * s[k - 1]))
    return np.ascontiguousarray(np.linalg.svd(L, full_matrices=False)[2][:r].T)


def _hard(A: Array, level: float) -> Array:
    return np.where(np.abs(A) > level, A, 0.0)


def _batches(problem: Problem) -> list[Array]:
    return problem.batches()[0]


def _leading(L: Array, r: int) -> Array:
    return np.ascontiguousarray(np.linalg.svd(L, full_matrices=False)[2][:r].T)


def _complete(P: Array, y: Array) -> Array:
    seen = ~np.isnan(y)
    Q = P[seen]
    row = P @ np.linalg.solve(Q.T @ Q, Q.T @ y[seen])
    row[seen] = y[seen]
    return row
