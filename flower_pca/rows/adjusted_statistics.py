"""Compute the fixed statistics of adjusted rows from the fixed statistics of features and covariates.

An adjusted row is linear in its features and covariates. So the statistics of the joint table, whose columns are the
features followed by the covariates, determine the statistics of the adjusted rows. No number from a message is
multiplied with a row.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.rows.moves import RowMap
from flower_pca.rows.statistics import Product, Source, Statistics


def adjusted_source(joint: Source, d: int, moves: RowMap | None) -> Source:
    """Return the statistics of the features, transformed by the moves unless `moves` is None.

    If the statistics of the joint table have neither C nor R, the result includes a function that computes C Z for a
    block Z: see `statistics`. Otherwise, None takes its place.
    """
    known, whole = joint
    features = known.select_columns(np.arange(d))
    if moves is None:
        return features, whole and functools.partial(_product_of_features, whole, known.mean)
    slopes, f = moves.slopes, moves.factor
    q = len(slopes)
    last = d + q
    left = (known.mean[:d] - moves.shift) * f - (known.mean[d:last] - moves.mean) @ slopes
    rest = known.rest[:d] * f - known.rest[d:last] @ slopes
    rest = np.where(moves.shift == known.mean[:d], 0.0, rest)  # The rounding error would reveal the site's own mean.
    changed = replace(features, mean=left, seen=np.full(d, float(known.n)), gaps=features.gaps[:0], rest=rest)
    if known.factor is not None:
        R = known.factor[:, :d] * f - known.factor[:, d:last] @ slopes
        return replace(changed, factor=R, m2=linalg.column_norms(R) ** 2), None
    if known.scatter is not None:
        along = (known.scatter[:d, d:last] @ slopes) * f[:, None]
        C = known.scatter[:d, :d] * np.outer(f, f) - along - along.T + slopes.T @ known.scatter[d:last, d:last] @ slopes
        return replace(changed, scatter=C, m2=np.maximum(np.diagonal(C), 0.0)), None
    assert whole is not None

    def product(Z: Array, fill: Array | None) -> Array:
        """Return C Z for the transformed features. `fill` has no effect, because missing values have been filled."""
        wide = _pad_with_zero_rows(f[:, None] * Z, known.d)
        wide[d:last] = -slopes @ Z
        found = whole(wide, None)
        return np.asarray(f[:, None] * found[:d] - slopes.T @ found[d:last])

    m2 = known.m2[:d] * f**2
    if q:
        crossed = _products_of_unit_columns(whole, known, d, q)
        squares = np.einsum("qd,qd->d", slopes, crossed[d:last] @ slopes)
        m2 = m2 + squares - 2.0 * f * np.einsum("dq,qd->d", crossed[:d], slopes)
    return replace(changed, m2=np.maximum(m2, 0.0)), product


def _product_of_features(joint_product: Product, mean: Array, Z: Array, fill: Array | None) -> Array:
    """Return C Z for the features. `joint_product` computes C Z for the joint table with these column means."""
    if fill is not None:
        fill = np.concatenate([fill, mean[len(fill) :]])
    return np.asarray(joint_product(_pad_with_zero_rows(Z, len(mean)), fill)[: len(Z)])


def _pad_with_zero_rows(Z: Array, rows: int) -> Array:
    """Return a block with rows of zeros added below, up to this number of rows."""
    wide = np.zeros((rows, Z.shape[1]))
    wide[: len(Z)] = Z
    return wide


def _products_of_unit_columns(joint_product: Product, known: Statistics, d: int, q: int) -> Array:
    """Return the products of all columns of the joint table with the covariates, about their means."""
    units = np.zeros((known.d, q))
    units[d : d + q] = np.eye(q)
    return np.asarray(joint_product(units, None))
