"""A client's local components: leading eigenvectors of S = X'X / n outside the space of U.

X contains the client's n rows, and the columns of U are the shared components.
A d x d matrix is computed only if d is small.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

_MOST_ENTRIES: Final = 2**24  # maximum number of entries of the deflated rows that are kept in memory
_SIDE: Final = 4096  # maximum side of a matrix whose dense eigenproblem is solved
# For larger matrices, subspace iteration takes at most _STEPS steps, with this many additional columns.
_EXTRA_COLUMNS: Final = 5
_STEPS: Final = 200
# Subspace iteration ends when the residuals relative to the first eigenvalue are at most this.
_SETTLED: Final = 1e-10
_ROUNDING: Final = 1e-9  # After U is removed, a direction shorter than this is only rounding error.

# An empty array in place of a basis of the rows means that the rows have at least the requested rank, so that nothing
# restricts the local components.
WHOLE: Final = np.empty((0, 0))


def covariance_product(data: LocalData, W: Array) -> Array:
    """Return SW = X'(XW) / n."""
    image = data.matmat(W, reuse=_STEPS).astype(np.float64)
    return np.asarray(image / data.n)


def orthonormal_outside(V: Array, U: Array) -> Array:
    """Return an orthonormal basis of the span of (I - UU')V. If U is d x r, the basis has at most d - r columns."""
    V = V[:, : U.shape[0] - U.shape[1]]
    if V.shape[1]:
        # The polar factor is the nearest orthonormal basis, but it scales short columns up, together with their
        # rounding errors along U. So the part along U is removed a second time.
        return linalg.orth(linalg.complement(linalg.polar(linalg.complement(V, U)), U))
    return V


def span_of_rows(data: LocalData, k: int, memory: Arrays) -> Array:
    """Return an orthonormal basis of the span of the rows if their rank is below k, or else `WHOLE`.

    The client computes the basis once in a run, and keeps it in its `memory`. If the memory contains the
    basis E of the first phase (with init="projection"), the client uses E instead of computing a basis.
    """
    if "narrow" in memory and len(memory["narrow"]) in (0, data.d):
        return memory["narrow"]
    k = min(k, data.d)
    E = memory.get("E", WHOLE)
    if len(E) != data.d:
        E = data.leading_eigenpairs(k)[0].astype(np.float64)
    if E.shape[1] < k:
        return E
    return WHOLE


def project_into_span(V: Array, U: Array, span: Array) -> Array:
    """Return V projected onto the part of `span` that is orthogonal to U, with orthonormal columns.

    `span` is a basis from `span_of_rows`. If this part has fewer dimensions than V has columns, the result has
    fewer columns than V.
    """
    if not len(span):
        return V
    beside = linalg.independent_columns(linalg.complement(span, U), _ROUNDING)
    if beside.shape[1] <= V.shape[1]:
        return beside
    return linalg.orth(beside @ (beside.T @ V))


def local_basis(
    data: LocalData, U: Array, r: int, *, steps: int = 0, start: Array | None = None, span: Array = WHOLE
) -> Array:
    """Return the r leading eigenvectors of (I - UU')S(I - UU'), or fewer if the rank of this matrix is lower.

    If n < d, the eigenvectors are computed from the Gram matrix of the deflated rows. If d <= n, they are
    computed from the Gram matrix of the columns, which is cached. If neither matrix is small enough,
    subspace iteration on the rows is used. With `steps` above 0, the client instead takes only this many
    power steps V <- orth((I - UU')SV) from `start`, and restricts V to `span` (see `span_of_rows`).
    """
    r = min(r, data.d - U.shape[1])
    if r < 1:
        return np.empty((data.d, 0))
    if steps:
        if start is None or start.shape != (data.d, r):
            start = linalg.random_basis(data.d, r, seed=0)
        V = orthonormal_outside(start, U)
        for _ in range(steps):
            V = orthonormal_outside(covariance_product(data, V), U)
        return project_into_span(V, U, span)
    if data.n < data.d and data.n <= _SIDE and data.n * data.d <= _MOST_ENTRIES:
        return _local_basis_by_rows(data, U, r)
    if data.d <= min(data.n, _SIDE):
        return _local_basis_by_columns(data, U, r)
    return _local_basis_by_iteration(data, U, r)


def _local_basis_by_rows(data: LocalData, U: Array, r: int) -> Array:
    # The rows are deflated before their Gram matrix is computed, so that rounding errors of the part along U are small.
    X = data.root().astype(np.float64)
    D = X - (X @ U) @ U.T
    values, W = _leading_eigenpairs(D @ D.T, r)
    eps = data.n * float(np.finfo(data.dtype).eps)
    squares = float(np.sum(X * X))
    # If U explains the rows completely, only rounding errors remain in D. Their size relative to the rows is eps.
    large = values > max(eps * values[0], eps**2 * squares)
    return linalg.orth(linalg.complement(D.T @ W[:, large], U))


def _local_basis_by_columns(data: LocalData, U: Array, r: int) -> Array:
    S = data.gram().astype(np.float64)
    SU = S @ U
    # Products with I - UU' on both sides would take d^3 flops.
    half = U @ (SU.T - (U.T @ SU) @ U.T / 2.0)
    values, W = _leading_eigenpairs(S - half - half.T, r)
    # The part along U was subtracted, so the rounding errors are relative to all of S.
    least = data.d * float(np.finfo(data.dtype).eps) * float(np.trace(S))
    return linalg.orth(linalg.complement(W[:, values > least], U))


def _local_basis_by_iteration(data: LocalData, U: Array, r: int) -> Array:
    width = min(r + _EXTRA_COLUMNS, data.d - U.shape[1])
    V = orthonormal_outside(linalg.random_basis(data.d, width, seed=0), U)
    for _ in range(_STEPS):
        image = linalg.complement(covariance_product(data, V), U)
        values, V, Y, residuals = linalg.rayleigh_ritz(V, image)
        if residuals[:r].max() <= _SETTLED * values[0]:
            break
        V = orthonormal_outside(Y, U)
    shared = float(np.sum(U * covariance_product(data, U)))
    whole = max(shared, 0.0) + float(values.sum())
    least = data.d * float(np.finfo(data.dtype).eps) * whole
    return V[:, :r][:, values[:r] > least]


def _leading_eigenpairs(H: Array, r: int) -> tuple[Array, Array]:
    """Return the r largest eigenvalues of a symmetric matrix, largest first, and their eigenvectors."""
    from scipy.linalg import eigh

    largest = (max(0, len(H) - r), len(H) - 1)
    values, vectors = eigh((H + H.T) / 2.0, subset_by_index=largest)
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])
