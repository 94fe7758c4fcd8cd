"""What a node says of itself before a run, in answer to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from flwr.app import ArrayRecord, MetricRecord, RecordDict

from flower_pca.base.errors import harmless
from flower_pca.wire import records
from flower_pca.wire.layouts import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES, SERVER_ROUND

_PROPERTIES: Final = "getpropertiesres.properties"
# Flower's name of the function that says under which actions an app has PCA
DIRECTORY: Final = "flower_pca"
_ACTIONS: Final = "actions"
_MOST: Final = 20  # actions that a message names


def write_properties(properties: Mapping[str, Any]) -> RecordDict:
    """The records of what a node says of itself before a run."""
    return records.content({_PROPERTIES: properties})


def read_properties(content: RecordDict) -> Mapping[str, Any]:
    """What a node says of itself; nothing if it does not."""
    return records.values_in(content, _PROPERTIES)


def write_actions(actions: Sequence[str]) -> RecordDict:
    """The records of what an app says of the actions under which it has PCA, beside those that mods may look for."""
    content = records.content({CONFIG: {_ACTIONS: list(actions)}})
    content.array_records[ARRAYS] = ArrayRecord()
    content.metric_records[METRICS] = MetricRecord({NUM_EXAMPLES: 0})
    return content


def read_actions(content: RecordDict) -> list[str]:
    """Under which actions an app has PCA; nothing if it does not say."""
    actions = records.values_in(content, CONFIG).get(_ACTIONS, [])
    return [harmless(str(action)) for action in actions[:_MOST]] if isinstance(actions, list) else []


def write_directory_query(server_round: int) -> RecordDict:
    """What an app is asked for its actions, in the records that mods may look for."""
    content = records.content({CONFIG: {SERVER_ROUND: server_round}})
    content.array_records[ARRAYS] = ArrayRecord()
    return content


def write_query() -> RecordDict:
    """What a node is asked for its properties."""
    return records.content({"getpropertiesins.config": {}})
