"""What the page of a robust run says: how much was taken out, of which clients and columns, and how large it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.robust.closing import FAR
from flower_pca.analysis.outliers import taken_out
from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import clients
from flower_pca.report import html
from flower_pca.results.robust import RobustResult

# times the share of far entries, beyond which most of what was taken out is something else
_MOSTLY: Final = 2.0


def words(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """What the two parts are, how much was taken out, and where the sparse part is to be had."""
    if result.scale_ is None:
        unit = ""
    else:
        unit = " of the scaled columns"
    taken, far = float(result.taken_share_.mean()), result.outlier_share_
    if result.cut_ is None:
        times = FAR
    else:
        times = min(result.cut_, FAR)
    said = [
        "Rows are the sum of a low-rank part, to which the components and variances belong, and of a sparse part. "
        f"Entries that lie further than {result.threshold_:.3g}{unit} from the low-rank part were taken out, in part "
        f"or in full: {taken:.2%} of all entries. Far off, by more than {times:g} times as much, are {far:.2%}. Shares "
        "of the variance are of the low-rank part alone, whatever was taken out."
    ]
    if taken > _MOSTLY * far:
        said.append(
            "Most of what was taken out is not far off: that may be noise of the measurement, or a low-rank part that "
            "does not fit, rather than faults in single entries."
        )
    if taken_out(result, shards) is None:
        said.append("Which entries these are, the clients keep for themselves: this page was made without their rows.")
        if result.clients_ is None:
            said.append("The server has seen sums over all clients only: the shares of single clients are not known.")
    return [html.paragraph(sentence, "said") for sentence in said]


def tables(result: RobustResult, shards: Sequence[Any] | None) -> list[str]:
    """What was taken out, by client and by column."""
    known = taken_out(result, shards)
    if known is None:
        return [*_by_client(result), _columns(result)]
    head = ["client", "rows", "entries taken out", "size of an entry, low-rank part", "sparse part"]
    told = _by_key(result)
    taken = [told[key][1] if key in told else share for key, share in zip(known.clients, known.by_client, strict=True)]
    columns = zip(known.clients, known.rows, taken, known.low_rank, known.sparse, strict=True)
    rows = [
        [labels.client_name(result.site_names, key), f"{n:,}", f"{share:.2%}", f"{low:.4g}", f"{sparse:.4g}"]
        for key, n, share, low, sparse in columns
    ]
    if shards is not None:
        head.append("mean squared error of a row, far entries included")
        errors = clients.errors_of(result, shards)
        rows = [[*row, f"{errors[key]:.4g}"] for row, key in zip(rows, known.clients, strict=True)]
    return [
        html.table("Clients: what was taken out", head, rows, words=[0]),
        _columns(result),
    ]


def _by_key(result: RobustResult) -> dict[int, Array]:
    """Rows, and shares taken out and far off, of each client; {} where the server has seen sums only."""
    if result.client_keys_ is None or result.clients_ is None:
        return {}
    return dict(zip(result.client_keys_.tolist(), result.clients_, strict=True))


def _by_client(result: RobustResult) -> list[str]:
    """What the clients have told of themselves, where the server has seen their answers one by one."""
    head = ["client", "rows", "entries taken out", "far off"]
    rows = [
        [labels.client_name(result.site_names, key), f"{int(n):,}", f"{taken:.2%}", f"{far:.2%}"]
        for key, (n, taken, far) in _by_key(result).items()
    ]
    if rows:
        return [html.table("Clients: what was taken out", head, rows, words=[0])]
    return []


def _columns(result: RobustResult) -> str:
    names, taken = labels.column_names(result.feature_names_in_, result.n_features_in_), result.taken_share_
    order = np.argsort(-taken, kind="stable")
    if len(order) > html.SHOWN:
        most = f", the {html.SHOWN} with most"
    else:
        most = ""
    rows = [[names[j], f"{taken[j]:.2%}", f"{result.far_share_[j]:.2%}"] for j in order[: html.SHOWN]]
    return html.table(f"Columns: what was taken out{most}", ["column", "entries taken out", "far off"], rows, words=[0])
