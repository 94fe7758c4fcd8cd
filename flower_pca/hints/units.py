"""Hints about columns that one site seems to measure in another unit than all others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.linalg import Array
from flower_pca.hints.sentences import capital, shorten
from flower_pca.hints.sites import LEAST, AllSites

SITES: Final = 30  # With more sites, one site hardly changes the median of all.
# With more columns, they are wavelengths, genes or pixels, of which some look odd by accident.
WIDE: Final = 500
_LISTED: Final = 8  # the most sites of a half that a hint names
_CELSIUS: Final = 60.0  # the highest temperature in Celsius that is expected
# A converted median may lie this share of the spread away from the median of the other sites.
_APART: Final = 0.25
_TENTH: Final = 1.2816  # the ninetieth percentile of the standard normal distribution
# What chance adds to the bounds on the median and on the spread of normal values, times the square root of n.
_APART_BY_CHANCE: Final = 0.49
_WIDER_BY_CHANCE: Final = 0.89
_WIDER: Final = 1.6  # the largest factor between the spread of a converted site and that of the others
# A tenth percentile above this many times the ninetieth of the others cannot be due to other people.
_FAR: Final = 10.0
_GLUCOSE: Final = "the factor between mg/dl and mmol/l of glucose, or mg/dl and umol/l of bilirubin"
_UNITS: Final = (  # the factor and the shift that convert one unit to another, and what the hint says of them
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


def units(data: AllSites) -> Iterator[str]:
    """Yield hints about columns that would lie at one site as at all others if they were measured in another unit."""
    measured = [i for i, values in enumerate(data.in_order) if len(values) >= LEAST]
    if len(measured) < 2:
        return
    levels, seen = data.levels[measured], data.seen[measured]
    several = data.different[measured] > LEAST
    whose = [data.sites[i].who for i in measured]
    yield from _odd_units(whose, levels, seen * several, data.columns, middle="median")


def units_by_moments(
    sites: Sequence[str], rows: Array, means: Array, deviations: Array, columns: Sequence[str]
) -> list[str]:
    """Return the hints of `units` from means and deviations alone, for a caller that does not see the rows.

    The tenth and ninetieth percentiles are taken to be those of normal values.
    """
    if len(sites) < 2 or len(columns) > WIDE:
        return []
    # a site with at most one value of a column has no spread to compare
    deviations = np.where(deviations > 0.0, deviations, np.nan)
    tenths = np.array([-_TENTH, 0.0, _TENTH])
    levels = means[:, None] + tenths[:, None] * deviations[:, None]
    with warnings.catch_warnings():  # If no other site has values, they have no median.
        warnings.simplefilter("ignore", RuntimeWarning)
        seen = rows[:, None] * (deviations > 0.0)
        return shorten(list(_odd_units(sites, levels, seen, columns, middle="mean")))


def _odd_units(
    sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Yield hints about columns that one site, or half of the sites, measures in another unit.

    `levels` (sites x 3 x d) holds the percentiles of `AllSites.levels`, `seen` (sites x d) the numbers
    of values or 0 to leave a column out, and `middle` the word for the second level.
    """
    alone = _alone(levels) & (seen > 0)
    # The standard error of the difference between one site and all others, relative to that of a single value.
    others_seen = np.maximum(seen.sum(axis=0) - seen, 1)
    error = np.sqrt(1.0 / np.maximum(seen, 1) + 1.0 / others_seen)
    yield from _two_units(sites, levels, seen, columns, middle=middle)
    others, looked = "the other sites", np.flatnonzero(alone.any(axis=1)).tolist()
    if len(sites) == 2:  # either site may be the odd one, and one hint is enough
        others, looked = sites[1], [i for i in looked if i == 0]
    for i in looked:
        usual = _of_others(levels, i)
        steady = usual[2] > usual[0]
        columns_alone = np.flatnonzero(alone[i] & steady).tolist()
        units = {j: _unit(levels[i, :, j], usual[:, j], error[i, j]) for j in columns_alone}
        odd = {j: words for j, words in units.items() if words}
        if len(odd) > max(2, len(columns) // 4) and len(set(odd.values())) > 1:
            continue  # Sites that differ in many columns by different factors have other people, not other units.
        for j, words in odd.items():
            here = levels[i, 1, j]
            there = usual[1, j]
            place = f"its {middle} is {here:.4g}, against {there:.4g} at {others}, {words}"
            yield f"{capital(columns[j])} looks as if {sites[i]} had other units: {place}. Convert it."


def _two_units(
    sites: Sequence[str], levels: Array, seen: Array, columns: Sequence[str], *, middle: str
) -> Iterator[str]:
    """Yield hints about columns that half of at least four sites measure in another known unit than the other half.

    A half lies apart from the other if the tenth percentile of each of its sites is above the ninetieth of each site
    of the other.
    """
    if len(sites) < 4:
        return
    # The lower half of the medians in order; sites without values come last.
    medians = np.where(seen > 0, levels[:, 1], np.inf)
    several = (seen > 0).sum(axis=0)
    last_of_lower = np.take_along_axis(np.sort(medians, axis=0), np.maximum(several // 2 - 1, 0)[None], axis=0)
    low = medians <= last_of_lower
    high = ~low & (seen > 0)
    tenth, ninetieth = levels[:, 0], levels[:, 2]
    halves = (several >= 4) & (low.sum(axis=0) == high.sum(axis=0))
    apart = halves & (_least(tenth, high) > _largest(ninetieth, low))
    for half in (low, high):  # Sites of the same half do not lie apart.
        apart &= _largest(tenth, half) <= _least(ninetieth, half)
    for j in np.flatnonzero(apart).tolist():
        sides = [np.flatnonzero(half[:, j]) for half in (low, high)]
        below, above = (np.nanmedian(levels[side][:, :, j], axis=0) for side in sides)
        error = float(np.sqrt(sum(1.0 / seen[side, j].sum() for side in sides)))
        words = _unit(above, below, error)
        if above[2] > above[0] and below[2] > below[0] and words and "about" not in words:
            names = [_listed([sites[i] for i in side.tolist()]) for side in sides]
            yield (
                f"{capital(columns[j])} looks as if {names[0]} had other units than {names[1]}: its {middle} is "
                f"{below[1]:.4g} at one half of the sites and {above[1]:.4g} at the other, {words}. Convert one half."
            )


def _least(values: Array, of: Array) -> Array:
    """Return the smallest value of each column among the marked ones."""
    return np.asarray(np.where(of, values, np.inf).min(axis=0))


def _largest(values: Array, of: Array) -> Array:
    """Return the largest value of each column among the marked ones."""
    return np.asarray(np.where(of, values, -np.inf).max(axis=0))


def _listed(names: Sequence[str]) -> str:
    """List the first of many names in order, with the number of the others."""
    every = sorted(names, key=lambda name: (len(name), name))
    if len(every) <= _LISTED:
        return labels.series(every)
    return labels.series([*every[:_LISTED], f"{len(every) - _LISTED} more"])


def _alone(levels: Array) -> Array:
    """Return which columns of a site lie apart from those of most sites, which lie together, sites x d.

    The sites that lie apart are fewer than half, so the median over all sites is that of the others,
    and two sites in other units do not hide each other.
    """
    usual = _usual(levels)
    apart = (levels[:, 0] > usual[2]) | (levels[:, 2] < usual[0])
    here = ~np.isnan(levels[:, 1])
    if len(levels) > SITES:
        return np.asarray(apart & (2 * apart.sum(axis=0) < here.sum(axis=0)))
    if len(levels) == 2:
        return np.asarray(_pairs_apart(levels).any(axis=0) & here.all(axis=0) & np.ones_like(apart))
    pairs = _pairs_apart(levels)
    most = here & ~apart
    # the others lie together, and each odd site lies apart from all of them
    together = ~(pairs & most[:, None] & most[None, :]).any(axis=(0, 1))
    from_all = (pairs | ~most[None, :]).all(axis=1)
    few = (2 * apart.sum(axis=0) < here.sum(axis=0)) & (here.sum(axis=0) > 2)
    return np.asarray(apart & from_all & together & few)


def _pairs_apart(levels: Array) -> Array:
    """Return which columns of two sites lie apart, sites x sites x d.

    They do if the tenth percentile of one is above the ninetieth of the other.
    """
    above = levels[:, None, 0] > levels[None, :, 2]
    return np.asarray(above | above.swapaxes(0, 1))


def _of_others(levels: Array, i: int) -> Array:
    """Return the median levels of all sites except i; with many sites those of all, which one site hardly changes."""
    if len(levels) <= SITES:
        levels = np.delete(levels, i, axis=0)
    return _usual(levels)


def _usual(levels: Array) -> Array:
    """Return the median levels of sites with values."""
    if np.isnan(levels).any():
        return np.asarray(np.nanmedian(levels, axis=0))
    return linalg.median_of_few(levels)


def _unit(here: Array, usual: Array, error: float) -> str:
    """Return in words which conversion turns one site's levels into the usual ones, or "" for none.

    `error` is the standard error of the medians relative to the spread, by which both are off by chance.
    """
    best, words = _APART + _APART_BY_CHANCE * error, ""
    wider = _WIDER * np.exp(_WIDER_BY_CHANCE * error)
    for factor, shift, what in _UNITS:
        for to, since in ((here, usual), (usual, here)):
            as_to = since * factor + shift
            span = as_to[2] - as_to[0]
            off = abs(to[1] - as_to[1]) / span
            wide = (to[2] - to[0]) / span
            if shift:
                likely = abs(since[1]) < _CELSIUS
            else:
                likely = min(here[0], usual[0]) > 0.0
            if likely and off < best and 1.0 / wider < wide < wider:
                best, words = off, what
    low, high = sorted((here, usual), key=lambda levels: float(levels[1]))
    if not words and low[0] > 0.0 and high[0] > _FAR * low[2]:
        return f"a factor of about {high[1] / low[1]:.0f}"
    return words
