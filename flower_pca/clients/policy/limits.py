"""What every node refuses, without any rule of its own: messages that no strategy of ours sends.

Every number has its range, so that none makes a node work without end, ask for memory beyond that of its rows, or
compute with what overflows. A message makes at most `STEPS` products of the rows and a block of at most
max(d, `WIDEST`) columns. What a few bytes of it ask for, a width or all of C_i, takes no more memory than the rows in
float64 taken twice and `SPARE` bytes; where it is not told how many rows there are, that tells little of it: `counted`.
What a block in the message takes is a few times as much as the block.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca import registry, wire
from flower_pca.base import labels
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.layer import flat
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, SINGLE
from flower_pca.masking import messages
from flower_pca.rows.stream import Stream, Widest
from flower_pca.stages.opening import Opening
from flower_pca.stages.summed_opening import SummedOpening
from flower_pca.tracking.batch import require_columns

STEPS: Final = 10_000  # products in a message at most, whatever loops it asks for
WIDEST: Final = 1000  # columns that may be asked for at any node; more, up to d, where rows are longer
SPARE: Final = 10**8  # bytes that a node has beside its rows taken twice
_BLOCKS: Final = {False: 4, True: 7}  # of one width at a time; of a node's own components, and under masks
_RANKS: Final = ("rank", "k")  # of those sizes, what is no larger than the rows are many
_SQUARES: Final = {False: 4, True: 7}  # matrices as large as C_i at a time, where it is packed; and where it is masked
LARGEST: Final = 1e150  # of entries: squares do not overflow
LONGEST: Final = 1e60  # of the entries of a block: its product with rows of usual size does not overflow
SMALLEST: Final = 1e-150  # of numbers that may be divided by, but for 0 itself, which stands for none
_LOOPS: Final = ("steps", "inner_steps")  # arrays of a message that say how often a node repeats its work
_SIZES: Final = ("width", "rank", "k", "own")  # how many columns a node shall make of its own
_COUNTS: Final = {
    "steps": (0, STEPS),
    "inner_steps": (0, STEPS),
    "top": (-1100, 1100),
    "seed": (0, 2**64 - 1),
    "guard": (0, 0.99),
    "step": (0, 2**53),
    "lap": (0, STEPS),
    "d": (0, 2**53),
}
_REALS: Final = (
    "lam",
    "rho",
    "rho_row",
    "sigma",
    "cut",
    "start",
    "share",
    "eta",
    "inner_tol",
    "smallest",
    "variances",
    "rest",
)  # neither negative nor next to 0
_OPENINGS: Final = (Opening.name, SummedOpening.name)
_SENDER: Final = "Check the sender."


def check(request: wire.Request) -> None:
    """Refuse arrays that no strategy sends, before the rows are looked at."""
    for name, a in {**request.every, **_framed(request)}.items():
        if a.dtype.kind not in "fiub" or not np.isfinite(a).all():
            got = f"dtype {a.dtype}" if a.dtype.kind not in "fiub" else "NaN or infinite entries"
            raise ProtocolError(f"{name} of a message", must="real and finite", got=got, then=_SENDER)
        if a.dtype.kind == "f" and np.max(np.abs(a), initial=0.0) > LARGEST:
            rule = f"at most {LARGEST:g} in size"
            raise ProtocolError(f"{name} of a message", must=rule, got="larger entries", then=_SENDER)
    _check_opening(request)
    plain = _plain(request)
    steps = math.prod(max(1.0, float(np.max(plain[n], initial=1))) for n in _LOOPS if n in plain)
    if steps > STEPS:
        what = f"{' times '.join(n for n in _LOOPS if n in plain)} of a message"
        raise ProtocolError(what, must=f"at most {STEPS}", got=f"{steps:g}", then="Ask for fewer steps.")
    for name, a in plain.items():
        if a.ndim > 2:  # products take stacks of blocks too, which no rule of the node has in view
            rule = "a number, a vector or a matrix"
            raise ProtocolError(f"{name} of a message", must=rule, got=f"{a.ndim} dimensions", then=_SENDER)
        _check_number(name, a)


def check_sizes(request: wire.Request, d: int | None, n: int | None = None) -> None:
    """Refuse a frame that no strategy sends, and what takes too much memory beside n rows.

    Of a stream there is no n, and no d until it has begun.
    """
    framed = _framed(request)
    for name, a in framed.items():
        if a.shape != (d,) or a.dtype.kind != "f":
            got = f"shape {a.shape} and dtype {a.dtype}"
            raise ProtocolError(f"The {name} of a message", must=f"{d} numbers", got=got, then=_SENDER)
    if "scale" in framed and not (framed["scale"] > 0.0).all():
        raise ProtocolError("The scale of a message", must="above 0", got="others", then=_SENDER)
    if "scale" in framed and framed["scale"].min() < SMALLEST:
        raise ProtocolError("The scale of a message", must=f"at least {SMALLEST:g}", got="less", then=_SENDER)
    most, plain = max(d or 0, WIDEST), _plain(request)
    _check_length(request, plain, d)
    n = None if n is None else counted(n, request)
    for name, a in plain.items():
        columns = a.shape[1] if a.ndim == 2 else int(np.max(a, initial=0)) if name in _SIZES else 0
        if columns > most:
            rule = f"of at most {labels.count(most, 'column')}"
            raise ProtocolError(f"{name} of a message", must=rule, got=columns, then="Ask for fewer columns.")
        block = a.ndim and len(a) == d and (a.ndim == 2 or name == "block")
        if block and np.max(np.abs(a), initial=0.0) > LONGEST:
            rule = f"at most {LONGEST:g} in size"
            raise ProtocolError(f"{name} of a message", must=rule, got="larger entries", then=_SENDER)
        own = request.stage == messages.STAGE or name == "own"
        room = columns if d is None or n is None or a.ndim == 2 else widest(n, d, made=_BLOCKS[own])
        most_there = n if name in _RANKS else d
        if min(columns, most_there or columns) > room:
            rule = f"of at most {labels.count(room, 'column')}, for which a node of so few rows has memory"
            raise ProtocolError(f"{name} of a message", must=rule, got=columns, then="Ask for fewer columns.")
    stage = messages.inner_stage(request.arrays) if request.stage == messages.STAGE else request.stage
    if stage == "covariance" and n is not None and d is not None and not has_room(request.stage, n, d):
        rule = f"of fewer columns, or of nodes with more rows: C_i of {d} columns takes more memory than a node has"
        raise ProtocolError("A run of covariance", must=rule, got="too many columns", then="Ask for krylov.")


def _check_length(request: wire.Request, plain: Arrays, d: int | None) -> None:
    """Of a run over streams, how many columns it has had so far, which a node without rows may not know."""
    if "d" not in plain:
        return
    asked = int(np.max(plain["d"], initial=0))
    if d is not None:
        require_columns(asked, d, Stream.WHO)
    blocks = [a.shape[1] for a in plain.values() if a.ndim == 2]
    width = min(max([1, int(np.max(plain.get("width", 1), initial=1)), *blocks]), asked)
    if d is None and 8 * _BLOCKS[request.stage == messages.STAGE] * asked * width > SPARE:
        rule = f"so few that a node which has seen no rows has memory for {labels.count(width, 'column')} of a product"
        raise ProtocolError("The number of columns of a run", must=rule, got=asked, then=_SENDER)


def widest(n: int, d: int, *, made: int) -> int:
    """How many columns a block of a node's own making may have, if so many of one width are there at a time."""
    return (16 * n * d + SPARE) // (8 * d * made)


def widest_of(request: wire.Request) -> Widest:
    """The same of a batch of a stream, which is known only when it is taken."""
    made = _BLOCKS[request.stage == messages.STAGE]
    return lambda n, d: widest(counted(n, request), d, made=made)


def has_room(stage: str, n: int, d: int) -> bool:
    """Whether a node of n rows has memory for C_i (d x d), by itself or under masks, as this message is."""
    return 8 * _SQUARES[stage == messages.STAGE] * d * d <= 16 * n * d + SPARE


def counted(n: int, request: wire.Request) -> int:
    """The rows by which memory is reckoned: all, where every answer says how many there are.

    Where masks hide that, or they are a party's columns, it is the power of 2 below; under noise none.
    """
    if NOISE in request.layers:
        return 0
    return 2 ** (n.bit_length() - 1) if request.stage == messages.STAGE or request.frame.split is not None else n


def tells_products(stage: str, request: wire.Request) -> bool:
    """Whether a message of this stage asks for more than what needs no products: means, deviations and counts."""
    arrays = messages.plain(request.arrays)
    asked = "block" in arrays or ("width" in arrays and bool(np.any(arrays["width"])))
    return asked or stage not in (*_OPENINGS, *registry.ALONE, messages.STAGE)


def bare(stage: str, arrays: Arrays) -> bool:
    """Whether an answer can be no sum: of a stage that is not known, or with parts that mean something singly only."""
    if stage not in registry.STAGES:
        return True
    parts = registry.STAGES[stage].parts(arrays, 1)  # which sides are open is the same for all numbers of columns
    return any(part.open or part.kind.single for part in parts.values())


def _check_opening(request: wire.Request) -> None:
    """An opening's products are of raw rows, whatever the frame: what is counted of them must be of raw rows too."""
    stage = messages.inner_stage(request.arrays) if request.stage == messages.STAGE else request.stage
    if stage in _OPENINGS and request.frame.arrays:
        got = f"a frame with {', '.join(request.frame.arrays)}"
        raise ProtocolError("What an opening asks for", must="of raw rows", got=got, then=_SENDER)


def _check_number(name: str, a: Array) -> None:
    """A number of this name must be in its range."""
    if name in _COUNTS:
        least, most = _COUNTS[name]
        if a.size and not least <= float(a.min()) <= float(a.max()) <= most:
            raise ProtocolError(f"{name} of a message", must=f"from {least} to {most}", got=f"{a}"[:50], then=_SENDER)
    elif name in _SIZES and a.size and a.min() < 0:
        raise ProtocolError(f"{name} of a message", must="at least 0", got=f"{a.min()}", then=_SENDER)
    elif name in _REALS and a.size and not ((a == 0.0) | (a >= SMALLEST)).all():
        rule = f"0 or at least {SMALLEST:g}"
        raise ProtocolError(f"{name} of a message", must=rule, got=f"{a}"[:50], then=_SENDER)


def _plain(request: wire.Request) -> Arrays:
    """What a message says to its stage and of layers; a table of numbers for single clients goes by their own name."""
    plain = messages.plain(request.arrays)
    if not request.layers:
        return plain
    plain |= flat({name: says for name, says in request.layers.items() if name != SINGLE})
    return plain | request.layers.get(SINGLE, {})


def _framed(request: wire.Request) -> Arrays:
    frame = request.frame
    parts = (("mean", frame.mean), ("scale", frame.scale), ("fill", frame.fill))
    return {name: a for name, a in parts if a is not None}
