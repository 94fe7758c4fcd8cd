"""What the page of each kind of result says before its pictures, and which tables follow them.

A plain run has facts, components, clients, messages. Robust and personalized runs add what is theirs; a run with noise
says of its variances what can be said; a run of steps has a page of its own, in `steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.analysis.influence import influence, measured, warnings
from flower_pca.analysis.monitor import Monitor
from flower_pca.base import labels
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.plots import clients
from flower_pca.report import html, noise, personal, robust, steps
from flower_pca.results.pca import PCAResult
from flower_pca.results.personal import PersonalResult
from flower_pca.results.robust import RobustResult
from flower_pca.results.steps import TrackingResult

Shards = Sequence[Any] | None

_WITHOUT_NOISE: Final = (
    "The table of clients, and the pictures of their scores and errors, are made from the clients' own rows. They have "
    "no noise on them. The privacy budget does not cover them: leave them out of what is handed on."
)


def of(result: PCAResult | TrackingResult, shards: Shards) -> tuple[list[str], list[str]]:
    """What stands before the pictures, and what stands after them."""
    if isinstance(result, TrackingResult):
        last = [messages(result.history), failures(result.history, result.site_names)]
        return [*steps.before(result), sites(result)], [*steps.after(result), *last]
    said, figures, tables = _family(result, shards)
    known = result.certainty
    if known is not None:
        figures, said = {**noise.facts(result, known), **figures}, [html.paragraph(str(known), "said"), *said]
    if shards is not None and not tables:
        tables = [_clients(result, shards)]
    far = [html.paragraph(words, "said") for words in warnings(result)]
    said = [*said, *_limits(result), *far, *([] if tables else [sites(result)])]
    last = [messages(result.history), failures(result.history, result.site_names)]
    tables = [_components(result), *tables, *_influence(result)]
    return [html.facts({**_facts(result), **figures}), *said], [*tables, *last]


def _family(result: PCAResult, shards: Shards) -> tuple[list[str], dict[str, str], list[str]]:
    """What the kind of the result adds: paragraphs, facts and tables."""
    if isinstance(result, RobustResult):
        return robust.words(result, shards), robust.facts(result), robust.tables(result, shards)
    if isinstance(result, PersonalResult):
        return personal.words(result), personal.facts(result), personal.tables(result, shards)
    return [], {}, []


def _facts(result: PCAResult) -> dict[str, str]:
    history = result.history
    private = result.privacy is not None  # then the error and the residuals have noise on them too
    frame = ("centred" if result.centered else "not centred") + (", scaled" if result.scale_ is not None else "")
    facts = {
        "rows": labels.rows(result),
        "features": labels.width(result),
        "clients": f"{max((record.answered for record in history), default=0):,}",
        "components": f"{result.n_components_:,}",
        "variance explained": f"{result.explained_variance_ratio_.sum():.2%}",
        "columns": frame,
        **traffic(history),
        "answers of a client": "seen in sums only" if result.asked.get("mask") else "seen by the server",
    }
    if isinstance(result, RobustResult):
        del facts["variance explained"]  # of the low-rank part alone, which has no more components
    if result.pooled and not private:
        facts["largest residual"] = f"{result.residuals_.max():.1e}"
    if result.pooled and result.sine_estimate_ is not None:
        facts[f"sine of the angle left, {'at most ' if private else ''}about"] = f"{result.sine_estimate_:.1e}"
    if result.mse_ is not None:
        facts["mean squared error"] = f"{result.mse_:.4g}"
    return facts


def _limits(result: PCAResult) -> list[str]:
    """What T2 and SPE of a row stay below, if the run was asked to monitor."""
    return [] if result.histograms_ is None else [html.paragraph(f"Limits: {Monitor(result).limits()}.", "said")]


def _influence(result: PCAResult) -> list[str]:
    """What the components would be without each client, if the run was asked for it."""
    if not measured(result):
        return []
    head = ["without", "rows", "turn by, degrees", "explained", "column furthest out", "times"]
    lines = []
    for one in influence(result):
        figures = [f"{np.rad2deg(one.angle):.3g}", f"{one.explained:.2%}"]
        lines.append([one.name, f"{one.rows:,}", *figures, one.column, f"{one.times:.3g}"])
    return [html.table("What each client does to the components", head, lines, words=[0, 4])]


def sites(result: PCAResult | TrackingResult) -> str:
    """The clients that have names, in one sentence; nothing where none have."""
    names = [name for _, name in sorted(result.site_names.items())]
    more = f", and {len(names) - html.SHOWN} more" if len(names) > html.SHOWN else ""
    return html.paragraph(f"The clients: {', '.join(names[: html.SHOWN])}{more}.", "said") if names else ""


def traffic(history: History) -> dict[str, str]:
    """What the messages of a run amount to."""
    return {
        "messages": f"{len(history):,}",
        "sent by clients": labels.size(history.bytes_up),
        "sent to clients": labels.size(history.bytes_down),
        "time": f"{sum(record.seconds for record in history):.3g} s",
    }


def messages(history: History) -> str:
    """A line for each message."""
    head = ["no.", "stage", "error", "answered", "up", "down", "seconds"]
    return html.table("Messages", head, [_message(record) for record in history], words=[1])


def failures(history: History, names: Any) -> str:
    """Who was left out of which message, and why; likewise who has answered but had strayed; mostly nothing."""
    left = [(record, node, why) for record in history for node, why in record.failures.items()]
    strayed = [(record, node, why) for record in history for node, why in record.notes.items()]
    return _reasons("Clients that were left out", left, names) + _reasons("Clients that had strayed", strayed, names)


def _reasons(title: str, found: list[tuple[Round, str, str]], names: Any) -> str:
    rows = [[f"{record.number + 1}", _node(names, node), why] for record, node, why in found]
    return html.table(title, ["message", "client", "why"], rows, words=[1], long=2) if rows else ""


def _components(result: PCAResult) -> str:
    heads, lines = labels.listing(result)
    return html.table("Components", heads, lines, words=[len(heads) - 1])


def _clients(result: PCAResult, shards: Sequence[Any]) -> str:
    errors, sizes = clients.measured(result, shards), clients.rows(shards)
    order = _worst(errors)
    rows = [[labels.client_name(result.site_names, int(i)), f"{sizes[i]:,}", f"{errors[i]:.4g}"] for i in order]
    worst = f", the {html.SHOWN} with the largest error" if len(errors) > html.SHOWN else ""
    head = ["client", "rows", "mean squared error of a row"]
    table = html.table(f"Clients{worst}", head, rows[: html.SHOWN], words=[0])
    return table if result.privacy is None else table + html.paragraph(_WITHOUT_NOISE)


def _worst(errors: Array) -> Array:
    """In their order while all are shown; else the largest first."""
    return np.argsort(-errors, kind="stable") if len(errors) > html.SHOWN else np.arange(len(errors))


def _message(record: Round) -> list[str]:
    error = f"{record.metrics['error']:.1e}" if "error" in record.metrics else ""
    answered = f"{record.answered:,}/{record.asked:,}"
    sizes = (labels.size(record.bytes_up), labels.size(record.bytes_down))
    return [f"{record.number + 1}", record.stage, error, answered, *sizes, f"{record.seconds:.2g}"]


def _node(names: Any, node: str) -> str:
    return str(names.get(int(node), node)) if node.isdecimal() else node
