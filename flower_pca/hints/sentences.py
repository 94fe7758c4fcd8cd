"""Phrases that several kinds of hints share."""

from __future__ import annotations

from collections.abc import Mapping
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


def not_looked_for(left_out: Mapping[str, str]) -> list[str]:
    """Return a sentence that says what was not looked for, from the reason for each of these things, or []."""
    by_reason: dict[str, list[str]] = {}
    for what, reason in left_out.items():
        by_reason.setdefault(reason, []).append(what)
    said = [
        f"{labels.capitalize(labels.join_with_and(some))} were not looked for, because {reason}."
        for reason, some in by_reason.items()
    ]
    return [" ".join(said)] if said else []


def gaps_option(value: float) -> str:
    """Return the words for the option that reads this number as a missing value."""
    plain = int(value) if abs(value) < 2**53 and value == int(value) else value
    return reader_argument("gaps", [plain])
