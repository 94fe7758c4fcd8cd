"""Pictures of a result, by name: what `PCAResult.plot` draws, and what a report shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError
from flower_pca.core.result import PCAResult
from flower_pca.plots import clients, course, overview, style, variances

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """One picture: how it is drawn and read, of a run that does not iterate too, and whether it needs the rows."""

    draw: Callable[..., None]
    caption: str
    at_once: str = ""
    per_client: bool = False

    def words(self, result: PCAResult) -> str:
        """How to read it, of this result."""
        return self.caption if course.iterates(result.history) else self.at_once or self.caption


PICTURES: Final[dict[str, Picture]] = {
    "scree": Picture(variances.scree, "How much of the total variance lies along each component."),
    "cumulative": Picture(
        variances.cumulative, "How much the first components explain together, and how many pass a round share."
    ),
    "convergence": Picture(
        course.convergence,
        "The error of the run after each message to the clients.",
        "What is left of each component's eigenvalue equation: none of it for an exact component.",
    ),
    "traffic": Picture(
        course.traffic,
        "The same error, against what all clients have sent and received by then.",
        "What all clients together have sent and received in each message.",
    ),
    "scores": Picture(
        clients.scores, "Every point is a row in the common components; its colour is its client.", per_client=True
    ),
    "errors": Picture(
        clients.errors, "What the components leave of a row, on average over each client's rows.", per_client=True
    ),
    "loadings": Picture(variances.loadings, "How much every feature weighs in each component."),
}


def draw(result: PCAResult, what: str, path: str | os.PathLike[str], *, shards: Sequence[Any] | None = None) -> Path:
    """Draw one of PICTURES, or "overview", into an SVG or PNG file, as the path's suffix says."""
    checks.choice("The picture", what, ("overview", *PICTURES))
    kind = style.suffix(path)
    drawn = overview.figure(result) if what == "overview" else figure(result, what, shards=shards)
    with archive.replacing(path) as file:
        style.write(drawn, file, kind)
    return Path(path)


def figure(result: PCAResult, what: str, *, shards: Sequence[Any] | None = None) -> Figure:
    """One of PICTURES, as a figure of matplotlib."""
    picture, drawn = PICTURES[what], style.figure()
    if not picture.per_client:
        picture.draw(drawn.subplots(), result)
    elif shards is None:
        rule = "given the clients' rows"
        raise ConfigError(f'The picture "{what}"', must=rule, got="no shards", then="Add shards=[...].")
    else:
        picture.draw(drawn.subplots(), result, shards)
    return drawn
