"""The table of all pictures by name: how to draw and read each, the kind of its result, and its requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from flower_pca.plots import clients, course, personal, robust, scores, tracking, variances
from flower_pca.plots.needs import (
    APART,
    BY_COLUMN,
    COLUMNS,
    COURSE,
    EXPLAINED,
    MANY,
    OUTLIERS,
    PARTS,
    ROWS,
    SCORES,
    SHARES,
    SPACES,
    STATISTICS,
    TAKEN,
    WHOLE,
    Requirement,
    Result,
)
from flower_pca.results.pca import PCAResult
from flower_pca.results.personal import PersonalResult
from flower_pca.results.robust import RobustResult
from flower_pca.results.steps import TrackingResult


@dataclass(frozen=True)
class Picture:
    """A picture: its drawing function, its captions, the kind of result it belongs to, and its requirement.

    `draw` takes an empty figure and the result, and the rows of the clients if the picture uses `rows`. `at_once` is
    the caption for a run that does not iterate, `noisy` the one for a run with differential privacy.
    """

    draw: Callable[..., None]
    caption: str
    at_once: str = ""
    noisy: str = ""
    of: type[Any] = PCAResult
    need: Requirement | None = None

    @property
    def rows(self) -> bool:
        """Whether the picture uses the rows of the clients."""
        return self.need in (ROWS, WHOLE, APART, SCORES, BY_COLUMN, PARTS, SHARES, TAKEN)

    def words(self, result: Result) -> str:
        """Return the caption for this result."""
        if self.noisy and getattr(result, "privacy", None) is not None:
            return self.noisy
        if course.iterates(result.history):
            return self.caption
        return self.at_once or self.caption


PICTURES: Final[dict[str, Picture]] = {
    "scree": Picture(
        variances.scree, "How much of the variance lies along each component.",
        noisy="How much of the total variance may lie along each component: anything between the ends of the line.",
    ),
    "cumulative": Picture(
        variances.cumulative, "How much the first components explain together, and how many a given share needs.",
        noisy="How much the first components may explain together: anything within the band.",
    ),
    "loadings": Picture(
        variances.bars,
        "The columns with the largest weights in each component. Blue weights are positive, orange weights negative.",
        need=COLUMNS,
    ),
    "weights": Picture(variances.heatmap, "The weight of every column in each component.", need=MANY),
    "scores": Picture(
        scores.scores,
        "Every point is a row in the common components, in the color of its client. Arrows show in which direction a "
        "column increases.",
        need=SCORES,
    ),
    "scores_by_column": Picture(
        scores.by_column,
        "The same points, in the colors of the columns that the run explains by, adjusts by or keeps.",
        need=BY_COLUMN,
    ),
    "explained": Picture(
        variances.explained,
        "How much of each component's variance lies between sites, and how much the named columns explain.",
        need=EXPLAINED,
    ),
    "means": Picture(
        clients.means,
        "How far a client's mean of a column lies from the mean of all rows, in standard deviations of all rows.",
        need=APART,
    ),
    "errors": Picture(
        clients.errors, "What the components do not explain of a row, as a mean over each client's rows.", need=WHOLE
    ),
    "outlier_share": Picture(
        robust.outlier_share,
        "The share of each column's entries that were furthest off, at all clients.",
        of=RobustResult,
    ),
    "removed_by_column": Picture(
        robust.by_column, "How many entries of each column were corrected.", of=RobustResult
    ),
    "taken_by_client": Picture(
        robust.by_client, "How many entries of each client were corrected.", of=RobustResult, need=TAKEN
    ),
    "removed": Picture(
        robust.where, "In which columns entries were corrected, client by client.", of=RobustResult, need=PARTS
    ),
    "sizes": Picture(
        robust.sizes, "How large an entry of the low-rank and of the sparse part is.", of=RobustResult, need=PARTS
    ),
    "split": Picture(
        personal.split, "How much of each row lies along shared components, along own components, and along neither.",
        of=PersonalResult, need=SHARES,
    ),
    "local_errors": Picture(
        personal.errors, "The part of a row that is not explained, without a client's own components and with them.",
        of=PersonalResult, need=SHARES,
    ),
    "local_components": Picture(
        personal.own_first, "The weights of the columns in the first own component of each client.",
        of=PersonalResult, need=SPACES,
    ),
    "own_distances": Picture(
        personal.between, "How far apart the own components of two clients are.", of=PersonalResult, need=SPACES
    ),
    "local_map": Picture(
        personal.plane, "Clients that lie close together have own components that are alike.",
        of=PersonalResult, need=SPACES,
    ),
    "subspace_change": Picture(
        tracking.alone(tracking.movement_panel),
        "How far the subspace turns from one step to the next.",
        of=TrackingResult,
    ),
    "fit": Picture(
        tracking.alone(tracking.fit_panel), "What the previous basis does not explain of a batch.", of=TrackingResult
    ),
    "statistic": Picture(
        tracking.alone(tracking.statistic), "How much of a batch lies outside the previous basis. Changes show here.",
        of=TrackingResult, need=STATISTICS,
    ),
    "step_sizes": Picture(
        tracking.sizes, "How large the rows of each step are along each component.", of=TrackingResult
    ),
    "outliers": Picture(
        tracking.outliers, "How many entries of each step were outliers.", of=TrackingResult, need=OUTLIERS
    ),
    "last_loadings": Picture(
        variances.last, "The columns with the largest weights in the basis of the last step.", of=TrackingResult
    ),
    "convergence": Picture(
        course.convergence,
        "The error of the run after each message to the clients.",
        "How far each component is from an exact one, as a share of the first variance: an exact one is at zero.",
        noisy="The error after each message as the run measures it, which includes the noise.",
        need=COURSE,
    ),
    "bytes": Picture(
        course.sizes,
        "The same error, against what all clients have sent and received by then.",
        "What all clients together have sent and received in each message.",
        noisy="The same error, against what all clients have sent and received by then.",
    ),
}  # fmt: skip
