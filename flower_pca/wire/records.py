"""Convert between Flower's records and plain arrays and values. Only code in this folder creates or reads records.

Other modules import Flower's record classes from here, but only to annotate methods that Flower calls.

Bytes, names and values from other machines cannot be trusted, so they are checked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord as ArrayRecord
from flwr.app import ConfigRecord as ConfigRecord
from flwr.app import MetricRecord as MetricRecord
from flwr.app import RecordDict

from flower_pca.base import files, labels
from flower_pca.base.errors import ProtocolError, safe_for_log
from flower_pca.base.linalg import Array
from flower_pca.base.version import __version__
from flower_pca.core.stage import Arrays
from flower_pca.wire import pieces

# The keys of the layout and the version in requests and answers
LAYOUT_KEY, VERSION_KEY = "flower_pca", "flower_pca.version"
LAYOUT: Final = 4  # the version of the messages' layout, which must be the same on both sides
# The version x.y of this package, which must be the same on both sides
VERSION: Final = ".".join(__version__.split(".")[:2])
SPOKEN: Final[dict[str, Any]] = {LAYOUT_KEY: LAYOUT, VERSION_KEY: VERSION}
_NAMES: Final = 10_000  # the maximum total length of the names of all arrays in a message
# The maximum length of the name of an array, a stage or an algorithm
_WORD: Final = 100
_PACKING: Final = "numpy.ndarray"  # Flower's name for the format of arrays that numpy has serialized
_EMPTY: Final = "_empty"  # the name of the entry that Flower puts into a record without arrays
SENDER: Final = "flower_pca never sends this. Ask the operator of the machine that sent it which program runs there."


def read_arrays(record: ArrayRecord | None) -> list[Array]:
    """Return the arrays in a record. Refuse pickles, and arrays whose header does not fit their bytes."""
    if record is None:
        raise ProtocolError(
            "An answer has no record fitres.parameters, in which flower_pca puts its arrays. If the app has a fit "
            "method of its own, let it return the values from PCAClient.fit unchanged."
        )
    with _refusing_unreadable_arrays():
        return [_read_array(array) for name, array in record.items() if name != _EMPTY]


def read_arrays_in_pieces(content: Content, name: str, *, release: bool = False) -> list[Array]:
    """Return the arrays in the record of this name, like `read_arrays`. Large ones may have their numbers in pieces.

    With `release`, pieces are removed from the content as soon as they are copied.
    """
    with _refusing_unreadable_arrays():
        return [
            pieces.join_pieces(content, name, key, array.data, release=release)
            if array.stype == pieces.HEADER_ONLY
            else _read_array(array)
            for key, array in content.array_records[name].items()
            if key != _EMPTY
        ]


@contextmanager
def _refusing_unreadable_arrays() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # For bytes from another machine, numpy may raise almost any error.
        raise ProtocolError(f"An array in this message could not be read ({type(error).__name__}). {SENDER}") from error


def _read_array(array: FlowerArray) -> Array:
    if array.stype != _PACKING:
        raise TypeError("The array is not in numpy's format.")
    return files.from_npy(array.data)


def names_in(record: ArrayRecord) -> str:
    """Return the names of the arrays in a record, separated by commas as in a config of this package."""
    return ",".join([name for name in record if name != _EMPTY])


def size_of(content: Content) -> int:
    """Return the size of a message's content in bytes: keys and values, as Flower's `message_size_mod` counts them."""
    size = 0
    for arrays in content.array_records.values():
        for name, array in arrays.items():
            size += len(name) + len(array.data)
    records: list[Mapping[str, Any]] = [*content.config_records.values(), *content.metric_records.values()]
    for record in records:
        for name, values in record.items():
            size += len(name)
            for value in values if isinstance(values, list) else [values]:
                if isinstance(value, str | bytes):
                    size += len(value)
                else:
                    size += 1 if isinstance(value, bool) else 8
    return size


def arrays_by_name(who: str, arrays: Sequence[Array], config: Mapping[str, Any]) -> Arrays:
    """Return arrays by the names that a config lists."""
    text = value_of(who, config, "names", str) if "names" in config else ""
    if len(text) > _NAMES:
        raise ProtocolError(
            f"{who} has names of arrays with {len(text):,} characters in total, but at most {_NAMES:,} are allowed. "
            f"{SENDER}"
        )
    names = text.split(",") if text else []
    # Errors repeat these names, which come from another machine.
    if max(map(len, names), default=0) > _WORD or not text.isprintable():
        raise ProtocolError(
            f"{who} has arrays whose names are not printable or longer than {_WORD} characters: {safe_for_log(text)}. "
            f"{SENDER}"
        )
    if len(names) != len(arrays) or len(set(names)) != len(names):
        raise ProtocolError(
            f"{who} has {labels.count(len(arrays), 'array')} for the names {safe_for_log(text) or 'none'}, but "
            f"each name "
            f"needs its own array. {SENDER}"
        )
    return dict(zip(names, arrays, strict=True))


def require_known_version(who: str, config: Mapping[str, Any], stranger: str, *, newest: str) -> None:
    """Require that a message has the layout and version of this package.

    `stranger` is a noun for a sender without flower_pca, and `newest` is the version that all machines should have.
    """
    layout, version = config.get(LAYOUT_KEY), config.get(VERSION_KEY)
    if layout == LAYOUT and version == VERSION:
        return
    newest = safe_for_log(newest)
    if layout is None:
        raise ProtocolError(
            f"{who} comes from {stranger} that does not belong to flower_pca. Install flower_pca {newest} everywhere, "
            "and use its strategies together with its clients."
        )
    theirs = safe_for_log(f"flower_pca {version or 'before 0.1'} with layout {layout}")
    raise ProtocolError(
        f"{who} comes from {theirs}, but this machine has flower_pca {VERSION} with layout {LAYOUT}. Install "
        f"flower_pca {newest} everywhere."
    )


def value_of(who: str, config: Mapping[str, Any], name: str, *wanted: type[Any]) -> Any:
    """Return a value of a wanted type from a config, or else raise ProtocolError. A bool does not count as a number."""
    value = config.get(name)
    if not isinstance(value, wanted) or isinstance(value, bool):
        kinds = " or ".join(kind.__name__ for kind in wanted)
        if value is None:
            raise ProtocolError(f"{who} has no {name} ({kinds}). {SENDER}")
        raise ProtocolError(f"{who} has {safe_for_log(f'{name}={value!r}')}, which is not of type {kinds}. {SENDER}")
    return value


def name_in_config(config: Mapping[str, Any], name: str) -> str:
    """Return a name from a message's config. It appears in logs, so it must not contain control characters."""
    text: str = value_of("A message", config, name, str)
    if len(text) > _WORD or not text.isprintable():
        raise ProtocolError(
            f"The {name} of a message is not a printable text of at most {_WORD} characters: "
            f"{safe_for_log(repr(text))}. {SENDER}"
        )
    return text


Content: TypeAlias = RecordDict  # the content of a message, or of a context's state


def named_array_record(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a record of arrays by name, in the form in which Flower's strategies return arrays."""
    return ArrayRecord({name: FlowerArray(np.asarray(a)) for name, a in arrays.items()})


def config_record(values: Mapping[str, Any]) -> ConfigRecord:
    """Return a record of values by name. A caller's hooks get this record and may extend it."""
    return ConfigRecord(dict(values))


def metric_record(metrics: Mapping[str, Any]) -> MetricRecord:
    """Return a record of numbers by name."""
    return MetricRecord(dict(metrics))


def message_content(values: Mapping[str, Mapping[str, Any]]) -> Content:
    """Return the content of a message or a state. `values` maps the name of each record to the record's values."""
    return RecordDict({name: ConfigRecord(dict(some)) for name, some in values.items()})


def copy_of_content(content: Content) -> Content:
    """Return a copy of a message's content, so that records can be added without changing the original."""
    return RecordDict(dict(content.items()))


def put_values(content: Content, name: str, values: Mapping[str, Any]) -> None:
    """Store these values in the record of this name."""
    content.config_records[name] = ConfigRecord(dict(values))


def values_in(content: Content, name: str) -> Mapping[str, Any]:
    """Return the values in the record of this name, or an empty mapping if there is no such record."""
    return dict(content.config_records.get(name, {}))


def put_arrays(content: Content, name: str, arrays: Iterable[Array]) -> None:
    """Store these arrays, in their order, in the record of this name."""
    content.array_records[name] = ArrayRecord([np.asarray(a) for a in arrays])


def arrays_in(content: Content, name: str) -> list[Array]:
    """Return the arrays in the record of this name, in their order.

    Raises
    ------
    ProtocolError
        If there is no such record, or numpy cannot read it.
    """
    return read_arrays(content.array_records.get(name))


def arrays_of_record(arrays: ArrayRecord) -> Arrays:
    """Return the arrays of a record by name."""
    return {name: a.numpy() for name, a in arrays.items()}


def put_named(content: Content, name: str, arrays: Mapping[str, Array]) -> None:
    """Store these arrays, with their names, in the record of this name."""
    content.array_records[name] = named_array_record(arrays)


def put_record(content: Content, name: str, record: ArrayRecord) -> None:
    """Store the arrays of this record in a record of this name. The serialized arrays are shared, not copied."""
    content.array_records[name] = ArrayRecord(dict(record))


def named_in(content: Content, name: str) -> Arrays | None:
    """Return the arrays in the record of this name, by their own names, or None if there is no such record."""
    found = content.array_records.get(name)
    if found is None:
        return None
    return {key: files.from_npy(a.data) for key, a in found.items()}


def without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without empty texts, because Flower's mods that count bytes fail with empty texts."""
    return {name: value for name, value in values.items() if value != ""}
