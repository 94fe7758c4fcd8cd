"""A run in which parties hold different columns, and the result of such a run.

All parties know the scores and the variances. The loadings of a column stay with the party that has
the column. A simulation collects the loadings of all parties: `with_loadings` puts them side by side, and the
result equals a PCA of the pooled table. A deployment does not collect loadings, so `components_` has no
columns.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar

import numpy as np

from flower_pca.base import files, labels, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import path_text, shown
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.config import PCAConfig
from flower_pca.core.model import Model
from flower_pca.core.roll import Roll
from flower_pca.core.run import Run
from flower_pca.names.ids import order_of_ids
from flower_pca.results.matching import rows_as_table
from flower_pca.results.pca import PCAResult, fields_of
from flower_pca.results.projection import Projection
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.vertical.rows import PartyCounts
from flower_pca.vertical.stages import ColumnsOpening, LoadingsStage

BY_POSITION: Final = (
    "Rows were matched by position, because no party gave ids. Row 1 of all tables must belong to the same person, "
    "and so on. To match rows by id, give the rows of all tables ids."
)


def run_over_columns(config: PCAConfig, algorithm: Algorithm[Any], decisions: dict[str, str]) -> Run:
    """Return a run in which parties hold different columns.

    The run needs all parties until its end, because no other party has the columns of a missing party.
    """
    summed = config.mask is not None
    gaps = config.missing != "error"
    model = Model(
        n_components=config.first_n_components,
        center=False,  # Each party centers and scales its own columns.
        scale=None,
        seed=config.seed,
        summed=summed,
        decisions=decisions,
        split=ColumnPreparation(config.centered, config.scale, gaps, secrets.token_hex(16)),
    )
    roll = Roll(min_nodes=config.min_nodes, seed=config.seed, summed=summed, everyone=True)
    opening = ColumnsOpening(width=algorithm.width(config.first_n_components))
    stages = (opening, algorithm, RayleighRitz(), LoadingsStage())
    return Run(
        stages, model=model, roll=roll, result=ColumnsResult, layers=[PartyCounts()], config=config.plain_settings()
    )


O = TypeVar("O", bound=Array | None)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ColumnsResult(PCAResult):
    """The principal components of a table whose columns are at different parties.

    `local` contains the local results of parties that have shared them. `local[party]["components"]`
    contains a party's loadings as rows. `components_`, `mean_`, `scale_` and `fill_` cover the columns of
    these parties, side by side in the order of the parties. The signs of components are chosen so that each
    component's score with the largest absolute value is positive.

    Attributes
    ----------
    scores_ : ndarray of shape (n, k)
        The scores of the people, in the order of their ids, or in the order of the rows if there are no ids.
    row_ids_ : sequence of str or None
        The ids of the people, (n,). None if rows are matched by position, or if the ids stay with the parties.
    parties_ : int
        The number of parties.
    spans_ : mapping
        For each party that has shared its loadings: the index of its first column in `components_`, and the index
        after its last column.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> people = np.random.default_rng(0).standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1]
    >>> result = simulate("krylov", [people[:, :2], people[:, 2:]], n_components=2, partitioned_by="columns")
    >>> result.scores_.shape, result.parties_
    ((60, 2), 2)
    """

    scores_: Array
    row_ids_: Sequence[str] | None = None
    parties_: int
    spans_: Mapping[Any, Sequence[int]]

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        assert model.values is not None
        assert model.split is not None
        k, none = model.k, np.empty(0)
        fields = fields_of(model)
        decisions = fields["decisions"]
        if not (model.heading and model.heading.digest):
            decisions = (*decisions, BY_POSITION)
        return {
            **fields,
            "components_": np.empty((k, 0)),
            "mean_": none,
            "scale_": None if model.split.scale is None else none,
            "fill_": none if model.split.gaps else None,
            "centered": model.split.center,
            "decisions": decisions,
            "feature_names_in_": None,
            "feature_digest": "",
            "scores_": linalg.fix_signs(model.columns[:, :k]) * np.sqrt(np.maximum(model.values[:k], 0.0)),
            "parties_": model.clients,
            "spans_": {},
        }

    def with_loadings(
        self,
        loadings: Mapping[int, dict[str, Array]],
        names: Mapping[int, Sequence[str] | None],
        ids: Sequence[str] | None,
    ) -> Self:
        """Return the result with the loadings that these parties have shared, and the names of their columns.

        If two parties use the same name for a column, all names are preceded by the name of their party.
        """
        parties = sorted(loadings)
        parts = [loadings[party] for party in parties]
        widths = [part["components"].shape[1] for part in parts]
        ends = np.cumsum([0, *widths]).tolist()
        return replace(
            self,
            mean_=_side_by_side(parts, "mean", np.zeros(ends[-1])),
            scale_=_side_by_side(parts, "scale", self.scale_),
            fill_=_side_by_side(parts, "fill", self.fill_),
            components_=np.hstack([np.empty((self.n_components_, 0)), *(part["components"] for part in parts)]),
            local=loadings,
            row_ids_=None if ids is None else list(ids),
            spans_={party: [ends[i], ends[i + 1]] for i, party in enumerate(parties)},
            feature_names_in_=self._names_side_by_side({party: names.get(party) for party in parties}),
        )

    def _names_side_by_side(self, names: Mapping[int, Sequence[str] | None]) -> Array | None:
        """Return the names of the columns of these parties side by side, or None if a party has no names."""
        parts = [part for part in names.values() if part is not None]
        if len(parts) < len(names) or not parts:
            return None
        every = [name for part in parts for name in part]
        if len(set(every)) == len(every):
            return labels.names_as_array(every)
        sites = (labels.client_name(self.site_names, party) for party in names)
        pairs = zip(sites, parts, strict=True)
        return labels.names_as_array([f"{site}/{name}" for site, part in pairs for name in part])

    @staticmethod
    def projection_of_party(path: str | os.PathLike[str]) -> Projection:
        """Return the projection of new people onto a party's loadings, from the file that the party's node has written.

        Raises
        ------
        DataError
            If the file does not contain a party's local result.
        """
        header, own = files.read(path, "own result")
        if not {"components", "scores"} <= own.keys() or "rows" not in header:
            raise DataError(
                f"{path_text(path)} does not contain a party's local result of a run over columns. Give a file that a "
                "node or run --save-local has written.",
                place=str(path),
            )
        names: Any = header.get("columns")
        return Projection(
            components_=own["components"],
            mean_=own.get("mean"),
            scale_=own.get("scale"),
            fill_=own.get("fill"),
            feature_names_in_=None if names is None else labels.names_as_array(names),
        )

    @property
    def whole(self) -> bool:
        """Whether all parties have shared their loadings, so that `components_` covers the pooled table."""
        return len(self.spans_) == self.parties_

    @property
    def noise_variance_(self) -> float:
        """The mean variance of the directions left out, or NaN if not all parties have shared their loadings."""
        if self.whole:
            return super().noise_variance_
        return float("nan")

    def loadings(self, party: int | str) -> Projection:
        """Return the projection of new people onto a party's loadings, with the center and scale of its columns.

        Parameters
        ----------
        party : int or str
            The number of the party, or the name of its site.
        """
        numbers: dict[int | str, int] = {name: number for number, name in self.site_names.items()}
        number = numbers.get(party, party)
        spans = {int(known): span for known, span in self.spans_.items()}
        if number not in spans:
            known = ", ".join(labels.client_name(self.site_names, client) for client in spans)
            raise ConfigError(
                f"The loadings of party {shown(party)} are not available "
                f"({f'only {known} shared loadings' if known else 'no party shared its loadings'}). Read the file "
                "that the party's node has written, with ColumnsResult.projection_of_party(path)."
            )
        columns = slice(*spans[int(number)])
        names = self.feature_names_in_
        return Projection(
            components_=self.components_[:, columns],
            mean_=self.mean_[columns] if self.centered else None,
            feature_names_in_=None if names is None else self._names_of(int(number), names[columns]),
            scale_=None if self.scale_ is None else self.scale_[columns],
            fill_=None if self.fill_ is None else self.fill_[columns],
        )

    def transform(self, X: Any) -> Array:
        """Return the scores of new people, (n, k): the sum of the scores from each party's columns.

        Parameters
        ----------
        X : mapping or array-like
            A mapping from each party, by number or site name, to its columns of the same people, or one table with all
            columns. If the tables have ids, rows are matched by id, and scores have the order of the first table.
            Otherwise, all tables must have the same order of people.
        """
        if not isinstance(X, Mapping):
            return super().transform(X)
        tables = [rows_as_table(columns) for columns in X.values()]
        rows = sorted({len(table) for table in tables})
        people = {None if table.ids is None else frozenset(table.ids) for table in tables}
        if len(X) != self.parties_ or len(rows) > 1 or len(people) > 1:
            ids = " and different ids" if len(people) > 1 else ""
            got = f"the number of tables is {len(X)}, with {', '.join(map(str, rows))} rows{ids}"
            raise ConfigError(
                f"transform needs one table from each of the {self.parties_} parties, with the same people, but {got}. "
                "Give one such table for each party."
            )
        parts = [self.loadings(party).transform(table) for party, table in zip(X, tables, strict=True)]
        if tables[0].ids is None:
            return np.asarray(np.sum(parts, axis=0))
        orders = [order_of_ids(table.ids or (), "the rows given") for table in tables]
        ordered = [part[places] for part, places in zip(parts, orders, strict=True)]
        return np.asarray(np.sum(ordered, axis=0)[np.argsort(orders[0])])

    @property
    def _column_count_in_words(self) -> str:
        if self.whole:
            return super()._column_count_in_words
        return f"the columns of {labels.count(self.parties_, 'client')}"

    @property
    def _feature_names(self) -> str:
        if self.whole:
            return super()._feature_names
        return self._column_count_in_words

    def table(self) -> str:
        """Return the variances as plain text, with the columns of largest weight if all loadings are shared."""
        table = super().table()
        if self.whole:
            return table
        return f"{table}\nLoadings stay with their parties."

    def _names_of(self, party: int, names: Array) -> Array:
        """Return the names that a party uses for its columns, without the name of the party as a prefix."""
        before = f"{labels.client_name(self.site_names, party)}/"
        if all(str(name).startswith(before) for name in names):
            return labels.names_as_array([str(name).removeprefix(before) for name in names])
        return labels.names_as_array([str(name) for name in names])

    @property
    def frame(self) -> Frame:
        """The centering and scaling of the columns of all parties, to which the components refer."""
        self._require_whole()
        return super().frame

    def inverse_transform(self, scores: Array) -> Array:
        """Return the rows, (n, d), that have these scores and lie in the span of the components of all parties."""
        self._require_whole()
        return super().inverse_transform(scores)

    def to_record(self) -> Any:
        """Return a record for clients, as `PCAResult.to_record` does, if all parties have shared their loadings."""
        self._require_whole()
        return super().to_record()

    def angle_to(self, other: PCAResult | Array) -> float:
        """Return the angle to another result, as `PCAResult.angle_to` does, if all parties have shared loadings."""
        self._require_whole()
        return super().angle_to(other)

    def _require_whole(self) -> None:
        if not self.whole:
            raise ConfigError(
                f"Only {len(self.spans_)} of {self.parties_} parties have shared their loadings, but this method needs "
                "the loadings of all parties. Let each party project its own columns."
            )


def _side_by_side(parts: Sequence[dict[str, Array]], name: str, otherwise: O) -> O | Array:
    """Return the arrays of all parties with this name side by side, or `otherwise` if a party has no such array."""
    if otherwise is None or not all(name in part for part in parts):
        return otherwise
    return np.concatenate([np.empty(0), *(part[name] for part in parts)])
