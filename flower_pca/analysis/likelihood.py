"""A result as a Gaussian model: its covariance, its precision, the likelihood of rows, and Minka's rank estimate.

In probabilistic PCA (Tipping and Bishop 1999), a row in the frame is normally distributed. Its variances along the
components are the variances of the result, and its variance in all other directions is the noise variance. All values
are in the original units, so the scaling of the run is undone. The likelihood of n rows with d columns is computed
without the covariance matrix, in 4 n d k flops for k components.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.analysis import likelihood
>>> rng = np.random.default_rng(0)
>>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
>>> result = simulate("krylov", sites, n_components=2)
>>> likelihood.log_likelihood(result, sites[0]).shape
(60,)
>>> print(likelihood.covariance(result).shape)
(6, 6)
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.results.pca import PCAResult

_ROUNDING: Final = float(np.finfo(np.float64).eps)
# An eigenvalue or variance counts as 0 if it is below d times this share of the largest, for d columns.
_RELATIVE_ZERO: Final = 100.0 * _ROUNDING


def minka(variances: Array, n: int) -> int:
    """Return the number of components with the largest evidence, from 1 to d - 1, or 1 for one column.

    The number equals scikit-learn's n_components="mle", with two differences: variances count as zero relative to the
    largest variance, so that units do not matter, and tied variances are allowed.

    Reference: Minka, "Automatic Choice of Dimensionality for PCA", NIPS 2000.

    Parameters
    ----------
    variances : ndarray
        All d variances along the components, largest first.
    n : int
        The number of rows from which the variances were estimated, at least d. With fewer rows, a DataError is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.analysis.likelihood import minka
    >>> minka(np.array([36.0, 25.0, 1.1, 1.0, 0.9]), n=200)
    2
    """
    values = np.asarray(variances, dtype=np.float64)
    if n < len(values):
        raise DataError(
            f"The number of components can be estimated only from at least as many rows as columns, but there are {n} "
            f"rows and {len(values)} columns. Give a number of components."
        )
    if len(values) == 1 or values[0] <= 0.0:
        return 1
    values = np.maximum(values / values[0], 0.0)
    return 1 + int(np.argmax([evidence(values, k, n) for k in range(1, len(values))]))


def evidence(values: Array, k: int, n: int) -> float:
    """Return Minka's log evidence of n rows for k components. `values` are all d eigenvalues over the largest."""
    d = len(values)
    zero = d * _RELATIVE_ZERO
    if values[k - 1] <= zero:
        return -math.inf
    noise = max(zero, float(values[k:].mean()))
    model = np.append(values[:k], np.full(d - k, noise))
    sides = (d - np.arange(k)) / 2.0
    gammas = float(sum(map(math.lgamma, sides)))
    frames = gammas - math.log(math.pi) * float(sides.sum()) - k * math.log(2.0)
    m = d * k - k * (k + 1) / 2.0
    upper = np.arange(d)[None, :] > np.arange(k)[:, None]
    apart = (values[:k, None] - values) * (1.0 / model - 1.0 / model[:k, None])
    # If two eigenvalues are equal, their plane has no preferred direction, so the pair adds no curvature.
    factors = np.where(apart > _ROUNDING**2, apart * n, 1.0)[upper]
    curvature = float(np.log(factors).sum())
    leading = float(np.log(values[:k]).sum())
    fit = -n / 2.0 * (leading + (d - k) * math.log(noise))
    parameters = (m + k) / 2.0 * math.log(2.0 * math.pi)
    return frames + fit + parameters - curvature / 2.0 - k / 2.0 * math.log(n)


def covariance(result: PCAResult) -> Array:
    """Return the covariance of the model in original units, (d, d).

    In the frame, it is Z (L - s I) Z' + s I, with the components Z, their variances L and the noise variance s.
    """
    noise = result.noise_variance_
    return _in_units(result, np.maximum(result.axes[1] - noise, 0.0), noise, _units_of_columns(result))


def precision(result: PCAResult) -> Array:
    """Return the inverse of the covariance, (d, d).

    Raises
    ------
    DataError
        If the covariance has no inverse, because the variance is 0 in some direction.
    """
    variances, weight = _positive_variances(result)
    return _in_units(result, 1.0 / variances - weight, weight, 1.0 / _units_of_columns(result))


def log_likelihood(result: PCAResult, X: object) -> Array:
    """Return the log density of each row of X, (n,). Columns are matched as in `transform`.

    Raises
    ------
    DataError
        If the density does not exist, because the variance is 0 in some direction.
    """
    variances, weight = _positive_variances(result)
    Z, d, rest = result.axes[0], result.n_features_in_, 0.0
    if weight:
        rest = (d - result.n_components_) * np.log(weight)
    log_volume = float(np.log(variances).sum() - rest + 2.0 * np.log(_units_of_columns(result)).sum())
    distances = []
    for block in result._rows_in_frame(X).dense():
        block = block.astype(np.float64, copy=False)
        scores = block @ Z
        left_out = block - scores @ Z.T
        distances.append((scores**2 / variances).sum(axis=1) + (left_out**2).sum(axis=1) * weight)
    return np.asarray(-0.5 * (np.concatenate(distances) + d * np.log(2.0 * np.pi) + log_volume))


def _positive_variances(result: PCAResult) -> tuple[Array, float]:
    """Return the variances along the components, and the weight 1 / noise variance of all other directions.

    A variance below the noise variance is raised to it. The weight is 0 if there are as many components as columns.
    Raise a DataError if the variance is 0 in some direction.
    """
    d, noise = result.n_features_in_, result.noise_variance_
    variances = np.maximum(result.axes[1], noise)
    zero = d * _RELATIVE_ZERO * float(variances[0])
    rank = int(np.sum(variances > zero))
    if noise <= zero and rank < d:
        remedy = "Use fewer components than the rank of the rows."
        if result.privacy is not None:
            remedy = "The noise of this run is stronger than the variance outside the components. Use a larger epsilon."
        if not result.projects:
            remedy = (
                "Use the result of a PCA such as krylov, because the low-rank part of a robust PCA has no noise left."
            )
        raise DataError(
            f"The likelihood of rows needs a covariance of full rank, but this one has {labels.count(d, 'column')} "
            f"and rank {rank}. {remedy}"
        )
    return variances, 1.0 / noise if result.n_components_ < d else 0.0


def _in_units(result: PCAResult, beyond: Array, noise: float, units: Array) -> Array:
    Z = result.axes[0] * units[:, None]
    return np.asarray((Z * beyond) @ Z.T + np.diag(noise * units**2))


def _units_of_columns(result: PCAResult) -> Array:
    if result.scale_ is None:
        return np.ones(result.n_features_in_)
    return result.scale_
