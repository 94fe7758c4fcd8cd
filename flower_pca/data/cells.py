"""Cells of a text file: what stands between them, and what number each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array

_GAPS: Final = ("", "na", "n/a", "nan", "null", "none")  # what stands in files for a value that is missing


@dataclass(frozen=True)
class Cells:
    """How a line is cut into cells, and what number a cell is."""

    sep: str
    decimal: str

    @classmethod
    def of(cls, sep: object, decimal: object) -> Cells:
        """From the options: without `sep` there is a comma between two cells, or a semicolon where decimals have it."""
        if decimal not in (".", ","):
            raise ConfigError("decimal", must="'.' or ','", got=repr(decimal), then="Write decimal=','.")
        between = (";" if decimal == "," else ",") if sep is None else sep
        if not isinstance(between, str) or len(between) != 1 or between in '"\r\n':
            raise ConfigError("sep", must="one character", got=repr(sep), then="Write sep=';'.")
        return cls(between, str(decimal))

    def value(self, cell: str) -> float:
        """The number; NaN of a gap.

        Raises:
            ValueError: If it is none.
        """
        if self.decimal == ",":
            if "." in cell:  # between thousands, or instead of the comma: nobody can tell
                raise ValueError(cell)
            cell = cell.replace(",", ".")
        try:
            number = float(cell)
        except ValueError:
            if cell.strip().lower() in _GAPS:
                return np.nan
            raise
        if "_" in cell:  # which only Python reads
            raise ValueError(cell)
        return number

    def number(self, cell: str) -> bool:
        """Whether it is a number or a gap."""
        try:
            self.value(cell)
        except ValueError:
            return False
        return True

    def plain(self, cells: Sequence[str]) -> Array:
        """Labels as numbers where all of them are, else as text."""
        numbers = all(self.number(cell) and cell.strip() for cell in cells)
        return np.array([self.value(cell) for cell in cells]) if numbers else np.array(cells)
