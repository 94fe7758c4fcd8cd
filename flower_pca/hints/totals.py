"""Find last lines that are the sum or the mean of the lines above them, as in spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.hints.sites import LEAST, AllSites
from flower_pca.rows.local import LocalData

_RARE: Final = 1e-3  # maximum probability that ordinary rows of a run cause a hint about means
_ZERO: Final = 1e-9  # A number ends at a place if the rest is at most this share of the number, or of the place's unit.
# Rounding changes a number by at most this much if all numbers are rounded to whole numbers.
_MOST_ROUNDED: Final = 0.5 * (1.0 + 1e-9)


def lines_of_totals_hints(data: AllSites) -> Iterator[str]:
    """Yield hints about last lines that are the sum or the mean of the lines above them."""
    for i, (n, what) in lines_of_totals(data).items():
        place = labels.capitalize(data.sites[i].place(n))
        yield f"{place} is the {what} of the lines above it, not a row of data. Remove it."


def totals_by_sums(data: AllSites, clients: Sequence[LocalData]) -> dict[int, tuple[int, str]]:
    """Return the hints of `lines_of_totals_hints`, from a sample of the rows and the sums of all rows at each client.

    The position of a site is mapped to the number of its last lines from the line of totals on, and to the hint.
    """
    found: dict[int, tuple[int, str]] = {}
    for i, (site, client) in enumerate(zip(data.sites, clients, strict=True)):
        mean, number = client.measured.approximate_means()
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
                place = labels.capitalize(client.table.place(client.n - 1 - below))
                found[i] = below + 1, f"{place} is the {what} of the lines above it, not a row of data. Remove it."
                break
    return found


def lines_of_totals(data: AllSites) -> dict[int, tuple[int, str]]:
    """Return the line of totals of each site that has one, by the position of the site.

    A line of totals is described by the number of lines above it, and by "sum" or "mean".
    """
    found: dict[int, tuple[int, str]] = {}
    # There may be a thousand sites, so a rough check of all sites at once comes before the exact check.
    for stack in data.stacks:
        rows = stack.rows
        if rows.shape[1] <= LEAST:
            continue
        units = _unit_of_last_place(rows[:, :LEAST]).min(axis=1)
        # Check the last two lines, because a line of means may follow a line of sums.
        for tables in (rows, rows[:, :-1])[: rows.shape[1] - LEAST]:
            for k in np.flatnonzero(_look_like_totals(tables, units, complete=stack.is_complete)).tolist():
                if what := _sum_or_mean(tables[k, -1], tables[k, :-1], 2 * len(data.sites)):
                    found[stack.places[k]] = (tables.shape[1] - 1, what)
    return dict(sorted(found.items()))


def _look_like_totals(tables: Array, units: Array, *, complete: bool) -> Array:
    """Return for each table (s x n x d) whether its last line may be the sum or the mean of the lines above it.

    `units` (s x d) are the smallest units of the last place in the first lines. `complete` is true if no value is
    missing.
    """
    last, above = tables[:, -1], tables[:, :-1]
    n = above.shape[1]
    if complete:
        total = above.sum(axis=1)
        mean = total / n
    else:
        total = np.nansum(above, axis=1)
        mean = total / np.maximum((~np.isnan(above)).sum(axis=1), 1)
    first = above[:, :LEAST]
    rounding = _unit_of_last_place(last)
    slack = rounding + _rounding_of_sum(units, n + 1) + 1e-8 * np.abs(total)
    sums = (np.abs(last - total) <= slack).any(axis=1)
    # A line of means holds the mean of every column that varies. Only columns that vary in the first lines are checked.
    varies = np.fmax.reduce(first, axis=1) > np.fmin.reduce(first, axis=1)
    slack = rounding + _most_rounding_of_sum(n) / n + 1e-8 * np.abs(mean)
    means = ((np.abs(last - mean) <= slack) | np.isnan(last) | ~varies).all(axis=1)
    return np.asarray(sums | means)


def _sum_or_mean(
    last: Array, above: Array, several: int, *, sums: Array | None = None, count: Array | None = None
) -> str:
    """Return "sum" or "mean" if a line is the sum or the mean of the lines above it, or "" otherwise.

    If `above` is a sample, `sums` and `count` are the sums and the numbers of values of all lines above. `several` is
    the number of lines that are tested in the run.
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

    # Finding the number of decimal places of all lines is slow, so fast checks rule out most lines first.
    if not kind(_MOST_ROUNDED, _most_rounding_of_sum(n)):
        return ""
    rounding = _unit_of_last_place(last) / 2.0 * (1.0 + 1e-9)
    if not kind(rounding, _most_rounding_of_sum(n)):
        return ""
    off = _rounding_of_sum(_unit_of_last_place(above).min(axis=0), n)
    found = kind(rounding, off)
    if found == "mean":
        # If columns depend on each other, hitting all of their means is a single coincidence.
        spread = _spread_given_others(above[:, there])
        # A normal value is this close to a given number with a probability of at most 2 close / (sqrt(2 pi) spread).
        close = rounding + off / n
        chance = np.prod(np.minimum(0.8 * close[there] / spread, 1.0))
        return found if chance * several < _RARE else ""
    return found


def _rounding_of_sum(units: Array, n: Any) -> Array:
    """Return how much rounding may have changed the sum of n numbers of each column.

    `units` holds the smallest unit of the last place in each column. Whole numbers are taken as counts and codes, which
    are not rounded.
    """
    # The rounding error of a number has a standard deviation of units / sqrt(12), and a sum has sqrt(n) times as much.
    # Four standard deviations are allowed.
    rounded = 4.0 * np.sqrt(n / 12.0) * units
    return np.where(units < 1.0, rounded, 0.0)


def _most_rounding_of_sum(n: Any) -> Any:
    """Return the largest value of `_rounding_of_sum` for n numbers. Numbers with one decimal place reach this value."""
    return 4.0 * np.sqrt(n / 12.0) * 0.1


def _unit_of_last_place(values: Array) -> Array:
    """Return the unit of the last decimal place of each number: 0.01 for 3.14, and 1 for 7."""
    steps, sizes = np.full(values.shape, 1e-12), np.abs(values)
    # The loop may run eleven times, so it reuses these two arrays.
    rest, slack = np.empty((2, *values.shape), dtype=np.result_type(values, 1.0))
    for places in range(10, -1, -1):
        step = 10.0**-places
        np.rint(np.divide(values, step, out=rest), out=rest)
        rest *= step
        np.abs(np.subtract(values, rest, out=rest), out=rest)
        np.maximum(sizes, step, out=slack)
        slack *= _ZERO
        fits = rest <= slack
        # Then no number ends at an earlier place either, except one so small that it counts as 0 there.
        if not fits.any() and not (sizes <= _ZERO).any():
            break
        np.copyto(steps, step, where=fits)
    return steps


def _spread_given_others(rows: Array) -> Array:
    """Return the standard deviation of each column around its linear prediction from the columns before it.

    The value is 0 if the prediction is exact, if the rows are too few, and for all columns after the 64th.
    """
    whole = rows[~np.isnan(rows).any(axis=1)][:, : 2**6]
    if len(whole) <= whole.shape[1] + 1:
        return np.zeros(rows.shape[1])
    upper = np.linalg.qr(whole - whole.mean(axis=0), mode="r")
    spread = np.abs(np.diag(upper)) / np.sqrt(len(whole) - 1)
    none = np.zeros(rows.shape[1] - len(spread))
    return np.concatenate([spread, none])
