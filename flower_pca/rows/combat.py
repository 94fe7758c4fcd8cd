"""Estimate the location and scale of each column at a site by ComBat, with shrinkage over the columns.

Let S be the rows of a site, standardized by the parameters of the run (grand, slopes, sigma), and let g and delta be
the means and variances of the n rows of S, column by column. The estimates of a site with few rows are uncertain. So
empirical Bayes draws them towards their common distribution over the columns (Johnson, Li, Rabinovic 2007; Fortin et
al. 2017): g has a normal prior with mean gbar and variance tau2, and delta has an inverse gamma prior with parameters
lam and nu. The two equations of the posterior are iterated until they settle:

    g*      = (tau2 n g + delta* gbar) / (tau2 n + delta*)
    delta*  = ((n - 1) delta / 2 + n (g - g*)^2 / 2 + nu) / (n / 2 + lam - 1)

A row x with covariates a becomes (S - g*) / sqrt(delta*) sigma + grand + slopes'a. The estimates never leave the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.names.columns import enumeration

LEAST_ROWS: Final = 3  # With fewer rows, the variances of a site are meaningless.
FEW_ROWS: Final = 10  # With fewer rows, the location and scale of a site are uncertain.
_SETTLED: Final = 1e-13  # relative change at which the iteration ends
_MOST: Final = 10_000  # maximum number of iterations (no measured run needed more than 16)


@dataclass(frozen=True)
class SiteEffect:
    """The location g* and the scale delta* of every column at a site, in units of the deviation within sites.

    Attributes
    ----------
    location : ndarray of shape (d,)
        The location g*.
    scale : ndarray of shape (d,)
        The squared scale delta*.
    constant : ndarray of shape (d,)
        True for columns that are constant at the site. Their scale is not changed.
    """

    location: Array
    scale: Array
    constant: Array


def site_effect(n: int, means: Array, variances: Array) -> SiteEffect:
    """Return the effect of a site, computed from the means and variances of its n standardized rows."""
    constant = variances <= 0.0
    delta = np.where(constant, 1.0, variances)
    gbar, tau2 = float(means.mean()), float(means.var(ddof=1))
    mean, variance = float(delta.mean()), float(delta.var(ddof=1))
    if variance > 0.0:
        lam, nu = (2.0 * variance + mean**2) / variance, (mean * variance + mean**3) / variance
    else:  # All columns have the same variance, so the prior of delta is a single point.
        return SiteEffect(_shrunken_estimates(means, delta, n, gbar, tau2), delta, constant)
    location, scale = means, delta
    for _ in range(_MOST):
        before = location, scale
        location = _shrunken_estimates(means, scale, n, gbar, tau2)
        squares = (n - 1) * delta + n * (means - location) ** 2
        scale = (0.5 * squares + nu) / (0.5 * n + lam - 1.0)
        if has_settled(*before, location, scale):
            break
    return SiteEffect(location, scale, constant)


def hints_of_few_rows(rows: Array, keys: Array) -> list[str]:
    """Return a hint about sites whose location and scale are uncertain because they have fewer than 10 rows."""
    few = [f"client {key}" for key, n in zip(keys.tolist(), rows.tolist(), strict=True) if n < FEW_ROWS]
    if not few:
        return []
    verb = "has" if len(few) == 1 else "have"
    return [
        f"{labels.join_with_and(few)} {verb} fewer than {FEW_ROWS} rows, so location and scale are uncertain "
        f"there. Leave "
        "them out, or wait until they have more rows."
    ]


def hints_of_constant_columns(pairs: Array, keys: Array, names: Sequence[str] | None) -> list[str]:
    """Return one hint for each site that has constant columns.

    Parameters
    ----------
    pairs : ndarray of shape (m, 2)
        The position of a site and the position of a column that is constant at the site, sorted by site.
    keys : ndarray
        The keys of all sites.
    names : sequence of str, optional
        The names of the columns, if they have names.
    """
    sites = np.unique(pairs[:, 0])
    return [hint_of_constant_columns(pairs[pairs[:, 0] == i, 1], names, f"client {keys[i]}") for i in sites]


def hint_of_constant_columns(positions: Array, names: Sequence[str] | None, who: str) -> str:
    """Return the hint that columns are constant at a site, and that harmonizing has not changed their scale."""
    columns = [str(j) if names is None else names[j] for j in positions.tolist()]
    noun, verb = ("Column", "is") if len(columns) == 1 else ("Columns", "are")
    return (
        f"{noun} {enumeration(columns)} {verb} constant at {who}, so harmonizing shifted the rows there without "
        "changing their scale. Check the file."
    )


def has_settled(location: Array, scale: Array, new_location: Array, new_scale: Array) -> bool:
    """Return whether an iteration has changed all locations and scales by at most a relative 1e-13."""
    size = np.maximum(np.abs(location), np.sqrt(scale))
    moved = np.max(np.abs(new_location - location) / size, initial=0.0)
    return bool(max(moved, np.max(np.abs(new_scale - scale) / scale, initial=0.0)) <= _SETTLED)


def _shrunken_estimates(means: Array, scale: Array, n: int, gbar: float, tau2: float) -> Array:
    return np.asarray((tau2 * n * means + scale * gbar) / (tau2 * n + scale))
