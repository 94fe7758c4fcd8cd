"""A factor model that splits second moments C into k leading directions and noise that differs between columns.

The noise of a column is the part of C's diagonal that the leading factors do not explain. Rows are
weighted so that the noise is equal in all columns. The leading directions of the weighted rows are then
the directions of the factors, and noisy columns do not disturb them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_LEAST: Final = 0.02  # minimum noise of a column, as a share of the variance that leading directions leave unexplained
_TINY: Final = 1e-12  # the minimum noise of a column, as a share of its variance
_SETTLED: Final = 1e-3  # the relative change of the noise below which the iteration has converged
_STEPS: Final = 60  # the maximum number of iterations


class CovarianceSource(Protocol):
    """A source of products and eigenvectors of C: either all of C, or its Ritz vectors with their products."""

    @property
    def diagonal(self) -> Array:
        """The diagonal of C."""

    def leading_without_noise(self, noise: Array, rank: int) -> tuple[Array, Array]:
        """Return the largest eigenvalues of C - diag(noise), and at least `rank` eigenvectors."""

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        """Return the `rank` leading directions of the weighted rows. The weights make noise equal in all columns."""

    def product(self, V: Array) -> Array:
        """Return C V for eigenvectors V of C."""


@dataclass(frozen=True)
class WholeCovariance:
    """A source that holds all of C."""

    C: Array

    @property
    def diagonal(self) -> Array:
        return np.diagonal(self.C)

    def leading_without_noise(self, noise: Array, rank: int) -> tuple[Array, Array]:
        return linalg.eigh_leading(self.C - np.diag(noise), rank)

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        weighted = self.C * np.outer(weights, weights)
        return linalg.eigh_leading(weighted, rank)[1][:, :rank]

    def product(self, V: Array) -> Array:
        return self.C @ V


@dataclass(frozen=True)
class CovarianceOnSpan:
    """A source that holds Ritz vectors V of C, their products C V, and the diagonal of C."""

    V: Array
    CV: Array
    squares: Array

    @property
    def diagonal(self) -> Array:
        return self.squares

    def leading_without_noise(self, noise: Array, rank: int) -> tuple[Array, Array]:
        inner = self.V.T @ (self.CV - noise[:, None] * self.V)
        values, W = linalg.eigh_descending(inner)
        return values, self.V @ W[:, :rank]

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        # The leading directions of the weighted rows span the same space as diag(weights) L, where L holds the
        # leading eigenvectors of C - diag(noise).
        return linalg.orth(weights[:, None] * self.leading_without_noise(noise, rank)[1])

    def product(self, V: Array) -> Array:
        return self.CV[:, : V.shape[1]]


def weighted_basis(source: CovarianceSource, rank: int) -> tuple[Array, Array]:
    """Return weights that make the noise equal in all columns, and the leading directions of the weighted rows."""
    noise = _noise_by_column(source, rank)
    least = float(noise[noise > 0.0].min())
    weights = np.sqrt(least / np.where(noise > 0.0, noise, least))
    return weights, source.directions(weights, noise, rank)


def _noise_by_column(source: CovarianceSource, rank: int) -> Array:
    """Return the part of C's diagonal that `rank` factors do not explain, by iterated principal factors."""
    all_of_it = source.diagonal
    values, V = source.leading_without_noise(np.zeros(len(all_of_it)), rank)
    explained = V[:, :rank] ** 2 @ values[:rank]
    left = (all_of_it - explained) / _squares_outside(V[:, :rank])
    least = np.maximum(_LEAST * left, _TINY * all_of_it)
    noise = np.clip(left, least, all_of_it)
    scale = np.where(noise > 0.0, noise, 1.0)
    for _ in range(_STEPS):
        values, V = source.leading_without_noise(noise, rank)
        positive = np.maximum(values[:rank], 0.0)
        explained = V[:, :rank] ** 2 @ positive
        before, noise = noise, np.clip(all_of_it - explained, least, all_of_it)
        if float(np.max(np.abs(noise - before) / scale)) < _SETTLED:
            break
    return np.asarray(noise)


def restoring_factors(weights: Array, W: Array) -> Array:
    """Return factors that restore the noise of each column after weighting and projection."""
    return np.asarray(1.0 / (weights * np.sqrt(_squares_outside(W))))


def _squares_outside(V: Array) -> Array:
    """Return the squared length of each column's axis outside the span of V, but at least 1 / d."""
    beside = 1.0 - np.sum(V**2, axis=1)
    return np.asarray(np.maximum(beside, 1.0 / len(V)))
