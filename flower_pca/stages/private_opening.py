"""The opening of a run with a privacy budget.

`PrivateOpening` estimates count, mean and scale from clipped rows with noise, but no product and no largest
absolute values. Each client adds up the moments of its clipped rows in one vector. The server adds up the
vectors, whose noise has a known size, and estimates count, mean and scale from the sum as far as the noise
allows. The first block is random, because there is no product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage, status_when
from flower_pca.layers.noise import ClippedRows, noise_share
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData


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
