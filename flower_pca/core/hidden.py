"""Hidden: whether a direction larger than those that are wanted may hide from a block that began with known components.

Components of other rows may be orthogonal to a direction of these rows. Their residuals are small
then, and say nothing of it. Beside them a block has random columns. A direction v has a share of at
least `overlap` in them, and a product with C multiplies that share by v's eigenvalue. If products
of the random columns, less what lies along the components, have become too short to hold such a
share of an eigenvector with the eigenvalue of the last component, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

_UNLIKELY: Final = 1e-3  # how often a random block may have less of a direction than `overlap` says
LARGER: Final = 1.001  # multiples of the last eigenvalue from which another one counts as larger


def overlap(d: int, p: int) -> float:
    """The least length that a direction's projection onto p random orthonormal columns has, but for one in a thousand.

    Its square has the distribution Beta(p / 2, (d - p) / 2).
    """
    from scipy.special import betaincinv

    if p >= d:
        return 1.0
    return float(np.sqrt(betaincinv(p / 2.0, (d - p) / 2.0, _UNLIKELY)))


@dataclass(frozen=True)
class Traces:
    """What a power iteration has made of the random columns of its block.

    Attributes
    ----------
    left : ndarray
        Their products, divided by the last wanted eigenvalue each time, in the coordinates of the block.
    least : float
        The share that every direction had of them at first.
    """

    left: Array
    least: float

    @classmethod
    def begin(cls, Z: Array, k: int) -> Traces:
        """In a block whose columns behind the first k are random."""
        d, p = Z.shape
        return cls(np.eye(p)[:, k:], overlap(d, p - k))

    def along(self, W: Array, k: int) -> Traces:
        """In the Ritz vectors Z W, without what lies along the k components: no hidden direction does."""
        left = W.T @ self.left
        left[:k] = 0.0
        return replace(self, left=left)

    def times(self, R: Array, last: float) -> Traces:
        """After a product: C Z = Z' R, with Z' the next block."""
        return replace(self, left=R @ self.left / max(last, np.finfo(float).tiny))

    @property
    def hide(self) -> bool:
        """Whether they may still hold a direction that is larger than the last component."""
        return self.left.size > 0 and float(np.linalg.norm(self.left, 2)) >= self.least
