"""Numeric columns made from columns of words. Only this module turns the table of a site into the table of a run.

A run may ask for columns that no table has, such as ward=surgery, which is made from ward. Code that prepares a table
for a run calls these functions, and needs to know nothing else about coding:

    Coding      the columns that a run codes, what they become, and what sites agree on before
    source_of   the column from which a column of this name is made
    of_node     a node's rows with the coded columns that its rules allow
    expand      the columns of a run, with a column of words replaced by its coded columns
    grown       rows with all columns that a run names
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flower_pca.names import levels
from flower_pca.names.levels import Coding as Coding
from flower_pca.names.table import Table


def source_of(name: str) -> str:
    """Return the column from which a column of this name would be made, or "" if there is none."""
    return levels.column_of(name)


def of_node(rows: Table, words: Sequence[str], *, least: int, who: str) -> Table:
    """Return a node's rows with the columns that these words become. Levels of too few rows are merged."""
    if not words:
        return rows
    return levels.code(rows, words, least=least, who=who)


def expand(names: Iterable[str], *, known: Iterable[str], words: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a run, with each of these columns of words replaced by all columns made from it."""
    there, coded = list(known), frozenset(words)
    own = ([made for made in there if source_of(made) == name] if name in coded else [name] for name in names)
    return tuple(name for some in own for name in some)


def grown(rows: Table, names: Sequence[str], who: str) -> Table | None:
    """Return the rows with all of these columns that can be made from them, or None if nothing can be made."""
    if not any(map(source_of, names)):
        return None
    made = levels.new_columns(rows, names, who)
    if not made:
        return None
    return replace(levels.beside(rows, made), texts={}, coded=())
