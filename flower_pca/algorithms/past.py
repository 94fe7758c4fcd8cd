"""Past: blocks of earlier rounds, for what they say of the direction beside the newest one.

An iteration forgets last the eigenvector that follows the wanted ones, so what an earlier block has outside of the
newest one points there. The earlier block must lie far enough back for the difference not to be rounding: of round t
one of rounds t / 4 to t / 2 is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

_APART = 1e-5  # the sine from which a block is replaced by a newer one
_SEEN = 1e-12  # the sine from which a difference is more than rounding


@dataclass(frozen=True)
class Past:
    """The blocks of two rounds, the older one about half as many rounds old as the iteration."""

    older: Array | None = None
    newer: Array | None = None
    rounds: int = 0

    def after(self, Z: Array) -> Past:
        """With one block more: it is kept if its number is a power of two, and the last one kept is no longer near."""
        rounds = self.rounds + 1
        if self.newer is None:
            return Past(None, Z, rounds)
        if rounds & (rounds - 1) or linalg.sin_theta(self.newer, Z) < _APART:
            return Past(self.older, self.newer, rounds)
        return Past(self.newer, Z, rounds)

    def beside(self, Z: Array) -> Array | None:
        """A direction orthogonal to Z, (d, 1); None where the blocks show none."""
        for block in (self.older, self.newer):
            if block is not None:
                U, s, _ = np.linalg.svd(linalg.complement(block, Z), full_matrices=False)
                if s[0] > _SEEN:
                    return np.ascontiguousarray(U[:, :1])
        return None
