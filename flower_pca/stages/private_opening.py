"""The opening under differential privacy: count, mean and scale from clipped rows and noise. No product, no peak.

It stands in the place of the opening where a run has a budget. A client adds up clipped moments in one vector; the
server adds the vectors, knows how large the noise in them is, and reads mean, scale and count off them, as far as the
noise lets it. The first block is random then, as there is no product to start from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.asks import FLAG, Ask
from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage
from flower_pca.layers.noise import ClippedRows, noise_share
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class PrivateOpeningState:
    """What is asked for, among how many clients the noise is shared out, and the sum of the noised moments."""

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

    Times R^2 / sqrt(parts), the whole vector changes by at most R^2 with a row, as the answers of the algorithms do.
    x is left out where neither mean nor scale is asked for. x^2 stands for |x|^2, or, under a scale or where x is left
    out, for the squares column by column.

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
            got = "rows that are not"
            raise ProtocolError("The rows of a private opening", must="clipped", got=got, then="Check the sender.")
        R, d = data.clip, data.d
        sums, squares = np.zeros(d), np.zeros(d)
        for B in data.rows():
            sums += B.sum(axis=0)
            squares += np.einsum("ij,ij->j", B, B)
        parts = [np.array([float(data.n)])]
        if arrays["sums"]:
            parts += [sums / R]
        parts += [(squares if arrays["columns"] else squares.sum(keepdims=True)) / R**2]
        return {"moments": np.concatenate(parts) * R**2 / np.sqrt(len(parts)), "n": np.array(data.n)}, {}

    def inspect(self, state: PrivateOpeningState, reply: Arrays) -> None:
        size = len(reply["moments"])
        if size < 2:
            raise ProtocolError("The moments of an answer", must="at least 2", got=size, then="Check the client.")

    def server(self, state: PrivateOpeningState, total: Arrays, answered: frozenset[int]) -> PrivateOpeningState:
        return replace(state, moments=total["moments"], clients=int(total["n"]))

    def status(self, state: PrivateOpeningState) -> Status | None:
        if state.moments is None:
            return None
        return Status.done()

    def finish(self, state: PrivateOpeningState, model: Model) -> Model:
        assert state.moments is not None
        R, parts = self.clip, 3 if state.sums else 2
        unit = R**2 / np.sqrt(parts)
        v, deviation = state.moments / unit, noise_share(self.noise, state.among) * np.sqrt(state.clients) / unit
        d = (len(v) - 1) // (2 if state.sums and state.columns else 1) - (1 if state.sums and not state.columns else 0)
        checks.at_most(model.n_components, d, d)
        n = int(np.round(v[0]))
        if n < 2:
            remedy = "Take more rows, or a larger epsilon."
            raise DataError("The number of rows, with noise,", must="at least 2", got=n, then=remedy)
        if state.sums:
            mean = v[1 : d + 1] * R / n
        else:
            mean = np.zeros(d)
        squares = v[1 + d * state.sums :] * R**2
        scale = None
        # a variance that the noise has all but swallowed counts as large as the noise
        if model.scale is not None:
            scale = np.sqrt(np.maximum(squares / n - mean**2, deviation * R**2 / n))
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
        return replace(
            model,
            frame=frame,
            n=n,
            d=d,
            clients=state.clients,
            eps=float(np.finfo(np.float64).eps),
            trace=max(float(squares.sum() - n * moved @ moved), 0.0),
            basis=basis,
        )


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
