"""Replace the values that stand for a missing value in a file: words such as "?", and codes such as -999."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.blocks import adapters
from flower_pca.blocks.source import Blocks, Stored, all_rows, is_sparse
from flower_pca.data.reading import require_matches
from flower_pca.names.levels import cell_as_level
from flower_pca.names.table import Table

_ALL: Final = "*"


@dataclass(frozen=True)
class GapCodes:
    """The words and numbers that stand for a missing value, for each column or pattern of column names."""

    of_columns: Mapping[str, tuple[Any, ...]]

    @classmethod
    def from_option(cls, option: Any) -> GapCodes:
        """Return the codes that a user gave: a list for all columns, or a mapping from columns or patterns to lists.

        Return no codes for None. Raise a ConfigError for an invalid value.
        """
        if isinstance(option, GapCodes):
            return option
        if option is None:
            return cls({})
        columns = option if isinstance(option, Mapping) else {_ALL: option}
        for name, codes in columns.items():
            if not (isinstance(name, str) and isinstance(codes, list | tuple) and all(map(_is_code, codes))):
                raise ConfigError(
                    f"gaps cannot be {shown(option)}. Write a list such as ['.', -999], or lists by column, such as "
                    "{'age': [-999], 'lab_*': ['.']}.",
                    setting="gaps",
                    value=option,
                )
        return cls({clean_name(name): tuple(map(_as_number, codes)) for name, codes in columns.items()})

    def __bool__(self) -> bool:
        return bool(self.of_columns)

    def require(self, names: Sequence[str]) -> None:
        """Raise a ConfigError if a column or pattern matches none of these names."""
        require_matches("column with gaps", names, [name for name in self.of_columns if name != _ALL])

    def _codes(self, column: str) -> Iterator[Any]:
        for pattern, codes in self.of_columns.items():
            if pattern == column or fnmatchcase(column, pattern):
                yield from codes

    def words(self, column: str) -> frozenset[str]:
        """Return the words that stand for a missing value in a column."""
        return frozenset(code for code in self._codes(column) if isinstance(code, str))

    def numbers(self, column: str) -> list[float]:
        """Return the numbers that stand for a missing value in a column."""
        return [code for code in self._codes(column) if not isinstance(code, str)]


def _is_code(code: Any) -> bool:
    return isinstance(code, str | int | float) and not isinstance(code, bool)


def _as_number(code: Any) -> float | str:
    """Return a code as a float if it is a number or text that reads as a number, else as text without outer blanks.

    A file may write the same code in several ways, such as -999 and -999.0.
    """
    if not isinstance(code, str):
        return float(code)
    with suppress(ValueError):
        return float(code)
    return code.strip()


def with_gaps_as_nan(table: Table, option: Any) -> Table:
    """Return the table with NaN in place of numbers that stand for missing values.

    Words that stand for missing values were replaced earlier, when the file was read. For columns of words, see
    `with_gaps_in_words`.
    """
    gaps = GapCodes.from_option(option)
    if not gaps:
        return table
    names = table.names or tuple(str(j + 1) for j in range(table.shape[-1]))
    gaps.require((*table.columns, *table.beside) if table.names else names)
    codes = [gaps.numbers(name) for name in names]
    if not any(codes):
        return table
    source = adapters.as_blocks(table.values)
    zeros = [name for name, of_column in zip(names, codes, strict=True) if 0.0 in of_column]
    if zeros and is_sparse(source):
        raise ConfigError(
            f"gaps names 0 as a missing value in column {zeros[0]}, but the rows are sparse and do not store zeros. "
            "Leave 0 out of gaps, or save the rows as a dense array.",
            setting="gaps",
            value=option,
        )
    rows = RowsWithGaps(source, codes)
    return replace(table, values=rows if adapters.is_stored(table.values) else all_rows(rows))


def with_gaps_in_words(table: Table, option: Any) -> Table:
    """Return the table with empty cells in place of what stands for a missing value in its columns of words.

    Cells are compared as levels: the code 9 is also the number 9.0 or the text "9,0", and 1 is also True.
    """
    gaps = GapCodes.from_option(option)
    if not gaps or not table.texts:
        return table
    parts = tuple(with_gaps_in_words(part, gaps) for part in table.parts)
    return replace(table, texts={name: _emptied(cells, gaps, name) for name, cells in table.texts.items()}, parts=parts)


def _emptied(cells: Array, gaps: GapCodes, column: str) -> Array:
    codes = {cell_as_level(code) for code in (*gaps.words(column), *gaps.numbers(column))} - {None}
    gone = [cell_as_level(cell) in codes for cell in cells.tolist()]
    if not any(gone):
        return cells
    left = cells.astype(object)
    left[gone] = None
    return left


class RowsWithGaps(Stored):
    """The rows of a source, with NaN in place of the numbers that stand for a missing value."""

    def __init__(self, source: Blocks, codes: Sequence[Sequence[float]]) -> None:
        self._source = source
        self.shape, self.sparse = source.shape, is_sparse(source)
        # An integer type cannot hold NaN.
        self.dtype = source.dtype if source.dtype.kind == "f" else np.dtype(np.float64)
        # Columns with the same codes are searched together. These are their positions, for each list of codes.
        self._columns_with: dict[tuple[float, ...], list[int]] = {}
        for j, of_column in enumerate(codes):
            if of_column:
                self._columns_with.setdefault(tuple(of_column), []).append(j)

    def pieces(self) -> Iterator[Any]:
        """Yield the pieces of the source, with NaN for missing values."""
        for piece in self._source.pieces():
            rows = piece.astype(self.dtype)
            entries = self._stored_entries(rows) if self.sparse else None
            for i, (codes, columns) in enumerate(self._columns_with.items()):
                wanted = np.array(codes, dtype=self.dtype)
                if entries is not None:
                    rows.data[entries[i][np.isin(rows.data[entries[i]], wanted)]] = np.nan
                elif len(columns) == self.shape[1]:
                    rows[np.isin(rows, wanted)] = np.nan
                else:  # Only these columns are searched, because each column may have codes of its own.
                    some = rows[:, columns]
                    some[np.isin(some, wanted)] = np.nan
                    rows[:, columns] = some
            yield rows

    def _stored_entries(self, rows: Any) -> list[Array]:
        """Return for each list of codes the positions of the stored entries in its columns."""
        kinds = np.full(self.shape[1], -1)
        for i, columns in enumerate(self._columns_with.values()):
            kinds[columns] = i
        of_entries = kinds[rows.indices]
        stored = np.flatnonzero(of_entries >= 0)
        if len(self._columns_with) == 1:
            return [stored]
        stored = stored[np.argsort(of_entries[stored], kind="stable")]
        return np.split(stored, np.searchsorted(of_entries[stored], np.arange(1, len(self._columns_with))))
