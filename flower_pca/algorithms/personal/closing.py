"""The closing message of personalized PCA: clients compute final local components, and the server the result.

All personalized algorithms use this message. Each client computes or corrects its local components, and
keeps the components and their variances as its local result (`local_results`). The server orders the
shared components, and passes theta, the error and the collected components on to `PersonalResult`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import ThetaProbe
from flower_pca.base import linalg
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, COUNT, FLAG, MEAN_SQUARES, STEPS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays, Merge, Stage, add_answer, stack_answer
from flower_pca.rows.local import LocalData

OWN: Final = "components"  # the key of the local components in a client's local result


@dataclass(frozen=True)
class ClosingState:
    """The state of the closing message.

    Attributes
    ----------
    U : ndarray
        The shared components, as columns.
    left : dict
        The other arrays to send.
    total : dict or None
        The sums of the answers, or None until the answers arrive.
    collected : ndarray or None
        The clients' local components, if the run collects them.
    """

    U: Array
    left: dict[str, Array]
    total: dict[str, Array] | None = None
    collected: Array | None = None


@dataclass(frozen=True, kw_only=True)
class PersonalClosing(Stage[ClosingState]):
    """Send U once more, so that every client computes and keeps its local components, which are orthogonal to U.

    Each client sends C_iU with C_i = X_i'X_i. From the sum, the server orders the shared components within
    their span by Rayleigh-Ritz, and computes their variances. Each client also sends tr S_i - tr U'S_iU -
    tr V_i'S_iV_i, the mean squared error of a row, with S_i = C_i / n_i. Under masks, or if its node agrees,
    the client sends V_i(V_i'b) for the probe vector b, from which the server computes theta. The client
    sends V_i only if the run collects local components and the node agrees.

    Cost: the same as one round of the algorithm.
    """

    name: ClassVar[str] = "personal"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "U": BLOCK,
        "b": BLOCK,
        **held_out.ASKS,
        "exact": FLAG,
        "steps": STEPS,
        "collect": FLAG,
    }
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> ClosingState:
        return ClosingState(model.columns, model.left)

    def broadcast(self, state: ClosingState) -> Arrays:
        return {"U": state.U, **state.left}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        U = arrays["U"]
        common: dict[str, Part] = {
            "Y": Part(U.shape, Kind.PRODUCT, of="U"),
            **ThetaProbe.parts(arrays),
            "error": MEAN_SQUARES,
            "clients": COUNT,
        }
        if held_out.AUTO in arrays:
            common[held_out.CHOSEN] = held_out.TOLD
        if arrays["collect"]:
            return {**common, "V": Part((len(U), None), Kind.COMPONENTS, own=True)}
        return common

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        U = arrays["U"]
        r, chosen = held_out.choose_number(arrays, data, memory)
        V = _local_basis(arrays, data, memory, r)
        values, V, _, _ = linalg.rayleigh_ritz(V, deflation.covariance_product(data, V))
        V = linalg.fix_signs(V)
        up = {
            "Y": data.matmat(U).astype(np.float64),
            **ThetaProbe.answer(V, arrays["b"]),
            "error": np.array(data.squared_error(np.hstack([U, V])) / data.n),
            "clients": np.array(1.0),
        }
        if chosen:
            up[held_out.CHOSEN] = held_out.one_hot_answer(chosen)
        if arrays["collect"]:
            up["V"] = V
        return up, {"V": V, "variances": np.maximum(values, 0.0)}

    @staticmethod
    def local_results(memory: Arrays, data: LocalData) -> Arrays:
        if "variances" not in memory:
            return {}
        return {OWN: np.ascontiguousarray(memory["V"].T), "variances": memory["variances"]}

    def merging(self, state: ClosingState) -> Merge:
        if state.left["collect"]:
            return stack_answer
        return add_answer

    def bounds(self, state: ClosingState, model: Model) -> Mapping[str, Array | float]:
        known = {"Y": MARGIN * model.trace, **ThetaProbe.BOUNDS, "error": 0.0, "clients": 1.0}
        if held_out.AUTO in state.left:
            return {**known, held_out.CHOSEN: 1.0}
        return known

    def server(self, state: ClosingState, total: Any, answered: frozenset[int]) -> ClosingState:
        if not state.left["collect"]:
            return replace(state, total=total)
        replies = [{**reply} for reply in total.values()]
        collected = _zeros_for_components(state, len(replies))
        for rows, reply in zip(collected, replies, strict=True):
            V = reply.pop("V")
            rows[: V.shape[1]] = V.T
        sums = {name: np.asarray(sum(reply[name] for reply in replies)) for name in replies[0]}
        return replace(state, total=sums, collected=collected)

    def status(self, state: ClosingState) -> Status | None:
        if state.total is None:
            return None
        return ANSWERED

    def finish(self, state: ClosingState, model: Model) -> Model:
        assert state.total is not None
        clients = float(state.total["clients"])
        probed = float(state.total["probed"])
        values, U, Y, residuals = linalg.rayleigh_ritz(state.U, state.total["Y"])
        overlap = np.nan
        # If only one of several clients answered the probe, theta cannot be estimated for all clients.
        if probed >= min(2.0, clients):
            overlap = float(np.sum(state.left["b"] * state.total["Vb"])) / probed
        collected = state.collected
        if collected is None:
            collected = _zeros_for_components(state, 0)
        error = np.asarray(state.total["error"] / clients)
        left = {**state.left, "theta": np.array(1.0 - overlap), "error": error, "collected": collected}
        if held_out.AUTO in left:
            counts = state.total[held_out.CHOSEN]
            left["own"] = np.array(held_out.largest_choice(counts))
            model = model.with_decision("own", held_out.sentence_on_numbers(counts))
        return replace(model, basis=U, product=Y, left=left, values=np.maximum(values, 0.0), residuals=residuals)


def _zeros_for_components(state: ClosingState, clients: int) -> Array:
    """Return an array of zeros with room for the local components of this many clients."""
    return np.zeros((clients, int(np.max(state.left["own"])), len(state.U)))


def _local_basis(arrays: Arrays, data: LocalData, memory: Arrays, r: int) -> Array:
    """Return r local components for the final U: the exact solution, or the present V made orthogonal to U."""
    U, steps = arrays["U"], int(arrays["steps"])
    V, span = memory.get("V"), deflation.WHOLE
    if steps or not arrays["exact"]:
        span = deflation.span_of_rows(data, U.shape[1] + r, memory)
    most = min(r, data.d - U.shape[1])
    if not arrays["exact"] and not len(span) and V is not None and V.shape == (data.d, most):
        return deflation.orthonormal_outside(V, U)
    return deflation.local_basis(data, U, r, steps=steps, start=V, span=span)
