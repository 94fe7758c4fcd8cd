"""Detection of outlying sites, for example sites with other units, swapped columns, or one row many times.

The answers to the opening contain the number of rows, the means and the deviations of each site, and the
product of its covariance with one block. Each of these statistics is compared with the median over
sites, because a minority of sites cannot move a median far. All outlying sites are therefore found as
long as they are fewer than half. Leaving out one site at a time would not find several outlying sites,
because they hide each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array

FEWEST_ROWS: Final = 20  # the minimum number of rows of a site that is compared
_FEWEST_SITES: Final = 3  # the minimum number of sites for a comparison
_FAR: Final = 3.0  # A mean is outlying if it differs from the usual mean by this many usual deviations of a site.
_WIDE: Final = 7.0  # the ratio to the usual deviation above which a deviation is outlying
# With fewer than _SEVERAL_SITES sites, the ratio is larger, because rare values can make usual deviations small.
_WIDE_AMONG_FEW, _SEVERAL_SITES = 30.0, 5
_CELL: Final = 70.0  # A single cell that is off by this many deviations must not make a small site outlying.
# Swapped columns are reported if at least this many deviations differ, some of them larger and some smaller.
_SEVERAL: Final = 3
_SWAPPED: Final = 1.5  # the minimum ratio of deviations for columns that may be swapped
_ACCIDENT: Final = 0.01  # If constant columns have a lower probability than this, they are no coincidence.
# Correlations are outlying if they differ from the usual correlations by more than this share of the usual size.
_CHANGED_CORRELATIONS: Final = 0.5
# A difference must exceed this multiple of the usual difference between sites, and of the difference by chance.
_SURE_OF_MEAN, _SURE_OF_SPREAD, _SURE_OF_CORRELATIONS = 6.0, 5.0, 4.0
_MAD: Final = 1.4826  # the standard deviation of a normal variable, divided by its median absolute deviation
_ROUNDING: Final = 64.0 * np.finfo(float).eps  # a deviation up to this share of the mean counts as 0
_REMEDY: Final = "Check the units and the columns of its file."
# A column's turned sign explains unusual correlations if at most this share of their difference is left without it.
_EXPLAINED: Final = 0.5
_TRIED: Final = 8  # the maximum number of columns whose sign is tried, those with the most unusual correlations first
_NAMED: Final = 3  # the maximum number of sites that get an individual hint


class OutlyingKind(IntEnum):
    """The ways in which a site can differ from most other sites."""

    MEAN = 0
    SPREAD = 1
    ORDER = 2
    CORRELATIONS = 3
    CONSTANT = 4


@dataclass(frozen=True)
class OutlyingSite:
    """A site that differs strongly from most other sites.

    Attributes
    ----------
    site : int
        The index of the site.
    kind : OutlyingKind
        The way in which it differs.
    column : int
        The column in which it differs most.
    times : float
        The distance from the usual mean in usual deviations, or the ratio to the usual deviation.
    """

    site: int
    kind: OutlyingKind
    column: int
    times: float


def find_outlying(
    rows: Array, means: Array, deviations: Array, block: Array | None = None, products: Array | None = None
) -> list[OutlyingSite]:
    """Return the outlying sites, sorted by their distance from the median of all sites, the furthest first.

    A site is outlying if two conditions hold. First, it differs from the median by at least three deviations,
    or by a factor of seven. Second, this difference is several times as large as the usual difference between
    sites, and as the difference that chance explains for the site's number of rows. If at least half of the
    sites fulfill these conditions, there is no usual site, and the list is empty.

    Parameters
    ----------
    rows : ndarray of shape (S,)
        The number of rows of each site.
    means : ndarray of shape (S, d)
        The mean of each column at each site.
    deviations : ndarray of shape (S, d)
        The standard deviation of each column at each site.
    block : ndarray of shape (d, p) or None, default=None
        A random block B, if its products are known.
    products : ndarray of shape (S, d, p) or None, default=None
        X'X B for the rows X of each site, centered at their own mean.
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
    logarithms = np.log(ratio)
    spread = np.abs(logarithms)
    # A kind of difference that is too small at all sites is not compared with the usual difference between sites.
    scores: dict[OutlyingKind, Array] = {}
    if _may_exceed(off, _FAR):
        scores[OutlyingKind.MEAN] = np.minimum(off / _FAR, _relative_distances(off, by_chance) / _SURE_OF_MEAN)
    if _may_exceed(spread, np.log(_SWAPPED)):
        sure = _relative_distances(spread, np.sqrt(2.0 / n)) / _SURE_OF_SPREAD
        # Only larger deviations count, and only in columns that vary at every site. The reason is that a site can lack
        # the rare values of a column, so that its deviation is small or 0.
        least = _WIDE if len(enough) >= _SEVERAL_SITES else _WIDE_AMONG_FEW
        wide = logarithms / np.log(np.maximum(least, _CELL / np.sqrt(n)))
        same = (deviations == 0.0).all(axis=1, keepdims=True)
        rare = ((deviations == 0.0) & ~same).any(axis=0)
        scores[OutlyingKind.SPREAD] = np.where(rare, 0.0, np.minimum(wide, sure))
        scores[OutlyingKind.ORDER] = _column_order_scores(logarithms, sure)
    if block is not None and products is not None:
        scores[OutlyingKind.CORRELATIONS] = _correlation_scores(n, spread, deviations, block, products[enough])
    still = deviations[:, varies] == 0.0
    constant = still.all(axis=1)
    if constant.any():
        # The probability that all columns of a site are constant by accident is estimated from the other sites.
        by_accident = np.prod((still.sum(axis=0) - still + 1.0) / (len(enough) + 1.0), axis=1)
        constant &= by_accident < _ACCIDENT
    found = []
    largest = {kind: score.max(axis=1) for kind, score in scores.items()}
    # Only sites with a score above the threshold are examined one by one.
    for i in np.flatnonzero(constant | np.any([most > 1.0 for most in largest.values()], axis=0)).tolist():
        site = int(enough[i])
        if constant[i]:
            found.append((np.inf, OutlyingSite(site, OutlyingKind.CONSTANT, 0, 0.0)))
            continue
        kind = max(scores, key=lambda kind: float(largest[kind][i]))
        j = int(np.argmax(scores[kind][i]))
        if scores[kind][i, j] > 1.0:
            if kind == OutlyingKind.CORRELATIONS and block is not None and products is not None:
                tried = np.argsort(-scores[kind][i], kind="stable")[:_TRIED]
                correlations = products[enough] / (np.where(deviations > 0.0, deviations, np.inf) * n)[:, :, None]
                j = _column_of_turned_sign(i, tried, usual[:, None] * block, correlations)
            times = float(off[i, j] if kind == OutlyingKind.MEAN else ratio[i, j])
            found.append((float(scores[kind][i, j]), OutlyingSite(site, kind, j, times)))
    if 2 * len(found) >= len(enough):
        return []
    return [site for _, site in sorted(found, key=lambda one: -one[0])]


def replace_uncertain(values: Array, means: Array, deviations: Array) -> tuple[Array, Array]:
    """Return means and deviations, with usual ones for columns with few values, so that these are not outlying.

    Parameters
    ----------
    values : ndarray of shape (S, d)
        The number of values of each column at each site.
    means : ndarray of shape (S, d)
        The means of these values. The mean of a column without values has no meaning.
    deviations : ndarray of shape (S, d)
        The standard deviations of these values.
    """
    enough = values >= FEWEST_ROWS
    usual = [
        np.array(
            [np.median(column[known]) if known.any() else 0.0 for column, known in zip(a.T, enough.T, strict=True)]
        )
        for a in (means, deviations)
    ]
    return np.where(enough, means, usual[0]), np.where(enough, deviations, usual[1])


def _may_exceed(values: Array, most: float) -> bool:
    """Return whether some value exceeds `most`, or is not a number."""
    return not bool((values <= most).all())


def _relative_distances(distances: Array, by_chance: Array) -> Array:
    """Return distances of sites as multiples of the typical distance, or of the distance by chance if it is larger."""
    return np.asarray(distances / np.maximum(_MAD * linalg.median_of_few(distances), by_chance))


def _column_order_scores(logarithms: Array, sure: Array) -> Array:
    """Score how clearly a site has some columns with more spread than usual and some with less, (S, d)."""
    found: Array = np.minimum(np.abs(logarithms) / np.log(_SWAPPED), sure)
    both = ((found > 1.0) & (logarithms > 0.0)).any(axis=1) & ((found > 1.0) & (logarithms < 0.0)).any(axis=1)
    scores = np.zeros(found.shape)
    if found.shape[1] >= _SEVERAL:
        rows = np.arange(len(found))
        scores[rows, np.argmax(found, axis=1)] = np.where(both, np.sort(found, axis=1)[:, -_SEVERAL], 0.0)
    return scores


def _correlation_scores(n: Array, spread: Array, deviations: Array, block: Array, products: Array) -> Array:
    """Score how far the correlations of each column are from the usual correlations, (S, d).

    A reversed sign or swapped columns change correlations, even if means and deviations stay the same. The
    score uses the correlations of each column with the columns of X B. By chance, each correlation has a
    variance of about 1 / n, or more if rows have heavy tails. With heavy tails, deviations also differ
    between sites by more than 1 / sqrt(2 n). A site whose deviations suggest single extreme rows gets a score
    of 0.
    """
    along = np.sqrt(np.maximum(np.einsum("jl,sjl->sl", block, products), np.finfo(float).tiny))
    own = np.where(deviations > 0.0, deviations, np.inf) * np.sqrt(n)
    correlations = products / own[:, :, None]
    correlations /= along[:, None, :]
    usual = linalg.median_of_few(correlations)
    correlations -= usual
    off = np.linalg.norm(correlations, axis=2)
    much = np.maximum(_CHANGED_CORRELATIONS * np.linalg.norm(usual, axis=1), np.finfo(float).tiny)
    changed = np.asarray(off / much)
    if not _may_exceed(changed, 1.0):
        return changed
    width = block.shape[1]
    heavy = np.maximum(np.sqrt(2.0 * n) * _MAD * np.median(spread), 1.0)
    by_chance = heavy * np.sqrt(width / n)
    found = np.minimum(changed, _relative_distances(off, by_chance) / _SURE_OF_CORRELATIONS)
    extreme = (spread > np.log(1.25)).any(axis=1)
    return np.asarray(np.where(extreme[:, None], 0.0, found))


def _column_of_turned_sign(i: int, tried: Array, block: Array, products: Array) -> int:
    """Return the column whose sign site i seems to have turned, or else the first of the columns `tried`.

    With the usual correlations R and the block B, the usual products are RB. If a site has turned column j, its
    products are D R D B, where D is the identity with -1 at j. D times them differs from RB by R(D - I)B, all rows of
    which are multiples of row j of B. So what lies outside of this row is small for this column.
    """
    usual = linalg.median_of_few(products)
    before = float(np.linalg.norm(products[i] - usual))
    left = []
    for j in tried.tolist():
        off = products[i].copy()
        off[j] *= -1.0
        off -= usual
        row = block[j]
        off -= np.outer(off @ row, row) / max(float(row @ row), np.finfo(float).tiny)
        left.append(float(np.linalg.norm(off)))
    best = int(np.argmin(left))
    # With a single column of products, nothing is left for any column.
    if block.shape[1] > 1 and left[best] < _EXPLAINED * before:
        return int(tried[best])
    return int(tried[0])


def sites_as_array(sites: Sequence[OutlyingSite]) -> Array:
    """Return the sites as an array with one row for each site: its index, kind, column and distance, (m, 4)."""
    return np.array([[one.site, one.kind, one.column, one.times] for one in sites]).reshape(-1, 4)


def hints_of(outlying: Array, keys: Array, names: Sequence[str] | None) -> list[str]:
    """Return a hint with a remedy for each of the first sites, and a last hint with the number of further sites.

    Hints name a site by its key, for example "client 3".

    Parameters
    ----------
    outlying : ndarray
        The outlying sites as returned by `sites_as_array`.
    keys : ndarray
        The keys of all sites.
    names : sequence of str or None
        The names of the columns, or None if columns have no names.
    """
    said = [
        _hint_of_site(f"client {keys[int(site)]}", OutlyingKind(int(kind)), int(column), times, names)
        for site, kind, column, times in outlying[:_NAMED].tolist()
    ]
    if len(outlying) > _NAMED:
        more = len(outlying) - _NAMED
        said.append(f"{more} more {'site differs' if more == 1 else 'sites differ'} strongly from most other sites.")
    return said


def _hint_of_site(who: str, kind: OutlyingKind, place: int, times: float, names: Sequence[str] | None) -> str:
    column = f"column {place if names is None else names[place]}"
    match kind:
        case OutlyingKind.CONSTANT:
            return f"All rows of {who} are the same. Check its file."
        case OutlyingKind.MEAN:
            far = f"is {times:.0f} standard deviations away from the mean of most other sites"
            return f"The mean of {column} at {who} {far}. {_REMEDY}"
        case OutlyingKind.SPREAD:
            return (
                f"The standard deviation of {column} at {who} is {times:.0f} times as large as at most other sites. "
                f"{_REMEDY}"
            )
        case OutlyingKind.ORDER:
            return (
                f"The standard deviations of several columns at {who} differ from those of most other sites, above all "
                f"in {column}. Check whether the columns of its file are in a different order."
            )
    return (
        f"The correlations of {column} with the other columns at {who} differ from those of most other sites. Check "
        "whether its sign is reversed, or columns are swapped."
    )
