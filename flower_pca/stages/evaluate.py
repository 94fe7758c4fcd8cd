"""Federated evaluation: the mean squared error of rows reconstructed from the components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage, status_when
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class EvaluateState:
    """The components and, after the message, the mean squared error of a row."""

    Z: Array
    mse: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluate(Stage[EvaluateState]):
    """A stage that computes the reconstruction error of the rows of all clients, in the frame's units.

    The error is sum ||x - ZZ'x||^2 / n. The columns of Z are the components, or orthonormal axes of their span.

    Cost: a client needs 4 n_i d k flops, the server sends k columns of d floats, and each client sends two numbers.
    """

    name: ClassVar[str] = "evaluate"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK}

    def start(self, model: Model) -> EvaluateState:
        return EvaluateState(model.orthonormal_axes[0])

    def broadcast(self, state: EvaluateState) -> Arrays:
        return {"Z": state.Z}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"squares": Part(kind=Kind.SQUARES), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        squares = data.squared_error(arrays["Z"])
        return {"squares": np.array(squares), "n": np.array(data.n)}, memory

    def server(self, state: EvaluateState, total: Arrays, answered: frozenset[int]) -> EvaluateState:
        return replace(state, mse=float(total["squares"]) / float(total["n"]))

    def status(self, state: EvaluateState) -> Status | None:
        return status_when(state.mse is not None)

    def metrics(self, state: EvaluateState) -> dict[str, float]:
        return {} if state.mse is None else {"mse": state.mse}

    def finish(self, state: EvaluateState, model: Model) -> Model:
        assert state.mse is not None
        # If the sum of squares outside the components is known, the measured one replaces it.
        rest = None if model.rest is None else state.mse * model.n
        return replace(model, mse=state.mse, rest=rest)
