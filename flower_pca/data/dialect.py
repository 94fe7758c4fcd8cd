"""Detect the dialect of a text file: the separator between its cells, and the format of its numbers.

Each file has its own dialect, so a folder may hold German files and English files. The separator is the one that gives
all lines the same number of cells, most of them numbers. The meaning of points and commas follows from numbers that can
be read in only one way: 3,5 has a decimal comma, and 1.234.567 has points between thousands. If a file has 1.008 and no
other number settles what the point means, the file is refused until the user sets the decimal mark.
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

# These words count as numbers or missing values, in upper and lower case. They are not levels of a categorical column.
_WORDS: Final = {**{word.lower(): np.nan for word in GAPS}, "true": 1.0, "false": 0.0}
# Typographic blanks and apostrophes between thousands are replaced by plain blanks and apostrophes.
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
_BETWEEN: Final = (".", ",", "'", " ")  # the possible thousands separators
_SEPARATORS: Final = (",", ";", "\t", "|")
_CUTS: Final = frozenset(_SEPARATORS)
SAMPLE: Final = 200  # number of lines from which the separator is detected
_NUMBERS: Final = {  # the formats of numbers, by what they reveal about the meaning of points and commas
    # A number with a thousands separator does not begin with 0, so the point of 0.125 must be a decimal mark.
    "thousands have points": re.compile(r"[1-9]\d{0,2}(\.\d{3}){2,}(,\d*)?|[1-9]\d{0,2}\.\d{3},\d*"),
    "thousands have commas": re.compile(r"[1-9]\d{0,2}(,\d{3}){2,}(\.\d*)?|[1-9]\d{0,2},\d{3}\.\d*"),
    "either, by a point": re.compile(r"[1-9]\d{0,2}\.\d{3}"),
    "either, by a comma": re.compile(r"[1-9]\d{0,2},\d{3}"),
    # Blanks and apostrophes only separate thousands, so a point or comma after them is the decimal mark.
    "decimals have points": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+)\.\d*(e[-+]?\d+)?", re.IGNORECASE),
    "decimals have commas": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+),\d*(e[-+]?\d+)?", re.IGNORECASE),
    "whole": re.compile(r"\d{1,3}"),
}
_CLEAR: Final = {"thousands have points", "thousands have commas", "decimals have points", "decimals have commas"}


@dataclass(frozen=True)
class CellRules:
    """The rules for splitting a line into cells and for converting a cell to a number.

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
    def from_separator(cls, sep: str, decimal: str, thousands: str | None) -> CellRules:
        """Return the rules for a separator and a decimal mark.

        If `thousands` is None, the thousands separator is "," if the decimal mark is ".", and "." if it is ",".
        """
        if thousands is None:
            thousands = {".": ",", ",": "."}[decimal]
        return cls(sep, decimal, thousands)

    def parse_cell(self, cell: str) -> float:
        """Return the number in a cell: NaN for a missing value, 1 for true and 0 for false.

        Raises
        ------
        ValueError
            If the cell holds neither a number nor one of these words.
        """
        number = cell
        if self.gaps and cell.strip() in self.gaps:
            return np.nan
        if self.thousands and self.thousands in (plain := cell.strip().translate(_BLANKS)):
            number = self._without_thousands(plain)
        if self.decimal == ",":
            if "." in number:  # The decimal mark is a comma, so a remaining point has no meaning.
                raise ValueError(cell)
            number = number.replace(",", ".")
        try:
            found = float(number)
        except ValueError:
            word = cell.strip().lower()
            if word in _WORDS:
                return _WORDS[word]
            raise
        if "_" in cell:  # Python accepts underscores in numbers, but data files do not use them.
            raise ValueError(cell)
        return found

    def _without_thousands(self, cell: str) -> str:
        """Remove the thousands separators, which must separate groups of three digits."""
        between, before = re.escape(self.thousands), re.escape(self.decimal)
        if not re.fullmatch(rf"[-+]?\d{{1,3}}({between}\d{{3}})+({before}\d*)?", cell):
            raise ValueError(cell)
        return cell.replace(self.thousands, "")

    def is_number(self, cell: str) -> bool:
        """Return whether a cell holds a number or a missing value."""
        return not self.words_among([cell])

    def words_among(self, cells: Iterable[str]) -> list[str]:
        """Return the cells that hold neither a number nor a missing value."""
        found = []
        for cell in cells:
            try:
                self.parse_cell(cell)
            except ValueError:
                found.append(cell)
        return found

    def as_labels(self, cells: Sequence[str]) -> Array:
        """Return labels as numbers if all of them are numbers, else as text. Codes such as 007 stay text."""
        if all(self.is_number(cell) and cell.strip() for cell in cells):
            values = [self.parse_cell(cell) for cell in cells]
            if all(_keeps_digits(value, cell.strip()) for value, cell in zip(values, cells, strict=True)):
                return np.array(values)
        return np.array(cells)


def _keeps_digits(value: float, cell: str) -> bool:
    """Return whether a float has not lost a digit of a cell: a leading zero, or a digit of an integer above 2^53."""
    return not (cell.isascii() and cell.isdigit()) or f"{value:.0f}" == cell


def separator_above(line: str) -> str:
    """Return the separator that a first line such as sep=; declares for Excel, or "" for any other line."""
    found = re.fullmatch(r'"?sep=(.)"?\s*', line)
    if found is None:
        return ""
    return found[1]


def check_marks(sep: object, decimal: object, thousands: object) -> None:
    """Raise a ConfigError if the separator, the decimal mark or the thousands separator is invalid."""
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n'):
        raise ConfigError(
            f"sep is {shown(sep)}, but it must be one character. For example, write sep=';'.", setting="sep", value=sep
        )
    if decimal not in (None, ".", ","):
        raise ConfigError(
            f"decimal is {shown(decimal)}, but it must be '.' or ','. For example, write decimal=','.",
            setting="decimal",
            value=decimal,
        )
    if thousands not in (None, "", *_BETWEEN) or (thousands and thousands == decimal):
        raise ConfigError(
            f"thousands is {shown(thousands)}, but it must be '.', ',', \"'\" or ' ' and differ from decimal. For "
            "example, write thousands=' ', or leave thousands out.",
            setting="thousands",
            value=thousands,
        )


def find_separator(lines: Sequence[str], decimal: str | None) -> str:
    """Return the separator that splits all of these lines into the same number of cells, most of them numbers."""
    best, usual = (0.0, 0.0), ","
    if decimal == ",":
        usual = ";"
    for sep in _SEPARATORS:
        if sep == decimal:
            continue
        try:
            records = [record for record in tables.reader(lines, delimiter=sep) if record]
        except tables.Error:
            # If a long line lacks this separator, it is a single cell, which may be too long for the csv reader.
            continue
        if len({len(record) for record in records}) == 1 and len(records[0]) > 1:
            # The first record may hold names, which would count against the right separator.
            fit = _rate_separator(records[1:] or records, sep, decimal)
            if fit > best:
                best, usual = fit, sep
    return usual


def _rate_separator(records: Sequence[Sequence[str]], sep: str, decimal: str | None) -> tuple[float, float]:
    """Rate a separator by two numbers, of which the first one matters more.

    They are the share of cells that are numbers, and minus the share of cells that another separator would split.
    """
    every = [cell for record in records for cell in record if cell.strip()]
    most, odd = 0, len(every)
    for mark in decimal or ".,":
        words = CellRules(sep, mark).words_among(every)
        if len(every) - len(words) >= most:
            most = len(every) - len(words)
            odd = len([cell for cell in words if not _CUTS.isdisjoint(cell)])
        if not words:
            break
    size = max(len(every), 1)
    # The search for the best separator starts from (0, 0), and even a table without numbers must be rated higher.
    return most / size + 1e-9, -odd / size


@dataclass
class DecimalEvidence:
    """The evidence that the numbers of a file give about the meaning of points and commas.

    Attributes
    ----------
    first : dict
        The first number of each kind: the cell, its line, and the position of its column.
    columns : defaultdict
        The positions of the columns that hold numbers of each kind.
    """

    first: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    columns: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def from_records(cls, records: Iterable[Sequence[str]]) -> DecimalEvidence:
        """Return the evidence from the cells of these records."""
        marks = cls()
        for line, record in enumerate(records):
            marks.add(line, enumerate(record))
        return marks

    def add(self, line: int, cells: Iterable[tuple[int, str]]) -> None:
        """Add the evidence from some cells of a line, each given with its position."""
        for place, cell in cells:
            digits = cell.strip().translate(_BLANKS).lstrip("+-")
            if not digits or (not digits[0].isdigit() and digits[0] not in ".,"):
                continue
            # The order matters: 1.008 matches an unclear kind first, but would also match a later kind with decimals.
            for kind, written in _NUMBERS.items():
                if written.fullmatch(digits):
                    self.first.setdefault(kind, (cell.strip(), line, place))
                    self.columns[kind].add(place)
                    break

    def __contains__(self, kind: str) -> bool:
        return kind in self.first

    @property
    def decimal(self) -> str:
        """The decimal mark: a comma if some number shows a comma and no number shows a point, else a point."""
        german = "thousands have points" in self or "decimals have commas" in self
        english = "thousands have commas" in self or "decimals have points" in self
        if german and not english:
            return ","
        return "."

    @property
    def is_clear(self) -> bool:
        """Whether some number shows which mark is the decimal mark."""
        return bool(_CLEAR & self.first.keys())

    def first_unclear(self, sep: str) -> tuple[str, int, int] | None:
        """Return the first number whose mark may separate thousands, or None if other numbers settle its meaning."""
        if self.is_clear:
            return None
        if "either, by a comma" in self:
            return self.first["either, by a comma"]
        # In a file with commas between cells, the point is taken as the decimal mark, because all numbers may have
        # three decimals. A whole number such as 950 in the same column as 1.008 makes that unlikely.
        if sep == "," and not self.columns["either, by a point"] & self.columns["whole"]:
            return None
        return self.first.get("either, by a point")
