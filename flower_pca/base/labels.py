"""Texts for columns, clients, counts and lists, in a form that can be compared and displayed.

Unicode may represent a letter such as é by one character or by two, and names in spreadsheets may contain spaces and
line ends. Every reader therefore normalizes names, so that names are equal if they look the same. Messages show the
remaining differences, with escaped control characters. This module also names columns and clients without a name.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array

# These are the texts that pandas, R, Excel and databases write for a missing value.
GAPS: Final = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"}
)  # fmt: skip
INDEX: Final = "column 1 without a name (it looks like the index that pandas writes)"


def clean_name(name: str) -> str:
    """Return the name in Unicode normal form NFC, with single spaces and escaped unprintable characters."""
    if name.isascii() and name.isprintable() and "  " not in name and name == name.strip():
        return str(name)  # Most names are clean, and a table may have a million of them.
    line = " ".join(unicodedata.normalize("NFC", name).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


# The tables of many clients have the same names, and share one tuple. At most three tuples take turns in a run: all
# names, the chosen ones, and the names with columns for categories. A million names are large, so no more are kept.
@functools.lru_cache(maxsize=3)
def clean_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in normal form."""
    return tuple(map(clean_name, names))


def is_missing(value: Any) -> bool:
    """Return whether the content of a cell means a missing value."""
    return value is None or str(value).strip() in GAPS


def describe_nameless(positions: Sequence[int], count: int) -> str:
    """Return a description of the columns that have no name, by their positions.

    `positions` are the positions, and `count` is the number of all columns.
    """
    if list(positions) == [0] and count > 1:
        return INDEX
    some = "column" if len(positions) == 1 else "columns"
    return f"{some} {', '.join(str(j + 1) for j in positions)} without a name"


def describe_duplicate(name: str) -> str:
    """Return a description of a name that several columns have."""
    return f"{name!r} more than once"


def describe_difference(missing: Iterable[str], similar: Iterable[str]) -> str:
    """Return a description of the difference between a missing name and a similar name.

    `missing` are the missing names, and `similar` are the names that were found instead. Return "" if no names
    are similar.
    """
    near = {_look_alike_form(name): name for name in similar}
    pairs = [(name, near[_look_alike_form(name)]) for name in missing if _look_alike_form(name) in near]
    if not pairs:
        return ""
    one, other = pairs[0]
    if one.lower() == other.lower():
        return f"{one!r} and {other!r} differ only by case"
    parts = (f"{name!r} has {_code_points(name, than)}" for name, than in ((one, other), (other, one)))
    return f"{one!r} and {other!r} only look alike: {', '.join(parts)}"


def _look_alike_form(name: str) -> str:
    """Return a name in lower case, in which letters that look alike in different scripts are replaced by one letter."""
    return "".join(map(_letter, unicodedata.normalize("NFKC", name).casefold()))


def _letter(c: str) -> str:
    _, known, letter = unicodedata.name(c, c).partition(" SMALL LETTER ")
    if known:
        return letter.lower()
    return c


def _code_points(name: str, than: str) -> str:
    own = [c for c in name if c not in than] or list(name)
    return " ".join(f"U+{ord(c):04X}" for c in own[:4])


_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def column_names(names: Iterable[Any] | None, count: int) -> list[str]:
    """Return the names of `count` columns, or if `names` is None, "column 0" and so on."""
    if names is None:
        return [f"column {j}" for j in range(count)]
    return [str(name) for name in names]


def names_as_array(names: Sequence[str]) -> Array:
    """Return names as an array of objects, as scikit-learn does."""
    return np.array(list(names), dtype=object)


def tuple_of(names: Array | None) -> tuple[str, ...] | None:
    """Return the names in an array from `array_of` as a tuple, or None if the array is None."""
    if names is None:
        return None
    return tuple(names.tolist())


def array_of(names: Sequence[str] | None) -> Array | None:
    """Return names of columns as an array of objects, or None if `names` is None."""
    if names is None:
        return None
    return names_as_array(names)


def client_name(names: Mapping[int, str], key: int) -> str:
    """Return the name of a client, or for example "client 0" if the client has no name."""
    return names.get(key, f"client {key}")


def range_of(what: str, numbers: Sequence[int]) -> str:
    """Return a text with a range of numbers and their noun, for example "component 3" or "components 2 to 4"."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"{what} {first}"
    between = "and" if last == first + 1 else "to"
    return f"{what}s {first} {between} {last}"


def largest_positions(weights: Array, most: int) -> Array:
    """Return the positions of up to `most` weights with the largest absolute values, without zeros."""
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return np.asarray(order[np.abs(weights[order]) > 0.0])


MOST_WEIGHTS: Final = 3  # the maximum number of columns that describe a component in a table


def weights_in_words(weights: Array, names: Sequence[str]) -> str:
    """Return a text with the largest weights and their columns, for example "+0.71 glucose, -0.50 age"."""
    return ", ".join([f"{weights[j]:+.2f} {names[j]}" for j in largest_positions(weights, MOST_WEIGHTS)])


def capitalize(text: str) -> str:
    """Return the text with its first letter capitalized."""
    return f"{text[:1].upper()}{text[1:]}"


def shorten(text: str, most: int) -> str:
    """Return the text on one line, with an ellipsis in place of its middle if it is longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    tail = (most - 1) // 3
    return f"{line[: most - 1 - tail]}…{line[len(line) - tail :]}"


def count(number: int, what: str) -> str:
    """Return a text with a count and its noun, for example "1 message" or "2,000 messages"."""
    return f"{number:,} {pluralize(number, what)}"


def pluralize(number: int, what: str) -> str:
    """Return the noun in the singular or plural, as the number requires."""
    if number == 1:
        return what
    if what.endswith("ry"):
        return f"{what[:-1]}ies"
    return f"{what}s"


def bytes_in_words(number: float) -> str:
    """Return the text of a number of bytes, for example "606 B" or "35.2 kB"."""
    power = 0
    # The number is rounded to three digits before the comparison, because 999.9 would be shown as 1e+03.
    while float(f"{number:.3g}") >= 1000.0 and power < len(_UNITS) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_UNITS[power]}"


def share_in_words(share: Array) -> str:
    """Return the text of a share with these two bounds, for example "about 20%", "20% to 30%" or "unknown"."""
    low, high = (round(100.0 * float(end)) for end in share)
    if low == 0 and high == 100:
        return "unknown"
    if low == high:
        return f"about {low}%"
    return f"{low}% to {high}%"


def join_with_and(words: Sequence[str]) -> str:
    """Return a list as part of a sentence, for example "1, 2 and 3"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def join_with_or(words: Sequence[str]) -> str:
    """Return a choice as part of a sentence, for example "1, 2 or 3"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def text_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a plain text table. All columns are aligned to the right, except the last column, which contains words."""
    widths = [max(10, len(head)) for head in heads[:-1]]
    every = [zip(line[:-1], widths, strict=True) for line in (heads, *lines)]
    texts = [" ".join(f"{cell:>{width}}" for cell, width in cells) for cells in every]
    ends = [line[-1] for line in (heads, *lines)]
    return "\n".join(f"{text}  {end}" for text, end in zip(texts, ends, strict=True))
