"""Find columns of words with few different values, which a run can use as columns of 0 and 1."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flower_pca.names import levels
from flower_pca.names.columns import enumeration


def hints_of_words(cells: Mapping[str, Sequence[Any]], place: str) -> list[str]:
    """Return a hint about columns that hold only a few distinct words, with options to use or omit them, or []."""
    usable = columns_of_few_words(cells)
    if not usable:
        return []
    named = shlex.quote(",".join(usable))
    many = len(usable) > 1
    which = f"{'Columns' if many else 'Column'} {enumeration(usable)} of {place} {'hold' if many else 'holds'} words."
    words = f"Add --{levels.Coding.field} {named} to make a column of each word"
    if len(usable) == len(cells):
        return [f"{which} {words}, or --drop {named} to leave {'them' if many else 'it'} out."]
    return [f"{which} {words}."]


def columns_of_few_words(cells: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns with few different words."""
    return [name for name, found in cells.items() if levels.are_few(found)]
