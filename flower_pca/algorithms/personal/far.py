"""Far entries of a client's rows, X = L + S + noise, with L in the span of shared and own components.

An entry is far if it is off L by more than a multiple of its column's noise, which is told from the median of all
residuals of the column at this client. At first L is the median of each column, so that the threshold begins at the
size of the rows and falls by itself as L takes them in. What is far gives way to L: it then pulls neither
at the components nor at its row's place among them. Gaps do likewise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.algorithms.robust import hidden
from flower_pca.algorithms.robust.base import NORMAL
from flower_pca.base.linalg import Array
from flower_pca.base.medians import median
from flower_pca.rows.local import LocalData

# of the threshold, within which a far entry is one no more: else it might come and go for ever
_BACK: Final = 0.5
_LEAST: Final = 1e-6  # of the size of a column, below which L is no better known
_PROJECTED: Final = 100  # steps at most of a projection of new rows
_SETTLED: Final = 1e-10  # change of L relative to L, at which it ends


@dataclass(frozen=True)
class Fit:
    """L = TW' of a client's rows, W = [U, V], which entries are far from it, and the threshold of each column."""

    W: Array
    T: Array
    far: Array
    limit: Array

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
        """Before there are components: L is the median of each column."""
        W, T = _medians(self.X, ~self.gaps)[:, None], np.ones((len(self.X), 1))
        return self.judge(W, T, np.zeros(self.X.shape, dtype=bool), cut * self.noise(W, T))

    def step(self, before: Fit, U: Array, own: int, cut: float, *, local_steps: int = 0) -> Fit:
        """Own components of the rows less what is far, coordinates of these rows, and what is far from both."""
        clean, V = self.less(before), before.W[:, U.shape[1] :]
        if local_steps:
            span = deflation.narrow(clean, U.shape[1] + own, {})
        else:
            span = None
        W = np.hstack([U, deflation.own_basis(clean, U, own, steps=local_steps, start=V, span=span)])
        T = clean.scores(W)
        return self.judge(W, T, before.far, cut * self.noise(W, T))

    def less(self, fit: Fit) -> LocalData:
        """The rows with L in place of what is far, and of gaps."""
        return LocalData(np.where(fit.far | self.gaps, fit.L, self.X))

    def judge(self, W: Array, T: Array, before: Array, limit: Array) -> Fit:
        """What is far from TW': beyond the threshold, or still near it where it was far before."""
        sizes = np.abs(self.X - T @ W.T)
        far = np.where(before, sizes > _BACK * limit, sizes > limit)
        return Fit(W, T, far & ~self.gaps, limit)

    def noise(self, W: Array, T: Array) -> Array:
        """Of each column the deviation that the median size of its residuals from TW' stands for.

        Residuals that are 0 have no part in it: of a column that is mostly 0, all else would be far.
        """
        return np.asarray(NORMAL * np.maximum(_sizes(self.X - T @ W.T, self.gaps), self.least))

    @functools.cached_property
    def least(self) -> Array:
        """What of each column no residual is told from, as L is no better known."""
        return np.asarray(_LEAST * _sizes(self.X, self.gaps))

    def loss(self, fit: Fit) -> float:
        """The sum of squared residuals, of a far one the threshold's square: what a step lowers."""
        sizes = np.where(fit.far, fit.limit, self.X - fit.L)
        return float(np.sum(sizes[~self.gaps] ** 2))

    def project(self, W: Array, noise: Array, cut: float) -> Fit:
        """Coordinates of rows that the run has not seen, each by itself: its threshold falls as its residuals do."""
        noise = np.maximum(noise, np.finfo(np.float64).tiny)
        T, far = np.zeros((len(self.X), W.shape[1])), np.zeros(self.X.shape, dtype=bool)
        for _ in range(_PROJECTED):
            row = NORMAL * _sizes(((self.X - T @ W.T) / noise).T, self.gaps.T)
            limit = cut * np.maximum(row, 1.0)[:, None] * noise
            fit = self.judge(W, T, far, limit)
            T, far, before = self.less(fit).scores(W), fit.far, T
            if np.linalg.norm(T - before) <= _SETTLED * np.linalg.norm(T):
                break
        return self.judge(W, T, far, limit)


def _sizes(residuals: Array, gaps: Array) -> Array:
    """Of each column the median size of what is neither 0 nor a gap."""
    sizes = np.abs(residuals)
    return _medians(sizes, (sizes > 0.0) & ~gaps)


def _medians(values: Array, counted: Array) -> Array:
    """Of each column the median of the values that count; 0 where there is none."""
    if counted.all():
        return np.asarray(np.median(values, axis=0))
    return np.where(counted.any(axis=0), median(values, counted.astype(np.float64)), 0.0)
