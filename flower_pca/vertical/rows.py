"""PartyColumns: a party's columns as rows, for runs in which parties hold different columns of the same people.

With X_p the n x d_p table of a party in its own frame, the rows here are those of X_p'. So products
T'(T Q) are X_p (X_p' Q), their sum over the parties is XX' Q of the pooled table X, and what works
on rows works on columns too. Mean and scale of a column are those of all people, as the party has
all of them: nobody else has to know them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import OTHER_SERVER, DataError, private
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.layer import Layer, Work
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import PARTIES
from flower_pca.names import ids
from flower_pca.names.columns import Heading
from flower_pca.rows.frame import Frame, genotype_scale
from flower_pca.rows.local import LocalData
from flower_pca.rows.split import Split
from flower_pca.stages.opening import in_brief

_CONSTANT: Final = 8.0  # a deviation within so many roundings of the mean is none
_LEAST: Final = 1e-145  # the square of what is smaller has lost its digits
# The largest sums of squares.
_LARGEST: Final = {np.dtype(np.float64): 1e139, np.dtype(np.float32): 1e37}


class PartyColumns(LocalData):
    """The framed columns of a party as rows (d_p x n), with people in the order of their ids.

    It has no other frame: what a run asks of it is asked of columns that their party has centered
    and scaled itself.

    Parameters
    ----------
    data : LocalData
        The party's rows, n x d_p.
    split : Split
        How its columns are prepared.
    """

    FILE: ClassVar[str] = "-columns"  # The end of the name of the file beside that of the party's rows.

    def __init__(self, data: LocalData, split: Split) -> None:
        self.data, self.split = data, split
        self.order = np.arange(data.n)
        if data.table.ids is not None:
            self.order = ids.order(data.table.ids, data.who)
        self.column_frame = _column_frame(data, split)
        framed = data.in_frame(self.column_frame, once=True)
        super().__init__(_transpose(framed, self.order), who=data.who)
        if not float(self.squares.sum()) <= _LARGEST[self.dtype]:
            raise DataError(
                f"The data of {self.who} has entries that are too large: at most 1e+65 is possible, or 1e+16 in "
                "single precision. Scale the data, or correct it."
            )

    @property
    def site(self) -> str:
        """The name of the party; "" if it has none."""
        return self.data.site

    @property
    def table_length(self) -> int:
        return self.d

    def with_salt(self, split: Split) -> PartyColumns:
        """These very columns in a run with another salt, by which nothing but the digest of the ids differs."""
        view: PartyColumns = self._view()
        view.split = split
        return view

    @property
    def row_ids(self) -> tuple[str, ...] | None:
        """The ids of the people, in the order of the run; None where rows go by position."""
        if self.data.table.ids is None:
            return None
        return tuple(self.data.table.ids[i] for i in self.order)

    @functools.cached_property
    def heading(self) -> Heading:
        """How many people there are, and the digest of their ids."""
        if self.row_ids is None:
            return Heading(self.d, people=True)
        return Heading(self.d, ids.digest(self.row_ids, self.split.salt), people=True)

    @property
    def squares(self) -> Array:
        """The sum of squares of each person's values, (n,)."""
        (rows,) = self.measured.rows.pieces()
        return np.asarray(np.einsum("ij,ij->j", rows, rows, dtype=np.float64))

    def in_frame(self, frame: Frame, *, once: bool = False, copy: bool = False) -> LocalData:
        """These very columns, which are framed already."""
        if frame.arrays:
            raise DataError(
                "The server sent a mean or a scale in a run over columns, but each party centers and scales its own "
                f"columns. {OTHER_SERVER}"
            )
        return self

    def select(self, names: tuple[str, ...] | None) -> Any:
        """These very columns: a run cannot name those of a party."""
        return self

    def party_result(self, U: Array, values: Array) -> dict[str, Array]:
        """What the party keeps: its loadings X_p'u / sqrt(theta) as rows, its frame, and the scores of its rows.

        Parameters
        ----------
        U : ndarray of shape (n, k)
            Eigenvectors of XX'.
        values : ndarray
            Their eigenvalues; the loadings of one that is no more than rounding are zeros.
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
    """An answer whose n counts parties, not the columns of one: these need not be told."""

    name: ClassVar[str] = PARTIES

    def ask(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        return replace(message, layers={**message.layers, PARTIES: {}})

    @staticmethod
    def seal(says: Arrays, work: Work, up: Arrays) -> Arrays:
        return {**up, "n": np.array(1)} if "n" in up else up


def _transpose(framed: LocalData, order: Array) -> Array:
    """Framed rows as columns, in this order of the people: one copy, written by blocks."""
    columns = np.empty((framed.d, framed.n), dtype=framed.dtype)
    places, start = np.argsort(order), 0
    for block in framed.dense():
        columns[:, places[start : start + len(block)]] = block.T
        start += len(block)
    return columns


def _column_frame(table: LocalData, split: Split) -> Frame:
    """The frame of the party's own columns."""
    if table.missing and not split.gaps:
        raise checks.not_finite(table.who, table.missing)
    there = table.observed()
    with private():
        _refuse(table, np.asarray(there.seen) == 0, "are no values at all", then="Leave these columns out.")
        scale = _scale(table, split)
    frame = Frame(scale=scale, names=table.names)
    if split.center:
        frame = replace(frame, mean=there.mean)
    if split.gaps:
        frame = replace(frame, fill=there.mean)
    return frame


def _scale(table: LocalData, split: Split) -> Array | None:
    there = table.observed()
    if split.scale is None:
        return None
    if split.scale == "max_abs":
        peak = table.peak()
        small = (peak > 0.0) & (peak < _LEAST)
        why = f", too small for {option('scale', 'max_abs')}"
        _refuse(table, small, "are only values below 1e-145", why, then="Scale such columns.")
        return np.where(peak > 0.0, peak, 1.0)
    if split.scale == "genotype":
        outside = (there.mean < 0.0) | (there.mean > 2.0)
        why = f", which {option('scale', 'genotype')} needs"
        _refuse(
            table,
            outside,
            "are not only counts from 0 to 2",
            why,
            then=f"Drop such columns, or use {option('scale', 'std')}.",
        )
        return genotype_scale(there.mean, table.n)
    deviation = np.sqrt(there.m2 / there.seen)
    rounding = _CONSTANT * np.finfo(np.float64).eps
    # Of a constant column the mean is off by its last digits, and the deviation is no zero.
    same = deviation <= rounding * np.abs(there.mean)
    why = f", which {option('scale', 'std')} cannot scale"
    _refuse(
        table,
        same | (deviation < _LEAST),
        "is a constant",
        why,
        then=f"Drop such columns, or use {option('scale', None)}.",
    )
    return np.asarray(deviation)


def _refuse(table: LocalData, bad: Array, found: str, why: str = "", *, then: str) -> None:
    """Raise DataError if any column is bad, with their names or numbers: "There `found` in ..."."""
    columns = np.flatnonzero(np.broadcast_to(bad, table.d))
    if len(columns):
        names = labels.column_names(table.names, table.d)
        where = f"{in_brief([names[j] for j in columns])} of {table.who}"
        raise DataError(f"There {found} in {'column ' * bool(table.names)}{where}{why}. {then}")
