"""The tables of a report: the components, the clients and their rows, and the course of the run.

If the rows of the clients are given, the report compares the clients' means and deviations, and lists the most unusual
rows. The report of a personalized run says whether shared and local components can be separated. The report of a robust
run says how much was removed, and from which clients and columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.personal.closing import OWN
from flower_pca.algorithms.robust.closing import FAR
from flower_pca.analysis import sites
from flower_pca.analysis.groups import shares
from flower_pca.analysis.monitor import Monitor
from flower_pca.analysis.outliers import taken_out
from flower_pca.analysis.rotation import Rotation
from flower_pca.base import labels
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.plots import Result, Shards, clients
from flower_pca.report import html
from flower_pca.results import facts
from flower_pca.results.pca import PCAResult
from flower_pca.results.personal import SEPARABLE, UNMEASURED, PersonalResult
from flower_pca.results.robust import RobustResult
from flower_pca.results.steps import TrackingResult

# If the share of removed entries is more than this many times the share of outliers, most removed entries are not
# outliers.
_MANY_MORE: Final = 2.0
_TAKEN: Final = ("entries taken out", "far off")


def robust_words(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """Return paragraphs that explain the two parts of rows, how much was removed, and who knows the sparse part."""
    unit = "" if result.scale_ is None else " of the scaled columns"
    taken, far = float(result.removed_share_.mean()), result.outlier_share_
    times = min(result.cut_ or FAR, FAR)
    said = [
        "Rows are the sum of a low-rank part, to which the components and variances belong, and of a sparse part. "
        f"Entries that differ by more than {result.threshold_:.3g}{unit} from the low-rank part were taken out, in "
        f"part or in full: {taken:.2%} of all entries. Entries that differ by more than {times:g} times as much count "
        f"as far off: {far:.2%} of all entries. Shares of the variance refer to the low-rank part only."
    ]
    if taken > _MANY_MORE * far:
        said.append(
            "Most of the corrected entries are not far off. They may come from measurement noise or from a low-rank "
            "part that does not fit, rather than from errors in single entries."
        )
    if taken_out(result, shards) is None:
        said.append(
            "Only the clients know which entries were taken out, because this page was made without their rows."
        )
        if result.clients_ is None:
            said.append(
                "The server has seen only sums over all clients, so the shares of single clients are not known."
            )
    return [html.paragraph(sentence, "said") for sentence in said]


def robust_tables(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """Return tables of the entries that were removed, by client and by column."""
    known = taken_out(result, shards)
    if known is None:
        return [*_table_by_client(result), _table_of_columns(result)]
    head = ["client", "rows", "entries taken out", "size of an entry, low-rank part", "sparse part"]
    taken = dict(zip(known.clients, known.by_client, strict=True))
    taken |= {key: share for key, (_, share, _) in _figures_by_key(result).items()}
    rows = [
        [labels.client_name(result.site_names, key), f"{n:,}", f"{taken[key]:.2%}", f"{low:.4g}", f"{sparse:.4g}"]
        for key, n, low, sparse in zip(known.clients, known.rows, known.low_rank, known.sparse, strict=True)
    ]
    if shards is not None:
        head.append("mean squared error of a row, far entries included")
        errors = clients.errors_by_client(result, shards)
        rows = [[*row, f"{errors[key]:.4g}"] for row, key in zip(rows, known.clients, strict=True)]
    return [html.table("Clients: what was taken out", head, rows, words=[0]), _table_of_columns(result)]


def _figures_by_key(result: RobustResult) -> dict[int, Array]:
    """Return each client's number of rows, share of removed entries and share of outliers, by key.

    Return {} if the server has seen only sums.
    """
    if result.client_keys_ is None or result.clients_ is None:
        return {}
    return dict(zip(result.client_keys_.tolist(), result.clients_, strict=True))


def _table_by_client(result: RobustResult) -> list[str]:
    """Return a table of the shares that clients have reported, or no table if the server has seen only sums."""
    rows = [
        [labels.client_name(result.site_names, key), f"{int(n):,}", f"{taken:.2%}", f"{far:.2%}"]
        for key, (n, taken, far) in _figures_by_key(result).items()
    ]
    if not rows:
        return []
    return [html.table("Clients: what was taken out", ["client", "rows", *_TAKEN], rows, words=[0])]


def _table_of_columns(result: RobustResult) -> str:
    names, taken = facts.column_names(result), result.removed_share_
    order = np.argsort(-taken, kind="stable")[: html.SHOWN]
    rows = [[names[j], f"{taken[j]:.2%}", f"{result.outlier_share_by_column_[j]:.2%}"] for j in order]
    title = facts.title_with_count("Columns: what was taken out", len(order), len(taken), "with most")
    return html.table(title, ["column", *_TAKEN], rows, words=[0])


def personal_words(result: PersonalResult) -> list[str]:
    """Return a paragraph on the numbers of shared and local components, and whether they can be separated (theta)."""
    said = [
        f"All clients share {labels.count(result.n_components_, 'component')}. In addition, each client has "
        f"{result.local_count_in_words} of its own."
    ]
    if result.local_components:
        if np.isnan(result.theta_):
            sentence = f"Theta, which shows whether shared and local components can be separated, was {UNMEASURED}."
        elif result.theta_ < SEPARABLE:
            sentence = f"Theta is {result.theta_:.2g}, near 0: shared and local components cannot be separated well."
        else:
            sentence = f"Theta is {result.theta_:.2g}, away from 0: shared and local components can be separated."
        said.append(sentence)
        if not result.local:
            said.append("The local components stay at the clients, so this page does not show them.")
    return [html.paragraph(" ".join(said), "said")]


def personal_tables(result: PersonalResult, shards: Sequence[Any] | None) -> list[str]:
    """Return a table of the clients: errors with and without local components, and weights in the first of them.

    Return [] if no client's local components are known.
    """
    keys = sorted(key for key in result.local if OWN in result.local[key])
    if not keys:
        return []
    known, names, head = shares(result, shards), facts.column_names(result), ["client"]
    lines = [[labels.client_name(result.site_names, key)] for key in keys]
    if shards is not None and known is not None:
        head += ["rows", "error, shared only", "error, with own"]
        sizes = clients.row_counts(shards)
        figures = {key: [f"{sizes[key]:,}", f"{a:.4g}", f"{b:.4g}"] for key, a, b in
                   zip(known.clients, known.without, known.rest, strict=True)}  # fmt: skip
        lines = [line + figures[key] for line, key in zip(lines, keys, strict=True)]
    head += ["variances along own components", "largest weights in the first"]
    for line, key in zip(lines, keys, strict=True):
        own = result.local[key]
        variances = ", ".join(f"{v:.3g}" for v in own["variances"][:4]) + (", ..." if len(own["variances"]) > 4 else "")
        line += [variances, labels.weights_in_words(own[OWN][0], names) if len(own[OWN]) else ""]
    words = [0, len(head) - 2, len(head) - 1]
    return [html.table("Clients: what is their own", head, lines, words=words)]


_WITHOUT_NOISE: Final = (
    "The table of clients and the pictures of scores and errors are made from the clients' rows without noise, so the "
    "privacy budget does not cover them. Do not pass on this table and these pictures."
)
_COLUMNS: Final = 4  # maximum number of columns whose means and deviations are listed
_SITES: Final = 12  # maximum number of clients that a sentence names
_ROWS: Final = 10  # maximum number of unusual rows that are listed


def paragraphs_of_kind(result: Result, shards: Shards) -> list[str]:
    """Return the paragraphs that only this kind of result has, in addition to the findings of all results."""
    if isinstance(result, RobustResult):
        return robust_words(result, shards)
    if isinstance(result, PersonalResult):
        return personal_words(result)
    if isinstance(result, PCAResult) and result.histograms_ is not None:
        return [html.paragraph(f"Limits: {Monitor(result).limits()}.", "said")]
    return []


def tables_of_result(result: Result, shards: Shards) -> list[str]:
    """Return the tables of the components and the clients, or the tables of a tracking run."""
    if isinstance(result, TrackingResult):
        return tables_of_steps(result)
    heads, lines = result.summary().components
    return [html.table("Components", heads, lines, words=[len(heads) - 1]), *_tables_of_clients(result, shards)]


def tables_of_rotation(rotation: Rotation | None) -> list[str]:
    """Return tables of the rotated components and of their loadings for all columns, or [] without a rotation."""
    if rotation is None:
        return []
    heads, lines = rotation.axes_table()
    columns, loadings = rotation.all_loadings()
    return [
        html.table("Rotated components", heads, lines, words=[0, len(heads) - 1]),
        html.paragraph(rotation.words, "how"),
        html.table("Rotated loadings", columns, loadings, words=[0]),
    ]


def tables_of_steps(result: TrackingResult) -> list[str]:
    """Return tables of the basis of the last step and of all kept steps."""
    heads, basis = result.summary().components
    changes = set(result.changes_.tolist())
    figures = zip(result.rows_, result.subspace_change_, result.residuals_, result.outliers_, strict=True)
    rows = [
        [f"{j}", f"{n:,}", f"{moved:.1e}", f"{left:.1e}", f"{far:,}", "yes" if j in changes else ""]
        for j, (n, moved, left, far) in enumerate(figures, result.first_)
    ]
    if not result.first_:  # The first step has no previous step to compare with.
        rows[0][2:4] = ["", ""]
    return [
        html.table("Basis of the last step", heads, basis, words=[2]),
        html.table("Steps", ["step", "rows", "subspace_change", "residual", "outliers", "change"], rows),
    ]


def paragraph_of_sites(result: Result) -> str:
    """Return a paragraph with the names of the clients, or "" if clients have no names."""
    names = [name for _, name in sorted(result.site_names.items())]
    if len(names) > _SITES:
        names[_SITES:] = [f"and {len(names) - _SITES} more"]
    if names:
        return html.paragraph(f"The clients: {', '.join(names)}.", "how")
    return ""


def table_of_messages(history: History) -> str:
    """Return a table with a line for each message."""
    rows = [
        [
            f"{record.number + 1}",
            record.stage,
            html.number_text(record.metrics.get("error"), ".1e"),
            f"{record.answered:,}/{record.asked:,}",
            labels.bytes_in_words(record.bytes_up),
            labels.bytes_in_words(record.bytes_down),
            f"{record.seconds:.2g}",
        ]
        for record in history
    ]
    head = ("no.", "stage", "error", "answered", "up", "down", "seconds")
    return html.table("Messages", head, rows, words=[1])


def tables_of_failures(history: History, names: Mapping[int, str]) -> str:
    """Return a table of clients that failed to answer, and a table of clients with a note on their answer, or ""."""
    left = [(record, node, why) for record in history for node, why in record.failures.items()]
    strayed = [(record, node, why) for record in history for node, why in record.notes.items()]
    return _table_of_reasons("Clients that were left out", left, names) + _table_of_reasons(
        "Clients that had strayed", strayed, names
    )


def _table_of_reasons(title: str, reasons: list[tuple[Round, str, str]], names: Mapping[int, str]) -> str:
    called = {str(key): name for key, name in names.items()}
    rows = [[f"{record.number + 1}", called.get(node, node), why] for record, node, why in reasons]
    if rows:
        return html.table(title, ["message", "client", "why"], rows, words=[1], long=2)
    return ""


def _tables_of_clients(result: PCAResult, shards: Shards) -> list[str]:
    """Return the tables of the clients for this kind of result, or [] if they need rows and no rows are given."""
    if isinstance(result, RobustResult):
        return robust_tables(result, shards)
    if isinstance(result, PersonalResult):
        return personal_tables(result, shards)
    if shards is None:
        return []
    errors, sizes = clients.errors_by_client(result, shards), clients.row_counts(shards)
    order = np.arange(len(errors))
    if len(errors) > html.SHOWN:
        order = np.argsort(-errors, kind="stable")[: html.SHOWN]
    rows = [[labels.client_name(result.site_names, int(i)), f"{sizes[i]:,}", f"{errors[i]:.4g}"] for i in order]
    title = facts.title_with_count("Clients", len(order), len(errors), "with the largest error")
    table = html.table(title, ["client", "rows", "mean squared error of a row"], rows, words=[0])
    if result.privacy is not None:
        return [table + html.paragraph(_WITHOUT_NOISE)]
    if result.is_by_site:
        return [table]
    return [table, _table_of_means(result, shards), _table_of_unusual_rows(result, shards)]


def _table_of_means(result: PCAResult, shards: Sequence[Any]) -> str:
    """Return a table of the clients' means and deviations, for the columns with the largest weights.

    If there are many clients, only the clients with the most unusual means are shown.
    """
    found = sites.compare_sites(result, shards)
    names, chosen = facts.column_names(result), found.striking[:_COLUMNS]
    order = found.order[: html.SHOWN]
    rows = [
        [
            labels.client_name(result.site_names, int(i)),
            *(f"{found.means[i, j]:.4g} ± {found.deviations[i, j]:.2g}" for j in chosen),
        ]
        for i in order
    ]
    every = [f"{found.mean[j]:.4g} ± {found.deviation[j]:.2g}" for j in chosen]
    head = ["client", *(labels.shorten(names[j], 24) for j in chosen)]
    title = facts.title_with_count("Means and spreads", len(order), len(found.order), "furthest off")
    return html.table(title, head, [["all rows", *every], *rows], words=[0])


def _table_of_unusual_rows(result: PCAResult, shards: Sequence[Any]) -> str:
    """Return the rows farthest beyond the 99 % limits as a table with their main columns, or "" without limits."""
    found = sites.most_unusual_rows(result, shards)
    if found is None:
        return ""
    lines = [
        [
            site if isinstance(site, str) else labels.client_name(result.site_names, site),
            f"{row + 1:,}",
            *(f"{value:.3g}" for value in (t2, spe)),
            why,
        ]
        for site, row, t2, spe, why in found.rows[:_ROWS]
    ]
    verb = "lies" if found.beyond == 1 else "lie"
    count = f"{labels.count(found.beyond, 'row')} of {labels.count(found.of, 'row')}"
    said = f"{count} {verb} beyond the limits of T2 or SPE, {found.limits}."
    if not lines:
        return html.section("Rows furthest out", html.paragraph(said))
    head = ["client", "row", "T2, of its limit", "SPE, of its limit", "because of"]
    return html.table("Rows furthest out", head, lines, words=[0], long=4) + html.paragraph(said, "how")
