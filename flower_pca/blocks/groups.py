"""Read rows of tables with typed columns, by row groups (parquet) or by record batches (Arrow)."""

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
    """Return whether X is a parquet file, a file of record batches, or an Arrow table or record batch in memory."""
    batch_or_table = all(hasattr(X, what) for what in ("num_rows", "column", "slice"))
    return hasattr(X, "schema") and (hasattr(X, "iter_batches") or hasattr(X, "get_batch") or batch_or_table)


class RowGroups(Stored):
    """The rows in some numeric columns of a parquet or Arrow file, with NaN for missing values.

    Parameters
    ----------
    opened : callable
        A function that opens the file. It is called at each pass.
    columns : sequence of str
        The names of the columns in the file.
    n : int
        The number of rows.
    single : bool
        Whether all columns, and therefore the rows, have single precision.
    start : int, default=0
        The position in the file of the first row.

    Attributes
    ----------
    names : tuple of str
        The names of the columns.
    """

    def __init__(
        self, opened: Callable[[], Any], columns: Sequence[str], n: int, *, single: bool, start: int = 0
    ) -> None:
        self._opened, self._columns, self._start = opened, tuple(columns), start
        self.names = tuple(labels.clean_name(column) for column in columns)
        self.shape = (n, len(self._columns))
        self.dtype = np.dtype(np.float32 if single and self._columns else np.float64)

    @classmethod
    def from_opened(cls, X: Any, who: str = "the rows") -> RowGroups:
        """Return all columns of a pyarrow object. Raise a DataError if a column holds no numbers."""
        # The Arrow schema is needed here. The attribute `schema` of a parquet file is another kind of schema.
        schema = getattr(X, "schema_arrow", X.schema)
        kinds = {field.name: field.type for field in schema}
        for name, kind in kinds.items():
            if not is_number(kind):
                raise DataError(
                    f"Column {name} of {who} holds values of the type {kind}, not numbers. Select the columns of "
                    f"numbers with table.select([...]) or read(columns=[...])."
                )
        return cls(lambda: X, list(kinds), number_of_rows(X), single=is_single_precision(kinds.values()))

    def pieces(self) -> Iterator[Array]:
        """Yield the rows as arrays, batch by batch."""
        of_a_piece, stop = rows_of_a_piece(self.shape[1], self.dtype), self._start + self.shape[0]
        for batch in record_batches(self._opened(), self._columns, of_a_piece, self._start, stop):
            rows = np.empty((batch.num_rows, len(self._columns)), dtype=self.dtype)
            for j, column in enumerate(self._columns):
                # A safe cast would refuse whole numbers above 2^53. This cast only rounds their last digits.
                values = batch.column(column).cast("double", safe=False)
                rows[:, j] = values.to_numpy(zero_copy_only=False)
            yield rows

    def rows_between(self, start: int, stop: int) -> RowGroups:
        """Return the rows from `start` up to, but not including, `stop`."""
        single = self.dtype == np.float32
        return RowGroups(self._opened, self._columns, stop - start, single=single, start=self._start + start)


def is_single_precision(kinds: Any) -> bool:
    """Return whether all of these types are floats of at most single precision."""
    return all(str(kind) in _SINGLE for kind in kinds)


def record_batches(
    opened: Any, columns: Sequence[str], rows: int, start: int = 0, stop: int | None = None
) -> Iterator[Any]:
    """Yield the rows of a file or table from `start` up to, but not including, `stop`, as record batches.

    Only these columns of a parquet file are read. Groups that contain none of the rows are not read.
    """
    first = 0
    for n, read in _row_groups(opened, columns, rows):
        left = n if stop is None else min(stop - first, n)
        seen = first
        for batch in read() if max(start - first, 0) < left else ():
            begin, end = max(start - seen, 0), min(first + left - seen, batch.num_rows)
            if begin < end:
                yield batch.slice(begin, end - begin)
            seen += batch.num_rows
        first += n


def _row_groups(opened: Any, columns: Sequence[str], rows: int) -> Iterator[tuple[int, Callable[[], Iterator[Any]]]]:
    """Yield the number of rows of each group of a file, and a function that reads the batches of the group.

    Small groups of a parquet file are combined.
    """
    if hasattr(opened, "iter_batches"):
        sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
        # pyarrow keeps everything in memory that it reads in one call, so each call reads only a few groups.
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
            yield batch.num_rows, partial(_batch_slices, batch, rows)
    elif hasattr(opened, "to_batches"):
        yield opened.num_rows, partial(opened.to_batches, max_chunksize=rows)
    else:
        yield opened.num_rows, partial(_batch_slices, opened, rows)


def _batch_slices(batch: Any, rows: int) -> Iterator[Any]:
    """Return an iterator over slices of a record batch with this many rows each."""
    return (batch.slice(i, rows) for i in range(0, batch.num_rows, rows))


def number_of_rows(X: Any) -> int:
    """Return the number of rows of a file or table."""
    if hasattr(X, "metadata") and hasattr(X, "iter_batches"):
        return int(X.metadata.num_rows)
    if hasattr(X, "get_batch"):
        return sum(X.get_batch(i).num_rows for i in range(X.num_record_batches))
    return int(X.num_rows)
