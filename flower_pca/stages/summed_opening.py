"""The opening of a masked run, in which the server sees only sums.

`SummedOpening` asks for counts and means in a first message, and for centered sums in a second message.
Its result is the same as that of the opening in one message. `server` converts the sums of the second
message to the layout of that opening, whose `finish` does the rest. Bounds for the answers to the second
message follow from the first message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import COUNT, ROWS, VECTOR, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when
from flower_pca.rows.local import LocalData
from flower_pca.stages import opening
from flower_pca.stages.opening import (
    Opening,
    OpeningState,
    block_of_message,
    block_or_drawn,
    lowest_precision,
    precision_flags,
    shapes_of_block,
)

# This number is added to sums of squares, because a bound of 0 means that the bound is unknown.
_LEAST: Final = 1e-150
_SLACK: Final = 1e-13  # the rounding error of centered squares, as a share of the raw squares


@dataclass(frozen=True)
class SummedState:
    """The block to multiply, the mean and squares from the first message, and the total of the second message."""

    seed: int
    width: int
    gaps: bool = False
    block: Array | None = None
    n: int = 0
    reference: Array | None = None
    squares: Array | None = None
    total: dict[str, Array] | None = None


@dataclass(frozen=True, kw_only=True)
class SummedOpening(Stage[SummedState]):
    """An opening for masked runs, in two messages whose answers are plain sums over the clients.

    For the first message, clients send n_i and the sums of the columns and of their squares. Let r be the
    mean that follows from these sums. For the second message, clients send n_i again, the sums of x - r, the
    sums of squared deviations from r, and P_i = (X_i - r)'(X_i - r) B. The server corrects for the difference
    between r and the mean of the clients that answered, so a client may fail to answer the second message.
    If all clients answer, no precision is lost. If values may be missing, all sums are over present values,
    and each answer contains the number of values of each column.

    Cost: a client needs 4 n_i d p flops. It sends two columns of d floats for the first message and
    p + 2 columns for the second message, and one more column each if values may be missing. The server
    sends r, and a seed or the block.
    """

    name: ClassVar[str] = "summed_opening"
    asks: ClassVar[Mapping[str, ArrayRule]] = {**Opening.asks, "reference": VECTOR}

    width: int

    def start(self, model: Model) -> SummedState:
        return SummedState(model.seed, self.width, model.missing != "error", model.basis)

    def broadcast(self, state: SummedState) -> Arrays:
        if state.reference is None:
            return {"gaps": np.array(True)} if state.gaps else {}
        return {"reference": state.reference, **Opening(width=self.width).broadcast(as_opening_state(state))}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "reference" in arrays:
            d = len(arrays["reference"])
        columns = Part((d,), Kind.COLUMNS)
        both = {"n": ROWS, "single": COUNT, "rows": COUNT, "sums": columns, "squares": columns}
        if "gaps" in arrays:
            both["count"] = Part((d,), Kind.COUNT)
        if "reference" in arrays:
            both["product"] = Part(shapes_of_block(arrays, d), Kind.LOCAL_PRODUCT)
        return both

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if set(arrays) <= {"gaps"}:
            if "gaps" not in arrays:
                data.require_complete_rows()
            with np.errstate(over="ignore", invalid="ignore"):
                m = data.moments()
            opening.require_size(data, m)
            own = {"n": np.array(m.n), "m2": m.m2}
            e = m.mean
            if "gaps" in arrays:
                own["count"] = np.broadcast_to(m.value_counts, data.d)
        else:
            own, _ = Opening.client(arrays, data, {})
            e = own["mean"] - arrays["reference"]
        seen = own.get("count", own["n"])
        squares = own["m2"] + seen * e**2
        up = {"n": own["n"], **precision_flags(data), "sums": seen * e, "squares": squares}
        if "product" in own:
            between = _mean_correction(e, seen, block_of_message(arrays, data.d))
            up["product"] = own["product"].astype(np.float64) + between
        if "count" in own:
            up["count"] = seen
        return up, {}

    def bounds(self, state: SummedState, model: Model) -> Mapping[str, Array | float]:
        counts = {"n": MOST_ROWS, "single": 1.0, "rows": 1.0, **({"count": MOST_ROWS} if state.gaps else {})}
        if state.reference is None:
            return {**counts, "sums": 0.0, "squares": 0.0}
        assert state.squares is not None
        # These are bounds for all clients together, doubled for rounding: |sum x| <= sqrt(n s), |X_j'XB| <=
        # sqrt(s_j) ||X|| ||B||.
        s = 2.0 * (state.squares + _LEAST)
        length = float(np.linalg.norm(_block_to_multiply(state), axis=0).max(initial=1.0))
        product = np.sqrt(s * s.sum())[:, None] * length
        return {**counts, "sums": np.sqrt(s * 2.0 * state.n), "squares": s, "product": product}

    def server(self, state: SummedState, total: Arrays, answered: frozenset[int]) -> SummedState:
        n = round(float(total["n"]))
        sums, squares = total["sums"], total["squares"]
        seen = np.rint(total["count"]) if state.gaps else n
        e = sums / np.maximum(seen, 1)
        deviations = np.maximum(squares - seen * e**2, 0.0)
        if state.reference is None:
            return replace(state, n=n, reference=e, squares=deviations + _SLACK * squares)
        merged = {
            "n": np.array(n),
            "rows": total["rows"],
            "eps": np.array(lowest_precision(total)),
            "mean": state.reference + e,
            "m2": deviations,
            "product": total["product"] - _mean_correction(e, seen, _block_to_multiply(state)),
        }
        if state.gaps:
            merged["count"] = np.asarray(seen)
        return replace(state, total=merged)

    def status(self, state: SummedState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: SummedState, model: Model) -> Model:
        return Opening(width=self.width).finish(as_opening_state(state), model)


def as_opening_state(state: SummedState) -> OpeningState:
    """Return the state that the opening in one message would have with the same information."""
    return OpeningState(state.seed, state.width, False, state.gaps, state.block, state.total)


def _mean_correction(e: Array, seen: Array | int, block: Array) -> Array:
    """Return the correction of a product that was centered at a mean with an error of e.

    If values are missing, the correction uses the numbers of present values. The product then serves only as
    a start, and its entries stay within the bounds.
    """
    e = np.sqrt(seen) * e
    return np.outer(e, e @ block)


def _block_to_multiply(state: SummedState) -> Array:
    assert state.reference is not None
    return block_or_drawn(state.block, len(state.reference), state.width, state.seed)
