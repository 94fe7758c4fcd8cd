"""What a node says of its columns, and which of them a run gets: by name, under the node's own rules."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from flower_pca import wire
from flower_pca.base import checks, hints
from flower_pca.clients.policy import limits
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.data import faults
from flower_pca.masking import messages
from flower_pca.names import coding
from flower_pca.names.columns import enumeration, lacking, not_named, some_only
from flower_pca.names.sites import SiteRows
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical import node
from flower_pca.vertical.stages import BOTH

# stages; masks hide which one they carry
_MAY_BE_OF_COLUMNS: Final = frozenset((*BOTH, messages.STAGE))
_OURS: Final = f"The columns of {checks.NODE}"


def node_rows(data: Any, rules: Rules) -> LocalData | Stream:
    """A node's rows. Of what no message may tell, the path of a file and its words, nothing is kept."""
    if isinstance(data, LocalData | Stream):
        return data
    rows = SiteRows.of(data, who=checks.NODE)
    for hint in hints.of_first_lines(() if rows.origin is None else rows.origin.headerless):
        logging.getLogger("flwr").warning("Of this node's rows: %s", hint)
    rows = coding.of_node(rows, rules.coded, least=rules.min_rows, who=checks.NODE).quiet()
    rows = replace(rows, site=rows.site if rules.share_names else "")
    # whether NaN may be says the message
    return LocalData(rows, who=checks.NODE, missing=True)


def notice(data: LocalData | Stream, loaded: Any) -> None:
    """Say in the node's own log which columns number its rows, and what faults the file has. No server is told.

    Args:
        data: The node's rows, of which nothing is kept that no message may tell.
        loaded: The same as they were read, with the lines that they are on.
    """
    if not isinstance(data, LocalData):
        return
    said = hints.of_identifiers(hints.find_identifiers([data], data.names), data.names)
    if isinstance(loaded, LocalData):
        whole = loaded
    else:
        whole = LocalData(loaded, who=checks.NODE, missing=True)
    for hint in (*said, *faults.find([whole], most=faults.CHEAP)):
        logging.getLogger("flwr").warning("Of this node's rows: %s", hint)


def select(data: LocalData | Stream, request: wire.Request, rules: Rules) -> LocalData | Stream:
    """The columns that a message asks for: those it names, or all, which must then all be numbers."""
    names, split = request.frame.names, request.frame.split
    if split is not None or rules.split_columns or request.stage in _MAY_BE_OF_COLUMNS:
        node.check(request, rules)
    if isinstance(data, Stream):
        data.widest = limits.widest_of(request)
        return of_run(data.select(names, one_by_one=rules.share_names), request)
    if names is None:
        if data.words and not rules.share_names:
            got = f"text in {len(data.words)} of them"
            raise RefusalError(_OURS, must="numbers", got=got, then="Ask the node's operator, or name others.")
        return of_run(data.select(None), request)
    if data.names is None:
        raise not_named(checks.NODE, data.d).error(RefusalError, "Give all nodes names of columns, or name none.")
    if not rules.share_names and (some := some_only(checks.NODE, names, data.names)):
        raise some.error(RefusalError, "Name all of them, or none, or ask the node's operator.")
    if texts := [name for name in names if name in data.words]:
        raise RefusalError(_OURS, must="numbers", got=f"text in column {enumeration(texts)}", then="Name others.")
    if absent := lacking(checks.NODE, _not_of_words(data, names), data.names):
        raise absent.error(RefusalError, "Ask the node's operator, or name others.")
    return data.arrange(names)


def _not_of_words(data: LocalData, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are neither columns of words that the node codes, nor made of these."""
    return tuple(name for name in names if not {name, coding.source_of(name)} & {*data.coded})


def of_run(data: LocalData | Stream, request: wire.Request) -> LocalData | Stream:
    """The node's rows; in a run whose parties hold different columns, these as rows."""
    if request.frame.split is None:
        return data
    return node.rows_or_columns(data, request)


def about(data: LocalData | Stream, request: wire.Request, rules: Rules, site: str) -> wire.Config:
    """What the node says of itself beside an answer: what it is called, and what columns it has answered of.

    It tells names only if it shares them, and those of columns only if it is asked.
    """
    wanted = request.frame.names
    heading = data.arrange(wanted).heading if isinstance(data, LocalData) and wanted else data.heading
    if heading is not None and not (rules.share_names and request.asks_names):
        heading = heading.quiet()
    return {**({wire.SITE: site} if site else {}), **({} if heading is None else heading.plain())}
