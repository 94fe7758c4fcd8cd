"""What a node says of itself before a run, in answer to a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flwr.app import RecordDict

from flower_pca.wire import records

_PROPERTIES: Final = "getpropertiesres.properties"


def write_properties(properties: Mapping[str, Any]) -> RecordDict:
    """The records of what a node says of itself before a run."""
    return records.content({_PROPERTIES: properties})


def read_properties(content: RecordDict) -> Mapping[str, Any]:
    """What a node says of itself; nothing if it does not."""
    return records.values_in(content, _PROPERTIES)


def write_query() -> RecordDict:
    """What a node is asked for its properties."""
    return records.content({"getpropertiesins.config": {}})
