"""Lanczos: estimates of the largest eigenvalues of several symmetric matrices, from few products with blocks.

Each matrix has its own blocks of the same width, which begin with random columns. A message brings the
products of the newest blocks. The next blocks are the parts of these products orthogonal to all blocks
so far. After m messages, the estimate is what polynomials of degree m - 1 can reach from the random
columns. It is never above the true largest eigenvalue, and equally far below it for matrices with
similar eigenvalues. A few messages therefore suffice to compare tables that are all treated in the same
way (block Lanczos: Golub, Underwood 1977).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_SAME: Final = 1e-8  # below this share of the largest square, two directions are the same


@dataclass(frozen=True)
class Lanczos:
    """The blocks of t matrices, and the products known so far.

    Attributes
    ----------
    Q : ndarray of shape (t, d, columns)
        Orthonormal columns for each matrix, the newest block last.
    Y : ndarray
        The products of all blocks but the newest.
    away : ndarray of shape (d, k)
        Orthonormal directions that are removed from the first matrix.
    """

    Q: Array
    Y: Array
    away: Array

    @classmethod
    def begin(cls, tables: int, width: int, away: Array, seed: int) -> Lanczos:
        """Begin before the first message, with random blocks of this many columns."""
        d = len(away)
        drawn = linalg.random_block(d, tables * width, seed).reshape(d, tables, width)
        Q = np.ascontiguousarray(drawn.transpose(1, 0, 2))
        none = np.empty((tables, d, 0))
        return cls(_beside(Q, none, away), none, away)

    @property
    def width(self) -> int:
        """The number of columns of a block."""
        return int(self.Q.shape[2] - self.Y.shape[2])

    @property
    def block(self) -> Array:
        """The newest blocks, (t, d, width)."""
        return self.Q[:, :, self.Y.shape[2] :]

    def take(self, products: Array, *, more: bool) -> Lanczos:
        """Take the products of the newest blocks, and make the next blocks if there are to be `more`."""
        known = replace(self, Y=np.concatenate([self.Y, products], axis=2))
        if not more:
            return known
        block = _beside(products, self.Q, self.away)
        return replace(known, Q=np.concatenate([self.Q, block], axis=2))

    def values(self) -> Array:
        """Return the eigenvalues of each matrix on the span of its blocks, largest first, (t, columns)."""
        T = self.Q.transpose(0, 2, 1) @ self.Y
        symmetric = (T + T.transpose(0, 2, 1)) / 2.0
        return np.asarray(np.linalg.eigvalsh(symmetric)[:, ::-1])


def _beside(blocks: Array, Q: Array, away: Array) -> Array:
    """Return orthonormal columns of the blocks' part orthogonal to Q and, for the first matrix, to `away`.

    The projection is done twice, because a remainder that is mostly rounding contains a part of Q.
    """
    for _ in range(2):
        blocks = blocks - Q @ (Q.transpose(0, 2, 1) @ blocks)
        first = blocks[0] - away @ (away.T @ blocks[0])
        stacked = np.concatenate([first[None], blocks[1:]])
        blocks = np.linalg.qr(stacked)[0]
    return np.asarray(blocks)


def join(V: Array, CV: Array, Q: Array, CQ: Array) -> tuple[Array, Array, Array]:
    """Return Ritz values of C on span([V, Q]), largest first, with vectors and products.

    Directions that V and Q have in common are counted once.
    """
    A = np.hstack([V, Q])
    CA = np.hstack([CV, CQ])
    squares, W = linalg.eigh_descending(A.T @ A)
    there = squares > _SAME * squares[0]
    W = W[:, there] / np.sqrt(squares[there])
    values, V, CV, _ = linalg.rayleigh_ritz(A @ W, CA @ W)
    return values, V, CV
