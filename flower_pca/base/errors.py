"""The exceptions of this package: a small tree, to be caught at the level that suits.

Each says in one sentence what was wrong, what was got, and what to do. What a sentence speaks of
beside, such as a setting to use, stands in it as a part of its own: so each door can name it in
its own words, an option in place of a keyword.

Of packages that are optional: which extra brings each, and the one sentence about one that is not
there.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_LONGEST: Final = 500  # characters of another machine's text


@dataclass(frozen=True)
class Setting:
    """A setting and the value to give it: scale="std"; `...` stands for what the reader knows best."""

    name: str
    value: Any

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return f'{self.name}="{self.value}"'
        return f"{self.name}={self.value!r}".replace("Ellipsis", "...")

    @classmethod
    def read(cls, text: str) -> Setting:
        """A setting from its words."""
        name, _, value = text.partition("=")
        return cls(name, ast.literal_eval(value))


@dataclass(frozen=True)
class Name:
    """What a sentence is about: a setting, or a word that begins with the name of one."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Reading:
    """What the reader of a file needs to be told: with decimal=','."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"with {self.name}={self.value!r}"


@dataclass(frozen=True)
class Apart:
    """Columns that are to be kept apart from the numbers, as the reader of a file can."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return "keep these apart with beside=[...]"


@dataclass(frozen=True)
class Filling:
    """New rows whose gaps become the means of the run."""

    def __str__(self) -> str:
        return "result.filling_gaps()"


Mention = Setting | Name | Reading | Apart | Filling


class Words(str):
    """A sentence that knows where it mentions what each door calls otherwise; as a text, in Python's words.

    In an f-string it is a text like any other: `Words("Use ", Setting("scale", "std"), ".")` and
    `+` keep what is mentioned.
    """

    parts: tuple[str | Mention, ...]
    __slots__ = ("parts",)

    def __new__(cls, *parts: object) -> Words:
        """A sentence of texts, sentences and what they mention."""
        flat: list[str | Mention] = []
        for part in parts:
            if isinstance(part, Words):
                flat += part.parts
            elif isinstance(part, Mention):
                flat.append(part)
            else:
                flat.append(str(part))
        self = super().__new__(cls, "".join(map(str, flat)))
        self.parts = tuple(flat)
        return self

    def __add__(self, other: str) -> Words:
        return Words(self, other)

    def __radd__(self, other: str) -> Words:
        return Words(other, self)

    def __reduce__(self) -> tuple[type[Words], tuple[str | Mention, ...]]:
        return Words, self.parts

    @classmethod
    def series(cls, between: str, items: Sequence[str | Mention]) -> Words:
        """These, one after the other, with this between any two."""
        first, *others = items
        return cls(first, *(part for item in others for part in (between, item)))

    @property
    def settings(self) -> list[str]:
        """The settings that it mentions, in Python's words."""
        return [str(part) for part in self.parts if isinstance(part, Setting)]

    @classmethod
    def about(cls, text: str, settings: Iterable[str]) -> Words:
        """A text that mentions these settings, in this order."""
        parts: list[str | Setting] = []
        for setting in settings:
            before, _, text = text.partition(setting)
            parts += [before, Setting.read(setting)]
        return cls(*parts, text)

    def with_texts(self, change: Callable[[str], str]) -> Words:
        """The sentence with its texts, but nothing that it mentions, changed."""
        return Words(*(change(part) if isinstance(part, str) else part for part in self.parts))

    def said(self, by: Callable[[Mention], str]) -> str:
        """The sentence in the words of a door."""
        return "".join(part if isinstance(part, str) else by(part) for part in self.parts)


class FlowerPCAError(Exception):
    """Base class of every error that this package raises on purpose.

    Args:
        what: What is wrong; or the whole message, where nothing else is given.
        must: The rule that it breaks: "<what> must be <must>."
        got: What was there instead.
        then: What to do, as a sentence.

    Attributes:
        setting: The setting that it is about, by its name in Python; "" for none.
        value: What was given for it.
        place: Where the fault lies: a file, a line, a client.
        words: What it says, with the settings that it mentions: `words.settings` has these as
            Python writes them, and `words.said(by)` names them as a function `by` does.
        private: Whether it speaks of files or cells of this machine, so that no other is told what
            it says.
    """

    private = False

    def __init__(
        self,
        what: str,
        *,
        setting: str = "",
        value: object = None,
        place: str = "",
        must: str | None = None,
        got: object = None,
        then: str = "",
    ) -> None:
        self.setting, self.value, self.place = setting, value, place
        if must is None:
            words = Words(what)
        else:
            first, *rest = Words(what).parts
            if isinstance(first, str):
                first = Name(first)
            words = sentence(Words(first, *rest), must, got, then)
        super().__init__(words)
        self.words = words


class ConfigError(FlowerPCAError, ValueError):
    """A parameter of the run is not valid."""


class DataError(FlowerPCAError, ValueError):
    """The rows of a client, or the rows of all clients together, cannot be used as they are."""


class ProtocolError(FlowerPCAError, RuntimeError):
    """A message or a file does not have the layout that its reader expects."""


class NotEnoughNodes(FlowerPCAError, RuntimeError):  # noqa: N818
    """Fewer clients answered than the run needs."""


@contextmanager
def private(*, hold: bool = True) -> Iterator[None]:
    """Errors within speak of files of this machine; or of what all may know, unless `hold`."""
    try:
        yield
    except FlowerPCAError as error:
        error.private = hold
        raise


def harmless(text: str) -> str:
    """A text of another machine, to be logged: cut, without what steers a terminal."""
    if len(text) <= _LONGEST:
        cut = text
    else:
        cut = f"{text[:_LONGEST]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def sentence(what: str, must: str, got: object, then: str) -> Words:
    """The wording of every message about bad input."""
    return Words(what, " must be ", must, ". Got ", got, ". ", then)


# A package by its name for people: the module that it is imported as, and the extra that brings it.
EXTRAS: Final = {
    "matplotlib": ("matplotlib", "plot"),
    "scikit-learn": ("sklearn", "sklearn"),
    "pyarrow": ("pyarrow", "parquet"),
    "flwr-datasets": ("flwr_datasets", "datasets"),
    "Ray": ("ray", "simulation"),
}


def there(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(EXTRAS[package][0]) is not None


def lacking(package: str, to: str) -> ConfigError:
    """The error about a package that is not installed, and what it is needed for."""
    return ConfigError(
        package,
        must=f"installed {to}",
        got="no such package",
        then=f'Run: pip install "flower-pca[{EXTRAS[package][1]}]"',
    )


@contextmanager
def needing(package: str, to: str) -> Iterator[None]:
    """Imports of an optional package; without it an error says how to install it."""
    try:
        yield
    except ImportError as error:
        raise lacking(package, to) from error
