"""The dialect of a text file: what separates its cells, and how its numbers are written.

Each file has its own dialect, so that a German file may be in a folder with others. The separator is the one that gives
all lines the same number of cells, most of them numbers. Points and commas are told apart by numbers in which they can
have only one meaning: 3,5 has a decimal comma, and 1.234.567 has points between thousands. If a file has 1.008 and no
other number settles what the point means, the file is refused until the user says it.
"""

from __future__ import annotations

import csv as tables
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import GAPS
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown

# In a column of numbers, these words stand for true and false in any case, and are not levels.
_WORDS: Final = {**{word.lower(): np.nan for word in GAPS}, "true": 1.0, "false": 0.0}
# Blanks that may separate thousands.
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
_BETWEEN: Final = (".", ",", "'", " ")  # what may separate thousands
_SEPARATORS: Final = (",", ";", "\t", "|")
_CUTS: Final = frozenset(_SEPARATORS)
SAMPLE: Final = 200  # lines from which the separator is found
_NUMBERS: Final = {  # how a number is written, and what this says about its marks
    # A number with thousands does not begin with 0, so 0.125 has decimals, whatever the other numbers are.
    "thousands have points": re.compile(r"[1-9]\d{0,2}(\.\d{3}){2,}(,\d*)?|[1-9]\d{0,2}\.\d{3},\d*"),
    "thousands have commas": re.compile(r"[1-9]\d{0,2}(,\d{3}){2,}(\.\d*)?|[1-9]\d{0,2},\d{3}\.\d*"),
    "either, by a point": re.compile(r"[1-9]\d{0,2}\.\d{3}"),
    "either, by a comma": re.compile(r"[1-9]\d{0,2},\d{3}"),
    # Blanks and apostrophes separate thousands only, so the mark after them stands before decimals.
    "decimals have points": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+)\.\d*(e[-+]?\d+)?", re.IGNORECASE),
    "decimals have commas": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+),\d*(e[-+]?\d+)?", re.IGNORECASE),
    "whole": re.compile(r"\d{1,3}"),
}
_CLEAR: Final = {"thousands have points", "thousands have commas", "decimals have points", "decimals have commas"}


@dataclass(frozen=True)
class Cells:
    """How a line is split into cells, and how a cell becomes a number.

    Attributes
    ----------
    sep : str
        The separator between cells.
    decimal : str
        The decimal mark.
    thousands : str
        The thousands separator, or "".
    gaps : frozenset of str
        The words that stand for a missing value, in addition to the usual ones.
    """

    sep: str
    decimal: str = "."
    thousands: str = ""
    gaps: frozenset[str] = frozenset()

    @classmethod
    def of(cls, sep: str, decimal: str, thousands: str | None, gaps: frozenset[str] = frozenset()) -> Cells:
        """Return the rules for a separator and a decimal mark. By default, the other mark may separate thousands."""
        if thousands is None:
            thousands = {".": ",", ",": "."}[decimal]
        return cls(sep, decimal, thousands, gaps)

    def value(self, cell: str) -> float:
        """Return the number in a cell: NaN if the value is missing, 1 and 0 for true and false.

        Raises
        ------
        ValueError
            If it is none.
        """
        number = cell
        if self.gaps and cell.strip() in self.gaps:
            return np.nan
        if self.thousands and self.thousands in (plain := cell.strip().translate(_BLANKS)):
            number = self._without_thousands(plain)
        if self.decimal == ",":
            if "." in number:  # A point would have to be a decimal comma.
                raise ValueError(cell)
            number = number.replace(",", ".")
        try:
            found = float(number)
        except ValueError:
            word = cell.strip().lower()
            if word in _WORDS:
                return _WORDS[word]
            raise
        if "_" in cell:  # Only Python reads underscores in numbers.
            raise ValueError(cell)
        return found

    def _without_thousands(self, cell: str) -> str:
        """Remove the marks between thousands, which must separate groups of three digits."""
        between, before = re.escape(self.thousands), re.escape(self.decimal)
        if not re.fullmatch(rf"[-+]?\d{{1,3}}({between}\d{{3}})+({before}\d*)?", cell):
            raise ValueError(cell)
        return cell.replace(self.thousands, "")

    def number(self, cell: str) -> bool:
        """Return whether a cell holds a number or a missing value."""
        return not self.words([cell])

    def words(self, cells: Iterable[str]) -> list[str]:
        """Return the cells that are not numbers."""
        found = []
        for cell in cells:
            try:
                self.value(cell)
            except ValueError:
                found.append(cell)
        return found

    def plain(self, cells: Sequence[str]) -> Array:
        """Return labels as numbers if all of them are numbers, else as text. Codes such as 007 stay text."""
        if all(self.number(cell) and cell.strip() for cell in cells):
            values = [self.value(cell) for cell in cells]
            if all(_says(value, cell.strip()) for value, cell in zip(values, cells, strict=True)):
                return np.array(values)
        return np.array(cells)


def _says(value: float, cell: str) -> bool:
    """Return whether a number keeps all of a cell: no leading zeros, and no digits beyond 2^53."""
    return not (cell.isascii() and cell.isdigit()) or f"{value:.0f}" == cell


def separator_above(line: str) -> str:
    """Return the separator that a first line such as sep=; gives to Excel, or ""."""
    found = re.fullmatch(r'"?sep=(.)"?\s*', line)
    if found is None:
        return ""
    return found[1]


def check_marks(sep: object, decimal: object, thousands: object) -> None:
    """Refuse a separator, a decimal mark or a thousands mark that is invalid."""
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n'):
        raise ConfigError(
            f"sep is {shown(sep)}, but it must be one character. Write sep=';'.", setting="sep", value=sep
        )
    if decimal not in (None, ".", ","):
        raise ConfigError(
            f"decimal is {shown(decimal)}, but it must be '.' or ','. Write decimal=','.",
            setting="decimal",
            value=decimal,
        )
    if thousands not in (None, "", *_BETWEEN) or (thousands and thousands == decimal):
        raise ConfigError(
            f"thousands is {shown(thousands)}, and it must be '.', ',', \"'\" or ' ', different from decimal. Write "
            "thousands='.'.",
            setting="thousands",
            value=thousands,
        )


def find_separator(lines: Sequence[str], decimal: str | None) -> str:
    """Return the separator that splits the first lines into equally many cells, most of them numbers."""
    best, usual = (0.0, 0.0), ","
    if decimal == ",":
        usual = ";"
    for sep in _SEPARATORS:
        if sep == decimal:
            continue
        try:
            records = [record for record in tables.reader(lines, delimiter=sep) if record]
        except tables.Error:
            # A separator that a long line does not have leaves one cell, which may be too long for the csv reader.
            continue
        if len({len(record) for record in records}) == 1 and len(records[0]) > 1:
            # The first record may hold names, which would count against the right separator.
            fit = _fit(records[1:] or records, sep, decimal)
            if fit > best:
                best, usual = fit, sep
    return usual


def _fit(records: Sequence[Sequence[str]], sep: str, decimal: str | None) -> tuple[float, float]:
    """Rate a separator: the share of cells that are numbers, and minus the share that another separator would split."""
    every = [cell for record in records for cell in record if cell.strip()]
    most, odd = 0, len(every)
    for mark in decimal or ".,":
        words = Cells(sep, mark).words(every)
        if len(every) - len(words) >= most:
            most = len(every) - len(words)
            odd = len([cell for cell in words if not _CUTS.isdisjoint(cell)])
        if not words:
            break
    size = max(len(every), 1)
    # The search starts from (0, 0), which a table without any number still has to beat.
    return most / size + 1e-9, -odd / size


@dataclass
class Marks:
    """What the numbers of a file show about points and commas: the first number of each kind, and its place.

    Attributes
    ----------
    first : dict
        For each kind: the cell, its line, and the position of its column.
    columns : defaultdict
        For each kind: the columns that have such numbers.
    """

    first: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    columns: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, records: Iterable[Sequence[str]]) -> Marks:
        """Return what the cells of these records show."""
        marks = cls()
        for line, record in enumerate(records):
            marks.add(line, enumerate(record))
        return marks

    def add(self, line: int, cells: Iterable[tuple[int, str]]) -> None:
        """Look at cells of a line, each with its position."""
        for place, cell in cells:
            digits = cell.strip().translate(_BLANKS).lstrip("+-")
            if not digits or (not digits[0].isdigit() and digits[0] not in ".,"):
                continue
            # Kinds are tried in this order, because 1.008, which is unclear, also has the form of a decimal.
            for kind, written in _NUMBERS.items():
                if written.fullmatch(digits):
                    self.first.setdefault(kind, (cell.strip(), line, place))
                    self.columns[kind].add(place)
                    break

    def __contains__(self, kind: str) -> bool:
        return kind in self.first

    @property
    def decimal(self) -> str:
        """The mark before decimals: a comma if some numbers show that and no number shows a point, else a point."""
        german = "thousands have points" in self or "decimals have commas" in self
        english = "thousands have commas" in self or "decimals have points" in self
        if german and not english:
            return ","
        return "."

    @property
    def clear(self) -> bool:
        """Whether some number shows which mark stands before decimals."""
        return bool(_CLEAR & self.first.keys())

    def unclear(self, sep: str) -> tuple[str, int, int] | None:
        """Return the first number whose mark may separate thousands, or None if other numbers settle it."""
        if self.clear:
            return None
        if "either, by a comma" in self:
            return self.first["either, by a comma"]
        # In a file with commas between cells, all numbers may have three decimals. A whole number such as 950 above
        # 1.008 makes that unlikely.
        if sep == "," and not self.columns["either, by a point"] & self.columns["whole"]:
            return None
        return self.first.get("either, by a point")
