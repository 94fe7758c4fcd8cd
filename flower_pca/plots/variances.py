"""What the components explain: scree, cumulative variance, and the components themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca.core.result import PCAResult
from flower_pca.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GUIDES: Final = (0.5, 0.8, 0.9, 0.95, 0.99)
_VALUED: Final = 8  # bars up to which every one has its value
_CURVES: Final = 5  # components up to which each is a curve
_POINTS: Final = 200  # features up to which curves can be followed by eye
_ROWS: Final = 30  # components that a heatmap shows at most


def scree(ax: Axes, result: PCAResult) -> None:
    """A bar for the share of each component."""
    ratio = result.explained_variance_ratio_
    number = np.arange(1, len(ratio) + 1)
    bars = ax.bar(number, ratio, width=0.62 if len(ratio) <= style.DENSE else 0.9, color=style.BAR)
    if len(ratio) <= _VALUED:
        ax.bar_label(bars, [f"{r:.1%}" for r in ratio], padding=2, fontsize=9, color=style.INK)
    ax.set_ylim(0.0, 1.12 * max(float(ratio.max()), 1e-3))
    style.percent(ax)
    style.numbered(ax, len(ratio))
    style.tidy(ax, "Variance of each component", "component", "share of the total variance")


def cumulative(ax: Axes, result: PCAResult) -> None:
    """The share of the first components together, and where it passes the usual marks."""
    together = result.explained_variance_ratio_.cumsum()
    number = np.arange(1, len(together) + 1)
    size = 4.5 if len(together) <= style.DENSE else 0.0
    ax.fill_between(number, together, color=style.BAR, alpha=0.25, lw=0)
    ax.plot(number, together, color=style.COLOURS[0], lw=1.8, marker="o", ms=size)
    passed = {guide: int(np.searchsorted(together, guide)) + 1 for guide in _GUIDES if guide <= together[-1]}
    for first in set(passed.values()):
        ax.plot([first, first], [0.0, together[first - 1]], color=style.FAINT, lw=0.8, ls=(0, (3, 3)))
    if passed:
        words = "\n".join(f"{guide:.0%} with {first}" for guide, first in passed.items())
        box: dict[str, Any] = {"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": style.GRID}
        corner, inside = (0.98, 0.05), ax.transAxes
        ax.text(*corner, words, transform=inside, ha="right", fontsize=9, color=style.INK, linespacing=1.4, bbox=box)
    _total(ax, together)
    ax.set(ylim=(0.0, 1.12), yticks=np.linspace(0.0, 1.0, 5))
    style.percent(ax)
    style.numbered(ax, len(together))
    style.tidy(ax, "Variance of the first components together", "components", "share of the total variance")


def both(ax: Axes, result: PCAResult) -> None:
    """Scree and cumulative variance in one, for the overview."""
    ratio = result.explained_variance_ratio_
    number = np.arange(1, len(ratio) + 1)
    few = len(ratio) <= style.DENSE
    ax.bar(number, ratio, width=0.62 if few else 0.9, color=style.BAR, label="each")
    ax.plot(number, ratio.cumsum(), color=style.COLOURS[0], lw=1.8, marker="o", ms=4.5 if few else 0, label="sum")
    _total(ax, ratio.cumsum())
    ax.set(ylim=(0.0, 1.12), yticks=np.linspace(0.0, 1.0, 5))
    style.percent(ax)
    style.numbered(ax, len(ratio))
    style.tidy(ax, "Variance explained", "component", "share of the total variance")
    style.legend(ax)


def loadings(ax: Axes, result: PCAResult) -> None:
    """The weight of every feature in each component: curves, or a heatmap where there are too many."""
    V = result.components_
    if len(V) > _CURVES or V.shape[1] > _POINTS:
        _heatmap(ax, V[:_ROWS])
        return
    feature = np.arange(V.shape[1])
    ax.axhline(0.0, color=style.FAINT, lw=0.8)
    size = 3.2 if V.shape[1] <= 60 else 0.0
    for j, row in enumerate(V):
        above = _CURVES + 2 - j
        ax.plot(feature, row, color=style.COLOURS[j], lw=1.7, marker="o", ms=size, label=str(j + 1), zorder=above)
    reach = 1.08 * float(np.abs(V).max())
    ax.set(ylim=(-reach, reach), xlim=(-0.02 * V.shape[1] - 0.2, 1.02 * (V.shape[1] - 1) + 0.2))
    ax.xaxis.set_major_locator(style.integers())
    style.tidy(ax, "Loadings", "feature", "weight in the component")
    style.legend(ax)


def _heatmap(ax: Axes, V: np.ndarray[Any, Any]) -> None:
    reach = float(np.abs(V).max())
    image = ax.imshow(
        V,
        aspect="auto",
        cmap="RdBu_r",
        vmin=-reach,
        vmax=reach,
        interpolation="nearest" if V.shape[1] <= 400 else "antialiased",
        extent=(-0.5, V.shape[1] - 0.5, len(V) + 0.5, 0.5),
    )
    ax.xaxis.set_major_locator(style.integers())
    ax.yaxis.set_major_locator(style.integers())
    style.tidy(ax, "Loadings" if len(V) < _ROWS else f"Loadings of the first {len(V)}", "feature", "component")
    ax.grid(visible=False)
    style.colorbar(ax, image, "weight")


def _total(ax: Axes, together: np.ndarray[Any, Any]) -> None:
    ax.annotate(
        f"{together[-1]:.1%}",
        (len(together), together[-1]),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center" if len(together) <= 3 else "right",
        fontsize=9,
        color=style.COLOURS[0],
        fontweight="bold",
    )
