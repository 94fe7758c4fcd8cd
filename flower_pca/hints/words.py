"""Columns of few words, which a run can use if it is told to."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flower_pca.names import levels
from flower_pca.names.columns import enumeration


def hints_of_words(cells: Mapping[str, Sequence[Any]], where: str) -> list[str]:
    """Which of these columns hold few words, and how a run can use them."""
    usable = columns_of_few(cells)
    if not usable:
        return []
    named = shlex.quote(",".join(usable))
    many = len(usable) > 1
    which = f"{'Columns' if many else 'Column'} {enumeration(usable)} of {where} {'hold' if many else 'holds'} words."
    words = f"Add --{levels.Coding.field} {named} to make a column of each word"
    if len(usable) == len(cells):
        return [f"{which} {words}, or --drop {named} to leave {'them' if many else 'it'} out."]
    return [f"{which} {words}."]


def columns_of_few(cells: Mapping[str, Sequence[Any]]) -> list[str]:
    """The columns of few words, which can become columns of their own."""
    return [name for name, found in cells.items() if levels.are_few(found)]
