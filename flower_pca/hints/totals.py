"""Hints about last lines that are the sum or the mean of the lines above them, as in spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.hints.sentences import capital
from flower_pca.hints.sites import LEAST, AllSites, Site
from flower_pca.rows.local import LocalData

# the largest probability that ordinary rows of a run give a hint about means
_RARE: Final = 1e-3


def totals(data: AllSites) -> Iterator[str]:
    """Yield hints about last lines that are the sum or the mean of the lines above them."""
    for i, (n, what) in lines_of_totals(data.sites).items():
        place = capital(data.sites[i].place(n))
        yield f"{place} is the {what} of the lines above it, not a row of its own. Remove it."


def totals_by_sums(data: AllSites, clients: Sequence[LocalData]) -> Iterator[str]:
    """Yield the hints of `totals` about sampled rows, by the sums of all rows that the clients know."""
    for site, client in zip(data.sites, clients, strict=True):
        observed = client.observed()
        seen = np.asarray(observed.seen, dtype=np.float64)
        total = observed.mean * seen
        rows = site.rows
        for below in (0, 1):
            if client.n - below <= LEAST:
                break
            last, above = rows[len(rows) - 1 - below], rows[: len(rows) - 1 - below]
            left = rows[len(rows) - 1 - below :]
            sums = total - np.nansum(left, axis=0)
            count = seen - np.sum(~np.isnan(left), axis=0)
            if what := _sum_or_mean(last, above, 2 * len(clients), sums=sums, count=count):
                place = capital(client.table.place(client.n - 1 - below))
                yield f"{place} is the {what} of the lines above it, not a row of its own. Remove it."
                break


def lines_of_totals(sites: Sequence[Site]) -> dict[int, tuple[int, str]]:
    """Return, by the number of the site, how many lines stand above its line of totals, and "sum" or "mean"."""
    found: dict[int, tuple[int, str]] = {}
    # Look at the last two lines, since a line of means may follow one of sums.
    ends = [
        (i, site.rows[: len(site.rows) - below])
        for below in (0, 1)
        for i, site in enumerate(sites)
        if len(site.rows) - below > LEAST
    ]
    if not ends:
        return found
    whose, tables = zip(*ends, strict=True)
    # There may be a thousand sites, so a rough check of all at once comes before the exact one.
    for k in np.flatnonzero(_look_like_totals(tables)).tolist():
        i, rows = whose[k], tables[k]
        if what := _sum_or_mean(rows[-1], rows[:-1], 2 * len(sites)):
            found[i] = (len(rows) - 1, what)
    return dict(sorted(found.items()))


def _look_like_totals(tables: Sequence[Array]) -> Array:
    """Return for each table whether any value of its last line is the sum or the mean of those above it."""
    last = np.stack([rows[-1] for rows in tables])
    above = [rows[:-1] for rows in tables]
    total = np.stack([np.nansum(rows, axis=0) for rows in above])
    counts = [np.sum(~np.isnan(rows), axis=0) for rows in above]
    mean = total / np.maximum(counts, 1)
    sizes = np.array(list(map(len, tables)))[:, None]
    first = np.stack([rows[:LEAST] for rows in tables])
    rounding = _rounding(last) + _off(first, sizes)
    slack = rounding + 1e-8 * np.abs(total)
    near = (np.abs(last - total) <= slack) | (np.abs(last - mean) <= slack)
    return np.asarray(near.any(axis=1))


def _sum_or_mean(
    last: Array, above: Array, several: int, *, sums: Array | None = None, count: Array | None = None
) -> str:
    """Return "sum" or "mean" if a line is that of the lines above it, or else "".

    `above` may be a sample; then `sums` and `count` are those of all lines above. `several` is the
    number of lines that are tested.
    """
    n = len(above) if count is None else np.maximum(count, 1.0)
    off = _off(above, n)
    close = _rounding(last) / 2.0 * (1.0 + 1e-9)
    varies = np.nanmax(above, axis=0) > np.nanmin(above, axis=0)
    there = ~np.isnan(last) & varies
    total, mean = np.nansum(above, axis=0), np.nanmean(above, axis=0)
    if sums is not None:
        total, mean = sums, sums / n
    largest = np.nanmax(np.abs(above), axis=0)
    far = there & (np.abs(total) > 1.5 * largest)
    if far.any() and (np.abs(last - total) <= close + off + 1e-9 * np.abs(total))[far].all():
        return "sum"
    close += off / n
    if there.any() and (np.abs(last - mean) <= close + 1e-12 * np.abs(mean))[there].all():
        # Columns that depend on others hit their means together, which counts as one coincidence.
        spread = _spread_given_others(above[:, there])
        # A normal value lies this close to a given place with a probability of at most 2 close / (sqrt(2 pi)
        # spread).
        chance = np.prod(np.minimum(0.8 * close[there] / spread, 1.0))
        if chance * several < _RARE:
            return "mean"
    return ""


def _off(rows: Array, n: Any) -> Array:
    """Return, by column, how far the sum of n such numbers may lie from the sum before they were rounded.

    Whole numbers are taken as counts and codes, which are not rounded.
    """
    steps = _rounding(rows).min(axis=-2)
    # Rounding has a deviation of steps / sqrt(12), and a sum sqrt(n) times that; take four deviations.
    rounded = 4.0 * np.sqrt(n / 12.0) * steps
    return np.where(steps < 1.0, rounded, 0.0)


def _rounding(values: Array) -> Array:
    """Return the last decimal place of each number: 0.01 for 3.14, 1 for 7."""
    steps, sizes = np.full(values.shape, 1e-12), np.abs(values)
    # The loop runs eleven times, so it reuses these two arrays.
    rest, slack = np.empty((2, *values.shape), dtype=np.result_type(values, 1.0))
    for places in range(10, -1, -1):
        step = 10.0**-places
        np.rint(np.divide(values, step, out=rest), out=rest)
        rest *= step
        np.abs(np.subtract(values, rest, out=rest), out=rest)
        np.maximum(sizes, step, out=slack)
        slack *= 1e-9
        np.copyto(steps, step, where=rest <= slack)
    return steps


def _spread_given_others(rows: Array) -> Array:
    """Return the deviation of each column about its prediction by the columns before it; 0 where that is exact."""
    whole = rows[~np.isnan(rows).any(axis=1)][:, : 2**6]
    if len(whole) <= whole.shape[1] + 1:
        return np.zeros(rows.shape[1])
    upper = np.linalg.qr(whole - whole.mean(axis=0), mode="r")
    spread = np.abs(np.diag(upper)) / np.sqrt(len(whole) - 1)
    none = np.zeros(rows.shape[1] - len(spread))
    return np.concatenate([spread, none])
