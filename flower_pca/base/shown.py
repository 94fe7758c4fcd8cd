"""Functions that show values in messages and in `repr`, but never any rows."""

from __future__ import annotations

import re
from collections.abc import Sized
from dataclasses import MISSING, fields, is_dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np

_SHORT: Final = 200  # maximum number of characters of a text that is shown in full
_LONG: Final = 1000  # maximum number of characters of a path that is shown in full
# A spreadsheet reads a cell that begins with one of these characters as a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def shown(value: object) -> str:
    """Return a short description of a value for a message, without any rows.

    Scalars and short texts are shown in full. For arrays, tables, lists, mappings and long texts, only the
    kind and size are shown, because such a value may be data that was passed in the wrong place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        if len(value) <= _SHORT and "\n" not in value:
            return repr(value)
        return f"a text of {len(value):,} characters"
    if value is None or isinstance(value, bool | int | float | complex):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = "an array" if type(value) is np.ndarray else with_article(type(value).__name__)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(side, int) for side in shape):
        return f"{kind} of shape {shape}"
    if isinstance(value, list | tuple | set | frozenset | dict | bytes):
        return f"{kind} of length {len(value):,}" if value else repr(value)
    return kind


def path_text(path: object) -> str:
    """Return a path without quotation marks for a message, or a short description if the text may be data."""
    text = str(path)
    return text if len(text) <= _LONG and "\n" not in text else shown(text)


def shown_as_text(cell: object) -> object:
    """Return the content of a cell so that a spreadsheet does not execute it.

    A text that looks like a formula gets a leading apostrophe. Numbers are unchanged.
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA_STARTS) or reads_as_number(cell):
        return cell
    return f"'{cell}"


def reads_as_number(text: str) -> bool:
    """Return whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


_NUMBER: Final = r"[-+]?(\d[\d., '\u00a0\u202f]*|[.,]\d+)"
_KINDS: Final = (
    (r"[-+]?\d*,\d+", "a number with a comma"),
    (r"[-+]?\d{1,3}([., '])\d{3}(\1\d{3})*([.,]\d+)?", "a number with separators of thousands"),
    (r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T].*)?", "a date"),
    (r"\d+([.,]\d+)?\s*[/-]\s*\d+([.,]\d+)?", "two numbers"),
    (r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?", "a time of day"),
    (rf"[<>=~\u2264\u2265]+\s*{_NUMBER}.*", "a number after a sign such as <"),
    (rf"{_NUMBER}\s*%", "a number with a percent sign"),
    (rf"{_NUMBER}\s*[^\W\d_][^\d]*(\d?)", "a number with a unit"),
    (r"[-+\d.,'_ ]+", "a number in an unknown form"),
    (r"#[\w/]+[!?]?", "an error of a spreadsheet"),
)


def kind_of_cell(cell: object) -> str:
    """Describe a cell that holds no number, without its content, because it may be about a person.

    Examples are "a text of 9 letters", "a number with a comma" and "a date".
    """
    if not isinstance(cell, str):
        return f"a value of type {type(cell).__name__}"
    text = cell.strip()
    # Each run of spaces becomes one space, because a long run could be divided among parts of a pattern in many ways.
    line = " ".join(text.split())
    for pattern, kind in _KINDS:
        if re.fullmatch(pattern, line) and (line[0] == "#" or any(map(str.isdigit, line))):
            return kind
    if "\u2026" in text:
        return "a long text"
    what = "letter" if text.isalpha() else "character"
    return f"a text of {len(text):,} {what}{'' if len(text) == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return a noun with the indefinite article, "a" or "an"."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def brief(self: Any) -> str:
    """Return a one-line description of a dataclass or named tuple, without any rows.

    For a dataclass, only the fields that differ from their defaults are shown. Classes use this function as `__repr__`.
    """
    parts = ", ".join(f"{name}={shown(value)}" for name, value in _shown_fields(self))
    return f"{type(self).__name__}({parts})"


def _equals_default(value: object, usual: object) -> bool:
    """Return whether a value equals the default `usual`. Arrays are not compared, because numpy compares entries."""
    if value is usual:
        return True
    plain = isinstance(value, str | bool | int | float) or (isinstance(value, Sized) and not len(value))
    return plain and type(value) is type(usual) and bool(value == usual)


def _shown_fields(instance: Any) -> list[tuple[str, object]]:
    """Return the names and values of the fields that `brief` shows."""
    if not is_dataclass(instance):
        return [(name, getattr(instance, name)) for name in instance._fields]
    told = []
    for field in fields(instance):
        value = getattr(instance, field.name)
        usual = field.default if field.default_factory is MISSING else field.default_factory()
        if not _equals_default(value, usual):
            told.append((field.name, value))
    return told


def in_one_line(error: Exception) -> str:
    """Return the class and text of another package's error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
