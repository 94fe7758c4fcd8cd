"""Scaling: means and deviations of columns, by which rows are standardized where no PCA is wanted.

Like a `Projection` it is all that a later step needs, at a server or at a node, and packs into a
record of Flower's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.history import History
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.results.matching import match
from flower_pca.results.projection import Packet
from flower_pca.rows.frame import Frame


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling(Packet):
    """What subtracting the mean and dividing by the deviation of all rows together takes.

    Attributes:
        mean_: Mean of each column, (d,).
        scale_: The deviation of its values that are there, with their number as divisor; 1 for a
            column that is the same everywhere, (d,).
        n_samples_: Rows of all clients together.
        fill_: What stands for a missing value, (d,); None if none were allowed.
        feature_names_in_: Names of the columns, (d,); None where columns go by position.
        feature_digest: SHA-256 of the sorted names, where clients keep the names to themselves; ""
            if there are none.
        status, history: Why the run ended; what happened in each message. A record has neither.
        asked: What was asked for, as plain values.
        site_names: Names of the clients that have one, by key; {} where none have.
    """

    kind: ClassVar[str] = "scaling"
    needed: ClassVar[tuple[str, ...]] = ("mean_", "scale_")
    optional: ClassVar[tuple[str, ...]] = ("fill_",)
    counts: ClassVar[tuple[str, ...]] = ("n_samples_",)

    mean_: Array
    scale_: Array
    n_samples_: int
    fill_: Array | None = None
    feature_names_in_: Array | None = None
    feature_digest: str = ""
    status: Status | None = None
    history: History = field(default_factory=History)
    asked: Mapping[str, Any] = field(default_factory=dict)
    site_names: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {name: a for name in (*self.needed, *self.optional) if (a := getattr(self, name)) is not None}
        shapes = {a.shape for a in known.values()}
        if self.feature_names_in_ is None:
            shapes |= set()
        else:
            shapes |= {(len(self.feature_names_in_),)}
        right = len(shapes) == 1 and self.mean_.ndim == 1 and self.mean_.size > 0
        numbers = all(a.dtype.kind == "f" and np.isfinite(a).all() for a in known.values())
        if not (right and numbers and (self.scale_ > 0.0).all()):
            rule, remedy = "finite numbers for each column, deviations above 0", "Take it of a run of Standardize."
            raise DataError("The arrays of a scaling", must=rule, got="others", then=remedy)

    @classmethod
    def of(cls, model: Any, *, algorithm: str, history: History, asked: Mapping[str, Any]) -> Self:
        """The scaling that a finished run amounts to."""
        names = model.feature_names
        return cls(
            mean_=model.frame.mean,
            scale_=model.frame.scale,
            n_samples_=model.n,
            fill_=model.frame.fill,
            feature_names_in_=None if names is None else np.array(names, dtype=object),
            feature_digest="" if model.heading is None else model.heading.digest,
            status=model.status,
            history=history,
            asked={"algorithm": algorithm, **asked},
        )

    @property
    def n_features_in_(self) -> int:
        """d, the number of columns."""
        return len(self.mean_)

    def transform(self, X: Any) -> Array:
        """Rows of X less the means, divided by the deviations, (n, d) in the order of the columns
        here.

        Columns are matched by name as by `PCAResult.transform`.
        """
        if self.feature_names_in_ is None:
            names = None
        else:
            names = tuple(self.feature_names_in_)
        frame = Frame(self.mean_, self.scale_, self.fill_, names=names)
        data = match(X, frame, self.n_features_in_, digest=self.feature_digest)
        return np.concatenate(list(data.dense()))

    def inverse_transform(self, X: Any) -> Array:
        """Rows in the data's own units, (n, d), that `transform` makes these of."""
        return np.asarray(np.asarray(X) * self.scale_ + self.mean_)

    def table(self) -> str:
        """Mean and deviation of every column as plain text."""
        names = labels.column_names(self.feature_names_in_, self.n_features_in_)
        lines = [[n, f"{m:.6g}", f"{s:.6g}"] for n, m, s in zip(names, self.mean_, self.scale_, strict=True)]
        return labels.in_columns(["column", "mean", "deviation"], lines)
