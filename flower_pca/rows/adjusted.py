"""Remove from rows the part that their covariates explain, or harmonize them, as a source of blocks.

The rows are computed from the joint table of a client, whose columns are the features followed by the covariates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.names.table import Table
from flower_pca.rows import combat, moves
from flower_pca.rows.frame import Frame
from flower_pca.rows.measured import Measured
from flower_pca.rows.moves import RowMap

# These names stand for arrays in the local result of a site: its means, or its difference from all sites if sites are
# harmonized.
SITE_MEAN, SITE_COVARIATES = "site_mean", "site_covariates"
SITE_LOCATION, SITE_SCALE = "site_location", "site_scale"


@dataclass(frozen=True)
class AdjustedRows:
    """The features of a joint table without the part that the covariates explain.

    Attributes
    ----------
    joint : Measured
        The joint table.
    d : int
        The number of features, which are the first columns of the joint table.
    moves : RowMap
        The linear transformation of the features.
    fill : ndarray of shape (d,) or None
        The replacements for missing values of the features, or None if they stay missing.
    """

    joint: Measured
    d: int
    moves: RowMap
    fill: Array | None

    axis: Final = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.joint.n, self.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type of the rows, which is the precision of products with the joint table."""
        return self.joint.dtype

    def pieces(self) -> Iterator[Array]:
        """Yield the transformed features of each block of the joint table."""
        moves, last = self.moves, self.d + len(self.moves.slopes)
        for block in self.joint.blocks():
            features = block[:, : self.d].astype(np.float64)
            if self.fill is not None and self.joint.missing:
                features = np.where(np.isnan(features), self.fill, features)
            features -= moves.shift
            features *= moves.factor
            features -= (block[:, self.d : last] - moves.mean) @ moves.slopes
            yield features.astype(self.dtype, copy=False)

    def place(self) -> None:
        """Return None, because the transformed rows are not stored in a file."""
        return


def require_complete(
    joint: Measured, covariates: tuple[str, ...] | None, d: int, who: str, *, local_mean: bool
) -> None:
    """Raise a DataError if a covariate has missing values.

    If missing values become local means (`local_mean`), also raise a DataError if a feature has no values at all.
    """
    if not joint.missing:
        return
    seen = np.broadcast_to(np.asarray(joint.observed_moments().value_counts), joint.d)
    names = labels.column_names(covariates, joint.d)
    for name, count in zip(names[d:], seen[d:], strict=True):
        if count < joint.n:
            raise DataError(
                f"The covariate {name} of {who} has missing values, which are never filled automatically. Fill them, "
                "or leave out the rows without this covariate."
            )
    for name, count in zip(names[:d], seen[:d], strict=True):
        if local_mean and count == 0:
            raise DataError(
                f"Column {name} of {who} has no value, so it cannot be adjusted for covariates. Leave the column out."
            )


def table_of_features(
    table: Table, joint: Measured, names: tuple[str, ...] | None, frame: Frame, moves: RowMap | None
) -> Table:
    """Return the table of the features of a joint table, transformed by the moves unless `moves` is None."""
    covariates = frame.covariates
    assert covariates is not None
    d = joint.d - len(covariates.names)
    if moves is None:
        return replace(table if names is None else table.pick(names), texts={}, coded=())
    fill = joint.local_means()[:d] if frame.own and joint.missing else frame.fill
    return Table(AdjustedRows(joint, d, moves, fill), names)


def hat_root(data: Any, inverse: Array, rows: int) -> Array:
    """Return F, where FF' is the hat matrix of the removed regression. F has one row for each row of the site.

    Parameters
    ----------
    data
        The rows of the site, in the frame of the run.
    inverse : ndarray of shape (q, q)
        The pseudo-inverse of the products of the covariates about their means, over the rows of all sites.
    rows : int
        The number of rows behind the subtracted mean: the rows of the site if each site subtracts its own means, else
        the rows of all sites.
    """
    mean = np.full((data.n, 1), 1.0 / np.sqrt(rows))
    known = data.frame.covariates
    if known is None or not known.adjusted:
        return mean
    last = data.d + known.adjusted
    A = np.concatenate([np.array(block[:, data.d : last], dtype=np.float64) for block in data.joint.blocks()])
    A -= A.mean(axis=0) if known.within else known.mean
    values, V = np.linalg.eigh(inverse)
    return np.column_stack([mean, A @ (V * np.sqrt(np.maximum(values, 0.0)))])


def local_adjustment(data: Any) -> dict[str, Array]:
    """Return the arrays with which a site adjusts or harmonizes new rows as in the run. They never leave the site.

    Return {} if the adjustment is the same at all sites.
    """
    covariates, joint = data.frame.covariates, data.joint
    if covariates is None or joint is None or not (covariates.within or covariates.sigma is not None):
        return {}
    if covariates.sigma is not None:
        effect = moves.effect(joint.in_frame(Frame()), data.d, covariates)
        return {SITE_LOCATION: effect.location, SITE_SCALE: effect.scale}
    means = np.asarray(joint.observed_moments().mean, dtype=np.float64)
    return {SITE_MEAN: means[: data.d].copy(), SITE_COVARIATES: means[data.d : data.d + covariates.adjusted].copy()}


def hints_of_constant_columns(data: Any) -> list[str]:
    """Return a hint about columns that are constant at a harmonized site. Their scale is not changed."""
    covariates, joint = data.frame.covariates, data.joint
    if covariates is None or joint is None or covariates.sigma is None:
        return []
    effect = moves.effect(joint.in_frame(Frame()), data.d, covariates)
    places = np.flatnonzero(effect.constant)
    return [combat.hint_of_constant_columns(places, joint.names, data.who)] if len(places) else []
