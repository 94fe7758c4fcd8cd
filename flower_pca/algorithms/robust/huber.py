"""Huber regression of rows with outlying entries on a basis, row by row, without a step size.

The regression minimizes rho/2 ||V||^2 + H(X - VU') over V, with H(r) = r^2/2 for |r| <= lam, and
lam |r| - lam^2/2 for larger |r|. This is rho/2 ||V||^2 + 1/2 ||VU' + S - X||^2 + lam ||S||_1 with the
minimizing S = soft(X - VU', lam).

With a cut h, H is constant for |r| >= h lam, so entries further away have no influence. The derivative C
of H is clip(r, lam) within the cut, and 0 beyond. The same quadratic function is an upper bound for H
with and without a cut, so the steps never increase the objective for a fixed lam.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.base.linalg import Array

_THRESHOLD_FACTOR: Final = 0.8  # factor by which the threshold falls in `recover`, where no V is known
_MOST_THRESHOLDS: Final = 162  # maximum number of thresholds, enough to fall to the rounding error of `start`
_STEPS: Final = 3  # the number of steps with each threshold
_FINAL_STEPS: Final = 200  # maximum number of steps with the last threshold
_SETTLED: Final = 1e-9  # the relative change of V at which the steps end
# In single precision, V would never settle, so the steps end at this multiple of the rounding error of the rows.
_ROUNDING: Final = 10.0
EPS: Final = float(np.finfo(np.float64).eps)
# A client computes its V again if the threshold of the V in its memory exceeds the present threshold by this factor.
LATE: Final = 2.0


class Regression:
    """The regression of rows on one basis U (d x p), with threshold lam, ridge rho and cut h.

    In all methods, the parameter `out` contains the flat positions of entries that do not count.
    """

    # The cache contains U, rho, (U'U + rho I)^-1 and U' of the latest basis. Clients in one process get the same
    # array U, and no code changes it. So a comparison with `is` shows at no cost whether the cache is valid.
    _newest: ClassVar[tuple[Array, float, Array, Array] | None] = None

    def __init__(self, U: Array, lam: float, rho: float, cut: float = np.inf) -> None:
        self._U = U
        self._lam = lam
        self._rho = rho
        self._far = cut * lam
        newest = Regression._newest
        if newest is None or newest[0] is not U or newest[1] != rho:
            gram = U.T @ U
            # If U lacks rank, its Gram matrix has no inverse without a ridge.
            least = EPS * float(gram.trace()) + TINY
            gram.flat[:: len(gram) + 1] += max(rho, least)
            # Products are faster if U' is a contiguous array.
            newest = Regression._newest = U, rho, np.linalg.inv(gram), np.ascontiguousarray(U.T)
        self._inverse, self._across = newest[2:]

    def take_steps(self, X: Array, V: Array, number: int, left_out: Array | None = None) -> tuple[Array, Array]:
        """Return V after this many steps V += (CU - rho V)(U'U + rho I)^-1, and the residual X - VU'.

        Each step computes V = (X - S)U (U'U + rho I)^-1, the minimizer for the present S. So the objective never rises.
        """
        R = np.empty_like(X)
        for _ in range(number):
            V = V + self._step(X, V, R, left_out)
        return V, self._residual(X, V, R)

    def minimize(self, X: Array, V: Array, left_out: Array | None = None) -> Array:
        """Return the minimizer V, found by steps with momentum. The given V must be near the minimizer.

        If the steps of a row overshoot, this row loses its momentum.
        """
        R = np.empty_like(X)
        W = V
        t = np.ones(len(X))
        settled = max(_SETTLED, _ROUNDING * float(np.finfo(X.dtype).eps))
        # Each row stops independently, so that its result does not depend on other rows of the block.
        moving = np.ones(len(X), dtype=bool)
        for _ in range(_FINAL_STEPS):
            step = self._step(X, W, R, left_out) * moving[:, None]
            V, before = W + step, V
            moved = V - before
            t[np.sum(step * moved, axis=1) < 0.0] = 1.0
            old = t
            t = (1.0 + np.sqrt(1.0 + 4.0 * old**2)) / 2.0
            allowed = settled**2 * np.sum(V**2, axis=1)
            moving &= np.sum(step**2, axis=1) > allowed
            if not moving.any():
                break
            ahead = (old - 1.0) / t * moving
            W = V + ahead[:, None] * moved
        return V

    def is_within_cut(self, R: Array) -> Array:
        """Return a mask of the entries of R = X - VU' that lie within the cut."""
        near = -self._far <= R
        near &= self._far >= R
        return near

    def clip_in_place(self, R: Array, left_out: Array | None = None, near: Array | None = None) -> Array:
        """Overwrite R = X - VU' with C = R - S, and return C. `near`, if known, is the result of `is_within_cut(R)`."""
        if near is None and self._far < np.inf:
            near = self.is_within_cut(R)
        R.clip(-self._lam, self._lam, out=R)
        # A product with booleans costs as much as all other operations here. At high thresholds, all entries are near.
        if near is not None and not near.all():
            R *= near
        if left_out is not None:
            R.reshape(-1)[left_out] = 0.0
        return R

    def _step(self, X: Array, V: Array, R: Array, left_out: Array | None) -> Array:
        clipped = self.clip_in_place(self._residual(X, V, R), left_out)
        pull = clipped @ self._U.astype(X.dtype, copy=False)
        return np.asarray((pull - self._rho * V) @ self._inverse)

    def _residual(self, X: Array, V: Array, R: Array) -> Array:
        scores = V.astype(X.dtype, copy=False)
        across = self._across.astype(X.dtype, copy=False)
        np.matmul(scores, across, out=R)
        return np.subtract(X, R, out=R)


def recover(
    X: Array, U: Array, *, start: float, lam: float, rho: float, cut: float = np.inf, left_out: Array | None = None
) -> Array:
    """Return V, computed without a first guess. The threshold falls from `start` to `lam` to find outliers."""
    V = np.zeros((len(X), U.shape[1]))
    threshold = max(start, lam)
    for _ in range(_MOST_THRESHOLDS):
        if threshold <= lam:
            break
        ridge = rho * threshold / lam if lam > 0.0 else 0.0
        regression = Regression(U, threshold, ridge, cut)
        V, _ = regression.take_steps(X, V, _STEPS, left_out)
        threshold = max(lam, _THRESHOLD_FACTOR * threshold)
    return Regression(U, lam, rho, cut).minimize(X, V, left_out)


def sparse_part(R: Array, lam: float, cut: float = np.inf) -> Array:
    """Return S for R = X - VU': entries are shrunk towards zero by lam, except entries beyond the cut."""
    drawn = np.asarray(R - np.clip(R, -lam, lam))
    if np.isfinite(cut):
        return np.where(np.abs(R) > cut * lam, R, drawn)
    return drawn
