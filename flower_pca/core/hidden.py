"""A test of whether a block that began with known components may miss a larger direction of the rows.

A run may start from the components of other rows, for example of an earlier run. These components may be
orthogonal to a leading direction of the present rows. Their residuals are then small, and do not show
this direction. The block therefore also has random columns. The projection of an eigenvector v onto
the random columns has at least the length `random_overlap`, and every product with C multiplies this projection
by v's eigenvalue. After some products, the random columns without their part along the components may be
too short to contain an eigenvector with a larger eigenvalue than the last component. This proves that no
such eigenvector is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_UNLIKELY: Final = 1e-3  # the probability that a direction's projection is shorter than `random_overlap`
LARGER: Final = 1.001  # factor by which an eigenvalue must exceed the last wanted eigenvalue to count as larger


def random_overlap(d: int, p: int) -> float:
    """Return the length that a direction's projection onto p random columns in d dimensions exceeds in 99.9 % of cases.

    The square of the projection's length has the distribution Beta(p / 2, (d - p) / 2).
    """
    from scipy.special import betaincinv

    if p >= d:
        return 1.0
    return float(np.sqrt(betaincinv(p / 2.0, (d - p) / 2.0, _UNLIKELY)))


@dataclass(frozen=True)
class RandomTraces:
    """The random columns of a block after the products of a power iteration.

    Attributes
    ----------
    left : ndarray
        The products of the random columns, divided by the last wanted eigenvalue after each product, in the coordinates
        of the block.
    least : float
        The bound that the projection of every direction onto the random columns exceeded before the first product.
    """

    left: Array
    least: float

    @classmethod
    def begin(cls, Z: Array, k: int) -> RandomTraces:
        """Return the traces of a block Z whose columns after the first k are random."""
        d, p = Z.shape
        return cls(np.eye(p)[:, k:], random_overlap(d, p - k))

    def in_ritz_coordinates(self, W: Array, k: int) -> RandomTraces:
        """Return the traces in the coordinates of the Ritz vectors Z W, without the part along the first k vectors."""
        left = W.T @ self.left
        left[:k] = 0.0
        return replace(self, left=left)

    def after_product(self, R: Array, last: float) -> RandomTraces:
        """Return the traces after a product C Z = Z' R, where Z' is the next block and `last` the last eigenvalue."""
        return replace(self, left=R @ self.left / max(last, np.finfo(float).tiny))

    @property
    def may_hide_direction(self) -> bool:
        """Whether a direction with a larger eigenvalue than the last component may still be hidden."""
        return self.left.size > 0 and float(np.linalg.norm(self.left, 2)) >= self.least
