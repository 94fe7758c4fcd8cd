"""Check messages of runs over columns, in which the parties hold different columns of the same people."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Final

from flower_pca import registry, wire
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.clients.policy.limits import stage_asked
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import ANY, Rules
from flower_pca.layers import NOISE
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical.rows import PartyColumns
from flower_pca.vertical.stages import BOTH

_OWN: Final = frozenset(BOTH)
_NEWEST: Final = "party columns"  # the cache key of the most recent PartyColumns, a view with the columns as rows
_OPERATOR: Final = "Ask the node's operator."


def check_request(request: wire.ServerRequest, rules: Rules) -> None:
    """Refuse a message about columns if the node's rules or the layout do not allow it.

    A message about rows is refused if the node takes part only in runs over columns.
    """
    stage = stage_asked(request)
    split = request.frame.split
    if split is None:
        _check_rows(stage, rules)
        return
    if not rules.split_columns:
        raise RefusalError(
            "This node does not take part in runs whose parties hold different columns, because its split_columns is "
            f"not set. {_OPERATOR}"
        )
    if stage is not None and not _serves(stage):
        raise ProtocolError(
            f"A message about columns cannot ask for the stage {stage}. It can ask for "
            f"{', '.join(sorted(filter(_serves, registry.STAGES)))}. {OTHER_SERVER}"
        )
    _check_layout(request)
    scale = None if rules.split_columns is True else rules.split_columns
    if scale not in (ANY, split.scale):
        raise RefusalError(
            f"The run asks for scale={split.scale}, but the rule split_columns of this node allows only {scale}, "
            f"because answers with two scales together would reveal its columns. {_OPERATOR}"
        )


def _check_layout(request: wire.ServerRequest) -> None:
    """Refuse a message about columns if it has a center, a scale, column names or noise."""
    if request.frame.arrays or request.frame.names is not None or request.frame.own:
        raise ProtocolError(
            f"The server sent a center or a scale in a run over columns, but each node uses its own. {OTHER_SERVER}"
        )
    if NOISE in request.layers:
        raise ProtocolError(
            f"A message about columns asks for noise, but noise does not hide people in a run over columns. "
            f"{OTHER_SERVER}"
        )


def _check_rows(stage: str | None, rules: Rules) -> None:
    """Refuse a message about rows if its stage works on columns, or if the node serves only runs over columns."""
    if stage in _OWN:
        raise ProtocolError(f"A message for {stage} must be about columns, but this one is about rows. {OTHER_SERVER}")
    if stage is not None and only_columns(rules):
        raise RefusalError(
            "This node takes part only in runs over columns, because its split_columns is set. Answers about rows and "
            f"about columns together would reveal rows. {_OPERATOR}"
        )


def _serves(stage: str) -> bool:
    """Return whether a run over columns may use this stage.

    A stage of an algorithm for rows may be used if its answers contain only products and a count.
    """
    return stage in _OWN or (stage in registry.STAGES and registry.STAGES[stage].products_only)


def only_columns(rules: Rules) -> bool:
    """Return whether a node takes part only in runs over columns."""
    return bool(rules.split_columns) and rules.split_columns != ANY


def rows_or_columns(data: LocalData | Stream, request: wire.ServerRequest) -> LocalData | Stream:
    """Return the node's rows, or in a run over columns a view with its columns as rows. The last view is cached.

    Raises
    ------
    RefusalError
        If a run over columns asks for the rows of a stream.
    """
    split = request.frame.split
    if split is None or isinstance(data, PartyColumns):
        return data
    if isinstance(data, Stream):
        raise RefusalError(
            "A run over columns needs rows that do not change, but this client serves a Stream. Serve a fixed table."
        )

    def fits(newest: PartyColumns) -> bool:
        return replace(newest.split, salt=split.salt) == split

    def make() -> PartyColumns:
        gc.collect()
        return PartyColumns(data, split)

    newest = data.measured.cached_if(_NEWEST, fits, make)
    return data.measured.cached_if(_NEWEST, lambda columns: columns.split == split, lambda: newest.with_salt(split))


def names_for_result(data: LocalData | Stream) -> dict[str, object]:
    """Return the names for a node's own result: its columns, and in a run over columns also the ids of its people."""
    if isinstance(data, PartyColumns):
        return {"columns": data.data.names, "rows": data.data.table.ids}
    return {"columns": getattr(data, "names", None)}
