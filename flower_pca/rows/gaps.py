"""Rows with missing values: coefficients along a basis by least squares on the observed entries."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

# Above this condition number of the r x r normal equations, the SVD of the observed rows is used.
_ILL: Final = 1e10
_WELL: Final = 1e3  # Up to this condition number, the solution needs no refinement.
# The largest number of entries in a stack of matrices, one for each row.
_HELD: Final = 2**21
# The largest number of entries in the products of two columns of the basis.
_PAIRS: Final = 2**20
# From so many multiplications per row on, it pays to treat the gaps of each row separately.
_SPARED: Final = 2**16


def rows_with_gaps(X: Any, who: str, missing: Any = None) -> Array:
    """Return rows as float64, with NaN for missing entries."""
    rows = np.asarray(np.ma.filled(X, np.nan))
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or rows.shape[1] == 0:
        got = f"{labels.count(rows.ndim, 'dimension')} of dtype {rows.dtype}"
        raise DataError(
            f"The data of {who} must be a two-dimensional array of real numbers with one row per sample, and NaN for "
            f"a missing value. This one has {got}. Convert it first: for example, x[None] turns a vector into a row."
        )
    # Then products have the same bits, whatever the storage.
    rows = rows.astype(np.float64, order="C")
    if np.isinf(rows).any():
        got = f"{int(np.isinf(rows).sum())} infinite entries"
        raise DataError(f"The data of {who} has {got}. Set them to NaN to treat them as missing.")
    if missing is not None:
        mask = np.asarray(missing)
        if mask.shape != rows.shape or mask.dtype != bool:
            got = f"shape {mask.shape} and dtype {mask.dtype}"
            raise DataError(
                f"The mask of {who} must be boolean and of the shape of its rows, {rows.shape}. This one has {got}. "
                "Give True for a missing value."
            )
        rows[mask] = np.nan
    return rows


def without(Y: Array) -> tuple[Array, Array]:
    """Return a copy of Y with zeros for missing values, and the positions of these in row order.

    For few missing values among many entries, positions are faster than a mask.
    """
    flat = Y.flatten()
    gone = np.flatnonzero(np.isnan(flat))
    flat[gone] = 0.0
    return flat.reshape(Y.shape), gone


def fit(P: Array, Y: Array, gone: Array) -> tuple[Array, int]:
    """Return a_t = argmin ||(y_t - P a) on the observed entries||, m x r, of minimum norm.

    Returns them, and how many rows have fewer independent observed entries than P has columns. Y
    (m x d) and where its gaps are come from `without`. All r x r normal equations are solved
    together. Unless all are known to be well-conditioned, rows that are not get a step of
    refinement; the worst go through a stacked SVD. Of a wide basis a part of the rows at a time:
    the equations take r^2 numbers for each.
    """
    step = max(1, _HELD // max(P.shape[1] ** 2, 1))
    d = len(P)
    if len(Y) <= step:
        return _fit(P, Y, gone)
    A = np.empty((len(Y), P.shape[1]))
    deficient = 0
    for i in range(0, len(Y), step):
        begin, end = np.searchsorted(gone, (i * d, (i + step) * d))
        own_gaps = gone[begin:end] - i * d
        A[i : i + step], few = _fit(P, Y[i : i + step], own_gaps)
        deficient += few
    return A, deficient


def _fit(P: Array, Y: Array, gone: Array) -> tuple[Array, int]:
    m, r = len(Y), P.shape[1]
    if (Y.size - len(gone)) * r**2 > _SPARED * m:
        G = _normal_by_row(P, m, gone)
    else:
        G = _normal(P, weights_of(Y, gone))
    if _well(G):
        right = (Y @ P)[:, :, None]
        return np.asarray(np.linalg.solve(G, right)[:, :, 0]), 0
    weights = weights_of(Y, gone)
    # One singular matrix would make `inv` refuse the whole stack, so it is replaced by another one.
    bad = weights.sum(axis=1) < r
    if bad.any():
        G[bad] = np.eye(r)
    try:
        inverse = np.linalg.inv(G)
        condition = _norm1(G) * _norm1(inverse)
        # In this form, a condition number of NaN counts as bad, too.
        bad |= ~(condition < _ILL)
    except np.linalg.LinAlgError:
        # Even enough entries may be linearly dependent, and `inv` does not say in which row.
        return _by_svd(P, Y, weights)
    A = _times(inverse, Y @ P)
    if (rough := ~bad & (condition > _WELL)).any():
        residuals = Y[rough] - A[rough] @ P.T
        left = residuals * weights[rough]
        A[rough] += _times(inverse[rough], left @ P)
    A[bad], deficient = _by_svd(P, Y[bad], weights[bad])
    return A, deficient


def weights_of(Y: Array, gone: Array) -> Array:
    """Return 1 for observed entries, and 0 for missing ones."""
    weights = np.ones(Y.size)
    weights[gone] = 0.0
    return weights.reshape(Y.shape)


def _normal(P: Array, weights: Array) -> Array:
    """Return P'diag(w)P for every row w of the weights, m x r x r: weights times products of two columns of P."""
    (d, r), columns = P.shape, np.ascontiguousarray(P.T)
    first, place = _places(r)
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
def _places(r: int) -> tuple[list[int], Array]:
    """Return where the products with each of r columns begin, without those of earlier columns, and all r x r."""
    i, j = np.triu_indices(r)
    place = np.empty((r, r), dtype=np.intp)
    place[i, j] = place[j, i] = np.arange(len(i))
    return np.searchsorted(i, np.arange(r + 1)).tolist(), place


def _normal_by_row(P: Array, m: int, gone: Array) -> Array:
    """Return the same for many columns and m rows with few missing values: P'P less the unobserved part.

    The unobserved parts of P are stacked. For rows with fewer missing values, zeros are added below.
    """
    (d, r), whole = P.shape, P.T @ P
    G = np.empty((m, r, r))
    padded = np.vstack([P, np.zeros((1, r))])
    begins = np.searchsorted(gone, np.arange(0, (m + 1) * d, d))
    step = max(1, _PAIRS // P.size)
    for i in range(0, m, step):
        ends = begins[i : i + step + 1]
        counts = np.diff(ends)
        places = np.full((len(counts), counts.max()), d)
        there = np.arange(places.shape[1]) < counts[:, None]
        places[there] = gone[ends[0] : ends[-1]] % d
        unseen = padded.take(places, axis=0)
        out = G[i : i + step]
        np.matmul(unseen.transpose(0, 2, 1), unseen, out=out)
    return np.asarray(np.subtract(whole, G, out=G))


def _well(G: Array) -> bool:
    """Return whether all these matrices are certain to be well-conditioned.

    Eigenvalues differ from their mean c by at most f = ||G - cI||, so the condition number is at most
    (c + f) / (c - f).
    """
    r = G.shape[1]
    c = np.einsum("ijj->i", G) / r
    squares = np.einsum("ijk,ijk->i", G, G)
    f = np.sqrt(np.maximum(squares - r * c**2, 0.0))
    return bool((c + f < _WELL * (c - f)).all())


def _norm1(G: Array) -> Array:
    return np.asarray(np.abs(G).sum(axis=1).max(axis=1))


def _times(inverse: Array, B: Array) -> Array:
    return np.asarray(np.matmul(inverse, B[:, :, None])[:, :, 0])


def _by_svd(P: Array, Y: Array, weights: Array) -> tuple[Array, int]:
    """Return the same by the singular values of the part of P that each row has observed."""
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
