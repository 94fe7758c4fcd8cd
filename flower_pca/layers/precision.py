"""Precision: numbers with 32 or 16 bits on the network, if the tolerance of a run does not need 64 bits.

The layer gives the same numbers over every transport, because rounding and packing are separate steps.
The sender rounds each column of a matrix to 32 or 16 bits. Packing (in `flower_pca.wire`, and in the code
that counts bytes) then stores the rounded numbers in 32 or 16 bits without further loss. Each column is
first divided by a power of two, so that very large and very small data stay within the range of the
format. The exponents are sent in a separate array.

Two kinds of arrays are rounded: blocks that the server sends after the opening, and the arrays of an
answer that consist of products. Rounding changes an entry by at most 2^-25 of its size (float32) or
2^-12 (float16), and a sum of products by about the same share of its length. `FLOORS` contains the
smallest tolerance for which this is accurate enough. A stage may allow a larger error in a particular
message (`Stage.rounding_allowed`). As the components of `krylov` converge, a new block matters less, and the error of
its product may be larger (Bouras and Fraysse 2005). Power steps reduce earlier errors. Counts, peaks and
numbers that are not in an array are sent with all 64 bits. The mean of the rows, m, is sent with as many
bits as blocks, or with 32 bits, if the error n |m - m'|^2 of the rounded mean m' is negligible relative to
the tolerance times the mean eigenvalue. Means and squares of clients are sent with 32 bits if products are
sent with 16 bits and the rounding error is negligible.
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
from flower_pca.settings.bits import FLOORS, ROUNDING, fewest_bits_within

_BITS: Final = "bits"  # the name of the layer's array in a message
_TYPES: Final[dict[int, Any]] = {32: np.dtype(np.float32), 16: np.dtype(np.float16)}
# The largest entry of a column is scaled to this exponent. Entries of at least 2^-29 of the largest entry then have the
# full precision of float16.
_LARGEST_EXPONENT: Final = 15
_EXPONENT_LIMIT: Final = 1000  # absolute exponent up to which powers of two are representable in double precision
_PART_SIZE: Final = 2**14  # number of entries that are processed at a time, because they fit into the processor's cache
_SMALL: Final = 16  # size below which arrays are not packed, because this would save nothing
_MEAN_SHARE: Final = 0.1  # maximum rounding error of the mean, as a share of the tolerance


def round_to(a: Array, bits: int) -> Array:
    """Return an array rounded to this number of bits. Each column of a matrix has a separate exponent."""
    # Numbers that are not finite stay unchanged, so that the receiver refuses them.
    if 8 * a.dtype.itemsize <= bits or a.ndim not in (1, 2) or a.dtype.kind != "f":
        return a
    if not np.isfinite(largest := _largest_by_column(a)).all():
        return a
    exponents = _column_exponents(largest, bits)
    rounded = np.empty_like(a, dtype=np.float64)
    for part, into in zip(_cached_parts(a), _cached_parts(rounded), strict=True):
        into[...] = _from_integers(_to_integers(part, exponents, bits), exponents)
    return rounded


@dataclass(frozen=True)
class Precision(Layer):
    """The layer that rounds the numbers in messages and answers to 32 or 16 bits.

    If `tol` is given, `bits` is the maximum number of bits, and a message has fewer bits if its stage allows
    the larger rounding error.
    """

    name: ClassVar[str] = WIRE

    bits: int
    tol: float | None = None

    @property
    def mark(self) -> str:
        return repr(self)

    def change_message(self, message: Broadcast, model: Model, *, opening: bool) -> Broadcast:
        """Return the message with the number of bits. Blocks and mean are rounded unless the message is an opening."""
        bits = self.bits
        if self.tol is not None and not opening:
            bits = min(bits, fewest_bits_within(message.rounding_allowed))
        if not opening:
            # All messages have the same frame, so that clients center and scale their rows only once.
            message = replace(message, frame=self._frame_for_messages(message.frame, model))
        if bits == 64:
            return message
        layers = {**message.layers, WIRE: {_BITS: np.array(bits)}}
        message = replace(message, layers=layers, size=partial(nbytes, bits=bits))
        if opening:
            return message
        blocks = {name: round_to(a, bits) for name, a in message.arrays.items() if a.ndim == 2}
        return replace(message, arrays={**message.arrays, **blocks})

    def finish_algorithm(self, model: Model) -> Model:
        """Return the model with bounds on the rounding errors of its blocks, products and mean.

        The closing stage adds them to the residuals, because an iteration converges to eigenvectors of the rounded
        products. This layer does not round masked answers, but blocks and the mean are rounded under masks, too.
        """
        mean = self._frame_for_messages(model.frame, model).mean
        shifted = 0.0 if mean is None else model.n * _squared_distance(mean, model.frame)
        blocks = ROUNDING[self.bits]
        return replace(model, rounding=0.0 if model.summed else blocks, block_rounding=blocks, shifted=shifted)

    def _frame_for_messages(self, frame: Frame, model: Model) -> Frame:
        """Return the frame for messages, with a rounded mean if the error n |m - m'|^2 is small enough."""
        least = FLOORS[self.bits] or self.tol or 0.0
        return _rounded_frame(
            frame, min(self.bits, 32), most=_MEAN_SHARE * least * model.trace / max(model.d, 1), n=model.n
        )

    @staticmethod
    def seal_answer(instructions: Arrays, work: Work, answer: Arrays) -> Arrays:
        bits = bits_of_message(instructions)
        if work.masked or bits == 64:  # Masked answers are rounded to fixed-point numbers instead.
            return answer
        parts = work.stage.parts(work.arrays, work.data.d)
        if {"mean", "m2"} <= answer.keys():  # The message is an opening.
            answer = _round_moments(answer, bits)
        rounded = {name: round_to(a, bits) for name, a in answer.items() if parts[name].kind.rounded}
        return {**answer, **rounded}


def bits_of_message(settings: Arrays) -> int:
    """Return the number of bits that a message asks for."""
    bits = settings.get(_BITS)
    known = bits is not None and len(settings) == 1 and not bits.ndim and bits.dtype.kind in "iuf"
    if bits is None or not known or bits.item() not in FLOORS:
        got = f"{bits}"[:50]
        raise ProtocolError(
            f"A message asks for numbers of {got} bits, but only {', '.join(map(str, FLOORS))} are supported. "
            f"{OTHER_SERVER}"
        )
    return int(bits.item())


def pack(arrays: Mapping[str, Array], bits: int) -> dict[str, Array]:
    """Return arrays in the smallest number of bits that is lossless, but at least `bits`.

    The exponents of the columns are in further arrays.
    """
    if bits == 64:
        return dict(arrays)
    found: dict[str, Array] = {}
    for name, a in arrays.items():
        found[name] = a
        if (few := _fewest_bits(np.asarray(a), bits)) < 64:
            found[name], found[f"{name}{EXPONENTS}"] = _compress_columns(np.asarray(a), few)
    return found


def unpack(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that `pack` has packed. Raise ProtocolError if the layout is different."""
    found = dict(arrays)
    for name in [name for name in arrays if name.endswith(EXPONENTS)]:
        exponents, a = found.pop(name), found.get(name.removesuffix(EXPONENTS))
        narrow = a is not None and a.ndim in (1, 2) and a.dtype in _TYPES.values()
        if a is None or not narrow or exponents.dtype != np.int16 or exponents.shape != a.shape[1:]:
            raise ProtocolError(
                f"The array {name} of the server's message should have one number of 32 or 16 bits for each column. "
                f"{OTHER_SERVER}"
            )
        with np.errstate(over="ignore"):  # The receiver refuses infinite numbers.
            found[name.removesuffix(EXPONENTS)] = _from_integers(a, exponents)
    return found


def nbytes(arrays: Mapping[str, Array], bits: int) -> int:
    """Return the size of arrays on the network in bytes."""
    return sum(_packed_size(np.asarray(a), bits) for a in arrays.values())


def _packed_size(a: Array, bits: int) -> int:
    few = _fewest_bits(a, bits) if bits < 64 else 64
    if few == 64:
        return a.nbytes
    columns = a.size // len(a)
    return a.size * few // 8 + 2 * columns


def _fewest_bits(a: Array, bits: int) -> int:
    """Return the smallest number of bits, but at least `bits`, that can store an array without loss."""
    if a.dtype != np.float64 or a.ndim not in (1, 2) or a.size < _SMALL:
        return 64
    if not np.isfinite(largest := _largest_by_column(a)).all():
        return 64
    for few in sorted(few for few in _TYPES if few >= bits):
        exponents = _column_exponents(largest, few)
        # If an array does not fit, this usually shows in its first part.
        if all(
            np.array_equal(_from_integers(_to_integers(part, exponents, few), exponents), part)
            for part in _cached_parts(a)
        ):
            return few
    return 64


def _cached_parts(a: Array) -> Iterator[Array]:
    """Return an iterator over parts of an array with so few rows that each part stays in the processor's cache."""
    rows = max(_PART_SIZE // max(a[:1].size, 1), 1)
    return (a[i : i + rows] for i in range(0, len(a), rows))


def _largest_by_column(a: Array) -> Array:
    """Return the largest absolute value of each column."""
    return np.asarray(np.maximum(a.max(axis=0, initial=0.0), -a.min(axis=0, initial=0.0)))


def _column_exponents(largest: Array, bits: int) -> Array:
    """Return the exponents of columns with these largest absolute values.

    If a value rounds up to a power of two, its column gets the next exponent.
    """
    exponents = np.frexp(largest)[1] - _LARGEST_EXPONENT
    rounded = np.ldexp(largest, -exponents).astype(_TYPES[bits])
    return np.asarray(exponents + (rounded >= 2.0**_LARGEST_EXPONENT), dtype=np.int64)


def _compress_columns(a: Array, bits: int) -> tuple[Array, Array]:
    """Return columns as numbers with this number of bits, and their exponents."""
    exponents = _column_exponents(_largest_by_column(a), bits)
    small = np.empty_like(a, dtype=_TYPES[bits])
    for part, into in zip(_cached_parts(a), _cached_parts(small), strict=True):
        into[...] = _to_integers(part, exponents, bits)
    return small, exponents.astype(np.int16)


def _to_integers(a: Array, exponents: Array, bits: int) -> Array:
    return np.asarray(_times_powers_of_two(a, -exponents).astype(_TYPES[bits], order="K"))


def _from_integers(small: Array, exponents: Array) -> Array:
    return _times_powers_of_two(small.astype(np.float64, order="K"), exponents.astype(np.int64))


def _times_powers_of_two(a: Array, exponents: Array) -> Array:
    """Return columns multiplied by powers of two. A multiplication is five times as fast as `ldexp`."""
    if np.abs(exponents).max(initial=0) < _EXPONENT_LIMIT:
        return np.asarray(a * np.ldexp(1.0, exponents))
    return np.asarray(np.ldexp(a, exponents))


def _rounded_frame(frame: Frame, bits: int, *, most: float, n: int) -> Frame:
    """Return the frame with its mean rounded to the smallest number of bits for which n |m - m'|^2 is at most `most`.

    m' is the rounded mean. The possible numbers of bits are `bits`, 32 and 64.
    """
    if frame.mean is None:
        return frame
    for few in sorted({bits, 32}):
        mean = round_to(frame.mean, few)
        if n * _squared_distance(mean, frame) <= most:
            return replace(frame, mean=mean)
    return frame


def _squared_distance(mean: Array, frame: Frame) -> float:
    """Return the squared distance between a mean and the mean of a frame, in the units of the frame."""
    assert frame.mean is not None
    off = (mean - frame.mean) / (1.0 if frame.scale is None else frame.scale)
    return float(off @ off)


def _round_moments(answer: Mapping[str, Array], bits: int) -> dict[str, Array]:
    """Return an answer to the opening with mean and squared deviations rounded to 32 bits, if products have 16 bits.

    The server multiplies differences between the means of clients by each other. Therefore the means are
    rounded only if the square root of the added error is negligible relative to the tolerance.
    """
    mean, squares = round_to(answer["mean"], 32), round_to(answer["m2"], 32)
    off = mean - answer["mean"]
    room = float(squares.sum()) / max(squares.size, 1)
    between = float(answer["n"]) * float(off @ off)
    if bits == 16 and between <= (_MEAN_SHARE * FLOORS[bits]) ** 2 * room:
        return {**answer, "mean": mean, "m2": squares}
    return dict(answer)
