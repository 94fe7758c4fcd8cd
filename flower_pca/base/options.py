"""Settings in the advice of messages, and their names in Python, at the command line and in a run-config.

A sentence is an f-string with `option("missing", "mean")` where it advises a setting. The setting is enclosed in two
marks until the sentence is shown. `Sentence` shows it in Python's words and keeps the marks. `in_words` puts it into
the words of another interface.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from flower_pca.base.settings import SETTINGS

# Further options of the command line. Most exist in a run-config under the same names, with hyphens.
_OTHERS: Final = (
    "algorithm", "algorithms", "tol", "max_rounds", "backend", "level", "init", "checkpoint", "resume", "ids",
    "ranges", "without", "gaps",
)  # fmt: skip
# The options of the command line by their names in Python.
OPTIONS: Final[Mapping[str, str]] = {
    **{name: setting.option for name, setting in SETTINGS.items()},
    **{name: f"--{name.replace('_', '-')}" for name in _OTHERS},
    "source": "--limits",
}
ANY: Final = "..."  # a value that only the reader knows

_MARK: Final = re.compile("\x02(.*?)\x03", re.DOTALL)

# A kind of advice with its subject: ["option", "scale", "std"], ["reading", "decimal", ","], ["apart", ["ward"]].
Advice: TypeAlias = list[Any]


def option(name: str, *value: object) -> str:
    """Return a setting for a sentence with the value to give it, or its name alone without a value."""
    return _marked("option", name, *value)


def reading(name: str, value: object) -> str:
    """Return an argument of a file's reader for a sentence: decimal=","."""
    return _marked("reading", name, value)


def apart(columns: list[str] | tuple[str, ...]) -> str:
    """Return the advice to keep these columns apart from the numbers."""
    return _marked("apart", list(columns))


def filling() -> str:
    """Return the advice to fill missing values of new rows with the means of the run."""
    return _marked("filling")


def _marked(*advice: object) -> str:
    return f"\x02{json.dumps(advice, default=_plain)}\x03"


def _plain(value: Any) -> object:
    """Convert a numpy number into Python's, and all else that JSON lacks into text."""
    return value.item() if hasattr(value, "item") else str(value)


class Sentence(str):
    """A sentence in Python's words that keeps the marks of advised settings in `marked`."""

    marked: str

    def __new__(cls, text: str) -> Sentence:
        """Make the sentence of a text with marks."""
        marked = marks_of(text)
        self = super().__new__(cls, in_words(marked, in_python))
        self.marked = marked
        return self

    def __reduce__(self) -> tuple[type[Sentence], tuple[str]]:
        return Sentence, (self.marked,)


def marks_of(text: str) -> str:
    """Return a sentence with its marks, so that it can be changed or put into another one."""
    return text.marked if isinstance(text, Sentence) else text


def in_words(text: str, name: Callable[[Advice], str]) -> str:
    """Rewrite a sentence with this function, which names the advised settings."""
    return _MARK.sub(lambda found: name(json.loads(found[1])), marks_of(text))


def in_python(advice: Advice) -> str:
    """Write advice in Python's words: keywords and methods."""
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
            return "keep these apart with beside=[...]"
        case _:
            return "result.with_imputation()"


def in_run_config(advice: Advice) -> str:
    """Write advice in the words of Flower's run-config: `n-components=2`, `scale="std"`."""
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
