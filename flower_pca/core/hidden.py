"""Test whether a block that began with known components may miss a larger direction of the rows.

Components of other rows may be orthogonal to a direction of these rows. Their residuals are then
small, and do not show this direction. The block therefore also has random columns. A direction v has a
projection of at least `overlap` onto them, and a product with C multiplies it by v's eigenvalue. After
some products, the random columns without their part along the components may be too short for an
eigenvector with the eigenvalue of the last component. Then no such direction exists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_UNLIKELY: Final = 1e-3  # the probability that a direction's projection is below `overlap`
LARGER: Final = 1.001  # An eigenvalue counts as larger if it exceeds the last wanted one by this factor.


def overlap(d: int, p: int) -> float:
    """Return a bound that a direction's projection onto p random orthonormal columns exceeds, 999 times in 1,000.

    Its square has the distribution Beta(p / 2, (d - p) / 2).
    """
    from scipy.special import betaincinv

    if p >= d:
        return 1.0
    return float(np.sqrt(betaincinv(p / 2.0, (d - p) / 2.0, _UNLIKELY)))


@dataclass(frozen=True)
class Traces:
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
    def begin(cls, Z: Array, k: int) -> Traces:
        """Begin with a block whose columns after the first k are random."""
        d, p = Z.shape
        return cls(np.eye(p)[:, k:], overlap(d, p - k))

    def along(self, W: Array, k: int) -> Traces:
        """Return the columns in the coordinates of the Ritz vectors Z W, without their part along the k components."""
        left = W.T @ self.left
        left[:k] = 0.0
        return replace(self, left=left)

    def times(self, R: Array, last: float) -> Traces:
        """Update the columns after a product C Z = Z' R, where Z' is the next block."""
        return replace(self, left=R @ self.left / max(last, np.finfo(float).tiny))

    @property
    def hide(self) -> bool:
        """Whether the columns may still hold a direction that is larger than the last component."""
        return self.left.size > 0 and float(np.linalg.norm(self.left, 2)) >= self.least
