"""Phrases that several kinds of hints share."""

from __future__ import annotations

from typing import Final

from flower_pca.base import labels
from flower_pca.base.options import option, reader_argument

SAID: Final = 3  # maximum number of hints of one kind that are shown
AS_MEAN: Final = f" and use {option('missing', 'mean')}"


def shorten_hints(sentences: list[str]) -> list[str]:
    """Return at most `SAID` hints of one kind. The last one adds the number of hints that are left out."""
    beyond = len(sentences) - SAID
    if beyond <= 0:
        return sentences
    first = sentences[SAID - 1]
    more = labels.count(beyond, "more hint")
    return [*sentences[: SAID - 1], f"{first} And {more} of this kind."]


def gaps_option(value: float) -> str:
    """Return the words for the option that reads this number as a missing value."""
    plain = int(value) if abs(value) < 2**53 and value == int(value) else value
    return reader_argument("gaps", [plain])
