"""The closing stage for components that are not orthonormal. It computes the variance that each component adds.

A Rayleigh-Ritz step would rotate the components, and a rotation destroys their sparsity. Statements about
rows therefore refer to the span of the components and use the orthonormal axes of this span along which
rows vary most (see `Model.orthonormal_axes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, AsksForProduct, Stage, status_when

CROSS: Final = "cross"  # the key of Z'CZ in the model


@dataclass(frozen=True)
class ObliqueState:
    """The components and, once known, their product with C."""

    Z: Array
    Y: Array | None


@dataclass(frozen=True, kw_only=True)
class Oblique(AsksForProduct, Stage[ObliqueState]):
    """A closing stage for oblique components that computes Z'CZ and the variance that each component adds.

    The added variance is measured on top of all earlier components. If C Z is known, no message is needed.

    Cost: a client needs 4 n_i d k flops, and k columns of d floats travel each way, once.
    """

    name: ClassVar[str] = "oblique"
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> ObliqueState:
        return ObliqueState(model.columns, model.product)

    def broadcast(self, state: ObliqueState) -> Arrays:
        return {"Z": state.Z}

    def server(self, state: ObliqueState, total: Arrays, answered: frozenset[int]) -> ObliqueState:
        return replace(state, Y=total["Y"])

    def status(self, state: ObliqueState) -> Status | None:
        return status_when(state.Y is not None)

    def finish(self, state: ObliqueState, model: Model) -> Model:
        assert state.Y is not None
        Z = linalg.fix_signs(state.Z)
        turned = np.sum(Z * state.Z, axis=0) < 0.0
        Y = state.Y * np.where(turned, -1.0, 1.0)
        A = Z.T @ Y
        cross = (A + A.T) / 2.0
        widths = range(Z.shape[1] + 1)
        spans = [_trace_within(Z[:, :j], cross[:j, :j]) for j in widths]
        quotients = np.diag(cross) / np.sum(Z * Z, axis=0)
        residuals = np.hypot(linalg.column_norms(Y - Z * quotients), model.product_errors(Z, quotients))
        values = np.maximum(np.diff(spans), 0.0)
        left = {**model.left, CROSS: cross}
        return replace(model, basis=Z, product=Y, values=values, residuals=residuals, left=left)


def _trace_within(Z: Array, cross: Array) -> float:
    """Return the trace of C restricted to the span of Z, from `cross` = Z'CZ."""
    return float(np.trace(np.linalg.pinv(Z.T @ Z) @ cross))
