"""What a run leaves a site for itself if it removes the site's own means, and a result for the rows of that site."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from flower_pca.base import files
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.rows.adjusted import SITE_COVARIATES, SITE_MEAN
from flower_pca.rows.covariates import SITE


class OfSites(Protocol):
    """What a result says of the sites whose means it has removed."""

    @property
    def adjusted_by_(self) -> tuple[str, ...]:
        """The covariates, and "site"."""

    @property
    def slopes_(self) -> Array | None:
        """How much each column changes with each covariate."""

    @property
    def local(self) -> Mapping[int, Mapping[str, Array]]:
        """What sites keep for themselves, by key."""

    @property
    def site_names(self) -> Mapping[int, str]:
        """The names of the sites, by key."""


def read(path: str | os.PathLike[str]) -> Mapping[str, Array]:
    """What a node has written for itself: its own means, which never left it."""
    _, arrays = files.read(path, "own result", private=True)
    return arrays


def fields_at(result: OfSites, site: int | str | Mapping[str, Array]) -> dict[str, Any]:
    """The fields of the result for rows of this site: its own means become the means of the result."""
    if SITE not in result.adjusted_by_:
        raise ConfigError(
            "The run has not subtracted the means of each site, so rows of all sites are treated alike. Leave at_site "
            "out."
        )
    own = site if isinstance(site, Mapping) else _of(result, site)
    if SITE_MEAN not in own:
        raise ConfigError("The own results of the site have no means of it. Give those of a run with adjust.")
    rest = tuple(name for name in result.adjusted_by_ if name != SITE)
    return {
        "mean_": own[SITE_MEAN],
        "adjusted_by_": rest,
        "covariate_mean_": own[SITE_COVARIATES] if rest else None,
        "slopes_": result.slopes_ if rest else None,
    }


def _of(result: OfSites, site: int | str) -> Mapping[str, Array]:
    """What a result has of the own results of a site, by key or name."""
    keys = [key for key in result.local if site in (key, result.site_names.get(key))]
    if not keys:
        there = ", ".join(result.site_names.get(key, str(key)) for key in result.local) or "none"
        raise ConfigError(
            f"The result has no means of the site {shown(site)}, but of {there}. Where the site's node has written "
            "them to its output folder, give flower_pca.results.site.read(path)."
        )
    return result.local[keys[0]]
