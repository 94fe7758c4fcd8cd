"""Find numbers that seem to stand for missing values: codes such as -999, and zeros among values far from 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.hints.sites import FEW, LEAST, MANY, AllSites

# Codes with a smaller absolute value may be measurements, too. They cause a hint only if they recur or are the only
# negative value.
_OFTEN: Final = 900.0
# The distance of a code from the other values usually exceeds their spread. For a repeated code that is the only
# negative value, this share of the spread is enough.
_NEARER: Final = 0.25
_REPEATED: Final = [sign * digit * (10.0**k - 1) / 9 for digit in (7, 8, 9) for k in range(2, 7) for sign in (1, -1)]
# Files use these codes for missing values.
_CODES: Final = np.array([*np.rint(_REPEATED), -1.0, -9.0, 99.9, 999.9, -99.9, -32768.0, 2.0**31 - 1])


def codes_for_missing(data: AllSites) -> Iterator[str]:
    """Yield hints about codes such as -999 that are far away from all other values of a column."""
    for j in np.flatnonzero(may_be_codes(np.stack([data.smallest, data.largest])).any(axis=0)).tolist():
        for code in _codes_of(np.sort(data.values_of(j))):
            yield data.hint_of_code(j, code, "far from all other values")


def may_be_codes(values: Array) -> Array:
    """Return which values are numbers that files use for missing values."""
    return np.isin(values, _CODES)


def may_hold_codes(lowest: float, highest: float, sample: Array) -> bool:
    """Return whether `_codes_of` may find a code in a column with these extremes and this sample, which is sorted."""
    for code in (lowest, highest):
        rest = sample[sample != code]
        if code in _CODES and len(rest):
            gap, spread = min(abs(rest[0] - code), abs(rest[-1] - code)), rest[-1] - rest[0]
            if gap > max(_NEARER * spread, 1.0):
                return True
    return False


def may_have_suspicious_zeros(sample: Array) -> bool:
    """Return whether `suspicious_zeros` may find zeros in a column with this sample, which is sorted."""
    rest = sample[sample != 0.0]
    if not len(rest):
        return False
    lower, middle, upper = np.quantile(rest, [0.25, 0.5, 0.75])
    # The quantiles of a sample differ a little from those of all values.
    return bool(rest[0] > 0.8 * max(0.3 * middle, upper - lower))


def empty_rows_and_columns(data: AllSites) -> Iterator[str]:
    """Yield hints about rows without any value, and about columns without any value at some site."""
    for site, seen in zip(data.sites, data.value_counts, strict=True):
        n = len(site.rows)
        if (seen == n).all():
            continue
        rows = np.flatnonzero(np.isnan(site.rows).all(axis=1))
        if len(rows):
            yield hint_of_empty_rows(site.place, rows)
        yield from hints_of_empty_columns(site.who, n, seen, data.columns)


def hint_of_empty_rows(place: Callable[[int], str], rows: Array) -> str:
    """Return the hint that the rows at these positions have no value."""
    what = labels.capitalize(place(int(rows[0])))
    if len(rows) == 1:
        return f"{what} holds no value. Remove this row, because it would become a row of means."
    more = labels.count(len(rows) - 1, "more row")
    return f"{what} and {more} hold no value. Remove these rows, because they would become rows of means."


def hints_of_empty_columns(who: str, n: int, seen: Array, columns: Sequence[str]) -> Iterator[str]:
    """Yield hints about columns without any value at a site with n rows. `seen` is the number of values by column."""
    empty = np.flatnonzero(seen == 0).tolist()
    if n <= FEW or len(empty) == len(columns):
        return
    for j in empty:
        yield f"{labels.capitalize(columns[j])} has no value at {who}. Leave out the column or the site."


def _codes_of(values: Array) -> list[float]:
    """Return the codes at either end of sorted values that are far away from all other values."""
    codes: list[float] = []
    # Check each end twice, because one end may have two codes.
    for end in (0, -1, 0, -1):
        code = values[end]
        rest = values[values != code]
        if code in _CODES and len(rest) >= LEAST and _is_far_away(code, rest, again=len(values) - len(rest) > 1):
            codes.append(float(code))
            values = rest
    return codes


def _is_far_away(code: float, rest: Array, *, again: bool) -> bool:
    """Return whether a code is too far away from the other values to be a measurement.

    `rest` holds the other values in ascending order. `again` is true if the code occurs more than once.
    """
    gap = min(abs(rest[0] - code), abs(rest[-1] - code))
    spread = rest[-1] - rest[0]
    alone = code < 0.0 <= rest[0]
    large = abs(code) > _OFTEN
    if gap > max(spread, 1.0):
        far = again or alone or large
    else:  # A code that is nearer must be the only negative value, and must be large or repeated.
        lonely = again and gap > max(_NEARER * spread, 1.0)
        far = alone and (large or lonely)
    # In a column with few different values, -1 may be a valid value.
    return bool(far) and (code != -1.0 or len(np.unique(rest)) >= MANY)


def suspicious_zeros(data: AllSites) -> Iterator[str]:
    """Yield hints about zeros in columns whose other values are all far from 0, such as blood pressures."""
    for j in np.flatnonzero(data.smallest == 0.0).tolist():
        values = data.values_of(j)
        rest = values[values != 0.0]
        if len(rest) < max(2 * LEAST, len(values) / 2) or len(np.unique(rest)) < MANY:
            continue
        lower, middle, upper = np.quantile(rest, [0.25, 0.5, 0.75])
        if rest.min() > max(0.3 * middle, upper - lower):
            yield data.hint_of_code(j, 0.0, "far below all other values")
