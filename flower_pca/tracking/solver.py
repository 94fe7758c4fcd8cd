"""The solver within a step of tracking: leading eigenvectors of a sum over the clients, from a warm start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array, PowerIteration

# A Ritz value below this share of the largest counts as 0, so that its vector is not improved by a power step.
_NULL: Final = 1e-8
# Rounding, including the fixed-point numbers of masks, may cause an error of at most this size.
_ROUNDED: Final = 1e-8
_TINY: Final = float(np.finfo(float).tiny)
_EPS: Final = float(np.finfo(float).eps)


@dataclass(frozen=True)
class SubspaceSolver:
    """A solver for the r leading eigenvectors of C, from the products C B with the blocks B that it sends.

    C is the sum of L'L over the clients, where L is the matrix with the completed rows of a client.

    Attributes
    ----------
    r : int
        The number of requested eigenvectors.
    Q, CQ, T : ndarray
        The basis of the Krylov space, its product with C, and T = Q'CQ. For the power method, they have no columns.
    power : PowerIteration or None
        The state of the power method, or None for a Krylov space.
    block : ndarray
        The block to send next after a call of `with_next_block`, else the block that was sent last.
    heard : ndarray or None
        The product with the block that was sent last.
    products : int
        The number of messages so far.
    error : float
        Estimated sine of the angle to the true eigenspace, ||residual|| / gap.
    values : ndarray or None
        Ritz values, largest first, at most r + 1.
    stuck : bool
        Whether the error of the power method no longer decreases and is small enough to be rounding error.
    Z, CZ : ndarray or None
        The first r Ritz vectors, and in a Krylov space their products with C. None after a call of `with_next_block`.
    whole : tuple or None
        In a Krylov space, all Ritz values and the eigenvectors of T. None after a call of `with_next_block`.
    """

    r: int
    Q: Array
    CQ: Array
    T: Array
    power: PowerIteration | None
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
    def by_krylov(cls, start: Array, *, r: int) -> SubspaceSolver:
        """Return a solver with a Krylov space that starts from these r or more orthonormal columns."""
        none = start[:, :0]
        return cls(r, none, none, np.zeros((0, 0)), None, start)

    @classmethod
    def by_power(cls, start: Array, *, r: int) -> SubspaceSolver:
        """Return a solver with the power method, started from these r orthonormal columns."""
        return replace(cls.by_krylov(start, r=r), power=PowerIteration.start_from(start))

    def after_product(self, S: Array, qr_every: int) -> SubspaceSolver:
        """Return the solver after it has received S, the product of C and the block. S may contain noise."""
        if self.power is None:
            return self._after_krylov_product(S)
        products = self.products + 1
        if self.power.inside:
            power = self.power.step(S, qr_every)
            return replace(self, power=power, block=power.block, products=products)
        values, Z, CZ, residuals = linalg.rayleigh_ritz(self.block, S)
        # The next eigenvalue is not known here. The gap is computed as if it were 0, as in `_gap_at`.
        largest = max(float(values[-1]), _TINY)
        error = float(linalg.column_norms(residuals[:, None])[0]) / largest
        # The Ritz vectors replace the block, so from here on its columns are in the order of their values.
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
    def largest_outside(self) -> float:
        """The largest Ritz value orthogonal to the first r columns that were sent, or 0 if it is not known."""
        inner = self.T[self.r :, self.r :]
        if len(inner):
            return float(np.linalg.eigvalsh((inner + inner.T) / 2)[-1])
        return 0.0

    @cached_property
    def ritz_pairs(self) -> tuple[Array, Array]:
        """All Ritz vectors and all Ritz values."""
        if self.whole is not None:
            values, W = self.whole
            return self.Q @ W, values
        assert self.values is not None
        assert self.Z is not None
        return self.Z, self.values

    @property
    def squares_inside(self) -> float:
        """The sum of squares of the rows' projections onto the first r columns that were sent, in a Krylov space."""
        return float(np.trace(self.T[: self.r, : self.r]))

    def accurate_estimate(self, *, tol: float, products: int, squares: float) -> tuple[Array, Array] | None:
        """Return the result of `estimate` once it is accurate enough or the messages are used up, else None.

        `squares` is the trace of C, or an upper bound. Ritz values are no larger than eigenvalues, so no eigenvalue
        after the first r exceeds the trace minus the sum of the first r Ritz values. A power step reduces the tangent
        of the angle by the ratio of this bound to the r-th value, and the returned basis is one power step ahead of the
        error estimate. A power step does not reduce the noise of a channel in this way, so with the power method, the
        error estimate itself is compared with the tolerance.
        """
        if self.values is None or (self.power is not None and self.power.inside):
            return None
        left = self.error
        if self.power is None:
            explained = float(self.values[: self.r].sum())
            beyond = max(squares - explained, 0.0) + self._error_of_traces
            left *= min(beyond / max(float(self.values[self.r - 1]), _TINY), 1.0)
        within = _acceptable_error(self.values, tol, _gap_at(self.values, self.r))
        if self.stuck or left <= within or self.products >= products:
            return self.estimate()
        if self.whole is not None:
            return self._from_all_products(*self.whole, tol=tol, squares=squares)
        return None

    def estimate(self) -> tuple[Array, Array]:
        """Return the basis, d x r, and its eigenvalues, largest first.

        The basis is one power step ahead of the error estimate.
        """
        assert self.values is not None
        values = self.values[: self.r]
        if self.power is not None:
            return self.power.block, values
        assert self.Z is not None
        assert self.CZ is not None
        # If a Ritz value is 0, the product of its vector is 0 and has no direction, so the Ritz vector is kept.
        full = values > _NULL * max(float(values[0]), _TINY)
        Z = self.CZ / np.where(full, values, 1.0)
        if not full.all():
            Z = np.where(full, Z, self.Z)
        # |Cz|^2 / z'Cz is a better estimate of the eigenvalue than z'Cz, by half a power step.
        values = np.where(full, values * np.einsum("ij,ij->j", Z, Z), values)
        return linalg.newton_orthonormalize(Z), np.sort(values)[::-1]

    def with_next_block(self) -> SubspaceSolver:
        """Return the solver with the next block to send, without the Ritz vectors."""
        if self.power is not None:
            return self
        assert self.heard is not None
        assert self.values is not None
        largest = max(float(self.values[0]), _TINY)
        block, *_ = linalg.next_block(self.heard, self.Q, largest)
        return replace(self, block=block, heard=None, Z=None, CZ=None, whole=None)

    @property
    def _error_of_traces(self) -> float:
        """The possible error of traces. Rounding, masks and channels make T asymmetric, which shows their size."""
        skew = float(np.linalg.norm(self.T - self.T.T))
        return skew + _EPS * float(np.trace(self.T))

    def _from_all_products(self, values: Array, W: Array, *, tol: float, squares: float) -> tuple[Array, Array] | None:
        """Return the basis and its eigenvalues from all products, or None if they do not determine C well enough.

        F F' = CQ T^+ Q'C is the part of C that belongs to the span of LQ, and equals C once the dimension of this span
        reaches the number of rows. The missing part is positive semidefinite, so its norm is at most the missing part
        of the trace. Divided by the gap, the missing part of the trace bounds the sine.
        """
        full = values > _NULL * max(float(values[0]), _TINY)
        r, size = self.r, np.count_nonzero(full)
        if size < r:
            return None
        scaled = W[:, full] / np.sqrt(values[full])
        F = self.CQ @ scaled
        lacking = abs(squares - float(np.vdot(F, F))) + self._error_of_traces
        if lacking > max(tol, 64.0 * _EPS) * squares:  # No gap is large enough for this missing part.
            return None
        exact, V = linalg.eigh_descending(F.T @ F)
        gap = _gap_at(exact, r) - lacking
        if lacking > _acceptable_error(values, tol, gap) * gap:
            return None
        V = F @ (V[:, :r] / np.sqrt(exact[:r]))
        return linalg.newton_orthonormalize(V), exact[:r]

    def _after_krylov_product(self, S: Array) -> SubspaceSolver:
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
        rest = linalg.frobenius_norm(CZ - Z * values[:r])
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
            error=rest / max(_gap_at(values, r), _TINY),
        )


def _acceptable_error(values: Array, tol: float, gap: float) -> float:
    """Return the largest acceptable error: the tolerance, or the rounding error if a small gap makes it larger."""
    rounding = 64.0 * _EPS * float(values[0])
    return max(tol, rounding / max(gap, _TINY))


def _gap_at(values: Array, r: int) -> float:
    """Return the gap between the r-th value and the next value. If the next value is not known, it counts as 0."""
    following = float(values[r]) if len(values) > r else 0.0
    return float(values[r - 1]) - following


def orthogonal_columns(P: Array, p: int, seed: int) -> Array:
    """Return p random orthonormal columns that are orthogonal to P. They are the same on every machine.

    They are drawn from the uniform distribution on (-1, 1), which is much cheaper than `random_block`.
    """
    drawn = np.random.PCG64(seed).random_raw(len(P) * p)
    bits = drawn >> np.uint64(11)
    columns = (bits * 2.0**-52 - 1.0).reshape(len(P), p)
    columns = columns - P @ (P.T @ columns)
    try:
        C = np.linalg.cholesky(columns.T @ columns)
        columns = columns @ np.linalg.inv(C).T
        # Random columns have about the length sqrt(d / 3). If more than half of it is left, there was no cancellation.
        if C.diagonal().min(initial=np.inf) > 0.3 * np.sqrt(len(P)):
            return np.asarray(columns)
    except np.linalg.LinAlgError:
        # If few directions are orthogonal to P, the random columns may be linearly dependent.
        columns = linalg.orth(columns)
    return linalg.newton_orthonormalize(columns - P @ (P.T @ columns))
