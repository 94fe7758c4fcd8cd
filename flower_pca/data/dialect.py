"""How a text file is written: its encoding, what stands between its cells, what number a cell is,
and its first line.

Text may have a byte-order mark, the encoding that is given, or UTF-8. What cannot be decoded is
named by its line and its byte, with the option that may read it.

Each file has its own dialect, so that a German one may lie among others: what nobody has said of it
is found in it. The separator is the one by which all lines have as many cells, and most of these
are numbers. Of points and commas in numbers it is asked which can only stand before decimals (3,5)
or between thousands (1.234.567): where a file has 1.008, and nothing else in it says which of both
that is, it is refused until somebody says so.

A first line of numbers is a row as the others, or names that happen to be numbers: wave numbers,
times and years look like values, and a row too many turns the components without a word. So a line
is refused whose numbers are unlike those below: far from them in all columns, or going up, going
down or in equal steps, as hardly a line below does. What is rare among n rows is the first one's by
accident about once in n.
"""

from __future__ import annotations

import codecs
import csv as tables
import gzip
import io
import itertools
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import GAPS
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.data.reading import ending, stem

# among numbers they are no levels, and may be written in any case
_WORDS: Final = {**{word.lower(): np.nan for word in GAPS}, "true": 1.0, "false": 0.0}
# as they stand in thousands
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
        if "_" in cell:  # which only Python reads
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


_LINES, _CELLS = 200, 2**18  # that are looked at, at most
_FEWEST: Final = 5  # lines below from which something can be said
# lines below among which something that happens to few columns by accident would be seen
_MANY: Final = 100
_RARE: Final = 0.01  # of the lines below
_FAR: Final = 5.0  # spreads of a column


def require_clear(file: Path, first: Sequence[str], below: Iterable[Sequence[str]], cells: Cells) -> None:
    """Refuse a first line that may be names or values: years, codes, unlike numbers."""
    # pandas writes its index below an empty cell.
    index = len(first) > 1 and not first[0].strip()
    codes = first[index:]
    if len(codes) < 2 or not all(code.strip() and cells.number(code) for code in codes):
        return
    most = max(min(_LINES, _CELLS // len(first)), _FEWEST)
    second, *more = itertools.islice(below, most)
    beside: Sequence[str] = second
    got = ""
    if index:  # below an index, whole numbers count columns or say nothing
        beside, got = (), "an empty cell and "
    what = _whole(codes, beside)
    if not what:
        alike = [line for line in (second, *more) if len(line) == len(first)]
        lines = [line[index:] for line in alike]
        what = _unlike(_numbers([codes], cells)[0], _numbers(lines, cells))
    if what:
        got += what
        raise DataError(
            f"The first line of {file} may be names or values: it has {got}. Write csv(path={str(file)!r}, "
            "header=True) or header=False; of a folder, folder(..., header=True).",
            place=str(file),
        )


def _whole(codes: Sequence[str], second: Sequence[str]) -> str:
    """Different whole numbers that count columns, as pandas does, or stand above broken ones."""
    if len(set(codes)) != len(codes) or not all(re.fullmatch(r"\s*\d+\s*", code) for code in codes):
        return ""
    counted = [int(code) for code in codes] == list(range(len(codes)))
    if counted or any(map(_broken, second)):
        return "different whole numbers"
    return ""


def _broken(cell: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+\s*", cell) is None and Cells(",").number(cell)


def _unlike(first: Array, rows: Array) -> str:
    """In what a line is unlike the rows below it, in words; "" where it is like them."""
    n, d = rows.shape
    if n < _FEWEST or not np.isfinite(first).all():
        return ""
    for words, has, fewest in (("go up", _up, 5), ("go down", _down, 5), ("go in equal steps", _even, 3)):
        if n >= _MANY:
            fewest = 3
        if d >= fewest and has(first[None])[0] and has(rows).mean() <= _RARE:
            return f"numbers that {words}, unlike those of the lines below"
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    spread = high - low
    varies = spread > 0.0
    beyond = np.maximum(low - first, first - high)
    far = beyond[varies] > _FAR * spread[varies]
    if varies.sum() >= 2 and far.all():
        return "numbers far from those of the lines below"
    return ""


def _up(rows: Array) -> Array:
    return np.asarray((np.diff(rows) > 0.0).all(axis=1))


def _down(rows: Array) -> Array:
    return _up(-rows)


def _even(rows: Array) -> Array:
    steps = np.diff(rows)
    first = steps[:, :1]
    even = np.abs(steps - first) <= 1e-6 * np.abs(first)
    return np.asarray((steps[:, 0] != 0.0) & even.all(axis=1))


def _numbers(lines: Sequence[Sequence[str]], cells: Cells) -> Array:
    """The cells as numbers; NaN of gaps, and of those that are none."""
    number, value = cells.number, cells.value
    values = [[value(cell) if number(cell) else np.nan for cell in line] for line in lines]
    return np.array(values, dtype=np.float64).reshape(len(lines), -1)


_MARKS: Final = {  # the longer ones first: that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# what to try next
_OTHER: Final = {"utf-16": "utf-8", "utf-32": "utf-8", "latin-1": "cp1252"}
_LOOK: Final = 4096  # bytes that are looked at for what a file is
_PACKED: Final = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@contextmanager
def text_of(file: Path, encoding: str | None) -> Iterator[TextIO]:
    """The file, opened as text; errors about bytes say where they are, and what to do."""
    usual = "utf-8"
    if encoding is not None:
        usual = _codec(encoding)
    with bytes_of(file) as raw:
        start = raw.read(_LOOK)
    marked = (name for mark, name in _MARKS.items() if start.startswith(mark))
    used = next(marked, usual)
    _require_text(file, start, used, given=encoding is not None)
    try:
        # The csv module wants ends of lines as they are: a cell in quotes may have some.
        with bytes_of(file) as raw, io.TextIOWrapper(raw, encoding=used, newline="") as lines:
            yield lines
    except UnicodeError as error:
        got = _place(file, used) or f"bytes that are none ({getattr(error, 'reason', error)})"
        remedy = f"{option(file, encoding=_OTHER.get(used, 'latin-1'))}, or the encoding that it has."
        raise DataError(
            f"The data file {file} is not text in {_words(used)}: it has {got}. {remedy}", place=str(file)
        ) from error


@contextmanager
def bytes_of(file: Path) -> Iterator[Any]:
    """The bytes of a text file, also of one that is packed by gzip or zip."""
    kind = ending(file)
    if kind.endswith(".gz"):
        with gzip.open(file, "rb") as raw:
            yield raw
    elif kind.endswith(".zip"):
        with zipfile.ZipFile(file) as archive:
            # macOS packs a folder of its own beside what it is given.
            inside = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
            if len(inside) != 1:
                raise DataError(
                    f"{file} holds {labels.count(len(inside), 'file')}. Unpack it, or pack one table into a zip file."
                )
            if archive.getinfo(inside[0]).flag_bits & 1:
                raise DataError(f"{file} is encrypted. Unpack it with its password first.")
            with archive.open(inside[0]) as raw:
                yield raw
    else:
        with file.open("rb") as raw:
            yield raw


def option(file: Path, **options: Any) -> str:
    """How to read the file with these options, alone or in a folder."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    of_this = ", ".join(f"{name}={ {stem(file): value}!r}" for name, value in options.items())
    return f"Write csv(path={str(file)!r}, {given}); of a folder, folder(..., {of_this})"


def _codec(encoding: object) -> str:
    try:
        if not isinstance(encoding, str):
            raise LookupError(encoding)
        found = codecs.lookup(encoding)
        # Python has hex and zip under such names as well, which make no text.
        if not found._is_text_encoding:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"encoding is {shown(encoding)}, and it must be the name of an encoding, such as 'utf-8', 'latin-1' or "
            "'utf-16'. Write encoding='latin-1'.",
            setting="encoding",
            value=encoding,
        ) from error
    return {"iso8859-1": "latin-1"}.get(found.name, found.name)


def _require_text(file: Path, start: bytes, used: str, *, given: bool) -> None:
    """Refuse a packed file, or one with zeros between its letters, as UTF-16 has without a mark."""
    marked = (name for mark, name in _PACKED.items() if start.startswith(mark))
    packed = next(marked, None)
    if packed is not None:
        raise DataError(f"The data file {file} is packed by {packed}. Unpack it.", place=str(file))
    # There zeros belong to letters.
    if "16" in used or "32" in used or b"\0" not in start:
        return
    remedy = "Mend the line, or name the source by a spec that reads this kind of file."
    # UTF-16 has a zero in every other byte of Latin letters; a few are a damaged line.
    if not given and 4 * start.count(0) >= len(start):
        order = "utf-16-be"
        # Latin letters have their zero second
        if start[1::2].count(0) >= start[::2].count(0):
            order = "utf-16-le"
        remedy = f"{option(file, encoding=order)} if it is in UTF-16."
    line = start[: start.index(0)].count(b"\n") + 1
    raise DataError(
        f"The data file {file} has a zero byte in line {line}, so it is not text. {remedy}", place=str(file)
    )


def _place(file: Path, used: str) -> str:
    """The first byte that is none of this encoding, and its line; "" where lines cannot be told before decoding."""
    if "16" in used or "32" in used:
        return ""
    with bytes_of(file) as raw:
        for number, line in enumerate(raw, 1):
            try:
                # The mark counts as a letter here, so that bytes of the first line keep their places.
                line.decode(used.removesuffix("-sig"))
            except UnicodeError as error:
                at = getattr(error, "start", 0)
                return f"the byte 0x{line[at]:02x} in line {number} (byte {at + 1} of it)"
    return ""


def _words(used: str) -> str:
    if used.startswith("utf"):
        return used.removesuffix("-sig").upper()
    return used
