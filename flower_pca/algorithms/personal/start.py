"""The ways to a first U: where the server stands on them, and a client's half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flower_pca.algorithms.personal import held_out
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import NUMBER, Kind, Part
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class Start:
    """The way to a first U: the blocks Q sent so far, their products with the projector average, the block to send."""

    Q: Array
    PQ: Array
    block: Array
    rounds: int = 0


def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
    """What `begin` answers to a message with these arrays."""
    if "B" not in arrays:
        return {"E": Part((d, None), Kind.COMPONENTS, own=True)}  # fewer than asked for, where rows have not that rank
    return {"w": NUMBER, "P": Part(arrays["B"].shape, Kind.ESTIMATE)}


def begin(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
    """A client's half of the start: the top of its own S_i, projected on or uploaded."""
    w = weight(arrays, data)
    if "B" not in arrays:
        V, values = data.top(held_out.leading(arrays, data))
        E = V.astype(np.float64) * (np.sqrt(values / data.n) if arrays["scaled"] else 1.0)
        return {"E": np.sqrt(w) * E}, memory
    kept = "top" if held_out.AUTO in arrays else "E"  # E alone has all that the rows span, where that is less than k
    E = memory.get(kept, np.empty((0, 0)))
    if len(E) != data.d:  # the first message, or a node that has lost its memory
        E = data.top(held_out.leading(arrays, data))[0].astype(np.float64)
    return {"w": np.array(w), "P": w * (E @ (E.T @ arrays["B"]))}, {kept: E}


def weight(arrays: Arrays, data: LocalData) -> float:
    """w_i: 1, or n_i."""
    return float(data.n) if arrays["samples"] else 1.0
