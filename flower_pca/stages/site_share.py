"""The share of each component's variance between sites, by an analysis of variance of the scores.

The answers to the opening contain the number and the sum of each site's rows. If the server sees individual
answers, the shares therefore need no additional message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.model import Model
from flower_pca.names.levels import source_of
from flower_pca.rows.covariates import SITE
from flower_pca.stages.opening import SITE_ROWS, SITE_SUMS

# the key, in a model, of the share of each component's variance that lies between sites, of shape (k,)
SITE_SHARE: Final = "site_share"
# The keys of the results of `stages.explained`: the shares of the columns, followed by the share of the site
# beyond all columns, and the number of sites
BY_COLUMNS, SITES = "explained_by", "explained_sites"
# The keys of the same shares for the rows before sites were harmonized
SITE_SHARE_BEFORE, BY_COLUMNS_BEFORE = "site_share_before", "explained_by_before"
BEYOND: Final = "site beyond "  # the prefix in the name of the share of the site beyond columns
_LEVEL: Final = 0.001  # the significance level of the F tests for all components together
_LEAST: Final = 0.1  # Smaller shares of a component's variance do not matter, even if they are significant.
NOTHING: Final = 64.0 * np.finfo(float).eps  # A sum of squares up to this share of the first is a rounding error.
_ROUNDING: Final = 1e-9  # the amount by which a share may exceed 1 because of rounding
# Messages of few bits may change a component's sum of squares by this share. With a larger error, no share is reported.
_ROUNDED: Final = 0.05


def site_share(model: Model) -> Array | None:
    """Return the share of each component's sum of squares between sites, (k,), or None if it cannot be computed.

    The share is eta^2_j = sum_s n_s (z_j'(m_s - m))^2 / sum_i (z_j'(x_i - m))^2 with the means m_s of
    the sites and the mean m of all rows, in the frame. The share cannot be computed under masks or noise,
    because the server sees no site's mean. Nor can it be computed if `max_share` gives sites other weights
    than their rows, if every site has a single row, or if numbers of few bits on the network leave too little
    of a small component. If each site's own means were subtracted, the share would be 0 without any meaning.
    """
    if SITE_SUMS not in model.sites or (model.counted is not None and model.counted.weights):
        return None
    if has_no_site_means(model):
        return None
    assert model.values is not None
    rows, sums = model.sites[SITE_ROWS].astype(np.float64), model.sites[SITE_SUMS]
    n = rows.sum()
    if n != model.n or n <= len(rows):
        return None
    means = sums @ model.columns[:, : model.k] / rows[:, None]
    mean = rows @ means / n
    between = rows @ (means - mean) ** 2
    within_frame = model.values[: model.k] - n * mean**2
    varies = within_frame > NOTHING * float(model.values[0])  # Other shares would consist of rounding errors.
    if model.block_rounding:
        errors = model.product_errors(model.columns[:, : model.k], model.values[: model.k])
        if (errors > _ROUNDED * within_frame).any():
            return None
    share = np.where(varies, between / np.where(varies, within_frame, 1.0), 0.0)
    if (share > 1.0 + _ROUNDING).any():  # Different rows have answered the opening and the last message.
        return None
    return np.asarray(np.minimum(share, 1.0))


def has_no_site_means(model: Model) -> bool:
    """Return whether each site's own means were subtracted, so that the model has no differences between sites."""
    known = model.frame.covariates
    return known is not None and (known.within or known.sigma is not None)


def number_of_sites(model: Model) -> int:
    """Return the number of sites that the shares of a model compare."""
    if SITES in model.left:
        return int(model.left[SITES])
    return len(model.sites[SITE_ROWS])


def positions_by_name(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the positions of columns by their names in a result. Columns made from one text column share a name."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(name for name in names if name != SITE):
        found.setdefault(source_of(name) or name, []).append(place)
    return found


def names_of_shares(explain: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the names of `count` shares: of each column, of all columns together, and of the site beyond columns.

    The share of the site is missing if each site's own means were subtracted.
    """
    named = tuple(positions_by_name(explain))
    every = labels.join_with_and(list(named))
    return (*named, *([every] if len(named) > 1 else []), f"{BEYOND}{every}")[:count]


def names_of_single_shares(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of shares of single columns, without the share of all columns and the share of the site."""
    columns = tuple(name for name in names if not name.startswith(BEYOND))
    return columns[:-1] if len(columns) > 1 else columns


def exceeds_chance(share: Array, sites: int, rows: int) -> Array:
    """Return a boolean mask of the components with site differences that exceed chance and are large, (k,).

    If all sites have Gaussian rows of the same distribution, a random rotation of the rows does not change
    the distribution of the scores. The F test with S - 1 and n - S degrees of freedom is therefore exact for
    any number of rows and columns. The share alone would be misleading, because 100 sites of 3 rows each
    explain a third of the variance by chance.
    """
    if sites < 2 or rows <= sites:
        return np.zeros(len(share), dtype=bool)
    adjusted = 1.0 - (1.0 - share) * (rows - 1) / (rows - sites)
    matters = np.asarray(adjusted >= _LEAST)
    if not matters.any():
        return matters
    # scipy.special is imported late, because its import takes longer than the import of the whole package, and
    # nodes and runs with similar sites do not need it.
    from scipy.special import fdtrc

    rest = np.maximum(1.0 - share, np.finfo(float).eps)
    F = (share / (sites - 1)) / (rest / (rows - sites))
    p = fdtrc(sites - 1, rows - sites, F)
    return np.asarray(matters & (p < _LEVEL / len(share)))


def hints_of_sites(share: Array | None, sites: int | None, rows: int, scale: str | None) -> list[str]:
    """Return a hint about the components that differ between sites, if there are any.

    Sites can only be adjusted or harmonized without a scale, or with scale="std".
    """
    if share is None or sites is None:
        return []
    far = np.flatnonzero(exceeds_chance(share, sites, rows))
    if not len(far):
        return []
    which = labels.join_with_and([str(j + 1) for j in far])
    shares = labels.join_with_and([f"{share[j]:.0%}" for j in far])
    components, them = ("Component", "it") if len(far) == 1 else ("Components", "them")
    verb = "differs" if len(far) == 1 else "differ"
    chance = (sites - 1) / (rows - 1)
    otherwise = ""
    if scale in (None, "std"):
        otherwise = f", or run with {option('adjust', [SITE])} or {option('harmonize', 'combat')}"
    return [
        f"{components} {which} {verb} between sites: {shares} of the variance along {them} lies between the {sites} "
        f"sites, but only {chance:.1%} would by chance. Compare rows of the same site only{otherwise}."
    ]
