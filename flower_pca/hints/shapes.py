"""Find mistakes that show in the distribution of a column, or in the comparison of a site with the other sites.

The hints are about fill values, shifted decimal points, opposite signs, swapped columns, categories that one site codes
by other numbers, lines of statistics or subtotals, rows that are repeated many times, and dates or codes stored as
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.hints.sites import LEAST, MANY, AllSites, Site, Stack

FILLS: Final = 1e9  # smallest absolute value of a fill value, such as -2^31, 2^63 and 1e20
_FAR: Final = 1000.0  # The distance of a fill value from all other values is at least this many times their spread.
_POINT: Final = (10.0, 100.0, 0.1, 0.01)  # factors by which a mistyped decimal point changes a value
# A value counts as too large because of a shifted decimal point only if the largest other value is at most this many
# times the value below which a share of `_RARE` lies. The smallest of a million values says little about the others.
_TIGHT: Final = 5.0
_RARE: Final = 0.001
# A value counts as too small because of a shifted decimal point only if the largest value is at most this many times
# the second-smallest value.
_CLOSE: Final = 3.0
# In a column of at least `_LONG` values with a light tail, a value far beyond the tail is wrong even if the column is
# wide. A tail is light if the largest value is at most twice as far from the median as the value that a share of
# `_RARE` exceeds. In a million normal values it is 1.6 times as far, and in exponential values 2.1 times. The wrong
# value is more than twice as far beyond the largest value as this is from the median.
_LONG: Final = 10_000
_LIGHT, _BEYOND = 2.0, 2.0
OFTEN: Final = 5  # smallest number of equal rows that causes a hint
_ENDS: Final = (7, 2)  # largest and smallest number of lines of statistics that are searched for below a table
MOST_SUMS: Final = 2000  # maximum number of rows that are compared with sums of other rows
_TRIED: Final = 50  # maximum number of rows from which a sum is tried to begin, for each row that may be a sum
FEW: Final = 3  # number of columns that rule out most rows as sums or statistics of other rows
COLUMNS: Final = 8  # With this many columns, hardly any row is large in all of them by accident.
_CODES: Final = re.compile(
    r"post_?code|zip_?(code)?|plz|postleitzahl|phone|telefon|\btel\b|fax|iban|(ward|room|bed|station|zimmer)_?(nr|no|number|id)"
    # In 573 tables of R packages, all 8 columns of whole numbers with these names hold codes.
    r"|^(ward|room|zimmer|hospital|clinic|klinik|department|abteilung|district|region|cent(er|re)|site)$",
    re.IGNORECASE,
)


def fill_values(data: AllSites) -> Iterator[str]:
    """Yield hints about fill values such as 1e20 and -2^31, which are extremely far from all other values."""
    large = np.maximum(np.abs(data.smallest), np.abs(data.largest)) >= FILLS
    for j in np.flatnonzero(large).tolist():
        values = np.sort(data.values_of(j))
        for value in (values[0], values[-1]):
            rest = values[values != value]
            if abs(value) < FILLS or len(rest) < MANY or len(np.unique(rest)) < MANY:
                continue
            away = min(abs(rest[0] - value), abs(rest[-1] - value))
            if away > _FAR * max(rest[-1] - rest[0], 1e-3 * np.abs(rest).max()):
                yield data.hint_of_code(
                    j, float(value), "more than a thousand times the spread of all other values away from them"
                )


def shifted_decimal_points(data: AllSites) -> Iterator[str]:
    """Yield hints about a value that is 10 or 100 times too large or too small in a column of similar values."""
    (lowest, second), (highest, second_highest) = data.two_smallest, data.two_largest
    # Children among adults are not typing errors, so a small value causes a hint only if the others are even closer.
    small = (4.0 * lowest < second) & (highest <= _CLOSE * second)
    large = highest - second_highest > second_highest - lowest
    for j in np.flatnonzero((lowest > 0.0) & (highest > lowest) & (small | large)).tolist():
        values = np.sort(data.values_of(j))
        for value, rest, far in ((values[0], values[1:], small[j]), (values[-1], values[:-1], large[j])):
            if not far or len(rest) < 4 * MANY or len(np.unique(rest)) < MANY:
                continue
            beyond = _lies_beyond_light_tail(value, rest)
            if not beyond and value > rest[-1] > _TIGHT * rest[int(_RARE * len(rest))]:
                continue
            low, high = np.quantile(rest, [0.01, 0.99] if beyond else [0.05, 0.95])
            factor = next((f for f in _POINT if low <= value / f <= high), None)
            if factor is not None:
                times = f"{factor:g} times too large" if factor > 1.0 else f"{1 / factor:g} times too small"
                site, row = data.find_value(j, float(value))
                yield (
                    f"{data.column_title(j)} holds a value that looks {times}, in {site.place(row)}. Check this cell."
                )


def _lies_beyond_light_tail(value: float, rest: Array) -> bool:
    """Return whether a value is far above many other values (in ascending order) that have no long upper tail."""
    n = len(rest)
    if n < _LONG:
        return False
    middle, usual, largest = rest[n // 2], rest[int((1.0 - _RARE) * n)], rest[-1]
    light = largest - middle <= _LIGHT * (usual - middle)
    return bool(light and value - largest > _BEYOND * (largest - middle))


def may_have_shifted_points(sample: AllSites, lowest: Array, highest: Array, after: Array, before: Array) -> Array:
    """Return in which columns `shifted_decimal_points` may find a value, from their extremes and a sample of rows.

    `after` is a value of each column above the lowest value, and `before` is a value below the highest value.
    """
    small = (4.0 * lowest < after) & (highest <= _CLOSE * after)
    # The sample is small, so a larger share is used.
    usual = np.fmax.reduce([values[int(4.0 * _RARE * len(values))] for values in sample.sorted_values])
    beyond = highest - before > _BEYOND * (before - np.fmax.reduce(sample.levels[:, 1]))
    large = (highest - before > before - lowest) & (beyond | (before <= _TIGHT * usual))
    return np.asarray((lowest > 0.0) & (small | large))


def turned_signs(sites: Sequence[str], levels: Array, value_counts: Array, columns: Sequence[str]) -> Iterator[str]:
    """Yield hints about columns that would match the other sites if one site changed their sign.

    `levels` (sites x 3 x d) holds the percentiles of `AllSites.levels`, and `value_counts` (sites x d) the number of
    values in each column at each site.
    """
    if len(sites) < 3:
        return
    below, above = levels[:, 2] < 0, levels[:, 0] > 0
    # All other sites must be on the other side.
    turned = (below & (above.sum(axis=0) == len(sites) - 1)) | (above & (below.sum(axis=0) == len(sites) - 1))
    turned &= value_counts > 0
    for i in np.flatnonzero(turned.any(axis=1)).tolist():
        here, others = levels[i], np.delete(levels, i, axis=0)
        for j in np.flatnonzero(turned[i]).tolist():
            usual = np.median(others[:, :, j], axis=0)
            span = usual[2] - usual[0]
            if span > 0 and abs(here[1, j] + usual[1]) < 0.25 * span + 2 * span / np.sqrt(value_counts[i, j]):
                what = "seems to have the opposite sign"
                yield f"{labels.capitalize(columns[j])} {what} at {sites[i]}. Check the data of this site."


def swapped_columns(sites: Sequence[str], levels: Array, value_counts: Array, columns: Sequence[str]) -> Iterator[str]:
    """Yield hints about pairs of columns that seem to be swapped at one site.

    At this site, each column of the pair has the values that the other column has at all other sites. The parameters
    are the same as in `turned_signs`.
    """
    if len(sites) < 3 or not (value_counts >= LEAST).all() or np.isnan(levels).any():
        return
    # `apart` marks the columns whose values at a site do not overlap the values at the other sites. `fits` holds the
    # pairs (a, b) for which column a of a site matches column b of the other sites.
    apart = (levels[:, 0] > _largest_elsewhere(levels[:, 2])) | (levels[:, 2] < -_largest_elsewhere(-levels[:, 0]))
    for i in np.flatnonzero(apart.sum(axis=1) > 1).tolist():
        site, here, others = sites[i], levels[i], np.delete(levels, i, axis=0)
        low, high = others[:, 0].min(axis=0), others[:, 2].max(axis=0)
        odd = np.flatnonzero(apart[i])
        middle = np.median(others[:, 1], axis=0)
        fits = {
            (a, b)
            for a in odd.tolist()
            for b in odd.tolist()
            if a != b
            and low[b] <= here[1, a] <= high[b]
            and _has_similar_levels(here[:, a], low[b], high[b], middle[b])
        }
        for a, b in sorted(fits):
            if a < b and (b, a) in fits:
                both = f"{labels.capitalize(columns[a])} and {columns[b]}"
                yield f"{both} seem to be swapped at {site}. Check the data of this site."


def _largest_elsewhere(values: Array) -> Array:
    """Return for each site the largest value at any other site, of values without gaps (sites x d)."""
    last, largest = np.partition(values, (-2, -1), axis=0)[-2:]
    return np.asarray(np.where(values == largest, last, largest))


def _has_similar_levels(site_levels: Array, low: float, high: float, middle: float) -> bool:
    span = high - low
    return bool(abs(site_levels[1] - middle) < 0.5 * span and 0.4 * span < site_levels[2] - site_levels[0] < 1.6 * span)


def other_codes(data: AllSites) -> Iterator[str]:
    """Yield hints about columns of two values that one site codes differently, such as 1 and 2 instead of 0 and 1."""
    if len(data.sites) < 2:
        return
    for j in np.flatnonzero(
        (data.distinct_counts == 2).all(axis=0) & (data.value_counts >= LEAST).all(axis=0)
    ).tolist():
        # In ascending order, one of the two values comes first and the other comes last.
        pairs = [
            (values[0, j], values[n - 1, j])
            for values, n in zip(data.sorted_values, data.value_counts[:, j], strict=True)
        ]
        kinds = sorted(set(pairs), key=pairs.count)
        whole = all(value == int(value) for pair in kinds for value in pair)
        if len(kinds) == 2 and whole and kinds[0][1] - kinds[0][0] == kinds[1][1] - kinds[1][0]:
            odd = [site.who for site, pair in zip(data.sites, pairs, strict=True) if pair == kinds[0]]
            here, there = (f"{pair[0]:g} and {pair[1]:g}" for pair in kinds)
            yield (
                f"{data.column_title(j)} is coded by {here} at {labels.join_with_and(odd)}, but by {there} "
                f"elsewhere. Use the same "
                "codes at all sites."
            )


def columns_of_codes(data: AllSites) -> Iterator[str]:
    """Yield hints about columns whose names suggest codes, such as post codes and phone numbers."""
    for j, column in enumerate(data.columns):
        name = column.removeprefix("column ")
        if _CODES.search(name) and (data.distinct_counts[:, j] > 2).any() and data.is_whole(j):
            yield (
                f"{data.column_title(j)} holds codes, which are not measurements. To leave it out, name the other "
                f"columns with {_LISTED}."
            )


_LISTED: Final = option("columns", ["..."])


def dates_in_columns(data: AllSites) -> Iterator[str]:
    """Yield hints about dates and times stored as numbers, such as 05012024, 240105 and milliseconds since 1970."""
    for j in np.flatnonzero((data.smallest >= 10100) & (data.largest > data.smallest)).tolist():
        if not data.is_whole(j):
            continue
        values = data.values_of(j)
        if len(np.unique(values)) < MANY:
            continue
        if values.min() >= 9.4e11 and values.max() <= 2.2e12:
            yield f"{data.column_title(j)} holds times in milliseconds since 1970, stored as numbers. {_OUT}"
            continue
        for kind, day, month, year in (
            ("05012024", values // 1e6, values // 1e4 % 100, values % 1e4),
            ("240105", values % 100, values // 100 % 100, 2000 + values // 1e4),
        ):
            fits = (day >= 1) & (day <= 31) & (month >= 1) & (month <= 12) & (year >= 1900) & (year <= 2099)
            # A column of dates has more than two months, and days after the twelfth. Amounts rarely look like this.
            if fits.all() and len(np.unique(month)) > 2 and day.max() > 12 and values.max() >= 10**5:
                yield f"{data.column_title(j)} holds dates such as {kind}, stored as numbers. {_OUT}"
                break


_OUT: Final = f"To leave it out, name the other columns with {_LISTED}."


def lines_of_statistics(data: AllSites) -> Iterator[str]:
    """Yield hints about last lines that hold statistics of the lines above them, such as the mean and the deviation."""
    for site, ends in zip(data.sites, _possible_statistics_lines(data), strict=True):
        if ends and (said := _statistics_at_end(site.rows, ends)):
            yield hint_of_statistics(site.place, len(site.rows), said)


def statistics_below(rows: Array) -> list[str]:
    """Return the names of the statistics that the last lines of a table hold, or []."""
    data = AllSites.of_sites([Site("", rows, str)], None)
    return _statistics_at_end(rows, _possible_statistics_lines(data)[0])


def hint_of_statistics(place: Callable[[int], str], n: int, said: Sequence[str]) -> str:
    """Return the hint that the last of n lines hold these statistics of the lines above them."""
    first, last = place(n - len(said)), place(n - 1)
    return (
        f"{labels.capitalize(first)} to {last} are the {labels.join_with_and([*said])} of the lines above them, not "
        "rows. Remove them."
    )


def _statistics_at_end(rows: Array, ends: Sequence[int]) -> list[str]:
    """Return the names of the statistics in the last m lines, for the first m of `ends` that fits, or []."""
    for m in ends:
        above, below = rows[:-m], rows[-m:]
        # Stop at the first line that holds no statistic, because most tables have no lines of statistics.
        said = [*takewhile(bool, (_statistic(line, above) for line in below))]
        if len(said) == m and len(set(said)) > 1:
            return said
    return []


def _possible_statistics_lines(data: AllSites) -> list[list[int]]:
    """Return, for each site, the possible numbers of last lines with statistics of the lines above, largest first.

    This rough check looks at the first of the last lines only.
    """
    found: list[list[int]] = [[] for _ in data.sites]
    columns = data.most_varied_columns
    for stack in data.stacks:
        most = min(_ENDS[0], stack.ordered.shape[1] - LEAST)
        # A few columns rule out most tables.
        if most >= _ENDS[1] and _first_lines_fit(stack, columns[:FEW], most).any():
            for i, k in np.argwhere(_first_lines_fit(stack, columns, most)).tolist():
                found[stack.places[i]].append(most - k)
    return found


def _first_lines_fit(stack: Stack, columns: Array, most: int) -> Array:
    """Return whether the first of the last m lines of a table may hold a statistic of the lines above.

    Only these columns are read. The result has a row for each table of the stack, and a column for each m, from `most`
    down to 2. The tolerances are wider than in `_statistic`, because they follow from sums that are computed once for
    all m.
    """
    # Entry k of these arrays refers to the lines above the last `most` - k lines.
    rows, seen = stack.rows[:, :, columns], stack.value_counts[:, columns]
    n = rows.shape[1]
    lines, top, between = rows[:, -most:-1], rows[:, :-most], rows[:, -most:-2]

    def sum_up_to(of_top: Array, of_lines: Array, add: np.ufunc = np.add) -> Array:
        return np.asarray(add.accumulate(np.concatenate([of_top[:, None], of_lines], axis=1), axis=1))

    number = np.arange(n - most, n - 1)[:, None]
    # Functions that skip missing values copy all rows.
    add_up: Callable[..., Array] = np.sum if stack.is_complete else np.nansum
    count = number if stack.is_complete else sum_up_to((~np.isnan(top)).sum(axis=1), ~np.isnan(between))
    middle = np.nan_to_num(add_up(top, axis=1) / count[..., 0, :])[:, None]
    from_middle, next_ones = top - middle, np.nan_to_num(between - middle)
    about = sum_up_to(add_up(from_middle, axis=1), next_ones)
    squares = sum_up_to(add_up(from_middle**2, axis=1), next_ones**2)
    low = sum_up_to(np.fmin.reduce(top, axis=1), between, np.fmin)
    high = sum_up_to(np.fmax.reduce(top, axis=1), between, np.fmax)
    mean = middle + about / count
    deviation = np.sqrt(np.maximum(squares - about**2 / count, 0.0) / (count - 1.0))
    # The median of the lines above lies between these two values of the column in ascending order.
    ranks = np.stack([(seen - most - 1) // 2, np.minimum(seen // 2 + most, seen - 1)], axis=1)
    lower, upper = np.take_along_axis(stack.ordered[:, :, columns], np.maximum(ranks, 0), axis=1).swapaxes(0, 1)
    total = mean * count
    slack = 6e-3 * deviation + 7e-3 + 1e-9 * (np.abs(total) + high - low)
    exact = [np.abs(lines - of) <= slack for of in (mean, deviation, low, high, number, total)]
    median = (lower[:, None] - slack <= lines) & (lines <= upper[:, None] + slack)
    left_out = np.isnan(lines) | ~(high > low)
    return np.asarray(np.any([(fits | left_out).all(axis=2) for fits in (median, *exact)], axis=0))


def _statistic(line: Array, above: Array) -> str:
    """Return the name of the statistic of the lines above that a line holds, or "" if it holds no statistic.

    Columns that do not vary in the lines above are ignored.
    """
    varies = np.nanmax(above, axis=0) > np.nanmin(above, axis=0)
    there = varies & ~np.isnan(line)
    if there.sum() < 2:
        return ""
    part, values = above[:, there], line[there]
    # Statistics may be rounded to two decimals, or to about two digits of the deviation.
    slack = 5e-3 * np.nanstd(part, axis=0) + 6e-3
    known = _STATISTICS.items()
    return next((name for name, of in known if (np.abs(values - of(part)) <= slack).all()), "")


def _median(rows: Array) -> Array:
    """Return the median of each column. `np.nanmedian` takes several times as long, even if no value is missing."""
    return np.nanmedian(rows, axis=0) if np.isnan(rows).any() else linalg.median_of_few(rows)


_STATISTICS: Final[dict[str, Callable[[Array], Any]]] = {
    "mean": partial(np.nanmean, axis=0),
    "standard deviation": partial(np.nanstd, axis=0, ddof=1),
    "minimum": partial(np.nanmin, axis=0),
    "maximum": partial(np.nanmax, axis=0),
    "median": _median,
    "number": len,
    "sum": partial(np.nansum, axis=0),
}


def totals_anywhere(data: AllSites) -> Iterator[str]:
    """Yield hints about lines that are the sum of some lines just before them, or of all other lines."""
    for site, possible in zip(data.sites, _may_hold_sums(data), strict=True):
        found = _subtotal_rows(site.rows) if possible else []
        if found:
            yield hint_of_sums(site.place, found)


def hint_of_sums(place: Callable[[int], str], found: Sequence[int]) -> str:
    """Return the hint that rows at these positions are sums of other rows."""
    first = labels.capitalize(place(found[0]))
    more = f", like {len(found) - 1} more below it" if len(found) > 1 else ""
    return f"{first} is the sum of other lines{more}. Remove such lines, because they are not rows of data."


def _may_hold_sums(data: AllSites) -> list[bool]:
    """Return for each site whether some row may be a sum of rows, because it is large in the columns that are checked.

    These are the columns with the most different values: see `AllSites.most_varied_columns`.
    """
    found = [False] * len(data.sites)
    columns = data.most_varied_columns[:COLUMNS]
    for stack in data.stacks:
        rows = stack.rows[:, :, columns]
        if stack.is_complete:
            large = np.abs(rows) > 1.5 * stack.median_sizes(columns)[:, None]
        else:
            rows = np.nan_to_num(rows)
            large = _large_entries(rows)
        fits = np.all(large | ~varied_columns(rows)[:, None], axis=2)
        for i, some in zip(stack.places, fits.any(axis=1).tolist(), strict=True):
            found[i] = some
    return found


def varied_columns(rows: Array) -> Array:
    """Return which columns of tables (... x n x d) have more than `LEAST` different values in the first 200 rows."""
    first = np.sort(rows[..., :200, :], axis=-2)
    return np.asarray((np.diff(first, axis=-2) > 0.0).sum(axis=-2) + 1 > LEAST)


def _large_entries(rows: Array) -> Array:
    """Return which entries of tables (... x n x d) exceed 1.5 times the median of their column, in absolute value."""
    sizes = np.abs(rows)
    return np.asarray(sizes > 1.5 * np.median(sizes, axis=-2, keepdims=True))


def _subtotal_rows(stored: Array) -> list[int]:
    """Return the positions of rows that are the sum of at least three rows just before them, or of all other rows."""
    rows = np.nan_to_num(stored)
    n = len(rows)
    measures = varied_columns(rows)
    if n < LEAST or measures.sum() < 2:
        return []
    rows = rows[:, measures]
    return sums_among(rows, np.flatnonzero(_large_entries(rows).all(axis=1)))


def _rows_with_sums_near(sums: Array, starts: Array, close: float) -> Iterator[Array]:
    """Yield for each start the rows, in ascending order, whose sums are at most `close` away.

    Of rows with equal sums, only the first ones are given, because `sums_among` tries no others.
    """
    # One search for all starts comes first, because it finds hardly any row.
    ordered = np.append(np.sort(starts), np.inf)
    near = np.flatnonzero(ordered[np.searchsorted(ordered, sums - close, side="right")] <= sums + close)
    near = near[np.argsort(sums[near], kind="stable")]
    equal = np.searchsorted(sums[near], sums[near])
    near = near[np.arange(len(near)) - equal < _TRIED]
    low = np.searchsorted(sums[near], starts - close)
    high = np.searchsorted(sums[near], starts + close, side="right")
    for first, end in zip(low.tolist(), high.tolist(), strict=True):
        yield np.sort(near[first:end])


def sums_among(rows: Array, candidates: Array, values: Array | None = None) -> list[int]:
    """Return which of at most 2,000 candidates are the sum of at least three rows just before them, or of all others.

    `rows` holds at least two columns that vary, without missing values. `values` are values of the candidates to test
    instead of their own, which are not compared with the sum of all others.
    """
    if not len(candidates):
        return []
    n, candidates = len(rows), candidates[:MOST_SUMS]
    own = rows[candidates] if values is None else values
    # BLAS takes a tenth of the time that numpy's sum takes for so few columns.
    close = 1e-9 * (np.ones(n) @ np.abs(rows) + 1.0)
    before = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
    total = before[-1]
    # Row i may be the sum of rows a to i - 1 if the sum of the rows before a is near `start` of i in the first column.
    starts = before[candidates, 0] - own[: len(candidates), 0]
    near = _rows_with_sums_near(before[:, 0], starts, close[0])
    found: list[int] = []
    for i, row, fits in zip(candidates.tolist(), own, near, strict=False):
        grand = values is None and (np.abs(total - 2.0 * row) <= close).all()
        fits = fits[fits < i - 2][:_TRIED]
        part = (np.abs(before[i] - before[fits] - row) <= close).all(axis=1).any()
        if grand or part:
            found.append(i)
    # Leave out the last line, because `totals` checks it with a tolerance for rounding.
    return [i for i in found if i < n - 1]


def repeated_row(data: AllSites) -> Iterator[str]:
    """Yield hints about a row that occurs many times in a table in which no other row occurs more than twice."""
    if not data.has_equal_rows:
        return
    for site, different in zip(data.sites, data.distinct_counts, strict=True):
        marks, first, counts = np.unique(site.row_hashes, return_index=True, return_counts=True)
        most = int(counts.max())
        if most < OFTEN or most >= 0.05 * len(site.row_hashes) or (different > MANY).sum() < 2:
            continue
        # The second-largest count shows whether all other rows occur once or twice.
        if np.partition(counts, -2)[-2] <= 2 and len(marks) > 4 * MANY:
            row = int(first[np.argmax(counts)])
            yield (
                f"The values of {site.place(row)} occur in {most} rows. Remove all but one of these rows if they are "
                "copies."
            )
