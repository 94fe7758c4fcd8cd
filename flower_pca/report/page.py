"""The report of a run: the findings in words and pictures, the clients, and a folded section about the run.

The texts come from the `summary` of the result, the tables from `pages`. This module puts them together.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flower_pca import plots
from flower_pca.analysis.outliers import with_parts
from flower_pca.analysis.rotation import Rotation
from flower_pca.base import errors, files
from flower_pca.base.version import __version__
from flower_pca.plots import style
from flower_pca.report import html, pages
from flower_pca.results.facts import Summary
from flower_pca.results.pca import PCAResult
from flower_pca.results.robust import RobustResult
from flower_pca.results.site import knows_sites

_COURSE: Final = ("convergence", "bytes")  # pictures of the run, as opposed to its findings


def write(
    result: plots.Result,
    path: str | os.PathLike[str],
    *,
    title: str,
    shards: Sequence[Any] | Mapping[str, Any] | None = None,
    rotation: Rotation | None = None,
) -> Path:
    """Write the report of a run. Without matplotlib it has tables only, and says so.

    Parameters
    ----------
    result : Result
        What a run has returned, or `PCAResult.load` or `TrackingResult.load` has read.
    path : str or path
        The HTML file, for its owner only. The whole new report is there afterwards, or the old file untouched.
    title : str
        What the report is headed by, such as the name of the data.
    shards : sequence, mapping or None, default=None
        The clients' rows, if they are at hand: then the report shows each client as well. If rows of a site are scored
        by what is known of this site alone, it takes a result that knows all sites.
    rotation : Rotation or None, default=None
        The result's components along other axes, which get tables of their own: see `analysis.rotation`.

    Returns
    -------
    path
        The path.
    """
    shown, rows = plots.with_rows(result, shards)
    if rows is not None and isinstance(shown, PCAResult) and not knows_sites(shown, len(rows)):
        rows = None
    if isinstance(shown, RobustResult) and rows is not None:
        shown = with_parts(shown, rows)  # once for all tables and pictures
    summary = result.summary()
    every = _names(shown, rows)
    parts = [
        html.remarks(summary.remarks, "bad"),
        html.paragraph(" ".join(summary.findings), "lead"),
        html.remarks(summary.remarks, "warn"),
        *pages.words(shown, rows),
        pages.named_sites(result),
        html.section("What was found", pictures(shown, rows, [what for what in every if what not in _COURSE])),
        html.facts(fact for fact in summary.facts if not fact.run),
        *pages.of(shown, rows),
        *pages.of_rotation(rotation),
        html.fold("How the run went", *_course(result, summary, rows, [what for what in every if what in _COURSE])),
        f"<footer>flower_pca {__version__} &middot; {result.algorithm} &middot; seed {result.seed}</footer>\n",
    ]
    with files.replacing(path, private=True) as file:  # The file shows scores of rows.
        file.write(html.page(title, parts))
    return Path(path)


def _names(result: plots.Result, shards: Sequence[Any] | None) -> list[str]:
    """Return the names of the pictures for a result, or none without matplotlib."""
    if errors.is_installed("matplotlib"):
        return list(plots.telling(result, shards))
    return []


def pictures(result: plots.Result, shards: Sequence[Any] | None, chosen: Sequence[str] | None = None) -> str:
    """Return these pictures, or all that suit a report. Without matplotlib, say so."""
    if not errors.is_installed("matplotlib"):
        return html.paragraph(str(errors.not_installed("matplotlib", "to draw")), "how")
    if chosen is None:
        chosen = _names(result, shards)
    drawn = []
    for what in chosen:
        stream = io.BytesIO()
        style.write(plots.figure(result, what, shards=shards), stream, "svg")
        drawn.append(html.picture(what, stream.getvalue(), plots.PICTURES[what].words(result)))
    if drawn:
        return f'<div class="pictures">\n{"".join(drawn)}</div>\n'
    return ""


def _course(result: plots.Result, summary: Summary, shards: Sequence[Any] | None, chosen: Sequence[str]) -> list[str]:
    """Return how the run went: why it ended, what it decided, what was sent, and who was left out."""
    return [
        html.paragraph(summary.title, "how"),
        html.remarks(summary.remarks, "good", "plain"),
        html.facts(fact for fact in summary.facts if fact.run),
        pictures(result, shards, chosen) if chosen else "",
        pages.messages(result.history),
        pages.failures(result.history, {key: out.name for key, out in result.left_out.items()} | {**result.site_names}),
    ]
