"""What the columns weigh in the components: bars, largest first; of the heaviest where they are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import grid, style
from flower_pca.results.errors import INTERVAL
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: Final = 6  # components that have bars of their own
BARS: Final = 8  # columns that have one in each
_FARTHEST: Final = 1.2  # where whiskers end that are longer


def bars(drawn: Figure, result: PCAResult) -> None:
    """For each component the columns that weigh most, largest first."""
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    _panels(drawn, result.components_, names, result.loading_errors_)


def last(drawn: Figure, result: TrackingResult) -> None:
    """The same of the basis that the last step has left."""
    _panels(drawn, result.components_[-1], labels.column_names(result.feature_names_in_, result.n_features_in_))


def heatmap(drawn: Figure, result: PCAResult) -> None:
    """Every weight at once."""
    if result.feature_names_in_ is None:
        names = None
    else:
        names = [str(name) for name in result.feature_names_in_]
    grid.draw(
        drawn,
        result.components_,
        columns=names,
        others="component",
        title="Weights",
        label="weight",
        kind="signed",
    )


def enough(result: PCAResult) -> bool:
    """Whether the bars show all there is."""
    return result.n_components_ <= PANELS and result.n_features_in_ <= BARS


def _panels(drawn: Figure, components: Array, names: list[str], errors: Array | None = None) -> None:
    off = INTERVAL * (np.zeros_like(components) if errors is None else errors)
    shown, most = min(len(components), PANELS), min(components.shape[1], BARS)
    if shown == 1:
        across = 1
    else:
        across = 2
    down = -(-shown // across)
    drawn.set_size_inches(style.SINGLE[0], max(style.SINGLE[1], 0.5 + down * (0.19 * most + 0.55)))
    panels = drawn.subplots(down, across, squeeze=False, sharex=True).ravel()
    ends = np.minimum(np.abs(components[:shown]) + off[:shown], _FARTHEST)
    for j, (ax, row) in enumerate(zip(panels, components[:shown], strict=False)):
        one(ax, row, names, f"Component {j + 1}", reach=float(ends.max()), off=off[j])
    for ax in panels[shown:]:
        ax.set_axis_off()
    few = most < components.shape[1]
    if few:
        words = f"weight of the {most} heaviest of {components.shape[1]:,} columns"
    else:
        words = "weight"
    if errors is not None:
        words += "; whiskers hold 95 %"
    drawn.supxlabel(words, fontsize=9.5, color=style.INK)


def one(ax: Axes, row: Array, names: list[str], title: str, *, reach: float, off: Array | None = None) -> None:
    """The columns that weigh most in one component, and how far each may be `off`."""
    order = labels.leading(row, BARS)
    colours = [style.PLUS if row[j] > 0 else style.MINUS for j in order]
    ax.barh(range(len(order)), row[order], height=0.7, color=colours)
    if off is not None and off.any():
        ax.errorbar(row[order], range(len(order)), xerr=off[order], fmt="none", ecolor=style.INK, elinewidth=1.2)
    ax.axvline(0.0, color=style.FAINT, lw=0.8)
    style.tidy(ax, "", "", "", grid="x")
    # over the names too, where bars are short
    ax.set_title(title, loc="right", fontsize=10, color=style.INK, pad=6)
    style.name_ticks(ax, [names[j] for j in order])
    ax.set_xlim(-1.08 * reach, 1.08 * reach)
    ax.tick_params(axis="y", labelsize=8.5)
    mark = float(f"{0.7 * reach:.0e}")
    ax.set_xticks([-mark, 0.0, mark], [f"{-mark:g}", "0", f"{mark:g}"])
