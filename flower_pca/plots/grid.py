"""A map in colours: a number for each column of the data and each of some other things, components or clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: Final = 40  # columns up to which each has its name
_OTHERS: Final = 30  # other things that are shown at most


def draw(
    drawn: Figure,
    values: Array,
    *,
    columns: Sequence[str] | None,
    others: str | Sequence[str],
    title: str,
    label: str,
    kind: Literal["signed", "share"],
) -> None:
    """Draw (things, columns) as columns from the top down; of many with names, those with the
    largest values.

    Many columns without names keep their places, from left to right: they may be those of a picture
    or of a spectrum.

    Args:
        drawn: The figure, empty.
        values: A row for each component or client, a column for each column of the data.
        columns: Their names, if they have any.
        others: What a row is: one word where rows go by number, from 1; else the name of each.
        title: What is written above.
        label: What is written beside the bar of colours.
        kind: Whether values are of both signs, or from 0 on.
    """
    shown, d = values[:_OTHERS], values.shape[1]
    if len(shown) < len(values):
        title = f"{title}, the first {len(shown)} of {len(values)}"
    reach = float(np.abs(shown).max()) or 1.0
    if d > _COLUMNS and columns is None:
        ax = drawn.subplots()
        image = _across(ax, shown, others)
    else:
        order = np.argsort(-np.abs(shown).max(axis=0), kind="stable")
        if d <= _COLUMNS:
            chosen = np.arange(d)
        else:
            chosen = np.sort(order[:_COLUMNS])
        if not (d <= _COLUMNS):
            title = f"{title}: {len(chosen)} of {d:,} columns"
        drawn.set_size_inches(style.SINGLE[0], max(style.SINGLE[1], 1.3 + 0.165 * len(chosen)))
        ax = drawn.subplots()
        names = labels.column_names(columns, d)
        image = _down(ax, shown[:, chosen], [names[j] for j in chosen], others)
    image.set(cmap=style.scale(kind), clim=(-reach if kind == "signed" else 0.0, reach))
    ax.set_title(title, loc="left", fontsize=11, color=style.INK, pad=9)
    bar = style.colorbar(ax, image, label)
    if kind == "share":
        style.percent(bar.ax)


def _across(ax: Axes, shown: Array, others: str | Sequence[str]) -> Any:
    d, first = shown.shape[1], 1 if isinstance(others, str) else 0
    image = ax.imshow(
        shown,
        aspect="auto",
        interpolation="nearest" if d <= 400 else "antialiased",
        extent=(-0.5, d - 0.5, len(shown) + first - 0.5, first - 0.5),
    )
    style.tidy(ax, "", "column", others if isinstance(others, str) else "", grid="")
    ax.xaxis.set_major_locator(style.integers())
    if isinstance(others, str):
        ax.yaxis.set_major_locator(style.integers())
    else:
        style.name_ticks(ax, others[: len(shown)])
        ax.set_ylim(len(shown) - 0.5, -0.5)
    return image


def _down(ax: Axes, shown: Array, names: list[str], others: str | Sequence[str]) -> Any:
    if isinstance(others, str):
        first = 1
    else:
        first = 0
    extent = (first - 0.5, len(shown) + first - 0.5, len(names) - 0.5, -0.5)
    image = ax.imshow(shown.T, interpolation="nearest", extent=extent, aspect="auto")
    style.tidy(ax, "", others if isinstance(others, str) else "", "", grid="")
    style.name_ticks(ax, names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", labelsize=8)
    if isinstance(others, str):
        style.number_ticks(ax, len(shown))
        ax.set_xlim(0.5, len(shown) + 0.5)
    else:
        style.name_ticks(ax, others[: len(shown)], axis="x")
    return image
