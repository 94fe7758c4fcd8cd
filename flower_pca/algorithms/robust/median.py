"""The median of |x| over the entries of all clients, from sums: every client counts its own in the same fine bins.

A bin is a 32nd of an octave, so 2.2 % wide, and begins at a power of 2^(1/32): where bins lie has nothing to do with
the data, only which of them are sent. So the counts add up to the same, whoever holds the rows.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.local import LocalData

_FINE: Final = 32  # bins of an octave
_OCTAVES: Final = 60
# of them above the root mean square: no median is more than half of one above it
_ABOVE: Final = 4
# the first is for what is below all others, the last has no end
BINS: Final = _FINE * _OCTAVES + 1


def top(rms: float) -> int:
    """The power of two at which the bins end, from the root mean square of the entries."""
    if rms > 0.0:
        return math.ceil(math.log2(rms)) + _ABOVE
    return 0


def count(data: LocalData, top: int) -> Array:
    """How many |x| of a client lie in each bin."""
    before, counts = (top - _OCTAVES) * _FINE - 1, np.zeros(BINS)
    for X in data.dense():
        with np.errstate(divide="ignore"):
            places = np.floor(_FINE * np.log2(np.abs(X, dtype=np.float64))) - before
        counts += np.bincount(np.clip(places, 0, BINS - 1).astype(np.int64).ravel(), minlength=BINS)
    return counts


def median(counts: Array, top: int) -> float:
    """The median, exact up to the width of its bin, within which it is interpolated; 0 if it is below all bins."""
    half, below = counts.sum() / 2.0, np.cumsum(counts)
    place = int(np.searchsorted(below, half))
    if place == 0:
        return 0.0
    within = (half - below[place - 1]) / counts[place]
    return float(2.0 ** (top - _OCTAVES + (place - 1 + within) / _FINE))
