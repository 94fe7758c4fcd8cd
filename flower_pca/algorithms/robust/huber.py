"""Huber regression of rows with outlying entries on a basis, row by row, without a step size.

min over V of rho/2 ||V||^2 + H(X - VU'), H(r) = r^2/2 for |r| <= lam, lam |r| - lam^2/2 beyond:
what is left of rho/2 ||V||^2 + 1/2 ||VU' + S - X||^2 + lam ||S||_1 when S = soft(X - VU', lam) is
put in.

With a cut h, H stays at H(h lam) from |r| = h lam on: entries so far off pull no more. Its
derivative C is clip(r, lam) within, and 0 beyond, and the same quadratic majorises both, so the
objective of a fixed lam never rises.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.base.linalg import Array

_PATH: Final = 0.8  # The threshold falls by this factor if no V is known to start from.
_LONGEST: Final = 162  # thresholds: down to where what is left of `start` is rounding
_STEPS: Final = 3  # Steps on each threshold of that path.
_FINAL: Final = 200  # The most steps on the last threshold.
_SETTLED: Final = 1e-9  # relative change of V at which it is found
# So many roundings of the rows end the steps too, because V does not come to rest in single precision.
_ROUNDING: Final = 10.0
EPS: Final = float(np.finfo(np.float64).eps)
# times a threshold: a V that was found for more has lost its way, and is found anew
LATE: Final = 2.0


class Regression:
    """The regression on one basis U (d x p), with threshold lam, ridge rho and cut h.

    Its verbs take `out`, the places (of the flat block of rows) of entries that shall not count at
    all.
    """

    # U, rho, (U'U + rho I)^-1 and U' of the newest basis: clients of one process get the same
    # array. It is known by the array, which nobody writes to, and not by its numbers, so that
    # looking is free.
    _newest: ClassVar[tuple[Array, float, Array, Array] | None] = None

    def __init__(self, U: Array, lam: float, rho: float, cut: float = np.inf) -> None:
        self._U = U
        self._lam = lam
        self._rho = rho
        self._far = cut * lam
        newest = Regression._newest
        if newest is None or newest[0] is not U or newest[1] != rho:
            gram = U.T @ U
            # A U that is short of rank has no inverse without a ridge, however small.
            least = EPS * float(gram.trace()) + TINY
            gram.flat[:: len(gram) + 1] += max(rho, least)
            # U' with its rows one behind the other, as products read it
            newest = Regression._newest = U, rho, np.linalg.inv(gram), np.ascontiguousarray(U.T)
        self._inverse, self._across = newest[2:]

    def steps(self, X: Array, V: Array, number: int, out: Array | None = None) -> tuple[Array, Array]:
        """Return V after this many steps V += (CU - rho V)(U'U + rho I)^-1, and X - VU' there.

        Each step is V = (X - S)U (U'U + rho I)^-1, the minimiser for the present S: the objective
        never rises.
        """
        R = np.empty_like(X)
        for _ in range(number):
            V = V + self._step(X, V, R, out)
        return V, self._residual(X, V, R)

    def settle(self, X: Array, V: Array, out: Array | None = None) -> Array:
        """The minimiser, from a V that is near it: the same steps with momentum, which a row loses as it overshoots."""
        R = np.empty_like(X)
        W = V
        t = np.ones(len(X))
        settled = max(_SETTLED, _ROUNDING * float(np.finfo(X.dtype).eps))
        # each row by itself, so that it is the same in whatever block
        moving = np.ones(len(X), dtype=bool)
        for _ in range(_FINAL):
            step = self._step(X, W, R, out) * moving[:, None]
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

    def near(self, R: Array) -> Array:
        """Return which entries of R = X - VU' lie within the cut."""
        near = -self._far <= R
        near &= self._far >= R
        return near

    def clip(self, R: Array, out: Array | None = None, near: Array | None = None) -> Array:
        """Return C = R - S for R = X - VU'. `near` is that of R, if it is known."""
        if near is None and self._far < np.inf:
            near = self.near(R)
        R.clip(-self._lam, self._lam, out=R)
        # a product with truth values costs as much as all else here, and at high thresholds all are
        # true
        if near is not None and not near.all():
            R *= near
        if out is not None:
            R.reshape(-1)[out] = 0.0
        return R

    def _step(self, X: Array, V: Array, R: Array, out: Array | None) -> Array:
        clipped = self.clip(self._residual(X, V, R), out)
        pull = clipped @ self._U.astype(X.dtype, copy=False)
        return np.asarray((pull - self._rho * V) @ self._inverse)

    def _residual(self, X: Array, V: Array, R: Array) -> Array:
        scores = V.astype(X.dtype, copy=False)
        across = self._across.astype(X.dtype, copy=False)
        np.matmul(scores, across, out=R)
        return np.subtract(X, R, out=R)


def recover(
    X: Array, U: Array, *, start: float, lam: float, rho: float, cut: float = np.inf, out: Array | None = None
) -> Array:
    """Compute V from nothing: the threshold falls from `start` to `lam`, and outlying entries are found."""
    V = np.zeros((len(X), U.shape[1]))
    threshold = max(start, lam)
    for _ in range(_LONGEST):
        if threshold <= lam:
            break
        ridge = 0.0
        if lam > 0.0:
            ridge = rho * threshold / lam
        regression = Regression(U, threshold, ridge, cut)
        V, _ = regression.steps(X, V, _STEPS, out)
        threshold = max(lam, _PATH * threshold)
    return Regression(U, lam, rho, cut).settle(X, V, out)


def sparse(R: Array, lam: float, cut: float = np.inf) -> Array:
    """Return S for R = X - VU': entries are shrunk towards zero by lam, and those beyond the cut stay."""
    drawn = np.asarray(R - np.clip(R, -lam, lam))
    if np.isfinite(cut):
        return np.where(np.abs(R) > cut * lam, R, drawn)
    return drawn
