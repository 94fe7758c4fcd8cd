"""Hints about last lines that are the sum or the mean of the lines above them, as in spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.hints.sentences import capital
from flower_pca.hints.sites import LEAST, AllSites, Site, stacks
from flower_pca.rows.local import LocalData

# the largest probability that ordinary rows of a run give a hint about means
_RARE: Final = 1e-3
_MOST_ROUNDED: Final = 0.5 * (1.0 + 1e-9)  # the most by which rounding changes a number: to a whole one


def totals(data: AllSites) -> Iterator[str]:
    """Yield hints about last lines that are the sum or the mean of the lines above them."""
    for i, (n, what) in lines_of_totals(data.sites).items():
        place = capital(data.sites[i].place(n))
        yield f"{place} is the {what} of the lines above it, not a row of its own. Remove it."


def totals_by_sums(data: AllSites, clients: Sequence[LocalData]) -> Iterator[str]:
    """Yield the hints of `totals` about sampled rows, by the sums of all rows that the clients know."""
    for site, client in zip(data.sites, clients, strict=True):
        mean, number = client.measured.means()
        seen = np.asarray(number, dtype=np.float64)
        total = mean * seen
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
    # There may be a thousand sites, so a rough check of all at once comes before the exact one.
    for below in (0, 1):
        tall = [(i, site.rows[: len(site.rows) - below]) for i, site in enumerate(sites)]
        tall = [(i, rows) for i, rows in tall if len(rows) > LEAST]
        for places, stack in stacks([rows for _, rows in tall]):
            for k in np.flatnonzero(_look_like_totals(stack)).tolist():
                i, rows = tall[places[k]]
                if what := _sum_or_mean(rows[-1], rows[:-1], 2 * len(sites)):
                    found[i] = (len(rows) - 1, what)
    return dict(sorted(found.items()))


def _look_like_totals(tables: Array) -> Array:
    """Return for each table (s x n x d) whether its last line may be the sum or the mean of the lines above it."""
    last, above = tables[:, -1], tables[:, :-1]
    total = np.nansum(above, axis=1)
    n = above.shape[1]
    missing = np.isnan(above)
    mean = total / np.maximum(n - missing.sum(axis=1), 1) if missing.any() else total / n
    first = above[:, :LEAST]
    rounding = _rounding(last)
    slack = rounding + _off(first, n + 1) + 1e-8 * np.abs(total)
    sums = (np.abs(last - total) <= slack).any(axis=1)
    # A line of means holds the mean in all columns that vary, and these columns vary in the first lines already.
    varies = np.fmax.reduce(first, axis=1) > np.fmin.reduce(first, axis=1)
    slack = rounding + _most_off(n) / n + 1e-8 * np.abs(mean)
    means = ((np.abs(last - mean) <= slack) | np.isnan(last) | ~varies).all(axis=1)
    return np.asarray(sums | means)


def _sum_or_mean(
    last: Array, above: Array, several: int, *, sums: Array | None = None, count: Array | None = None
) -> str:
    """Return "sum" or "mean" if a line is that of the lines above it, or else "".

    `above` may be a sample; then `sums` and `count` are those of all lines above. `several` is the
    number of lines that are tested.
    """
    n = len(above) if count is None else np.maximum(count, 1.0)
    low, high = np.fmin.reduce(above), np.fmax.reduce(above)
    there = ~np.isnan(last) & (high > low)
    if sums is None:
        total, mean = np.nansum(above, axis=0), np.nanmean(above, axis=0)
    else:
        total, mean = sums, sums / n
    far = there & (np.abs(total) > 1.5 * np.maximum(np.abs(low), np.abs(high)))

    def kind(rounding: Any, off: Any) -> str:
        sum_off = rounding + off + 1e-9 * np.abs(total)
        if far.any() and (np.abs(last - total) <= sum_off)[far].all():
            return "sum"
        mean_off = rounding + off / n + 1e-12 * np.abs(mean)
        return "mean" if there.any() and (np.abs(last - mean) <= mean_off)[there].all() else ""

    # It takes long to see how numbers are rounded, so most lines are ruled out before.
    if not kind(_MOST_ROUNDED, _most_off(n)):
        return ""
    rounding = _rounding(last) / 2.0 * (1.0 + 1e-9)
    if not kind(rounding, _most_off(n)):
        return ""
    off = _off(above, n)
    found = kind(rounding, off)
    if found == "mean":
        # Columns that depend on others hit their means together, which counts as one coincidence.
        spread = _spread_given_others(above[:, there])
        # A normal value lies this close to a given place with a probability of at most 2 close / (sqrt(2 pi)
        # spread).
        close = rounding + off / n
        chance = np.prod(np.minimum(0.8 * close[there] / spread, 1.0))
        return found if chance * several < _RARE else ""
    return found


def _off(rows: Array, n: Any) -> Array:
    """Return, by column, how far the sum of n such numbers may lie from the sum before they were rounded.

    Whole numbers are taken as counts and codes, which are not rounded.
    """
    steps = _rounding(rows).min(axis=-2)
    # Rounding has a deviation of steps / sqrt(12), and a sum sqrt(n) times that; take four deviations.
    rounded = 4.0 * np.sqrt(n / 12.0) * steps
    return np.where(steps < 1.0, rounded, 0.0)


def _most_off(n: Any) -> Any:
    """Return the most that `_off` can be for n numbers: with one decimal place."""
    return 4.0 * np.sqrt(n / 12.0) * 0.1


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
