"""Lanczos: what few messages tell of the largest eigenvalues of several symmetric matrices, by products with blocks.

Each matrix has blocks of its own, of the same width, and begins at random columns. A message brings
the products of the newest blocks; the next ones are what lies beside all blocks so far. After m
messages the largest eigenvalue on the span of the blocks is as large as polynomials of degree m - 1
bring it out of so many random columns: never above the true one, and of two matrices with
eigenvalues alike equally far below. So where tables are only to be compared, and each is treated
the same, few messages do (block Lanczos: Golub, Underwood 1977).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_SAME: Final = 1e-8  # Below this share of the largest square, two directions are the same.


@dataclass(frozen=True)
class Lanczos:
    """The blocks of t matrices, and their products as far as they have come.

    Attributes
    ----------
    Q : ndarray of shape (t, d, columns)
        Orthonormal columns of each, the newest block last.
    Y : ndarray
        The products of all but that block.
    away : ndarray of shape (d, k)
        Directions that the first matrix is looked at beside, orthonormal.
    """

    Q: Array
    Y: Array
    away: Array

    @classmethod
    def begin(cls, tables: int, width: int, away: Array, seed: int) -> Lanczos:
        """Before the first message, with random blocks of so many columns."""
        d = len(away)
        drawn = linalg.random_block(d, tables * width, seed).reshape(d, tables, width)
        Q = np.ascontiguousarray(drawn.transpose(1, 0, 2))
        none = np.empty((tables, d, 0))
        return cls(_beside(Q, none, away), none, away)

    @property
    def width(self) -> int:
        """Columns of a block."""
        return int(self.Q.shape[2] - self.Y.shape[2])

    @property
    def block(self) -> Array:
        """The newest blocks, (t, d, width)."""
        return self.Q[:, :, self.Y.shape[2] :]

    def take(self, products: Array, *, more: bool) -> Lanczos:
        """With the products of the newest blocks; with the next ones if there is to be `more`."""
        known = replace(self, Y=np.concatenate([self.Y, products], axis=2))
        if not more:
            return known
        block = _beside(products, self.Q, self.away)
        return replace(known, Q=np.concatenate([self.Q, block], axis=2))

    def values(self) -> Array:
        """The eigenvalues of each matrix on the span of its blocks, largest first, (t, columns)."""
        T = self.Q.transpose(0, 2, 1) @ self.Y
        symmetric = (T + T.transpose(0, 2, 1)) / 2.0
        return np.asarray(np.linalg.eigvalsh(symmetric)[:, ::-1])


def _beside(blocks: Array, Q: Array, away: Array) -> Array:
    """Orthonormal columns of what of the blocks lies beside Q and, of the first, beside `away`.

    Done twice: what is left may be no more than rounding, and then has part of Q in it.
    """
    for _ in range(2):
        blocks = blocks - Q @ (Q.transpose(0, 2, 1) @ blocks)
        first = blocks[0] - away @ (away.T @ blocks[0])
        stacked = np.concatenate([first[None], blocks[1:]])
        blocks = np.linalg.qr(stacked)[0]
    return np.asarray(blocks)


def join(V: Array, CV: Array, Q: Array, CQ: Array) -> tuple[Array, Array, Array]:
    """Ritz values of C, largest first, on the span of orthonormal V and Q together, with vectors and their products.

    Directions that V and Q have in common are counted once.
    """
    A = np.hstack([V, Q])
    CA = np.hstack([CV, CQ])
    squares, W = linalg.eigh_descending(A.T @ A)
    there = squares > _SAME * squares[0]
    W = W[:, there] / np.sqrt(squares[there])
    values, V, CV, _ = linalg.rayleigh_ritz(A @ W, CA @ W)
    return values, V, CV
