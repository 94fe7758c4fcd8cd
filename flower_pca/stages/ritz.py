"""The closing Rayleigh-Ritz step, which returns ordered components, their eigenvalues and residuals.

The message asks for C times the basis. If the algorithm passes on a direction orthogonal to the basis,
the message also asks for C times this direction. Its Ritz value estimates the next eigenvalue, from which
the gap follows. The direction does not change the components.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, AsksForProduct, Stage, status_when
from flower_pca.stages.site_share import SITE_SHARE, site_share

# The bound on each column's entry in `_trace_outside` is applied this many times. Each pass uses the sum from the
# previous pass.
_TIMES: Final = 3
_DOUBLE: Final = float(np.finfo(np.float64).eps)
# The error of C z from rows in single precision is at most this multiple of their precision times the first eigenvalue.
# In 720 runs over rows of six kinds, it was at most 3.0 times.
_SINGLE_PRODUCTS: Final = 4.0


@dataclass(frozen=True)
class RitzState:
    """The basis Z, a direction `beside` orthogonal to Z, and, once known, the products of both with C."""

    Z: Array
    Y: Array | None
    beside: Array
    image: Array | None


@dataclass(frozen=True, kw_only=True)
class RayleighRitz(AsksForProduct, Stage[RitzState]):
    """A closing stage that orders the basis by eigenpairs of Z'CZ, and measures the residuals ||C z - theta z||.

    If C Z is known, no message is needed.

    Cost: a client needs 4 n_i d (p + 1) flops, and p + 1 columns of d floats travel each way, once.
    """

    name: ClassVar[str] = "ritz"
    fixed_set: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    def start(self, model: Model) -> RitzState:
        columns, beside = model.columns, model.beside
        if beside is None:
            beside = columns[:, :0]
        return RitzState(columns, model.product, np.ascontiguousarray(beside), model.beside_product)

    def broadcast(self, state: RitzState) -> Arrays:
        return {"Z": np.hstack([state.Z, state.beside])}

    def server(self, state: RitzState, total: Arrays, answered: frozenset[int]) -> RitzState:
        # The arrays are made contiguous, so that they equal the arrays restored from a checkpoint.
        Y, image = map(np.ascontiguousarray, np.hsplit(total["Y"], [state.Z.shape[1]]))
        return replace(state, Y=Y, image=image)

    def status(self, state: RitzState) -> Status | None:
        return status_when(state.Y is not None)

    def finish(self, state: RitzState, model: Model) -> Model:
        assert state.Y is not None
        values, Z, Y, residuals = linalg.rayleigh_ritz(state.Z, state.Y)
        residuals = np.hypot(residuals, _unseen_error(Z, values, model))
        values = np.maximum(values, 0.0)
        if model.rounding or model.block_rounding:
            measured = values
            values = _nearest_within_trace(values, model.trace, residuals)
            residuals = np.hypot(residuals, measured - values)
        model = replace(model, basis=Z, product=Y, values=values, residuals=residuals)
        k = model.k
        found: dict[str, Any] = {}
        if k < len(values):
            found |= {"next_value": float(values[k]), "next_residual": float(residuals[k])}
        elif state.image is not None and state.image.shape[1]:
            outside = linalg.complement(state.image, Z)
            following, _, _, off = linalg.rayleigh_ritz(state.beside, outside)
            found |= {"next_value": float(following[0]), "next_residual": float(off[0])}
        if (share := site_share(model)) is not None:
            found["left"] = {**model.left, SITE_SHARE: share}
        if model.sizes is not None:
            squares = model.n * (model.sizes / model.frame.column_divisors) ** 2
            found["rest"] = _trace_outside(squares, Z[:, :k], Y[:, :k])
        return replace(model, **found) if found else model


def _nearest_within_trace(values: Array, trace: float, errors: Array) -> Array:
    """Return the nearest values that are not negative and add up to at most the trace. `values` are sorted.

    Eigenvalues have these properties. Values from rounded products can add up to more than the trace, which is known
    with more digits. Distances are relative to the errors of the values, so a small value with a small error stays
    nearly the same.
    """
    if values.sum() <= trace:
        return values
    largest = max(float(np.max(errors)), np.finfo(float).tiny)
    squares = np.maximum(errors / largest, _DOUBLE) ** 2
    # A value is lowered by `step` times the square of its error. It is 0 from the step values / squares on.
    order = np.argsort(values / squares)[::-1]
    steps = (np.cumsum(values[order]) - trace) / np.cumsum(squares[order])
    positive = np.flatnonzero(values[order] > steps * squares[order])
    step = float(steps[positive[-1]]) if len(positive) else np.inf
    lowered = np.maximum(values - step * squares, 0.0)
    return np.asarray(np.minimum.accumulate(lowered))


def _unseen_error(Z: Array, values: Array, model: Model) -> Array:
    """Return a bound on the error that arises because C differs from the exact matrix of the rows.

    Residuals do not show this error, because they belong to the matrix that was sent. An entry of a
    client's matrix has a relative rounding error of u. The entries (j, l) of all clients together are at
    most sqrt(C_jj C_ll) in size, because each client's matrix is positive semidefinite. The squares of
    rounding errors add up, so the error of C z is about u sqrt(trace(C) sum_l C_ll z_l^2). Products of rows
    in single precision have a rounding error of their own.
    """
    single = _SINGLE_PRODUCTS * model.eps * float(np.max(values)) if model.eps > _DOUBLE else 0.0
    if model.covariance is None:
        return np.hypot(model.product_errors(Z, values), single)
    diagonal = np.maximum(np.diagonal(model.covariance), 0.0)
    rounded = model.rounding * np.sqrt(diagonal.sum()) * np.sqrt(diagonal @ (Z * Z))
    return np.asarray(np.hypot(np.hypot(rounded, model.mask_noise) + model.shifted + model.noise, single))


def _trace_outside(squares: Array, Z: Array, Y: Array) -> float:
    """Return the trace of (I - ZZ')C(I - ZZ'), from the diagonal of C and Y = C Z.

    The trace is summed over columns, because the difference of two large traces has no precision if the
    trace is small. A column's entry still has the rounding error of the column's squares, which may exceed
    the whole trace. However, an entry is at most the trace times the squared length of the part of the
    column's axis outside span(Z). If span(Z) is not invariant, an entry may exceed the column's own squares,
    because the components of a one-shot algorithm move variance between columns.
    """
    T = Z.T @ Y
    symmetric = (T + T.T) / 2.0
    twice = 2.0 * np.sum(Z * Y, axis=1)
    rests = np.maximum(squares - twice + np.sum((Z @ symmetric) * Z, axis=1), 0.0)
    outside = np.clip(1.0 - np.sum(Z * Z, axis=1), 0.0, 1.0)
    for _ in range(_TIMES):
        rests = np.minimum(rests, outside * rests.sum())
    return float(rests.sum())
