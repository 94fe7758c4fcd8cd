"""The variances, the leading components and the course of a run, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.plots import course, loadings, style, tracking, variances
from flower_pca.results.pca import PCAResult
from flower_pca.results.steps import TrackingResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE: Final = (13.0, 4.0)
_PANELS: Final = 2  # components with bars of their own


def figure(result: PCAResult | TrackingResult) -> Figure:
    """Pictures under a line that sums up the run: variances, leading components, course; of steps, their curves."""
    if isinstance(result, TrackingResult):
        drawn = tracking.overview(result)
        style.key(drawn, ncols=4)
        return drawn
    drawn, shown = style.figure(_SIZE), result.components_[: _PANELS if result.n_features_in_ else 0]
    axes = drawn.subplots(1, 2 + len(shown), width_ratios=(1.0, *[1.3 / max(len(shown), 1)] * len(shown), 1.0))
    variances.both(axes[0], result)
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    reach = float(np.abs(shown).max(initial=0.0))
    for j, row in enumerate(shown):
        loadings.one(axes[1 + j], row, names, f"Weights in component {j + 1}", reach=reach)
    course.along(axes[-1], result)
    drawn.suptitle(summary(result), x=0.012, ha="left", fontsize=12, fontweight="bold", color=style.INK)
    return drawn


def summary(result: PCAResult | TrackingResult) -> str:
    """One line: what was found, by what, and how it ended."""
    if isinstance(result, TrackingResult):
        return tracking.summary(result)
    what = labels.count(result.n_components_, "component")
    ended = f"{result.status.outcome.value.replace('_', ' ')} after {labels.count(len(result.history), 'message')}"
    return f"{what} of {result.dimensions}  ·  {result.algorithm}  ·  {ended}"
