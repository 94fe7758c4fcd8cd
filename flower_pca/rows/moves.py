"""Transform features by their covariates, or harmonize them: the linear maps of a frame with covariates.

If covariates are removed, or if sites are harmonized, a row x with covariates a becomes

    (x - shift) * factor - slopes'(a - mean)

This map is linear, so the moments and products of a site's joint table determine all results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows import combat
from flower_pca.rows.combat import SiteEffect
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Moments


class JointTable(Protocol):
    """The joint table of a site, whose columns are the features followed by the covariates."""

    n: int
    d: int
    who: str

    def moments(self) -> Moments:
        """Return the moments of the columns."""

    def local_product(self, block: Array) -> tuple[Moments, Array]:
        """Return the moments, and the product X'(XZ) of the rows about their mean with a block Z."""


@dataclass(frozen=True)
class RowMap:
    """The parameters of the linear map from the features and covariates of a row to its transformed features.

    Attributes
    ----------
    shift, factor : ndarray of shape (d,)
        The shift that is subtracted from each feature, and the factor by which the shifted feature is multiplied.
    slopes : ndarray of shape (q, d)
        The coefficients of the first q covariates in the part that is subtracted from each feature.
    mean : ndarray of shape (q,)
        The means that are subtracted from the covariates first.
    """

    shift: Array
    factor: Array
    slopes: Array
    mean: Array


def row_map_of(joint: JointTable, d: int, covariates: Covariates) -> RowMap:
    """Return the map for the rows of a site with this joint table, whose first d columns are features."""
    slopes = np.zeros((0, d)) if covariates.slopes is None else covariates.slopes
    q = len(slopes)
    if covariates.sigma is not None:
        return _harmonizing_map(joint, d, covariates, slopes)
    mean = np.zeros(q) if covariates.mean is None else covariates.mean[:q]
    if not covariates.within:
        return RowMap(np.zeros(d), np.ones(d), slopes, mean)
    site_mean = np.asarray(joint.moments().mean, dtype=np.float64)
    return RowMap(site_mean[:d], np.ones(d), slopes, site_mean[d : d + q])


def _harmonizing_map(joint: JointTable, d: int, covariates: Covariates, slopes: Array) -> RowMap:
    assert covariates.sigma is not None
    assert covariates.grand is not None
    of_site = covariates.effect or effect(joint, d, covariates)
    root = np.sqrt(of_site.scale)
    shift = covariates.sigma * of_site.location - (root - 1.0) * covariates.grand
    return RowMap(shift, 1.0 / root, slopes * (1.0 / root - 1.0), np.zeros(len(slopes)))


def effect(joint: JointTable, d: int, covariates: Covariates) -> SiteEffect:
    """Return the difference of a site from all sites, computed from its joint table."""
    assert covariates.sigma is not None
    assert covariates.grand is not None
    if joint.n < combat.LEAST_ROWS:
        raise DataError(
            f"The site of {joint.who} has fewer than {combat.LEAST_ROWS} rows, so its variances are not reliable. "
            "Leave the site out, or wait until it has 10 rows."
        )
    slopes = np.zeros((0, d)) if covariates.slopes is None else covariates.slopes
    last = d + len(slopes)
    units = np.zeros((joint.d, len(slopes)))
    units[d:last] = np.eye(len(slopes))
    moments, product = joint.local_product(units)
    means, product = np.asarray(moments.mean, dtype=np.float64), product.astype(np.float64)
    left = residual_squares(moments.m2[:d], product[:d], product[d:last], slopes)
    location = (means[:d] - covariates.grand - means[d:last] @ slopes) / covariates.sigma
    return combat.site_effect(joint.n, location, left / covariates.sigma**2 / (joint.n - 1))


def residual_squares(squares: Array, products: Array, covariates: Array, slopes: Array) -> Array:
    """Return the sum of squares (d,) that is left in each column of a site after the slopes have been removed.

    All sums are about the means of the site. A remainder that consists of rounding errors becomes 0.

    Parameters
    ----------
    squares : ndarray of shape (d,)
        The sums of squares of the columns.
    products : ndarray of shape (d, q)
        The products of columns and covariates.
    covariates : ndarray of shape (q, q)
        The products of the covariates.
    slopes : ndarray of shape (q, d)
        The slopes.
    """
    left = squares - 2.0 * np.einsum("dq,qd->d", products, slopes)
    left = left + np.einsum("qd,qr,rd->d", slopes, covariates, slopes)
    return np.where(left > 1e-14 * squares, left, 0.0)
