"""TripleResult: shared and own components as of a personalized run, and what was taken out beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal.far import Fit, Rows
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.results.facts import Fact
from flower_pca.results.personal import Parts, PersonalResult
from flower_pca.rows.local import LocalData

_STEPS: Final = 30  # that a newcomer's own components are found in


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TripleResult(PersonalResult):
    """Rows = shared part + own part + sparse part + noise: a `PersonalResult` of all but the sparse part.

    `own` has L and S of each client beside its components: L + S are its rows, up to the threshold, in their units.

    Attributes:
        threshold_: How far off an entry was taken out, in multiples of its column's noise.
        noise_: The deviation of each column's noise in the frame, the root mean square over the clients, (d,).
        taken_share_: The share of each column's entries that were taken out, of all clients together, (d,).
    """

    closing: ClassVar[str] = "triple"
    variance_of: ClassVar[str] = "the variance without what is sparse"
    _NUMBERS: ClassVar[tuple[str, ...]] = (*PersonalResult._NUMBERS, "threshold_")
    _ARRAYS: ClassVar[tuple[str, ...]] = (*PersonalResult._ARRAYS, "noise_", "taken_share_")

    threshold_: float
    noise_: Array
    taken_share_: Array

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        left = model.left
        found = {"threshold_": float(left["cut"]), "noise_": left["noise"], "taken_share_": left["taken"]}
        return {**super()._fields(model), **found}

    def facts(self) -> list[Fact]:
        """Figures of a personalized run, and how many entries were taken out."""
        taken = float(self.taken_share_.mean())
        return [*super().facts(), Fact("share_of_entries_taken_out", "entries taken out", taken, f"{taken:.2%}")]

    def transform(self, X: Any, *, client: int | Array | None = None) -> Array:
        """Coordinates of rows along the shared components, and then a client's, as if far entries were missing."""
        return self._fit(X, client)[1].T

    def sparse_part(self, X: Any, *, client: int | Array | None = None) -> Array:
        """What is far from the components in single entries of the rows of X, (n, d) in their own units; else 0."""
        rows, fit = self._fit(X, client)
        return self._units(np.where(fit.far, rows.X - fit.L, 0.0))

    def split(self, X: Any, *, client: int | Array) -> Parts:
        """The rows of a client as what it shares with all, what is its own, and the rest, the sparse part included."""
        rows, fit = self._fit(X, client)
        k = self.n_components_
        shared = fit.T[:, :k] @ fit.W[:, :k].T
        own = fit.L - shared
        return Parts(*map(self._units, (shared, own, rows.X - fit.L)))

    def _sound(self, data: LocalData, own: int) -> LocalData:
        rows, U = Rows.of(data), np.ascontiguousarray(self.components_.T)
        fit = rows.begin(self.threshold_)
        for _ in range(_STEPS):
            fit = rows.step(fit, U, own, self.threshold_)
        return rows.less(fit)

    def _fit(self, X: Any, client: int | Array | None) -> tuple[Rows, Fit]:
        rows = Rows.of(self._data(X))
        return rows, rows.project(np.ascontiguousarray(self._basis(client)), self.noise_, self.threshold_)
