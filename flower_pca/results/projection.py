"""Projection: what it takes to project rows, and nothing else: components, mean, scale, fill and names of columns.

A result has all of it in one object, so that a later step, at a server or at a node, projects as the result does. It
packs into bytes, and `to_record` into a record that Flower sends: see `flower_pca.wire`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.results.matching import matched
from flower_pca.results.packed import Packed
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection(Packed):
    """The map from rows to their coordinates along components.

    Attributes:
        components_: Components as rows, (k, d), orthonormal.
        mean_: What is subtracted from a row, (d,); None for nothing.
        scale_: What each column is divided by then, (d,); None for nothing.
        fill_: What stands for a missing value, (d,); None if none are allowed.
        weights_: What rows are multiplied by to have their scores, (k, d), where components are not orthonormal; else
            None.
        feature_names_in_: Names of the columns, (d,); None where columns go by position.
        feature_digest: SHA-256 of the sorted names, where clients keep the names to themselves; "" if there are none.
    """

    kind: ClassVar[str] = "projection"
    needed: ClassVar[tuple[str, ...]] = ("components_",)
    optional: ClassVar[tuple[str, ...]] = ("mean_", "scale_", "fill_", "weights_")

    components_: Array
    mean_: Array | None = None
    scale_: Array | None = None
    fill_: Array | None = None
    weights_: Array | None = None
    feature_names_in_: Array | None = None
    feature_digest: str = ""

    def __post_init__(self) -> None:
        Z, names, remedy = self.components_, self.feature_names_in_, "Take it of a result."
        others = {name: getattr(self, name) for name in self.optional if getattr(self, name) is not None}
        shapes = {name: a.shape for name, a in others.items()}
        shapes |= {} if names is None else {"feature_names_in_": (len(names),)}
        expected = {name: Z.shape if name == "weights_" else Z.shape[1:] for name in shapes}
        if Z.ndim != 2 or Z.size == 0 or shapes != expected:
            rule, got = "(k, d) for components_ and weights_, and (d,) for the rest", {"components_": Z.shape, **shapes}
            raise DataError("The shapes of a projection", must=rule, got=got, then=remedy)
        for name, a in {"components_": Z, **others}.items():
            if a.dtype.kind != "f" or not np.isfinite(a).all() or (name == "scale_" and not (a > 0.0).all()):
                rule = "finite numbers" + (" above 0" if name == "scale_" else "")
                raise DataError(f"{name} of a projection", must=rule, got="others", then=remedy)

    @classmethod
    def of(cls, result: Any) -> Self:
        """What a result, or whatever has its attributes, projects rows by."""
        mean = result.mean_ if result.centered else None
        names = ("components_", "scale_", "fill_", "feature_names_in_", "feature_digest")
        weights = None if result.cross_ is None else result.weights_
        return cls(mean_=mean, weights_=weights, **{name: getattr(result, name) for name in names})

    @property
    def n_components_(self) -> int:
        """k, the number of components."""
        return len(self.components_)

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return int(self.components_.shape[1])

    def framed(self, X: Any) -> LocalData:
        """The rows of X with the mean subtracted and the scale divided by, in the order of the columns here."""
        names = None if self.feature_names_in_ is None else tuple(self.feature_names_in_)
        frame = Frame(self.mean_, self.scale_, self.fill_, names=names)
        return matched(X, frame, self.n_features_in_, digest=self.feature_digest)

    def transform(self, X: Any) -> Array:
        """Coordinates of rows along the components, (n, k), with columns matched as by `PCAResult.transform`."""
        return self.framed(X).scores((self.components_ if self.weights_ is None else self.weights_).T)

    def inverse_transform(self, scores: Array) -> Array:
        """Rows, (n, d) in the data's own units, that have these scores and nothing beside."""
        X = np.asarray(scores) @ self.components_
        X = X if self.scale_ is None else X * self.scale_
        return np.asarray(X if self.mean_ is None else X + self.mean_)
