"""Names as they are compared: what looks alike is alike, and what still differs is shown so that
one sees it.

The same letter may be one character or two (é), and a table from a spreadsheet has blanks and line
ends in its names. So names are brought into one form when they are read, at every door. What steers
a terminal is written out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final

# what stands where a value is missing: as pandas prints it, and as R, Excel and databases write it
GAPS: Final = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"}
)  # fmt: skip
INDEX: Final = "column 1 without a name (it looks like the index that pandas writes)"


def clean(name: str) -> str:
    """The name in normal form (NFC), blanks and line ends as single blanks within it, and nothing unprintable."""
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
