"""RobustResult: the principal components of the low-rank part, and the sparse part beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flower_pca.algorithms.robust import huber
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.core.result import PCAResult


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RobustResult(PCAResult):
    """Rows = low-rank part + sparse part: the components, variances and total variance are those of the low-rank part.

    `own` has V, L and S of each public client: L + S are its rows (up to `threshold_` in each entry), in their units.

    Attributes:
        threshold_: What is at most so far from the low-rank part, in the frame, is noise and not part of S.
        spread_: The size of an ordinary entry in the frame, 1.4826 times the median.
        outlier_share_: The share of entries further than ten times `threshold_` from the low-rank part.
        far_share_: The same share of each column's entries, of all clients together, (d,).
    """

    _ARRAYS: ClassVar[tuple[str, ...]] = (*PCAResult._ARRAYS, "far_share_")
    _NUMBERS: ClassVar[tuple[str, ...]] = (*PCAResult._NUMBERS, "threshold_", "spread_", "outlier_share_")

    threshold_: float
    spread_: float
    outlier_share_: float
    far_share_: Array

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        names = {"threshold_": "lam", "spread_": "sigma", "outlier_share_": "outliers"}
        figures = {name: float(model.left[key]) for name, key in names.items()}
        return {**super()._fields(model), **figures, "far_share_": model.left["far"]}

    def transform(self, X: Any) -> Array:
        """Coordinates of the rows of X, (n, d), along the components, (n, k), as if far entries were missing.

        Not a projection: Huber's regression, whose threshold falls from `spread_` to `threshold_`.
        """
        Z, path = self.components_.T, {"start": self.spread_, "lam": self.threshold_, "rho": 0.0}
        return np.concatenate([huber.recover(block, Z, **path) for block in self._data(X).dense()])

    def to_record(self) -> Any:
        """None is made: what `transform` does is no projection.

        Raises:
            ConfigError: Always.
        """
        rule, remedy = "one that projects rows", "Save it, and load it where the rows are."
        raise ConfigError("The result for a record", must=rule, got=type(self).__name__, then=remedy)

    def low_rank_part(self, X: Any) -> Array:
        """The rows of X without what is sparse, (n, d) in their own units."""
        return self.inverse_transform(self.transform(X))

    def sparse_part(self, X: Any) -> Array:
        """What is far from the low-rank part in single entries of the rows of X, (n, d) in their own units; else 0."""
        V, Z = self.transform(X), self.components_
        X = np.concatenate(list(self._data(X).dense()))
        S = huber.soft(X - V @ Z, self.threshold_)
        return S if self.scale_ is None else S * self.scale_
