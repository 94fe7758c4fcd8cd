"""Fixed statistics of rows less what their covariates explain.

What is left of a row is linear in its features and covariates, so the statistics of the joint table, whose columns are
the features and then the covariates, tell those of the rest. No number of a message meets a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.statistics import Source, Statistics


def source(joint: Source, d: int, covariates: Covariates, site_mean: Array) -> Source:
    """The statistics of the features as a frame with these covariates has them, from those of the joint table.

    `site_mean` is the mean of the joint table of the whole site, also if the statistics are of a part of its rows.
    """
    known, whole = joint
    features = known.of_columns(np.arange(d))
    if not covariates.changes_rows:
        return features, whole and (lambda Z: whole(_padded(Z, known.d))[:d])
    slopes = np.zeros((0, d)) if covariates.slopes is None else covariates.slopes
    q = len(slopes)
    last = d + q
    shift, mean = np.zeros(d), np.zeros(q) if covariates.mean is None else covariates.mean[:q]
    rest = known.rest[:d] - known.rest[d:last] @ slopes
    if covariates.within:
        shift, mean, rest = site_mean[:d], site_mean[d:last], np.zeros(d)
    left = (known.mean[:d] - shift) - (known.mean[d:last] - mean) @ slopes
    changed = replace(features, mean=left, seen=np.full(d, float(known.n)), gaps=features.gaps[:0], rest=rest)
    if known.factor is not None:
        R = known.factor[:, :d] - known.factor[:, d:last] @ slopes
        return replace(changed, factor=R, m2=linalg.column_norms(R) ** 2), None
    if known.scatter is not None:
        along = known.scatter[:d, d:last] @ slopes
        C = known.scatter[:d, :d] - along - along.T + slopes.T @ known.scatter[d:last, d:last] @ slopes
        return replace(changed, scatter=C, m2=np.maximum(np.diagonal(C), 0.0)), None
    assert whole is not None
    m2 = known.m2[:d].copy()
    mu = known.mean

    def product(Z: Array) -> Array:
        """The product of rows of the joint table about their own mean, with the covariates' part taken off both sides,
        and about 0 again.
        """
        wide = _padded(Z, known.d)
        wide[d:last] = -slopes @ Z
        found = whole(wide) - known.n * np.outer(mu, mu @ wide)
        less = found[:d] - slopes.T @ found[d:last]
        return np.asarray(less + known.n * np.outer(left, left @ Z))

    if q:
        crossed = _of_unit_columns(whole, known, d, q)
        m2 += np.einsum("qd,qd->d", slopes, crossed[d:last] @ slopes) - 2.0 * np.einsum("dq,qd->d", crossed[:d], slopes)
    return replace(changed, m2=np.maximum(m2, 0.0)), product


def _padded(Z: Array, rows: int) -> Array:
    """A block with rows of zeros below it."""
    wide = np.zeros((rows, Z.shape[1]))
    wide[: len(Z)] = Z
    return wide


def _of_unit_columns(whole: Any, known: Statistics, d: int, q: int) -> Array:
    """The products of all columns with the covariates about their means."""
    units = np.zeros((known.d, q))
    units[d : d + q] = np.eye(q)
    return np.asarray(whole(units) - known.n * np.outer(known.mean, known.mean @ units))
