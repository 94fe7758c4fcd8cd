"""Leading eigenvectors of a sum over the clients, from a warm start: what one step of tracking asks of its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array, Power

# a Ritz value so far below the first has no power step to gain from
_NULL: Final = 1e-8
# error that rounding may leave, that of masks' fixed point included
_ROUNDED: Final = 1e-8
_TINY: Final = float(np.finfo(float).tiny)
_EPS: Final = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Solver:
    """r leading eigenvectors of C = sum of L'L, from products C B with the block B sent last.

    Attributes
    ----------
    r : int
        How many are wanted.
    Q, CQ, T : ndarray
        What a Krylov space has learnt, and T = Q'CQ; without columns for the power method.
    power : Power or None
        The power method; None for a Krylov space.
    block : ndarray
        What to send next, once `onward` has been asked; before that what was sent last.
    heard : ndarray or None
        The product of the block sent last.
    products : int
        Messages so far.
    error : float
        Estimated sine of the angle to the true space, ||residual|| / gap.
    values : ndarray or None
        Ritz values, largest first, at most r + 1.
    stuck : bool
        Whether the power method's error has not fallen any more, and is as small as rounding may leave it.
    Z, CZ : ndarray or None
        The first r Ritz vectors, until `onward` has been asked; their products, from a Krylov space.
    whole : tuple or None
        From a Krylov space all Ritz values and the eigenvectors of T, likewise until then.
    """

    r: int
    Q: Array
    CQ: Array
    T: Array
    power: Power | None
    block: Array
    heard: Array | None = None
    products: int = 0
    error: float = np.inf
    values: Array | None = None
    stuck: bool = False
    Z: Array | None = None
    CZ: Array | None = None
    whole: tuple[Array, Array] | None = None

    @classmethod
    def krylov(cls, start: Array, *, r: int) -> Solver:
        """A Krylov space that begins with these orthonormal columns, r or more."""
        none = start[:, :0]
        return cls(r, none, none, np.zeros((0, 0)), None, start)

    @classmethod
    def by_power(cls, start: Array, *, r: int) -> Solver:
        """The power method from these r orthonormal columns."""
        return replace(cls.krylov(start, r=r), power=Power.of(start))

    def step(self, S: Array, qr_every: int) -> Solver:
        """After S = C block (and noise, maybe)."""
        if self.power is None:
            return self._extend(S)
        products = self.products + 1
        if self.power.inside:
            power = self.power.step(S, qr_every)
            return replace(self, power=power, block=power.block, products=products)
        values, Z, CZ, residuals = linalg.rayleigh_ritz(self.block, S)
        # The value after the r-th is not known here: it is taken for 0 in the gap, as `_gap` does.
        largest = max(float(values[-1]), _TINY)
        error = float(linalg.column_norms(residuals[:, None])[0]) / largest
        # the columns are in the order of the values from here on
        power = replace(self.power, U=Z).step(CZ, qr_every)
        return replace(
            self,
            power=power,
            block=power.block,
            products=products,
            values=values,
            Z=Z,
            error=error,
            stuck=self.error <= error <= _ROUNDED,
        )

    @property
    def beyond(self) -> float:
        """The largest Ritz value in what is orthogonal to the first r columns sent; 0 where it is not known."""
        inner = self.T[self.r :, self.r :]
        if len(inner):
            return float(np.linalg.eigvalsh((inner + inner.T) / 2)[-1])
        return 0.0

    def ritz_pairs(self) -> tuple[Array, Array]:
        """All Ritz vectors that there are, and their values."""
        if self.whole is not None:
            values, W = self.whole
            return self.Q @ W, values
        assert self.values is not None
        assert self.Z is not None
        return self.Z, self.values

    @property
    def inside(self) -> float:
        """The sum of the squares of the rows within the first r columns sent, in a Krylov space."""
        return float(np.trace(self.T[: self.r, : self.r]))

    def find(self, *, tol: float, products: int, squares: float) -> tuple[Array, Array] | None:
        """What `estimate` tells, once that is as good as asked for or the messages are used up; None before.

        `squares` is the trace of C, or more. Ritz values are no larger than eigenvalues, so no
        eigenvalue after the first r exceeds what they leave of the trace. A power step takes the
        tangent of the angle down by that over the r-th, and the basis is one beyond what the error
        speaks of; a channel's noise it does not take down, so the power method goes by the error.
        """
        if self.values is None or (self.power is not None and self.power.inside):
            return None
        left = self.error
        if self.power is None:
            explained = float(self.values[: self.r].sum())
            beyond = max(squares - explained, 0.0) + self._noise
            left *= min(beyond / max(float(self.values[self.r - 1]), _TINY), 1.0)
        within = _within(self.values, tol, _gap(self.values, self.r))
        if self.stuck or left <= within or self.products >= products:
            return self.estimate()
        if self.whole is not None:
            return self._from_all(*self.whole, tol=tol, squares=squares)
        return None

    def estimate(self) -> tuple[Array, Array]:
        """The basis, d x r, one power step beyond what the error speaks of, and its values, in one order."""
        assert self.values is not None
        values = self.values[: self.r]
        if self.power is not None:
            return self.power.block, values
        assert self.Z is not None
        assert self.CZ is not None
        # Without C z, this tells nothing.
        full = values > _NULL * max(float(values[0]), _TINY)
        Z = self.CZ / np.where(full, values, 1.0)
        if not full.all():
            Z = np.where(full, Z, self.Z)
        # |Cz|^2 / z'Cz, half a power step beyond z'Cz
        values = np.where(full, values * np.einsum("ij,ij->j", Z, Z), values)
        return linalg.polish(Z), np.sort(values)[::-1]

    def onward(self) -> Solver:
        """With the next block to send."""
        if self.power is not None:
            return self
        assert self.heard is not None
        assert self.values is not None
        largest = max(float(self.values[0]), _TINY)
        block, _ = linalg.next_block(self.heard, self.Q, largest)
        return replace(self, block=block, heard=None, Z=None, CZ=None, whole=None)

    @property
    def _noise(self) -> float:
        """What traces may be off by: a sum that rounding, masks or a channel have changed is no longer symmetric."""
        skew = float(np.linalg.norm(self.T - self.T.T))
        return skew + _EPS * float(np.trace(self.T))

    def _from_all(self, values: Array, W: Array, *, tol: float, squares: float) -> tuple[Array, Array] | None:
        """The basis and values from all products at once, where those tell C well enough; or None.

        F F' = CQ T^+ QC is what the rows have in the span of LQ, and all of C once that is as large
        as there are rows. What it lacks is positive, so no larger than what its trace lacks; that
        over the gap bounds the sine.
        """
        full = values > _NULL * max(float(values[0]), _TINY)
        r, size = self.r, np.count_nonzero(full)
        if size < r:
            return None
        scaled = W[:, full] / np.sqrt(values[full])
        F = self.CQ @ scaled
        lacking = abs(squares - float(np.vdot(F, F))) + self._noise
        if lacking > max(tol, 64.0 * _EPS) * squares:  # more than any gap allows
            return None
        exact, V = linalg.eigh_descending(F.T @ F)
        gap = _gap(exact, r) - lacking
        if lacking > _within(values, tol, gap) * gap:
            return None
        V = F @ (V[:, :r] / np.sqrt(exact[:r]))
        return linalg.polish(V), exact[:r]

    def _extend(self, S: Array) -> Solver:
        r, new = self.r, self.block.T @ S
        if self.Q.shape[1]:
            old = self.Q.T @ S
            Q = np.hstack([self.Q, self.block])
            CQ = np.hstack([self.CQ, S])
            above = np.hstack([self.T, old])
            below = np.hstack([old.T, new])
            T = np.vstack([above, below])
        else:
            Q, CQ, T = self.block, S, new
        values, W = linalg.eigh_descending(T)
        V = W[:, :r]
        Z, CZ = Q @ V, CQ @ V
        rest = linalg.length(CZ - Z * values[:r])
        return replace(
            self,
            Q=Q,
            CQ=CQ,
            T=T,
            heard=S,
            products=self.products + 1,
            values=values[: r + 1],
            Z=Z,
            CZ=CZ,
            whole=(values, W),
            error=rest / max(_gap(values, r), _TINY),
        )


def _within(values: Array, tol: float, gap: float) -> float:
    """The error that is small enough: tol, or what rounding leaves, which is more for a small gap."""
    rounding = 64.0 * _EPS * float(values[0])
    return max(tol, rounding / max(gap, _TINY))


def _gap(values: Array, r: int) -> float:
    """Between the r-th of these values and the next, which is taken for 0 where it is not known."""
    following = float(values[r]) if len(values) > r else 0.0
    return float(values[r - 1]) - following


def beside(P: Array, p: int, seed: int) -> Array:
    """So many orthonormal columns orthogonal to those of P, in random directions that any machine draws alike.

    Their numbers lie between -1 and 1, which costs a fraction of `random_block`.
    """
    drawn = np.random.PCG64(seed).random_raw(len(P) * p)
    bits = drawn >> np.uint64(11)
    columns = (bits * 2.0**-52 - 1.0).reshape(len(P), p)
    columns = columns - P @ (P.T @ columns)
    try:
        C = np.linalg.cholesky(columns.T @ columns)
        columns = columns @ np.linalg.inv(C).T
        # Nothing cancelled below sqrt(d / 3), so all is exact.
        if C.diagonal().min(initial=np.inf) > 0.3 * np.sqrt(len(P)):
            return np.asarray(columns)
    except np.linalg.LinAlgError:
        # Where few directions are left beside P, those drawn may depend on each other.
        columns = linalg.orth(columns)
    return linalg.polish(columns - P @ (P.T @ columns))
