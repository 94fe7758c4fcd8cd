"""Halves: what of an answer travels in words of 32 bits, and what the sum over all clients is at most.

Such words have no room for a bound that is only nearly one, times the number of clients. So they are for products with
C_i of clients whose rows are all in the sums of the opening: with s_a the squares of column a over all rows, s those of
all columns, and a block whose columns are no longer than l, Cauchy and Schwarz say that

    sum over clients of |(C_i Z)_ab|  <=  sum of |x_ia| |X_i z_b|  <=  sqrt(s_a s) l.

To these comes what rounding may add. Bounds are powers of two, which take 16 bits to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca import registry
from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.claims import block_like
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.layer import Sayings
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import NOISE, WIRE
from flower_pca.masking import fixed, messages

if TYPE_CHECKING:  # of a server
    from flower_pca.core.run import Run

_PRODUCTS: Final = (Kind.PRODUCT, Kind.IMAGE, Kind.LOCAL_PRODUCT)
_TOLD: Final = "masks took words of 32 bits for products, as the tolerance leaves room for their noise"
_SLACK: Final = 1.01
_TIGHT: Final = 2.0
_ROUNDING: Final = 1e-3  # of the mean of all s_a: what the rounding of a mean may add to one of them


def wholes(run: Run, message: Broadcast, parts: Mapping[str, Part], clients: int) -> dict[str, Array]:
    """What the sums of the answers to the run's message are at most, by name, where 32 bits will do."""
    rows = [part.shape[0] for part in parts.values() if part.kind in _PRODUCTS]
    halved = rows and fixed.halving(_bits(message.layers), clients, rows[0] or 0)
    if not halved or not _measured(run, message):
        return {}
    if run.standing.opening:
        bounds = run.standing.bounds(heard=True)
        return {n: _power(np.asarray(bounds[n])) for n, p in parts.items() if p.kind is Kind.LOCAL_PRODUCT}
    model = run.standing.model
    if model.sizes is None:
        return {}
    sizes = model.sizes if model.frame.scale is None else model.sizes / model.frame.scale
    squares = _SLACK * model.n * sizes**2 + _ROUNDING * model.trace / model.d
    root = np.sqrt(_SLACK * model.trace * squares)[:, None]
    return {n: _power(root * _longest(message, part)) for n, part in parts.items() if part.kind in _PRODUCTS}


def tight(run: Run, message: Broadcast, parts: Mapping[str, Part]) -> dict[str, float]:
    """Bounds of products with rows that the opening has measured, in words of 64 bits: s l, for every entry."""
    if run.standing.opening or not run.standing.opens or not _measured(run, message):
        return {}
    most = _TIGHT * run.standing.model.trace
    return {n: most * _longest(message, part) for n, part in parts.items() if part.kind in _PRODUCTS}


def _measured(run: Run, message: Broadcast) -> bool:
    """Whether the opening has told the squares of all that are asked; a mean of a client's own adds some to them."""
    return run.roll.members.issuperset(message.to) and run.standing.model.missing == "error"


def check(stage: str, arrays: Arrays, layers: Sayings, columns: int | None) -> None:
    """Refuse such words for what is no product, and for noise, which keeps its grid and all of its tails."""
    names = messages.halves(arrays)
    if not names:
        return
    parts = registry.STAGES[stage].parts(messages.plain(arrays), columns) if stage in registry.STAGES else {}
    products = {name: part.shape[0] or 0 for name, part in parts.items() if part.kind in _PRODUCTS}
    bits, clients = _bits(layers), int(arrays["mask.clients"])
    fits = names <= products.keys() and all(fixed.halving(bits, clients, products[name]) for name in names)
    if NOISE in layers or not fits:
        rule = "of 64 bits, but of products, for so few clients, columns and digits as leave room for 32"
        raise ProtocolError("The words of a sum", must=rule, got="of 32", then="Nothing was sent in return.")


def _bits(layers: Sayings) -> int:
    """With how many bits numbers would travel without masks."""
    if WIRE not in layers:
        return 64
    from flower_pca.layers import precision

    return precision.asked(layers[WIRE])


def told(result: Any, halved: bool) -> Any:
    """The result, which says so if words of 32 bits were asked for."""
    return replace(result, choices=(*result.choices, _TOLD)) if halved else result


def _longest(message: Broadcast, part: Part) -> float:
    """The length of the longest column of the block; of one that a client makes orthonormal, 1."""
    if part.kind is Kind.IMAGE:
        return 1.0
    block = np.asarray(block_like(message.arrays, part), dtype=np.float64)
    return float(linalg.column_norms(block).max(initial=0.0)) or 1.0


def _power(bound: Array) -> Array:
    """The least power of two that is not below."""
    return np.asarray(np.ldexp(1.0, fixed.exponent(bound)))
