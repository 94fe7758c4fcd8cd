"""Precision: with how many bits numbers travel, where the tolerance of a run has no use for all 64.

A layer, of which every transport gets the same numbers. The half that sends rounds a matrix to so
many bits, column by column; the half that packs (`flower_pca.wire`, and whoever counts bytes) takes
as many to hold what has been rounded, and loses nothing. A column is divided by a power of two
first, so that neither the largest data nor the smallest leaves the range of a format; the exponents
travel beside it.

What is rounded: blocks that the server sends after the opening, and of an answer the parts that are
made of products. Rounding moves an entry by 2^-25 of itself (float32), or 2^-12 (float16), so that
a sum of products is off by about as much of its length: `FLOORS` says what tolerance leaves room
for it. Counts, peaks, and single figures keep all 64 bits. The mean of the frame has as many as
blocks, or 32, where its rounding, n |m - m'|^2, is nothing beside the tolerance of the mean
eigenvalue. Means and squares of clients have 32 where products have 16, and that is nothing either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.layer import Layer, Work
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.layers import EXPONENTS, WIRE
from flower_pca.rows.frame import Frame
from flower_pca.settings.bits import FLOORS

_BITS: Final = "bits"  # The key of what the layer says to the clients.
_TYPES: Final[dict[int, Any]] = {32: np.dtype(np.float32), 16: np.dtype(np.float16)}
# exponent of the largest entry of a column: what is 2^-29 of it still has all digits of float16
_HIGH: Final = 15
# what rounding to so few bits changes, of a number and on average
_ROUNDING: Final = {32: 2.0**-25, 16: 2.0**-12}
_SMALL: Final = 16  # numbers, below which packing does not pay
_SHARE: Final = 0.1  # The share of the tolerance that the rounding of the mean may take.


def round_to(a: Array, bits: int) -> Array:
    """An array whose columns have so few bits; of a vector, all together."""
    # what is not finite stays as it is, and is refused as such where it arrives
    if 8 * a.dtype.itemsize <= bits or a.ndim not in (1, 2) or a.dtype.kind != "f" or not np.isfinite(a).all():
        return a
    return _expand(*_compress(a.astype(np.float64, order="K"), bits))


@dataclass(frozen=True)
class Precision(Layer):
    """Messages and answers whose numbers have so few bits."""

    name: ClassVar[str] = WIRE

    bits: int

    @property
    def mark(self) -> str:
        return repr(self)

    def ask(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Blocks of so few bits, and the mean, but in an opening; and how many, for the answer."""
        layers = {**message.layers, WIRE: {_BITS: np.array(self.bits)}}
        message = replace(message, layers=layers, size=partial(nbytes, bits=self.bits))
        if opening:
            return message
        blocks = {name: round_to(a, self.bits) for name, a in message.arrays.items() if a.ndim == 2}
        room = model.trace / max(model.d, 1)
        frame = _frame_rows(message.frame, self.bits, n=model.n, room=room)
        return replace(message, arrays={**message.arrays, **blocks}, frame=frame)

    def end(self, model: Model) -> Model:
        """How far the rounding may have moved a covariance that was sent as such.

        Products of a block show in their residuals how they were rounded. The eigenvectors of a
        rounded matrix show nothing. Masked answers are not rounded, but clients center by the
        rounded mean under masks too.
        """
        if model.covariance is None:
            return model
        mean = _frame_rows(model.frame, self.bits, n=model.n, room=model.trace / max(model.d, 1)).mean
        shifted = 0.0 if mean is None else model.n * _distance(mean, model.frame)
        return replace(model, rounding=0.0 if model.summed else _ROUNDING[self.bits], shifted=shifted)

    @staticmethod
    def seal(says: Arrays, work: Work, up: Arrays) -> Arrays:
        bits = bits_in(says)
        if work.masked or bits == 64:  # fixed point has a rounding of its own
            return up
        parts = work.stage.parts(work.arrays, work.data.d)
        if {"mean", "m2"} <= up.keys():  # The message is an opening.
            up = _moments(up, bits)
        rounded = {name: round_to(a, bits) for name, a in up.items() if parts[name].kind.rounded}
        return {**up, **rounded}


def bits_in(settings: Arrays) -> int:
    """The bits that a message asks for."""
    bits = settings.get(_BITS)
    known = bits is not None and len(settings) == 1 and not bits.ndim and bits.dtype.kind in "iuf"
    if bits is None or not known or bits.item() not in FLOORS:
        got = f"{bits}"[:50]
        raise ProtocolError(
            f"A message asks for numbers of {got} bits, but only {', '.join(map(str, FLOORS))} are known. "
            f"{OTHER_SERVER}"
        )
    return int(bits.item())


def pack(arrays: Mapping[str, Array], bits: int) -> dict[str, Array]:
    """Arrays as they travel: in as few bits as hold them, beside the exponents of their columns."""
    if bits == 64:
        return dict(arrays)
    found: dict[str, Array] = {}
    for name, a in arrays.items():
        found |= {name: a, **_pack(name, np.asarray(a), bits)}
    return found


def unpack(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What `pack` has made small; ProtocolError if it has not."""
    found = dict(arrays)
    for name in [name for name in arrays if name.endswith(EXPONENTS)]:
        exponents, a = found.pop(name), found.get(name.removesuffix(EXPONENTS))
        narrow = a is not None and a.ndim in (1, 2) and a.dtype in _TYPES.values()
        if a is None or not narrow or exponents.dtype != np.int16 or exponents.shape != a.shape[1:]:
            raise ProtocolError(
                f"The array {name} of the server's message should have one number of 32 or 16 bits for each column. "
                f"{OTHER_SERVER}"
            )
        with np.errstate(over="ignore"):  # what is infinite is refused as such
            found[name.removesuffix(EXPONENTS)] = _expand(a, exponents)
    return found


def nbytes(arrays: Mapping[str, Array], bits: int) -> int:
    """What arrays take as they travel."""
    return sum(a.nbytes for a in pack(arrays, bits).values())


def _pack(name: str, a: Array, bits: int) -> dict[str, Array]:
    """An array in the fewest bits that lose nothing of it; nothing where that is all 64."""
    if a.dtype != np.float64 or a.ndim not in (1, 2) or a.size < _SMALL or not np.isfinite(a).all():
        return {}
    for few in sorted(_TYPES):
        if few >= bits:
            small, exponents = _compress(a, few)
            if np.array_equal(_expand(small, exponents), a):
                return {name: small, f"{name}{EXPONENTS}": exponents}
    return {}


def _compress(a: Array, bits: int) -> tuple[Array, Array]:
    """Columns as numbers of so few bits, and exponents; an entry that rounds up to a power of two has the next one."""
    exponents = np.frexp(np.abs(a).max(axis=0, initial=0.0))[1] - _HIGH
    small = _divide(a, exponents, bits)
    exponents = exponents + (np.abs(small).max(axis=0, initial=0.0) >= 2.0**_HIGH)
    return _divide(a, exponents, bits), exponents.astype(np.int16)


def _divide(a: Array, exponents: Array, bits: int) -> Array:
    scaled: Array = np.ldexp(a, -exponents)
    return scaled.astype(_TYPES[bits], order="K")


def _expand(small: Array, exponents: Array) -> Array:
    values = small.astype(np.float64, order="K")
    return np.asarray(np.ldexp(values, exponents.astype(np.int64)))


def _frame_rows(whole: Frame, bits: int, *, n: int, room: float) -> Frame:
    """The frame of a message: its mean in as few bits, if n |m - m'|^2 is little beside `room`."""
    if whole.mean is None:
        return whole
    for few in sorted({bits, 32}):
        mean = round_to(whole.mean, few)
        if n * _distance(mean, whole) <= _SHARE * FLOORS[bits] * room:
            return replace(whole, mean=mean)
    return whole


def _distance(mean: Array, whole: Frame) -> float:
    """The squared distance between a mean and that of a frame, in the units of the frame."""
    assert whole.mean is not None
    off = (mean - whole.mean) / (1.0 if whole.scale is None else whole.scale)
    return float(off @ off)


def _moments(up: Mapping[str, Array], bits: int) -> dict[str, Array]:
    """Mean and squared deviations of an opening's answer, in 32 bits where products have 16.

    The means of two clients meet in a product as differences times differences: so the root of what
    rounding adds has to be nothing beside the tolerance.
    """
    mean, squares = round_to(up["mean"], 32), round_to(up["m2"], 32)
    off = mean - up["mean"]
    room = float(squares.sum()) / max(squares.size, 1)
    between = float(up["n"]) * float(off @ off)
    if bits == 16 and between <= (_SHARE * FLOORS[bits]) ** 2 * room:
        return {**up, "mean": mean, "m2": squares}
    return dict(up)
