"""Compare sites by their rows: means, deviations, and the rows farthest beyond the limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from flower_pca.analysis.monitor import Limits, Monitor
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.table import Table
from flower_pca.results.pca import PCAResult
from flower_pca.stages.histograms import LEFT_OUT

_FIRST: Final = 3  # number of leading components by which columns are ranked
_MOST: Final = 10  # maximum number of unusual rows


@dataclass(frozen=True)
class Sites:
    """Means and standard deviations of columns in original units, for each site, (N, d), and for all rows, (d,).

    Attributes
    ----------
    striking : ndarray of shape (d,)
        The numbers of the columns, ordered by their weights in the leading components, largest first.
    off : ndarray of shape (N, d)
        The differences between the means of each site and the means of all rows, in standard deviations of all rows.
    order : ndarray
        The numbers of the sites. Many sites are ordered by their largest absolute difference, largest first.
    """

    means: Array
    deviations: Array
    mean: Array
    deviation: Array
    striking: Array
    off: Array
    order: Array

    __repr__ = brief


def compare_sites(result: PCAResult, shards: Sequence[Any], *, few: int = 40) -> Sites:
    """Return a comparison of the sites of a run, computed from their rows. Up to `few` sites keep their order."""
    found = [result._rows_in_frame(X).moments() for X in shards]
    means = np.stack([m.mean for m in found])
    squares = np.stack([m.m2 for m in found])
    seen = np.stack([np.broadcast_to(m.value_counts, m.mean.shape) for m in found]).astype(np.float64)
    every = np.maximum(seen.sum(axis=0), 1.0)
    mean = (seen * means).sum(axis=0) / every
    deviation = np.sqrt((squares + seen * (means - mean) ** 2).sum(axis=0) / every)
    off = (means - mean) / np.where(deviation > 0.0, deviation, 1.0)
    deviations = np.sqrt(result.explained_variance_[:_FIRST])
    weights = np.abs(result.components_[:_FIRST]) * deviations[:, None]
    order = np.arange(len(off))
    if len(off) > few:
        order = np.argsort(-np.abs(off).max(axis=1), kind="stable")
    return Sites(
        means=means,
        deviations=np.sqrt(squares / np.maximum(seen, 1.0)),
        mean=mean,
        deviation=deviation,
        striking=np.argsort(-weights.max(axis=0), kind="stable"),
        off=off,
        order=order,
    )


class UnusualRow(NamedTuple):
    """A row beyond a limit: T2 and SPE as multiples of their limits, and the columns that contribute most."""

    site: str | int
    row: int
    t2: float
    spe: float
    why: str


@dataclass(frozen=True)
class UnusualRows:
    """The `rows` farthest beyond the `limits`, farthest first. In total, `beyond` of `of` rows are beyond a limit."""

    beyond: int
    of: int
    limits: Limits
    rows: list[UnusualRow]


def most_unusual_rows(result: PCAResult, shards: Sequence[Any]) -> UnusualRows | None:
    """Return up to 10 rows of a run that are farthest beyond the limits, or None if the result has no limits.

    If the limits are for new rows, each row is scored by components that are fitted without this row.
    """
    left_out = result.histograms_ is not None and result.histograms_of == LEFT_OUT
    try:
        monitor = Monitor(result)
        limits = monitor.limits(trained=result.histograms_ is None)
    except ConfigError:  # There are too few rows, or the variances are noisy.
        return None
    scored = {i: monitor.score(X, in_run=left_out) for i, X in enumerate(shards)}
    places = {i: np.flatnonzero(of.beyond(limits)) for i, of in scored.items()}
    beyond = [(i, int(row)) for i, rows in places.items() for row in rows]

    def times(place: tuple[int, int]) -> tuple[float, float]:
        site, row = place
        t2 = float(scored[site].t2[row])
        spe = float(scored[site].spe[row])
        return _share_of_limit(t2, limits.t2), _share_of_limit(spe, limits.spe)

    rows = []
    for site, row in sorted(beyond, key=lambda place: -max(times(place)))[:_MOST]:
        X = Table.of(shards[site])[row : row + 1]
        of_t2, of_spe = times((site, row))
        rows.append(UnusualRow(site, row, of_t2, of_spe, monitor.because(X, "T2" if of_t2 > of_spe else "SPE")))
    return UnusualRows(len(beyond), sum(len(of.t2) for of in scored.values()), limits, rows)


def _share_of_limit(value: float, limit: float) -> float:
    """Return the value as a multiple of its limit, or 0 if there is no limit."""
    if 0.0 < limit < math.inf:
        return value / limit
    return 0.0
