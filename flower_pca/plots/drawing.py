"""Choose the pictures that can be drawn from a result, and write a picture to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.plots import clients, course, style
from flower_pca.plots.needs import Result, Shards
from flower_pca.plots.pictures import PICTURES, Picture
from flower_pca.results.pca import PCAResult
from flower_pca.results.site import can_score_sites


def pictures_for_report(result: Result, shards: Shards = None) -> dict[str, Picture]:
    """Return the pictures for a report: all available pictures, without "outlier_share" if it would be redundant.

    The picture "removed_by_column" makes "outlier_share" redundant.
    """
    every = available(result, shards)
    return {what: p for what, p in every.items() if what != "outlier_share" or "removed_by_column" not in every}


def available(result: Result, shards: Shards = None) -> dict[str, Picture]:
    """Return the pictures that can be drawn from a result, and from the rows of the clients if `shards` has them.

    Parameters
    ----------
    result : Result
        The result of a run.
    shards : sequence, mapping or None, default=None
        The rows of each client, for pictures of rows.

    Returns
    -------
    dict of Picture
        The pictures by name. `PCAResult.plot` takes the names.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import plots, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("krylov", sites, n_components=2)
    >>> "scree" in plots.available(result), "scores" in plots.available(result)
    (True, False)
    >>> "scores" in plots.available(result, sites)
    True
    """
    kinds = {what: picture for what, picture in PICTURES.items() if isinstance(result, picture.of)}
    return {what: p for what, p in kinds.items() if p.need is None or p.need.met(result, shards)}


def with_rows(result: Result, shards: Shards | Mapping[str, Any]) -> tuple[Result, Shards]:
    """Return the result and the list of rows, or None if no rows are given, without the clients that have no rows.

    The other clients keep their names.
    """
    rows = list(shards.values()) if isinstance(shards, Mapping) else shards
    if rows is None or not isinstance(result, PCAResult):
        return result, rows
    nonempty = [i for i, count in enumerate(clients.row_counts(rows)) if count]
    if len(nonempty) == len(rows):
        return result, rows
    moved = {old: new for new, old in enumerate(nonempty)}
    names = {new: labels.client_name(result.site_names, old) for old, new in moved.items()}
    local = {moved[old]: own for old, own in result.local.items() if old in moved}
    return replace(result.with_keys(moved), site_names=names, local=local), [rows[i] for i in nonempty]


def draw(result: Result, what: str, path: str | os.PathLike[str], *, shards: Shards | Mapping[str, Any] = None) -> Path:
    """Draw one of PICTURES, or "overview", into an SVG or PNG file, depending on the suffix of the path."""
    known = [w for w, p in PICTURES.items() if isinstance(result, p.of)]
    checks.choice("The picture", what, ("overview", *known))
    style.suffix(path)
    if what == "overview":
        return style.save(course.overview_figure(result), path)
    return style.save(figure(result, what, shards=shards), path)


def figure(result: Result, what: str, *, shards: Shards | Mapping[str, Any] = None) -> style.Figure:
    """Return one of PICTURES as a matplotlib figure, or raise a ConfigError if its requirement is not met."""
    result, shards = with_rows(result, shards)
    picture, drawn = PICTURES[what], style.new_figure()
    if (
        picture.rows
        and shards is not None
        and isinstance(result, PCAResult)
        and not can_score_sites(result, len(shards))
    ):
        raise ConfigError(
            "Rows can be scored only with their site's local results, but this result does not have them for all "
            "sites. Draw the picture from the result of simulate, before it is saved."
        )
    if (need := picture.need) is not None and not need.met(result, shards):
        raise ConfigError(f'The picture "{what}" {need.wants}. {need.remedy}')
    picture.draw(drawn, result, *([shards] if picture.rows else []))
    return drawn
