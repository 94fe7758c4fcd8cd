"""Find columns that one site, or half of the sites, seems to measure in another unit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.linalg import Array
from flower_pca.hints.sentences import shorten_hints
from flower_pca.hints.sites import LEAST, AllSites

SITES: Final = 30  # If there are more sites, a single site hardly changes the median over all sites.
# More columns than this are usually wavelengths, genes or pixels, and some of them look odd by accident.
WIDE: Final = 500
_LISTED: Final = 8  # maximum number of sites of one half that a hint names
_CELSIUS: Final = 60.0  # the highest temperature in Celsius that is expected
# After conversion, the median may differ from the median of the other sites by this share of the spread.
_APART: Final = 0.25
_TENTH: Final = 1.2816  # the ninetieth percentile of the standard normal distribution
# These are allowances for chance, in units of the argument `error` of `_conversion`. The first one is added to the
# threshold for the median, and the second one to the logarithm of the threshold for the spread. Values are assumed to
# be normal.
_APART_BY_CHANCE: Final = 0.49
_WIDER_BY_CHANCE: Final = 0.89
_WIDER: Final = 1.6  # maximum ratio between the spread of a converted site and the spread of the other sites
# A tenth percentile above this many times the ninetieth percentile of the other sites means another unit, because
# different people cannot differ so much.
_FAR: Final = 10.0
# If a site mixes two units, each of the two groups has more than this number of different values.
_GROUP: Final = 5
_WIDEST: Final = 1.5  # smallest ratio between neighboring values of two groups in different units
# The gap between the groups, in logarithms, must exceed this share of the distance between the 10th and 90th percentile
# of each group.
_EMPTY: Final = 0.8
_GLUCOSE: Final = "the factor between mg/dl and mmol/l of glucose, or mg/dl and umol/l of bilirubin"
_UNITS: Final = (  # the factor and the shift that convert one unit to another, and their description in a hint
    (10.0, 0.0, "a factor of 10"),
    (100.0, 0.0, "a factor of 100"),
    (1000.0, 0.0, "a factor of 1000"),
    (18.016, 0.0, _GLUCOSE),
    (38.67, 0.0, "the factor between mg/dl and mmol/l of cholesterol"),
    (88.5, 0.0, "the factor between mg/dl and umol/l of creatinine, or mg/dl and mmol/l of triglycerides"),
    (17.1, 0.0, _GLUCOSE),
    (59.48, 0.0, "the factor between mg/dl and umol/l of uric acid"),
    (6.006, 0.0, "the factor between mg/dl and mmol/l of urea"),
    (2.20462, 0.0, "the factor between pounds and kilograms"),
    (2.54, 0.0, "the factor between inches and centimeters"),
    (7.50062, 0.0, "the factor between mmHg and kPa"),
    (1.8, 32.0, "the conversion between Fahrenheit and Celsius"),
    (1.0, 273.15, "the conversion between Kelvin and Celsius"),
)
_DECIMAL: Final = tuple(what for factor, _, what in _UNITS if factor in (10.0, 100.0, 1000.0))


def columns_in_other_units(data: AllSites) -> Iterator[str]:
    """Yield hints about columns whose values would match the other sites if they were converted to another unit."""
    measured = [i for i, values in enumerate(data.sorted_values) if len(values) >= LEAST]
    if len(measured) < 2:
        return
    levels, seen = data.levels[measured], data.value_counts[measured]
    several = data.distinct_counts[measured] > LEAST
    whose = [data.sites[i].who for i in measured]
    yield from _odd_units(whose, levels, seen * several, data.columns, middle="median")


def mixed_units(data: AllSites) -> Iterator[str]:
    """Yield hints about columns in which one site seems to mix two units, such as heights in meters and centimeters.

    The values must form two groups with a wide gap between them, and a known conversion must turn one group into the
    other. If half of the other sites have both groups as well, the column may hold two kinds of things. Without other
    sites, only factors of 10, 100 and 1000 cause a hint, because groups of people often differ by a factor of 2 or 3.
    """
    for i, columns in _columns_in_two_groups(data):
        site, values, seen = data.sites[i], data.sorted_values[i], data.value_counts[i]
        for j in columns:
            column = values[: seen[j], j]
            cut = _GROUP + int(np.argmax(column[_GROUP : 1 - _GROUP] / column[_GROUP - 1 : -_GROUP]))
            groups = column[:cut], column[cut:]
            words = _two_groups(*groups)
            if not words:
                continue
            alone = not (np.delete(data.value_counts[:, j], i) >= LEAST).any()
            if alone and words not in _DECIMAL:
                continue
            if not _both_elsewhere(data, i, j, float(np.sqrt(groups[0][-1] * groups[1][0]))):
                low, high = (float(np.median(group)) for group in groups)
                few = min(len(group) for group in groups)
                yield (
                    f"{labels.capitalize(data.columns[j])} seems to hold two units at {site.who}: values around "
                    f"{low:.4g} "
                    f"and around {high:.4g}, {words}. Convert the {labels.count(few, 'value')} of the smaller group."
                )


def _columns_in_two_groups(data: AllSites) -> list[tuple[int, list[int]]]:
    """Return the sites with positive columns in which two groups of values may lie far apart, with these columns."""
    found = []
    for stack in data.stacks:
        values = stack.ordered
        if values.shape[1] < 2 * _GROUP:
            continue
        # Of _GROUP neighbors, one is in this sample, so a gap between two groups lies between two values of the sample.
        some = values[:, _GROUP - 1 :: _GROUP]
        wide = (values[:, 0] > 0.0) & (some[:, 1:] > _WIDEST * some[:, :-1]).any(axis=1)
        some_sites = np.flatnonzero(wide.any(axis=1)).tolist()
        found += [(stack.places[k], np.flatnonzero(wide[k]).tolist()) for k in some_sites]
    return sorted(found)


def _two_groups(low: Array, high: Array) -> str:
    """Return a description of the unit conversion between two groups of values, or "" if no conversion fits.

    `low` and `high` contain the sorted values of the groups.
    """
    # Values within the levels below show quickly that most groups are too wide.
    if np.log(high[0] / low[-1]) < _EMPTY * max(map(_least_spread, (low, high))):
        return ""
    if min(len(np.unique(group)) for group in (low, high)) <= _GROUP:
        return ""
    levels = [np.quantile(group, [0.1, 0.5, 0.9]) for group in (low, high)]
    if not all(level[2] > level[0] for level in levels):
        return ""
    # The gap must be wide compared to the groups, or else it may be the middle of one wide group.
    spread = max(float(np.log(level[2] / level[0])) for level in levels)
    if np.log(high[0] / low[-1]) < _EMPTY * spread:
        return ""
    words = _conversion(levels[1], levels[0], float(np.sqrt(1.0 / len(low) + 1.0 / len(high))))
    return "" if "about" in words else words


def _least_spread(group: Array) -> float:
    """Return a lower bound of the logarithm of the ratio of the ninetieth and the tenth percentile of sorted values."""
    last = len(group) - 1
    return float(np.log(group[int(0.9 * last)] / group[math.ceil(0.1 * last)])) * (1.0 - 1e-9)


def _both_elsewhere(data: AllSites, i: int, j: int, between: float) -> bool:
    """Return whether at least half of the sites other than i have values of column j on both sides of `between`."""
    both, sites = 0, 0
    for k, (values, seen) in enumerate(zip(data.sorted_values, data.value_counts[:, j], strict=True)):
        if k != i and seen >= LEAST:
            sites += 1
            below = int(np.searchsorted(values[:seen, j], between))
            both += 0 < below < seen
    return sites > 0 and 2 * both >= sites


def hints_by_moments(
    sites: Sequence[str], rows: Array, means: Array, deviations: Array, columns: Sequence[str]
) -> list[str]:
    """Return the hints of `columns_in_other_units`, from means and deviations, for a caller that does not see the rows.

    The tenth and ninetieth percentiles are computed as if the values were normally distributed.
    """
    if len(sites) < 2 or len(columns) > WIDE:
        return []
    # If a site has at most one value of a column, it has no spread to compare.
    deviations = np.where(deviations > 0.0, deviations, np.nan)
    tenths = np.array([-_TENTH, 0.0, _TENTH])
    levels = means[:, None] + tenths[:, None] * deviations[:, None]
    with warnings.catch_warnings():  # If no other site has values, numpy warns about their median.
        warnings.simplefilter("ignore", RuntimeWarning)
        seen = rows[:, None] * (deviations > 0.0)
        return shorten_hints(list(_odd_units(sites, levels, seen, columns, middle="mean")))


def _odd_units(
    sites: Sequence[str], levels: Array, value_counts: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Yield hints about columns that one site, or half of the sites, measures in another unit.

    `levels` (sites x 3 x d) holds the percentiles of `AllSites.levels`. `value_counts` (sites x d) holds the numbers of
    values,
    with 0 for columns to leave out. `middle` is the word for the second level, "median" or "mean".
    """
    alone = _columns_apart(levels) & (value_counts > 0)
    # `error` is the standard error of the difference between one site and all others, relative to the spread of values.
    others_seen = np.maximum(value_counts.sum(axis=0) - value_counts, 1)
    error = np.sqrt(1.0 / np.maximum(value_counts, 1) + 1.0 / others_seen)
    yield from _split_units(sites, levels, value_counts, columns, middle=middle)
    others, looked = "the other sites", np.flatnonzero(alone.any(axis=1)).tolist()
    if len(sites) == 2:  # Either site may have the other unit, and one hint is enough.
        others, looked = sites[1], [i for i in looked if i == 0]
    for i in looked:
        usual = _levels_elsewhere(levels, i)
        steady = usual[2] > usual[0]
        columns_alone = np.flatnonzero(alone[i] & steady).tolist()
        units = {j: _conversion(levels[i, :, j], usual[:, j], error[i, j]) for j in columns_alone}
        odd = {j: words for j, words in units.items() if words}
        if len(odd) > max(2, len(columns) // 4) and len(set(odd.values())) > 1:
            continue  # A site that differs in many columns by different factors has other people, not other units.
        for j, words in odd.items():
            here = levels[i, 1, j]
            there = usual[1, j]
            place = f"its {middle} is {here:.4g}, against {there:.4g} at {others}, {words}"
            yield (
                f"{labels.capitalize(columns[j])} looks as if {sites[i]} had other units: {place}. Convert this column."
            )


def _split_units(
    sites: Sequence[str], levels: Array, value_counts: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Yield hints about columns that half of the sites, which must be at least four, measure in another known unit.

    The halves must not overlap: the tenth percentile of each site in the upper half must exceed the ninetieth
    percentile of each site in the lower half.
    """
    if len(sites) < 4:
        return
    # `low` marks the sites with the lower half of the medians. Sites without values come last.
    medians = np.where(value_counts > 0, levels[:, 1], np.inf)
    several = (value_counts > 0).sum(axis=0)
    last_of_lower = np.take_along_axis(np.sort(medians, axis=0), np.maximum(several // 2 - 1, 0)[None], axis=0)
    low = medians <= last_of_lower
    high = ~low & (value_counts > 0)
    tenth, ninetieth = levels[:, 0], levels[:, 2]
    halves = (several >= 4) & (low.sum(axis=0) == high.sum(axis=0))
    apart = halves & (_smallest_marked(tenth, high) > _largest_marked(ninetieth, low))
    for half in (low, high):  # The ranges of sites in the same half must overlap.
        apart &= _largest_marked(tenth, half) <= _smallest_marked(ninetieth, half)
    for j in np.flatnonzero(apart).tolist():
        sides = [np.flatnonzero(half[:, j]) for half in (low, high)]
        below, above = (np.nanmedian(levels[side][:, :, j], axis=0) for side in sides)
        error = float(np.sqrt(sum(1.0 / value_counts[side, j].sum() for side in sides)))
        words = _conversion(above, below, error)
        if above[2] > above[0] and below[2] > below[0] and words and "about" not in words:
            names = [_names_in_message([sites[i] for i in side.tolist()]) for side in sides]
            yield (
                f"{labels.capitalize(columns[j])} looks as if {names[0]} had other units than {names[1]}: its "
                f"{middle} is {below[1]:.4g} at one half of the sites and {above[1]:.4g} at the other, {words}. "
                "Convert one half."
            )


def _smallest_marked(values: Array, marked: Array) -> Array:
    """Return the smallest marked value of each column."""
    return np.asarray(np.where(marked, values, np.inf).min(axis=0))


def _largest_marked(values: Array, marked: Array) -> Array:
    """Return the largest marked value of each column."""
    return np.asarray(np.where(marked, values, -np.inf).max(axis=0))


def _names_in_message(names: Sequence[str]) -> str:
    """Return the names for a message, shortest first. Of many names, give the first few and the number of others."""
    every = sorted(names, key=lambda name: (len(name), name))
    if len(every) <= _LISTED:
        return labels.join_with_and(every)
    return labels.join_with_and([*every[:_LISTED], f"{len(every) - _LISTED} more"])


def _columns_apart(levels: Array) -> Array:
    """Return a mask (sites x d) of the columns whose values at a site do not overlap the values at most other sites.

    The values at these other sites must overlap each other. Fewer than half of the sites may be odd, so the median over
    all sites describes the other sites, and two sites with other units do not hide each other.
    """
    usual = _median_levels(levels)
    apart = (levels[:, 0] > usual[2]) | (levels[:, 2] < usual[0])
    here = ~np.isnan(levels[:, 1])
    if len(levels) > SITES:
        return np.asarray(apart & (2 * apart.sum(axis=0) < here.sum(axis=0)))
    if len(levels) == 2:
        return np.asarray(_pairs_apart(levels).any(axis=0) & here.all(axis=0) & np.ones_like(apart))
    pairs = _pairs_apart(levels)
    most = here & ~apart
    # All ordinary sites must overlap each other, and an odd site must overlap no ordinary site.
    together = ~(pairs & most[:, None] & most[None, :]).any(axis=(0, 1))
    from_all = (pairs | ~most[None, :]).all(axis=1)
    few = (2 * apart.sum(axis=0) < here.sum(axis=0)) & (here.sum(axis=0) > 2)
    return np.asarray(apart & from_all & together & few)


def _pairs_apart(levels: Array) -> Array:
    """Return a mask (sites x sites x d) of the columns whose values at two sites do not overlap.

    They do not overlap if the tenth percentile at one site is above the ninetieth percentile at the other site.
    """
    above = levels[:, None, 0] > levels[None, :, 2]
    return np.asarray(above | above.swapaxes(0, 1))


def _levels_elsewhere(levels: Array, i: int) -> Array:
    """Return the medians over all sites except i of the levels of each column.

    If there are many sites, site i is included, because it hardly changes the medians.
    """
    if len(levels) <= SITES:
        levels = np.delete(levels, i, axis=0)
    return _median_levels(levels)


def _median_levels(levels: Array) -> Array:
    """Return the median of each level of each column over the sites with values."""
    if np.isnan(levels).any():
        return np.asarray(np.nanmedian(levels, axis=0))
    return linalg.median_of_few(levels)


def _conversion(site_levels: Array, usual: Array, error: float) -> str:
    """Describe the conversion that turns the levels of one site into the usual levels, or return "" for none.

    `error` is the standard error of the difference of the medians, relative to the spread of the values.
    """
    best, words = _APART + _APART_BY_CHANCE * error, ""
    wider = _WIDER * np.exp(_WIDER_BY_CHANCE * error)
    for factor, shift, what in _UNITS:
        for to, since in ((site_levels, usual), (usual, site_levels)):
            as_to = since * factor + shift
            span = as_to[2] - as_to[0]
            off = abs(to[1] - as_to[1]) / span
            wide = (to[2] - to[0]) / span
            likely = abs(since[1]) < _CELSIUS if shift else min(site_levels[0], usual[0]) > 0.0
            if likely and off < best and 1.0 / wider < wide < wider:
                best, words = off, what
    low, high = sorted((site_levels, usual), key=lambda levels: float(levels[1]))
    if not words and low[0] > 0.0 and high[0] > _FAR * low[2]:
        return f"a factor of about {high[1] / low[1]:.0f}"
    return words
