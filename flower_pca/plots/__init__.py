"""Pictures of a result, by name: what `plot` draws, and what a report shows.

`PICTURES` is the table. A picture is of one kind of result, and may need what only some results
have, or the rows of the clients: `available` says which there are of a result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from flower_pca.analysis import groups
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.plots import clients, course, personal, robust, style, tracking, variances
from flower_pca.results.pca import PCAResult
from flower_pca.results.personal import PersonalResult
from flower_pca.results.robust import RobustResult
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
    lambda result, shards: shards is not None, "given the clients' rows", "no shards", "Add shards=[...]."
)
# parties have other columns of the same rows each
WHOLE: Final = Requirement(
    lambda result, shards: shards is not None and result.asked.get("split") != "columns",
    "given the clients' rows, of the same columns at all",
    "others",
    "Add shards=[...], or draw scores.",
)
SCORES: Final = replace(ROWS, there=lambda result, shards: shards is not None or clients.own_scores(result) is not None)
PARTS: Final = Requirement(
    lambda result, shards: shards is not None or bool(result.own),
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
    "Draw traffic.",
)
COLUMNS: Final = Requirement(
    lambda result, shards: result.n_features_in_ > 0, "of a result with loadings", "none", "Ask each party for its own."
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
    lambda result, shards: bool(result.outliers_.any()), "of a run with outliers", "one without", "Draw movement."
)


@dataclass(frozen=True)
class Picture:
    """One picture: how it is drawn, and how it is read, of a run at once or with noise too; of
    what, and what it needs.

    `draw` takes an empty figure, the result, and the rows of the clients where it needs `rows`.
    """

    draw: Callable[..., None]
    caption: str
    at_once: str = ""
    noisy: str = ""
    of: type[Any] = PCAResult
    need: Requirement | None = None

    @property
    def rows(self) -> bool:
        """Whether it is drawn from the rows of the clients too."""
        return self.need in (ROWS, WHOLE, SCORES, PARTS, SHARES, TAKEN)

    def words(self, result: Result) -> str:
        """How to read it, of this result."""
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
        variances.cumulative, "How much the first components explain together, and how many pass a round share.",
        noisy="How much the first components may explain together: anything within the band.",
    ),
    "loadings": Picture(
        variances.bars,
        "The columns that weigh most in each component; blue weights are above zero, orange ones below.",
        need=COLUMNS,
    ),
    "weights": Picture(variances.heatmap, "What every column weighs in each component.", need=MANY),
    "scores": Picture(
        clients.scores,
        "Every point is a row in the common components, in the colour of its client; columns pull as arrows point.",
        need=SCORES,
    ),
    "means": Picture(
        clients.means,
        "How far a client's mean of a column lies from that of all rows, in deviations of all rows.",
        need=WHOLE,
    ),
    "errors": Picture(
        clients.errors, "What the components leave of a row, on average over each client's rows.", need=WHOLE
    ),
    "far": Picture(
        robust.far, "The share of each column's entries that were furthest off, at all clients.", of=RobustResult
    ),
    "taken_by_column": Picture(
        robust.by_column, "How many entries of each column something was taken out of.", of=RobustResult
    ),
    "taken_by_client": Picture(
        robust.by_client, "How many entries of each client something was taken out of.", of=RobustResult, need=TAKEN
    ),
    "taken": Picture(
        robust.where, "Which columns entries were taken out of, client by client.", of=RobustResult, need=PARTS
    ),
    "sizes": Picture(
        robust.sizes, "How large an entry of the low-rank and of the sparse part is.", of=RobustResult, need=PARTS
    ),
    "split": Picture(
        personal.split, "What lies along shared components, along own ones, and along neither.",
        of=PersonalResult, need=SHARES,
    ),
    "own_errors": Picture(
        personal.errors, "What is left of a row without a client's own components, and with them.",
        of=PersonalResult, need=SHARES,
    ),
    "own_components": Picture(
        personal.own_first, "What the columns weigh in the first own component of each client.",
        of=PersonalResult, need=SPACES,
    ),
    "own_distances": Picture(
        personal.between, "How far apart the own components of two clients are.", of=PersonalResult, need=SPACES
    ),
    "own_map": Picture(
        personal.plane, "Clients that lie close together have own components that are alike.",
        of=PersonalResult, need=SPACES,
    ),
    "movement": Picture(
        tracking.alone(tracking.movement_panel),
        "How far the subspace turns from one step to the next.",
        of=TrackingResult,
    ),
    "fit": Picture(
        tracking.alone(tracking.fit_panel), "What the basis of the step before leaves of a batch.", of=TrackingResult
    ),
    "statistic": Picture(
        tracking.alone(tracking.statistic), "How much of a batch lies outside the basis before: a change shows here.",
        of=TrackingResult, need=STATISTICS,
    ),
    "step_sizes": Picture(
        tracking.sizes, "How large the rows of each step are along each component.", of=TrackingResult
    ),
    "outliers": Picture(
        tracking.outliers, "How many entries of each step were far off.", of=TrackingResult, need=OUTLIERS
    ),
    "last_loadings": Picture(
        variances.last, "The columns that weigh most in the basis of the last step.", of=TrackingResult
    ),
    "convergence": Picture(
        course.convergence,
        "The error of the run after each message to the clients.",
        "How far each component is from an exact one, as a share of the first variance: an exact one is at zero.",
        noisy="The error after each message as the run measures it: it is that of the noise as well.",
        need=COURSE,
    ),
    "traffic": Picture(
        course.traffic,
        "The same error, against what all clients have sent and received by then.",
        "What all clients together have sent and received in each message.",
        noisy="The same error, against what all clients have sent and received by then.",
    ),
}  # fmt: skip


def telling(result: Result, shards: Shards = None) -> dict[str, Picture]:
    """Those of a report: all that are available, but for one that another says more exactly."""
    every = available(result, shards)
    return {what: p for what, p in every.items() if what != "far" or "taken_by_column" not in every}


def available(result: Result, shards: Shards = None) -> dict[str, Picture]:
    """The pictures that can be drawn of a result, and of rows if they are given."""
    kinds = {what: picture for what, picture in PICTURES.items() if isinstance(result, picture.of)}
    return {what: p for what, p in kinds.items() if p.need is None or p.need.there(result, shards)}


def values(shards: Shards | Mapping[str, Any]) -> Shards:
    """The clients' rows, of a mapping from sites too."""
    if isinstance(shards, Mapping):
        return list(shards.values())
    return shards


def draw(result: Result, what: str, path: str | os.PathLike[str], *, shards: Shards | Mapping[str, Any] = None) -> Path:
    """Draw one of PICTURES, or "overview", into an SVG or PNG file, as the path's suffix says."""
    known = [w for w, p in PICTURES.items() if isinstance(result, p.of)]
    checks.choice("The picture", what, ("overview", *known))
    style.suffix(path)
    if what == "overview":
        return style.save(course.figure(result), path)
    return style.save(figure(result, what, shards=values(shards)), path)


def figure(result: Result, what: str, *, shards: Shards = None) -> style.Figure:
    """One of PICTURES, as a figure of matplotlib."""
    picture, drawn = PICTURES[what], style.figure()
    if (need := picture.need) is not None and not need.there(result, shards):
        raise ConfigError(f'The picture "{what}"', must=need.rule, got=need.got, then=need.remedy)
    picture.draw(drawn, result, *([shards] if picture.rows else []))
    return drawn
