"""The two kinds and the two layouts of messages, and functions that detect the layout of a message or a reply.

The two kinds are Flower's "train", and Flower's "evaluate" for the final evaluation.

Nodes that use Flower's message API get the same records as from Flower's own strategies: `arrays`, by name, and
`config`, which contains `server-round`. They answer with `arrays`, `metrics`, which contains `num-examples`, and
`config`. A ClientApp with a client_fn reads only records with other names, such as `fitins.parameters`. As long as
a server does not know which layout a node uses, it sends both layouts, and the node answers in its own layout.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from flwr.app import RecordDict

Scalar: TypeAlias = bool | bytes | float | int | str
Config: TypeAlias = dict[str, Scalar]

# The stage whose messages are sent as "evaluate" messages. The messages of all other stages are sent as "train".
EVALUATE: Final = "evaluate"
MESSAGE_API: Final = "message API"
CLIENT_FN: Final = "client_fn"
BOTH: Final = (MESSAGE_API, CLIENT_FN)
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
NUM_EXAMPLES, LOSS, SERVER_ROUND = "num-examples", "loss", "server-round"


def message_kind(stage: str) -> str:
    """Return the type of a stage's messages in Flower: "train" or "evaluate"."""
    if stage == EVALUATE:
        return EVALUATE
    return "train"


def fit_or_evaluate(kind: str) -> str:
    """Return the verb, "fit" or "evaluate", with which Flower names the records of a message of this kind."""
    if kind == EVALUATE:
        return EVALUATE
    return "fit"


def record_names(layout: str, kind: str) -> tuple[str, str]:
    """Return the names of the records with the arrays and with the config of a message of this kind."""
    if layout == MESSAGE_API:
        return ARRAYS, CONFIG
    return f"{fit_or_evaluate(kind)}ins.parameters", f"{fit_or_evaluate(kind)}ins.config"


def layout_of_request(content: RecordDict, kind: str) -> str | None:
    """Return the layout of a message, or None if it has neither. If it has both, the message API is preferred."""
    for layout in BOTH:
        arrays, config = record_names(layout, kind)
        if arrays in content.array_records and config in content.config_records:
            return layout
    return None


def layout_of_reply(content: RecordDict, kind: str) -> str | None:
    """Return the layout of a reply from a single client, or None if the content is not such a reply."""
    if CONFIG in content.config_records and NUM_EXAMPLES in content.metric_records.get(METRICS, {}):
        if kind == EVALUATE or ARRAYS in content.array_records:
            return MESSAGE_API
        return None
    res = f"{fit_or_evaluate(kind)}res"
    if f"{res}.metrics" in content.config_records and f"{res}.num_examples" in content.metric_records:
        return CLIENT_FN
    return None
