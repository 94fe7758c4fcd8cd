"""Robust PCA on pooled data: the paper's problems, and APGM, ALM and IALM, each a generator of its iterates (L, S)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

Array: TypeAlias = npt.NDArray[Any]
Iterates: TypeAlias = Iterator[tuple[Array, Array]]
Method: TypeAlias = Callable[[Array], Iterates]

_TOL: Final = 1e-7


@dataclass(frozen=True, eq=False)
class Mixed:
    """M = L + S, with the truth."""

    L: Array
    S: Array

    @property
    def M(self) -> Array:
        """What the clients hold."""
        return np.asarray(self.L + self.S)

    def errors(self, L: Array, S: Array) -> tuple[float, float]:
        """Err and relL."""
        off, on = np.sum((L - self.L) ** 2) + np.sum((S - self.S) ** 2), np.sum(self.L**2) + np.sum(self.S**2)
        return float(off / on), float(np.linalg.norm(L - self.L) / np.linalg.norm(self.L))


def pose(n: int, r: int, s: float, seed: int, *, zeros: bool = False) -> Mixed:
    """The paper's data, of a stream that no initialiser draws from; with zeros a third of the drawn entries are 0."""
    rng = np.random.default_rng([seed, 2024])
    L = rng.standard_normal((n, r)) @ rng.standard_normal((r, n))
    S = np.zeros(n * n)
    places = rng.choice(n * n, round(s * n * n), replace=False)
    S[places] = n * rng.choice([-1.0, 0.0, 1.0] if zeros else [-1.0, 1.0], len(places))
    return Mixed(L, S.reshape(n, n))


def sv_error(L: Array, truth: Array, r: int, *, rank: int | None = None) -> float:
    """max_i |s_i(L) - s_i(L0)| / s_r(L0); of a known bound on the rank of both, at a fraction of the cost."""
    s, true = (np.linalg.svd(_folded(X, rank), compute_uv=False) for X in (L, truth))
    return float(np.abs(s - true).max() / true[r - 1])


def _folded(X: Array, rank: int | None) -> Array:
    """A matrix of `rank` rows and columns with the singular values of X, which has no higher rank."""
    if rank is None:
        return X
    Q = np.linalg.qr(X @ np.random.default_rng(0).standard_normal((X.shape[1], rank)))[0]
    return np.asarray(np.linalg.qr((Q.T @ X).T, mode="r"))


def soft(X: Array, lam: float) -> Array:
    """Every entry drawn towards zero by lam."""
    return np.asarray(X - np.clip(X, -lam, lam))


def shrunk(X: Array, tau: float) -> Array:
    """Singular values drawn towards zero by tau."""
    U, s, Vt = above(X, tau)
    return np.asarray((U * (s - tau)) @ Vt)


def above(X: Array, tau: float) -> tuple[Array, Array, Array]:
    """The singular values above tau and their vectors, a quarter of the cost of all at n = 3000.

    X'X tells which directions they have, to half of the digits of the largest; X in these directions has all digits.
    """
    V = eigh(X.T @ X, subset_by_value=(tau * tau, np.inf))[1]
    U, s, W = np.linalg.svd(X @ V, full_matrices=False)
    return U, s, W @ V.T


def largest(X: Array) -> float:
    """The largest singular value."""
    last = X.shape[1] - 1
    return float(np.sqrt(eigh(X.T @ X, eigvals_only=True, subset_by_index=(last, last))[0]))


def apgm(M: Array, *, most: int = 200) -> Iterates:
    """Accelerated proximal gradient (Lin et al. 2009) on mu (||L||_* + lam ||S||_1) + 1/2 ||M - L - S||^2."""
    lam, first = 1.0 / np.sqrt(max(M.shape)), 0.99 * largest(M)
    L = S = before_L = before_S = np.zeros_like(M)
    mu, t, before_t = first, 1.0, 1.0
    for _ in range(most):
        weight = (before_t - 1.0) / t
        YL, YS = L + weight * (L - before_L), S + weight * (S - before_S)
        half = (YL + YS - M) / 2
        before_L, before_S = L, S
        L, S = shrunk(YL - half, mu / 2), soft(YS - half, lam * mu / 2)
        yield L, S
        R = L + S - YL - YS
        moved = np.hypot(np.linalg.norm(2 * (YL - L) + R), np.linalg.norm(2 * (YS - S) + R))
        if moved <= 2 * _TOL * max(1.0, float(np.hypot(np.linalg.norm(L), np.linalg.norm(S)))):
            return
        before_t, t = t, (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2
        mu = max(0.9 * mu, 1e-9 * first)


def alm(M: Array, *, most: int = 200) -> Iterates:
    """Alternating linearisation (Goldfarb, Ma, Scheinberg 2013), both terms smoothed by 1e-6."""
    lam, sigma = 1.0 / np.sqrt(max(M.shape)), 1e-6
    mu = largest(M) / 1.25
    S, G = np.zeros_like(M), np.zeros_like(M)
    for _ in range(most):
        Y = mu * G - S + M
        # s - mu * s / max(s, mu + sigma) of each singular value s, which is the same share of all up to mu + sigma.
        U, s, Vt = above(Y, mu + sigma)
        share = sigma / (mu + sigma)
        L = share * Y + (U * (s - mu - share * s)) @ Vt
        B = mu * (G - (L + S - M) / mu) - L + M
        F = G - (L + S - M) / mu
        S = B - mu * np.clip(B / (sigma + mu), -lam, lam)
        G = F - (L + S - M) / mu
        yield L, S
        if np.linalg.norm(L + S - M) <= _TOL * np.linalg.norm(M):
            return
        mu = max(2 * mu / 3, 1e-6)


def ialm(M: Array, *, most: int = 100) -> Iterates:
    """Inexact augmented Lagrange multipliers (Lin, Chen, Ma 2010)."""
    lam, norm = 1.0 / np.sqrt(max(M.shape)), largest(M)
    Y = M / max(norm, np.abs(M).max() / lam)
    mu = 1.25 / norm
    last, L = 1e7 * mu, np.zeros_like(M)
    for _ in range(most):
        S = soft(M - L + Y / mu, lam / mu)
        L = shrunk(M - S + Y / mu, 1.0 / mu)
        yield L, S
        rest = M - L - S
        if np.linalg.norm(rest) <= _TOL * np.linalg.norm(M):
            return
        Y = Y + mu * rest
        mu = min(1.5 * mu, last)


def central(method: Method, problem: Mixed) -> Iterator[list[float]]:
    """err, relL and seconds of a core so far after each iteration."""
    spent, begun = 0.0, process_time()
    for L, S in method(problem.M):
        spent += process_time() - begun
        yield [*problem.errors(L, S), spent]
        begun = process_time()


METHODS: Final[dict[str, Method]] = {"APGM": apgm, "ALM": alm, "IALM": ialm}
