"""Write a node's answer to a message, or its refusal, on the node, and read it on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from flwr.app import MetricRecord, RecordDict

from flower_pca.base.errors import ProtocolError, safe_for_log
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.names.columns import LONGEST, Heading
from flower_pca.wire import packing, pieces, records
from flower_pca.wire.layouts import (
    ARRAYS,
    CLIENT_FN,
    CONFIG,
    EVALUATE,
    LOSS,
    MESSAGE_API,
    METRICS,
    NUM_EXAMPLES,
    Config,
    fit_or_evaluate,
    layout_of_reply,
)
from flower_pca.wire.records import (
    SPOKEN,
    VERSION,
    arrays_by_name,
    read_arrays,
    read_arrays_in_pieces,
    require_known_version,
    value_of,
)

NO_KEY: Final = -1  # the key of a client without a partition-id
# The keys of a node's name, and of the reason why it declines the alternative algorithm
SITE, DECLINES = "site", "declines"
# The keys for whether a node had a memory of the run before the message, and whether it has one now
_RECALLS, _KEEPS = "recalls", "keeps"
_LASTING: Final = "lasting"  # the key for whether a refusal holds for all further messages of the run
_ANSWER: Final = "An answer"


@dataclass(frozen=True)
class ClientAnswer:
    """A client's answer as the server reads it.

    If the client refuses to answer, `refusal` is its reason. `lasting` states whether the refusal holds for all further
    messages of the run.
    """

    number: int
    key: int
    arrays: Arrays
    num_examples: int
    refusal: str | None = None
    lasting: bool = False
    heading: Heading | None = None
    site: str = ""
    declines: str = ""
    recalls: bool = False  # whether the client had a memory of the run before the message
    keeps: bool = False  # whether the client has a memory for further messages


def write_fit(
    arrays: Arrays,
    num_examples: int,
    number: int,
    key: int,
    description: Config | None = None,
    *,
    layers: Mapping[str, Arrays] | None = None,
) -> tuple[list[Array], int, Config]:
    """Return the values that a NumPyClient's fit returns for an answer with these arrays.

    `description` contains further entries about the client, and `layers` are the layers of the message.
    """
    if layers:
        arrays = packing.pack(arrays, layers)
    metrics: Config = {**(description or {}), **SPOKEN, "number": number, "key": key, "names": ",".join(arrays)}
    return [np.asarray(a) for a in arrays.values()], num_examples, records.without_empty(metrics)


def write_memory(memory: Arrays, new_memory: Arrays) -> Config:
    """Return a client's report on its memory: whether it had a memory of the run, and whether it has one now."""
    return {name: True for name, arrays in ((_RECALLS, memory), (_KEEPS, new_memory)) if arrays}


def write_evaluate(arrays: Arrays, num_examples: int, number: int, key: int) -> tuple[float, int, Config]:
    """Return the values that a NumPyClient's evaluate returns: the loss, the number of rows, and the metrics.

    The loss is the mean squared error. The metrics contain the numbers of the answer.
    """
    numbers: Config = {name: a.item() for name, a in arrays.items()}
    metrics: Config = {**numbers, **SPOKEN, "number": number, "key": key, "names": ",".join(arrays)}
    return float(arrays["squares"]) / num_examples, num_examples, metrics


def refusal(reason: str, number: int, key: int, description: Config | None = None, *, lasting: bool = True) -> Config:
    """Return the metrics of a client that refuses to answer, with the reason.

    `lasting` states whether the refusal holds for the rest of the run.
    """
    said: Config = {"number": number, "key": key, "names": "", "refusal": reason, _LASTING: lasting}
    return records.without_empty({**(description or {}), **SPOKEN, **said})


def write_reply(kind: str, first: Any, num_examples: int, metrics: Config, *, layout: str = MESSAGE_API) -> RecordDict:
    """Return the records for the values that fit or evaluate has returned, in the layout of the message.

    `first` is the list of arrays from fit, or the loss from evaluate.
    """
    content = RecordDict()
    if layout == CLIENT_FN:
        res = f"{fit_or_evaluate(kind)}res"
        records.put_values(content, f"{res}.metrics", metrics)
        content.metric_records[f"{res}.num_examples"] = MetricRecord({"num_examples": num_examples})
        if kind == EVALUATE:
            content.metric_records[f"{res}.loss"] = MetricRecord({"loss": first})
        else:
            records.put_arrays(content, f"{res}.parameters", first)
        records.put_values(content, f"{res}.status", {"code": 0, "message": "Success"})
        return content
    config = dict(metrics)
    names = [name for name in str(config.pop("names", "")).split(",") if name]
    figures: dict[str, Any] = {NUM_EXAMPLES: num_examples}
    if kind == EVALUATE:
        figures |= {LOSS: first, **{name: config.pop(name) for name in names}}
    else:
        pieces.put_in_pieces(content, ARRAYS, dict(zip(names, map(np.asarray, first), strict=True)))
    content.metric_records[METRICS] = MetricRecord(figures)
    records.put_values(content, CONFIG, config)
    return content


def is_reply(content: RecordDict, kind: str) -> bool:
    """Return whether the content is a reply from a single client."""
    return layout_of_reply(content, kind) is not None


def as_config(values: object) -> Config:
    """Return values as a config. Raise ProtocolError if a ConfigRecord of Flower cannot store them."""
    try:
        return dict(records.ConfigRecord(values))  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"The metrics of an answer contain values that are neither numbers nor texts. {records.SENDER}"
        ) from error


def read_reply(content: RecordDict, kind: str, *, release: bool = False) -> ClientAnswer:
    """Return a client's answer from the records of its reply.

    With `release`, the numbers of large arrays are removed from the reply while they are read, so that it can be read
    only once.
    """
    layout = layout_of_reply(content, kind)
    if layout == CLIENT_FN:
        res = f"{fit_or_evaluate(kind)}res"
        examples = value_of(_ANSWER, content.metric_records[f"{res}.num_examples"], "num_examples", int)
        metrics: Mapping[str, Any] = content.config_records[f"{res}.metrics"]
        return read_answer(kind, metrics, examples, lambda: read_arrays(content.array_records.get(f"{res}.parameters")))
    if layout is None:
        found = ", ".join(sorted(content)) or "none"
        raise ProtocolError(
            safe_for_log(
                f"An answer lacks the records {ARRAYS}, {METRICS} with {NUM_EXAMPLES}, and {CONFIG}. It has these "
                f"records: {found}. Let a client of flower_pca answer. If clients.register has added PCA to the app, "
                'give the strategy action="pca".'
            )
        )
    figures = content.metric_records[METRICS]
    examples = value_of(_ANSWER, figures, NUM_EXAMPLES, int)
    metrics = dict(content.config_records[CONFIG])
    if kind == EVALUATE:
        numbers = {name: value for name, value in figures.items() if name not in (NUM_EXAMPLES, LOSS)}
        return read_answer(kind, {**metrics, **numbers, "names": ",".join(numbers)}, examples, tuple)
    record = content.array_records[ARRAYS]
    named = {**metrics, "names": records.names_in(record)}
    return read_answer(kind, named, examples, lambda: read_arrays_in_pieces(content, ARRAYS, release=release))


def read_answer(
    kind: str, metrics: Mapping[str, Any], num_examples: int, parameters: Callable[[], Sequence[Array]]
) -> ClientAnswer:
    """Return a client's answer from the values that its fit or evaluate has returned."""
    # The version is checked even for a refusal, because a different version may be the reason for the refusal.
    require_known_version(_ANSWER, metrics, "a client", newest=VERSION)
    number = value_of(_ANSWER, metrics, "number", int)
    key = value_of(_ANSWER, metrics, "key", int)
    site = safe_for_log(value_of(_ANSWER, metrics, SITE, str))[:LONGEST] if SITE in metrics else ""
    if "refusal" in metrics:
        why = safe_for_log(value_of(_ANSWER, metrics, "refusal", str))
        return ClientAnswer(number, key, {}, num_examples, why, bool(metrics.get(_LASTING, True)), site=site)
    if kind == EVALUATE:
        names = value_of(_ANSWER, metrics, "names", str).split(",")
        return ClientAnswer(
            number, key, {n: np.array(value_of(_ANSWER, metrics, n, int, float)) for n in names}, num_examples
        )
    # Arrays are read only after these checks, because refusals and evaluations have none.
    arrays = packing.unpack(arrays_by_name(_ANSWER, parameters(), metrics))
    declines = safe_for_log(value_of(_ANSWER, metrics, DECLINES, str)) if DECLINES in metrics else ""
    recalls = bool(metrics.get(_RECALLS, False))
    keeps = bool(metrics.get(_KEEPS, False))
    heading = Heading.from_plain(metrics)
    return ClientAnswer(
        number, key, arrays, num_examples, heading=heading, site=site, declines=declines, recalls=recalls, keeps=keeps
    )
