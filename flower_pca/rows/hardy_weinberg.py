"""Test Hardy-Weinberg equilibrium exactly, from the numbers of people with 0, 1 and 2 copies of an allele.

This is the test of Wigginton, Cutler and Abecasis (2005). Given the numbers of people and of copies, the p-value is the
total probability of all numbers of heterozygotes that are at most as probable as the observed number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Moments

_OFF: Final = 0.1  # Because moments are rounded, numbers of people that are computed from them may be off by this much.
# The sum is limited to numbers of heterozygotes whose distance from the mean is at most _DEVIATIONS standard deviations
# plus _PEOPLE. The probability of all other numbers is negligible.
_DEVIATIONS, _PEOPLE = 40.0, 400.0
_TIE: Final = 1e-9  # Logarithms of probabilities that differ by less than this count as equal.


def p_values(moments: Moments, who: str) -> Array:
    """Return the p-value of each column of allele counts, from their moments. A column with only one allele gets 1.

    Raises
    ------
    DataError
        If a column holds values other than 0, 1 and 2.
    """
    seen = np.broadcast_to(np.asarray(moments.value_counts, dtype=np.float64), moments.mean.shape)
    sums = np.where(seen > 0, seen * moments.mean, 0.0)
    squares = moments.m2 + sums * np.where(seen > 0, moments.mean, 0.0)
    one, two = 2.0 * sums - squares, (squares - sums) / 2.0
    counts = np.rint([seen - one - two, one, two])
    off = np.abs([seen - one - two, one, two] - counts).max(axis=0) > _OFF
    if (bad := np.flatnonzero(off | (counts < 0.0).any(axis=0))).size:
        raise DataError(
            f"The test of Hardy-Weinberg equilibrium needs allele counts of 0, 1 or 2, but "
            f"{labels.count(bad.size, 'column')} of {who} {'holds' if bad.size == 1 else 'hold'} other values. Leave "
            "hwe out of variants."
        )
    rare = np.minimum(counts[1] + 2.0 * counts[0], counts[1] + 2.0 * counts[2])
    # Variants with the same numbers of people and of copies have the same distribution, which is computed once.
    order = np.lexsort((rare, seen))
    pairs = np.stack([seen, rare])[:, order]
    starts = np.flatnonzero((np.diff(pairs, axis=1) != 0.0).any(axis=0)) + 1
    found = np.ones(len(rare))
    for alike in np.split(order, starts):
        if rare[alike[0]] > 0:
            found[alike] = _p_values_for_n(float(seen[alike[0]]), float(rare[alike[0]]), counts[1, alike])
    return found


def _p_values_for_n(n: float, rare: float, heterozygotes: Array) -> Array:
    """Return the p-values of these numbers of heterozygotes, for n people with `rare` copies of the rarer allele."""
    from scipy.special import gammaln  # It is imported here because most nodes never need it.

    mean = rare * (2.0 * n - rare) / (2.0 * n)
    reach = _DEVIATIONS * mean / np.sqrt(n) + _PEOPLE
    first = max(mean - reach, 0.0)
    # The number of heterozygotes is even if the number of copies is even, and odd if it is odd.
    first += (rare - np.floor(first)) % 2.0 + np.floor(first) - first
    possible = np.arange(first, min(rare, mean + reach) + 0.5, 2.0)
    homozygotes = (rare - possible) / 2.0
    others = n - possible - homozygotes
    logs = possible * np.log(2.0) - gammaln(possible + 1) - gammaln(homozygotes + 1) - gammaln(others + 1)
    ascending = np.argsort(logs)
    total = np.cumsum(np.exp(logs[ascending] - logs.max()))
    there = np.rint((heterozygotes - possible[0]) / 2.0).astype(np.int64)
    inside = (there >= 0) & (there < len(possible))
    here = logs[np.clip(there, 0, len(possible) - 1)]
    not_above = np.searchsorted(logs[ascending], here + _TIE, side="right")
    return np.where(inside, total[not_above - 1] / total[-1], 0.0)
