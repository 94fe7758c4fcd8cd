"""The table of all pictures by name, with their drawing functions, captions, kinds of results and requirements."""

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

    `draw` takes an empty figure and the result, and also the rows of the clients if the property `rows` is true.
    `at_once` is the caption for a run that does not iterate, and `noisy` is the caption for a run with differential
    privacy.
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
        if course.has_curve(result.history):
            return self.caption
        return self.at_once or self.caption


PICTURES: Final[dict[str, Picture]] = {
    "scree": Picture(
        variances.draw_scree, "The share of the variance that each component explains.",
        noisy="The share of the total variance that each component may explain: any value within the whiskers.",
    ),
    "cumulative": Picture(
        variances.draw_cumulative,
        "The share that the first components explain together, and how many a given share needs.",
        noisy="The share that the first components may explain together: any value within the band.",
    ),
    "loadings": Picture(
        variances.draw_bars,
        "The columns with the largest weights in each component. Blue weights are positive, orange weights negative.",
        need=COLUMNS,
    ),
    "weights": Picture(variances.draw_heatmap, "The weight of every column in each component.", need=MANY),
    "scores": Picture(
        scores.draw_scores,
        "Every point is a row in the common components, in the color of its client. Arrows show in which direction a "
        "column increases.",
        need=SCORES,
    ),
    "scores_by_column": Picture(
        scores.draw_scores_by_column,
        "The same points, in the colors of the columns that the run explains by, adjusts by or keeps.",
        need=BY_COLUMN,
    ),
    "explained": Picture(
        variances.draw_explained,
        "The share of each component's variance between sites, and the shares that the named columns explain.",
        need=EXPLAINED,
    ),
    "means": Picture(
        clients.column_means,
        "The difference between each client's means and the means of all rows, in standard deviations of all rows.",
        need=APART,
    ),
    "errors": Picture(
        clients.reconstruction_errors,
        "The part of a row that the components do not explain, averaged over each client.", need=WHOLE
    ),
    "outlier_share": Picture(
        robust.outlier_share,
        "The share of each column's entries that are outliers, over all clients.",
        of=RobustResult,
    ),
    "removed_by_column": Picture(
        robust.removed_by_column, "The share of each column's entries that were corrected.", of=RobustResult
    ),
    "taken_by_client": Picture(
        robust.removed_by_client, "The share of each client's entries that were corrected.", of=RobustResult, need=TAKEN
    ),
    "removed": Picture(
        robust.removed_by_column_and_client,
        "The share of corrected entries in each column of each client.", of=RobustResult, need=PARTS
    ),
    "sizes": Picture(
        robust.sizes_of_parts, "The typical size of an entry in each of the two parts.", of=RobustResult, need=PARTS
    ),
    "split": Picture(
        personal.split_of_rows,
        "The shares of rows along the shared components, along own components, and outside both.",
        of=PersonalResult, need=SHARES,
    ),
    "local_errors": Picture(
        personal.errors_with_local,
        "The part of a row that is not explained, without a client's own components and with them.",
        of=PersonalResult, need=SHARES,
    ),
    "local_components": Picture(
        personal.first_local_weights, "The weights of the columns in the first own component of each client.",
        of=PersonalResult, need=SPACES,
    ),
    "own_distances": Picture(
        personal.distance_matrix, "The distances between the own components of clients.", of=PersonalResult, need=SPACES
    ),
    "local_map": Picture(
        personal.distance_plane, "Clients with similar own components are close to each other.",
        of=PersonalResult, need=SPACES,
    ),
    "subspace_change": Picture(
        tracking.as_own_picture(tracking.movement_panel),
        "How far the subspace turns from one step to the next.",
        of=TrackingResult,
    ),
    "fit": Picture(
        tracking.as_own_picture(tracking.fit_panel),
        "The part of a batch that the previous basis does not explain.",
        of=TrackingResult,
    ),
    "statistic": Picture(
        tracking.as_own_picture(tracking.draw_statistic),
        "The part of a batch outside the previous basis. Changes are visible here.",
        of=TrackingResult, need=STATISTICS,
    ),
    "step_sizes": Picture(
        tracking.draw_variances, "The size of the rows of each step along each component.", of=TrackingResult
    ),
    "outliers": Picture(
        tracking.draw_outliers, "The number of outlying entries in each step.", of=TrackingResult, need=OUTLIERS
    ),
    "last_loadings": Picture(
        variances.draw_last_step,
        "The columns with the largest weights in the basis of the last step.", of=TrackingResult
    ),
    "convergence": Picture(
        course.draw_convergence,
        "The error of the run after each message to the clients.",
        "The residual of each component, as a share of the first variance. It is zero for an exact component.",
        noisy="The error after each message as the run measures it, which includes the noise.",
        need=COURSE,
    ),
    "bytes": Picture(
        course.draw_bytes,
        "The same error, against the bytes that all clients have sent and received so far.",
        "The bytes that all clients together have sent and received in each message.",
        noisy="The same error, against the bytes that all clients have sent and received so far.",
    ),
}  # fmt: skip
