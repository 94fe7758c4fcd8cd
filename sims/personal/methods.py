"""What personalized PCA is compared with, in plain numpy on S_i = X_i'X_i / n_i; and Robust PCA on stacked images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

Array = npt.NDArray[Any]
Bases = list[Array]  # for each client all the directions (d x r) that its rows are rebuilt from


def covariances(shards: Sequence[Any]) -> list[Array]:
    """S_i = X_i'X_i / n_i, not centred."""
    dense = (np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64) for X in shards)
    return [X.T @ X / len(X) for X in dense]


def indiv_pca(S: Sequence[Array], k: int) -> Bases:
    """Each client for itself: the top k of S_i."""
    return [top(C, k) for C in S]


def cpca(S: Sequence[Array], sizes: Sequence[int], k: int) -> Bases:
    """One PCA for all: the top k of sum n_i S_i / sum n_i."""
    pooled = sum(n * C for n, C in zip(sizes, S, strict=True)) / sum(sizes)
    return [top(np.asarray(pooled), k)] * len(S)


def dist_pca(S: Sequence[Array], r1: int, r2: int, k: int) -> tuple[Array, Bases]:
    """Fan et al. 2019, personalized: U the top r1 of the clients' stacked top k, V_i the top r2 of S_i without U."""
    stack = np.hstack([top(C, k) for C in S])
    U = np.linalg.svd(stack, full_matrices=False)[0][:, :r1]
    return U, [own(C, U, r2) for C in S]


def qu_pca(S: Sequence[Array], r1: int, r2: int, power: float = 0.5) -> tuple[Array, Bases]:
    """DistPCA of weighted components, as Qu et al. 2002: the clients' top r1 + r2, scaled by their deviations.

    With `power` 1 by their variances.
    """
    tops = [top(C, r1 + r2) for C in S]
    stack = np.hstack([E * np.maximum(np.sum(E * (C @ E), axis=0), 0.0) ** power for C, E in zip(S, tops, strict=True)])
    U = np.linalg.svd(stack, full_matrices=False)[0][:, :r1]
    return U, [own(C, U, r2) for C in S]


def printed(S: Sequence[Array], r1: int, r2: int, *, eta: float, seed: int) -> Iterator[tuple[Array, list[Array]]]:
    """The paper's Algorithm 1 as printed, round by round: U and every client's V_i, made orthogonal to the new U.

    U and V_i of a client go one step of fixed length together and are made orthonormal together by the polar factor;
    the server takes the polar factor of the mean. Starts are random, and nothing is kept to the span of the rows.
    """
    rng, stack = np.random.default_rng([seed, 1]), np.array(S)
    U = polar(rng.standard_normal((len(stack[0]), r1)))
    V = np.array([polar(rng.standard_normal((len(U), r2))) for _ in stack])
    while True:
        W = np.concatenate([np.broadcast_to(U, (len(V), *U.shape)), polar(V - U @ (U.T @ V))], axis=2)
        W = polar(W + eta * stack @ W)
        U, V = polar(W[:, :, :r1].mean(axis=0)), W[:, :, r1:]
        yield U, list(polar(V - U @ (U.T @ V)))


def polar(W: Array) -> Array:
    """W (W'W)^(-1/2), of each block."""
    A, _, Bt = np.linalg.svd(W, full_matrices=False)
    return np.asarray(A @ Bt)


def own(S: Array, U: Array, r: int) -> Array:
    """The top r of (I - UU')S(I - UU')."""
    P = np.eye(len(S)) - U @ U.T
    return top(P @ S @ P, r)


def top(S: Array, k: int) -> Array:
    """The leading k eigenvectors."""
    return np.ascontiguousarray(eigh((S + S.T) / 2.0, subset_by_index=(len(S) - k, len(S) - 1))[1][:, ::-1])


def rebuilt(shards: Sequence[Array], bases: Sequence[Array]) -> Array:
    """Each client's mean squared distance of a row to its projection."""
    return np.array([np.sum((X - X @ B @ B.T) ** 2) / len(X) for X, B in zip(shards, bases, strict=True)])


def joined(U: Array, V: Sequence[Array]) -> Bases:
    """[U, V_i] for each client."""
    return [np.hstack([U, v]) for v in V]


@dataclass(frozen=True)
class Parts:
    """A matrix as low-rank plus sparse."""

    low_rank: Array
    sparse: Array


def robust_pca(M: Array, *, weight: float | None = None, tol: float = 1e-7, rounds: int = 500) -> Parts:
    """Minimise ||L||_* + weight ||S||_1 with L + S = M by inexact ALM (Lin, Chen, Ma 2010).

    weight = 1 / sqrt(longer side), if left out. A round: S = soft(M - L + Y/mu, weight/mu),
    L = SVT(M - S + Y/mu, 1/mu), Y += mu (M - L - S), mu grows by half.
    """
    weight = 1.0 / np.sqrt(max(M.shape)) if weight is None else weight
    first = float(np.linalg.norm(M, 2))
    Y, L, size = M / max(first, np.abs(M).max() / weight), np.zeros_like(M), float(np.linalg.norm(M))
    mu, most = 1.25 / first, 1.25e7 / first
    for _ in range(rounds):
        T = M - L + Y / mu
        S = np.sign(T) * np.maximum(np.abs(T) - weight / mu, 0.0)
        A, s, B = np.linalg.svd(M - S + Y / mu, full_matrices=False)
        L = (A * np.maximum(s - 1.0 / mu, 0.0)) @ B
        rest = M - L - S
        Y, mu = Y + mu * rest, min(1.5 * mu, most)
        if np.linalg.norm(rest) <= tol * size:
            break
    return Parts(L, S)
