"""Rows less what their covariates explain, as a source of blocks.

They come from the joint table of a client, whose columns are the features and then the covariates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.measured import Measured

SITE_MEAN, SITE_COVARIATES = "site_mean", "site_covariates"  # of what a site keeps for itself: its own means


@dataclass(frozen=True)
class Residuals:
    """The features of a joint table less what the covariates explain of them.

    Attributes:
        joint: The joint table.
        d: How many of its columns are features; the first ones.
        slopes: How much each feature changes with each of the next columns, (q, d).
        shift: What is subtracted from a feature before, (d,): a site's own means, or zeros.
        mean: What is subtracted from a covariate, (q,).
        fill: What stands for a missing value of a feature, (d,); None if it stays missing.
    """

    joint: Measured
    d: int
    slopes: Array
    shift: Array
    mean: Array
    fill: Array | None

    axis: Final = 0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.joint.n, self.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision in which the joint table is worked on."""
        return self.joint.dtype

    def pieces(self) -> Iterator[Array]:
        """What is left of the rows, in the blocks of the joint table."""
        last = self.d + len(self.slopes)
        for block in self.joint.blocks():
            features = block[:, : self.d].astype(np.float64)
            if self.fill is not None and self.joint.missing:
                features = np.where(np.isnan(features), self.fill, features)
            features -= self.shift
            features -= (block[:, self.d : last] - self.mean) @ self.slopes
            yield features.astype(self.dtype, copy=False)

    def place(self) -> None:
        """None: these rows are in no file."""
        return


def require_complete(joint: Measured, names: tuple[str, ...], d: int, who: str, *, own_mean: bool) -> None:
    """Raise DataError if a covariate has missing values, or a feature that is to be adjusted has no value at all."""
    if not joint.missing:
        return
    seen = np.broadcast_to(np.asarray(joint.there().seen), joint.d)
    for name, count in zip(names[d:], seen[d:], strict=True):
        if count < joint.n:
            raise DataError(
                f"The covariate {name} of {who} has missing values, and nothing may stand for a covariate. Fill "
                "them, or leave out the rows that lack it."
            )
    for name, count in zip(names[:d], seen[:d], strict=True):
        if own_mean and count == 0:
            raise DataError(
                f"Column {name} of {who} has no value, so nothing can be removed from it. Leave the column out."
            )


def table(whole: Table, joint: Measured, names: tuple[str, ...], frame: Frame, who: str) -> Table:
    """The features of a joint table as the frame has them: less what covariates explain, if that is known."""
    d, covariates = len(names), frame.covariates
    assert covariates is not None
    require_complete(joint, (*names, *covariates.names), d, who, own_mean=covariates.changes_rows)
    if not covariates.changes_rows:
        return replace(whole.pick(names, who), texts={}, coded=())
    fill = frame.fill
    if frame.own and joint.missing:
        fill = joint.own_fill()[:d]
    slopes = np.zeros((0, d)) if covariates.slopes is None else covariates.slopes
    q = len(slopes)
    shift, mean = np.zeros(d), np.zeros(q) if covariates.mean is None else covariates.mean[:q]
    if covariates.within:
        means = np.asarray(joint.there().mean)
        shift, mean = means[:d], means[d : d + q]
    return Table(Residuals(joint, d, slopes, shift, mean, fill), names)


def of_site(data: Any) -> dict[str, Array]:
    """What a site needs to adjust its rows, if its own means are removed: these, which never leave it."""
    covariates, joint = data.frame.covariates, data.joint
    if covariates is None or not covariates.within or joint is None:
        return {}
    means = np.asarray(joint.there().mean, dtype=np.float64)
    return {SITE_MEAN: means[: data.d].copy(), SITE_COVARIATES: means[data.d : data.d + covariates.adjusted].copy()}
