"""The largest eigenvalues of a positive matrix that is known by its products only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flower_pca.base.linalg import Array, orth, random_basis, random_block


def largest(product: Callable[[Array], Array], d: int, steps: int) -> float:
    """The largest eigenvalue of a positive matrix by a few block power steps: never above the true one."""
    Z = random_basis(d, min(4, d), seed=0)
    for _ in range(steps - 1):
        Z = orth(product(Z).astype(np.float64))
    return float(np.linalg.eigvalsh(Z.T @ product(Z))[-1])


def lanczos(product: Callable[[Array], Array], d: int, k: int, *, tol: float) -> tuple[Array, Array]:
    """The k leading eigenvalues of a positive matrix, largest first, and their vectors, by ARPACK."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    def apply(z: Array) -> Array:
        return product(z.reshape(d, -1)).astype(np.float64)

    operator = LinearOperator((d, d), matvec=apply, matmat=apply, dtype=np.float64)
    start = random_block(d, 1, seed=0)[:, 0]
    if not apply(start).any():  # nothing but zeros, from which ARPACK does not start
        return np.zeros(k), np.zeros((d, k))
    values, V = eigsh(operator, k=k, v0=start, tol=tol)
    order = np.argsort(values)[::-1]
    return values[order], V[:, order]
