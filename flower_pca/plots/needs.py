"""What a picture cannot do without, such as the rows of the clients, and the error if it is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from flower_pca.analysis import groups
from flower_pca.plots import course, scores, variances
from flower_pca.results.pca import PCAResult
from flower_pca.results.site import knows_sites
from flower_pca.results.steps import TrackingResult

Result: TypeAlias = PCAResult | TrackingResult
Shards: TypeAlias = Sequence[Any] | None


@dataclass(frozen=True)
class Requirement:
    """What a picture cannot do without: whether it is there, of a result and rows, and the words where it is not."""

    there: Callable[[Any, Shards], bool]
    rule: str
    got: str
    remedy: str


ROWS: Final = Requirement(
    lambda result, shards: shards is not None and knows_sites(result, len(shards)),
    "given the clients' rows",
    "no shards",
    "Add shards=[...].",
)
# parties have other columns of the same rows each
WHOLE: Final = Requirement(
    lambda result, shards: ROWS.there(result, shards) and result.config.get("partitioned_by") != "columns",
    "given the clients' rows, of the same columns at all",
    "others",
    "Add shards=[...], or draw scores.",
)
SCORES: Final = replace(
    ROWS, there=lambda result, shards: ROWS.there(result, shards) or scores.own_scores(result) is not None
)
PARTS: Final = Requirement(
    lambda result, shards: shards is not None or bool(result.local),
    "given the clients' rows, or of a simulation that has just been run",
    "neither",
    "Add shards=[...].",
)
TAKEN: Final = replace(PARTS, there=lambda result, shards: PARTS.there(result, shards) or result.clients_ is not None)
SPACES: Final = Requirement(
    lambda result, shards: len(groups.spaces(result)[0]) > 1,
    "of a run that knows the own components of two clients",
    "one that does not",
    "Draw it from the result of a simulation, before it is saved.",
)
SHARES: Final = Requirement(
    lambda result, shards: bool(groups.clients_at_hand(result, shards)),
    "given the clients' rows, of a run that knows their own components",
    "others",
    "Draw it from the result of a simulation, and add shards=[...].",
)
COURSE: Final = Requirement(
    lambda result, shards: course.iterates(result.history) or result.residuals_ is not None,
    "of a run that iterates, or whose components are those of all rows",
    "one of another kind",
    "Draw bytes.",
)
COLUMNS: Final = Requirement(
    lambda result, shards: result.n_features_in_ > 0, "of a result with loadings", "none", "Ask each party for its own."
)
APART: Final = replace(
    WHOLE,
    there=lambda result, shards: WHOLE.there(result, shards) and not result.is_by_site,
    rule="given the clients' rows, of a run that scores rows of all sites alike",
)
BY_COLUMN: Final = Requirement(
    lambda result, shards: (
        ROWS.there(result, shards) and result.n_components_ > 1 and bool(scores.columns_beside(result, shards or ()))
    ),
    "given the clients' rows, with a column that the run explains by, adjusts by or keeps",
    "others",
    "Run with explain, and add shards=[...] with this column.",
)
EXPLAINED: Final = Requirement(
    lambda result, shards: bool(result.shares_by_name),
    "of a run that knows how much of components lies between sites",
    "another",
    "Run with explain.",
)
MANY: Final = Requirement(
    lambda result, shards: result.n_features_in_ > 0 and not variances.enough(result),
    "of more weights than the bars of the loadings show",
    "fewer",
    "Draw loadings.",
)
STATISTICS: Final = Requirement(
    lambda result, shards: bool(result.statistics_), "of a run that looked for changes", "another", "Set detect=True."
)
OUTLIERS: Final = Requirement(
    lambda result, shards: bool(result.outliers_.any()),
    "of a run with outliers",
    "one without",
    "Draw subspace_change.",
)
