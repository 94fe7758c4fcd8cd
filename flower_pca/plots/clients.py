"""Pictures that compare clients by their means, by their reconstruction errors, or by any other figure as bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from flower_pca.analysis import sites
from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import style
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult
from flower_pca.results.site import result_at_position

_MAPPED: Final = 24  # maximum number of clients in the picture of means
# Up to this number of clients, each client is labeled with its name. With more clients, only some are labeled.
NAMED: Final = 20


def column_means(fig: style.Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """Draw the difference between each client's column means and the overall means, in overall standard deviations."""
    found = sites.compare_sites(result, shards, few=_MAPPED)
    shown = found.order[:_MAPPED]
    style.draw_heat_map(
        fig,
        found.off[shown],
        columns=result.feature_names_in_,
        others=[labels.client_name(result.site_names, int(i)) for i in shown],
        title=facts.title_with_count("Means of the clients", len(shown), len(found.order), "furthest off"),
        label="deviations of all rows",
        kind="signed",
    )


def reconstruction_errors(fig: style.Figure, result: PCAResult, shards: Sequence[Any]) -> None:
    """Draw a bar for the reconstruction error of each client, and a line for the error of all rows together."""
    each = errors_by_client(result, shards)
    overall = float(np.average(each, weights=row_counts(shards)))
    names = client_names(result, range(len(each)))
    ax = draw_bars(fig, each, names, title="Reconstruction error", words="mean squared error of a row")
    line = {"x": ax.axvline, "y": ax.axhline}[value_axis(names)]
    line(overall, color=style.COLORS[1], lw=1.4, label=f"all rows {overall:.3g}")
    style.legend(ax)


def value_axis(names: Sequence[str]) -> Literal["x", "y"]:
    """Return the axis of the bars' values: "x" for horizontal bars if there is room for all names, else "y"."""
    return "x" if 0 < len(names) <= NAMED else "y"


def empty_bar_axes(
    fig: style.Figure, names: Sequence[str], *, tall: float
) -> tuple[style.Axes, Callable[..., Any], Literal["x", "y"]]:
    """Return empty axes for bars, the function that draws the bars, and the axis of their values.

    `tall` is the height of the figure in inches if bars are horizontal.
    """
    side = value_axis(names)
    if side == "x":
        fig.set_size_inches(style.SINGLE[0], tall)
    ax = fig.subplots()
    return ax, ax.barh if side == "x" else ax.bar, side


def label_bar_axes(ax: style.Axes, count: int, names: Sequence[str], *, title: str, words: str) -> None:
    """Label the axes. If there are few bars, each bar gets its name. Otherwise some bars get names, or numbers."""
    if value_axis(names) == "x":
        style.label_axes(ax, title, words, "", grid="x")
        style.name_ticks(ax, names)
    else:
        style.label_axes(ax, title, axis_label(names), words)
        style.number_ticks(ax, count, first=0, names=names)


def axis_label(names: Sequence[str]) -> str:
    """Return "client", the label of the clients' axis, or "" if the names of clients make a label unnecessary."""
    return "" if names else "client"


def draw_bars(fig: style.Figure, values: Array, names: list[str], *, title: str, words: str) -> style.Axes:
    """Draw a bar for the value of each client, and return the axes."""
    tall = max(2.2, 1.1 + 0.26 * len(names))
    ax, bar, side = empty_bar_axes(fig, names, tall=tall)
    bar(range(len(values)), values, style.mark_size(len(values), 0.62, 0.9), color=style.BAR)
    ax.set(**{f"{side}lim": (0.0, 1.12 * float(values.max()) or 1.0)})
    label_bar_axes(ax, len(values), names, title=title, words=words)
    return ax


def draw_bar_pairs(fig: style.Figure, values: Mapping[str, Array], names: list[str], *, title: str, words: str) -> None:
    """Draw two bars for each client, next to each other."""
    count = len(next(iter(values.values())))
    tall = max(2.4, 1.4 + 0.4 * count)
    ax, bar, _ = empty_bar_axes(fig, names, tall=tall)
    for (word, each), shift, color in zip(values.items(), (-0.19, 0.19), (style.BAR, style.MINUS), strict=True):
        bar(np.arange(count) + shift, each, 0.36, color=color, label=word)
    label_bar_axes(ax, count, names, title=title, words=words)
    style.legend_below(fig)


def client_names(result: PCAResult, keys: Sequence[int]) -> list[str]:
    """Return the name of each client, or [] if clients have no names and there are too many for labels."""
    if len(keys) > NAMED and not result.site_names:
        return []
    return [labels.client_name(result.site_names, key) for key in keys]


def errors_by_client(result: PCAResult, shards: Sequence[Any]) -> Array:
    """Return the mean squared reconstruction error of the rows of each client, (N,)."""
    return np.array([result_at_position(result, i).reconstruction_error(shard) for i, shard in enumerate(shards)])


def row_counts(shards: Sequence[Any]) -> list[int]:
    """Return the number of rows of each client."""
    return [shard.shape[0] if hasattr(shard, "shape") else len(shard) for shard in shards]
