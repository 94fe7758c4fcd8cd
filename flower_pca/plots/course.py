"""The course of a run, and the overview of a result.

The course of a run is its error as a function of the messages or bytes sent. The overview shows the variances, the
leading components and the course next to each other.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from flower_pca.base import labels
from flower_pca.base.history import History
from flower_pca.plots import style, tracking, variances
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

# These are the units of bytes, largest first.
_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def has_curve(history: History) -> bool:
    """Return whether the run has measured its error more than once, so that there is a curve to draw."""
    return sum("error" in record.metrics for record in history) > 1


def draw_convergence(fig: style.Figure, result: PCAResult) -> None:
    """Draw the error after each message. If the run does not iterate, draw the residuals of its components."""
    draw_convergence_into(fig.subplots(), result)


def draw_convergence_into(ax: style.Axes, result: PCAResult) -> None:
    """Draw the picture `convergence` into existing axes."""
    if not has_curve(result.history):
        # Without residuals, this picture is not available, but the overview needs a panel, so bytes are drawn.
        if result.residuals_ is None:
            _draw_bytes(ax, result.history)
        else:
            _draw_residuals(ax, result.residuals_)
        return
    _draw_curve(ax, result.history, np.arange(1.0, len(result.history) + 1.0))
    ax.set_xlim(0.4, len(result.history) + 0.6)
    ax.xaxis.set_major_locator(style.integer_locator())
    style.label_axes(ax, "Convergence", "message", "error, as the run measures it")
    if len(result.history.of("opening")) > 1:
        style.legend(ax)


def draw_bytes(fig: style.Figure, result: PCAResult) -> None:
    """Draw the error against the bytes sent so far. If the run does not iterate, draw the bytes of each message."""
    ax, history = fig.subplots(), result.history
    sent = np.cumsum([record.bytes_up + record.bytes_down for record in history], dtype=float)
    if not has_curve(history):
        _draw_bytes(ax, history)
        return
    size, unit = _unit_of_bytes(sent[-1])
    _draw_curve(ax, history, sent / size)
    ax.set_xlim(0.0, 1.04 * sent[-1] / size)
    style.label_axes(
        ax, "Convergence against bytes", f"{unit} sent so far, by all, both ways", "error, as the run measures it"
    )
    if len(history.of("opening")) > 1:
        style.legend(ax)


def _draw_curve(ax: style.Axes, history: History, sizes: np.ndarray[Any, Any]) -> None:
    numbered = enumerate(history)
    measured = np.array([i for i, record in numbered if "error" in record.metrics])
    errors = [history[i].metrics["error"] for i in measured]
    error = np.maximum(errors, style.FLOOR)
    reopened = [i for i, record in enumerate(history) if record.stage == "opening"][1:]
    style.draw_events(ax, sizes[reopened], "clients changed")
    size = style.mark_size(len(measured), 4.5, 2.5)
    # The curve is interrupted where the run starts again with a new opening.
    for part in np.split(np.arange(len(measured)), np.searchsorted(measured, reopened)):
        x, color = sizes[measured[part]], style.COLORS[0]
        style.log_curve(ax, x, error[part], color=color, size=size, width=1.8)
    style.limit_to_decades(ax, error)


def _draw_residuals(ax: style.Axes, residuals: np.ndarray[Any, Any]) -> None:
    number = np.arange(1, len(residuals) + 1)
    residual = np.maximum(residuals, style.FLOOR)
    size = style.mark_size(len(number), 6, 3)
    ax.semilogy(number, residual, color=style.COLORS[0], lw=0, marker="o", ms=size)
    style.limit_to_decades(ax, residual)
    style.number_ticks(ax, len(number))
    style.label_axes(ax, "Residuals", "component", "true residual / first eigenvalue")


def _draw_bytes(ax: style.Axes, history: History) -> None:
    number = np.arange(1, len(history) + 1)
    down = np.array([record.bytes_down for record in history], dtype=float)
    up = np.array([record.bytes_up for record in history], dtype=float)
    size, unit = _unit_of_bytes(max(float((up + down).max()), 1.0))
    ax.bar(number, up / size, width=0.62, color=style.COLORS[0], label="up")
    bottom = up / size
    ax.bar(number, down / size, width=0.62, bottom=bottom, color=style.BAR, label="down")
    style.number_ticks(ax, len(number))
    style.label_axes(ax, "Bytes of each message", "message", f"{unit}, all clients together")
    style.legend(ax)


def _unit_of_bytes(largest: float) -> tuple[float, str]:
    return next((size, unit) for size, unit in _UNITS if largest >= size)


class ComparedRun(Protocol):
    """The course of one algorithm's run, as `flower_pca.comparison.compare` returns it."""

    @property
    def algorithm(self) -> str:
        """The spec string of the algorithm."""

    @property
    def messages(self) -> tuple[int, ...]:
        """The numbers of the messages after which the angle was computed."""

    @property
    def bytes(self) -> tuple[int, ...]:
        """The bytes sent and received up to these messages."""

    @property
    def angles(self) -> tuple[float, ...]:
        """The angles to the pooled components after these messages, in radians."""


def draw_comparison(courses: Sequence[ComparedRun], path: str | os.PathLike[str]) -> Path:
    """Draw the courses of several algorithms into an SVG or PNG file, depending on the suffix of the path."""
    from matplotlib.ticker import EngFormatter

    style.suffix(path)
    figure = style.new_figure((9.6, 3.9))
    left, right = figure.subplots(1, 2, sharey=True)
    # With many curves, colors are similar, so dashes help to distinguish the curves.
    dashes = itertools.cycle(("-", "--", ":") if len(courses) > len(style.COLORS) else ("-",))
    every = [np.maximum(np.array(course.angles), style.FLOOR) for course in courses]
    for course, angles, color, dash in zip(courses, every, style.curve_colors(len(courses)), dashes, strict=False):
        size = style.mark_size(len(angles), 4.0, 0.0)
        for ax, place in ((left, course.messages), (right, course.bytes)):
            style.log_curve(ax, place, angles, color=color, size=size, label=course.algorithm, width=1.7, dash=dash)
    style.limit_to_decades(left, np.concatenate(every))
    for ax in (left, right):
        ax.set_xscale("log")
    left.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
    right.xaxis.set_major_formatter(EngFormatter("B"))
    style.label_axes(left, "Error against messages", "message", "angle to the pooled answer (radians)")
    style.label_axes(right, "Error against bytes", "sent so far, by all, both ways", "")
    style.legend_below(figure, ncols=5)
    return style.save(figure, path)


_SIZE: Final = (13.0, 4.0)  # size of the overview in inches
_PANELS: Final = 2  # number of components whose weights the overview shows


def overview_figure(result: PCAResult | TrackingResult) -> style.Figure:
    """Return the overview: variances, leading components and course of a run, or the curves of a tracking run."""
    if isinstance(result, TrackingResult):
        drawn = tracking.overview(result)
        style.legend_below(drawn, ncols=4)
        return drawn
    drawn = style.new_figure(_SIZE)
    shown = result.components_[: _PANELS if result.n_features_in_ else 0]
    middle = [1.3 / max(len(shown), 1)] * len(shown)
    axes = drawn.subplots(1, 2 + len(shown), width_ratios=(1.0, *middle, 1.0))
    variances.draw_single_and_cumulative(axes[0], result)
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    reach = float(np.abs(shown).max(initial=0.0))
    for j, row in enumerate(shown):
        variances.draw_component(axes[1 + j], row, names, f"Weights in component {j + 1}", reach=reach)
    draw_convergence_into(axes[-1], result)
    drawn.suptitle(result.summary().title, x=0.012, ha="left", fontsize=12, fontweight="bold", color=style.INK)
    return drawn
