"""Covariance: C itself in one message, for few columns; under differential privacy, C and noise.

The client packs C_i into a vector, the server adds the vectors, unpacks the sum and takes its eigenvectors. There is
one message, and nothing to iterate. `packed` and `unpacked` are inverse to each other; the audit reads answers by the
latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Algorithm, scaled_up
from flower_pca.core.asks import COLUMNS, Ask
from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

_WIDEST: Final = 10_000  # columns, of which the server keeps a square matrix


@dataclass(frozen=True)
class CovarianceState:
    """The columns, what the clients' n add up to, and C once it is known."""

    d: int
    n: int
    width: int
    C: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Covariance(Algorithm[CovarianceState]):
    """Every client sends C_i = X_i'X_i once; the server adds them and takes the leading eigenvectors.

    C_i travels as its diagonal and sqrt(2) times what is above it: a vector as long as C_i is in Frobenius norm. So
    with `dp` a row of norm R changes it by at most R^2, and one draw of noise of deviation s R^2 per entry makes it
    private: on C that is a symmetric Gaussian matrix with s R^2 on the diagonal and s R^2 / sqrt(2) beside it. Without
    `dp` nothing is added: the components are exact, all d of them if so many are asked for, and C_i is told exactly.

    Reference: Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", STOC 2014 (which has no sqrt(2), and more noise).
    Cost: n_i d^2 flops on a client; d (d + 1) / 2 floats up, once; O(d^3) flops on the server.
    Prefer it: with few columns, up to about a hundred, where one message of C_i costs less than several of Krylov's;
    under `dp` with more, as a budget spent on one message beats one spent on many.

    Args:
        oversample: Columns kept beyond the number of components.
    """

    name: ClassVar[str] = "covariance"
    asks: ClassVar[Mapping[str, Ask]] = {"columns": COLUMNS}
    products_only: ClassVar[bool] = True
    bounded: ClassVar[bool] = True

    def start(self, model: Model) -> CovarianceState:
        if model.d > _WIDEST:
            remedy = "Use ssi or krylov, whose messages are narrow."
            raise DataError("The columns for covariance", must=f"at most {_WIDEST}", got=model.d, then=remedy)
        return CovarianceState(model.d, model.units, model.columns.shape[1])

    def broadcast(self, state: CovarianceState) -> Arrays:
        return {"columns": np.array(state.d)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        d = int(arrays["columns"])
        return {"C": Part((d * (d + 1) // 2,), Kind.GRAM), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if int(arrays["columns"]) != data.d:
            rule, remedy = f"{int(arrays['columns'])}, as in the opening", "Align the features first."
            raise DataError("The number of columns", must=rule, got=data.d, then=remedy)
        return {"C": pack(data.gram().astype(np.float64)), "n": np.array(data.n)}, memory

    def server(self, state: CovarianceState, total: Arrays, answered: frozenset[int]) -> CovarianceState:
        return replace(state, C=unpack(scaled_up(total, "C", state.n)))

    def status(self, state: CovarianceState) -> Status | None:
        if state.C is None:
            return None
        return Status(Outcome.ONE_SHOT, "its one round was answered")

    def finish(self, state: CovarianceState, model: Model) -> Model:
        if state.C is None:
            return model
        values, V = linalg.eigh_descending(state.C)
        width, k = state.width, model.n_components
        if not isinstance(k, int):
            width = fraction_rank(values, model.trace, k) or model.d
        # with the one that follows, for the gap
        Z = V[:, : max(width, state.width) + 1]
        return replace(model, basis=Z, product=state.C @ Z)

    def rounds(self, state: CovarianceState) -> int:
        return int(state.C is not None)


def pack(C: Array) -> Array:
    """The diagonal and, times sqrt(2), the rest of the upper triangle: as long a vector as C in Frobenius norm."""
    upper = np.triu_indices(len(C), 1)
    return np.concatenate([np.diagonal(C), np.sqrt(2.0) * C[upper]])


def unpack(vector: Array) -> Array:
    """The symmetric matrix that `packed` took apart."""
    d = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    C = np.zeros((d, d))
    C[np.triu_indices(d, 1)] = vector[d:] / np.sqrt(2.0)
    C += C.T
    C[np.diag_indices(d)] = vector[:d]
    return C
