"""Rows of tables with typed columns, which are read as row groups (parquet) or as record batches (Arrow)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored, rows_of_a_piece

_NUMBERS: Final = re.compile(r"(half)?float|double|u?int\d+|bool|decimal\d*\(.*\)")
_SINGLE: Final = ("float", "halffloat")


def is_number(kind: Any) -> bool:
    """Return whether columns of this Arrow type hold numbers."""
    return _NUMBERS.fullmatch(str(kind)) is not None


def is_grouped(X: Any) -> bool:
    """Return whether X is a parquet file, a file of record batches, or a table of these in memory."""
    return any(hasattr(X, what) for what in ("iter_batches", "get_batch", "to_batches")) and hasattr(X, "schema")


class Groups(Stored):
    """Columns of a parquet or Arrow file as rows of numbers, with NaN where a value is missing.

    Parameters
    ----------
    opened : callable
        Opens the file; called at each pass.
    columns : sequence of str
        The columns, as the file spells them.
    n : int
        The number of rows.
    single : bool
        Whether all columns, and so the rows, have single precision.
    start : int, default=0
        The first row in the file.

    Attributes
    ----------
    names : tuple of str
        The names of the columns.
    """

    def __init__(
        self, opened: Callable[[], Any], columns: Sequence[str], n: int, *, single: bool, start: int = 0
    ) -> None:
        self._opened, self._columns, self._start = opened, tuple(columns), start
        self.names = tuple(labels.clean(column) for column in columns)
        self.shape = (n, len(self._columns))
        self.dtype = np.dtype(np.float32 if single and self._columns else np.float64)

    @classmethod
    def of(cls, X: Any, who: str = "the rows") -> Groups:
        """Return all columns of an object of pyarrow, or raise a DataError if some hold no numbers."""
        # A parquet file has another schema beside that of Arrow.
        schema = getattr(X, "schema_arrow", X.schema)
        kinds = {field.name: field.type for field in schema}
        for name, kind in kinds.items():
            if not is_number(kind):
                raise DataError(
                    f"Column {name} of {who} holds values of the type {kind}. Give the columns of numbers only, as "
                    f"table.select([...]) or read(columns=[...]) does."
                )
        return cls(lambda: X, list(kinds), number_of_rows(X), single=is_single(kinds.values()))

    def pieces(self) -> Iterator[Array]:
        """Yield batches of rows."""
        of_a_piece, stop = rows_of_a_piece(self.shape[1], self.dtype), self._start + self.shape[0]
        for batch in batches(self._opened(), self._columns, of_a_piece, self._start, stop):
            rows = np.empty((batch.num_rows, len(self._columns)), dtype=self.dtype)
            for j, column in enumerate(self._columns):
                # Safe casts refuse whole numbers beyond 2^53, although these would only lose their last digits.
                values = batch.column(column).cast("double", safe=False)
                rows[:, j] = values.to_numpy(zero_copy_only=False)
            yield rows

    def between(self, start: int, stop: int) -> Groups:
        """Return the rows from `start` up to, but without, `stop`."""
        single = self.dtype == np.float32
        return Groups(self._opened, self._columns, stop - start, single=single, start=self._start + start)


def is_single(kinds: Any) -> bool:
    """Return whether all of these types have single precision at most."""
    return all(str(kind) in _SINGLE for kind in kinds)


def batches(opened: Any, columns: Sequence[str], rows: int, start: int = 0, stop: int | None = None) -> Iterator[Any]:
    """Yield the rows of a file or table from `start` up to, but without, `stop`, as record batches.

    From a parquet file only these columns are read. Groups without any of the rows are not read.
    """
    first = 0
    for n, read in _groups(opened, columns, rows):
        left = n if stop is None else min(stop - first, n)
        seen = first
        for batch in read() if max(start - first, 0) < left else ():
            begin, end = max(start - seen, 0), min(first + left - seen, batch.num_rows)
            if begin < end:
                yield batch.slice(begin, end - begin)
            seen += batch.num_rows
        first += n


def _groups(opened: Any, columns: Sequence[str], rows: int) -> Iterator[tuple[int, Callable[[], Iterator[Any]]]]:
    """Yield, for each group of a file or several small ones, the number of rows and a function that reads
    their batches.
    """
    if hasattr(opened, "iter_batches"):
        sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
        # pyarrow keeps in memory what it has read in a call, so each call reads few groups.
        while sizes:
            together = max(int(np.searchsorted(np.cumsum(sizes), rows, side="right")), 1)
            numbers = [*range(opened.metadata.num_row_groups - len(sizes), opened.metadata.num_row_groups)][:together]
            yield (
                sum(sizes[:together]),
                partial(opened.iter_batches, batch_size=rows, row_groups=numbers, columns=list(columns)),
            )
            del sizes[:together]
    elif hasattr(opened, "get_batch"):
        for batch in map(opened.get_batch, range(opened.num_record_batches)):
            yield batch.num_rows, partial(_slices, batch, rows)
    else:
        yield opened.num_rows, partial(opened.to_batches, max_chunksize=rows)


def _slices(batch: Any, rows: int) -> Iterator[Any]:
    """Return a record batch in slices of this many rows."""
    return (batch.slice(i, rows) for i in range(0, batch.num_rows, rows))


def number_of_rows(X: Any) -> int:
    """Return how many rows a file or table has."""
    if hasattr(X, "metadata") and hasattr(X, "iter_batches"):
        return int(X.metadata.num_rows)
    if hasattr(X, "get_batch"):
        return sum(X.get_batch(i).num_rows for i in range(X.num_record_batches))
    return int(X.num_rows)
