"""The limits that every node enforces, whatever its rules. They refuse messages that no strategy of this package sends.

A message is compared with the stage in the node's own package, whose `asks` describe each array
(`core.kinds`). Arrays that the stage does not name are refused. Every number has a range, so that no
message makes a node work without end, use much more memory than its rows, or compute with numbers that
overflow. A message can ask for at most `MOST_STEPS` products of the rows with a block of at most
max(d, `WIDEST`) columns, where d is the number of columns of the rows. A few bytes can ask for a large
result, such as a wide block or all of C_i. For such results, the node uses at most twice the memory of its
rows in float64, plus `SPARE` bytes. If the number of rows is confidential, this limit reveals little about
the number: see `rows_for_memory`. A block in the message may need a few times its own size in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import client_half, registry, wire
from flower_pca.base import labels
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.shown import brief
from flower_pca.core.algorithm import EmptyStage
from flower_pca.core.kinds import MOST_STEPS, SMALLEST, ArrayRule, Message
from flower_pca.core.stage import Arrays, Stage
from flower_pca.layers import NOISE, SINGLE
from flower_pca.masking import messages
from flower_pca.rows.stream import Stream, Widest
from flower_pca.stages.opening import Opening, text_of_start_mismatch
from flower_pca.stages.summed_opening import SummedOpening
from flower_pca.tracking.batch import require_columns

# A message may ask any node for a block of up to this many columns, or of up to d columns if d is larger.
WIDEST: Final = 1000
SPARE: Final = 10**8  # bytes that a node uses in addition to twice the memory of its rows
LARGEST: Final = 1e150  # squares of entries up to this size do not overflow
# Products of rows of usual size with entries up to this size do not overflow.
LONGEST: Final = 1e60
# The number of blocks of one width that exist in memory at once. The key True is for messages that come under masks or
# ask for the node's local components.
_BLOCKS: Final = {False: 4, True: 7}
# The number of matrices as large as C_i that exist in memory at once. The key True is for messages under masks.
_SQUARES: Final = {False: 4, True: 7}
_OPENINGS: Final = (
    Opening.name,
    SummedOpening.name,
    "adjusted_opening",
    "adjusted_summed_opening",
    "harmonized_opening",
    "harmonized_summed_opening",
)


@dataclass(frozen=True)
class RequestedArrays:
    """The stage and the arrays of a message, with the stage's own description of the arrays.

    Attributes
    ----------
    stage : str
        The name of the stage. Under masks, this is the inner stage. It is "" in a set-up of masks.
    asks : mapping
        The description of the arrays in the node's own package.
    arrays : Arrays
        The stage's own arrays in the message, without the arrays of masks and layers.
    tables : frozenset of str
        The names of the arrays that have a different number for each client.
    masked : bool
        Whether the message comes under masks.
    """

    stage: str
    asks: Mapping[str, ArrayRule]
    arrays: Arrays
    tables: frozenset[str]
    masked: bool

    __repr__ = brief

    @classmethod
    def of_request(cls, request: wire.ServerRequest) -> RequestedArrays:
        """Return the demand of a message."""
        masked = request.stage == messages.STAGE
        stage = stage_asked(request) or ""
        known = registry.STAGES.get(stage)
        asks: Mapping[str, ArrayRule] = {} if known is None else known.asks
        arrays = Message(messages.stage_arrays(request.arrays) if masked else request.arrays)
        if SINGLE not in request.layers:
            return cls(stage, asks, arrays, frozenset(), masked)
        from flower_pca.layers import single

        numbers, strange = single.tables_of_message(request.layers[SINGLE])
        if strange:
            raise ProtocolError(
                "The server's message has arrays that should contain one number for each client, but do not: "
                f"{', '.join(sorted(strange))[:100]}. {OTHER_SERVER}"
            )
        return cls(stage, asks, Message({**arrays, **numbers}), frozenset(numbers), masked)

    def check(self) -> None:
        """Refuse arrays that the stage does not name, or that do not fit its description."""
        if unknown := sorted(self.arrays.keys() - self.asks.keys()):
            # The sender chooses the names, so the error shortens them.
            raise ProtocolError(
                f"A message for {self.stage or 'a set-up'} has the array {', '.join(unknown)[:100]}, but should have "
                f"only {', '.join(self.asks) or 'none'}. Install the same version of flower_pca everywhere. If the "
                "algorithm is your own, add the array to its asks."
            )
        for name, a in self.arrays.items():
            ask = self.asks[name]
            for one in a if ask.each and name in self.tables and a.ndim == 1 else [a]:
                if wrong := ask.fault(np.asarray(one)):
                    raise _malformed_error(name, wrong)
        loops = [name for name in self.arrays if self.asks[name].repeats]
        # The steps of nested loops multiply, so their product can be too large although each number is in its range.
        steps = math.prod(max(1.0, float(self.arrays[name])) for name in loops)
        if steps > MOST_STEPS:
            raise ProtocolError(
                f"{' times '.join(loops)} is {steps:g} steps in one message, but a node takes at most {MOST_STEPS}. "
                "Ask for fewer steps."
            )

    def check_sizes(self, d: int | None, n: int | None) -> None:
        """Refuse blocks that do not fit rows of d columns, or that need too much memory for n rows."""
        most = max(d or 0, WIDEST)
        for name, a in self.arrays.items():
            ask = self.asks[name]
            columns = self._columns_needed(name)
            if columns > most or (a.ndim == 2 and not ask.by_column and len(a) > most):
                raise ProtocolError(
                    f"The array {name} of the server's message asks for {labels.count(columns, 'column')}, but this "
                    f"node allows at most {most}. Ask for fewer columns."
                )
            if ask.by_column and d is not None and len(a) != d:
                if name == "block" and self.stage in _OPENINGS:  # The block comes from the start of the run.
                    raise ProtocolError(text_of_start_mismatch(len(a), d))
                raise ProtocolError(
                    f"This node has {labels.count(d, 'column')}, but the array {name} of the server's message is for "
                    f"{labels.count(len(a), 'column')}. Give all clients the same columns."
                )
            if ask.by_column and a.ndim == 2 and np.max(np.abs(a), initial=0.0) > LONGEST:
                raise ProtocolError(
                    f"The array {name} of the server's message has entries above {LONGEST:g}. {OTHER_SERVER}"
                )
            if ask.makes_columns and d is not None and n is not None:
                room = widest_block(n, d, blocks_at_once=_BLOCKS[self.masked or ask.own])
                if min(columns, n if ask.of_rows else d) > room:
                    raise ProtocolError(
                        f"The array {name} of the server's message asks for {labels.count(columns, 'column')}, but "
                        f"this node, whose memory limit depends on its number of rows, allows at most {room}. Ask for "
                        "fewer columns."
                    )

    def check_length(self, d: int | None) -> None:
        """Refuse a message whose number of columns is not d, or a product that needs too much memory.

        d is the number of columns of the node's stream, or None if the stream has seen no rows yet.
        """
        for name in (name for name in self.arrays if self.asks[name].counts_columns):
            length = int(self.arrays[name])
            if d is not None:
                require_columns(length, d, Stream.WHO)
            others = [self._columns_needed(other) for other in self.arrays]
            width = min(max([1, *others]), length)
            if d is None and 8 * _BLOCKS[self.masked] * length * width > SPARE:
                columns = labels.count(width, "column")
                raise ProtocolError(
                    f"A run with {labels.count(length, 'column')} of data asks for a product with {columns}, but this "
                    f"node has seen no rows yet and does not reserve so much memory. {OTHER_SERVER}"
                )

    def _columns_needed(self, name: str) -> int:
        """Return how many columns an array has or asks the node to make. The number is 0 for all other arrays."""
        a = self.arrays[name]
        if a.ndim == 2:
            return int(a.shape[1])
        if name in self.asks and self.asks[name].makes_columns:
            return int(np.max(a, initial=0))
        return 0

    @property
    def asks_for_products(self) -> bool:
        """Whether the message asks for products, and not only for means, deviations and counts."""
        return any(self._columns_needed(name) or self.arrays[name].ndim == 2 for name in self.arrays)

    @property
    def takes_squares(self) -> bool:
        """Whether the node needs a matrix as large as C_i to compute the answer."""
        stage = registry.STAGES.get(self.stage)
        # The kinds of the parts do not depend on the number of columns, so this trial uses 1.
        return stage is not None and any(part.kind.square for part in stage.parts(self.arrays, 1).values())


def _malformed_error(name: str, wrong: tuple[str, str]) -> ProtocolError:
    rule, got = wrong
    return ProtocolError(f"The array {name} of the server's message must be {rule}, but {got}. {OTHER_SERVER}")


def stage_asked(request: wire.ServerRequest) -> str | None:
    """Return the stage that a message asks for. Under masks, this is the inner stage, or None in a set-up."""
    return messages.inner_stage(request.arrays) if request.stage == messages.STAGE else request.stage


def check_numbers(request: wire.ServerRequest) -> None:
    """Refuse a message with numbers that no strategy sends, before the node uses them."""
    framed = request.frame.arrays
    for name, a in {**request.all_arrays, **framed}.items():
        if a.dtype.kind not in "fiub" or not np.isfinite(a).all():
            got = f"dtype {a.dtype}" if a.dtype.kind not in "fiub" else "NaN or infinite entries"
            raise ProtocolError(
                f"The array {name} of the server's message has {got}, but must have real, finite numbers. "
                f"{OTHER_SERVER}"
            )
        # LAPACK supports only these precisions.
        if a.dtype.kind == "f" and a.dtype.itemsize not in (4, 8):
            raise ProtocolError(
                f"The array {name} of the server's message has the dtype {a.dtype}, but must have numbers of 32 or 64 "
                f"bits. {OTHER_SERVER}"
            )
        if a.dtype.kind == "f" and np.max(np.abs(a), initial=0.0) > LARGEST:
            raise ProtocolError(
                f"The array {name} of the server's message has entries above {LARGEST:g}. {OTHER_SERVER}"
            )
    if framed and stage_asked(request) in _OPENINGS:
        # An opening's products are always computed from raw rows, so its other results must be about raw rows, too.
        raise ProtocolError(
            "The opening of a run needs raw rows, but the server's message centers, scales or adjusts them: "
            f"{', '.join(framed)}. {OTHER_SERVER}"
        )


def check_arrays(request: wire.ServerRequest) -> None:
    """Refuse arrays that the stage of the message does not name, or that do not fit its description."""
    if request.stage == messages.STAGE:
        if strange := messages.unknown_mask_arrays(request.arrays):
            raise ProtocolError(
                f"The server's message has arrays that no masked sum uses: {', '.join(strange)[:100]}. {OTHER_SERVER}"
            )
        for name, ask in messages.SENT.items():
            if name in request.arrays and (wrong := ask.fault(request.arrays[name])):
                raise _malformed_error(name, wrong)
    demand = RequestedArrays.of_request(request)
    if demand.stage:
        client_half.stage_of(demand.stage)  # This refuses an unknown stage by name.
    demand.check()


def check_sizes(request: wire.ServerRequest, d: int | None, n: int | None = None) -> None:
    """Refuse a message with a frame that no strategy sends, or that needs too much memory.

    The node has n rows of d columns. For a stream, n is None, and d is None until the first batch.
    """
    _check_frame(request, d)
    demand = RequestedArrays.of_request(request)
    known = None
    if n is None:
        demand.check_length(d)
    else:
        known = rows_for_memory(n, request)
    demand.check_sizes(d, known)
    if known is not None and d is not None and not fits_memory(request.stage, known, d) and demand.takes_squares:
        raise ProtocolError(
            f"{demand.stage} forms a matrix of size {d} x {d}, for which this node has too little memory. Run krylov "
            "instead, or use fewer columns."
        )


def widest_block(n: int, d: int, *, blocks_at_once: int) -> int:
    """Return the maximum width of a block at a node with n rows of d columns, if so many blocks exist at once."""
    return (16 * n * d + SPARE) // (8 * d * blocks_at_once)


def width_limit_for_stream(request: wire.ServerRequest) -> Widest:
    """Return a function that takes n and d and returns the limit from `widest_block` for a message to a stream.

    It is a function, because the size of the stream's next batch is unknown.
    """
    made = _BLOCKS[request.stage == messages.STAGE]
    return lambda n, d: widest_block(rows_for_memory(n, request), d, blocks_at_once=made)


def fits_memory(stage: str, n: int, d: int) -> bool:
    """Return whether a node with n rows of d columns has enough memory to form C_i for a message of this stage."""
    squares = _SQUARES[stage == messages.STAGE]
    return 8 * squares * d * d <= 16 * n * d + SPARE


def rows_for_memory(n: int, request: wire.ServerRequest) -> int:
    """Return the number of rows from which the memory limits for a message are computed.

    This is the node's number of rows n if its answers contain n anyway. If masks hide n, if the rows are a party's
    columns, or if only names are requested, n is rounded down to a power of 2. Under noise, the result is 0.
    """
    if NOISE in request.layers:
        return 0
    hidden = request.stage == messages.STAGE or request.frame.split is not None
    # A silent message may ask whether the node has memory for an alternative algorithm. The reply must not reveal n.
    if hidden or (request.alternative and is_silent(request.stage)):
        return int(2 ** (n.bit_length() - 1))
    return n


def is_silent(stage: str) -> bool:
    """Return whether the answers of this stage contain no arrays."""
    return issubclass(registry.STAGES.get(stage, Stage), EmptyStage)


def asks_for_products(stage: str, request: wire.ServerRequest) -> bool:
    """Return whether a message of this stage asks for more than means, deviations and counts."""
    apart = (*_OPENINGS, *registry.OPENING_ONLY, messages.STAGE)
    return stage not in apart or RequestedArrays.of_request(request).asks_for_products


def has_additive_answers(stage: str) -> bool:
    """Return whether an algorithm's answers can be summed, at least with some parameters.

    The answers of stages that are not algorithms can always be summed.
    """
    if stage not in registry.ALGORITHMS:
        return True
    algorithm = registry.ALGORITHMS[stage]
    return bool(algorithm().additive or algorithm.additive_with)


def has_no_meaning_in_sum(stage: str, arrays: Arrays) -> bool:
    """Return whether the answer to this message has no meaning in a sum.

    This holds if the stage is unknown, if the answers of its algorithm cannot be summed, if the answer has no parts, or
    if one of its parts has no meaning in a sum.
    """
    if stage not in registry.STAGES or not has_additive_answers(stage):
        return True
    # Whether parts have a meaning in a sum does not depend on the number of columns, so this trial uses 1.
    parts = registry.STAGES[stage].parts(Message(messages.stage_arrays(arrays)), 1)
    return not parts or any(part.open or part.kind.single for part in parts.values())


def _check_frame(request: wire.ServerRequest, d: int | None) -> None:
    framed = request.frame.arrays
    covariates = request.frame.covariates
    shapes: dict[str, tuple[int | None, ...]] = {}
    if covariates is not None:
        shapes = {"covariate_mean": (covariates.adjusted,), "slopes": (covariates.adjusted, d)}
        there = {"covariate_mean", "slopes", "grand", "sigma"} & framed.keys()
        if there not in (set(), {"covariate_mean", "slopes"}, {"slopes", "grand", "sigma"}):
            raise ProtocolError(
                f"A message about covariates has only some of the arrays that describe them. {OTHER_SERVER}"
            )
    for name, a in framed.items():
        shape = shapes.get(name, (d,))
        if a.shape != shape or a.dtype.kind != "f":
            rule = " x ".join(f"{side}" for side in shape)
            raise ProtocolError(
                f"The array {name} of the server's message must have {rule} floating-point numbers, but has shape "
                f"{a.shape} and dtype {a.dtype}. {OTHER_SERVER}"
            )
    for name in {"scale", "sigma"} & framed.keys():
        if not (framed[name] > 0.0).all():
            raise ProtocolError(f"The array {name} of the server's message has entries of 0 or below. {OTHER_SERVER}")
        if framed[name].min() < SMALLEST:
            raise ProtocolError(
                f"The array {name} of the server's message has entries below {SMALLEST:g}. {OTHER_SERVER}"
            )
