"""Pictures of a robust run: the entries that were removed, by column and client, and the sizes of both parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.analysis.outliers import TakenOut, taken_out
from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.plots import clients, style
from flower_pca.results import facts
from flower_pca.results.robust import RobustResult

_COLUMNS: Final = 20  # maximum number of columns with a bar


def removed_by_column(fig: style.Figure, result: RobustResult) -> None:
    """Draw a bar for the share of entries that were removed from each column, largest share first."""
    _draw_columns(fig, result, result.removed_share_, "Entries taken out, by column")


def _draw_columns(fig: style.Figure, result: RobustResult, share: Array, title: str) -> None:
    order = np.argsort(-share, kind="stable")[:_COLUMNS]
    names = facts.column_names(result)
    if len(order) < len(share):
        title = f"{title}, the {len(order)} of {len(share):,} columns with most"
    named = [names[j] for j in order]
    style.show_percent(clients.draw_bars(fig, share[order], named, title=title, words="share of the entries"), axis="x")


def outlier_share(fig: style.Figure, result: RobustResult) -> None:
    """Draw a bar for the share of outliers in each column. Every robust result has these shares."""
    _draw_columns(fig, result, result.outlier_share_by_column_, "Far entries, by column")


def removed_by_client(fig: style.Figure, result: RobustResult, shards: Sequence[Any] | None) -> None:
    """Draw a bar for the share of entries that were removed from each client's rows."""
    table = result.clients_
    share = _removed_entries(result, shards).by_client if table is None else table[:, 1]
    names = clients.client_names(result, range(len(share)))
    ax = clients.draw_bars(fig, share, names, title="Entries taken out, by client", words="share of the entries")
    style.show_percent(ax, axis=clients.value_axis(names))


def removed_by_column_and_client(fig: style.Figure, result: RobustResult, shards: Sequence[Any] | None) -> None:
    """Draw a heat map of the share of entries that were removed, by column and client."""
    known = _removed_entries(result, shards)
    others = [labels.client_name(result.site_names, key) for key in known.clients]
    style.draw_heat_map(
        fig,
        known.share,
        columns=result.feature_names_in_,
        others=others,
        title="Entries taken out",
        label="share of the entries",
        kind="share",
    )


def sizes_of_parts(fig: style.Figure, result: RobustResult, shards: Sequence[Any] | None) -> None:
    """Draw bars for the sizes of the low-rank part and the sparse part of each client's rows."""
    known = _removed_entries(result, shards)
    parts = {"low-rank part": known.low_rank, "sparse part": known.sparse}
    names = clients.client_names(result, range(len(known.clients)))
    clients.draw_bar_pairs(fig, parts, names, title="Size of the two parts", words="root mean square of an entry")


def _removed_entries(result: RobustResult, shards: Sequence[Any] | None) -> TakenOut:
    known = taken_out(result, shards)
    assert known is not None
    return known
