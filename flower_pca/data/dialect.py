"""How a text file is written: its encoding, what stands between its cells, what number a cell is, and its first line.

Text may have a byte-order mark, the encoding that is given, or UTF-8. What cannot be decoded is named by its line and
its byte, with the option that may read it.

A first line of numbers is a row as the others, or names that happen to be numbers: wave numbers, times and years look
like values, and a row too many turns the components without a word. So a line is refused whose numbers are unlike
those below: far from them in all columns, or going up, going down or in equal steps, as hardly a line below does. What
is rare among n rows is the first one's by accident about once in n.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
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


_WHOLE: Final = r"\s*\d+\s*"
_LINES, _CELLS = 200, 2**18  # that are looked at, at most
_FEWEST: Final = 5  # lines below from which something can be said
_MANY: Final = 100  # lines below among which something that happens to few columns by accident would be seen
_RARE: Final = 0.01  # of the lines below
_FAR: Final = 5.0  # spreads of a column


def require_clear(file: Path, first: Sequence[str], below: Iterable[Sequence[str]], cells: Cells) -> None:
    """Refuse a first line that may be names or values: years, codes, or numbers unlike those below."""
    index = len(first) > 1 and not first[0].strip()
    codes = first[1:] if index else first
    if len(codes) < 2 or not all(code.strip() and cells.number(code) for code in codes):
        return
    second, *more = itertools.islice(below, max(min(_LINES, _CELLS // len(first)), _FEWEST)) or ([],)
    what = _whole(codes, () if index else second)
    if not what:
        lines = [line[index:] for line in (second, *more) if len(line) == len(first)]
        what = _unlike(_numbers([codes], cells)[0], _numbers(lines, cells))
    if what:
        got = f"{'an empty cell and ' if index else ''}{what.format(', '.join(codes[:3]))}"
        remedy = f"Write csv(path={str(file)!r}, header=True) or header=False; of a folder, folder(..., header=True)."
        raise DataError(f"The first line of {file}", must="clearly names, or clearly values", got=got, then=remedy)


def _whole(codes: Sequence[str], second: Sequence[str]) -> str:
    """Different whole numbers that count columns, as pandas does, or that stand above broken ones."""
    if len(set(codes)) != len(codes) or not all(re.fullmatch(_WHOLE, code) for code in codes):
        return ""
    counted = [int(code) for code in codes] == list(range(len(codes)))
    return "whole numbers, {}, ..." if counted or any(map(_broken, second)) else ""


def _broken(cell: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d+\s*", cell) is None and Cells(",", ".").number(cell)


def _unlike(first: Array, rows: Array) -> str:
    """In what a line is unlike the rows below it, in words; "" where it is like them."""
    n, d = rows.shape
    if n < _FEWEST or not np.isfinite(first).all():
        return ""
    orders = {"go up": (_up, 5), "go down": (_down, 5), "go in equal steps": (_even, 3)}
    for words, (has, fewest) in orders.items():
        if d >= (3 if n >= _MANY else fewest) and has(first[None])[0] and has(rows).mean() <= _RARE:
            return f"numbers that {words}, {{}}, ..., unlike those of the lines below"
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    spread = high - low
    varies = spread > 0.0
    far = np.maximum(low - first, first - high)[varies] > _FAR * spread[varies]
    return "numbers far from those of the lines below, {}, ..." if varies.sum() >= 2 and far.all() else ""


def _up(rows: Array) -> Array:
    return np.asarray((np.diff(rows) > 0.0).all(axis=1))


def _down(rows: Array) -> Array:
    return _up(-rows)


def _even(rows: Array) -> Array:
    steps = np.diff(rows)
    off = np.abs(steps - steps[:, :1])
    return np.asarray((steps[:, 0] != 0.0) & (off <= 1e-6 * np.abs(steps[:, :1])).all(axis=1))


def _numbers(lines: Sequence[Sequence[str]], cells: Cells) -> Array:
    """The cells as numbers; NaN of gaps, and of those that are none."""
    values = [[cells.value(cell) if cells.number(cell) else np.nan for cell in line] for line in lines]
    return np.array(values, dtype=np.float64).reshape(len(lines), -1)


_MARKS: Final = {  # the longer ones first: that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_LOOK: Final = 4096  # bytes that are looked at for what a file is
_PACKED: Final = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@contextmanager
def text_of(file: Path, encoding: str | None) -> Iterator[TextIO]:
    """The file, opened as text; the error about bytes that are none says where they are, and what to do."""
    known = None if encoding is None else _known(encoding)
    with file.open("rb") as raw:
        start = raw.read(_LOOK)
    used = next((name for mark, name in _MARKS.items() if start.startswith(mark)), known or "utf-8")
    _require_text(file, start, used, given=known is not None)
    try:
        with file.open(encoding=used, newline="") as lines:
            yield lines
    except UnicodeError as error:
        got = _place(file, used) or f"bytes that are none ({getattr(error, 'reason', error)})"
        other = "utf-8" if used in ("utf-16", "utf-32") else "cp1252" if used == "latin-1" else "latin-1"
        remedy = f"{option(file, encoding=other)}, or the encoding that it has."
        raise DataError(f"The data file {file}", must=f"text in {_words(used)}", got=got, then=remedy) from error


def option(file: Path, **options: Any) -> str:
    """How to read the file with these options, alone or in a folder."""
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"Write csv(path={str(file)!r}, {given}); of a folder, folder(..., {given})"


def _known(encoding: object) -> str:
    try:
        found = codecs.lookup(encoding if isinstance(encoding, str) else "")
        if not found._is_text_encoding:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        rule, remedy = "a name such as 'utf-8', 'latin-1' or 'utf-16'", "Write encoding='latin-1'."
        raise ConfigError("encoding", must=rule, got=repr(encoding), then=remedy) from error
    return "latin-1" if found.name == "iso8859-1" else found.name


def _require_text(file: Path, start: bytes, used: str, *, given: bool) -> None:
    """Refuse a file that is packed, or that has zeros between its letters, as UTF-16 without a mark has."""
    packed = next((name for mark, name in _PACKED.items() if start.startswith(mark)), None)
    if packed is not None:
        raise DataError(f"The data file {file}", must="plain text", got=f"one packed by {packed}", then="Unpack it.")
    if "16" in used or "32" in used or b"\0" not in start:
        return
    remedy = "Mend the line, or name the source by a spec that reads this kind of file."
    if not given and 4 * start.count(0) >= len(start):
        low = start[1::2].count(0) >= start[::2].count(0)
        remedy = f"{option(file, encoding='utf-16-le' if low else 'utf-16-be')} if it is in UTF-16."
    line = start[: start.index(0)].count(b"\n") + 1
    raise DataError(f"The data file {file}", must="text", got=f"a zero byte in line {line}", then=remedy)


def _place(file: Path, used: str) -> str:
    """The first byte that is none of this encoding, and its line; "" where lines cannot be told before decoding."""
    if "16" in used or "32" in used:
        return ""
    with file.open("rb") as raw:
        for number, line in enumerate(raw, 1):
            try:
                line.decode("utf-8" if used == "utf-8-sig" else used)
            except UnicodeError as error:
                at = getattr(error, "start", 0)
                return f"the byte 0x{line[at]:02x} in line {number} (byte {at + 1} of it)"
    return ""


def _words(used: str) -> str:
    return "UTF-8" if used in ("utf-8", "utf-8-sig") else used.upper() if used.startswith("utf") else used
