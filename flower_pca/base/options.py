"""Settings in the advice of messages, and their names in Python, at the command line and in a run-config.

A message that advises a setting is an f-string with, for example, `option("missing", "mean")`. This call returns the
setting between two marks. `Sentence` shows the setting as Python writes it, and keeps the marks. `with_advice_written`
rewrites the message for another interface.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from flower_pca.base.settings import SETTINGS

# These options of the command line are not in SETTINGS. Most of them exist in a run-config under the same names, with
# hyphens.
_OTHER_OPTIONS: Final = (
    "algorithm", "algorithms", "tol", "max_rounds", "backend", "level", "init", "checkpoint", "resume", "ids",
    "ranges", "without", "gaps",
)  # fmt: skip
# This table gives the option of the command line for each name in Python.
OPTIONS: Final[Mapping[str, str]] = {
    **{name: setting.option for name, setting in SETTINGS.items()},
    **{name: f"--{name.replace('_', '-')}" for name in _OTHER_OPTIONS},
    "source": "--limits",
}
ANY: Final = "..."  # a placeholder for a value that the reader must fill in

_MARK: Final = re.compile("\x02(.*?)\x03", re.DOTALL)

# A piece of advice is a list of its kind and its arguments, for example ["option", "scale", "std"],
# ["reading", "decimal", ","] or ["apart", ["ward"]].
Advice: TypeAlias = list[Any]


def option(name: str, *value: object) -> str:
    """Return a marked setting for a message, with the recommended value if it is given."""
    return _with_marks("option", name, *value)


def reader_argument(name: str, value: object) -> str:
    """Return a marked argument of a file reader for a message, such as decimal=","."""
    return _with_marks("reading", name, value)


def advice_to_read_apart(columns: list[str] | tuple[str, ...]) -> str:
    """Return the marked advice to read these columns separately from the numeric columns."""
    return _with_marks("apart", list(columns))


def advice_to_fill() -> str:
    """Return the marked advice to fill missing values of new rows with the means of the run."""
    return _with_marks("filling")


def _with_marks(*advice: object) -> str:
    return f"\x02{json.dumps(advice, default=_as_json_value)}\x03"


def _as_json_value(value: Any) -> object:
    """Return a value in a form that JSON supports: a numpy number as a Python number, and any other value as text."""
    return value.item() if hasattr(value, "item") else str(value)


class Sentence(str):
    """A message whose settings are written as in Python. `marked` is the same message with marked settings."""

    marked: str

    def __new__(cls, text: str) -> Sentence:
        """Create the message from a text with marks."""
        self = super().__new__(cls, with_advice_written(text, in_python))
        self.marked = marks_of(text)
        return self

    def __reduce__(self) -> tuple[type[Sentence], tuple[str]]:
        return Sentence, (self.marked,)


def marks_of(text: str) -> str:
    """Return a message with its marks, so that it can be used as a part of another message."""
    return text.marked if isinstance(text, Sentence) else text


def with_advice_written(text: str, name: Callable[[Advice], str]) -> str:
    """Return a message with each marked piece of advice replaced by the text that `name` returns for this advice."""
    return _MARK.sub(lambda found: name(json.loads(found[1])), marks_of(text))


def in_python(advice: Advice) -> str:
    """Return a piece of advice in Python syntax, for example `missing="mean"`."""
    match advice:
        case ["option", name]:
            return str(name)
        case ["option", name, str(value)]:
            return f'{name}="{value}"'
        case ["option", name, [first, *_]] if first == ANY:
            return f"{name}=[...]"
        case ["option", name, value]:
            return f"{name}={value!r}"
        case ["reading", name, value]:
            return f"with {name}={value!r}"
        case ["apart", _]:
            return "read these columns separately with beside=[...]"
        case _:
            return "result.with_imputation()"


def in_run_config(advice: Advice) -> str:
    """Return the text of a piece of advice for Flower's run-config, for example `n-components=2`.

    Advice that a run-config cannot express is returned as for Python.
    """
    match advice:
        case ["option", name]:
            return str(name).replace("_", "-")
        case ["option", name, value] if name in OPTIONS and not isinstance(value, list | dict | None):
            return f"{name.replace('_', '-')}={json.dumps(value)}"
        case ["option", name, None] if name in OPTIONS:
            return f'{name.replace("_", "-")}=""'
        case ["option", name, [first, *more]] if name in OPTIONS:
            names = ["a", "b"] if first == ANY else [first, *more]
            return f'{name.replace("_", "-")}="{",".join(names)}"'
        case _:
            return in_python(advice)
