"""How many components there are, where nobody says it: Minka's estimate from all eigenvalues."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array

_ROUNDING: Final = float(np.finfo(np.float64).eps)
# of an eigenvalue for each column, relative to the largest
_ZERO: Final = 100.0 * _ROUNDING


def minka(variances: Array, n: int) -> int:
    """The number of components with the largest evidence, between 1 and d - 1; 1 for a single column.

    As scikit-learn's n_components="mle", but that what counts as zero is relative to the largest variance, so that
    units do not matter, and that tied variances are no error.

    Reference: Minka, "Automatic Choice of Dimensionality for PCA", NIPS 2000.

    Args:
        variances: All d variances along the components, largest first.
        n: Rows behind them, at least d.
    """
    values = np.asarray(variances, dtype=np.float64)
    if n < len(values):
        rule, remedy = f"at least as many as columns, {len(values)}", "Name a number of components."
        raise DataError("The rows for an estimated number of components", must=rule, got=n, then=remedy)
    if len(values) == 1 or values[0] <= 0.0:
        return 1
    values = np.maximum(values / values[0], 0.0)
    return 1 + int(np.argmax([evidence(values, k, n) for k in range(1, len(values))]))


def evidence(values: Array, k: int, n: int) -> float:
    """Minka's logarithm of the probability of n rows, if k of these d eigenvalues (largest 1) are more than noise."""
    d = len(values)
    zero = d * _ZERO
    if values[k - 1] <= zero:
        return -math.inf
    noise = max(zero, float(values[k:].mean()))
    model = np.append(values[:k], np.full(d - k, noise))
    sides = (d - np.arange(k)) / 2.0
    frames = float(sum(map(math.lgamma, sides))) - math.log(math.pi) * float(sides.sum()) - k * math.log(2.0)
    m = d * k - k * (k + 1) / 2.0
    upper = np.arange(d)[None, :] > np.arange(k)[:, None]
    apart = (values[:k, None] - values) * (1.0 / model - 1.0 / model[:k, None])
    # of a tie, no direction is likelier than another
    told = np.where(apart > _ROUNDING**2, apart * n, 1.0)[upper]
    curvature = float(np.log(told).sum())
    fit = -n / 2.0 * (float(np.log(values[:k]).sum()) + (d - k) * math.log(noise))
    return frames + fit + (m + k) / 2.0 * math.log(2.0 * math.pi) - curvature / 2.0 - k / 2.0 * math.log(n)
