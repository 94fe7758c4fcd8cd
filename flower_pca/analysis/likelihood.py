"""A result as a Gaussian: the covariance it amounts to, its inverse, and how likely rows are under it.

Probabilistic PCA (Tipping and Bishop 1999): a row in the frame is normal with the variances of the components along
them, and with the noise variance in all other directions. All is said in the data's own units, so a scale of the run
is put back. No covariance is formed to find a likelihood: that takes 4 n d k flops.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.results.matching import match
from flower_pca.results.pca import PCAResult

# of a variance for each column, relative to the largest
_ZERO: Final = 100.0 * float(np.finfo(np.float64).eps)


def covariance(result: PCAResult) -> Array:
    """Z (L - s I) Z' + s I in the data's own units, (d, d): Z the components, L their variances, s the noise."""
    noise = result.noise_variance_
    return _in_units(result, np.maximum(result.axes[1] - noise, 0.0), noise, _units(result))


def precision(result: PCAResult) -> Array:
    """The inverse of the covariance, (d, d).

    Raises:
        DataError: If it has none, as there is no variance in some direction.
    """
    variances, weight = _positive(result)
    return _in_units(result, 1.0 / variances - weight, weight, 1.0 / _units(result))


def log_likelihood(result: PCAResult, X: object) -> Array:
    """The logarithm of the density at each row of X, (n, d), with columns matched as by `PCAResult.transform`.

    Raises:
        DataError: If there is none, as there is no variance in some direction.
    """
    variances, weight = _positive(result)
    Z, d = result.axes[0], result.n_features_in_
    if weight:
        rest = (d - result.n_components_) * np.log(weight)
    else:
        rest = 0.0
    log_volume = float(np.log(variances).sum() - rest + 2.0 * np.log(_units(result)).sum())
    rows = match(X, result.frame, d, digest=result.feature_digest)
    distances = []
    for block in rows.dense():
        block = block.astype(np.float64, copy=False)
        scores = block @ Z
        left_out = block - scores @ Z.T
        distances.append((scores**2 / variances).sum(axis=1) + (left_out**2).sum(axis=1) * weight)
    return np.asarray(-0.5 * (np.concatenate(distances) + d * np.log(2.0 * np.pi) + log_volume))


def _positive(result: PCAResult) -> tuple[Array, float]:
    """The variances along the components, none below the noise; and one over the noise, 0 if no direction is left."""
    d, noise = result.n_features_in_, result.noise_variance_
    variances = np.maximum(result.axes[1], noise)
    zero = d * _ZERO * float(variances[0])
    if noise <= zero:
        rank = int(np.sum(variances > zero))
    else:
        rank = d
    if rank < d:
        remedy = "Ask for fewer components than the rank of the rows, which leaves noise for the rest."
        raise DataError("The rank of the covariance", must=f"{d}, that of the columns", got=rank, then=remedy)
    return variances, 1.0 / noise if result.n_components_ < d else 0.0


def _in_units(result: PCAResult, beyond: Array, noise: float, units: Array) -> Array:
    Z = result.axes[0] * units[:, None]
    return np.asarray((Z * beyond) @ Z.T + np.diag(noise * units**2))


def _units(result: PCAResult) -> Array:
    if result.scale_ is None:
        return np.ones(result.n_features_in_)
    return result.scale_
