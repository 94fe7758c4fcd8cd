"""PartyColumns: a party's columns as rows, for runs in which parties hold different columns of the same people.

Let X_p be the n x d_p table of a party, centered and scaled. A `PartyColumns` holds T = X_p', so a
product T'(T Q) is X_p (X_p' Q). The sum of these products over all parties is XX' Q for the pooled
table X. Therefore every algorithm for rows also works for columns. A party has the values of all people in
its columns, so it computes means and scales alone, and does not send them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import OTHER_SERVER, DataError, marked_private
from flower_pca.base.linalg import Array
from flower_pca.core.layer import Layer, Work
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import PARTIES
from flower_pca.names import ids
from flower_pca.names.columns import Heading
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.split import ColumnPreparation
from flower_pca.stages.opening import COLUMNS, LARGEST_SQUARES, column_divisors, refuse_columns


class PartyColumns(LocalData):
    """The centered and scaled columns of a party as rows (d_p x n), with people in the order of their ids.

    The party centers and scales its columns itself, so a run cannot apply another frame to them.

    Parameters
    ----------
    data : LocalData
        The party's rows, n x d_p.
    split : ColumnPreparation
        The description of how the party centers, scales and fills its columns.
    """

    FILE: ClassVar[str] = "-columns"  # the suffix of a file with columns, after the name of the file with the rows

    def __init__(self, data: LocalData, split: ColumnPreparation) -> None:
        self.data, self.split = data, split
        self.order = np.arange(data.n)
        if data.table.ids is not None:
            self.order = ids.order_of_ids(data.table.ids, data.who)
        self.column_frame = _column_frame(data, split)
        framed = data.in_frame(self.column_frame, once=True)
        super().__init__(_transpose(framed, self.order), who=data.who)
        if not float(self.squares.sum()) <= LARGEST_SQUARES[self.dtype]:
            raise DataError(
                f"The data of {self.who} has entries that are too large: at most 1e+65 is possible, or 1e+16 in "
                "single precision. Use larger units, or correct the data."
            )

    @property
    def site(self) -> str:
        """The name of the party, or "" if it has no name."""
        return self.data.site

    @property
    def table_length(self) -> int:
        return self.d

    def with_salt(self, split: ColumnPreparation) -> PartyColumns:
        """Return the same columns for a run with another salt. The salt changes only the digest of the ids."""
        view: PartyColumns = self._new_view()
        view.split = split
        return view

    @property
    def row_ids(self) -> tuple[str, ...] | None:
        """The ids of the people in the order of the run, or None if rows are matched by position."""
        if self.data.table.ids is None:
            return None
        return tuple(self.data.table.ids[i] for i in self.order)

    @functools.cached_property
    def heading(self) -> Heading:
        """The number of people and the digest of their ids, by which the server compares the parties."""
        if self.row_ids is None:
            return Heading(self.d, people=True)
        return Heading(self.d, ids.digest_of_ids(self.row_ids, self.split.salt), people=True)

    @property
    def squares(self) -> Array:
        """The sum of squares of each person's values, an array of shape (n,)."""
        (rows,) = self.measured.rows.pieces()
        return np.asarray(np.einsum("ij,ij->j", rows, rows, dtype=np.float64))

    def in_frame(self, frame: Frame, *, once: bool = False, copy: bool = False) -> LocalData:
        """Return the columns unchanged, because they are already centered and scaled."""
        if frame.arrays:
            raise DataError(
                "The server sent a mean or a scale in a run over columns, but each party centers and scales its own "
                f"columns. {OTHER_SERVER}"
            )
        return self

    def select(self, names: tuple[str, ...] | None) -> Any:
        """Return all columns, because a run cannot select columns of a party by name."""
        return self

    def party_result(self, U: Array, values: Array) -> dict[str, Array]:
        """Return the arrays that the party keeps: loadings, variances, scores, and the center and scale of its columns.

        The loadings X_p'u / sqrt(theta) for an eigenvector u with eigenvalue theta are a row of "components".

        Parameters
        ----------
        U : ndarray of shape (n, k)
            Eigenvectors of XX'.
        values : ndarray
            The eigenvalues of these eigenvectors. If an eigenvalue is only rounding error, its loadings are zeros.
        """
        sizes = np.sqrt(np.maximum(values, 0.0))
        rounding = np.sqrt(len(U) * np.finfo(np.float64).eps)
        divisors = np.where(sizes > rounding * sizes.max(initial=0.0), sizes, np.inf)
        loadings = self.scores(U).astype(np.float64) / divisors
        return {
            "components": np.ascontiguousarray(loadings.T),
            "explained_variance": values / max(self.d - 1, 1),
            "scores": (U * sizes)[np.argsort(self.order)],
            **self.column_frame.arrays,
        }


@dataclass(frozen=True)
class PartyCounts(Layer):
    """A layer that sets n to 1 in every answer, so that n counts parties and hides their numbers of columns."""

    name: ClassVar[str] = PARTIES

    def change_message(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        return replace(message, layers={**message.layers, PARTIES: {}})

    @staticmethod
    def seal_answer(instructions: Arrays, work: Work, answer: Arrays) -> Arrays:
        return {**answer, "n": np.array(1)} if "n" in answer else answer


def _transpose(framed: LocalData, order: Array) -> Array:
    """Return the transpose of centered and scaled rows, with people in this order. It is written block by block."""
    columns = np.empty((framed.d, framed.n), dtype=framed.dtype)
    places, start = np.argsort(order), 0
    for block in framed.dense():
        columns[:, places[start : start + len(block)]] = block.T
        start += len(block)
    return columns


def _column_frame(table: LocalData, split: ColumnPreparation) -> Frame:
    """Return the frame in which a party centers and scales its own columns."""
    if table.missing and not split.gaps:
        raise checks.not_finite_error(table.who, table.missing)
    moments = table.observed_moments()
    count = np.broadcast_to(np.asarray(moments.value_counts), table.d)
    total = {"n": np.array(table.n), "mean": moments.mean, "m2": moments.m2, "count": count}
    if split.scale == "max_abs":
        total["peak"] = table.largest_absolute()
    with marked_private():
        refuse_columns(f"There is no value in {COLUMNS}", count == 0, "Drop ", ".", table.names, table.who)
        scale = column_divisors(split.scale, total, table.names, who=table.who)
    frame = Frame(scale=scale, names=table.names)
    if split.center:
        frame = replace(frame, mean=moments.mean)
    if split.gaps:
        frame = replace(frame, fill=moments.mean)
    return frame
