"""Precision: with how many bits numbers travel, where the tolerance of a run has no use for all 64.

A layer, of which every transport gets the same numbers. The half that sends rounds a matrix to so
many bits, column by column; the half that packs (`flower_pca.wire`, and whoever counts bytes) takes
as many to hold what has been rounded, and loses nothing. A column is divided by a power of two
first, so that neither the largest data nor the smallest leaves the range of a format; the exponents
travel beside it.

What is rounded: blocks that the server sends after the opening, and of an answer the parts that are
made of products. Rounding moves an entry by 2^-25 of itself (float32), or 2^-12 (float16), so that
a sum of products is off by about as much of its length: `FLOORS` says what tolerance leaves room
for it. A stage may say that one message has more room (`Stage.room`): the nearer the components of
`krylov` are, the less a new block counts, and the larger an error in its product may be (Bouras and
Fraysse 2005); a power step forgets errors. Counts, peaks, and single figures keep all 64 bits. The
mean of the frame has as many as blocks, or 32, where its rounding, n |m - m'|^2, is nothing beside
the tolerance of the mean eigenvalue. Means and squares of clients have 32 where products have 16,
and that is nothing either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from flower_pca.settings.bits import FLOORS, ROUNDING, fewest_within

_BITS: Final = "bits"  # The key of what the layer says to the clients.
_TYPES: Final[dict[int, Any]] = {32: np.dtype(np.float32), 16: np.dtype(np.float16)}
# exponent of the largest entry of a column: what is 2^-29 of it still has all digits of float16
_HIGH: Final = 15
_FACTORS: Final = 1000  # Powers of two with exponents up to this are numbers of double precision.
_CACHED: Final = 2**14  # numbers of a part
_SMALL: Final = 16  # numbers, below which packing does not pay
_SHARE: Final = 0.1  # The share of the tolerance that the rounding of the mean may take.


def round_to(a: Array, bits: int) -> Array:
    """An array whose columns have so few bits; of a vector, all together."""
    # what is not finite stays as it is, and is refused as such where it arrives
    if 8 * a.dtype.itemsize <= bits or a.ndim not in (1, 2) or a.dtype.kind != "f":
        return a
    if not np.isfinite(largest := _largest(a)).all():
        return a
    exponents = _exponents(largest, bits)
    rounded = np.empty_like(a, dtype=np.float64)
    for part, into in zip(_parts(a), _parts(rounded), strict=True):
        into[...] = _expand(_divide(part, exponents, bits), exponents)
    return rounded


@dataclass(frozen=True)
class Precision(Layer):
    """Messages and answers whose numbers have so few bits.

    With a `tol`, `bits` are the most, and a message has fewer if its stage has room for their rounding.
    """

    name: ClassVar[str] = WIRE

    bits: int
    tol: float | None = None

    @property
    def mark(self) -> str:
        return repr(self)

    def ask(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Blocks of so few bits, and the mean, but in an opening; and how many, for the answer."""
        bits = self.bits
        if self.tol is not None and not opening:
            bits = min(bits, fewest_within(message.room))
        if not opening:
            # All messages have the same frame, so that clients frame their rows once.
            message = replace(message, frame=self._frame(message.frame, model))
        if bits == 64:
            return message
        layers = {**message.layers, WIRE: {_BITS: np.array(bits)}}
        message = replace(message, layers=layers, size=partial(nbytes, bits=bits))
        if opening:
            return message
        blocks = {name: round_to(a, bits) for name, a in message.arrays.items() if a.ndim == 2}
        return replace(message, arrays={**message.arrays, **blocks})

    def end(self, model: Model) -> Model:
        """Return the model with the rounding error of its products, and the shift of the mean.

        The closing stage adds both to the residuals, because residuals do not show them: an iteration
        converges to eigenvectors of what it was sent. Masked answers are not rounded, but clients center
        by the rounded mean under masks too.
        """
        mean = self._frame(model.frame, model).mean
        shifted = 0.0 if mean is None else model.n * _distance(mean, model.frame)
        return replace(model, rounding=0.0 if model.summed else ROUNDING[self.bits], shifted=shifted)

    def _frame(self, whole: Frame, model: Model) -> Frame:
        """The frame of messages: its mean in as few bits, if n |m - m'|^2 is little beside the mean eigenvalue."""
        least = FLOORS[self.bits] or self.tol or 0.0
        return _rounded(whole, min(self.bits, 32), most=_SHARE * least * model.trace / max(model.d, 1), n=model.n)

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
        found[name] = a
        if (few := _fewest(np.asarray(a), bits)) < 64:
            found[name], found[f"{name}{EXPONENTS}"] = _compress(np.asarray(a), few)
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
    return sum(_nbytes(np.asarray(a), bits) for a in arrays.values())


def _nbytes(a: Array, bits: int) -> int:
    few = _fewest(a, bits) if bits < 64 else 64
    if few == 64:
        return a.nbytes
    columns = a.size // len(a)
    return a.size * few // 8 + 2 * columns


def _fewest(a: Array, bits: int) -> int:
    """How few bits hold an array without loss, at least `bits`."""
    if a.dtype != np.float64 or a.ndim not in (1, 2) or a.size < _SMALL:
        return 64
    if not np.isfinite(largest := _largest(a)).all():
        return 64
    for few in sorted(few for few in _TYPES if few >= bits):
        exponents = _exponents(largest, few)
        # Nearly all arrays that do not fit show it in their first part.
        if all(np.array_equal(_expand(_divide(part, exponents, few), exponents), part) for part in _parts(a)):
            return few
    return 64


def _parts(a: Array) -> Iterator[Array]:
    """Parts of an array, of so few rows that they stay in the processor's cache."""
    rows = max(_CACHED // max(a[:1].size, 1), 1)
    return (a[i : i + rows] for i in range(0, len(a), rows))


def _largest(a: Array) -> Array:
    """The largest absolute value of each column."""
    return np.asarray(np.maximum(a.max(axis=0, initial=0.0), -a.min(axis=0, initial=0.0)))


def _exponents(largest: Array, bits: int) -> Array:
    """The exponents of columns with these largest values; what rounds up to a power of two has the next one."""
    exponents = np.frexp(largest)[1] - _HIGH
    rounded = np.ldexp(largest, -exponents).astype(_TYPES[bits])
    return np.asarray(exponents + (rounded >= 2.0**_HIGH), dtype=np.int64)


def _compress(a: Array, bits: int) -> tuple[Array, Array]:
    """Columns as numbers of so few bits, and exponents."""
    exponents = _exponents(_largest(a), bits)
    small = np.empty_like(a, dtype=_TYPES[bits])
    for part, into in zip(_parts(a), _parts(small), strict=True):
        into[...] = _divide(part, exponents, bits)
    return small, exponents.astype(np.int16)


def _divide(a: Array, exponents: Array, bits: int) -> Array:
    return np.asarray(_times(a, -exponents).astype(_TYPES[bits], order="K"))


def _expand(small: Array, exponents: Array) -> Array:
    return _times(small.astype(np.float64, order="K"), exponents.astype(np.int64))


def _times(a: Array, exponents: Array) -> Array:
    """Columns times powers of two. To multiply takes a fifth of the time of `ldexp`."""
    if np.abs(exponents).max(initial=0) < _FACTORS:
        return np.asarray(a * np.ldexp(1.0, exponents))
    return np.asarray(np.ldexp(a, exponents))


def _rounded(whole: Frame, bits: int, *, most: float, n: int) -> Frame:
    """The frame with its mean in so many bits, or 32, if n |m - m'|^2 is at most so much."""
    if whole.mean is None:
        return whole
    for few in sorted({bits, 32}):
        mean = round_to(whole.mean, few)
        if n * _distance(mean, whole) <= most:
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
