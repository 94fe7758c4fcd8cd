"""Counts of entries by size, and statistics that the server computes from the sums of these counts.

Bins do not depend on the data. So the sums of counts do not depend on how rows are distributed over clients.

Coarse bins count the distances of entries from the low-rank part. A coarse bin is at most a quarter of
an octave wide (an octave is a factor of two) and begins at a number with a mantissa of two bits. So the
first bits of a number determine its bin, and a count costs little compared with a matrix product.

Fine bins count absolute values, from which the server computes the median over the entries of all
clients. A fine bin is a 32nd of an octave (2.2 %) wide and begins at a power of 2^(1/32).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.local import LocalData

TINY: Final = float(np.finfo(np.float64).tiny)  # a divisor that replaces 0
_FINE: Final = 32  # the number of fine bins per octave
_FINE_OCTAVES: Final = 60  # the number of octaves that the fine bins cover
# The bins end this many octaves above the root mean square. A median is at most half an octave above it.
_ABOVE: Final = 4
# The first bin contains all smaller numbers, and the last bin all larger numbers.
FINE_BINS: Final = _FINE * _FINE_OCTAVES + 1


def top_exponent(rms: float) -> int:
    """Return the exponent of the power of two at which the bins end, given the root mean square of the entries."""
    if rms > 0.0:
        return math.ceil(math.log2(rms)) + _ABOVE
    return 0


def count_finely(data: LocalData, top: int) -> Array:
    """Return the number of a client's entries in each fine bin, by their absolute values."""
    before = (top - _FINE_OCTAVES) * _FINE - 1
    counts = np.zeros(FINE_BINS)
    for X in data.dense():
        with np.errstate(divide="ignore"):
            logarithms = np.log2(np.abs(X, dtype=np.float64))
            places = np.floor(_FINE * logarithms) - before
        whole = np.clip(places, 0, FINE_BINS - 1).astype(np.int64)
        counts += np.bincount(whole.ravel(), minlength=FINE_BINS)
    return counts


def median_of_counts(counts: Array, top: int) -> float:
    """Return the median from counts in fine bins, interpolated within its bin, or 0 if it is in the first bin."""
    half, below = counts.sum() / 2.0, np.cumsum(counts)
    place = int(np.searchsorted(below, half))
    if place == 0:
        return 0.0
    within = (half - below[place - 1]) / counts[place]
    return float(2.0 ** (top - _FINE_OCTAVES + (place - 1 + within) / _FINE))


_OCTAVES: Final = 60  # the number of octaves that the coarse bins cover
# The first bin contains all smaller numbers, and the last bin all larger numbers.
BINS: Final = 4 * _OCTAVES + 1
# For numbers of 4 and of 8 bytes, this table gives the number of bits after the bits that determine the bin, and the
# bias of the exponent.
_LAYOUTS: Final = {4: (21, 127), 8: (50, 1023)}
# This is the standard deviation of normal entries, divided by the median absolute value within three deviations.
_NORMAL: Final = 1.4826 * 1.004
_NEAR: Final = 3.0  # The median is computed over entries within this many standard deviations.
_SETTLED: Final = 1e-3  # the relative change at which the iteration in `standard_deviation` ends
_MOST: Final = 100  # maximum number of iterations in `standard_deviation`
# These are the edges of the coarse bins in units of 2^top. The first bin ends at 2^-60.
_OF_OCTAVES: Final = 2.0 ** np.arange(-_OCTAVES, 0)[:, None] * (1.25, 1.5, 1.75, 2.0)
_EDGES: Final = np.concatenate([[0.0, 2.0**-_OCTAVES], _OF_OCTAVES.ravel()])


def count_coarsely(R: Array, top: int) -> Array:
    """Return the number of residuals in each coarse bin, by their absolute values."""
    size = R.dtype.itemsize
    behind, bias = _LAYOUTS[size]
    # The sign bit need not be removed, because negative numbers get separate bins after the positive numbers.
    half = 2 ** (8 * size - 1 - behind)
    places = np.ascontiguousarray(R).reshape(-1).view(f"u{size}") >> behind
    signed = np.bincount(places.view(f"i{size}"), minlength=2 * half)
    sizes = signed[:half] + signed[half:]
    below = np.concatenate([[0], np.cumsum(sizes)])
    places = np.arange(BINS - 1) + 4 * (bias + top - _OCTAVES)
    ends = np.clip(places, 0, half)
    return np.diff(below[ends], prepend=0, append=below[-1]).astype(np.float64)


def standard_deviation(counts: Array, top: int) -> float:
    """Return the standard deviation s of ordinary entries from counts in coarse bins, or 0 if there are no entries.

    s is found by the iteration s <- 1.49 times the median absolute value of the entries within 3 s.
    """
    below = np.concatenate([[0.0], np.cumsum(counts)])
    if below[-1] == 0.0:
        return 0.0
    s = np.inf
    for _ in range(_MOST):
        within = float(np.interp(_NEAR * s, _EDGES, below))
        before = s
        s = _NORMAL * float(np.interp(within / 2.0, below, _EDGES))
        if abs(s - before) <= _SETTLED * s:
            break
    return s * 2.0**top


def share_above(counts: Array, top: int, lam: float) -> float:
    """Return the share of entries with an absolute value above lam, from counts in coarse bins."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    if not below[-1]:
        return 0.0
    within = float(np.interp(lam / 2.0**top, _EDGES, below))
    return 1.0 - within / float(below[-1])


def clipped_squares(counts: Array, top: int, lam: float, cut: float) -> float:
    """Return the sum of squares of the clipped residuals C, from counts of residuals in coarse bins.

    C is clip(r, lam), or 0 if |r| exceeds cut times lam.

    Entries are assumed to be uniformly distributed within each bin.
    """
    low = _EDGES[:-1] * 2.0**top
    high = _EDGES[1:] * 2.0**top
    squares = (low**2 + low * high + high**2) / 3.0
    mean = np.minimum(squares, lam**2)
    far = (low + high) / 2.0 > cut * lam
    return float(np.sum(np.where(far, 0.0, mean) * counts))
