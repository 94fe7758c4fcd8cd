"""Simulations with parties, which are clients that hold different columns of the same people.

In one process, all ids are known, so errors can name the ids in which tables differ. In a deployment, nodes
can only compare digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from flower_pca import assembly, client_half
from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.core.config import PCAConfig
from flower_pca.core.drive import drive
from flower_pca.hints import faults
from flower_pca.hints.identifiers import find_identifiers
from flower_pca.hints.look import hints_of_first_lines, hints_of_party
from flower_pca.hints.sizes import hints_of_sizes
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.split import ColumnPreparation
from flower_pca.simulation.backend import RunWatch, Shards, SimulationSettings
from flower_pca.simulation.sites import clients_with_results, sites_of
from flower_pca.vertical.result import ColumnsResult
from flower_pca.vertical.rows import PartyColumns
from flower_pca.vertical.stages import LoadingsStage

_KEEP_SAME_PEOPLE: Final = (
    "Keep the rows of the same people at every party, in any order, with the same spelling of ids."
)
_USE_AS_IDS: Final = "Use this column as the ids of the rows, or leave it out."
_KEEP_SAME_ORDER: Final = "Keep the rows of the same people at every party, in the same order, or give ids."


def simulate(
    config: PCAConfig, shards: Any, conduct: SimulationSettings, *, hide_local: Collection[int]
) -> ColumnsResult:
    """Compute the scores of all people, and the loadings of all parties except those in `hide_local`."""
    parties = PartyData.of_simulation(shards, config)
    public = clients_with_results(hide_local, len(parties.columns))
    watch = RunWatch(conduct.on_round)
    watch.begin(lambda: f"{config.algorithm.spec} of {parties}")
    own: dict[int, dict[str, Array]]
    if conduct.engine is None:
        source = None if conduct.answers == "rows" else FixedData.of_rows
        there = Shards(parties.columns, seed=config.seed, source=source)
        run = assembly.run(config, judged=False, init=conduct.init)
        result = cast(ColumnsResult, drive(run, there, checkpoint=conduct.checkpoint, watchers=[watch]))
        own = {i: client_half.local_results(LoadingsStage.name, there.memories[i], parties.columns[i]) for i in public}
    else:
        from flower_pca.simulation import ray

        found = ray.run_pca(config, sites_of(shards), public, replace(conduct, on_round=watch.after_message))
        result = cast(ColumnsResult, found)
        own = dict(result.local)
    whole = parties.with_loadings(result, own)
    watch.end(whole)
    return whole


@dataclass(frozen=True)
class PartyData:
    """The data of all parties. The columns of each party are centered and scaled with the party's own statistics."""

    columns: tuple[PartyColumns, ...]

    @classmethod
    def of_simulation(cls, shards: Any, config: PCAConfig) -> PartyData:
        """Return the parties of a simulation.

        Raises
        ------
        DataError
            If the people differ between parties. The message names the party.
        """
        numbered = enumerate(sites_of(shards))
        sites = [rows.whole(f"client {i}") for i, rows in numbered]
        tables = [LocalData(rows, who=f"client {i}", missing=True) for i, rows in enumerate(sites)]
        _require_same_people(tables)
        d = sum(table.d for table in tables)
        checks.components_available(config.n_components, tables[0].n, d)
        gaps = config.missing != "error"
        if not gaps:
            for table in tables:
                table.require_whole()
        split = ColumnPreparation(config.centered, config.scale, gaps, "simulated")
        first, *others = columns = tuple(PartyColumns(table, split) for table in tables)
        for party in others:
            if party.row_ids != first.row_ids:
                # The message must not name people.
                same = len({*(party.row_ids or ())} & {*(first.row_ids or ())})
                raise DataError(
                    f"The ids of the rows of {party.who} differ from the ids of {first.who}: {same:,} of "
                    f"{party.d:,} are the same. {_KEEP_SAME_PEOPLE}"
                )
        return cls(columns)

    def __str__(self) -> str:
        rows = labels.count(self.columns[0].d, "row")
        width = labels.count(sum(party.n for party in self.columns), "column")
        return f"{rows} x {width}, with the columns split between {labels.count(len(self.columns), 'client')}"

    def with_loadings(self, result: ColumnsResult, loadings: dict[int, dict[str, Array]]) -> ColumnsResult:
        """Return the result with the loadings in `loadings`, and with hints about the columns of the parties."""
        names = {i: party.data.names for i, party in enumerate(self.columns)}
        sites = {i: party.site for i, party in enumerate(self.columns) if party.site}
        whole = replace(result, site_names=sites).with_loadings(loadings, names, self.columns[0].row_ids)
        first_lines = hints_of_first_lines(file for party in self.columns for file in party.data.table.headerless)
        hints = (*first_lines, *self._hints_of_sizes(whole), *self._hints_of_numbering(), *self._hints_of_mistakes())
        return replace(whole, hints=hints)

    def _hints_of_sizes(self, result: ColumnsResult) -> tuple[str, ...]:
        """Return hints about columns of very different sizes, if all loadings are known and columns are not scaled."""
        if result.scale_ is not None or not result.whole:
            return ()
        squares = []
        for party in self.columns:
            moments = party.data.observed_moments()
            square = moments.m2 / moments.value_counts
            squares.append(square if result.centered else square + moments.mean**2)
        return hints_of_sizes(np.sqrt(np.concatenate(squares)), labels.tuple_of(result.feature_names_in_))

    def _hints_of_numbering(self) -> list[str]:
        """Return hints about columns of identifiers, which should be the ids of the rows."""
        lines = []
        for table in (party.data for party in self.columns):
            names = labels.column_names(table.names, table.d)
            for j in find_identifiers([table], table.names):
                lines.append(f"{names[j]} of {table.who} holds whole numbers, all different, like ids. {_USE_AS_IDS}")
        return lines

    def _hints_of_mistakes(self) -> Iterator[str]:
        """Yield hints about mistakes in the rows of each party, such as lines of totals."""
        for table in (party.data for party in self.columns):
            yield from hints_of_party(table, most=faults.most_unasked(table.names))


def _require_same_people(tables: Sequence[LocalData]) -> None:
    """Raise DataError if the numbers of rows differ between parties, or if only some parties have ids."""
    first = tables[0]
    for party in tables:
        if (party.table.ids is None) != (first.table.ids is None):
            with_ids, without = (party, first) if first.table.ids is None else (first, party)
            raise DataError(
                f"The rows of {with_ids.who} have ids, but the rows of {without.who} have none. Give ids at all "
                "parties, as the index of a data frame or as the ids of a file, or at no party."
            )
        if party.n != first.n:
            raise DataError(
                f"There are {party.n:,} rows at {party.who}, but {first.n:,} at {first.who}. "
                f"{_KEEP_SAME_ORDER if party.table.ids is None else _KEEP_SAME_PEOPLE}"
            )
