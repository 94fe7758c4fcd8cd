"""Which rows and columns the clean entries of a matrix determine, when its low-rank part is known elsewhere.

A row of VU' is determined where the least eigenvalue of sum Q_j Q_j' over its clean entries, Q an orthonormal basis of
span(U), is not far below 1. Up to 16 columns it is computed; beyond, power steps find the largest eigenvalue of the
same sum over the other entries, which is 1 less it. They find it from below: of rows with a least eigenvalue under .01
they take 6 in 1,000 for determined (20 columns, 60 entries, 3,749 such rows drawn).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

EXACT: Final = 16  # columns up to which matrices are formed
LEAST, LEAST_BOUND = 0.06, 0.1  # eigenvalues below which a row or column is not determined; of power steps
STEPS: Final = 8  # power steps
SEED: Final = 20


def weak_rows(W: Array, Q: Array) -> Array:
    """Which rows their clean entries, 1 in W, do not determine."""
    r = Q.shape[1]
    if r <= EXACT:
        return np.asarray(np.linalg.eigvalsh(squared(W @ pairs(Q), r))[:, 0] < LEAST)
    x = np.repeat(np.array(linalg.random_block(1, r, SEED)), len(W), axis=0)
    value, others, along = np.zeros(len(W)), 1.0 - W, np.empty_like(W)
    for _ in range(STEPS):
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        np.multiply(others, np.matmul(x, Q.T, out=along), out=along)
        image = along @ Q
        value, x = np.sum(x * image, axis=1), image
    return np.asarray(1.0 - value < LEAST_BOUND)


def undetermined(R: Array, U: Array, far: float, gaps: Array) -> Array:
    """The rows that their entries within `far` of the low-rank part, but for gaps, do not determine."""
    clean = np.abs(R) <= far
    clean.reshape(-1)[gaps] = False
    return np.flatnonzero(weak_rows(clean.astype(np.float64), linalg.orth(U)))


def pairs(A: Array) -> Array:
    """a_i a_j of every row, i <= j, one after the other."""
    return np.concatenate([A[:, i : i + 1] * A[:, i:] for i in range(A.shape[1])], axis=1)


def squared(packed: Array, r: int) -> Array:
    """The symmetric matrices that `pairs` are the upper halves of."""
    full = np.empty((len(packed), r, r))
    for i, start in _starts(r):
        full[:, i, i:] = full[:, i:, i] = packed[:, start : start + r - i]
    return full


def _starts(r: int) -> Iterator[tuple[int, int]]:
    start = 0
    for i in range(r):
        yield i, start
        start += r - i
