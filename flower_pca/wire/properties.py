"""Write and read two queries of a server, for the properties of a node and for the PCA actions of an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from flwr.app import ArrayRecord, MetricRecord, RecordDict

from flower_pca.base.errors import safe_for_log
from flower_pca.wire import records
from flower_pca.wire.layouts import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES, SERVER_ROUND

_PROPERTIES: Final = "getpropertiesres.properties"
# The name of the action with which a server requests the list of an app's PCA actions
DIRECTORY: Final = "flower_pca"
_ACTIONS: Final = "actions"
_MOST: Final = 20  # the maximum number of actions that are read from a message


def write_properties(properties: Mapping[str, Any]) -> RecordDict:
    """Return the records with a node's properties, which it sends before a run."""
    return records.message_content({_PROPERTIES: properties})


def read_properties(content: RecordDict) -> Mapping[str, Any]:
    """Return the properties that a node has sent, or an empty mapping if its answer has no such record."""
    return records.values_in(content, _PROPERTIES)


def write_actions(actions: Sequence[str]) -> RecordDict:
    """Return the records that list the PCA actions of an app, together with the records that mods may expect."""
    content = records.message_content({CONFIG: {_ACTIONS: list(actions)}})
    content.array_records[ARRAYS] = ArrayRecord()
    content.metric_records[METRICS] = MetricRecord({NUM_EXAMPLES: 0})
    return content


def read_actions(content: RecordDict) -> list[str]:
    """Return the PCA actions that an app has listed, or an empty list if its answer lists none."""
    actions = records.values_in(content, CONFIG).get(_ACTIONS, [])
    return [safe_for_log(str(action)) for action in actions[:_MOST]] if isinstance(actions, list) else []


def write_directory_query(server_round: int) -> RecordDict:
    """Return the records that ask an app for its PCA actions, together with the records that mods may expect."""
    content = records.message_content({CONFIG: {SERVER_ROUND: server_round}})
    content.array_records[ARRAYS] = ArrayRecord()
    return content


def write_query() -> RecordDict:
    """Return the records that ask a node for its properties."""
    return records.message_content({"getpropertiesins.config": {}})
