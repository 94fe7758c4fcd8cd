"""Factors: split C into k leading directions and noise that may differ between columns.

The noise of a column is the part of C's diagonal that the leading factors do not explain. Rows are
weighted so that the noise is equal in all columns. The leading directions of the weighted rows are then
those of the factors, and noisy columns do not disturb them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_LEAST: Final = 0.02  # the least share of noise in the part of a column's variance that leading directions leave
_TINY: Final = 1e-12  # below this share of a column's variance, nothing is left
_SETTLED: Final = 1e-3  # the relative step at which the iteration has settled
_STEPS: Final = 60


class Known(Protocol):
    """What is known of C: all of C, or a span."""

    @property
    def diagonal(self) -> Array:
        """The diagonal of C."""

    def leading(self, noise: Array, rank: int) -> tuple[Array, Array]:
        """Return the largest eigenvalues of C less the noise on its diagonal, and at least `rank` of their vectors."""

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        """Return the leading directions of the weighted rows, whose noise is equal in all columns."""

    def product(self, V: Array) -> Array:
        """Return C V for eigenvectors V of C."""


@dataclass(frozen=True)
class Whole:
    """All of C."""

    C: Array

    @property
    def diagonal(self) -> Array:
        return np.diagonal(self.C)

    def leading(self, noise: Array, rank: int) -> tuple[Array, Array]:
        return linalg.eigh_leading(self.C - np.diag(noise), rank)

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        weighted = self.C * np.outer(weights, weights)
        return linalg.eigh_leading(weighted, rank)[1][:, :rank]

    def product(self, V: Array) -> Array:
        return self.C @ V


@dataclass(frozen=True)
class Span:
    """Ritz vectors V of C, their products, and the diagonal of C."""

    V: Array
    CV: Array
    squares: Array

    @property
    def diagonal(self) -> Array:
        return self.squares

    def leading(self, noise: Array, rank: int) -> tuple[Array, Array]:
        inner = self.V.T @ (self.CV - noise[:, None] * self.V)
        values, W = linalg.eigh_descending(inner)
        return values, self.V @ W[:, :rank]

    def directions(self, weights: Array, noise: Array, rank: int) -> Array:
        # The leading directions of weighted rows are those of diag(weights) L, where L are the factors beside
        # this noise.
        return linalg.orth(weights[:, None] * self.leading(noise, rank)[1])

    def product(self, V: Array) -> Array:
        return self.CV[:, : V.shape[1]]


def weighed_basis(known: Known, rank: int) -> tuple[Array, Array]:
    """Return weights that make the noise equal in all columns, and the leading directions of the weighted rows."""
    noise = _noise(known, rank)
    least = float(noise[noise > 0.0].min())
    weights = np.sqrt(least / np.where(noise > 0.0, noise, least))
    return weights, known.directions(weights, noise, rank)


def _noise(known: Known, rank: int) -> Array:
    """Return the part of C's diagonal that the factors do not explain (principal factors, iterated)."""
    all_of_it = known.diagonal
    values, V = known.leading(np.zeros(len(all_of_it)), rank)
    explained = V[:, :rank] ** 2 @ values[:rank]
    left = (all_of_it - explained) / _beside(V[:, :rank])
    least = np.maximum(_LEAST * left, _TINY * all_of_it)
    noise = np.clip(left, least, all_of_it)
    scale = np.where(noise > 0.0, noise, 1.0)
    for _ in range(_STEPS):
        values, V = known.leading(noise, rank)
        positive = np.maximum(values[:rank], 0.0)
        explained = V[:, :rank] ** 2 @ positive
        before, noise = noise, np.clip(all_of_it - explained, least, all_of_it)
        if float(np.max(np.abs(noise - before) / scale)) < _SETTLED:
            break
    return np.asarray(noise)


def give_back(weights: Array, W: Array) -> Array:
    """Return the factors that restore the noise of each column after weighting and projection."""
    return np.asarray(1.0 / (weights * np.sqrt(_beside(W))))


def _beside(V: Array) -> Array:
    """Return the share of each column's axis outside the span of V, which is at least 1 / d."""
    beside = 1.0 - np.sum(V**2, axis=1)
    return np.asarray(np.maximum(beside, 1.0 / len(V)))
