"""Flower's records as plain arrays and values, both ways: nobody outside this room makes one, or takes one apart.

Where Flower's own signatures name a kind of record, as those of its strategies do, the name comes from here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord as ArrayRecord
from flwr.app import ConfigRecord as ConfigRecord
from flwr.app import MetricRecord as MetricRecord
from flwr.app import RecordDict

from flower_pca.base import archive
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.wire.reading import read_arrays

Content: TypeAlias = RecordDict  # of a message, or of a context's state


def with_names(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Arrays by name, as Flower's strategies return them."""
    return ArrayRecord({name: FlowerArray(a) for name, a in arrays.items()})


def figures(metrics: Mapping[str, Any]) -> MetricRecord:
    """Figures by name, likewise."""
    return MetricRecord(dict(metrics))


def content(values: Mapping[str, Mapping[str, Any]]) -> Content:
    """What a message or a state holds of values, by the name of their record."""
    return RecordDict({name: ConfigRecord(dict(some)) for name, some in values.items()})


def copy_of(whole: Content) -> Content:
    """The same records, to which others can be added."""
    return RecordDict(dict(whole.items()))


def put_values(whole: Content, name: str, values: Mapping[str, Any]) -> None:
    """Have these values in the record of that name."""
    whole.config_records[name] = ConfigRecord(dict(values))


def values_in(whole: Content, name: str) -> Mapping[str, Any]:
    """The values in the record of that name; none if it is not there."""
    return dict(whole.config_records.get(name, {}))


def put_arrays(whole: Content, name: str, arrays: Iterable[Array]) -> None:
    """Have these arrays, in their order, in the record of that name."""
    whole.array_records[name] = ArrayRecord([np.asarray(a) for a in arrays])


def arrays_in(whole: Content, name: str) -> list[Array]:
    """The arrays in the record of that name, in their order.

    Raises:
        ProtocolError: If there is no such record, or numpy cannot read what is in it.
    """
    return read_arrays(whole.array_records.get(name))


def singles(arrays: ArrayRecord) -> Arrays:
    """The arrays of a record, by name."""
    return {name: a.numpy() for name, a in arrays.items()}


def put_named(whole: Content, name: str, arrays: Mapping[str, Array]) -> None:
    """Have these arrays, by their names, in the record of that name."""
    whole.array_records[name] = with_names(arrays)


def named_in(whole: Content, name: str) -> Arrays | None:
    """The arrays in the record of that name, by their own; None if it is not there."""
    found = whole.array_records.get(name)
    if found is None:
        return None
    return {key: archive.from_npy(a.data) for key, a in found.items()}


def without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without empty texts: Flower's mods, which count their bytes, stumble over them."""
    return {name: value for name, value in values.items() if value != ""}
