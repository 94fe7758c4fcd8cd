"""A run as one HTML file: what was found, how the run went, and its pictures. It needs nothing from elsewhere.

Every kind of result has its page: `pages` says what facts and tables each has. Here they are put together.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flower_pca import plots
from flower_pca.analysis.outliers import with_parts
from flower_pca.base import archive, extras, labels
from flower_pca.base.version import __version__
from flower_pca.plots import overview, style
from flower_pca.report import html, pages
from flower_pca.results.pca import PCAResult
from flower_pca.results.robust import RobustResult
from flower_pca.results.steps import TrackingResult


def write(
    result: PCAResult | TrackingResult,
    path: str | os.PathLike[str],
    *,
    title: str,
    shards: Sequence[Any] | Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of a run. Without matplotlib it has tables only, and says so.

    Args:
        result: What a run has returned, or `PCAResult.load` or `TrackingResult.load` has read.
        path: The HTML file. The whole new report is there afterwards, or the old file untouched.
        title: What the report is headed by, such as the name of the data.
        shards: The clients' rows, if they are at hand: then the report shows each client as well.

    Returns:
        The path.
    """
    rows = plots.values(shards)
    if isinstance(result, RobustResult) and rows is not None:
        result = with_parts(result, rows)  # once, for all tables and pictures
    before, after = pages.of(result, rows)
    summary = html.paragraph(overview.summary(result), "how")
    short = [html.paragraph(words, "ended") for words in labels.unfinished(result)]
    parts = [
        *([*short, summary] if short else [summary, html.paragraph(html.sentence(result.status.words), "ended ok")]),
        *(html.paragraph(html.sentence(choice), "how") for choice in getattr(result, "choices", ())),
        *(html.paragraph(hint, "ended") for hint in getattr(result, "hints", ())),
        *before,
        pictures(result, rows),
        *after,
        f"<footer>flower_pca {__version__} &middot; {result.algorithm} &middot; seed {result.seed}</footer>\n",
    ]
    with archive.replacing(path) as file:
        file.write(html.page(title, parts))
    return Path(path)


def pictures(result: PCAResult | TrackingResult, shards: Sequence[Any] | None) -> str:
    """All pictures that tell of a result; without matplotlib, that it is not there."""
    if not extras.there("matplotlib"):
        return html.paragraph(str(extras.lacking("matplotlib", "to draw")), "how")
    drawn = []
    for what, picture in plots.telling(result, shards).items():
        stream = io.BytesIO()
        style.write(plots.figure(result, what, shards=shards), stream, "svg")
        drawn.append(html.picture(what, stream.getvalue(), picture.words(result)))
    return html.section("Pictures", '<div class="pictures">\n', *drawn, "</div>\n")
