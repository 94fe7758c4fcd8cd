"""A picture of a run of steps: how the subspace moves, what the old one left of a batch, and where it changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from flower_pca.base import archive
from flower_pca.base.linalg import Array
from flower_pca.plots import style
from flower_pca.tracking.result import TrackingResult


def movement(result: TrackingResult, path: str | os.PathLike[str], *, truth: Array | None = None) -> Path:
    """Draw movement and residual over the steps, and the error against the truth if it is given, into an SVG or PNG.

    Args:
        result: What `track` has returned, or `TrackingResult.load` has read.
        path: The file to write. Either the whole new picture is there afterwards, or the old file untouched.
        truth: True components as rows, (steps, r, d), or (r, d) for all steps.

    Raises:
        ConfigError: If matplotlib is not installed.
    """
    kind, figure = style.suffix(path), style.figure((13.0, 4.0))
    left, right = figure.subplots(1, 2)
    steps = np.arange(result.steps)
    curves = {"movement from step to step": (steps[1:], result.movement_[1:])}
    if truth is not None:
        curves = {"error against the truth": (steps, result.subspace_error(truth)), **curves}
    if result.statistics_:
        known = np.array(sorted(result.statistics_))
        statistic = np.array([result.statistics_[int(j)] for j in known])
        right.semilogy(
            known, np.maximum(statistic, style.FLOOR), ".-", color=style.COLOURS[1], label="statistic of a change"
        )
    for (label, (x, y)), colour in zip(curves.items(), style.COLOURS, strict=False):
        left.semilogy(x, np.maximum(y, style.FLOOR), ".-", color=colour, label=label)
    shown = np.maximum(result.residuals_, style.FLOOR)
    right.semilogy(steps, shown, ".-", color=style.COLOURS[2], label="part of a batch that the old basis leaves")
    for ax, what in ((left, "sine of the largest angle"), (right, "relative norm; squared units of the data")):
        for step in result.changes_:
            ax.axvline(step, color=style.INK, lw=0.8, ls=":", label="change" if step == result.changes_[0] else None)
        ax.set(xlabel="step")
        ax.set_title(what, fontsize=9)
        ax.grid(color=style.GRID)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{result.steps} steps, {result.n_components_} components of {result.n_features_in_} columns  ·  "
        f"{result.algorithm}",
        x=0.012,
        ha="left",
        fontsize=12,
        fontweight="bold",
        color=style.INK,
    )
    with archive.replacing(path) as file:
        style.write(figure, file, kind)
    return Path(path)
