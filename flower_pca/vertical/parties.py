"""The parties of a simulation over columns: their tables, of the same people, and what they keep after a run.

In one process all ids are at hand, so tables that do not belong together are named with the ids in which they differ;
nodes can compare digests only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, hints, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.core.question import Question
from flower_pca.names.columns import difference
from flower_pca.results import saved
from flower_pca.rows.local import LocalData
from flower_pca.simulation.sites import sites_of
from flower_pca.vertical.result import ColumnsResult
from flower_pca.vertical.rows import TurnedData
from flower_pca.vertical.split import Split

_SAME: Final = "Keep the rows of the same people at every party; their order does not matter."
_AS_IDS: Final = "Make it the ids of the rows, or leave it out."
_ALIGN: Final = "Keep the rows of the same people at every party, in the same order; or give ids."


@dataclass(frozen=True)
class Parties:
    """The tables of all parties, each prepared by its own means and scales, with people as columns."""

    turned: tuple[TurnedData, ...]

    @classmethod
    def of(cls, shards: Any, asked: Question) -> Parties:
        """Those of a simulation; DataError, naming the party, if they are not of the same people."""
        sites = [rows.whole(f"client {i}") for i, rows in enumerate(sites_of(shards))]
        tables = [LocalData(rows, who=f"client {i}", missing=True) for i, rows in enumerate(sites)]
        _require_same(tables)
        columns = sum(table.d for table in tables)
        checks.at_most(asked.n_components, tables[0].n, columns)
        if asked.missing == "error":
            for table in tables:
                table.require_whole()
        split = Split(asked.centered, asked.scale, asked.missing != "error", "simulated")
        found = cls(tuple(TurnedData(table, split) for table in tables))
        first = found.turned[0]
        for table in found.turned:
            if table.row_ids != first.row_ids:
                got = difference(table.row_ids or (), first.row_ids or ())
                what = f"The ids of the rows of {table.who}"
                raise DataError(what, must=f"those of {first.who}", got=f"{table.d:,}, {got}", then=_SAME)
        return found

    @property
    def people(self) -> int:
        """How many rows every table has."""
        return self.turned[0].d

    @property
    def columns(self) -> int:
        """How many columns all tables have together."""
        return sum(party.n for party in self.turned)

    def handed_over(self, result: ColumnsResult, own: dict[int, dict[str, Array]]) -> ColumnsResult:
        """The result with what these parties have kept, and hints about columns that number people."""
        names = {i: party.table.names for i, party in enumerate(self.turned)}
        sites = {i: party.site for i, party in enumerate(self.turned) if party.site}
        result = replace(result, site_names=sites).with_parts(own, names, self.turned[0].row_ids)
        lines = hints.first_lines(file for party in self.turned for file in party.table.guessed)
        return replace(result, hints=(*lines, *self._sizes(result), *self._numbering()))

    def _sizes(self, result: ColumnsResult) -> tuple[str, ...]:
        """Hints about columns that differ much in size, where all of them are at hand and nobody has scaled them."""
        if result.scale_ is not None or not result.whole:
            return ()
        moments = [party.table.there() for party in self.turned]
        squares = [m.m2 / m.seen + (0.0 if result.centered else m.mean**2) for m in moments]
        return hints.of_sizes(np.sqrt(np.concatenate(squares)), saved.plain(result.feature_names_in_))

    def _numbering(self) -> list[str]:
        """Hints about columns that number people: they should be the ids."""
        said = []
        for table in (party.table for party in self.turned):
            names = labels.column_names(table.names, table.d)
            for j in hints.counting_columns([table], table.names):
                said.append(f"{names[j]} of {table.who} holds whole numbers, no two alike, as ids do. {_AS_IDS}")
        return said


def _require_same(tables: Sequence[LocalData]) -> None:
    """Require as many rows at every party, and ids at all of them or at none."""
    first = tables[0]
    for table in tables:
        if (table.ids is None) != (first.ids is None):
            with_ids, without = (table, first) if first.ids is None else (first, table)
            rule, got = "given by all parties, or by none", f"some at {with_ids.who}, none at {without.who}"
            remedy = "Give them as the index of a data frame, or as ids of a file."
            raise DataError("The ids of the rows", must=rule, got=got, then=remedy)
        if table.n != first.n:
            then = _ALIGN if table.ids is None else _SAME
            raise DataError(f"The rows of {table.who}", must=f"{first.n:,}, as at {first.who}", got=table.n, then=then)
