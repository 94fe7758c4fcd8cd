"""Pictures of the variance that components explain, and of the weights of columns in the components.

The pictures are scree plots and cumulative variances, with bounds if variances are noisy, and bars of the largest
weights.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.dp.certainty import Certainty
from flower_pca.plots import style
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

PANELS: Final = 6  # maximum number of components whose weights are drawn as bars
BARS: Final = 8  # maximum number of columns with a bar in each component
_FARTHEST: Final = 1.2  # The axis ends at this weight or before, even if whiskers are longer.


def draw_bars(fig: style.Figure, result: PCAResult) -> None:
    """Draw bars for the columns with the largest weights in each component, largest first."""
    _draw_panels(fig, result.components_, facts.column_names(result), result.loading_errors_)


def draw_last_step(fig: style.Figure, result: TrackingResult) -> None:
    """Draw bars for the columns with the largest weights in each component of the last step."""
    _draw_panels(fig, result.components_[-1], facts.column_names(result))


def draw_heatmap(fig: style.Figure, result: PCAResult) -> None:
    """Draw a heat map of the weights of all columns in all components."""
    style.draw_heat_map(
        fig,
        result.components_,
        columns=result.feature_names_in_,
        word="component",
        title="Weights",
        label="weight",
        kind="signed",
    )


def has_room_for_bars(result: PCAResult) -> bool:
    """Return whether the bar chart has room for all weights."""
    return result.n_components_ <= PANELS and result.n_features_in_ <= BARS


def _draw_panels(fig: style.Figure, components: Array, names: list[str], errors: Array | None = None) -> None:
    off = facts.INTERVAL * (np.zeros_like(components) if errors is None else errors)
    shown = min(len(components), PANELS)
    most = min(components.shape[1], BARS)
    across = min(shown, 2)
    down = -(-shown // across)
    tall = 0.5 + down * (0.19 * most + 0.55)
    fig.set_size_inches(style.SINGLE[0], max(style.SINGLE[1], tall))
    panels = fig.subplots(down, across, squeeze=False, sharex=True).ravel()
    reached = np.abs(components[:shown]) + off[:shown]
    reach = float(np.minimum(reached, _FARTHEST).max())
    for j, (ax, row) in enumerate(zip(panels, components[:shown], strict=False)):
        draw_component(ax, row, names, f"Component {j + 1}", reach=reach, half_widths=off[j])
    for ax in panels[shown:]:
        ax.set_axis_off()
    words = "weight"
    if most < components.shape[1]:
        words = f"weight of the {most} heaviest of {components.shape[1]:,} columns"
    if errors is not None:
        words += "; whiskers hold 95 %"
    fig.supxlabel(words, fontsize=9.5, color=style.INK)


def draw_component(
    ax: style.Axes, row: Array, names: list[str], title: str, *, reach: float, half_widths: Array | None = None
) -> None:
    """Draw bars for the columns with the largest weights in one component, with whiskers of these half widths."""
    order = labels.largest_positions(row, BARS)
    colors = np.where(row[order] > 0, style.PLUS, style.MINUS).tolist()
    ax.barh(range(len(order)), row[order], height=0.7, color=colors)
    if half_widths is not None and half_widths.any():
        places, errors = range(len(order)), half_widths[order]
        ax.errorbar(row[order], places, xerr=errors, fmt="none", ecolor=style.INK, elinewidth=1.2)
    ax.axvline(0.0, color=style.FAINT, lw=0.8)
    style.label_axes(ax, "", "", "", grid="x")
    ax.set_title(title, loc="right", fontsize=10, color=style.INK, pad=6)
    style.name_ticks(ax, [names[j] for j in order])
    ax.set_xlim(-1.08 * reach, 1.08 * reach)
    ax.tick_params(axis="y", labelsize=8.5)
    mark = float(f"{0.7 * reach:.0e}")
    ax.set_xticks([-mark, 0.0, mark], [f"{-mark:g}", "0", f"{mark:g}"])


def draw_explained(fig: style.Figure, result: PCAResult) -> None:
    """Draw, for each component, a bar for the share between sites and a bar for each explaining column."""
    shares = result.shares_by_name
    ax, count, k = fig.subplots(), len(shares), result.n_components_
    width = 0.8 / count
    places = np.arange(1.0, k + 1) - 0.4 + width / 2.0
    for j, ((name, share), color) in enumerate(zip(shares.items(), style.curve_colors(count), strict=True)):
        ax.bar(places + j * width, share, 0.92 * width, color=color, label=style.displayable_name(name))
    ax.set_ylim(0.0, max(1.12 * max(float(share.max()) for share in shares.values()), 0.05))
    style.show_percent(ax)
    style.number_ticks(ax, k)
    style.label_axes(ax, "What explains each component", "component", "share of its variance")
    style.legend_below(fig, ncols=3)


_GUIDES: Final = (0.5, 0.8, 0.9, 0.95, 0.99)  # shares for which a picture gives the number of components
_LABELED_BARS: Final = 8  # maximum number of bars that are labeled with their values


def draw_scree(fig: style.Figure, result: PCAResult) -> None:
    """Draw a bar for the variance share of each component. If variances are noisy, show bounds on the share."""
    ax, known = fig.subplots(), result.certainty
    ratio = result.explained_variance_ratio_
    bars = _draw_bars(ax, result)
    if known is None and result.variance_errors_ is None and len(ratio) <= _LABELED_BARS:
        ax.bar_label(bars, [f"{r:.1%}" for r in ratio], padding=2, fontsize=9, color=style.INK)
    top = float((ratio + _half_widths(result) if known is None else known.shares).max())
    ax.set_ylim(0.0, 1.12 * max(top, 1e-3))
    style.show_percent(ax)
    style.number_ticks(ax, len(ratio))
    below = _draw_next_component(ax, result) if known is None and result.is_pooled else "component"
    if result.variance_errors_ is not None:
        below += "\nwhiskers hold 95 %"
    if result.noise_thresholds_ is not None:
        below += "\nthe dashed line is what noise alone would give"
    style.label_axes(ax, "Variance of each component", below, _share_of(result))


def draw_cumulative(fig: style.Figure, result: PCAResult) -> None:
    """Draw the cumulative variance share, and where it reaches the shares in `_GUIDES`. Draw bounds under noise."""
    ax, known = fig.subplots(), result.certainty
    together = result.explained_variance_ratio_.cumsum()
    number = np.arange(1, len(together) + 1)
    size, below = style.mark_size(len(together), 4.5, 0.0), "components"
    ax.plot(number, together, color=style.COLORS[0], lw=1.8, marker="o", ms=size, clip_on=False)
    if known is None:
        passed = _components_at_marks(together)
        ax.fill_between(number, together, color=style.BAR, alpha=0.25, lw=0)
        for first in passed.values():
            height = together[first - 1]
            ax.plot([first, first], [0.0, height], color=style.FAINT, lw=0.8, ls=(0, (3, 3)))
        words = [f"{guide:.0%} with {first}" for guide, first in passed.items()]
        lines = [",  ".join(words[j : j + 3]) for j in range(0, len(words), 3)]
        below = "\n".join([below, *lines])
        _label_total(ax, together)
    else:
        _draw_band(ax, known)
        below += "\nthe band shows the possible range under noise"
    _finish_axes(ax, result, "Variance of the first components together", below)


def draw_single_and_cumulative(ax: style.Axes, result: PCAResult) -> None:
    """Draw single and cumulative variance shares together, for the overview. If variances are noisy, draw bounds."""
    ratio, known, below = result.explained_variance_ratio_, result.certainty, "component"
    number = np.arange(1, len(ratio) + 1)
    _draw_bars(ax, result)
    size = style.mark_size(len(ratio), 4.5, 0.0)
    ax.plot(number, ratio.cumsum(), color=style.COLORS[0], lw=1.8, marker="o", ms=size)
    if known is None:
        _label_total(ax, ratio.cumsum())
    else:
        _draw_band(ax, known)
        below += "; bands and whiskers show the possible range under noise"
    _finish_axes(ax, result, "Variance, each and together", below)


def _finish_axes(ax: style.Axes, result: PCAResult, title: str, below: str) -> None:
    """Label the axes, and scale them from 0 to the total variance and over all components."""
    ax.set(ylim=(0.0, 1.12), yticks=np.linspace(0.0, 1.0, 5))
    style.show_percent(ax)
    style.number_ticks(ax, result.n_components_)
    style.label_axes(ax, title, below, _share_of(result))


def _share_of(result: PCAResult) -> str:
    """Return the label of an axis that shows shares of the variance."""
    if result.variance_of == PCAResult.variance_of:
        return "share of the total variance"
    return f"share of {result.variance_of}"


def _draw_next_component(ax: style.Axes, result: PCAResult) -> str:
    """Draw the possible range of the next component's variance, and return the label of the x axis.

    The variance of the next component is at least the mean variance of the directions outside the components. It is at
    most the variance of the last component, and at most the sum of the variances outside the components.
    """
    k, least = result.n_components_, result.noise_variance_
    most = min(float(result.explained_variance_[-1]), result.left_out_variance_)
    if not 0.0 < least <= most:
        return "component"
    ends = np.array([least, most]) / result.total_variance_
    ax.plot([k + 1, k + 1], ends, color=style.FAINT, marker="_", lw=1.5)
    ax.set_xlim(0.35, k + 1.65)
    return f"component; component {k + 1} is somewhere on the line"


def _draw_bars(ax: style.Axes, result: PCAResult) -> Any:
    """Draw a bar for the variance share of each component, with bounds if variances are noisy."""
    ratio, known = result.explained_variance_ratio_, result.certainty
    number = np.arange(1, len(ratio) + 1)
    width = style.mark_size(len(ratio), 0.62, 0.9)
    bars = ax.bar(number, ratio, width=width, color=style.BAR)
    if result.variance_errors_ is not None:
        ax.errorbar(number, ratio, _half_widths(result), fmt="none", ecolor=style.INK, elinewidth=1.2, capsize=3)
    if known is not None:
        off = np.clip(np.abs(known.shares - ratio[:, None]), 0.0, 1.0).T
        ax.errorbar(number, ratio, off, fmt="none", ecolor=style.INK, elinewidth=1.2, capsize=3)
    if (noise := result.noise_thresholds_) is not None:
        x = np.arange(1, len(noise) + 1)
        reached = noise / (result.total_variance_ or 1.0)
        ax.plot(x, reached, color=style.INK, lw=1.2, ls=(0, (4, 3)), marker="_")
    return bars


def _half_widths(result: PCAResult) -> Array:
    """Return the half-width of the 95 % interval of each component's variance, as a share of the total variance."""
    if result.variance_errors_ is None:
        return np.zeros(result.n_components_)
    return np.asarray(facts.INTERVAL * result.variance_errors_ / (result.total_variance_ or 1.0))


def _draw_band(ax: style.Axes, certainty: Certainty) -> None:
    """Draw a band between the bounds on the cumulative variance share."""
    bounds = certainty.together
    places = np.arange(1.0, len(certainty.together) + 1)
    if len(bounds) == 1:
        bounds, places = bounds.repeat(2, axis=0), np.array([0.8, 1.2])
    ax.fill_between(places, *bounds.T, color=style.BAR, alpha=0.25, lw=0)


def _components_at_marks(together: np.ndarray[Any, Any]) -> dict[float, int]:
    """Return the number of components by share in `_GUIDES`. If shares need the same number, keep the largest share."""
    passed = [guide for guide in _GUIDES if guide <= together[-1]]
    first = {guide: int(np.searchsorted(together, guide)) + 1 for guide in passed}
    return {guide: count for guide, count in first.items() if count not in [first[g] for g in first if g > guide]}


def _label_total(ax: style.Axes, together: np.ndarray[Any, Any]) -> None:
    ax.annotate(
        f"{together[-1]:.1%}",
        (len(together), together[-1]),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center" if len(together) <= 3 else "right",
        fontsize=9,
        color=style.COLORS[0],
        fontweight="bold",
    )
