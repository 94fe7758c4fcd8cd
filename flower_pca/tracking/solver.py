"""Leading eigenvectors of a sum over the clients, from a warm start: what one step of tracking asks of its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.base.power import Power

_NULL: Final = 1e-8  # a Ritz value so far below the first has no power step to gain from
_TINY: Final = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Solver:
    """r leading eigenvectors of C = sum of L'L, from products C B with the block B sent last.

    Attributes:
        r: How many are wanted.
        Q, CQ: What a Krylov space has learnt; without columns for the power method.
        power: The power method; None for a Krylov space.
        block: What to send next, once `onward` has been asked; before that what was sent last.
        heard: The product of the block sent last.
        products: Messages so far.
        error: Estimated sine of the angle to the true space, ||residual|| / gap.
        values: Ritz values, largest first, at most r + 1.
        W: The Ritz vectors: in the coordinates of Q, for the power method as they are.
        beyond: The largest Ritz value in what is orthogonal to the first r columns sent; 0 where it is not known.
    """

    r: int
    Q: Array
    CQ: Array
    power: Power | None
    block: Array
    heard: Array | None = None
    products: int = 0
    error: float = np.inf
    values: Array | None = None
    W: Array | None = None
    beyond: float = 0.0

    @classmethod
    def krylov(cls, start: Array, *, r: int) -> Solver:
        """A Krylov space that begins with these orthonormal columns, r or more."""
        none = start[:, :0]
        return cls(r, none, none, None, start)

    @classmethod
    def by_power(cls, start: Array, *, r: int) -> Solver:
        """The power method from these r orthonormal columns."""
        none = start[:, :0]
        return cls(r, none, none, Power.of(start), start)

    def step(self, S: Array, qr_every: int) -> Solver:
        """After S = C block (and noise, maybe)."""
        products = self.products + 1
        if self.power is None:
            return replace(self._extended(S), heard=S, products=products)
        power = self.power.step(S, qr_every)
        solver = replace(self, power=power, block=power.block, products=products)
        if self.power.inside == 0:
            values, W, _, residuals = linalg.rayleigh_ritz(self.block, S)
            error = float(np.linalg.norm(residuals)) / max(float(values[-1]), _TINY)
            solver = replace(solver, values=values, W=W, error=error)
        return solver

    def known(self) -> tuple[Array, Array]:
        """All Ritz vectors that there are, and their values."""
        if self.power is not None:
            assert self.values is not None
            assert self.W is not None
            return self.W, self.values
        values, W = linalg.eigh_descending(self.Q.T @ self.CQ)
        return self.Q @ W, values

    def done(self, *, tol: float, products: int) -> bool:
        """Whether the basis may be read: it is as good as asked for, or the messages are used up."""
        if self.values is None or (self.power is not None and self.power.inside):
            return False
        gap = float(self.values[self.r - 1] - self.values[-1]) if len(self.values) > self.r else float(self.values[-1])
        rounding = 64.0 * np.finfo(float).eps * float(self.values[0]) / max(gap, _TINY)
        return self.error <= max(tol, rounding) or self.products >= products

    def basis(self) -> Array:
        """The estimate, d x r, one power step beyond what the error speaks of."""
        if self.power is not None:
            return self.power.block
        assert self.values is not None
        assert self.W is not None
        values, W = self.values[: self.r], self.W[:, : self.r]
        full = values > _NULL * max(float(values[0]), _TINY)  # where there is no C z, it tells nothing
        return linalg.orth(np.where(full, (self.CQ @ W) / np.where(full, values, 1.0), self.Q @ W))

    def onward(self) -> Solver:
        """With the next block to send."""
        if self.power is not None:
            return self
        assert self.heard is not None
        assert self.values is not None
        return replace(self, block=linalg.krylov_block(self.heard, self.Q, max(float(self.values[0]), _TINY)))

    def _extended(self, S: Array) -> Solver:
        r, Q, CQ = self.r, np.hstack([self.Q, self.block]), np.hstack([self.CQ, S])
        T = Q.T @ CQ
        values, W = linalg.eigh_descending(T)
        rest = float(np.linalg.norm(CQ @ W[:, :r] - (Q @ W[:, :r]) * values[:r]))
        following = float(values[r]) if len(values) > r else 0.0
        error = rest / max(float(values[r - 1]) - following, _TINY)
        inner = T[r:, r:]
        beyond = float(np.linalg.eigvalsh((inner + inner.T) / 2)[-1]) if len(inner) else 0.0
        return replace(self, Q=Q, CQ=CQ, error=error, values=values[: r + 1], W=W, beyond=beyond)
