"""Openings for a server that sees only sums: `SummedOpening` for masks, `PrivateOpening` for differential privacy.

`SummedOpening` asks for counts and means in a first message, and for centered sums in a second message.
Its result is the same as that of the opening in one message. `server` converts the sums of the second
message to the layout of that opening, whose `finish` does the rest. Bounds for the answers to the second
message follow from the first message.

`PrivateOpening` replaces the opening in a run with a privacy budget. It estimates count, mean and scale
from clipped rows with noise, but no product and no largest absolute values. Each client adds up the
moments of its clipped rows in one vector. The server adds up the vectors, whose noise has a known size,
and estimates count, mean and scale from the sum as far as the noise allows. The first block is random,
because there is no product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import COUNT, FLAG, ROWS, VECTOR, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when
from flower_pca.layers.noise import ClippedRows, noise_share
from flower_pca.rows.frame import Frame
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


@dataclass(frozen=True)
class PrivateOpeningState:
    """The settings of the message, the number of clients that share the noise, and the noisy sum of moments."""

    sums: bool
    columns: bool
    among: int = 1
    moments: Array | None = None
    clients: int = 0

    def divide_noise(self, among: int) -> PrivateOpeningState:
        """Return the state for a sum whose noise is shared by `among` clients."""
        return replace(self, among=among)


@dataclass(frozen=True, kw_only=True)
class PrivateOpening(Stage[PrivateOpeningState]):
    """An opening under differential privacy, from noisy sums of clipped rows and of their squares.

    A row x is clipped to norm R, and adds (1, x / R, x^2 / R^2) to the moments. These are two or three
    parts, each of norm at most 1. The vector is multiplied by R^2 / sqrt(number of parts), so that a row
    changes it by at most R^2, like the answers of the algorithms. x is left out if neither mean nor scale is
    requested. x^2 stands for the squares of each column if a scale is requested or x is left out, and for
    |x|^2 otherwise.

    Cost: a client needs 2 n_i d flops, and sends up to 2 d + 1 floats.
    """

    name: ClassVar[str] = "private_opening"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"sums": FLAG, "columns": FLAG}
    by_row: ClassVar[bool] = True
    bounded: ClassVar[bool] = True

    width: int
    clip: float
    noise: float

    def start(self, model: Model) -> PrivateOpeningState:
        sums = model.center or model.scale is not None
        return PrivateOpeningState(sums, columns=model.scale is not None or not sums)

    def broadcast(self, state: PrivateOpeningState) -> Arrays:
        return {"sums": np.array(state.sums), "columns": np.array(state.columns)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if d is None:
            size = None
        else:
            size = 1 + (d if arrays["sums"] else 0) + (d if arrays["columns"] else 1)
        return {"moments": Part((size,), Kind.MOMENTS), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        # Without this check, a message without noise would be answered with the moments of unclipped rows.
        if not isinstance(data, ClippedRows):
            raise ProtocolError(
                f"A private opening needs clipped rows, but this message requests no clipping. {OTHER_SERVER}"
            )
        R, d = data.clip, data.d
        sums, squares = np.zeros(d), np.zeros(d)
        for B in data.rows():
            sums += B.sum(axis=0)
            squares += np.einsum("ij,ij->j", B, B)
        parts = [np.array([float(data.n)])]
        if arrays["sums"]:
            parts += [sums / R]
        parts += [(squares if arrays["columns"] else squares.sum(keepdims=True)) / R**2]
        moments = np.concatenate(parts) * R**2 / np.sqrt(len(parts))
        return {"moments": moments, "n": np.array(data.n)}, {}

    def inspect(self, state: PrivateOpeningState, reply: Arrays) -> None:
        if len(reply["moments"]) < 2:
            raise ProtocolError(
                f"An answer has {labels.count(len(reply['moments']), 'moment')}, but at least 2 are needed. "
                f"{OTHER_CLIENT}"
            )

    def server(self, state: PrivateOpeningState, total: Arrays, answered: frozenset[int]) -> PrivateOpeningState:
        # Under noise, each client reports 1 as its number of rows.
        return replace(state, moments=total["moments"], clients=int(total["n"]))

    def status(self, state: PrivateOpeningState) -> Status | None:
        return status_when(state.moments is not None)

    def finish(self, state: PrivateOpeningState, model: Model) -> Model:
        assert state.moments is not None
        R, parts = self.clip, 3 if state.sums else 2
        unit = R**2 / np.sqrt(parts)
        v = state.moments / unit
        deviation = noise_share(self.noise, state.among) * np.sqrt(state.clients) / unit
        d = (len(v) - 1) // (2 if state.sums and state.columns else 1) - (1 if state.sums and not state.columns else 0)
        checks.components_available(model.n_components, d, d)
        n = int(np.round(v[0]))
        if n < 2:
            raise DataError(
                f"The noisy estimate of the number of rows is {n}, but at least 2 rows are needed. Use more rows, or a "
                "larger epsilon."
            )
        mean = v[1 : d + 1] * R / n if state.sums else np.zeros(d)
        squares = v[1 + d * state.sums :] * R**2
        scale = None
        # A variance below the noise level is raised to the noise level.
        if model.scale is not None:
            least = deviation * R**2 / n
            scale = np.sqrt(np.maximum(squares / n - mean**2, least))
            squares = squares / scale**2
        basis = linalg.random_basis(d, min(self.width, d), model.seed)
        if model.basis is not None:
            basis = linalg.orth(model.basis[:, : self.width] * (1.0 if scale is None else scale[:, None]))
        frame = Frame(mean if model.center else None, scale)
        moved = np.full(d, frame.column_centers / frame.column_divisors)
        if model.public.scale is not None:
            frame = _in_original_units(model.public, mean)
        trace = max(float(squares.sum() - n * moved @ moved), 0.0)
        eps = float(np.finfo(np.float64).eps)
        return replace(model, frame=frame, n=n, d=d, clients=state.clients, eps=eps, trace=trace, basis=basis)


def _in_original_units(public: Frame, mean: Array) -> Frame:
    """Return the public frame with the mean of the rows in their original units.

    `mean` was computed in the units of the public frame.
    """
    assert public.mean is not None
    assert public.scale is not None
    own = public.mean + public.scale * mean
    if public.fill is None:
        return replace(public, mean=own)
    # The noisy mean replaces missing values. It was released already, so this reveals nothing more about a row.
    return replace(public, mean=own, fill=own)


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
