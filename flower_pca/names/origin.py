"""Record the origin of rows: the file of each row, and its place in the file. It is used in messages only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief


@dataclass(frozen=True)
class FileRows:
    """Consecutive rows of one file.

    Attributes
    ----------
    file : str
        The path of the file.
    n : int
        The number of rows.
    line : callable or None
        A function from a row to its line in a text file. It reads the file only when a message needs the line.
    guessed : bool
        Whether the first line was taken for a row because it holds only numbers.
    """

    file: str
    n: int
    line: Callable[[int], int] | None = None
    guessed: bool = False

    def place_of_row(self, row: int) -> str:
        """Describe the place of a row in the file."""
        if self.line is None:
            return f"row {row} of {self.file} (from 0 on)"
        return f"line {self.line(row)} of {self.file}"


@dataclass(frozen=True, eq=False)
class Origin:
    """The origin of some or all rows of several files.

    Attributes
    ----------
    stretches : tuple of FileRows
        The rows of each file.
    rows : range, ndarray or None
        The positions of the rows among the rows of all files in order, or None for all rows.
    """

    stretches: tuple[FileRows, ...]
    rows: range | Array | None = None

    __repr__ = brief

    @classmethod
    def of_file(
        cls, file: object, n: int, line: Callable[[int], int] | None = None, *, guessed: bool = False
    ) -> Origin:
        """Return the origin of all rows of one file."""
        return cls((FileRows(str(file), n, line, guessed),))

    @property
    def headerless(self) -> tuple[str, ...]:
        """The names of the files whose first line was taken for a row because it holds only numbers."""
        return tuple(Path(part.file).name for part in self.stretches if part.guessed)

    @property
    def file(self) -> str:
        """The path of the file if all rows are from the same file, else ""."""
        if self.rows is None or len(self.stretches) == 1:
            if len(self.stretches) == 1:
                return self.stretches[0].file
            return ""
        if isinstance(self.rows, np.ndarray):
            ends = self.rows
        else:
            ends = np.array([*self.rows[:1], *self.rows[-1:]])
        start = 0
        for part in self.stretches:
            if len(ends) and start <= ends.min() and ends.max() < start + part.n:
                return part.file
            start += part.n
        return ""

    def of_rows(self, index: Any) -> Origin:
        """Return the origin of the rows that a slice, an array of indices or a mask selects."""
        if self.rows is None:
            every: Any = range(sum(part.n for part in self.stretches))
        else:
            every = self.rows
        if isinstance(index, slice):
            return replace(self, rows=every[index])
        chosen = np.asarray(index)
        rows = np.asarray(every)[chosen] if len(every) else chosen[:0]
        return replace(self, rows=rows)

    def place_of_row(self, row: int) -> str:
        """Describe the place of a row by its file, and by its line or row in the file."""
        at = row if self.rows is None else int(self.rows[row])
        for part in self.stretches:
            if at < part.n:
                return part.place_of_row(at)
            at -= part.n
        return f"row {row} (from 0 on)"
