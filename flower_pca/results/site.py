"""Local results of a site after adjust="site" or harmonize, and the result for rows of one site."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

from flower_pca.base import files
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.rows.adjusted import SITE_COVARIATES, SITE_LOCATION, SITE_MEAN, SITE_SCALE
from flower_pca.rows.covariates import SITE


class HasAdjustedSites(Protocol):
    """A result with the fields about sites that were adjusted or harmonized."""

    @property
    def n_features_in_(self) -> int:
        """The number of columns."""

    @property
    def adjusted_by_(self) -> tuple[str, ...]:
        """The covariates whose effect was removed, and "site" if the means of each site were subtracted."""

    @property
    def harmonized_by_(self) -> str:
        """The method by which sites were harmonized, or "" if they were not harmonized."""

    @property
    def slopes_(self) -> Array | None:
        """The slope of each column for each covariate, or None without covariates."""

    @property
    def fill_(self) -> Array | None:
        """The values that replace missing values, or None if missing values are not allowed."""

    @property
    def local(self) -> Mapping[int, Mapping[str, Array]]:
        """The local results of sites, by key."""

    @property
    def site_names(self) -> Mapping[int, str]:
        """The names of the sites, by key."""


class ScoredBySite(HasAdjustedSites, Protocol):
    """A result that may need the local results of a site to score the rows of this site."""

    @property
    def is_by_site(self) -> bool:
        """Whether scoring rows needs the local results of their site."""

    def at_site(self, site: int | str | Mapping[str, Array]) -> Self:
        """Return the result for rows of this site."""


Result = TypeVar("Result", bound=ScoredBySite)


def read_local_result(path: str | os.PathLike[str]) -> Mapping[str, Array]:
    """Read the local result that a site's node has written: the means, or the location and scale, of the site.

    The node does not send this result.
    """
    _, arrays = files.read(path, "own result", private=True)
    return arrays


def fields_for_site(result: HasAdjustedSites, site: int | str | Mapping[str, Array]) -> dict[str, Any]:
    """Return the fields that change in the result for rows of this site, such as the means of the site."""
    if SITE not in result.adjusted_by_ and not result.harmonized_by_:
        raise ConfigError(
            "The run neither subtracted the means of each site nor harmonized sites, so it treats rows of all sites "
            "in the same way. Leave at_site out."
        )
    own = site if isinstance(site, Mapping) else _local_result_of(result, site)
    sizes = {SITE_LOCATION: result.n_features_in_, SITE_SCALE: result.n_features_in_}
    if not result.harmonized_by_:
        covariates = sum(name != SITE for name in result.adjusted_by_)
        sizes = {SITE_MEAN: result.n_features_in_, SITE_COVARIATES: covariates}
    if any(name not in own or own[name].shape != (size,) for name, size in sizes.items()):
        raise ConfigError("The local results of the site are from another run. Give the local results of this run.")
    if result.harmonized_by_:
        return {"site_location_": own[SITE_LOCATION], "site_scale_": own[SITE_SCALE]}
    rest = tuple(name for name in result.adjusted_by_ if name != SITE)
    return {
        "mean_": own[SITE_MEAN],
        "fill_": None if result.fill_ is None else own[SITE_MEAN],
        "adjusted_by_": rest,
        "covariate_mean_": own[SITE_COVARIATES] if rest else None,
        "slopes_": result.slopes_ if rest else None,
    }


def can_score_sites(result: ScoredBySite, count: int) -> bool:
    """Return whether rows of all `count` sites can be scored, because local results are known or not needed."""
    return not result.is_by_site or all(place in result.local for place in range(count))


def result_at_position(result: Result, position: int) -> Result:
    """Return the result for rows of the site at this position, or `result` itself if all sites are scored alike."""
    return result.at_site(position) if result.is_by_site else result


def _local_result_of(result: HasAdjustedSites, site: int | str) -> Mapping[str, Array]:
    """Return the local result of the site with this key or name, or raise a ConfigError if it is not known."""
    keys = [key for key in result.local if site in (key, result.site_names.get(key))]
    if not keys:
        known = ", ".join(result.site_names.get(key, str(key)) for key in result.local) or "no site"
        raise ConfigError(
            f"The result has no local results of the site {shown(site)} (only of: {known}). If the site's node has "
            "written them to a file, pass flower_pca.results.site.read_local_result(path) instead of the name."
        )
    return result.local[keys[0]]
