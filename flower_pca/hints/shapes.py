"""Hints about the distribution of a column's values, and about columns of one site beside those of the others.

They find fill values, shifted decimal points, turned signs, two swapped columns, kinds that one site
codes by other numbers, lines of statistics and of subtotals, rows that are repeated many times, and
dates or codes stored as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.hints.sentences import capital
from flower_pca.hints.sites import LEAST, MANY, AllSites

_FILLS: Final = 1e9  # the smallest size of a fill value, such as -2^31, 2^63 and 1e20
_FAR: Final = 1000.0  # A fill value lies this many times the spread of all other values away from them.
_POINT: Final = (10.0, 100.0, 0.1, 0.01)  # factors by which a mistyped decimal point changes a value
# A too large value is looked for in columns whose largest other value is at most this many times the smallest.
_TIGHT: Final = 5.0
_CLOSE: Final = 3.0  # The same for a value that is too small.
_OFTEN: Final = 5  # the least number of equal rows that makes a hint
_ENDS: Final = (7, 6, 5, 4, 3, 2)  # numbers of lines of statistics that are looked for below a table
_CODES: Final = re.compile(
    r"post_?code|zip_?(code)?|plz|postleitzahl|phone|telefon|\btel\b|fax|iban|(ward|room|bed|station|zimmer)_?(nr|no|number|id)"
    # In 573 tables of R packages, columns of whole numbers with these names hold codes, 8 times of 8.
    r"|^(ward|room|zimmer|hospital|clinic|klinik|department|abteilung|district|region|cent(er|re)|site)$",
    re.IGNORECASE,
)


def fills(data: AllSites) -> Iterator[str]:
    """Yield hints about fill values: 1e20, -2^31 and others that lie a thousand times the spread of all others away."""
    large = np.maximum(np.abs(data.low), np.abs(data.high)) >= _FILLS
    for j in np.flatnonzero(large).tolist():
        values = np.sort(data.values(j))
        for value in (values[0], values[-1]):
            rest = values[values != value]
            if abs(value) < _FILLS or len(rest) < MANY or len(np.unique(rest)) < MANY:
                continue
            away = min(abs(rest[0] - value), abs(rest[-1] - value))
            if away > _FAR * max(rest[-1] - rest[0], 1e-3 * np.abs(rest).max()):
                yield data.no_measurement(
                    j, float(value), "more than a thousand times the spread of all other values away"
                )


def shifted_points(data: AllSites) -> Iterator[str]:
    """Yield hints about a single value ten times too large or too small among values that lie close together."""
    for j in np.flatnonzero((data.low > 0.0) & (data.high > data.low)).tolist():
        values = np.sort(data.values(j))
        for end in (0, -1):
            value, rest = values[end], values[1:] if end == 0 else values[:-1]
            if len(rest) < 4 * MANY or len(np.unique(rest)) < MANY or rest[-1] > _TIGHT * rest[0]:
                continue
            far = value - rest[-1] > rest[-1] - rest[0]
            # Children among adults are no typing errors, so the other values have to be closer together here.
            if end == 0:
                far = 4.0 * value < rest[0] and rest[-1] <= _CLOSE * rest[0]
            if not far:
                continue
            low, high = np.quantile(rest, [0.05, 0.95])
            factor = next((f for f in _POINT if low <= value / f <= high), None)
            if factor is not None:
                times = f"{factor:g} times too large" if factor > 1.0 else f"{1 / factor:g} times too small"
                site, row = data.where(j, float(value))
                yield f"{data.title(j)} holds {value:g} in {site.place(row)}, which looks {times}. Check the cell."


def turned_signs(sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str]) -> Iterator[str]:
    """Yield hints about columns that would lie at one site where they lie at the others if their sign were turned."""
    for i in range(len(sites)) if len(sites) > 2 else ():
        here, others = levels[i], np.delete(levels, i, axis=0)
        below = (others[:, 0] > 0).all(axis=0) & (here[2] < 0)
        above = (others[:, 2] < 0).all(axis=0) & (here[0] > 0)
        for j in np.flatnonzero((below | above) & (seen[i] > 0)).tolist():
            usual = np.median(others[:, :, j], axis=0)
            span = usual[2] - usual[0]
            if span > 0 and abs(here[1, j] + usual[1]) < 0.25 * span + 2 * span / np.sqrt(seen[i, j]):
                yield f"{capital(columns[j])} seems to have the opposite sign at {sites[i]}. Check that file."


def swapped(sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str]) -> Iterator[str]:
    """Yield hints about two columns of which each lies at one site where the other one lies at all other sites."""
    if len(sites) < 3 or not (seen >= LEAST).all() or np.isnan(levels).any():
        return
    for i, site in enumerate(sites):
        others = np.delete(levels, i, axis=0)
        low, middle, high = others[:, 0].min(axis=0), np.median(others[:, 1], axis=0), others[:, 2].max(axis=0)
        here = levels[i]
        # `apart`: columns that lie elsewhere than at all other sites. `on`: pairs (a, b) where column a of this
        # site lies where column b lies at the others.
        apart = (here[0] > high) | (here[2] < low)
        odd = np.flatnonzero(apart)
        on = {
            (a, b)
            for a in odd.tolist()
            for b in odd.tolist()
            if a != b and low[b] <= here[1, a] <= high[b] and _alike(here[:, a], low[b], high[b], middle[b])
        }
        for a, b in sorted(on):
            if a < b and (b, a) in on:
                both = f"{capital(columns[a])} and {columns[b]}"
                yield f"{both} seem to be swapped at {site}. Check that file."


def _alike(here: Array, low: float, high: float, middle: float) -> bool:
    span = high - low
    return bool(abs(here[1] - middle) < 0.5 * span and 0.4 * span < here[2] - here[0] < 1.6 * span)


def other_codes(data: AllSites) -> Iterator[str]:
    """Yield hints about columns of two kinds that one site codes by other numbers than all others, as by 1
    and 2, not 0 and 1.
    """
    if len(data.sites) < 2:
        return
    for j in np.flatnonzero((data.different == 2).all(axis=0) & (data.seen >= LEAST).all(axis=0)).tolist():
        pairs = [tuple(np.unique(values[: seen[j], j])) for values, seen in zip(data.in_order, data.seen, strict=True)]
        kinds = sorted(set(pairs), key=pairs.count)
        whole = all(value == int(value) for pair in kinds for value in pair)
        if len(kinds) == 2 and whole and kinds[0][1] - kinds[0][0] == kinds[1][1] - kinds[1][0]:
            odd = [site.who for site, pair in zip(data.sites, pairs, strict=True) if pair == kinds[0]]
            here, there = (f"{pair[0]:g} and {pair[1]:g}" for pair in kinds)
            yield (
                f"{data.title(j)} is coded by {here} at {labels.series(odd)}, but by {there} elsewhere. Use the "
                "same codes at all sites."
            )


def codes(data: AllSites) -> Iterator[str]:
    """Yield hints about columns whose name says that they hold codes, such as post codes and phone numbers."""
    for j, column in enumerate(data.columns):
        name = column.removeprefix("column ")
        if _CODES.search(name) and (data.different[:, j] > 2).any() and data.is_whole(j):
            yield (
                f"{data.title(j)} holds codes, which are not measurements. Leave it out: name the other columns with "
                f"{_LISTED}."
            )


_LISTED: Final = option("columns", ["..."])


def dates(data: AllSites) -> Iterator[str]:
    """Yield hints about dates and times stored as numbers, such as 05012024, 240105 and milliseconds since 1970."""
    for j in np.flatnonzero((data.low >= 10100) & (data.high > data.low)).tolist():
        if not data.is_whole(j):
            continue
        values = data.values(j)
        if len(np.unique(values)) < MANY:
            continue
        if values.min() >= 9.4e11 and values.max() <= 2.2e12:
            yield f"{data.title(j)} holds times in milliseconds since 1970, as numbers. {_OUT}"
            continue
        for kind, day, month, year in (
            ("05012024", values // 1e6, values // 1e4 % 100, values % 1e4),
            ("240105", values % 100, values // 100 % 100, 2000 + values // 1e4),
        ):
            fits = (day >= 1) & (day <= 31) & (month >= 1) & (month <= 12) & (year >= 1900) & (year <= 2099)
            # Dates have more than two months, and days above the twelfth; amounts hardly look like this.
            if fits.all() and len(np.unique(month)) > 2 and day.max() > 12 and values.max() >= 10**5:
                yield f"{data.title(j)} holds dates written as {kind}, as numbers. {_OUT}"
                break


_OUT: Final = f"Leave it out: name the other columns with {_LISTED}."


def lines_of_statistics(data: AllSites) -> Iterator[str]:
    """Yield hints about last lines that hold statistics of the lines above them, such as mean and deviation."""
    for site in data.sites:
        for m in _ENDS:
            above, below = site.rows[:-m], site.rows[-m:]
            if len(above) < LEAST:
                continue
            # Stop at the first line that is no statistic: most tables have none.
            said = [*takewhile(bool, (_statistic(line, above) for line in below))]
            if len(said) == m and len(set(said)) > 1:
                first, last = site.place(len(above)), site.place(len(site.rows) - 1)
                yield (
                    f"{capital(first)} to {last} are the {labels.series(said)} of the lines above them, not rows. "
                    "Remove them."
                )
                break


def _statistic(line: Array, above: Array) -> str:
    """Return which statistic of the lines above a line holds in all columns that vary, or "" for none."""
    varies = np.nanmax(above, axis=0) > np.nanmin(above, axis=0)
    there = varies & ~np.isnan(line)
    if there.sum() < 2:
        return ""
    part, values = above[:, there], line[there]
    n = len(part)
    # Statistics may be rounded to two decimals, or to about two digits of the deviation.
    slack = 5e-3 * np.nanstd(part, axis=0) + 6e-3
    known = {
        "mean": np.nanmean(part, axis=0),
        "standard deviation": np.nanstd(part, axis=0, ddof=1),
        "minimum": np.nanmin(part, axis=0),
        "maximum": np.nanmax(part, axis=0),
        "median": np.nanmedian(part, axis=0),
        "number": np.full(len(values), float(n)),
        "sum": np.nansum(part, axis=0),
    }
    return next((name for name, expected in known.items() if (np.abs(values - expected) <= slack).all()), "")


def totals_anywhere(data: AllSites) -> Iterator[str]:
    """Yield hints about lines that are the sum of some lines just before them, or of all other lines."""
    for site in data.sites:
        rows = np.where(np.isnan(site.rows), 0.0, site.rows)
        if len(rows) < LEAST or rows.shape[1] < 2:
            continue
        measures = np.array([len(np.unique(column[:200])) > LEAST for column in rows.T])
        if measures.sum() < 2:
            continue
        found = _subtotals(rows[:, measures])
        if found:
            first = capital(site.place(found[0]))
            more = f", and so are {len(found) - 1} more of theirs" if len(found) > 1 else ""
            yield f"{first} is the sum of other lines{more}. Remove it, because it is not a row of its own."


def _subtotals(rows: Array) -> list[int]:
    """Return the places of rows that are the sum of at least three rows just before them, or of all others."""
    n = len(rows)
    scale = np.abs(rows).sum(axis=0) + 1.0
    close = 1e-9 * scale
    large = np.abs(rows) > 1.5 * np.median(np.abs(rows), axis=0)
    candidates = np.flatnonzero(large.all(axis=1))
    total = rows.sum(axis=0)
    before = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])
    found: list[int] = []
    for i in candidates[:2000].tolist():
        grand = (np.abs(total - 2.0 * rows[i]) <= close).all()
        # Compare the sums of rows a to i - 1, for each a whose sum of the first column fits.
        fits = np.flatnonzero(np.abs(before[i, 0] - before[: max(i - 2, 0), 0] - rows[i, 0]) <= close[0])
        part = any((np.abs(before[i] - before[a] - rows[i]) <= close).all() for a in fits[:50].tolist())
        if grand or part:
            found.append(i)
    # Leave out the last line: `totals` looks at it by a rule that allows for rounding.
    return [i for i in found if i < n - 1]


def repeated(data: AllSites) -> Iterator[str]:
    """Yield hints about one row that occurs many times where hardly any other row does."""
    for site, different in zip(data.sites, data.different, strict=True):
        marks, first, counts = np.unique(site.marks, return_index=True, return_counts=True)
        most = int(counts.max())
        if most < _OFTEN or most >= 0.05 * len(site.rows) or (different > MANY).sum() < 2:
            continue
        # All other rows occur once or twice.
        if np.partition(counts, -2)[-2] <= 2 and len(marks) > 4 * MANY:
            row = int(first[np.argmax(counts)])
            yield f"{capital(site.place(row))} occurs {most} times. Remove all but one, unless they are different."
