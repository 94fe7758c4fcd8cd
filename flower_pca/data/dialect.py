"""How a text file is written: what stands between its cells, and what number a cell is.

Each file has its own dialect, so that a German one may lie among others: what nobody has said of it
is found in it. The separator is the one by which all lines have as many cells, and most of these
are numbers. Of points and commas in numbers it is asked which can only stand before decimals (3,5)
or between thousands (1.234.567): where a file has 1.008, and nothing else in it says which of both
that is, it is refused until somebody says so.
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

# among numbers they are no levels, and may be written in any case
_WORDS: Final = {**{word.lower(): np.nan for word in GAPS}, "true": 1.0, "false": 0.0}
# Blanks that separate thousands.
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
_BETWEEN: Final = (".", ",", "'", " ")  # what may stand between thousands
_SEPARATORS: Final = (",", ";", "\t", "|")
_CUTS: Final = frozenset(_SEPARATORS)
SAMPLE: Final = 200  # lines by which the separator is found
_NUMBERS: Final = {  # how a number is written, and what that says of its marks
    # Thousands begin with no zero: 0.125 has decimals, whatever else the file says.
    "thousands have points": re.compile(r"[1-9]\d{0,2}(\.\d{3}){2,}(,\d*)?|[1-9]\d{0,2}\.\d{3},\d*"),
    "thousands have commas": re.compile(r"[1-9]\d{0,2}(,\d{3}){2,}(\.\d*)?|[1-9]\d{0,2},\d{3}\.\d*"),
    "either, by a point": re.compile(r"[1-9]\d{0,2}\.\d{3}"),
    "either, by a comma": re.compile(r"[1-9]\d{0,2},\d{3}"),
    # Blanks and apostrophes part thousands only, so that the mark behind them is that of decimals.
    "decimals have points": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+)\.\d*(e[-+]?\d+)?", re.IGNORECASE),
    "decimals have commas": re.compile(r"(\d*|[1-9]\d{0,2}([ ']\d{3})+),\d*(e[-+]?\d+)?", re.IGNORECASE),
    "whole": re.compile(r"\d{1,3}"),
}
_CLEAR: Final = {"thousands have points", "thousands have commas", "decimals have points", "decimals have commas"}


@dataclass(frozen=True)
class Cells:
    """How a line is cut into cells, and what number a cell is.

    Attributes
    ----------
    sep : str
        What stands between two cells.
    decimal : str
        What stands before decimals.
    thousands : str
        What may stand between thousands; "" for nothing.
    gaps : frozenset of str
        The words that stand for a missing value, beside those that always do.
    """

    sep: str
    decimal: str = "."
    thousands: str = ""
    gaps: frozenset[str] = frozenset()

    @classmethod
    def of(cls, sep: str, decimal: str, thousands: str | None, gaps: frozenset[str] = frozenset()) -> Cells:
        """Of points and commas, the one that does not stand before decimals may part thousands."""
        if thousands is None:
            thousands = {".": ",", ",": "."}[decimal]
        return cls(sep, decimal, thousands, gaps)

    def value(self, cell: str) -> float:
        """The number; NaN of a gap, 1 and 0 of true and false.

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
            if "." in number:  # instead of the comma
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
        """The number without what stands between thousands, which must be there every three digits."""
        between, before = re.escape(self.thousands), re.escape(self.decimal)
        if not re.fullmatch(rf"[-+]?\d{{1,3}}({between}\d{{3}})+({before}\d*)?", cell):
            raise ValueError(cell)
        return cell.replace(self.thousands, "")

    def number(self, cell: str) -> bool:
        """Whether it is a number or a gap."""
        return not self.words([cell])

    def words(self, cells: Iterable[str]) -> list[str]:
        """Those of these cells that are no numbers."""
        found = []
        for cell in cells:
            try:
                self.value(cell)
            except ValueError:
                found.append(cell)
        return found

    def plain(self, cells: Sequence[str]) -> Array:
        """Labels as numbers where all of them are, else as text; so are codes such as 007, which no number says."""
        if all(self.number(cell) and cell.strip() for cell in cells):
            values = [self.value(cell) for cell in cells]
            if all(_says(value, cell.strip()) for value, cell in zip(values, cells, strict=True)):
                return np.array(values)
        return np.array(cells)


def _says(value: float, cell: str) -> bool:
    """Whether a number says what stands in a cell: no zeros in front are lost, and no digits beyond 2^53."""
    return not (cell.isascii() and cell.isdigit()) or f"{value:.0f}" == cell


def separator_above(line: str) -> str:
    """The separator that Excel is told in a first line such as sep=;, or ""."""
    found = re.fullmatch(r'"?sep=(.)"?\s*', line)
    if found is None:
        return ""
    return found[1]


def check_marks(sep: object, decimal: object, thousands: object) -> None:
    """Refuse a separator, or marks in numbers, that are none."""
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n'):
        raise ConfigError(
            f"sep is {shown(sep)}, and it must be one character. Write sep=';'.", setting="sep", value=sep
        )
    if decimal not in (None, ".", ","):
        raise ConfigError(
            f"decimal is {shown(decimal)}, and it must be '.' or ','. Write decimal=','.",
            setting="decimal",
            value=decimal,
        )
    if thousands not in (None, "", *_BETWEEN) or (thousands and thousands == decimal):
        raise ConfigError(
            f"thousands is {shown(thousands)}, and it must be '.', ',', \"'\" or ' ', and another mark than decimal. "
            "Write thousands='.'.",
            setting="thousands",
            value=thousands,
        )


def find_separator(lines: Sequence[str], decimal: str | None) -> str:
    """What stands between two cells, by the first lines of a file: what cuts them alike, and into most numbers."""
    best, usual = (0.0, 0.0), ","
    if decimal == ",":
        usual = ";"
    for sep in _SEPARATORS:
        if sep == decimal:
            continue
        try:
            records = [record for record in tables.reader(lines, delimiter=sep) if record]
        except tables.Error:
            # A separator that a long line does not have leaves one cell, longer than the reader takes.
            continue
        if len({len(record) for record in records}) == 1 and len(records[0]) > 1:
            # The first one may be names, which would count against a separator that is right.
            fit = _fit(records[1:] or records, sep, decimal)
            if fit > best:
                best, usual = fit, sep
    return usual


def _fit(records: Sequence[Sequence[str]], sep: str, decimal: str | None) -> tuple[float, float]:
    """The share of cells that are numbers; and, the fewer the better, of those that another separator would cut."""
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
    # A table without any number still beats the pair (0, 0) that the search starts from.
    return most / size + 1e-9, -odd / size


@dataclass
class Marks:
    """What the numbers of a file say of their points and commas: of each kind of number the first
    one, and its place.

    Attributes
    ----------
    first : dict
        By the kind: the cell, its line, and its column by position.
    columns : defaultdict
        By the kind: the columns that have such numbers.
    """

    first: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    columns: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, records: Iterable[Sequence[str]]) -> Marks:
        """What the cells of these records show."""
        marks = cls()
        for line, record in enumerate(records):
            marks.add(line, enumerate(record))
        return marks

    def add(self, line: int, cells: Iterable[tuple[int, str]]) -> None:
        """Look at cells of a line, each with its place."""
        for place, cell in cells:
            digits = cell.strip().translate(_BLANKS).lstrip("+-")
            if not digits or (not digits[0].isdigit() and digits[0] not in ".,"):
                continue
            # In their order: 1.008, which may be either, is written as decimals are, too.
            for kind, written in _NUMBERS.items():
                if written.fullmatch(digits):
                    self.first.setdefault(kind, (cell.strip(), line, place))
                    self.columns[kind].add(place)
                    break

    def __contains__(self, kind: str) -> bool:
        return kind in self.first

    @property
    def decimal(self) -> str:
        """What stands before decimals: a comma where some numbers say so, and none a point."""
        german = "thousands have points" in self or "decimals have commas" in self
        english = "thousands have commas" in self or "decimals have points" in self
        if german and not english:
            return ","
        return "."

    @property
    def clear(self) -> bool:
        """Whether some numbers show what stands before decimals."""
        return bool(_CLEAR & self.first.keys())

    def unclear(self, sep: str) -> tuple[str, int, int] | None:
        """The first number that may be a thousand times another, if nothing says which."""
        if self.clear:
            return None
        if "either, by a comma" in self:
            return self.first["either, by a comma"]
        # In a file of commas all numbers may well have three decimals; 950 above 1.008 says no.
        if sep == "," and not self.columns["either, by a point"] & self.columns["whole"]:
            return None
        return self.first.get("either, by a point")
