"""Pictures of a tracking run: how much the subspace moves, how well it fits, and at which steps it changes.

Examples
--------
>>> import numpy as np
>>> from flower_pca import track
>>> from flower_pca.plots import tracking
>>> rng = np.random.default_rng(0)
>>> streams = [rng.standard_normal((90, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
>>> result = track("st_miss", streams, batch=30, n_components=2)
>>> tracking.subspace_change(result, "change.svg").name
'change.svg'
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.plots import style
from flower_pca.results.steps import TrackingResult


def subspace_change(result: TrackingResult, path: str | os.PathLike[str], *, truth: Array | None = None) -> Path:
    """Draw the subspace change, the residual and the change statistic over the steps into an SVG or PNG file.

    Parameters
    ----------
    result : TrackingResult
        The result of a tracking run.
    path : str or path
        The file to write. An old file is replaced only when the new picture is complete.
    truth : ndarray of shape (steps, r, d) or None, default=None
        The true components of each step as rows, or (r, d) for all steps. If they are given, the error is drawn, too.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.
    """
    style.suffix(path)
    drawn = overview(result)
    if truth is not None:
        _draw_curve(drawn.axes[0], _step_numbers(result), result.subspace_error(truth), 3, "error against the truth")
    style.legend_below(drawn, ncols=4)
    return style.save(drawn, path)


def overview(result: TrackingResult) -> style.Figure:
    """Return a figure with the curves next to each other under a headline, without a legend."""
    panels = [movement_panel, fit_panel, *([draw_statistic] if result.statistics_ else [])]
    drawn = style.new_figure((5.0 * len(panels), 4.2))
    for ax, panel in zip(drawn.subplots(1, len(panels)), panels, strict=True):
        panel(ax, result)
    drawn.suptitle(result.summary().title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=style.INK)
    return drawn


def as_own_picture(
    panel: Callable[[style.Axes, TrackingResult], None],
) -> Callable[[style.Figure, TrackingResult], None]:
    """Return a function that draws this panel as a separate picture."""

    def draw(fig: style.Figure, result: TrackingResult) -> None:
        panel(fig.subplots(), result)
        if len(result.changes_):
            style.legend_below(fig)

    return draw


def movement_panel(ax: style.Axes, result: TrackingResult) -> None:
    """Draw, for each step, the sine of the largest angle between its basis and the previous basis."""
    _draw_curve(ax, _step_numbers(result)[1:], result.subspace_change_[1:], 0, "movement from step to step")
    _label_steps(ax, result, "Movement of the subspace", "sine of the largest angle")


def fit_panel(ax: style.Axes, result: TrackingResult) -> None:
    """Draw, for each step, the relative residual of its batch after a fit in the previous basis."""
    _draw_curve(ax, _step_numbers(result), result.residuals_, 2, "part of a batch that the old basis leaves")
    _label_steps(ax, result, "What the old basis leaves of a batch", "relative norm")


def draw_statistic(ax: style.Axes, result: TrackingResult) -> None:
    """Draw the change statistic and the alarm level, for the steps in which they are known."""
    known = np.array(sorted(result.statistics_))
    values = np.array([result.statistics_[int(j)] for j in known])
    _draw_curve(ax, known, values, 1, "statistic of a change")
    if result.levels_:
        steps, levels = zip(*sorted(result.levels_.items()), strict=True)
        ax.semilogy(steps, np.maximum(levels, style.FLOOR), color=style.FAINT, lw=1.2, label="level of an alarm")
    _label_steps(ax, result, "Statistic of a change", "squared units of the data")


def draw_variances(fig: style.Figure, result: TrackingResult) -> None:
    """Draw the mean square of a batch along each component, for steps with enough rows."""
    ax, steps = fig.subplots(), _step_numbers(result)
    values = result.values_ / np.maximum(result.rows_, 1)[:, None]
    size = style.mark_size(result.steps, 4.0, 2.0)
    for j, color in enumerate(style.curve_colors(result.n_components_)):
        known = values[:, j] > 0.0
        words = f"component {j + 1}"
        style.log_curve(ax, steps[known], values[known, j], color=color, size=size, label=words)
    _label_steps(ax, result, "Size along the components", "mean square of a row", label=False)
    style.legend_below(fig, ncols=3)


def draw_outliers(fig: style.Figure, result: TrackingResult) -> None:
    """Draw the number of entries of each step that count as outliers."""
    ax = fig.subplots()
    ax.bar(_step_numbers(result), result.outliers_, width=0.7, color=style.MINUS)
    _label_steps(ax, result, "Entries taken for outliers", "entries of a batch", label=False)


def _draw_curve(ax: style.Axes, x: Array, y: Array, color: int, label: str) -> None:
    size = style.mark_size(len(x), 4.0, 2.0)
    heights = np.maximum(y, style.FLOOR)
    style.log_curve(ax, x, heights, color=style.COLORS[color], size=size, label=label)


def _label_steps(ax: style.Axes, result: TrackingResult, title: str, words: str, *, label: bool = True) -> None:
    style.draw_events(ax, result.changes_, "change" if label else None)
    style.label_axes(ax, title, "step", words)
    ax.set_xlim(result.first_ - 0.6, result.first_ + result.steps - 0.4)
    ax.xaxis.set_major_locator(style.integer_locator())


def _step_numbers(result: TrackingResult) -> Array:
    return result.first_ + np.arange(result.steps)
