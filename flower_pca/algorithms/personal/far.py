"""Far entries of a client's rows, X = L + S + noise, with L in the span of shared and own components.

An entry is far if it is off L by more than a multiple of its column's noise, which is told from the median of all
residuals of the column at this client. At first L = 0 and the residuals are the rows themselves, so that the threshold
begins at the size of the rows and falls by itself as L takes them in. What is far gives way to L: it then pulls neither
at the components nor at its row's place among them. Gaps do likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.algorithms.robust import hidden
from flower_pca.algorithms.robust.base import NORMAL
from flower_pca.base.linalg import Array
from flower_pca.rows.local import LocalData

_BACK: Final = 0.75  # of the threshold, within which a far entry is one no more: else it might come and go for ever
_ROUNDING: Final = 1e-9  # of the size of its column, below which no residual is told from rounding
_PROJECTED: Final = 100  # steps at most of a projection of new rows
_SETTLED: Final = 1e-10  # change of L relative to L, at which it ends


@dataclass(frozen=True)
class Fit:
    """L = TW' of a client's rows, W = [U, V], and which entries are far from it."""

    W: Array
    T: Array
    far: Array

    @property
    def L(self) -> Array:
        """What the components say of the rows."""
        return np.asarray(self.T @ self.W.T)


@dataclass(frozen=True)
class Rows:
    """A client's rows in the frame, and where they have gaps."""

    X: Array
    gaps: Array

    @classmethod
    def of(cls, data: LocalData) -> Rows:
        """Of all the rows, at once: residuals of a column are compared with each other."""
        X = np.concatenate(list(data.dense())).astype(np.float64)
        gaps = np.zeros(X.shape, dtype=bool)
        gaps.reshape(-1)[hidden.unseen(data, seed=0, share=0.0).gaps] = True
        return cls(X, gaps)

    def begin(self, cut: float) -> Fit:
        """Before there are components: L = 0."""
        n, d = self.X.shape
        nothing = Fit(np.zeros((d, 0)), np.zeros((n, 0)), np.zeros((n, d), dtype=bool))
        return self.judge(nothing, cut * self.noise(nothing))

    def step(self, before: Fit, U: Array, own: int, cut: float, *, local_steps: int = 0) -> Fit:
        """Own components of the rows less what is far, coordinates of these rows, and what is far from both."""
        clean, V = self.less(before), before.W[:, U.shape[1] :]
        span = deflation.narrow(clean, U.shape[1] + own, {}) if local_steps else None
        W = np.hstack([U, deflation.own_basis(clean, U, own, steps=local_steps, start=V, span=span)])
        fit = Fit(W, clean.scores(W), before.far)
        return self.judge(fit, cut * self.noise(fit))

    def less(self, fit: Fit) -> LocalData:
        """The rows with L in place of what is far, and of gaps."""
        return LocalData(np.where(fit.far | self.gaps, fit.L, self.X))

    def judge(self, fit: Fit, limit: Array) -> Fit:
        """The same with what is far by now: beyond the threshold, or still near it where it was far before."""
        sizes = np.abs(self.X - fit.L)
        far = np.where(fit.far, sizes > _BACK * limit, sizes > limit)
        return Fit(fit.W, fit.T, far & ~self.gaps)

    def noise(self, fit: Fit) -> Array:
        """Of each column the deviation that the median size of its residuals stands for.

        Residuals that are 0 have no part in it: of a column that is mostly 0, all else would be far.
        """
        least = _ROUNDING * _medians(np.abs(self.X), self.gaps)
        return np.maximum(NORMAL * _medians(np.abs(self.X - fit.L), self.gaps), least)

    def loss(self, fit: Fit, cut: float) -> float:
        """The sum of squared residuals, of a far one the threshold's square: what a step lowers."""
        limit = np.broadcast_to(cut * self.noise(fit), self.X.shape)
        sizes = np.where(fit.far, limit, self.X - fit.L)
        return float(np.sum(sizes[~self.gaps] ** 2))

    def project(self, W: Array, noise: Array, cut: float) -> Fit:
        """Coordinates of rows that the run has not seen, each by itself: its threshold falls as its residuals do."""
        n, d = self.X.shape
        fit = Fit(W, np.zeros((n, W.shape[1])), np.zeros((n, d), dtype=bool))
        noise = np.maximum(noise, np.finfo(np.float64).tiny)
        for _ in range(_PROJECTED):
            residuals = np.abs(self.X - fit.L) / noise
            row = NORMAL * _medians(residuals.T, self.gaps.T)
            fit = self.judge(fit, cut * np.maximum(row, 1.0)[:, None] * noise)
            T = self.less(fit).scores(W)
            moved = float(np.linalg.norm(T - fit.T))
            fit = Fit(W, T, fit.far)
            if moved <= _SETTLED * float(np.linalg.norm(T)):
                break
        return fit


def _medians(sizes: Array, gaps: Array) -> Array:
    """Of each column the median of what is above 0 and no gap; 0 where there is none."""
    counted = (sizes > 0.0) & ~gaps
    ordered = np.sort(np.where(counted, sizes, np.inf), axis=0)
    count = np.count_nonzero(counted, axis=0)[None, :]
    middle = [np.take_along_axis(ordered, np.maximum(place, 0), axis=0)[0] for place in ((count - 1) // 2, count // 2)]
    found = np.where(count[0] > 0, middle, 0.0)
    return np.asarray(found.mean(axis=0))
