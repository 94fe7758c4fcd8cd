"""Pictures of a personalized result: distances between clients, and the shared and local parts of their rows.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.plots import personal
>>> rng = np.random.default_rng(0)
>>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 4, 0.1]]  # all share the first direction
>>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
>>> result = simulate("exact_per_pca(local_components=1)", sites, n_components=1)
>>> parts = [result.split(rows, client=i) for i, rows in enumerate(sites)]
>>> personal.pictures(parts, "parts.svg", shape=(60, 4)).name
'parts.svg'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.analysis.groups import distances, embed, local_bases, shares
from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import client_name
from flower_pca.base.linalg import Array
from flower_pca.plots import clients, style
from flower_pca.results.personal import Parts, PersonalResult

_MOST: Final = 12  # maximum number of lines, each with one image and its parts
_COLUMNS: Final = ("rows", "shared", "own", "rest")


def client_map(
    rho: Array,
    path: str | os.PathLike[str],
    *,
    labels: Sequence[int] | Array | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Draw the matrix of distances between clients, and a plane in which clients have about these distances.

    Parameters
    ----------
    rho : ndarray
        The distances between clients, as `groups.distances` returns them.
    path : str or path
        The SVG or PNG file to write. An old file is replaced only when the new picture is complete.
    labels : sequence of int, ndarray or None, default=None
        The group of each client, as `groups.clusters` returns it. Groups set the order of the matrix and the colors.
    names : sequence of str or None, default=None
        The names to write next to the points.
    """
    for what, given in (("labels", labels), ("names", names)):
        if given is not None and len(given) != len(rho):
            raise ConfigError(
                f"{what} has {len(given)} entries, but there are {len(rho)} clients. Give one entry for each client."
            )
    figure = style.new_figure((11.0, 4.6))
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    points = np.zeros((len(rho), 2))
    group, word = np.zeros(len(rho), dtype=int), "client"
    if len(rho) > 1:
        points = embed(rho, dimensions=2)
    if labels is not None:
        group, word = np.asarray(labels), "client, by group"
    _draw_matrix(left, np.asarray(rho), np.argsort(group, kind="stable"), word)
    _draw_plane(right, points, [str(name) for name in names or ()], group)
    return style.save(figure, path)


def distance_matrix(fig: style.Figure, result: PersonalResult) -> None:
    """Draw the distances between the local components of all pairs of clients."""
    keys, own = local_bases(result)
    ax = fig.subplots()
    _draw_matrix(ax, distances(own), np.arange(len(own)), "client")
    names = _names_in_picture(result, keys)
    if len(own) <= clients.NAMED:
        style.name_ticks(ax, names)
        style.name_ticks(ax, names, axis="x")
    elif result.site_names:
        style.number_ticks(ax, len(own), first=0, names=names)
        style.number_ticks(ax, len(own), first=0, names=names, axis="y")
    else:
        return
    end = len(own) - 0.5
    ax.set(xlabel="", ylabel="", xlim=(-0.5, end), ylim=(end, -0.5))


def distance_plane(fig: style.Figure, result: PersonalResult) -> None:
    """Draw the clients as points whose distances approximate the distances between their local components."""
    keys, own = local_bases(result)
    points = embed(distances(own), dimensions=2)
    _draw_plane(fig.subplots(), points, _names_in_picture(result, keys), np.zeros(len(own), dtype=int))


def first_local_weights(fig: style.Figure, result: PersonalResult) -> None:
    """Draw the weights of each client's first local component, with zeros for a client without local components."""
    keys, own = local_bases(result)
    style.draw_heat_map(
        fig,
        np.stack([rows[0] if len(rows) else np.zeros(result.n_features_in_) for rows in own]),
        columns=result.feature_names_in_,
        others=_names_in_picture(result, keys),
        title="First own component",
        label="weight",
        kind="signed",
    )


def errors_with_local(fig: style.Figure, result: PersonalResult, shards: Sequence[Any]) -> None:
    """Draw the reconstruction error of each client, with and without the client's local components."""
    found = shares(result, shards)
    assert found is not None
    clients.draw_bar_pairs(
        fig,
        {"with own components": found.rest, "shared components only": found.without},
        clients.client_names(result, found.clients),
        title="Reconstruction error",
        words="mean squared error of a row",
    )


def split_of_rows(fig: style.Figure, result: PersonalResult, shards: Sequence[Any]) -> None:
    """Draw the shares of the mean square of each client's rows in the shared part, the own part and the rest."""
    found = shares(result, shards)
    assert found is not None
    parts = {"shared": found.shared, "own": found.own, "rest": found.rest}
    whole = np.maximum(sum(parts.values()), np.finfo(float).tiny)
    count, names = len(found.clients), clients.client_names(result, found.clients)
    tall = max(2.4, 1.5 + 0.26 * count)
    ax, bar, side = clients.empty_bar_axes(fig, names, tall=tall)
    before, thick = np.zeros(count), {"x": 0.66, "y": 0.9}[side]
    for (word, part), color in zip(parts.items(), (style.PLUS, style.COLORS[5], style.FAINT), strict=True):
        bar(range(count), part / whole, thick, before, color=color, label=word)
        before = before + part / whole
    clients.label_bar_axes(ax, count, names, title="What rows consist of", words="share of the mean square of a row")
    style.show_percent(ax, axis=side)
    ax.set(**{f"{side}lim": (0.0, 1.0)})
    style.legend_below(fig, ncols=3)


def _names_in_picture(result: PersonalResult, keys: Sequence[str | int]) -> list[str]:
    return [key if isinstance(key, str) else client_name(result.site_names, key) for key in keys]


def _draw_matrix(ax: style.Axes, rho: Array, order: Array, words: str) -> None:
    ordered = rho[np.ix_(order, order)]
    image = ax.imshow(ordered, cmap=style.color_map("share"), vmin=0.0, vmax=1.0, interpolation="nearest")
    style.label_axes(ax, "Distance of own components", words, "client", grid="")
    ax.xaxis.set_major_locator(style.integer_locator())
    ax.yaxis.set_major_locator(style.integer_locator())
    style.colorbar(ax, image, "0 alike, 1 at right angles")


def _draw_plane(ax: style.Axes, points: Array, names: Sequence[str], group: Array) -> None:
    colors = style.curve_colors(int(group.max(initial=0)) + 1)
    of_group = [colors[g] for g in group]
    ax.scatter(points[:, 0], points[:, 1], c=of_group, s=34, edgecolors=style.WHITE)
    for word, place in zip(map(style.displayable_name, names), points, strict=False):
        mark = ax.annotate(word, place, xytext=(4, 4), textcoords="offset points", fontsize=8, color=style.INK)
        mark.set_fontfamily(style.font_families(word))
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.16)
    style.label_axes(ax, "Clients in the plane", "by the distance of their own components", "", grid="both")


def pictures(parts: Sequence[Parts], path: str | os.PathLike[str], *, shape: tuple[int, int]) -> Path:
    """Draw each image next to its shared part, its local part and the rest, one image in each row of the figure.

    Parameters
    ----------
    parts : sequence of Parts
        The parts of the images, as `PersonalResult.split` returns them. The rows of one `Parts` together form one
        image. Only the first 12 images are drawn.
    path : str or path
        The file to write. An old file is replaced only when the new picture is complete.
    shape : tuple
        Height and width of an image in pixels.
    """
    lines = [np.stack([p.shared + p.own + p.rest, *p]).reshape(4, -1) for p in parts[:_MOST]]
    if not lines or any(line.shape[1] != shape[0] * shape[1] for line in lines):
        if not lines:
            raise ConfigError("There are no images to draw. Give the parts of at least one row, as split returns them.")
        got = " or ".join(map(str, sorted({line.shape[1] for line in lines})))
        raise ConfigError(
            f"Images of {shape[0]} x {shape[1]} pixels have {shape[0] * shape[1]} values, but the parts have {got}. "
            "Give the height and width of one image as shape."
        )
    figure = style.new_figure((8.0, 2.0 * len(lines) + 0.3))
    for axes, line in zip(figure.subplots(len(lines), 4, squeeze=False), lines, strict=True):
        reach = float(np.abs(line).max()) or 1.0
        for ax, part in zip(axes, line.reshape(4, *shape), strict=True):
            ax.imshow(part, cmap=style.color_map("signed"), vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set_axis_off()
    for ax, title in zip(figure.axes[:4], _COLUMNS, strict=True):
        ax.set_title(title, fontsize=10.5, color=style.INK)
    return style.save(figure, path)
