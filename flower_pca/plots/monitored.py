"""A picture of SPE against T2 of monitored rows, with the limits. Rows beyond a limit have the color of their site."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.analysis.monitor import Limits, RowScores
from flower_pca.base import labels
from flower_pca.plots import style

_SIZE: Final = (6.4, 4.4)
_POINTS: Final = 6000  # maximum number of points in a scatter plot, because more points hide each other
_VECTOR: Final = 600  # maximum number of points that an SVG file stores as separate shapes
_LOWEST: Final = 1e-3  # Values below this share of a limit are drawn at this share of the limit.


def spe_against_t2(scored: Mapping[Any, RowScores], limits: Limits, path: str | os.PathLike[str]) -> Path:
    """Draw SPE against T2 for the rows of each site into an SVG or PNG file, and return its path.

    Parameters
    ----------
    scored : mapping
        T2 and SPE of each site's rows, by the name of the site.
    limits : Limits
        The limits of T2 and SPE.
    path : str or path
        The file to write. An old file is replaced only when the new picture is complete.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> from flower_pca.analysis.monitor import Monitor
    >>> from flower_pca.plots.monitored import spe_against_t2
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> monitor = Monitor(simulate("krylov", sites, n_components=2, monitor=True))
    >>> spe_against_t2({"today": monitor.score(sites[0])}, monitor.limits(0.99), "rows.svg").name
    'rows.svg'
    """
    style.suffix(path)
    figure = style.new_figure(_SIZE)
    ax = figure.subplots()
    points = {
        site: np.column_stack([_clip_to_limit(s.t2, limits.t2), _clip_to_limit(s.spe, limits.spe)])
        for site, s in scored.items()
    }
    beyond = {site: s.beyond(limits) for site, s in scored.items()}
    near = [points[site][~far] for site, far in beyond.items()]
    _draw_rows_within(ax, np.concatenate(near))
    far = {site: points[site][rows] for site, rows in beyond.items() if rows.any()}
    named = len(far) <= len(style.COLORS)
    colors = style.COLORS if named else style.COLORS[1:2] * len(far)
    for (site, places), color in zip(far.items(), colors, strict=False):
        ax.scatter(
            places[:, 0], places[:, 1], s=16, lw=0, alpha=0.85, c=color, label=str(site) if named else None, zorder=3
        )
    for along, limit in ((ax.axvline, limits.t2), (ax.axhline, limits.spe)):
        if math.isfinite(limit):
            along(limit, color=style.INK, lw=1.0, ls="--", zorder=2)
    ax.set(xscale="log", yscale="log")
    count = sum(int(rows.sum()) for rows in beyond.values())
    style.label_axes(
        ax,
        f"{count:,} of {labels.count(sum(map(len, beyond.values())), 'row')} beyond a limit",
        "T² (within the components)",
        "SPE (outside the components)",
    )
    ax.grid(visible=True, axis="both", color=style.GRID, lw=0.8)
    if len(scored) > 1 and far and named:
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, labelcolor=style.INK)
    return style.save(figure, path)


def _draw_rows_within(ax: style.Axes, points: Any) -> None:
    step = max(1, -(-len(points) // _POINTS))
    many = len(points) > _VECTOR
    x, y = points[::step].T
    ax.scatter(x, y, s=8, lw=0, alpha=0.7, c=style.BAR, rasterized=many, zorder=1)


def _clip_to_limit(values: Any, limit: float) -> Any:
    if not math.isfinite(limit):
        return values
    return np.maximum(values, _LOWEST * limit)
