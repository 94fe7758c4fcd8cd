"""The noise that own components are told from: of an average direction, and of each column by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.base.linalg import Array
from flower_pca.rows import folds
from flower_pca.rows.fixed import FixedData

_CLEAR: Final = 2.0  # times the noise
_ROUNDS: Final = 8  # in which the noise of columns and the number of directions settle
_SETTLED: Final = 0.05  # of each column's noise, by which the last of these moves it
# columns, of which as many are regressed on the others at most
_REGRESSED: Final = 4096
# columns for each row, of which as many are: a quarter of the rows is left to tell noise by
_ENOUGH: Final = 0.75
# of a column's variance: others of which it is a sum leave it that noise
_RIDGE: Final = 1e-9
_ALONE: Final = 0.05  # of a column, at least, that directions are taken to leave free


def clear(along: Array, noise: Array) -> Array:
    """Which directions (columns; a row for each part) hold more than twice the noise, by a standard error of parts."""
    margin = along - _CLEAR * noise
    return np.asarray(margin.mean(axis=0) > margin.std(axis=0, ddof=1) / np.sqrt(len(margin)))


def last(found: Array) -> int:
    """How many directions there are up to the last clear one."""
    places = np.flatnonzero(found)
    return int(places.max(initial=-1)) + 1


def directions(parts: Sequence[Any], most: int) -> list[tuple[Any, Array]]:
    """Each part, held out, and the leading directions of the others: so many, or half of all to tell noise by."""
    d = parts[0].d
    none, most = np.empty((d, 0)), min(most, d // 2)
    return [(held, deflation.own_basis(rest, none, most)) for held, rest in folds.splits(parts)]


def residuals(found: Sequence[tuple[Any, Array]]) -> tuple[Array, Array]:
    """Of each part and its `directions`: the mean square along each; and what is left of a direction beside them.

    The second is the mean squared residual of the part's rows after that direction, over the directions not yet taken.
    """
    along, left = [], []
    for held, V in found:
        squares = np.sum(V * held.matmat(V), axis=0) / held.n
        residual = held.squares().sum() / held.n - np.cumsum(squares)
        along.append(squares)
        left.append(residual / (held.d - 1 - np.arange(len(squares))))
    return _cut(along), _cut(left)


def below(found: Sequence[tuple[Any, Array]], columns: Array) -> Array:
    """What noise of such a variance in each column puts along the directions of each part."""
    return _cut([columns @ V**2 for _, V in found])


def by_column(parts: Sequence[FixedData], most: int) -> Array:
    """The variance of noise in each column: what no direction explains that counts, of so many at most.

    With rows enough the first guess is what is left of each column after a regression on all others, else its variance.
    The directions that count in columns of equal noise say what is noise, which says which directions count.
    """
    noise = _guess(parts)
    for _ in range(_ROUNDS):
        even = [_WeightedRows(part, _inverse(np.sqrt(noise))) for part in parts]
        found = directions(even, most)
        before, noise = noise, noise * _beside(found, last(clear(*residuals(found))))
        if np.allclose(noise, before, rtol=_SETTLED):
            break
    return np.asarray(noise)


def _guess(parts: Sequence[FixedData]) -> Array:
    n, d = sum(part.n for part in parts), parts[0].d
    variances = np.sum([part.squares() for part in parts], axis=0) / n
    if d > min(_ENOUGH * n, _REGRESSED):
        return np.asarray(variances)
    return _residual_variances(folds.Together(parts).gram() / n, variances) * n / (n - d)


def _residual_variances(S: Array, variances: Array) -> Array:
    """What is left of each column after its regression on all others."""
    scale = _inverse(np.sqrt(variances))
    S = S * scale * scale[:, None] + _RIDGE * np.eye(len(S))
    return np.asarray(variances / np.diag(np.linalg.inv(S + np.diag(1.0 * (scale == 0.0)))))


def _beside(found: Sequence[tuple[Any, Array]], r: int) -> Array:
    """The mean square of each column, held out, beside the first r directions."""
    beside = []
    for held, most in found:
        V = most[:, :r]
        SV = held.matmat(V) / held.n
        squares = held.squares() / held.n - np.sum((2.0 * SV - V @ (V.T @ SV)) * V, axis=1)
        free = np.maximum(1.0 - np.sum(V**2, axis=1), _ALONE)
        beside.append(np.maximum(squares, _RIDGE) / free)
    return np.asarray(np.mean(beside, axis=0))


class _WeightedRows:
    """Rows of which each column is multiplied by a weight."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def __init__(self, data: FixedData, weights: Array) -> None:
        self._data, self._weights = data, weights
        self.n, self.d = data.n, data.d

    def matmat(self, Z: Array, *, reuse: int = 4) -> Array:
        """X'(XZ)."""
        weights = self._weights[:, None]
        return np.asarray(weights * self._data.matmat(weights * Z, reuse=reuse))

    def gram(self) -> Array:
        """X'X."""
        return np.asarray(self._weights[:, None] * self._data.gram() * self._weights)

    def root(self) -> Array:
        """A with A'A = X'X."""
        return np.asarray(self._data.root() * self._weights)

    def squares(self) -> Array:
        """The sum of squares of each column."""
        return np.asarray(self._data.squares() * self._weights**2)


def _inverse(a: Array) -> Array:
    """1 / a, and 0 where a is."""
    return np.divide(1.0, a, out=np.zeros_like(a), where=a > 0.0)


def _cut(parts: Sequence[Array]) -> Array:
    """As many of each as all have."""
    least = min(map(len, parts))
    return np.array([a[:least] for a in parts])
