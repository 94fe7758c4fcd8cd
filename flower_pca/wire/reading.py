"""Reading what comes from elsewhere: records of bytes, names and values that may be anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord

from flower_pca.base import archive, labels
from flower_pca.base.errors import ProtocolError, harmless
from flower_pca.base.linalg import Array
from flower_pca.base.version import __version__
from flower_pca.core.stage import Arrays

# what both are called in requests and answers
LAYOUT_KEY, VERSION_KEY = "flower_pca", "flower_pca.version"
LAYOUT: Final = 2  # of the messages; both sides must speak the same one
# of this package, x.y; both sides must have the same one
VERSION: Final = ".".join(__version__.split(".")[:2])
_NAMES: Final = 10_000  # characters of the names of all arrays of a message, at most
# characters of the name of an array, a stage or an algorithm, at most
_WORD: Final = 100
_PACKING: Final = "numpy.ndarray"  # what Flower calls arrays in numpy's own format
_EMPTY: Final = "_empty"  # what Flower puts into a record without arrays
SENDER: Final = "Check the sender."


def read_arrays(record: ArrayRecord | None) -> list[Array]:
    """The arrays in a record, none of which may be a pickle or longer than its bytes."""
    if record is None:
        raise ProtocolError("An answer", must="made of fitres.parameters", got="none", then="Check the client.")
    try:
        return [read_array(array) for name, array in record.items() if name != _EMPTY]
    except Exception as error:  # bytes from elsewhere: numpy raises nearly anything on them
        rule = "made of numpy arrays without pickles"
        got = f"bytes that numpy cannot read ({type(error).__name__})"
        raise ProtocolError("A message", must=rule, got=got, then=SENDER) from error


def read_array(array: FlowerArray) -> Array:
    """The numbers in one of Flower's arrays, as its own `numpy()` gives them, with one look at their header."""
    if array.stype != _PACKING:
        raise TypeError("another packing of arrays")
    return archive.from_npy(array.data)


def by_name(who: str, arrays: Sequence[Array], config: Mapping[str, Any]) -> Arrays:
    """Arrays by the names that a config lists."""
    if "names" in config:
        text = value_of(who, config, "names", str)
    else:
        text = ""
    if len(text) > _NAMES:
        raise ProtocolError(who, must=f"one with names of at most {_NAMES} characters", got=len(text), then="Check it.")
    if text:
        names = text.split(",")
    else:
        names = []
    if max(map(len, names), default=0) > _WORD or not text.isprintable():
        rule = f"one whose arrays have printable names of at most {_WORD} characters"
        raise ProtocolError(who, must=rule, got=harmless(text), then=SENDER)
    if len(names) != len(arrays) or len(set(names)) != len(names):
        rule = f"made of one array for each of its names, {harmless(text) or 'none'}"
        raise ProtocolError(who, must=rule, got=labels.count(len(arrays), "array"), then=SENDER)
    return dict(zip(names, arrays, strict=True))


def check_spoken(who: str, config: Mapping[str, Any], stranger: str, *, newest: str) -> None:
    """Require layout and version of this package; `newest` is the version that all shall have."""
    layout, version = config.get(LAYOUT_KEY), config.get(VERSION_KEY)
    if layout == LAYOUT and version == VERSION:
        return
    if layout is None:
        got = f"that of {stranger}"
    else:
        got = f"layout {layout} and flower_pca {version or 'before 0.1'}"
    rule, remedy = f"of layout {LAYOUT} and flower_pca {VERSION}", f"Install flower_pca {newest} everywhere."
    raise ProtocolError(who, must=rule, got=harmless(got), then=harmless(remedy))


def value_of(who: str, config: Mapping[str, Any], name: str, *wanted: type[Any]) -> Any:
    """A value of one of these types; a bool is not taken for a number."""
    value = config.get(name)
    if not isinstance(value, wanted) or isinstance(value, bool):
        kinds = " or ".join(kind.__name__ for kind in wanted)
        if value is None:
            got = "none"
        else:
            got = harmless(f"{name}={value!r}")
        raise ProtocolError(who, must=f"one with {name} ({kinds})", got=got, then=SENDER)
    return value


def word_of(who: str, config: Mapping[str, Any], name: str) -> str:
    """A text that is to be a name: it will stand in logs, and steers no terminal there."""
    text: str = value_of(who, config, name, str)
    if len(text) > _WORD or not text.isprintable():
        rule, got = f"one whose {name} is a printable text of at most {_WORD} characters", harmless(repr(text))
        raise ProtocolError(who, must=rule, got=got, then=SENDER)
    return text
