"""Origin: which file each row of a table is from, and its place there. For messages; nothing is computed from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief


@dataclass(frozen=True)
class Stretch:
    """The rows of one file.

    Attributes
    ----------
    file : str
        Its path.
    n : int
        How many rows it has.
    line : callable or None
        From a row to the line that it is on, of a text file: looked up there where it is needed.
    guessed : bool
        Whether its first line was taken for a row, which nobody has said that it is.
    """

    file: str
    n: int
    line: Callable[[int], int] | None = None
    guessed: bool = False

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        if self.line is None:
            return f"row {row} of {self.file} (from 0 on)"
        return f"line {self.line(row)} of {self.file}"


@dataclass(frozen=True, eq=False)
class Origin:
    """Rows of files, one file after the other; all of them, or some.

    Attributes
    ----------
    stretches : tuple of Stretch
        The files.
    rows : range, ndarray or None
        Which of their rows these are; None for all.
    """

    stretches: tuple[Stretch, ...]
    rows: range | Array | None = None

    __repr__ = brief

    @classmethod
    def of(cls, file: object, n: int, line: Callable[[int], int] | None = None, *, guessed: bool = False) -> Origin:
        """All rows of one file."""
        return cls((Stretch(str(file), n, line, guessed),))

    @property
    def headerless(self) -> tuple[str, ...]:
        """The names of the files whose first line was taken for a row, though nobody said so."""
        return tuple(Path(part.file).name for part in self.stretches if part.guessed)

    @property
    def file(self) -> str:
        """The file, if these rows are all of one; else ""."""
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

    def some(self, index: Any) -> Origin:
        """Of these rows those at a slice, at indices, or where a mask is true."""
        if self.rows is None:
            every: Any = range(sum(part.n for part in self.stretches))
        else:
            every = self.rows
        if isinstance(index, slice):
            return replace(self, rows=every[index])
        chosen = np.asarray(index)
        rows = np.asarray(every)[chosen] if len(every) else chosen[:0]
        return replace(self, rows=rows)

    def place(self, row: int) -> str:
        """Where a row is, in words: its file, and the line or the row there."""
        if self.rows is None:
            at = row
        else:
            at = int(self.rows[row])
        for part in self.stretches:
            if at < part.n:
                return part.place(at)
            at -= part.n
        return f"row {row} (from 0 on)"
