"""Entries that a robust run does not look at: gaps, and a few that are hidden so that the run can be held against them.

Which are hidden follows from the row itself and from the run's seed: two hundredths of all, or more if there are few.
So they are the same however rows are dealt out, in whatever order messages come, and after a node has lost its memory;
and nobody who does not have the row can tell them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.local import LocalData

# shares, and how many entries there should be at least
_LEAST, _MOST, _WANTED = 0.02, 0.1, 100.0
# of the largest entry of a row: what is smaller does not change what is hidden
_FINE: Final = 2.0**20
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NONE: Final = np.zeros(0, dtype=np.int64)
_NEXT: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Unseen:
    """Places of a client's entries, counted row by row, ascending: gaps, and those that are hidden."""

    gaps: Array
    hidden: Array
    d: int

    def of_rows(self, start: int, stop: int) -> tuple[Array, Array]:
        """The places of both within these rows."""
        first, last = start * self.d, stop * self.d
        return tuple(a[slice(*np.searchsorted(a, (first, last)))] - first for a in (self.gaps, self.hidden))  # type: ignore[return-value]


def share(n: int, d: int) -> float:
    """The share of all entries that is hidden."""
    return min(_MOST, max(_LEAST, _WANTED / (n * d)))


def unseen(data: LocalData, *, seed: int, share: float) -> Unseen:
    """What is not looked at of these rows; found once."""
    key: Any = ("unseen", seed, share)
    if key not in data.known:
        data.known[key] = _draw(data, seed, share)
    found: Unseen = data.known[key]
    return found


def _draw(data: LocalData, seed: int, share: float) -> Unseen:
    gaps = _gaps(data)
    if share > 0.0:
        hidden = _hidden(data, seed, share)
    else:
        hidden = _NONE
    return Unseen(gaps, np.setdiff1d(hidden, gaps, assume_unique=True), data.d)


def _gaps(data: LocalData) -> Array:
    if not data.missing:
        return _NONE
    gaps, start = [], 0
    for block in data.blocks():
        gaps.append(np.flatnonzero(np.isnan(block)) + start * data.d)
        start += len(block)
    return np.concatenate(gaps)


def _hidden(data: LocalData, seed: int, share: float) -> Array:
    d = data.d
    of_column = np.random.PCG64(seed).random_raw(2 * d).reshape(2, d)
    rows, hidden = [], []
    for block in data.blocks():
        known = np.nan_to_num(block.astype(np.float64), nan=0.0)
        size = np.max(np.abs(known), axis=1, keepdims=True)
        whole = np.rint(known / np.where(size > 0.0, size, 1.0) * _FINE).astype(np.int64).view(np.uint64)
        rows.append(_mix(whole @ (of_column[0] | np.uint64(1))))
    row = np.concatenate(rows)
    row = _mix(row + _NEXT * _occurrence(row))
    limit, step = np.uint64(int(min(share, _MOST) * 2.0**64)), max(1, 2**20 // d)
    for i in range(0, len(row), step):
        drawn = _mix(row[i : i + step, None] ^ of_column[1]) < limit
        hidden.append(np.flatnonzero(drawn) + i * d)
    return np.concatenate(hidden)


def _occurrence(row: Array) -> Array:
    """How many rows before each are the same: equal rows hide other entries."""
    order = np.argsort(row, kind="stable")
    first = np.r_[True, row[order][1:] != row[order][:-1]]
    place = np.arange(len(row))
    counts = np.empty(len(row), dtype=np.uint64)
    counts[order] = (place - np.maximum.accumulate(np.where(first, place, 0))).astype(np.uint64)
    return counts


def _mix(x: Array) -> Array:
    """The finalizer of splitmix64: every bit of x in every bit."""
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return np.asarray(x ^ (x >> np.uint64(31)))
