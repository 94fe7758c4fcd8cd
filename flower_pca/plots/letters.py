"""Letters of names that matplotlib's own font has no shape for: another font of the machine that has them."""

from __future__ import annotations

from functools import cache
from typing import Final

_NO_SHAPES: Final = "last resort"  # a font that has a box for every letter


def legible(text: str) -> str:
    """The text, with a question mark for each letter that no font of this machine has."""
    return "".join(c if ord(c) in _own() or _font(c) else "?" for c in text)


def family(text: str) -> list[str]:
    """The fonts that the text takes, matplotlib's own first."""
    import matplotlib

    others = {_font(c) for c in text if ord(c) not in _own()} - {None}
    return [*matplotlib.rcParams["font.family"], *sorted(name for name in others if name)]


@cache
def _font(letter: str) -> str | None:
    """The name of a font that has this letter; the first by name."""
    from matplotlib.font_manager import fontManager, get_font

    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.weight != 400, entry.name, entry.fname)):
        plain = _NO_SHAPES not in entry.name.lower() and entry.style == "normal"
        if plain and ord(letter) in get_font(entry.fname).get_charmap():
            return str(entry.name)
    return None


@cache
def _own() -> frozenset[int]:
    """The characters of matplotlib's own font."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())
