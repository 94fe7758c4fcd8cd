"""Labels: what columns, clients and counts are called, to be compared and to be read.

The same letter may be one character or two (é), and a table from a spreadsheet has blanks and line
ends in its names. So names are brought into one form when they are read, at every door: what looks
alike is alike, and what still differs is shown so that one sees it. What steers a terminal is
written out. What has no name of its own gets one here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array

# what stands where a value is missing: as pandas prints it, and as R, Excel and databases write it
GAPS: Final = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"}
)  # fmt: skip
INDEX: Final = "column 1 without a name (it looks like the index that pandas writes)"


def clean(name: str) -> str:
    """The name in normal form (NFC), single blanks within it, and nothing unprintable."""
    if name.isascii() and name.isprintable() and "  " not in name and name == name.strip():
        return str(name)  # Most names are clean, and a table may have a million of them.
    line = " ".join(unicodedata.normalize("NFC", name).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def is_gap(value: Any) -> bool:
    """Whether what stands in a cell says that there is no value."""
    return value is None or str(value).strip() in GAPS


def nameless(places: Sequence[int], count: int) -> str:
    """What is wrong with columns that have no name, by their places among all."""
    if list(places) == [0] and count > 1:
        return INDEX
    if len(places) == 1:
        some = "column"
    else:
        some = "columns"
    return f"{some} {', '.join(str(j + 1) for j in places)} without a name"


def double(name: str) -> str:
    """What is wrong with columns of one name."""
    return f"{name!r} more than once"


def unlike(lacking: Iterable[str], beyond: Iterable[str]) -> str:
    """How names that are nearly those that are lacking differ from these, as a sentence; "" where none are near."""
    near = {_outline(name): name for name in beyond}
    pairs = [(name, near[_outline(name)]) for name in lacking if _outline(name) in near]
    if not pairs:
        return ""
    one, other = pairs[0]
    if one.lower() == other.lower():
        return f"{one!r} and {other!r} differ only by case"
    parts = (f"{name!r} has {_points(name, than)}" for name, than in ((one, other), (other, one)))
    return f"{one!r} and {other!r} only look alike: {', '.join(parts)}"


def _outline(name: str) -> str:
    """What a name looks like: without case, and letters of all scripts by what they are called."""
    return "".join(map(_letter, unicodedata.normalize("NFKC", name).casefold()))


def _letter(c: str) -> str:
    _, known, letter = unicodedata.name(c, c).partition(" SMALL LETTER ")
    if known:
        return letter.lower()
    return c


def _points(name: str, than: str) -> str:
    own = [c for c in name if c not in than] or list(name)
    return " ".join(f"U+{ord(c):04X}" for c in own[:4])


_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def column_names(names: Iterable[Any] | None, count: int) -> list[str]:
    """The name of each of `count` columns; "column 0" and so on where they have none."""
    if names is None:
        return [f"column {j}" for j in range(count)]
    return [str(name) for name in names]


def texts(names: Sequence[str]) -> Array:
    """Names as scikit-learn has them, an array of objects."""
    return np.array(list(names), dtype=object)


def tuple_of(names: Array | None) -> tuple[str, ...] | None:
    """Names of columns as `array_of` was given them."""
    if names is None:
        return None
    return tuple(names.tolist())


def array_of(names: Sequence[str] | None) -> Array | None:
    """Names of columns as such an array, where there are any."""
    if names is None:
        return None
    return texts(names)


def client_name(names: Mapping[int, str], key: int) -> str:
    """The name of a client; "client 0" and so on where it has none."""
    return names.get(key, f"client {key}")


def range_of(what: str, numbers: Sequence[int]) -> str:
    """Numbers that follow each other, with what they are of: "component 3", "components 2 to 4"."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"{what} {first}"
    if last == first + 1:
        between = "and"
    else:
        between = "to"
    return f"{what}s {first} {between} {last}"


def leading(weights: Array, most: int) -> Array:
    """The positions of the `most` largest weights in size, largest first; zero ones never."""
    order = np.argsort(-np.abs(weights), kind="stable")[:most]
    return np.asarray(order[np.abs(weights[order]) > 0.0])


def in_words(weights: Array, names: Sequence[str], *, most: int = 3) -> str:
    """The largest weights with their columns: "+0.71 glucose, -0.50 age"."""
    return ", ".join(f"{weights[j]:+.2f} {names[j]}" for j in leading(weights, most))


def shorten(text: str, most: int) -> str:
    """The text on one line, without its middle where it is longer than `most` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    tail = (most - 1) // 3
    return f"{line[: most - 1 - tail]}…{line[len(line) - tail :]}"


def count(number: int, what: str) -> str:
    """So many things: "1 message", "2,000 messages"."""
    return f"{number:,} {noun(number, what)}"


def noun(number: int, what: str) -> str:
    """The word for one of these things, or for several."""
    if number == 1:
        return what
    if what.endswith("ry"):
        return f"{what[:-1]}ies"
    return f"{what}s"


def size(number: float) -> str:
    """So many bytes: "606 B", "35.2 kB"."""
    power = 0
    # In three digits, as it is shown: 999.9 would be 1e+03.
    while float(f"{number:.3g}") >= 1000.0 and power < len(_UNITS) - 1:
        number, power = number / 1000.0, power + 1
    return f"{number:.3g} {_UNITS[power]}"


def bounds(share: Array) -> str:
    """A share that is known within bounds."""
    low, high = (round(100.0 * float(end)) for end in share)
    if low == 0 and high == 100:
        return "unknown"
    if low == high:
        return f"about {low}%"
    return f"{low}% to {high}%"


def series(words: Sequence[str]) -> str:
    """A list in a sentence: "1, 2 and 3"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def in_columns(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A plain text table, numbers to the right, whose last column is words."""
    widths = [max(10, len(head)) for head in heads[:-1]]
    every = [zip(line[:-1], widths, strict=True) for line in (heads, *lines)]
    texts = [" ".join(f"{cell:>{width}}" for cell, width in cells) for cells in every]
    ends = [line[-1] for line in (heads, *lines)]
    pairs = zip(texts, ends, strict=True)
    return "\n".join(f"{text}  {end}" for text, end in pairs)
