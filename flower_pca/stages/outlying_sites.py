"""Sites whose rows lie far from those of most sites: other units, other columns, or one row many times.

The opening shows the number of rows, the means and the deviations of each site, and the product of its
covariance with one block. Each figure is compared with the median over sites, which no minority of
sites can move far. So all bad sites are found as long as they are less than half. Leaving out one site
at a time would not find them, because bad sites would hide each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

FEWEST_ROWS: Final = 20  # the fewest rows of a site that is compared
_FEWEST_SITES: Final = 3
_FAR: Final = 3.0  # A mean is far if it differs from the usual one by this many deviations within a site.
_WIDE: Final = 7.0  # the ratio to the usual deviation above which a column has another spread
# The ratio if there are fewer than _SEVERAL_SITES sites, because rare values then make usual deviations small
_WIDE_AMONG_FEW, _SEVERAL_SITES = 30.0, 5
_CELL: Final = 70.0  # A single cell that is off by this many deviations must not suffice to make a small site far.
# the fewest columns with another spread, some larger and some smaller, that indicate swapped columns
_SEVERAL: Final = 3
_SWAPPED: Final = 1.5  # the ratio of deviations for each of these
_ACCIDENT: Final = 0.01  # the probability below which constant rows are no accident
_TURNED: Final = 0.5  # a share of the size of a column's usual covariances
# Multiples of the usual difference between sites, or of that by chance, whichever is larger.
_SURE_OF_MEAN, _SURE_OF_SPREAD, _SURE_OF_COVARIANCES = 6.0, 5.0, 4.0
_MAD: Final = 1.4826  # the standard deviation of a normal variable, divided by its median absolute deviation
_ROUNDING: Final = 64.0 * np.finfo(float).eps  # a deviation up to this share of the mean counts as 0
_LOOK: Final = "Check the units and the columns of its file."
_NAMED: Final = 3  # the most sites with a sentence each


class OutlyingKind(IntEnum):
    """The ways in which a site can lie far from most others."""

    MEAN = 0
    SPREAD = 1
    ORDER = 2
    CORRELATIONS = 3
    CONSTANT = 4


@dataclass(frozen=True)
class OutlyingSite:
    """A site that lies far from most others.

    Attributes
    ----------
    site : int
        The index of the site.
    kind : OutlyingKind
        The way in which it differs.
    column : int
        The column in which it differs most.
    times : float
        The deviations from the usual mean, or the ratio to the usual deviation.
    """

    site: int
    kind: OutlyingKind
    column: int
    times: float


def find(
    rows: Array, means: Array, deviations: Array, block: Array | None = None, products: Array | None = None
) -> list[OutlyingSite]:
    """Find the sites that lie far from the median of all sites, the furthest first.

    A site counts as far if it differs from the median by much (three deviations, or a factor of seven),
    and by several times as much as sites usually differ, or as chance would explain for its size. If
    half of the sites or more differ like this, there is no usual site, and none is named.

    Parameters
    ----------
    rows : ndarray of shape (S,)
        How many rows they have.
    means : ndarray of shape (S, d)
        The mean of each column at each site.
    deviations : ndarray of shape (S, d)
        The standard deviations.
    block : ndarray of shape (d, p) or None, default=None
        A random block B, if its products are known.
    products : ndarray of shape (S, d, p) or None, default=None
        X'X B of the rows of each site less their own mean.
    """
    enough = np.flatnonzero(rows >= FEWEST_ROWS)
    if len(enough) < _FEWEST_SITES:
        return []
    n, means, deviations = rows[enough].astype(np.float64)[:, None], means[enough], deviations[enough]
    deviations = np.where(deviations > _ROUNDING * np.abs(means), deviations, 0.0)
    usual = linalg.median_of_few(deviations)
    varies = usual > 0.0
    if not varies.any():
        return []
    unit = np.where(varies, usual, 1.0)
    ratio = np.where((deviations > 0.0) & varies, deviations / unit, 1.0)
    off = np.where(varies, np.abs(means - linalg.median_of_few(means)) / unit, 0.0)
    by_chance = np.maximum(ratio, 1.0) / np.sqrt(n)
    spread = np.abs(np.log(ratio))
    scores = {OutlyingKind.MEAN: np.minimum(off / _FAR, _times(off, by_chance) / _SURE_OF_MEAN)}
    sure = _times(spread, np.sqrt(2.0 / n)) / _SURE_OF_SPREAD
    # Only larger deviations count, and not in columns that are constant at some site, because these may have
    # rare values.
    least = _WIDE if len(enough) >= _SEVERAL_SITES else _WIDE_AMONG_FEW
    wide = np.log(ratio) / np.log(np.maximum(least, _CELL / np.sqrt(n)))
    same = (deviations == 0.0).all(axis=1, keepdims=True)
    rare = ((deviations == 0.0) & ~same).any(axis=0)
    scores[OutlyingKind.SPREAD] = np.where(rare, 0.0, np.minimum(wide, sure))
    scores[OutlyingKind.ORDER] = _in_other_order(np.log(ratio), sure)
    if block is not None and products is not None:
        scores[OutlyingKind.CORRELATIONS] = _turned(n, ratio, deviations, block, products[enough])
    still = deviations[:, varies] == 0.0
    # The probability that each column is constant by accident, estimated from the other sites
    by_accident = np.prod((still.sum(axis=0) - still + 1.0) / (len(enough) + 1.0), axis=1)
    constant = still.all(axis=1) & (by_accident < _ACCIDENT)
    found = []
    largest = {kind: score.max(axis=1) for kind, score in scores.items()}
    # Only candidates are examined one by one.
    for i in np.flatnonzero(constant | np.any([most > 1.0 for most in largest.values()], axis=0)).tolist():
        site = int(enough[i])
        if constant[i]:
            found.append((np.inf, OutlyingSite(site, OutlyingKind.CONSTANT, 0, 0.0)))
            continue
        kind = max(scores, key=lambda kind: float(largest[kind][i]))
        j = int(np.argmax(scores[kind][i]))
        if scores[kind][i, j] > 1.0:
            times = float(off[i, j] if kind == OutlyingKind.MEAN else ratio[i, j])
            found.append((float(scores[kind][i, j]), OutlyingSite(site, kind, j, times)))
    if 2 * len(found) >= len(enough):
        return []
    return [site for _, site in sorted(found, key=lambda one: -one[0])]


def without_few_values(values: Array, means: Array, deviations: Array) -> tuple[Array, Array]:
    """Replace means and deviations of columns with few values by the usual ones, so that they do not count.

    Parameters
    ----------
    values : ndarray of shape (S, d)
        How many values of each column each site has.
    means : ndarray of shape (S, d)
        Their means, which say nothing of a column without values.
    deviations : ndarray of shape (S, d)
        Their standard deviations.
    """
    enough = values >= FEWEST_ROWS
    usual = [
        np.array(
            [np.median(column[known]) if known.any() else 0.0 for column, known in zip(a.T, enough.T, strict=True)]
        )
        for a in (means, deviations)
    ]
    return np.where(enough, means, usual[0]), np.where(enough, deviations, usual[1])


def _times(off: Array, by_chance: Array) -> Array:
    """Return distances as multiples of the usual distance of all sites, or of what chance explains."""
    return np.asarray(off / np.maximum(_MAD * linalg.median_of_few(off), by_chance))


def _in_other_order(logarithms: Array, sure: Array) -> Array:
    """Score how clearly a site has columns with more and others with less spread than usual, (S, d)."""
    found: Array = np.minimum(np.abs(logarithms) / np.log(_SWAPPED), sure)
    both = ((found > 1.0) & (logarithms > 0.0)).any(axis=1) & ((found > 1.0) & (logarithms < 0.0)).any(axis=1)
    scores = np.zeros(found.shape)
    if found.shape[1] >= _SEVERAL:
        rows = np.arange(len(found))
        scores[rows, np.argmax(found, axis=1)] = np.where(both, np.sort(found, axis=1)[:, -_SEVERAL], 0.0)
    return scores


def _turned(n: Array, ratio: Array, deviations: Array, block: Array, products: Array) -> Array:
    """Score how far the correlations of each column with all others are from the usual ones, (S, d).

    A reversed sign or swapped columns change correlations, even if means and deviations stay the same.
    The correlations are those of a column with the columns of X B. By chance, each has a variance of
    about 1 / n, or more if rows have heavy tails. With heavy tails, deviations differ between sites by
    more than 1 / sqrt(2 n) as well. A site with single extreme rows gets a score of 0.
    """
    along = np.sqrt(np.maximum(np.einsum("jl,sjl->sl", block, products), np.finfo(float).tiny))
    own = np.where(deviations > 0.0, deviations, np.inf) * np.sqrt(n)
    correlations = products / own[:, :, None]
    correlations /= along[:, None, :]
    usual = linalg.median_of_few(correlations)
    correlations -= usual
    off = np.linalg.norm(correlations, axis=2)
    width = block.shape[1]
    heavy = np.maximum(np.sqrt(2.0 * n) * _MAD * np.median(np.abs(np.log(ratio))), 1.0)
    by_chance = heavy * np.sqrt(width / n)
    much = np.maximum(_TURNED * np.linalg.norm(usual, axis=1), np.finfo(float).tiny)
    found = np.minimum(off / much, _times(off, by_chance) / _SURE_OF_COVARIANCES)
    extreme = (np.abs(np.log(ratio)) > np.log(1.25)).any(axis=1)
    return np.asarray(np.where(extreme[:, None], 0.0, found))


def as_array(sites: Sequence[OutlyingSite]) -> Array:
    """Return the sites as an array with a row of numbers for each, (m, 4)."""
    return np.array([[one.site, one.kind, one.column, one.times] for one in sites]).reshape(-1, 4)


def hints_of(found: Array, keys: Array, names: Sequence[str] | None) -> list[str]:
    """Return a sentence with a remedy for each of the first sites. In it, "client 3" stands for the site's name.

    Parameters
    ----------
    found : ndarray
        What `as_array` has made of the sites.
    keys : ndarray
        The keys of all sites.
    names : sequence of str or None
        Names of the columns, if they have any.
    """
    said = [
        _sentence(f"client {keys[int(site)]}", OutlyingKind(int(kind)), int(column), times, names)
        for site, kind, column, times in found[:_NAMED].tolist()
    ]
    if len(found) > _NAMED:
        more = len(found) - _NAMED
        said.append(f"{more} more {'site lies' if more == 1 else 'sites lie'} far from most sites.")
    return said


def _sentence(who: str, kind: OutlyingKind, place: int, times: float, names: Sequence[str] | None) -> str:
    column = f"column {place if names is None else names[place]}"
    match kind:
        case OutlyingKind.CONSTANT:
            return f"All rows of {who} are the same. Check its file."
        case OutlyingKind.MEAN:
            far = f"lies {times:.0f} standard deviations away from the mean of most other sites"
            return f"The mean of {column} at {who} {far}. {_LOOK}"
        case OutlyingKind.SPREAD:
            return (
                f"The standard deviation of {column} at {who} is {times:.0f} times as large as at most other sites. "
                f"{_LOOK}"
            )
        case OutlyingKind.ORDER:
            return (
                f"Several columns at {who} have other standard deviations than at most other sites, above all "
                f"{column}: columns may be in a different order."
            )
    return (
        f"The correlations of {column} with the other columns at {who} differ from most other sites: its sign may be "
        "reversed, or columns may be swapped."
    )
