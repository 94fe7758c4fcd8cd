"""Pictures of a personalized result: how clients lie to each other, and what is shared and own in their rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.personal.result import Parts
from flower_pca.analysis.groups import embed
from flower_pca.base import archive
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.plots import style

_MOST: Final = 12  # pictures beside each other
_COLUMNS: Final = ("rows", "shared", "own", "rest")


def client_map(
    rho: Array,
    path: str | os.PathLike[str],
    *,
    labels: Sequence[int] | Array | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Draw the distances between clients, and the clients as points in the plane that keeps them best, as SVG or PNG.

    Args:
        rho: What `groups.distances` returns.
        path: The file to write. Either the whole new picture is there afterwards, or the old file untouched.
        labels: The group of each client, such as `groups.clusters` returns it: the order of the matrix, and colours.
        names: What to write beside the points.
    """
    points = embed(rho, dimensions=2) if len(rho) > 1 else np.zeros((len(rho), 2))
    group = np.zeros(len(points), dtype=int) if labels is None else np.asarray(labels)
    for what, given in (("labels", group), ("names", names)):
        if given is not None and len(given) != len(points):
            rule = f"as many as clients, {len(points)}"
            raise ConfigError(what, must=rule, got=len(given), then="Give one for each client.")
    figure, order = style.figure((11.0, 4.6)), np.argsort(group, kind="stable")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    image = left.imshow(np.asarray(rho)[np.ix_(order, order)], cmap="viridis", vmin=0.0, vmax=1.0)
    style.colorbar(left, image, "")
    style.tidy(left, "Distance of the own components", "client" if labels is None else "client, by group", "client")
    left.grid(visible=False)
    right.scatter(*points.T, c=group, cmap="tab10" if group.max(initial=0) < 10 else "tab20", s=34, edgecolors="white")
    for name, (x, y) in zip(names or [], points, strict=False):
        right.annotate(str(name), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8, color=style.INK)
    right.set_aspect("equal", adjustable="datalim")
    style.tidy(right, "Clients in the plane (classical scaling)", "", "")
    return _written(figure, path)


def pictures(parts: Sequence[Parts], path: str | os.PathLike[str], *, shape: tuple[int, int]) -> Path:
    """Draw rows that are pictures, each as a line: the row, its shared part, its own part and the rest.

    Args:
        parts: What `PersonalResult.split` returns, one for each line; all rows of it together are the picture.
        path: The file to write. Either the whole new picture is there afterwards, or the old file untouched.
        shape: Height and width of a picture.
    """
    lines = [np.stack([p.shared + p.own + p.rest, *p]).reshape(4, -1) for p in parts[:_MOST]]
    if not lines or any(line.shape[1] != shape[0] * shape[1] for line in lines):
        got = "none" if not lines else f"{sorted({line.shape[1] for line in lines})} numbers each"
        rule = f"pictures of {shape[0]} x {shape[1]}"
        raise ConfigError("The parts", must=rule, got=got, then="Give the shape of one picture.")
    figure = style.figure((8.0, 2.0 * len(lines) + 0.3))
    for axes, line in zip(figure.subplots(len(lines), 4, squeeze=False), lines, strict=True):
        reach = float(np.abs(line).max()) or 1.0
        for ax, part in zip(axes, line, strict=True):
            ax.imshow(part.reshape(shape), cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set_axis_off()
    for ax, title in zip(figure.axes[:4], _COLUMNS, strict=True):
        ax.set_title(title, fontsize=10.5, color=style.INK)
    return _written(figure, path)


def _written(figure: Any, path: str | os.PathLike[str]) -> Path:
    kind = style.suffix(path)
    with archive.replacing(path) as file:
        style.write(figure, file, kind)
    return Path(path)
