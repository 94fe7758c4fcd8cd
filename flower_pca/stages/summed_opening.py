"""The opening where the server sees sums only: counts and means first, then centred sums.

It brings what the one-message opening brings, with sums only: `server` turns the second message's
sums into the layout of that opening, whose `finish` does the rest. Bounds for the second message
follow from the first.

The opening under differential privacy: count, mean and scale from clipped rows and noise. No
product, no peak.

It stands in the place of the opening where a run has a budget. A client adds up clipped moments in
one vector; the server adds the vectors, knows how large the noise in them is, and reads mean, scale
and count off them, as far as the noise lets it. The first block is random then, as there is no
product to start from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import COUNT, FLAG, ROWS, VECTOR, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage
from flower_pca.layers.noise import ClippedRows, noise_share
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages import opening
from flower_pca.stages.opening import Opening, OpeningState, block_of, block_or_drawn, shape_of


@dataclass(frozen=True)
class PrivateOpeningState:
    """What is asked for, among how many the noise is shared out, the sum of noised moments."""

    sums: bool
    columns: bool
    among: int = 1
    moments: Array | None = None
    clients: int = 0

    def divide(self, among: int) -> PrivateOpeningState:
        """The state that knows among how many clients the noise of the sum is shared out."""
        return replace(self, among=among)


@dataclass(frozen=True, kw_only=True)
class PrivateOpening(Stage[PrivateOpeningState]):
    """A row x, clipped to norm R, adds (1, x / R, x^2 / R^2) to the moments: up to three parts of norm 1 at most.

    Times R^2 / sqrt(parts), the whole vector changes by at most R^2 with a row, as the answers of
    the algorithms do. x is left out where neither mean nor scale is asked for. x^2 stands for
    |x|^2, or, under a scale or where x is left out, for the squares column by column.

    Cost: 2 n_i d flops; up to 2 d + 1 floats up.
    """

    name: ClassVar[str] = "private_opening"
    asks: ClassVar[Mapping[str, Ask]] = {"sums": FLAG, "columns": FLAG}
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
        if not isinstance(data, ClippedRows):
            raise ProtocolError(
                "The rows of a private opening",
                must="clipped",
                got="rows that are not",
                then="Check the sender.",
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
        size = len(reply["moments"])
        if size < 2:
            raise ProtocolError(
                "The moments of an answer",
                must="at least 2",
                got=size,
                then="Check the client.",
            )

    def server(self, state: PrivateOpeningState, total: Arrays, answered: frozenset[int]) -> PrivateOpeningState:
        return replace(state, moments=total["moments"], clients=int(total["n"]))

    def status(self, state: PrivateOpeningState) -> Status | None:
        if state.moments is None:
            return None
        return ANSWERED

    def finish(self, state: PrivateOpeningState, model: Model) -> Model:
        assert state.moments is not None
        R, parts = self.clip, 3 if state.sums else 2
        unit = R**2 / np.sqrt(parts)
        v = state.moments / unit
        deviation = noise_share(self.noise, state.among) * np.sqrt(state.clients) / unit
        d = (len(v) - 1) // (2 if state.sums and state.columns else 1) - (1 if state.sums and not state.columns else 0)
        checks.at_most(model.n_components, d, d)
        n = int(np.round(v[0]))
        if n < 2:
            raise DataError(
                "The number of rows, with noise,",
                must="at least 2",
                got=n,
                then="Take more rows, or a larger epsilon.",
            )
        if state.sums:
            mean = v[1 : d + 1] * R / n
        else:
            mean = np.zeros(d)
        squares = v[1 + d * state.sums :] * R**2
        scale = None
        # a variance that the noise has all but swallowed counts as large as the noise
        if model.scale is not None:
            least = deviation * R**2 / n
            scale = np.sqrt(np.maximum(squares / n - mean**2, least))
            squares = squares / scale**2
        basis = linalg.random_basis(d, min(self.width, d), model.seed)
        if model.basis is not None:
            basis = linalg.orth(model.basis[:, : self.width] * (1.0 if scale is None else scale[:, None]))
        moved = np.zeros(d)
        if model.center:
            moved = mean if scale is None else mean / scale
        frame = Frame(mean if model.center else None, scale)
        if model.public.scale is not None:
            frame = _onto(model.public, mean)
        trace = max(float(squares.sum() - n * moved @ moved), 0.0)
        eps = float(np.finfo(np.float64).eps)
        return replace(model, frame=frame, n=n, d=d, clients=state.clients, eps=eps, trace=trace, basis=basis)


def _onto(public: Frame, mean: Array) -> Frame:
    """The frame of rows that were measured in a public one, of whose columns this is the mean, in their own units."""
    assert public.mean is not None
    assert public.scale is not None
    own = public.mean + public.scale * mean
    # the mean with noise, which tells no more of a row than it does
    if public.fill is None:
        fill = None
    else:
        fill = own
    return replace(public, mean=own, fill=fill)


_LEAST: Final = 1e-150
_SLACK: Final = 1e-13  # of the raw squares: what rounding may hide of the centred ones


@dataclass(frozen=True)
class SummedState:
    """The block to multiply, the first message's sums, those of the second as the opening's."""

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

    First n_i, the sums of the columns and of their squares. Then, about the mean r of the first
    message, n_i again, the sums of x - r, the squared deviations, and P_i = (X_i - r)'(X_i - r) B;
    what is left between r and the mean of those that answered is put right at the server, so that a
    client may be missing the second time. As long as none is, nothing cancels. Where values are
    missing, both are of those that are there, and each message counts them by column.

    Cost: 4 n_i d p flops; p columns of d floats up, plus two wide ones and three; a seed (or the
    block) and r down.
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
        single, by_rows = data.dtype == np.float32, data.answers == "rows"
        kind = {"single": np.array(int(single)), "rows": np.array(int(by_rows))}
        if set(arrays) <= {"gaps"}:
            if "gaps" not in arrays:
                data.complete()
            with np.errstate(over="ignore", invalid="ignore"):
                m = data.moments()
            opening.require_size(data, m.m2)
            if "gaps" in arrays:
                count = {"count": np.broadcast_to(m.seen, data.d)}
            else:
                count = {}
            squares = m.m2 + m.seen * m.mean**2
            sums = {"sums": m.seen * m.mean, "squares": squares}
            return {"n": np.array(m.n), **kind, **sums, **count}, {}
        own, _ = Opening.client(arrays, data, {})
        e = own["mean"] - arrays["reference"]
        seen = own.get("count", own["n"])
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
        # Of all clients together, doubled for rounding: |sum x| <= sqrt(n s), |X_j'XB| <= sqrt(s_j)
        # ||X|| ||B||.
        s = 2.0 * (state.squares + _LEAST)
        length = float(np.linalg.norm(_block(state), axis=0).max(initial=0.0))
        lengths = np.sqrt(s * s.sum())
        product = lengths[:, None] * max(length, 1.0)
        return {**counts, "sums": np.sqrt(s * 2.0 * state.n), "squares": s, "product": product}

    def server(self, state: SummedState, total: Arrays, answered: frozenset[int]) -> SummedState:
        n = round(float(total["n"]))
        sums, squares = total["sums"], total["squares"]
        seen = np.rint(total["count"]) if state.gaps else n
        e = sums / np.maximum(seen, 1)
        if state.reference is None:
            deviations = np.maximum(squares - seen * e**2, 0.0)
            left = deviations + _SLACK * squares
            return replace(state, n=n, reference=e, squares=left)
        eps = np.finfo(np.float32 if total["single"] > 0 else np.float64).eps
        if state.gaps:
            count = {"count": np.asarray(seen)}
        else:
            count = {}
        moments = {
            "n": np.array(n),
            "rows": total["rows"],
            "eps": np.array(eps, dtype=np.float64),
            "mean": state.reference + e,
            "m2": np.maximum(squares - seen * e**2, 0.0),
        }
        product = total["product"] - _between(e, seen, _block(state))
        return replace(state, total={**moments, "product": product, **count})

    def status(self, state: SummedState) -> Status | None:
        if state.total is not None:
            return ANSWERED
        return None

    def finish(self, state: SummedState, model: Model) -> Model:
        merged = OpeningState(state.seed, state.width, False, state.gaps, state.block, total=state.total)
        return Opening(width=self.width).finish(merged, model)


def _plain(stage: SummedOpening, state: SummedState) -> Arrays:
    """What the one-message opening would send."""
    opened = OpeningState(state.seed, state.width, False, state.gaps, state.block)
    return Opening(width=stage.width).broadcast(opened)


def _between(e: Array, seen: Array | int, block: Array) -> Array:
    """What a mean that is e off takes from a product; where values are missing, what it takes of those that are there.

    Then the product is a start only, and its entries stay within the bounds.
    """
    e = np.sqrt(seen) * e
    return np.outer(e, e @ block)


def _block(state: SummedState) -> Array:
    assert state.reference is not None
    return block_or_drawn(state.block, len(state.reference), state.width, state.seed)
