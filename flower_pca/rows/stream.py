"""Define `Stream`: the rows of one client as they arrive, with one batch for each step and possibly missing values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

import numpy as np

from flower_pca.base import checks, files, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief, shown
from flower_pca.names.columns import (
    ColumnNames,
    Heading,
    mismatch_of_subset,
    mismatch_without_names,
    missing_columns,
    unusable_columns_error,
)
from flower_pca.names.table import Table
from flower_pca.rows.gaps import rows_with_gaps

NO_CURSOR = np.zeros(0, dtype=np.uint8)
# A function of this type takes the numbers of rows and columns of a batch, and returns how many columns of a product
# fit in memory.
Widest = Callable[[int, int], int]
# This number of further steps is assumed for sources whose end is unknown, such as functions.
UNTOLD: Final = 2**20
_KIND: Final = "completed batch"
_BATCH: Final = "batch-"
_AHEAD: Final = 10_000  # maximum number of steps of an iterator that are skipped at once


@dataclass(frozen=True)
class Completion:
    """A completed batch, which stays at the client.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        The rows of the batch, with estimates in place of missing values and outliers. In a first step without a start,
        missing values are 0.
    outliers : ndarray of shape (n, d)
        The outliers that were removed from the rows, and zeros for all other entries.
    found : ndarray of shape (n, d)
        True for outliers, which are replaced in `rows`.
    missing : ndarray of shape (n, d)
        True for missing values, which are filled in `rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.rows.stream import Completion
    >>> rows = np.array([[1.0, 2.0], [3.0, 4.5]])  # 4.5 stands for a missing value
    >>> nothing = np.zeros((2, 2))
    >>> batch = Completion(rows, outliers=nothing, found=nothing > 0, missing=rows == 4.5)
    >>> print(batch.missing.sum())
    1
    """

    rows: Array
    outliers: Array
    found: Array
    missing: Array

    __repr__ = brief

    @property
    def imputed(self) -> Array:
        """True for entries of `rows` (n, d) that are estimates, because they are outliers or missing values."""
        return np.asarray(self.found | self.missing)

    def write(self, folder: Path, step: int, columns: Sequence[str] | None) -> None:
        """Write the batch as a private npz file to a folder. The header of the file names the columns."""
        files.make_folder(folder)
        header = {"step": step, "columns": None if columns is None else list(columns)}
        path = folder / f"{_BATCH}{step:06d}.npz"
        files.write(path, _KIND, header, dict(vars(self)), private=True)


def completed_batches(folder: Path) -> Iterator[tuple[int, Completion]]:
    """Yield the number of the step and the completed batch for each file in a folder."""
    for path in sorted(folder.glob(f"{_BATCH}*.npz")):
        header, arrays = files.read(path, _KIND)
        fields = (arrays[name] for name in ("rows", "outliers", "found", "missing"))
        yield int(header["step"]), Completion(*fields)


@runtime_checkable
class Queue(Protocol):
    """A source that is read by a cursor. Each step takes the batch after the cursor, whatever its step number is."""

    def after(self, cursor: bytes) -> tuple[Any, bytes, int]:
        """Return the batch after the cursor, the next cursor, and the number of further batches.

        If there is no batch after the cursor, None takes the place of the batch.
        """


@dataclass(frozen=True)
class StepRows:
    """The rows of one step of a stream, with NaN for missing values. `rows` is None if the step has no rows.

    `left` is the number of further steps, and `cursor` the position of a queue after this step.
    """

    rows: Array | None
    left: int
    cursor: Array

    __repr__ = brief


class Stream:
    """The rows of one client as they arrive. In step t, the client uses batch t.

    NaN, or a masked entry of a numpy masked array, stands for a missing value.

    Parameters
    ----------
    source
        The source of the batches: an array that is cut into batches, a list of batches (None for a step without rows),
        a function from the number of the step to a batch or None, an iterator over batches, or a queue such as a
        folder of files.
    batch : int or None, default=None
        The number of rows per batch, if the source is an array.
    keep : bool, default=False
        Whether to keep completed batches in `completed`, by the number of the step.
    out : str or path or None, default=None
        A folder at the node to which completed batches are written, as one npz file per step.
    min_rows : int, default=1
        The smallest number of rows of a batch. A smaller batch is ignored.
    who : str, default="the client"
        The name of the client in messages about its data.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Stream, track
    >>> rng = np.random.default_rng(0)
    >>> streams = [Stream(rng.standard_normal((90, 6)), batch=30) for _ in range(3)]
    >>> track("st_miss", streams, n_components=2).rows_.tolist()
    [90, 90, 90]
    """

    WHO: ClassVar[str] = "the client"

    def __init__(
        self,
        source: Any,
        *,
        batch: int | None = None,
        keep: bool = False,
        out: str | os.PathLike[str] | None = None,
        min_rows: int = 1,
        who: str = WHO,
    ) -> None:
        self.who, self._source, self._batch = who, source, batch
        self._out = None if out is None else Path(out)
        self._keep, self.min_rows = keep, min_rows
        self.widest: Widest | None = None
        self.completed: dict[int, Completion] = {}
        self._position, self._newest, self._next = -1, None, None
        self.site = ""
        # These are the names and the unusable columns of an array that is cut into batches.
        self._names: tuple[str, ...] | None = None
        self._words: Mapping[str, str] = {}
        self._heading: Heading | None = None
        self.wanted: tuple[str, ...] | None = None
        # If this is true, a run may name only some of the columns, and a server can learn which columns exist.
        self._one_by_one = True
        checks.integer("min_rows", min_rows, least=1)
        cut = not (callable(source) or isinstance(source, list | tuple | Iterator | Queue))
        if cut:
            self._source = self._rows_to_cut(source)
            if batch is None:
                raise ConfigError("Stream(array) needs the number of rows per step. Add it, for example batch=60.")
            checks.integer("batch", batch, least=1)
        elif batch is not None:
            raise ConfigError(
                f"batch cuts an array into batches, but this source already has batches. Leave batch={shown(batch)} "
                "out."
            )

    def _rows_to_cut(self, source: Any) -> Any:
        """Return the array that is cut into batches. Store its site, its column names and its unusable columns."""
        given = Table.of(source, who=self.who).quiet()
        self.site, self._names, self._words = given.site, given.names, given.words
        values = given.values
        if not isinstance(values, np.ma.MaskedArray):
            values = np.asarray(values)
        if values.ndim != 2:
            raise DataError(
                f"The stream of {self.who} cannot be made from {shown(source)}, because it has "
                f"{labels.count(values.ndim, 'dimension')} instead of two (rows and columns). Give an array with two "
                "dimensions, a list of batches, a function, an iterator or a queue."
            )
        return values

    def select(self, names: tuple[str, ...] | None, *, one_by_one: bool = True) -> Self:
        """Select these columns for a run, or all columns for None, and return the stream.

        If `one_by_one` is false, a run that names only some of the columns is refused.
        """
        self.wanted, self._one_by_one = names, one_by_one
        return self

    @property
    def heading(self) -> Heading | None:
        """The heading of the columns, or None if the columns are unknown before the first batch."""
        if self.wanted is not None:
            return ColumnNames(self.wanted, self.who).heading
        if self._heading is not None or self.d is None:
            return self._heading
        headings = (Table.of(rows).names for rows in self._batches if rows is not None)
        first = next(headings, self._names)
        if first is None:
            return Heading(self.d)
        return ColumnNames(first, self.who).heading

    @property
    def _batches(self) -> Sequence[Any]:
        """The batches of a list. For other sources, this is empty."""
        return self._source if isinstance(self._source, list | tuple) else ()

    @property
    def d(self) -> int | None:
        """The number of columns, or None if it is unknown before the first batch."""
        if self.wanted is not None:
            return len(self.wanted)
        if self._batch is not None:
            return int(self._source.shape[1])
        tables = (rows for rows in self._batches if rows is not None and np.ndim(rows) == 2)
        return next((np.shape(rows)[1] for rows in tables), None)

    def columns(self) -> int | None:
        """Return the number of columns, reading the first batch if necessary, or None if this batch has no rows."""
        if self.d is not None:
            return self.d
        first = self.rows_for_step(0, NO_CURSOR).rows
        return None if first is None else first.shape[1]

    @property
    def repeatable(self) -> bool:
        """Whether another process can read the same batches. An iterator or a shared folder does not allow this."""
        if isinstance(self._source, Iterator):
            return False
        return bool(getattr(self._source, "repeatable", True))

    @property
    def at_rest(self) -> bool:
        """Whether every batch can be read again, unchanged and without cost, as from an array or a list."""
        return self._batch is not None or isinstance(self._source, list | tuple)

    def rows_for_step(self, step: int, cursor: Array) -> StepRows:
        """Return the rows for a step. A queue ignores the number of the step and uses the cursor."""
        source, state = self._source, NO_CURSOR
        if isinstance(source, Queue):
            rows, behind, left = source.after(cursor.astype(np.uint8).tobytes())
            state = np.frombuffer(behind, dtype=np.uint8).copy()
        elif isinstance(source, Iterator):
            rows, left = self._next_batch(step)
        elif isinstance(source, list | tuple):
            rows = source[step] if step < len(source) else None
            left = max(len(source) - step - 1, 0)
        elif callable(source):
            rows = source(step)
            left = 0 if rows is None else UNTOLD
        else:
            assert self._batch is not None
            rows = source[step * self._batch : (step + 1) * self._batch]
            left = max(-(-len(source) // self._batch) - step - 1, 0)
        return StepRows(self._checked_rows(rows, step), left, state)

    @property
    def keeps(self) -> bool:
        """Whether completed batches are kept or written."""
        return self._keep or self._out is not None

    def hand_back(self, step: int, batch: Completion) -> None:
        """Keep a completed batch at the node, in memory or in its folder."""
        if self._keep:
            self.completed[step] = batch
        if self._out is not None:
            batch.write(self._out, step, None if self.heading is None else self.heading.names)

    def write_to(self, folder: str | os.PathLike[str]) -> None:
        """Write completed batches to this folder from now on, unless the stream already has a folder."""
        if self._out is None:
            self._out = Path(folder)

    def take_over(self, folder: Path) -> None:
        """Read the batches that a copy of this stream in another process wrote to a folder, if `keep` was set."""
        if self._keep:
            self.completed |= dict(completed_batches(folder))

    def _next_batch(self, step: int) -> tuple[Any, int]:
        """Return the batch of an iterator for a step, and 1 if a further batch follows, else 0.

        One batch is read in advance to find out whether the iterator ends.
        """
        if self._position < 0:
            self._next = next(self._source, None)
        if step < self._position:
            raise DataError(
                f"The iterator of {self.who} cannot go back to step {step} after step {self._position}. Give a list "
                "or a function instead."
            )
        if step > self._position + _AHEAD:  # An iterator may have no end.
            raise DataError(
                f"Step {step} is more than {_AHEAD:,} steps ahead of the iterator of {self.who}. Ask for step "
                f"{self._position + 1} first."
            )
        while self._position < step:
            self._newest, self._next = self._next, next(self._source, None)
            self._position += 1
            # The iterator has ended, so no later step has rows.
            if self._newest is self._next is None:
                self._position = step
        return self._newest, int(self._next is not None)

    def _checked_rows(self, rows: Any, step: int) -> Array | None:
        if rows is None or len(rows) < self.min_rows:
            return None
        who = f"{self.who} at step {step}"
        given = Table.of(rows, who=who).quiet()
        batch = self._columns_by_name(rows_with_gaps(given.values, who), given, who)
        # A batch without any value counts as an outage, not as rows.
        if all(np.isnan(row).all() for row in batch):
            return None
        return batch

    def _columns_by_name(self, batch: Array, column_names: Table, who: str) -> Array:
        """Return the columns that the run names, or all columns sorted by name.

        Raises
        ------
        DataError
            If the columns differ from the columns of earlier batches, or do not fit the run.
        """
        names = column_names.names or self._names
        words = column_names.words or self._words
        columns = None if names is None else ColumnNames(names, who)
        if self.wanted is not None:
            return self._wanted_columns(batch, columns, words, who)
        if words:
            raise unusable_columns_error(who, words, file=False)
        heading = Heading(batch.shape[1]) if columns is None else columns.heading
        before, self._heading = self._heading, heading
        if before is not None and heading.digest != before.digest:
            raise heading.mismatch(who, before, "the batches before").error(DataError)
        if columns is None:
            return batch
        return np.ascontiguousarray(batch[:, columns.positions_of(columns.sorted_names)])

    def _wanted_columns(self, batch: Array, columns: ColumnNames | None, words: Mapping[str, str], who: str) -> Array:
        assert self.wanted is not None
        if columns is None:
            raise mismatch_without_names(who, batch.shape[1]).error(DataError)
        if not self._one_by_one and (some := mismatch_of_subset(who, self.wanted, columns.names)):
            raise some.error(DataError)
        if absent := missing_columns(who, self.wanted, columns.names, words):
            raise absent.error(DataError)
        return np.ascontiguousarray(batch[:, columns.positions_of(self.wanted, words)])
