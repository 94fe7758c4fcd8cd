"""The closing Rayleigh-Ritz step: ordered components, true eigenvalues and residuals, the next.

The message asks for C times the basis and, where the algorithm names a direction beside the basis,
for C times that as well: the Ritz value there is the next one, which the gap is measured by. It
does not change the components.

The closing stage of components that are not orthonormal: what they explain, and how far rows vary
along them.

They are not turned, as a Rayleigh-Ritz step would: that spoils what they were made for. What is
said of rows is said of the components' span, on the orthonormal axes along which rows vary most
there: see `Model.axes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage, end_if
from flower_pca.rows.local import LocalData

CROSS: Final = "cross"  # by which name the model keeps Z'CZ


@dataclass(frozen=True)
class ObliqueState:
    """The components and, once it is known, their product with C."""

    Z: Array
    Y: Array | None


@dataclass(frozen=True, kw_only=True)
class Oblique(Stage[ObliqueState]):
    """Z'CZ, and the variance that each component adds to the span of those before it. No message where C Z is known.

    Cost: 4 n_i d k flops; k columns of d floats each way; once.
    """

    name: ClassVar[str] = "oblique"
    asks: ClassVar[Mapping[str, Ask]] = {"Z": BLOCK}
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> ObliqueState:
        return ObliqueState(model.columns, model.product)

    def broadcast(self, state: ObliqueState) -> Arrays:
        return {"Z": state.Z}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["Z"])}, memory

    def server(self, state: ObliqueState, total: Arrays, answered: frozenset[int]) -> ObliqueState:
        return replace(state, Y=total["Y"])

    def status(self, state: ObliqueState) -> Status | None:
        return end_if(state.Y is not None)

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
        residuals = linalg.column_norms(Y - Z * quotients)
        values = np.maximum(np.diff(spans), 0.0)
        left = {**model.left, CROSS: cross}
        return replace(model, basis=Z, product=Y, values=values, residuals=residuals, left=left)


def _trace_within(Z: Array, cross: Array) -> float:
    """The trace of C on the span of these columns, of which `cross` is Z'CZ."""
    return float(np.trace(np.linalg.pinv(Z.T @ Z) @ cross))


# that the bound on a column's rest is applied, each time with a better sum
_TIMES: Final = 3


@dataclass(frozen=True)
class RitzState:
    """The basis, which direction lies beside it, and once they are known their products with C."""

    Z: Array
    Y: Array | None
    beside: Array
    image: Array | None


@dataclass(frozen=True, kw_only=True)
class RayleighRitz(Stage[RitzState]):
    """Eigenpairs of Z'CZ order the basis; ||C z - theta z|| measures it. No message if C Z is known.

    Cost: 4 n_i d (p + 1) flops; p + 1 columns of d floats each way; once.
    """

    name: ClassVar[str] = "ritz"
    asks: ClassVar[Mapping[str, Ask]] = {"Z": BLOCK}
    fixed_set: ClassVar[bool] = True
    products_only: ClassVar[bool] = True

    def start(self, model: Model) -> RitzState:
        columns, beside = model.columns, model.beside
        if beside is None:
            beside = columns[:, :0]
        return RitzState(columns, model.product, np.ascontiguousarray(beside), model.beside_product)

    def broadcast(self, state: RitzState) -> Arrays:
        return {"Z": np.hstack([state.Z, state.beside])}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["Z"])}, memory

    def server(self, state: RitzState, total: Arrays, answered: frozenset[int]) -> RitzState:
        # contiguous, as checkpoints have them
        Y, image = map(np.ascontiguousarray, np.hsplit(total["Y"], [state.Z.shape[1]]))
        return replace(state, Y=Y, image=image)

    def status(self, state: RitzState) -> Status | None:
        return end_if(state.Y is not None)

    def finish(self, state: RitzState, model: Model) -> Model:
        assert state.Y is not None
        values, Z, Y, residuals = linalg.rayleigh_ritz(state.Z, state.Y)
        model = replace(model, basis=Z, product=Y, values=np.maximum(values, 0.0), residuals=residuals)
        k = model.k
        if k < len(values):
            model = replace(model, next_value=float(values[k]))
        elif state.image is not None and state.image.shape[1]:
            next_value = float(state.beside[:, 0] @ state.image[:, 0])
            model = replace(model, next_value=next_value)
        if model.sizes is None:
            return model
        squares = model.n * (model.sizes / model.frame.divisor) ** 2
        rest = _rest(squares, Z[:, :k], Y[:, :k])
        return replace(model, rest=rest)


def _rest(squares: Array, Z: Array, Y: Array) -> float:
    """The trace of (I - ZZ')C(I - ZZ'), from the diagonal of C and Y = C Z.

    It is summed by columns, as the difference of two large traces says nothing of a small rest. An
    entry still has the rounding of its column's squares, which may be more than all the rest. But
    it is at most the trace times the part of that column's axis which is outside of Z.
    """
    T = Z.T @ Y
    symmetric = (T + T.T) / 2.0
    twice = 2.0 * np.sum(Z * Y, axis=1)
    rests = squares - twice + np.sum((Z @ symmetric) * Z, axis=1)
    rests = np.clip(rests, 0.0, squares)
    outside = np.clip(1.0 - np.sum(Z * Z, axis=1), 0.0, 1.0)
    for _ in range(_TIMES):
        rests = np.minimum(rests, outside * rests.sum())
    return float(rests.sum())
