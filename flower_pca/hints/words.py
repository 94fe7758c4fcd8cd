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
    words = f"With --{levels.Coding.field} {named} each of these becomes a column of its own."
    if len(usable) == len(cells):
        words = f"{words[:-1]}; --drop {named} leaves them out. A run needs one of both."
    return [f"Few words stand in {enumeration(usable)} of {where}. {words}"]


def columns_of_few(cells: Mapping[str, Sequence[Any]]) -> list[str]:
    """The columns of few words, which can become columns of their own."""
    return [name for name, found in cells.items() if levels.are_few(found)]
