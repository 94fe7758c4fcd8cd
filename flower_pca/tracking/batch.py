"""The client's part of tracking: take the batch of a step, complete it, and answer with products of the batch.

`respond` does all of this. In a new step, it takes a batch from the stream. A step may have several laps, and in each
new lap, `respond` completes the batch again. It answers every message with a product of the completed rows. The
tracker's `complete` fills missing entries and finds outliers. `add_aligned` sums the answers to the first message,
because a client without rows does not know the number of columns yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from flower_pca.base import labels, linalg
from flower_pca.base.errors import OTHER_SERVER, ConfigError, DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.core.kinds import Shape
from flower_pca.core.stage import Arrays, Merge, add_answer
from flower_pca.rows import gaps
from flower_pca.rows.stream import NO_CURSOR, Completion, Stream, Widest

# These are the counts of a completed batch, in the order of "counts" in a client's memory.
_MEASURED: Final = ("rows", "misfit", "energy", "deficient", "outliers", "missing")
# Each answer has these counts. "left" is the number of further steps for which the client has rows.
COUNTS = ("rows", "left", "misfit", "energy", "deficient", "outliers", "missing")
# If the message requests `columns`, an answer also has these sums.
BY_COLUMN: Final = ("column_seen", "column_sums", "column_squares")


@dataclass(frozen=True)
class CompletedBatch:
    """A completed batch, with a mask of its outliers and figures of the fit.

    `found` is True at outliers. `misfit` is the sum of squared residuals at the observed entries that are no outliers.
    `deficient` is the number of rows with fewer independent observed entries than components. `columns` are the sums of
    `BY_COLUMN`, (3, d), or None if they were not requested.
    """

    rows: Array
    found: Array
    misfit: float
    deficient: int
    columns: Array | None = None

    __repr__ = brief


Complete: TypeAlias = Callable[[Arrays, Array, Array, Array, Array | None], CompletedBatch]


def respond(arrays: Arrays, data: Stream, memory: Arrays, complete: Complete) -> tuple[Arrays, Arrays]:
    """Return a client's answer and its new memory. `complete` fills missing entries of rows from a basis P.

    The memory contains the batch and its completion, for further messages of the step, and the position in a queue. If
    a client has lost its memory, it takes the batch again. Raise a ProtocolError if the basis in the message has an
    impossible shape.
    """
    step, lap = int(arrays["step"]), int(arrays["lap"])
    newest = memory.get("at", np.array([-1, 0]))
    if "P" in arrays and not (arrays["P"].ndim == 2 and 0 < arrays["P"].shape[1] <= len(arrays["P"])):
        raise ProtocolError(
            f"The basis of the server's message has shape {arrays['P'].shape}, but it must have at least one column "
            f"and no more columns than rows. {OTHER_SERVER}"
        )
    if arrays["refine"] and "P" in arrays and newest[0] == step - 1 and "found" in memory:
        # The previous batch is completed again, with the basis that was found from it. Its outliers do not change.
        Y = memory["Y"]
        again = complete(arrays, *gaps.without_gaps(Y), arrays["P"], memory["found"])
        _hand_back(data, int(newest[0]), again, Y)
    if "closing" in arrays:
        return {"rows": np.array(0)}, {}
    if newest[0] != step:
        memory = _next_batch(step, data, memory, pools=not {"P", "block"} & arrays.keys())
    if "Y" in memory and (memory["at"][1] != lap or "columns" in arrays.keys() - memory.keys()):
        completed = _complete_batch(arrays, data, memory["Y"], complete)
        memory = {**memory, **completed, "at": np.array([step, lap])}
    return _product_and_counts(arrays, memory, data.widest), memory


def _next_batch(step: int, data: Stream, memory: Arrays, *, pools: bool) -> Arrays:
    """Return the memory with the batch of a step. If `pools`, the batch also contains the earlier rows in the memory.

    Rows are pooled until there is a first basis, because the first batches may have too few rows for a basis. Earlier
    rows are dropped if all of them are zero, because they do not determine a basis.
    """
    taken = data.rows_for_step(step, memory.get("cursor", NO_CURSOR))
    before = memory.get("Y")
    at = np.array([step, -1])
    left = np.array(taken.left)
    memory = {"at": at, "left": left, "cursor": taken.cursor}
    batch = taken.rows  # These rows are a copy, so they can be changed in place.
    if before is not None and pools and np.nansum(before**2) > 0.0:
        memory["before"] = np.array(len(before))
        if batch is not None:
            require_columns(before.shape[1], batch.shape[1], data.who)
            before = np.vstack([before, batch])
        batch = before
    if batch is not None:
        memory["Y"] = batch
    return memory


def memory_to_save(memory: Arrays) -> Arrays:
    """Return the part of a memory to save: the batch and the position in the queue.

    The completion is left out, because the next message brings the basis, with which the batch is completed again.
    """
    if "at" not in memory:
        return {}
    names = ("left", "cursor", "Y", "before")
    rest: Arrays = {name: memory[name] for name in names if name in memory}
    return {**rest, "at": np.array([memory["at"][0], -1])}


def resumed_memory(memory: Arrays, data: Stream) -> Arrays:
    """Return the memory of a client that continues with a new stream object.

    Raises
    ------
    ConfigError
        If the stream has different rows in the current step.
    """
    if "at" not in memory or not data.at_rest:
        return memory
    step = int(memory["at"][0])
    taken = data.rows_for_step(step, NO_CURSOR)
    before = int(memory.get("before", 0))
    batch = memory.get("Y", np.zeros((0, 0)))[before:]
    rows = taken.rows if taken.rows is not None else batch[:0]
    if not np.array_equal(rows, batch, equal_nan=True):
        raise ConfigError(
            f"The checkpoint belongs to a run with different rows at {data.who}, step {step}. Give the rows of that "
            "run, or choose another checkpoint."
        )
    return {**memory, "left": np.array(taken.left)}


def _complete_batch(arrays: Arrays, data: Stream, Y: Array, complete: Complete) -> Arrays:
    Y0, gone = gaps.without_gaps(Y)
    # The energy is computed first, because `complete` fills the missing entries in place.
    energy = float(np.vdot(Y0, Y0))
    if "P" in arrays:
        require_columns(len(arrays["P"]), Y.shape[1], data.who)
        filled = complete(arrays, Y0, gone, arrays["P"], None)
    else:
        if "d" in arrays:
            require_columns(int(arrays["d"]), Y.shape[1], data.who)
        filled = CompletedBatch(Y0, np.zeros(Y.shape, dtype=bool), energy, 0)
    _hand_back(data, int(arrays["step"]), filled, Y)
    found = np.count_nonzero(filled.found)
    counts = [len(Y), filled.misfit, energy, filled.deficient, found, len(gone)]
    completed = {"L": filled.rows, "found": filled.found, "counts": np.array(counts, dtype=np.float64)}
    if filled.columns is not None:
        completed["columns"] = filled.columns
    return completed


def require_columns(columns: int, columns_of_rows: int, who: str) -> None:
    """Raise a DataError if rows do not have as many columns as earlier rows of the run."""
    if columns != columns_of_rows:
        raise DataError(
            f"The rows of {who} have {labels.count(columns_of_rows, 'column')}, but the run has had {columns} so "
            f"far. Give all "
            "clients the same columns."
        )


def _product_and_counts(arrays: Arrays, memory: Arrays, widest: Widest | None) -> Arrays:
    """Return the product L'(L B) of the completed rows L and a block B, with the counts of the batch.

    If the message requests the part outside its basis P, return the product (I - PP')L'(L (I - PP')B) instead.
    """
    if "Y" not in memory:
        # A client without rows may not know the number of columns.
        d, width = shape_of_product(arrays)
        S = np.zeros((0, int(arrays["width"]))) if d is None or width is None else np.zeros((d, width))
        # The answer has all names, because answers are summed. `left` is needed to decide whether the run ends.
        answer = {"S": S, **{name: np.array(0.0) for name in COUNTS}, "left": memory["left"]}
        if "columns" in arrays:
            answer |= {name: np.zeros(len(arrays["P"])) for name in BY_COLUMN}
        return answer
    L = memory["L"]
    B = arrays.get("block")
    if B is None:
        B = _block_of_message(arrays, L, widest)
    outside = "outside" in arrays
    if outside:
        B = linalg.complement(B, arrays["P"])
    S = L.T @ (L @ B)
    if outside:
        S = linalg.complement(S, arrays["P"])
    numbers = {name: np.array(value) for name, value in zip(_MEASURED, memory["counts"], strict=True)}
    answer = {"S": S, **numbers, "left": memory["left"]}
    if "columns" in arrays:
        answer |= dict(zip(BY_COLUMN, memory["columns"], strict=True))
    return answer


def sums_by_column(Y: Array, missing_positions: Array) -> Array:
    """Return the number, the sum and the sum of squares of each column's observed entries, (3, d).

    Y must be zero at the missing entries `missing_positions`.
    """
    d = Y.shape[1]
    seen = len(Y) - np.bincount(missing_positions % d, minlength=d)
    return np.stack([seen, Y.sum(axis=0), np.einsum("ij,ij->j", Y, Y)])


def shape_of_product(arrays: Arrays, d: int | None = None) -> Shape:
    """Return the shape of the product that a message requests, with None for sides that are unknown."""
    if "block" in arrays:
        return arrays["block"].shape
    if "d" in arrays:
        d = int(arrays["d"])
    return d, None if d is None else min(int(arrays["width"]), d)


def _block_of_message(arrays: Arrays, L: Array, widest: Widest | None) -> Array:
    width = min(int(arrays["width"]), L.shape[1])
    if widest is not None and width > widest(*L.shape):
        raise ProtocolError(
            f"The server requests a product of {width} columns, but a node may use only memory in proportion to its "
            "batch, which has too few rows. Request fewer columns."
        )
    return linalg.random_basis(L.shape[1], width, int(arrays["seed"]))


def _hand_back(data: Stream, step: int, filled: CompletedBatch, Y: Array) -> None:
    if data.keeps:
        outliers = np.where(filled.found, Y - filled.rows, 0.0)
        data.hand_back(step, Completion(filled.rows, outliers, filled.found, np.isnan(Y)))


def fault_in_counts(reply: Arrays) -> str:
    """Describe what is wrong with the counts of an answer, in words that follow "An answer". Return "" for no fault."""
    counts = {name: float(reply[name]) for name in COUNTS if name in reply}
    if min(counts.values(), default=0.0) < 0.0:
        return "has a count below 0"
    more = counts.get("missing", 0.0) + counts.get("outliers", 0.0)
    if "S" in reply and more > counts["rows"] * len(reply["S"]):
        return "has more missing entries and outliers than its rows have entries"
    return ""


def keeping_each(merge: Merge) -> Merge:
    """Return a merge function that also keeps the counts of each client under "each", in the order of COUNTS."""

    def merge_each(total: Any, client: int, reply: Arrays) -> Any:
        both = merge(total, client, reply)
        each = total["each"] if total is not None else {}
        each[client] = tuple(float(reply[name]) for name in COUNTS)
        return {**both, "each": each}

    return merge_each


def add_aligned(total: Arrays | None, client: int, reply: Arrays) -> Arrays:
    """Return the sum of the answers so far and one more answer to the first message of a run.

    If a client has no rows, its product has no rows, and counts as zero.
    """
    if total is None:
        return add_answer(None, client, reply)
    S = total["S"]
    mine = np.array(reply["S"], dtype=np.float64)
    return add_answer({**total, "S": _zeros_if_empty(S, mine)}, client, {**reply, "S": _zeros_if_empty(mine, S)})


def _zeros_if_empty(S: Array, other: Array) -> Array:
    """Return the product S, or zeros of the shape of the product `other` if the client of S does not know the columns.

    Raise a ProtocolError if the products are for data with different numbers of columns.
    """
    if len(S) and len(other) and len(S) != len(other):
        raise ProtocolError(
            f"The rows of this client have {labels.count(len(S), 'column')}, but earlier clients have {len(other)}. "
            "Give all clients the same columns."
        )
    if len(S) or not len(other):
        return S
    return 0.0 * other
