"""The two layouts in which messages travel, and which of them a message or a reply is in.

Nodes of Flower's message API get the records that Flower's own strategies send: `arrays`, by name, and
`config` with `server-round` in it. They answer with `arrays`, `metrics` with `num-examples`, and
`config`. A ClientApp with a client_fn knows records of other names only, such as `fitins.parameters`.
A server that does not know yet which layout a node speaks sends both, and the node answers in its own.
"""

from __future__ import annotations

from typing import Final

from flwr.app import RecordDict

from flower_pca.wire.kinds import EVALUATE, verb

MESSAGE_API: Final = "message API"
CLIENT_FN: Final = "client_fn"
BOTH: Final = (MESSAGE_API, CLIENT_FN)
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
NUM_EXAMPLES, LOSS, SERVER_ROUND = "num-examples", "loss", "server-round"


def of_request(layout: str, kind: str) -> tuple[str, str]:
    """Return the names of the records with the arrays and with the config of a message of this kind."""
    if layout == MESSAGE_API:
        return ARRAYS, CONFIG
    return f"{verb(kind)}ins.parameters", f"{verb(kind)}ins.config"


def layout_of_request(content: RecordDict, kind: str) -> str | None:
    """Return the layout of a message, that of the message API if it has both, or None if it has neither."""
    for layout in BOTH:
        arrays, config = of_request(layout, kind)
        if arrays in content.array_records and config in content.config_records:
            return layout
    return None


def layout_of_reply(content: RecordDict, kind: str) -> str | None:
    """Return the layout of a single client's reply, or None if it is not such a reply."""
    if CONFIG in content.config_records and NUM_EXAMPLES in content.metric_records.get(METRICS, {}):
        if kind == EVALUATE or ARRAYS in content.array_records:
            return MESSAGE_API
        return None
    res = f"{verb(kind)}res"
    if f"{res}.metrics" in content.config_records and f"{res}.num_examples" in content.metric_records:
        return CLIENT_FN
    return None
