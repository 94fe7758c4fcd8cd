"""The closing Rayleigh-Ritz step: ordered components, true eigenvalues, true residuals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.model import Model
from flower_pca.core.parts import Kind, Part
from flower_pca.core.stage import Arrays, Stage
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class RitzState:
    """The basis and, once known, its product with C."""

    Z: Array
    Y: Array | None


@dataclass(frozen=True, kw_only=True)
class RayleighRitz(Stage[RitzState]):
    """Eigenpairs of Z'CZ order the basis; ||C z - theta z|| measures it. No message where C Z is known already.

    Cost: 4 n_i d p flops; p columns of d floats each way; once.
    """

    name: ClassVar[str] = "ritz"
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> RitzState:
        return RitzState(model.columns, model.product)

    def broadcast(self, state: RitzState) -> Arrays:
        return {"Z": state.Z}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["Z"])}, memory

    def server(self, state: RitzState, total: Arrays, answered: frozenset[int]) -> RitzState:
        return replace(state, Y=total["Y"])

    def status(self, state: RitzState) -> Status | None:
        return None if state.Y is None else Status.done()

    def finish(self, state: RitzState, model: Model) -> Model:
        assert state.Y is not None
        values, Z, Y, residuals = linalg.rayleigh_ritz(state.Z, state.Y)
        model = replace(model, basis=Z, product=Y, values=np.maximum(values, 0.0), residuals=residuals)
        if model.k < len(values):
            model = replace(model, next_value=float(values[model.k]))
        return model
