"""The variances, the leading components and the course of a run, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flower_pca.core.result import PCAResult
from flower_pca.plots import course, style, variances

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE: Final = (13.0, 4.0)


def figure(result: PCAResult) -> Figure:
    """Three pictures under a line that sums up the run."""
    drawn = style.figure(_SIZE)
    axes = drawn.subplots(1, 3, width_ratios=(1.0, 1.5, 1.0))
    variances.both(axes[0], result)
    variances.loadings(axes[1], result)
    course.convergence(axes[2], result)
    drawn.suptitle(summary(result), x=0.012, ha="left", fontsize=12, fontweight="bold", color=style.INK)
    return drawn


def summary(result: PCAResult) -> str:
    """One line: what was found, by what, and how it ended."""
    what = _count(result.n_components_, "component")
    ended = f"{result.status.outcome.value.replace('_', ' ')} after {_count(len(result.history), 'message')}"
    return f"{what} of {result.n_samples_:,} x {result.n_features_in_:,}  ·  {result.algorithm}  ·  {ended}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
