"""What the page of a robust run says: how much was taken out, of which clients and columns, and how large it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flower_pca.algorithms.robust.result import RobustResult
from flower_pca.analysis.outliers import taken_out
from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import clients
from flower_pca.report import html


def words(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """What the two parts are, and where the sparse one is to be had."""
    unit = "" if result.scale_ is None else " of the scaled columns"
    said = [
        "Rows are the sum of a low-rank part, to which the components and variances belong, and a sparse part: single "
        f"entries that are further than {result.threshold_:.3g}{unit} from the low-rank part, and so much further as "
        "is taken out."
    ]
    if taken_out(result, shards) is None:
        said.append(
            "Which entries these are, the clients keep for themselves: this page was made without their rows. Of all "
            f"entries {result.outlier_share_:.2%} are further off than ten times that."
        )
    return [html.paragraph(sentence, "said") for sentence in said]


def facts(result: RobustResult) -> dict[str, str]:
    """Figures of the whole run."""
    return {
        "far entries": f"{result.outlier_share_:.2%}",
        "taken out beyond": f"{result.threshold_:.4g}",
        "size of an ordinary entry": f"{result.spread_:.4g}",
    }


def tables(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """What was taken out, by client and by column."""
    known, names = taken_out(result, shards), labels.column_names(result.feature_names_in_, result.n_features_in_)
    if known is None:
        return [_columns("Columns: far entries", names, result.far_share_, "entries far off")]
    head = ["client", "rows", "entries taken out", "size of an entry, low-rank part", "sparse part"]
    columns = zip(known.clients, known.rows, known.by_client, known.low_rank, known.sparse, strict=True)
    rows = [
        [labels.client_name(result.site_names, key), f"{n:,}", f"{share:.2%}", f"{low:.4g}", f"{sparse:.4g}"]
        for key, n, share, low, sparse in columns
    ]
    if shards is not None:
        head.append("mean squared error of a row")
        errors = clients.measured(result, shards)
        rows = [[*row, f"{errors[key]:.4g}"] for row, key in zip(rows, known.clients, strict=True)]
    return [
        html.table("Clients: what was taken out", head, rows, words=[0]),
        _columns("Columns: what was taken out", names, known.by_column, "entries taken out"),
    ]


def _columns(title: str, names: list[str], share: Array, words: str) -> str:
    order = np.argsort(-share, kind="stable")
    most = f", the {html.SHOWN} with most" if len(order) > html.SHOWN else ""
    rows = [[names[j], f"{share[j]:.2%}"] for j in order[: html.SHOWN]]
    return html.table(f"{title}{most}", ["column", words], rows, words=[0])
