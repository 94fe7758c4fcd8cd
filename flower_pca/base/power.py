"""The power method on an orthonormal block, with a QR every few products."""

from __future__ import annotations

from dataclasses import dataclass

from flower_pca.base import linalg
from flower_pca.base.linalg import Array


@dataclass(frozen=True)
class Power:
    """U, the newest orthonormal block, its product where it was heard, and C^inside U, which goes out next."""

    U: Array
    product: Array | None
    block: Array
    inside: int = 0

    @classmethod
    def of(cls, U: Array) -> Power:
        """The start of an iteration."""
        return cls(U, None, U)

    def step(self, Y: Array, qr_every: int) -> Power:
        """After Y = C block + W: made orthonormal after `qr_every` products, handed on as it is until then."""
        inside = self.inside + 1
        product = Y if inside == 1 else self.product
        if inside < qr_every:
            return Power(self.U, product, Y, inside)
        U = linalg.orth(Y)
        # A product of just this block is kept, for what it says of the U before; of a longer one it is out of date.
        return Power(self.U, product, U) if qr_every == 1 else Power.of(U)
