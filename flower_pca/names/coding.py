"""Coding: columns of numbers that are made of columns of words. The one place where a table becomes that of a run.

A run may ask for columns that no table has as they are: ward=surgery, which is made of ward.
Whoever prepares a table for a run, at whatever door, calls these, and knows no more of how they are
made:

    Coding      what a run asks: of which columns, what these become, and what sites agree on before
    source_of   the column that one of this name is made of
    of_node     a node's rows, with all columns that its own rules let runs have
    expand      the columns that a run names, of rows that are coded: one of words stands for its own
    grown       rows with all columns that a run names
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flower_pca.names import levels
from flower_pca.names.levels import Coding as Coding
from flower_pca.names.table import Table


def source_of(name: str) -> str:
    """The column that one of this name would be made of; "" if of none."""
    return levels.column_of(name)


def of_node(rows: Table, words: Sequence[str], *, least: int, who: str) -> Table:
    """A node's rows, with the columns that these words become, of nothing that is too rare."""
    if not words:
        return rows
    return levels.code(rows, words, least=least, who=who)


def expand(names: Iterable[str], *, known: Iterable[str], words: Iterable[str]) -> tuple[str, ...]:
    """The columns that a run names, where each of these words stands for all that is made of it."""
    there, coded = list(known), frozenset(words)
    own = ([made for made in there if source_of(made) == name] if name in coded else [name] for name in names)
    return tuple(name for some in own for name in some)


def grown(rows: Table, names: Sequence[str], who: str) -> Table | None:
    """The rows with all of these columns that they can make; None if there is nothing to make."""
    if not any(map(source_of, names)):
        return None
    made = levels.new_columns(rows, names, who)
    if not made:
        return None
    return replace(levels.beside(rows, made), texts={}, coded=())
