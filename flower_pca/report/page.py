"""The report of a run: the findings in words and pictures, the clients, and a folded section about the run.

The texts come from the `summary` of the result, and the tables from `pages`. This module puts them together.
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
from flower_pca.results.site import can_score_sites

_COURSE: Final = ("convergence", "bytes")  # pictures about the course of the run, as opposed to its findings


def write(
    result: plots.Result,
    path: str | os.PathLike[str],
    *,
    title: str,
    shards: Sequence[Any] | Mapping[str, Any] | None = None,
    rotation: Rotation | None = None,
) -> Path:
    """Write the report of a run as a web page. Without matplotlib, the report has only tables, and says why.

    Parameters
    ----------
    result : Result
        The result of a run, or a result that `PCAResult.load` or `TrackingResult.load` has read.
    path : str or path
        The HTML file, which only its owner can read. An old file is replaced only when the new report is complete.
    title : str
        The heading of the report, such as the name of the data.
    shards : sequence, mapping or None, default=None
        The rows of each client. With these rows, the report also shows each client. If scoring the rows of a site needs
        the site's local results, the result must have the local results of all sites. Otherwise the rows are ignored.
    rotation : Rotation or None, default=None
        The rotated components of the result, which are shown in additional tables. See `analysis.rotation`.

    Returns
    -------
    path
        The path of the report.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import report, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("krylov", sites, n_components=2)
    >>> report.write(result, "report.html", title="Three hospitals").name
    'report.html'
    """
    shown, rows = plots.with_rows(result, shards)
    if rows is not None and isinstance(shown, PCAResult) and not can_score_sites(shown, len(rows)):
        rows = None
    if isinstance(shown, RobustResult) and rows is not None:
        shown = with_parts(shown, rows)  # The parts are computed once, for all tables and pictures.
    summary = result.summary()
    every = _names_of_pictures(shown, rows)
    parts = [
        html.remark_paragraphs(summary.remarks, "bad"),
        html.paragraph(" ".join(summary.findings), "lead"),
        html.remark_paragraphs(summary.remarks, "warn"),
        *pages.paragraphs_of_kind(shown, rows),
        pages.paragraph_of_sites(result),
        html.section("What was found", pictures_as_html(shown, rows, [what for what in every if what not in _COURSE])),
        html.facts_table(fact for fact in summary.facts if not fact.run),
        *pages.tables_of_result(shown, rows),
        *pages.tables_of_rotation(rotation),
        html.folded_section(
            "How the run went", *_parts_about_run(result, summary, rows, [what for what in every if what in _COURSE])
        ),
        f"<footer>flower_pca {__version__} &middot; {result.algorithm} &middot; seed {result.seed}</footer>\n",
    ]
    with files.replacing_file(path, private=True) as file:  # The file shows scores of rows.
        file.write(html.page(title, parts))
    return Path(path)


def _names_of_pictures(result: plots.Result, shards: Sequence[Any] | None) -> list[str]:
    """Return the names of the pictures in the report of this result, or [] without matplotlib."""
    if errors.is_installed("matplotlib"):
        return list(plots.pictures_for_report(result, shards))
    return []


def pictures_as_html(result: plots.Result, shards: Sequence[Any] | None, chosen: Sequence[str] | None = None) -> str:
    """Return the chosen pictures as HTML, or all pictures of a report if `chosen` is None. Return "" for no pictures.

    Without matplotlib, return a paragraph that explains how to install it.
    """
    if not errors.is_installed("matplotlib"):
        return html.paragraph(str(errors.not_installed("matplotlib", "to draw")), "how")
    if chosen is None:
        chosen = _names_of_pictures(result, shards)
    drawn = []
    for what in chosen:
        stream = io.BytesIO()
        style.write(plots.figure(result, what, shards=shards), stream, "svg")
        drawn.append(html.embedded_picture(what, stream.getvalue(), plots.PICTURES[what].words(result)))
    if drawn:
        return f'<div class="pictures">\n{"".join(drawn)}</div>\n'
    return ""


def _parts_about_run(
    result: plots.Result, summary: Summary, shards: Sequence[Any] | None, chosen: Sequence[str]
) -> list[str]:
    """Return the parts about the run: why it ended, its automatic choices, its messages, and clients left out."""
    return [
        html.paragraph(summary.title, "how"),
        html.remark_paragraphs(summary.remarks, "good", "plain"),
        html.facts_table(fact for fact in summary.facts if fact.run),
        pictures_as_html(result, shards, chosen) if chosen else "",
        pages.table_of_messages(result.history),
        pages.tables_of_failures(
            result.history, {key: out.name for key, out in result.left_out.items()} | {**result.site_names}
        ),
    ]
