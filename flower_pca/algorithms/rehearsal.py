"""An estimate whether a Krylov run needs many rounds, from the spectrum that its first rounds show.

The first block of a run is random. So the leading entries of the Ritz vectors show how many eigenvalues
of C each Ritz value represents. This method is called stochastic Lanczos quadrature. The server then
runs the same algorithm without clients on a diagonal matrix with these eigenvalues (a rehearsal). The
errors of the first rounds are not enough for an estimate. For example, if each eigenvalue is 3 % or 1 %
smaller than the one before, the errors of the first five rounds are similar, but 9 or 20 rounds are
left. In a test with 160 spectra of 300 to 2,000 columns, 90 % of the estimated numbers of rounds were
accurate to 10 %.

Reference: Ubaru, Chen, Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", 2017.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.algorithms.krylov import Basis, KrylovState
from flower_pca.base import linalg
from flower_pca.base.linalg import Array

# The first estimate is made after this number of products, including the product of the opening.
_FIRST_PRODUCTS: Final = 6
# An estimate requires a basis with at least this share of all columns. With fewer columns, the estimate for white
# noise was too large by up to a half.
_LEAST_SHARE: Final = 1 / 30


def is_due(state: KrylovState) -> bool:
    """Return whether it is time for a rehearsal, which takes about a third of the server's time for as many rounds."""
    products = len(state.errors)
    d, p = state.block.shape
    first = max(_FIRST_PRODUCTS, math.ceil(_LEAST_SHARE * d / p))
    # A second rehearsal follows after twice as many rounds, because eigenvalues close to the first ones appear
    # late. The basis must not have been cut, and must begin with a random block.
    random = not state.warm and state.size == p * products
    return products in (first, 2 * first) and random and math.isfinite(state.errors[-1])


def rounds_by_errors(state: KrylovState) -> float:
    """Return the number of rounds that are left if errors continue to fall at the same rate.

    This number is usually an overestimate.
    """
    first, newest = state.errors[0], state.errors[-1]
    if newest >= first:
        return math.inf
    if newest <= 0.0:
        return 0.0
    tol = max(state.progress.tol, np.finfo(float).tiny)
    return math.log(newest / tol) * (len(state.errors) - 1) / math.log(first / newest)


def converges_within(rounds: int, state: KrylovState) -> bool:
    """Return whether a run on the estimated spectrum, without restarts, converges within this many further rounds."""
    (d, p), last = state.block.shape, len(state.errors) + rounds
    spectrum = _estimated_spectrum(state, p)[:, None]
    first = float(spectrum[0, 0])
    basis, T = Basis(np.empty((d, 0))), np.empty((0, 0))
    block = linalg.orth(linalg.random_block(d, p, state.seed + 1))
    for products in range(1, last + 1):
        basis, older = basis.add(block, min(last * p, d)), len(T)
        block, inside, outside = linalg.next_block(spectrum * block, basis.columns, first)
        T = linalg.block_matrix(T, inside[:older], inside[:older].T, inside[older:])
        # The eigenvalues of T take longer than a product, so they are computed after 1, 2, 4, 8, ... products only.
        if products & (products - 1) and products < last and block.shape[1]:
            continue
        values, W = linalg.eigh_leading(T, state.k)
        residuals = linalg.column_norms(outside @ W[older:, : state.k])
        if state.relative_to_sampling_error(residuals, values).max() <= state.progress.tol * values[0]:
            return True
        if not block.shape[1]:
            break
    return False


def _estimated_spectrum(state: KrylovState, p: int) -> Array:
    """Estimate all d eigenvalues from the basis, largest first."""
    values, W = linalg.eigh_descending(state.T)
    d = len(state.block)
    # Each weight is the number of eigenvalues that a Ritz value represents. The sum of the weights is d.
    weights = np.sum(W[:p] ** 2, axis=0) * (d / p)
    places = np.cumsum(weights) - weights / 2
    return np.asarray(np.interp(np.arange(d) + 0.5, places, np.maximum(values, 0.0)))
