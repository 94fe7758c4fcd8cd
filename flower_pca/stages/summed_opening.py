"""The opening where the server sees nothing but sums: counts and means first, then what is centred at them.

It brings what the one-message opening brings, with sums only: `server` turns the second message's sums into the layout
of that opening, whose `finish` does the rest. Bounds for the second message follow from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.asks import VECTOR, Ask
from flower_pca.core.kinds import COUNT, ROWS, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage
from flower_pca.rows.local import LocalData
from flower_pca.stages import usable
from flower_pca.stages.opening import Opening, OpeningState, block_of, draw, shape_of

_LEAST: Final = 1e-150
_SLACK: Final = 1e-13  # of the raw squares: what rounding may hide of the centred ones


@dataclass(frozen=True)
class SummedState:
    """The block to multiply, the first message's sums, and those of the second in the layout of the opening."""

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
    """The opening in two messages, each of them a plain sum over the clients, as masks need it.

    First n_i, the sums of the columns and of their squares. Then, about the mean r of the first message, n_i again, the
    sums of x - r, the squared deviations, and P_i = (X_i - r)'(X_i - r) B; what is left between r and the mean of those
    that answered is put right at the server, so that a client may be missing the second time. As long as none is,
    nothing cancels. Where values are missing, both are of those that are there, and each message counts them by column.

    Cost: 4 n_i d p flops; p columns of d floats up, plus two wide ones and three; a seed (or the block) and r down.
    """

    name: ClassVar[str] = "summed_opening"
    asks: ClassVar[Mapping[str, Ask]] = {**Opening.asks, "reference": VECTOR}

    width: int

    def start(self, model: Model) -> SummedState:
        if model.basis is None:
            width = self.width
        else:
            width = model.basis.shape[1]
        return SummedState(model.seed, width, model.missing != "error", model.basis)

    def broadcast(self, state: SummedState) -> Arrays:
        if state.reference is None:
            if state.gaps:
                return {"gaps": np.array(True)}
            return {}
        return {"reference": state.reference, **_plain(self, state)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "reference" in arrays:
            d = len(arrays["reference"])
        columns = Part((d,), Kind.COLUMNS)
        both = {"n": ROWS, "single": COUNT, "rows": COUNT, "sums": columns, "squares": columns}
        if "gaps" in arrays:
            both |= {"count": Part((d,), Kind.COUNT)}
        if "reference" not in arrays:
            return both
        return {**both, "product": Part(shape_of(arrays, d), Kind.LOCAL_PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        kind = {"single": np.array(int(data.dtype == np.float32)), "rows": np.array(int(data.answers == "rows"))}
        if set(arrays) <= {"gaps"}:
            if "gaps" not in arrays:
                data.complete()
            with np.errstate(over="ignore", invalid="ignore"):
                m = data.moments()
            usable.require_size(data, m.m2)
            if "gaps" in arrays:
                count = {"count": np.broadcast_to(m.seen, data.d)}
            else:
                count = {}
            sums = {"sums": m.seen * m.mean, "squares": m.m2 + m.seen * m.mean**2}
            return {"n": np.array(m.n), **kind, **sums, **count}, {}
        own, _ = Opening.client(arrays, data, {})
        e, seen = own["mean"] - arrays["reference"], own.get("count", own["n"])
        block = block_of(arrays, data.d)
        product = own["product"].astype(np.float64) + _between(e, seen, block)
        if "count" in own:
            count = {"count": seen}
        else:
            count = {}
        sums = {"sums": seen * e, "squares": own["m2"] + seen * e**2}
        return {"n": own["n"], **kind, **sums, "product": product, **count}, {}

    def bounds(self, state: SummedState, model: Model) -> Mapping[str, Array | float]:
        counts = {"n": MOST_ROWS, "single": 1.0, "rows": 1.0, **({"count": MOST_ROWS} if state.gaps else {})}
        if state.reference is None:
            return {**counts, "sums": 0.0, "squares": 0.0}
        assert state.squares is not None
        # Of all clients together, doubled for rounding: |sum x| <= sqrt(n s), |X_j'XB| <= sqrt(s_j) ||X|| ||B||.
        s = 2.0 * (state.squares + _LEAST)
        length = float(np.linalg.norm(_block(state), axis=0).max(initial=0.0))
        product = np.sqrt(s * s.sum())[:, None] * max(length, 1.0)
        return {**counts, "sums": np.sqrt(s * 2.0 * state.n), "squares": s, "product": product}

    def server(self, state: SummedState, total: Arrays, answered: frozenset[int]) -> SummedState:
        n, sums, squares = round(float(total["n"])), total["sums"], total["squares"]
        seen = np.rint(total["count"]) if state.gaps else n
        e = sums / np.maximum(seen, 1)
        if state.reference is None:
            left = np.maximum(squares - seen * e**2, 0.0) + _SLACK * squares
            return replace(state, n=n, reference=e, squares=left)
        eps = np.finfo(np.float32 if total["single"] > 0 else np.float64).eps
        return replace(
            state,
            total={
                "n": np.array(n),
                "rows": total["rows"],
                "eps": np.array(eps, dtype=np.float64),
                "mean": state.reference + e,
                "m2": np.maximum(squares - seen * e**2, 0.0),
                "product": total["product"] - _between(e, seen, _block(state)),
                **({"count": np.asarray(seen)} if state.gaps else {}),
            },
        )

    def status(self, state: SummedState) -> Status | None:
        if state.total is not None:
            return Status.done()
        return None

    def finish(self, state: SummedState, model: Model) -> Model:
        merged = OpeningState(state.seed, state.width, False, state.gaps, state.block, total=state.total)
        return Opening(width=self.width).finish(merged, model)


def _plain(stage: SummedOpening, state: SummedState) -> Arrays:
    """What the one-message opening would send."""
    return Opening(width=stage.width).broadcast(OpeningState(state.seed, state.width, False, state.gaps, state.block))


def _between(e: Array, seen: Array | int, block: Array) -> Array:
    """What a mean that is e off takes from a product; where values are missing, what it takes of those that are there.

    Then the product is a start only, and its entries stay within the bounds.
    """
    e = np.sqrt(seen) * e
    return np.outer(e, e @ block)


def _block(state: SummedState) -> Array:
    assert state.reference is not None
    if state.block is None:
        return draw(len(state.reference), state.width, state.seed)
    return state.block
