"""The requirements of pictures, such as the rows of the clients, and the texts of errors if they are not met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from flower_pca.analysis import groups
from flower_pca.plots import course, scores, variances
from flower_pca.results.pca import PCAResult
from flower_pca.results.site import can_score_sites
from flower_pca.results.steps import TrackingResult

Result: TypeAlias = PCAResult | TrackingResult
Shards: TypeAlias = Sequence[Any] | None


@dataclass(frozen=True)
class Requirement:
    """A requirement of a picture: a test on a result and rows, and the two parts of the error if the test fails."""

    met: Callable[[Any, Shards], bool]
    wants: str
    remedy: str


ROWS: Final = Requirement(
    lambda result, shards: shards is not None and can_score_sites(result, len(shards)),
    "needs the rows of the clients",
    "Add shards=[...].",
)
# After a run over columns, each party has different columns of the same rows, so whole rows are not available.
WHOLE: Final = Requirement(
    lambda result, shards: ROWS.met(result, shards) and result.config.get("partitioned_by") != "columns",
    "needs the rows of the clients, with the same columns at all of them",
    'Add shards=[...]. After a run with partitioned_by="columns", draw "scores" instead.',
)
SCORES: Final = replace(
    ROWS, met=lambda result, shards: ROWS.met(result, shards) or scores.scores_in_result(result) is not None
)
PARTS: Final = Requirement(
    lambda result, shards: shards is not None or bool(result.local),
    "needs the rows of the clients, or the result of a simulation that has just been run",
    "Add shards=[...].",
)
TAKEN: Final = replace(PARTS, met=lambda result, shards: PARTS.met(result, shards) or result.clients_ is not None)
SPACES: Final = Requirement(
    lambda result, shards: len(groups.local_bases(result)[0]) > 1,
    "needs the local components of at least two clients",
    "Draw the picture from the result of a simulation, before the result is saved.",
)
SHARES: Final = Requirement(
    lambda result, shards: bool(groups.clients_with_rows(result, shards)),
    "needs the rows and the local components of the clients",
    "Draw the picture from the result of a simulation, and add shards=[...].",
)
COURSE: Final = Requirement(
    lambda result, shards: course.has_curve(result.history) or result.residuals_ is not None,
    "needs a run that iterates, or an algorithm that computes the PCA of all rows",
    'Draw "bytes" instead.',
)
COLUMNS: Final = Requirement(
    lambda result, shards: result.n_features_in_ > 0, "needs a result with loadings", 'Draw "scree" instead.'
)
APART: Final = replace(
    WHOLE,
    met=lambda result, shards: WHOLE.met(result, shards) and not result.is_by_site,
    wants="needs the rows of the clients, and a run that did not remove site effects",
)
BY_COLUMN: Final = Requirement(
    lambda result, shards: (
        ROWS.met(result, shards) and result.n_components_ > 1 and bool(scores.coloring_columns(result, shards or ()))
    ),
    "needs the rows of the clients, with a column of explain, adjust or keep",
    'Run again with explain="age", for example, and add shards=[...] with this column.',
)
EXPLAINED: Final = Requirement(
    lambda result, shards: bool(result.shares_by_name),
    "needs a run with explain",
    'Run again with explain="age", for example.',
)
MANY: Final = Requirement(
    lambda result, shards: result.n_features_in_ > 0 and not variances.has_room_for_bars(result),
    'is drawn only if there are too many weights for "loadings"',
    'Draw "loadings".',
)
STATISTICS: Final = Requirement(
    lambda result, shards: bool(result.statistics_),
    "needs a run with detect=True",
    'Track again with "st_miss(detect=True)", for example.',
)
OUTLIERS: Final = Requirement(
    lambda result, shards: bool(result.outliers_.any()), "needs a run with outliers", 'Draw "subspace_change" instead.'
)
