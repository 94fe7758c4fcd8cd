"""Block Lanczos estimates of the largest eigenvalues of several symmetric matrices, from few products.

Each matrix has its own blocks. All blocks have the same width, and the first block is random. Each
message returns the products of the newest blocks. The next blocks are the parts of these products that
are orthogonal to all blocks so far. After m messages, the estimate is the largest Ritz value on the
Krylov space of the random columns with polynomials up to degree m - 1. An estimate is never above the
true largest eigenvalue, and is about equally far below it for matrices with similar eigenvalues.
A few messages are therefore enough to compare matrices that are all treated in the same way (block
Lanczos: Golub, Underwood 1977).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_SAME: Final = 1e-8  # the relative size of a squared difference up to which two directions count as the same


@dataclass(frozen=True)
class BatchedLanczos:
    """The blocks of t matrices, and the products known so far.

    Attributes
    ----------
    Q : ndarray of shape (t, d, columns)
        Orthonormal columns for each matrix, the newest block last.
    Y : ndarray
        The products of all blocks except the newest.
    away : ndarray of shape (d, k)
        The orthonormal directions that are removed from the first matrix.
    """

    Q: Array
    Y: Array
    away: Array

    @classmethod
    def begin(cls, tables: int, width: int, away: Array, seed: int) -> BatchedLanczos:
        """Return the state before the first message, with a random block of `width` columns for each matrix."""
        d = len(away)
        drawn = linalg.random_block(d, tables * width, seed).reshape(d, tables, width)
        Q = np.ascontiguousarray(drawn.transpose(1, 0, 2))
        none = np.empty((tables, d, 0))
        return cls(_orthogonal_part(Q, none, away), none, away)

    @property
    def width(self) -> int:
        """The number of columns of a block."""
        return int(self.Q.shape[2] - self.Y.shape[2])

    @property
    def block(self) -> Array:
        """The newest blocks, (t, d, width)."""
        return self.Q[:, :, self.Y.shape[2] :]

    def with_products(self, products: Array, *, more: bool) -> BatchedLanczos:
        """Return the state with the products of the newest blocks and, if `more` messages follow, the next blocks."""
        known = replace(self, Y=np.concatenate([self.Y, products], axis=2))
        if not more:
            return known
        block = _orthogonal_part(products, self.Q, self.away)
        return replace(known, Q=np.concatenate([self.Q, block], axis=2))

    def ritz_values(self) -> Array:
        """Return the eigenvalues of each matrix on the span of its blocks, largest first, (t, columns)."""
        T = self.Q.transpose(0, 2, 1) @ self.Y
        symmetric = (T + T.transpose(0, 2, 1)) / 2.0
        return np.asarray(np.linalg.eigvalsh(symmetric)[:, ::-1])


def _orthogonal_part(blocks: Array, Q: Array, away: Array) -> Array:
    """Return orthonormal columns that span the part of the blocks orthogonal to Q.

    For the first matrix, the columns are also orthogonal to `away`. The projection is done twice, because a
    small remainder has rounding errors along Q.
    """
    for _ in range(2):
        blocks = blocks - Q @ (Q.transpose(0, 2, 1) @ blocks)
        first = blocks[0] - away @ (away.T @ blocks[0])
        stacked = np.concatenate([first[None], blocks[1:]])
        blocks = np.linalg.qr(stacked)[0]
    return np.asarray(blocks)


def ritz_of_both(V: Array, CV: Array, Q: Array, CQ: Array) -> tuple[Array, Array, Array]:
    """Return the Ritz values of C on span([V, Q]), largest first, with their vectors and products.

    Directions that V and Q have in common are used only once.
    """
    A = np.hstack([V, Q])
    CA = np.hstack([CV, CQ])
    squares, W = linalg.eigh_descending(A.T @ A)
    there = squares > _SAME * squares[0]
    W = W[:, there] / np.sqrt(squares[there])
    values, V, CV, _ = linalg.rayleigh_ritz(A @ W, CA @ W)
    return values, V, CV
