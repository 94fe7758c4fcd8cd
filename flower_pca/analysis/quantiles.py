"""Quantiles for future rows, estimated from the numbers of rows in bins.

A new value that is exchangeable with n counted values does not exceed the order statistic number ceil((n + 1) L) with
probability L (Vovk, Gammerman, Shafer 2005). If fewer than `TAIL` values are expected above level L, this order
statistic is unreliable or does not exist. In this case, the order statistic at a lower level a is extrapolated with the
tail of a Pearson III distribution that has the mean, the variance and the skewness of the values:

    order(a) Q(L+) / Q(a),    a = 1 - min(TAIL, (n + 1) / 2) / (n + 1)

Q is the quantile function of this distribution. The level L+ = Phi(t_(n-1)^-1(L) sqrt(1 + 1/n)) is higher than L,
because the distribution is estimated from only n values. If n is so small that L+ rounds to 1, there is no limit. There
is none for two values either, because two rows are equally far from their mean. The skewness is at least twice the
deviation over the mean, which is the skewness of a gamma distribution that begins at 0 (Box 1954).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.stages.histograms import BinGrid

TAIL: Final = 5  # minimum number of values above a level for a limit without extrapolation
_LEAST: Final = 3  # minimum number of values for a limit


def is_extended(counts: Array, level: float) -> bool:
    """Return whether there are so few values above this level that the limit is extrapolated."""
    return bool((counts.sum() + 1.0) * (1.0 - level) < TAIL * (1.0 - 1e-9))


def are_too_few(counts: Array, level: float) -> bool:
    """Return whether there are too few values for a limit at this level."""
    n = int(counts.sum())
    return n < _LEAST or (is_extended(counts, level) and _corrected_level(level, n) >= 1.0)


def limit_at(counts: Array, level: float) -> float:
    """Return the limit that a share `level` of new values does not exceed, as a multiple of their average.

    The limit is infinite if there are too few values, or if the order statistic behind it is in the last bin.
    """
    n = int(counts.sum())
    if are_too_few(counts, level):
        return math.inf
    if not is_extended(counts, level):
        return order_statistic(counts, math.ceil((n + 1) * level * (1.0 - 1e-12)))
    beyond = min(TAIL, (n + 1) / 2.0)
    known, place = 1.0 - beyond / (n + 1), max(math.ceil(n + 1 - beyond), 1)
    found = order_statistic(counts, place)
    return found * _ratio_of_quantiles(counts, known, _corrected_level(level, n))


def order_statistic(counts: Array, number: int) -> float:
    """Return an order statistic, interpolated within its bin. The smallest value has number 1.

    Return inf for the last bin, which has no upper end.
    """
    grid = BinGrid.from_counts(counts)
    below = np.cumsum(counts)
    j = int(np.searchsorted(below, number))
    if j >= grid.bins - 1:
        return float("inf")
    end = float(grid.edges[j])
    if not j:
        return end
    before = below[j] - counts[j]
    along = (number - before) / (counts[j] + 1.0)
    start = float(grid.edges[j - 1])
    return float(start * (end / start) ** along)


def _corrected_level(level: float, n: int) -> float:
    """Return the level L+ at which to evaluate the distribution, so that a share `level` of new values stays below."""
    from scipy import special

    return float(special.ndtr(special.stdtrit(max(n - 1, 1), level) * math.sqrt(1.0 + 1.0 / n)))


def _ratio_of_quantiles(counts: Array, known: float, level: float) -> float:
    """Return a ratio of quantiles of the Pearson III distribution: at `level`, divided by the quantile at `known`."""
    from scipy import special

    edges = BinGrid.from_counts(counts).edges
    middles = np.concatenate([[0.0], np.sqrt(edges[:-1] * edges[1:]), edges[-1:]])
    shares = counts / counts.sum()
    mean = float(shares @ middles)
    deviation = math.sqrt(float(shares @ (middles - mean) ** 2))
    if deviation <= 0.0:
        return 1.0
    skewness = max(float(shares @ ((middles - mean) / deviation) ** 3), 2.0 * deviation / mean)
    shape, scale = 4.0 / skewness**2, deviation * skewness / 2.0
    start = mean - shape * scale
    low, high = (start + scale * float(special.gammaincinv(shape, at)) for at in (known, level))
    return high / low if low > 0.0 else 1.0
