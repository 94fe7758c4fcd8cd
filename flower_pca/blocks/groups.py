"""Groups: rows of tables of typed columns, which come as row groups (parquet) or as record batches (Arrow)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks.source import Stored, rows_of_a_piece

_NUMBERS: Final = re.compile(r"(half)?float|double|u?int\d+|bool|decimal\d*\(.*\)")
_SINGLE: Final = ("float", "halffloat")


def is_number(kind: Any) -> bool:
    """Whether columns of this type of Arrow's hold numbers."""
    return _NUMBERS.fullmatch(str(kind)) is not None


def is_grouped(X: Any) -> bool:
    """Whether it is a parquet file, a file of record batches, or a table of these in memory."""
    return any(hasattr(X, what) for what in ("iter_batches", "get_batch", "to_batches")) and hasattr(X, "schema")


class Groups(Stored):
    """Columns of a file of groups, as rows of numbers; NaN where a value is missing.

    Parameters
    ----------
    opened : callable
        Opens the file, for each pass anew.
    columns : sequence of str
        The columns, as the file spells them.
    n : int
        How many rows there are.
    single : bool
        Whether all columns are of single precision, so that the rows are.

    Attributes
    ----------
    names
        What the columns are called.
    """

    def __init__(self, opened: Callable[[], Any], columns: Sequence[str], n: int, *, single: bool) -> None:
        self._opened, self._columns = opened, tuple(columns)
        self.names = tuple(labels.clean(column) for column in columns)
        self.shape = (n, len(self._columns))
        self.dtype = np.dtype(np.float32 if single and self._columns else np.float64)

    @classmethod
    def of(cls, X: Any, who: str = "the rows") -> Groups:
        """All columns of an object of pyarrow, which must hold numbers."""
        # A parquet file has a schema of its own kind beside that of Arrow.
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
        """Batches of rows."""
        for batch in batches(self._opened(), self._columns, rows_of_a_piece(self.shape[1], self.dtype)):
            rows = np.empty((batch.num_rows, len(self._columns)), dtype=self.dtype)
            for j, column in enumerate(self._columns):
                # Safe casts refuse whole numbers beyond 2^53, which only lose their last digits.
                values = batch.column(column).cast("double", safe=False)
                rows[:, j] = values.to_numpy(zero_copy_only=False)
            yield rows


def is_single(kinds: Any) -> bool:
    """Whether all of these types are of single precision at most."""
    return all(str(kind) in _SINGLE for kind in kinds)


def batches(opened: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
    """The record batches of a file, of a table or of a parquet file; the latter read these columns only."""
    if hasattr(opened, "iter_batches"):
        yield from opened.iter_batches(batch_size=rows, columns=list(columns))
    elif hasattr(opened, "get_batch"):
        every = (opened.get_batch(i) for i in range(opened.num_record_batches))
        yield from (batch.slice(i, rows) for batch in every for i in range(0, batch.num_rows, rows))
    else:
        yield from opened.to_batches(max_chunksize=rows)


def number_of_rows(X: Any) -> int:
    """How many rows a file or table has."""
    if hasattr(X, "metadata") and hasattr(X, "iter_batches"):
        return int(X.metadata.num_rows)
    if hasattr(X, "get_batch"):
        return sum(X.get_batch(i).num_rows for i in range(X.num_record_batches))
    return int(X.num_rows)
