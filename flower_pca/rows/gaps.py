"""Read rows with missing values, and fit their coefficients along a basis by least squares on the observed entries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

# If the r x r normal equations have a larger condition number, the SVD of the observed rows of the basis is used.
_ILL: Final = 1e10
_WELL: Final = 1e3  # Up to this condition number, the solution needs no refinement.
# A stack of matrices, with one matrix per row, has at most this many entries.
_HELD: Final = 2**21
# The products of pairs of columns of the basis have at most this many entries at a time.
_PAIRS: Final = 2**20
# If the normal equations take more multiplications per row than this, it is faster to treat the missing values of each
# row separately.
_SPARED: Final = 2**16


def rows_with_gaps(X: Any, who: str) -> Array:
    """Return a copy of the rows as float64, with NaN for missing values.

    Parameters
    ----------
    X : array-like
        The rows. Masked entries are missing values.
    who : str
        The owner of the rows, for messages.
    """
    rows = X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or rows.shape[1] == 0:
        got = f"shape {rows.shape} and dtype {rows.dtype}"
        raise DataError(
            f"The data of {who} must be a two-dimensional array of real numbers with one row per sample, and NaN for "
            f"a missing value. It has {got}. Convert it first: for example, x[None] turns a vector into a row."
        )
    # All inputs get the same storage order, so that products are equal to the last bit.
    rows = np.asarray(np.ma.filled(rows.astype(np.float64, order="C"), np.nan))
    if np.isinf(rows).any():
        got = f"{int(np.isinf(rows).sum())} infinite entries"
        raise DataError(f"The data of {who} has {got}. Replace them by NaN to treat them as missing values.")
    return rows


def without_gaps(Y: Array) -> tuple[Array, Array]:
    """Return a copy of Y with zeros for missing values, and the positions of the missing values in row order.

    If few values are missing, positions are faster than a mask.
    """
    flat = Y.flatten()
    gone = np.flatnonzero(np.isnan(flat))
    flat[gone] = 0.0
    return flat.reshape(Y.shape), gone


def fit_rows(P: Array, Y: Array, missing_positions: Array) -> tuple[Array, int]:
    """Return the least-squares coefficients of rows along a basis, using only their observed entries.

    The coefficients of row t are the vector a that minimizes ||y_t - P a|| over the observed entries of y_t. If several
    vectors minimize it, the shortest is returned. The r x r normal equations of all rows are solved together. Unless
    all equations are known to be well-conditioned, the solutions of rows with larger condition numbers are refined by
    one step, and the worst rows are solved by SVD. If the basis is wide, the rows are solved in parts, because the
    equations take r^2 numbers per row.

    Parameters
    ----------
    P : ndarray of shape (d, r)
        The basis.
    Y : ndarray of shape (m, d)
        The rows, with zeros for missing values, as `without_gaps` returns them.
    missing_positions : ndarray
        The positions of the missing values, as `without_gaps` returns them.

    Returns
    -------
    tuple
        The coefficients (m x r), and the number of rows whose observed entries do not determine the coefficients.
    """
    step = max(1, _HELD // max(P.shape[1] ** 2, 1))
    d = len(P)
    if len(Y) <= step:
        return _fit_coefficients(P, Y, missing_positions)
    A = np.empty((len(Y), P.shape[1]))
    deficient = 0
    for i in range(0, len(Y), step):
        begin, end = np.searchsorted(missing_positions, (i * d, (i + step) * d))
        part_gaps = missing_positions[begin:end] - i * d
        A[i : i + step], few = _fit_coefficients(P, Y[i : i + step], part_gaps)
        deficient += few
    return A, deficient


def _fit_coefficients(P: Array, Y: Array, missing_positions: Array) -> tuple[Array, int]:
    m, r = len(Y), P.shape[1]
    if (Y.size - len(missing_positions)) * r**2 > _SPARED * m:
        G = _normal_matrices_by_row(P, m, missing_positions)
    else:
        G = _normal_matrices(P, observed_weights(Y, missing_positions))
    if _are_well_conditioned(G):
        right = (Y @ P)[:, :, None]
        return np.asarray(np.linalg.solve(G, right)[:, :, 0]), 0
    weights = observed_weights(Y, missing_positions)
    # A single singular matrix would make `inv` refuse the whole stack, so it is replaced by the identity.
    bad = weights.sum(axis=1) < r
    if bad.any():
        G[bad] = np.eye(r)
    try:
        inverse = np.linalg.inv(G)
        condition = _one_norms(G) * _one_norms(inverse)
        # Written like this, a condition number of NaN counts as bad, too.
        bad |= ~(condition < _ILL)
    except np.linalg.LinAlgError:
        # The observed rows of P may be linearly dependent although their number suffices, and `inv` does not report
        # for which row of Y.
        return _fit_by_svd(P, Y, weights)
    A = _solve_by_inverse(inverse, Y @ P)
    if (rough := ~bad & (condition > _WELL)).any():
        residuals = Y[rough] - A[rough] @ P.T
        left = residuals * weights[rough]
        A[rough] += _solve_by_inverse(inverse[rough], left @ P)
    A[bad], deficient = _fit_by_svd(P, Y[bad], weights[bad])
    return A, deficient


def observed_weights(Y: Array, missing_positions: Array) -> Array:
    """Return an array of the shape of Y, with 1 for observed values and 0 for missing values."""
    weights = np.ones(Y.size)
    weights[missing_positions] = 0.0
    return weights.reshape(Y.shape)


def _normal_matrices(P: Array, weights: Array) -> Array:
    """Return P'diag(w)P for every row w of the weights, as an array of shape (m, r, r).

    It is computed as the product of the weights with the products of all pairs of columns of P.
    """
    (d, r), columns = P.shape, np.ascontiguousarray(P.T)
    first, place = _pair_layout(r)
    packed = np.zeros((len(weights), first[r]))
    step = max(1, _PAIRS // first[r])
    pairs = np.empty((first[r], min(step, d)))
    for start in range(0, d, step):
        part = columns[:, start : start + step]
        products = pairs[:, : part.shape[1]]
        for k in range(r):
            out = products[first[k] : first[k + 1]]
            np.multiply(part[k:], part[k], out=out)
        packed += weights[:, start : start + step] @ products.T
    return np.take(packed, place, axis=1)


@lru_cache(maxsize=4)
def _pair_layout(r: int) -> tuple[list[int], Array]:
    """Return the layout of the products of r columns, in which each pair of columns occurs once.

    The first value lists where the products with each column begin. The second value (r x r) maps each pair to its
    position.
    """
    i, j = np.triu_indices(r)
    place = np.empty((r, r), dtype=np.intp)
    place[i, j] = place[j, i] = np.arange(len(i))
    return np.searchsorted(i, np.arange(r + 1)).tolist(), place


def _normal_matrices_by_row(P: Array, m: int, missing_positions: Array) -> Array:
    """Return the matrices of `_normal_matrices` for m rows with few missing values: P'P minus the missing part.

    The rows of P at the missing values of each row are stacked, and padded with zeros to the same number.
    """
    (d, r), whole = P.shape, P.T @ P
    G = np.empty((m, r, r))
    padded = np.vstack([P, np.zeros((1, r))])
    begins = np.searchsorted(missing_positions, np.arange(0, (m + 1) * d, d))
    step = max(1, _PAIRS // P.size)
    for i in range(0, m, step):
        ends = begins[i : i + step + 1]
        counts = np.diff(ends)
        places = np.full((len(counts), counts.max()), d)
        there = np.arange(places.shape[1]) < counts[:, None]
        places[there] = missing_positions[ends[0] : ends[-1]] % d
        unseen = padded.take(places, axis=0)
        out = G[i : i + step]
        np.matmul(unseen.transpose(0, 2, 1), unseen, out=out)
    return np.asarray(np.subtract(whole, G, out=G))


def _are_well_conditioned(G: Array) -> bool:
    """Return whether all of these symmetric matrices are certainly well-conditioned.

    Eigenvalues differ from their mean c by at most f = ||G - cI||, so the condition number is at most
    (c + f) / (c - f).
    """
    r = G.shape[1]
    c = np.einsum("ijj->i", G) / r
    squares = np.einsum("ijk,ijk->i", G, G)
    f = np.sqrt(np.maximum(squares - r * c**2, 0.0))
    return bool((c + f < _WELL * (c - f)).all())


def _one_norms(G: Array) -> Array:
    return np.asarray(np.abs(G).sum(axis=1).max(axis=1))


def _solve_by_inverse(inverse: Array, B: Array) -> Array:
    return np.asarray(np.matmul(inverse, B[:, :, None])[:, :, 0])


def _fit_by_svd(P: Array, Y: Array, weights: Array) -> tuple[Array, int]:
    """Return the results of `_fit_coefficients`, from an SVD of the rows of P at the observed entries of each row."""
    d, r = P.shape
    A, deficient = np.empty((len(Y), r)), 0
    step = max(1, _HELD // (d * r))
    for i in range(0, len(Y), step):
        part = slice(i, i + step)
        weighted = P * weights[part, :, None]
        U, s, Vt = np.linalg.svd(weighted, full_matrices=False)
        largest = np.maximum(s[:, :1], np.finfo(float).tiny)
        large = s > max(d, r) * np.finfo(float).eps * largest
        inverse = np.divide(1.0, s, out=np.zeros_like(s), where=large)
        scores = np.matmul(Y[part, None, :], U)[:, 0] * inverse
        A[part] = np.matmul(scores[:, None, :], Vt)[:, 0]
        deficient += int((large.sum(axis=1) < r).sum())
    return A, deficient
