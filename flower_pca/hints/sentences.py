"""What the sentences of all hints share."""

from __future__ import annotations

from typing import Final

from flower_pca.base import labels
from flower_pca.base.options import option, reading

SAID: Final = 3  # sentences of one kind
AS_MEAN: Final = f" and use {option('missing', 'mean')}"


def capital(text: str) -> str:
    """A text that begins a sentence."""
    return f"{text[0].upper()}{text[1:]}"


def shorten(sentences: list[str]) -> list[str]:
    """The first sentences of one kind, and how many more there are."""
    beyond = len(sentences) - SAID
    if beyond <= 0:
        return sentences
    first = sentences[SAID - 1]
    more = labels.count(beyond, "more hint")
    return [*sentences[: SAID - 1], f"{first} And {more} of this kind."]


def gaps_of(value: float) -> str:
    """What reads this value as a gap."""
    plain = int(value) if abs(value) < 2**53 and value == int(value) else value
    return reading("gaps", [plain])
