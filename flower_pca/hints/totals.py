"""Find last lines that are the sum or the mean of the lines above them, as in spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class SumsOfSites:
    """The sums and the numbers of values of each column over all rows of each site, both sites x d."""

    totals: Array
    counts: Array

    @classmethod
    def of(cls, clients: Sequence[LocalData]) -> SumsOfSites:
        """Return the sums of these clients, up to a few rounding errors."""
        totals, counts = np.empty((2, len(clients), clients[0].d))
        for i, client in enumerate(clients):
            totals[i], counts[i] = client.measured.approximate_means()
        return cls(totals * counts, counts)


def totals_by_sums(data: AllSites, clients: Sequence[LocalData], sums: SumsOfSites) -> dict[int, tuple[int, str]]:
    """Return the hints of `lines_of_totals_hints`, from a sample of the rows and the sums of all rows at each client.

    The position of a site is mapped to the number of its last lines from the line of totals on, and to the hint.
    """
    found: dict[int, tuple[int, str]] = {}
    for below, places in enumerate(_sites_with_possible_totals(data, sums)):
        for i in places:
            if i in found or clients[i].n - below <= LEAST:
                continue
            rows = data.sites[i].rows
            total, count = sums.totals[i], sums.counts[i]
            left = rows[len(rows) - 1 - below :]
            total = total - np.nansum(left, axis=0)
            count = count - np.sum(~np.isnan(left), axis=0)
            if what := _sum_or_mean(left[0], rows[: -1 - below], 2 * len(clients), sums=total, count=count):
                place = labels.capitalize(clients[i].table.place(clients[i].n - 1 - below))
                found[i] = below + 1, f"{place} is the {what} of the lines above it, not a row of data. Remove it."
    return dict(sorted(found.items()))


def _sites_with_possible_totals(data: AllSites, sums: SumsOfSites) -> tuple[list[int], list[int]]:
    """Return the sites whose last line, and whose last but one, may be the sum or mean of the lines above it."""
    found: tuple[list[int], list[int]] = ([], [])
    for stack in data.stacks:
        rows, total, count = stack.rows, sums.totals[stack.places], sums.counts[stack.places]
        for below in range(min(rows.shape[1] - 1, 2)):
            last = rows[:, -1 - below]
            total = total - np.nan_to_num(last)
            count = count - ~np.isnan(last)
            n = np.maximum(count, 1.0)
            line = _Line(last, rows[:, : -1 - below], total, total / n, n)
            sum_fits, mean_fits = line.fits(_MOST_ROUNDED, _most_rounding_of_sum(n))
            found[below].extend(stack.places[k] for k in np.flatnonzero(sum_fits | mean_fits).tolist())
    return found


class _Line:
    """A line (... x d) that may be the sum or the mean of the lines above it (... x n x d)."""

    def __init__(self, last: Array, above: Array, total: Array, mean: Array, n: Any) -> None:
        low, high = np.fmin.reduce(above, axis=-2), np.fmax.reduce(above, axis=-2)
        self._last, self._total, self._mean, self._n = last, total, mean, n
        self.there = ~np.isnan(last) & (high > low)
        # In a column of which a single value makes up most of the sum, the line may repeat this value.
        self._far = self.there & (np.abs(total) > 1.5 * np.maximum(np.abs(low), np.abs(high)))

    def fits(self, rounding: Any, off: Any) -> tuple[Array, Array]:
        """Return whether the line is the sum, and whether it is the mean.

        Its own rounding and the rounding of the sum change numbers by at most `rounding` and `off`.
        """
        far, there = self._far, self.there
        sum_off = rounding + off + 1e-9 * np.abs(self._total)
        sum_fits = far.any(axis=-1) & ((np.abs(self._last - self._total) <= sum_off) | ~far).all(axis=-1)
        mean_off = rounding + off / self._n + 1e-12 * np.abs(self._mean)
        mean_fits = there.any(axis=-1) & ((np.abs(self._last - self._mean) <= mean_off) | ~there).all(axis=-1)
        return sum_fits, mean_fits


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
        # Check the last two lines, because a line of means may follow a line of sums.
        for tables in (rows, rows[:, :-1])[: rows.shape[1] - LEAST]:
            for k in _positions_of_totals(tables, complete=stack.is_complete):
                if what := _sum_or_mean(tables[k, -1], tables[k, :-1], 2 * len(data.sites)):
                    found[stack.places[k]] = (tables.shape[1] - 1, what)
    return dict(sorted(found.items()))


def _positions_of_totals(tables: Array, *, complete: bool) -> list[int]:
    """Return the tables (of s x n x d) whose last line may be the sum or the mean of the lines above it.

    `complete` is true if no value is missing.
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
    # A line of means holds the mean of every column that varies. Only columns that vary in the first lines are checked.
    left_out = np.isnan(last) | ~(np.fmax.reduce(first, axis=1) > np.fmin.reduce(first, axis=1))
    of_mean = _most_rounding_of_sum(n) / n

    def fits(some: Array, rounding: Any, of_sum: Any) -> Array:
        line, sums, means = last[some], total[some], mean[some]
        slack = rounding + of_sum + 1e-8 * np.abs(sums)
        are_sums = (np.abs(line - sums) <= slack).any(axis=1)
        slack = rounding + of_mean + 1e-8 * np.abs(means)
        return np.asarray(are_sums | ((np.abs(line - means) <= slack) | left_out[some]).all(axis=1))

    # No unit of a last place exceeds 1, so units are looked for only in the tables that these bounds leave.
    possible = np.arange(len(tables))
    possible = possible[fits(possible, 1.0, _most_rounding_of_sum(n + 1))]
    if not len(possible):
        return []
    # The first lines show how many decimal places the numbers have.
    units = _unit_of_last_place(tables[possible, :LEAST]).min(axis=1)
    fit = fits(possible, _unit_of_last_place(last[possible]), _rounding_of_sum(units, n + 1))
    return [int(k) for k in possible[fit]]


def _sum_or_mean(
    last: Array, above: Array, several: int, *, sums: Array | None = None, count: Array | None = None
) -> str:
    """Return "sum" or "mean" if a line is the sum or the mean of the lines above it, or "" otherwise.

    If `above` is a sample, `sums` and `count` are the sums and the numbers of values of all lines above. `several` is
    the number of lines that are tested in the run.
    """
    n = len(above) if count is None else np.maximum(count, 1.0)
    if sums is None:
        total, mean = np.nansum(above, axis=0), np.nanmean(above, axis=0)
    else:
        total, mean = sums, sums / n
    line = _Line(last, above, total, mean, n)

    def kind(rounding: Any, off: Any) -> str:
        sum_fits, mean_fits = line.fits(rounding, off)
        return "sum" if sum_fits else "mean" if mean_fits else ""

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
        spread = _spread_given_others(above[:, line.there])
        # A normal value is this close to a given number with a probability of at most 2 close / (sqrt(2 pi) spread).
        close = rounding + off / n
        chance = np.prod(np.minimum(0.8 * close[line.there] / spread, 1.0))
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
