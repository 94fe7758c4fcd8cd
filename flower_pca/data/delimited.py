"""Text files with a separator between their cells, such as csv. An empty cell is a missing value, NaN.

numpy reads a file of plain numbers. A file with missing values, decimal commas or words is read cell by cell, which is
slower. If a cell is not a number, a last pass finds the first such cell of each column, with its line. Lines at the end
that hold only separators, as Excel leaves them, are not rows.
"""

from __future__ import annotations

import csv as tables
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks import source
from flower_pca.blocks.source import Stored
from flower_pca.data.dialect import SAMPLE, Cells, Marks, check_marks, find_separator, separator_above
from flower_pca.data.first_line import require_clear
from flower_pca.data.gaps import Gaps, emptied
from flower_pca.data.reading import HELD, Unchanged, chosen, reading, with_ids
from flower_pca.data.text import option, text_of
from flower_pca.names.columns import among, no_numbers
from flower_pca.names.origin import Origin
from flower_pca.names.table import Table

_HELD: Final = 2**18  # cells that are held as Python numbers at a time
_WHOLE: Final = HELD  # Bytes of a text file that is read whole. Its rows take about as much memory.
_SHOWN: Final = 40  # characters of a cell that a message shows
_PIECE: Final = 2**20  # characters that are searched at a time
# In most files, so many cells at the start show what stands before decimals.
_MARKED: Final = 2**16


@dataclass
class Sheet:
    """A text file as records: how its lines are split, and where the rows begin.

    Attributes
    ----------
    file : path
        The file.
    encoding : str or None
        The encoding that the caller gave, if any.
    cells : Cells
        How a line is split, and how numbers are written.
    above : int
        The number of lines above all records: 1 if a line such as sep=; tells Excel the separator, else 0.
    header : bool
        Whether the first record holds names.
    width : int
        The number of cells of a record.
    words : sequence of frozenset of str
        The words that stand for a missing value, for each column by position.
    tail : list of int
        The lines at the end that hold separators only. They are known once all records have been read.
    """

    file: Path
    encoding: str | None
    cells: Cells
    above: int = 0
    header: bool = False
    width: int = 0
    words: Sequence[frozenset[str]] = ()
    tail: list[int] = field(default_factory=list)

    def at(self, place: int) -> Cells:
        """Return how cells of a column are read, by the position of the column."""
        if not self.words or not self.words[place]:
            return self.cells
        return replace(self.cells, gaps=self.words[place])

    def reader(self, lines: TextIO) -> Any:
        """Return a csv reader at the first record. The text stream is left there too."""
        lines.seek(0)
        for _ in range(self.above):
            lines.readline()
        return tables.reader(lines, delimiter=self.cells.sep)

    def below_header(self, lines: TextIO) -> Any:
        """Return a csv reader at the first row. The text stream is left there too."""
        reader = self.reader(lines)
        if self.header:
            next(filter(None, reader))
        return reader

    def rows(self, lines: TextIO) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with its line. Check that all have one width, and skip empty lines at the end."""
        reader = self.below_header(lines)
        before, waiting = reader.line_num, []
        for record in reader:
            if not record:
                before = reader.line_num
                continue
            # The line of a record that spans several lines is its first line.
            line, before = before + 1, reader.line_num
            # A line of separators is a row if a row with values follows. At the end of the file, Excel has left it.
            waiting.append((self.above + line, self.above + before, record))
            if any(map(str.strip, record)):
                for first, last, one in waiting:
                    self._check_width(first, last, one)
                    yield first, one
                waiting = []
        self.tail = [line for line, _, _ in waiting]

    def _check_width(self, line: int, last: int, record: list[str]) -> None:
        if len(record) == self.width:
            return
        remedy = "Mend the line."
        if last > line:
            remedy = f"Close its quotation marks, because the record continues to line {last}."
        elif len(record) > self.width > 0:
            remedy = "Correct the line, or remove the lines above the names."
        raise DataError(
            f"Line {line} of {self.file} has {labels.count(len(record), 'cell')}, but the first line has "
            f"{self.width}. {remedy}",
            place=str(self.file),
        )

    def line(self, row: int) -> int:
        """Return the line on which a row begins."""
        with text_of(self.file, self.encoding) as lines:
            return next(itertools.islice(self.rows(lines), row, None))[0]


def csv(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    sep: str | None = None,
    header: bool | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    gaps: Any = None,
) -> Table:
    """Read numbers between commas, one row per line. If the first line holds words, it names the columns.

    The file may be packed with gzip or zip. Rows that take more than 256 MB are read again at each pass.

    A column is unusable if it holds words, has no name, or shares its name with another column. An unusable column is
    an error, unless the run chooses other columns or keeps it apart with `beside`.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all that are not in `beside`. In a file without names, columns are
        called 1, 2, ...
    beside : sequence of str, default=()
        Names of columns that are not features: labels, or row identifiers. They may be text.
    ids : str or None, default=None
        The name of the column of row identifiers, for runs over columns of the same people. It may be text.
    sep : str or None, default=None
        The separator between cells. By default, it is found in the file.
    header : bool or None, default=None
        Whether the first line holds names. By default, it does unless it is all numbers.
    decimal : str or None, default=None
        The decimal mark, "." or ",". By default, it is found in the file.
    thousands : str or None, default=None
        The thousands separator: ",", ".", "'" or " ", or "" for none. By default, it is the mark of "," and "." that
        is not the decimal mark.
    encoding : str or None, default=None
        The encoding of the file, for example "latin-1". By default, it follows the byte-order mark, or is UTF-8.
    gaps : default=None
        Values that stand for a missing value, in addition to empty cells and NA: [".", "?", -999], or such lists by
        column: {"age": [-999], "lab_*": ["."]}.
    """
    without = Gaps.of(gaps)
    check_marks(sep, decimal, thousands)
    checks.choice("header", header, (True, False, None))
    with reading(path, "text with commas") as file, text_of(file, encoding) as lines:
        sheet = _sheet(file, lines, encoding, sep, decimal, thousands)
        first, guessed = _first_line(sheet, lines, header)
        names = [labels.clean(cell) for cell in first] if sheet.header else [str(j + 1) for j in range(len(first))]
        beside = with_ids(beside, ids)
        features, apart, words = chosen(file, names, columns, beside) if first else ((), (), {})
        place = {name: j for j, name in reversed([*enumerate(names)])}  # If a name occurs twice, the first one counts.
        sheet.words = [without.words(name) for name in names]
        if decimal is None and thousands not in (".", ","):
            sheet.cells = _clear(sheet, lines, [place[name] for name in features], names, thousands)
        values = _labels(sheet, lines, {name: place[name] for name in apart}, whole=features == tuple(names))
        rows = _numbers(sheet, lines, [place[name] for name in features])
        if rows is None:
            text = _words(sheet, lines, [(place[name], name) for name in features])
            usable = tuple(name for name in features if name not in text)
            if columns is not None or not sheet.header or not usable:
                raise no_numbers(file, text)
            features, words = usable, {**words, **text}
            rows = _numbers(sheet, lines, [place[name] for name in features])
            assert rows is not None
    if sheet.tail:
        _warn_of_tail(sheet)
    if not rows.shape[0] * rows.shape[1]:
        rows = _no_numbers(features, values)
    beside_rows = {n: np.array(found) if n == ids else sheet.at(place[n]).plain(found) for n, found in values.items()}
    origin = Origin.of(file, len(rows), sheet.line, guessed=guessed)
    table = Table.of_file(file, rows, features if sheet.header else (), beside_rows, words, origin=origin, ids=ids)
    return emptied(table, without)


def _no_numbers(features: Sequence[str], values: dict[str, list[str]]) -> Array:
    """Return the rows of a file that has no rows, or no features but only labels."""
    if features:
        return np.empty((0, len(features)))
    return np.empty((max(map(len, values.values()), default=0), 0))


def _sheet(
    file: Path, lines: TextIO, encoding: str | None, sep: str | None, decimal: str | None, thousands: str | None
) -> Sheet:
    """Return how the file is split: as the caller says, as a first line such as sep=; says, or as its lines suggest."""
    sample = [*itertools.islice(lines, SAMPLE)]
    above = separator_above("".join(sample[:1]))
    between = sep or above or find_separator(sample, decimal)
    point = decimal or {".": ",", ",": "."}.get(thousands or "")
    if point is None:  # `_clear` decides it later, once it has seen all numbers.
        point = Marks.of(tables.reader(sample, delimiter=between)).decimal
    return Sheet(file, encoding, Cells.of(between, point, thousands), above=int(bool(above)))


def _first_line(sheet: Sheet, lines: TextIO, header: bool | None) -> tuple[list[str], bool]:
    """Return the first record, and whether it counts as a row only because nobody said what it is."""
    records = filter(None, sheet.reader(lines))
    first: list[str] = next(records, [])
    second: list[str] = next(records, [])
    if header is None:
        require_clear(sheet.file, first, itertools.chain([second], records), sheet.cells)
    _require_separator(sheet.file, first, second, sheet.cells)
    _require_no_commas(sheet.file, first, second, sheet.cells)
    guessed = header is None and all(map(sheet.cells.number, first))
    sheet.header = not guessed and header in (None, True)
    sheet.width = len(first)
    return first, guessed


def _clear(sheet: Sheet, lines: TextIO, places: Sequence[int], names: Sequence[str], thousands: str | None) -> Cells:
    """Return how cells are read, by what the numbers of these columns show. Raise if a mark may separate thousands."""
    marks, looked, whole = Marks(), 0, not _has_marks(sheet, lines)
    for line, record in sheet.rows(lines):
        gaps = sheet.words
        marks.add(line, [(j, record[j]) for j in places if not gaps or record[j].strip() not in gaps[j]])
        looked += len(places)
        # The first number with such a mark may be far down in the file.
        if looked > _MARKED and (whole or marks.clear):
            break
    unclear = marks.unclear(sheet.cells.sep)
    if unclear is None:
        return Cells.of(sheet.cells.sep, marks.decimal, thousands)
    cell, line, j = unclear
    mark, remedy = ".", option(sheet.file, decimal=".")
    if "," in cell:
        mark, remedy = ",", option(sheet.file, sep=sheet.cells.sep, decimal=",")
    raise DataError(
        f"{sheet.file} has a number in column {names[j]} (line {line}) in which {mark!r} may separate decimals or "
        f"thousands. {remedy}. Write thousands={mark!r} there if it separates thousands.",
        place=str(sheet.file),
    )


def _has_marks(sheet: Sheet, lines: TextIO) -> bool:
    """Return whether any cell may hold a point or a comma. Looking at the text is fast."""
    sheet.below_header(lines)
    for text in iter(partial(lines.read, _PIECE), ""):
        # Commas in quotes do not separate cells.
        if "." in text or '"' in text or (sheet.cells.sep != "," and "," in text):
            return True
    return False


def _labels(sheet: Sheet, lines: TextIO, places: dict[str, int], *, whole: bool) -> dict[str, list[str]]:
    """Return the cells of the columns beside the features, by name. Also find lines with too many cells."""
    values: dict[str, list[str]] = {name: [] for name in places}
    if whole:
        return values
    for _, record in sheet.rows(lines):
        for name, j in places.items():
            values[name].append("" if record[j].strip() in sheet.at(j).gaps else record[j])
    return values


def _require_separator(file: Path, first: Sequence[str], second: Sequence[str], cells: Cells) -> None:
    """Refuse a file whose first line is split by another separator."""
    for other in ";\t|":
        split = len(first) == 1 and other in first[0]
        number = re.compile(rf"[-+.\d]*\d{re.escape(other)}[-+.\d]*")
        if other != cells.sep and (split or any(map(number.fullmatch, first))):
            remedy = option(file, sep=other)
            cells_there = other.join(map(cells.sep.join, (first, second))).split(other)
            if any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell) for cell in cells_there):
                remedy = option(file, sep=other, decimal=",")
            raise _other_separator(file, other, cells, f"{remedy}, or leave sep out.")


def _require_no_commas(file: Path, first: Sequence[str], second: Sequence[str], cells: Cells) -> None:
    """Refuse a file with commas between its cells if another separator is in use."""
    if cells.sep == "," or len(first) != 1 or len(second) != 1:
        return
    count = second[0].count(",")
    # A single comma may stand before decimals.
    if first[0].count(",") == count > int(cells.decimal == ","):
        raise _other_separator(file, ",", cells, f"{option(file, sep=',')}, or leave sep and decimal out.")


def _other_separator(file: Path, other: str, cells: Cells, then: str) -> DataError:
    return DataError(
        f"{file} is read with the separator {cells.sep!r}, but its first line uses {other!r}. {then}", place=str(file)
    )


def _numbers(sheet: Sheet, lines: TextIO, places: list[int]) -> Any:
    """Read all cells with numpy, or one by one if some are empty. Return None if some are not numbers."""
    if not places:
        return np.empty((0, 0))
    if sheet.file.stat().st_size > _WHOLE:
        return Lines.of(sheet, lines, places)
    if sheet.cells.decimal == ".":
        sheet.below_header(lines)
        if places == list(range(sheet.width)):
            used = None
        else:
            used = places
        try:
            with warnings.catch_warnings():
                # numpy warns of a file without rows. `LocalData` reports it.
                warnings.simplefilter("ignore", UserWarning)
                return np.loadtxt(
                    lines,
                    delimiter=sheet.cells.sep,
                    # numpy ignores all text after a #. An Excel error such as #DIV/0! in a first cell would hide the
                    # row.
                    comments=None,
                    quotechar='"',
                    ndmin=2,
                    usecols=used,
                )
        # A UnicodeDecodeError is a ValueError, but it does not mean that there are words. `text_of` reports its place.
        except UnicodeError:
            raise
        except ValueError:
            pass
    try:
        return np.concatenate([np.empty((0, len(places))), *_by_cell(sheet, lines, places, _HELD)])
    except ValueError as error:
        if isinstance(error, DataError | UnicodeError):
            raise
        return None


def _by_cell(sheet: Sheet, lines: TextIO, places: Sequence[int], cells: int) -> Iterator[Array]:
    """Yield rows in blocks. Each cell is read by itself."""
    records = sheet.rows(lines)
    values, step = [(sheet.at(j).value, j) for j in places], max(cells // len(places), 1)
    while block := [[value(record[j]) for value, j in values] for _, record in itertools.islice(records, step)]:
        yield np.array(block)


def _by_numpy(sheet: Sheet, lines: TextIO, places: Sequence[int], cells: int) -> Iterator[Array]:
    """Yield rows in blocks that numpy reads. It accepts no missing values."""
    sheet.below_header(lines)
    step = max(cells // len(places), 1)
    while some := [*itertools.islice(lines, step)]:
        # A line may end within a quoted cell.
        while sum(line.count('"') for line in some) % 2 and (more := next(lines, "")):
            some.append(more)
        if any(map(str.strip, some)):
            yield np.loadtxt(
                some, delimiter=sheet.cells.sep, comments=None, quotechar='"', ndmin=2, usecols=list(places)
            )


class Lines(Stored):
    """The rows of a text file that is too large for memory. Each pass reads its lines again."""

    def __init__(self, sheet: Sheet, places: Sequence[int], n: int, *, plain: bool) -> None:
        self._sheet, self._places, self._plain = sheet, tuple(places), plain
        self._file = Unchanged(sheet.file)
        self.shape, self.dtype = (n, len(self._places)), np.dtype(np.float64)

    @classmethod
    def of(cls, sheet: Sheet, lines: TextIO, places: Sequence[int]) -> Lines | None:
        """Return the rows once all lines have been read, or None if some cells are not numbers."""
        for plain, read in ((True, _by_numpy), (False, _by_cell)):
            if plain and sheet.cells.decimal != ".":
                continue
            try:
                n = sum(len(block) for block in read(sheet, lines, places, _HELD))
            except ValueError as error:
                if isinstance(error, DataError | UnicodeError):
                    raise
                continue
            return cls(sheet, places, n, plain=plain)
        return None

    def pieces(self) -> Iterator[Array]:
        """Yield some thousand lines at a time."""
        self._file.require()
        read = _by_numpy if self._plain else _by_cell
        with text_of(self._sheet.file, self._sheet.encoding) as lines:
            yield from read(self._sheet, lines, self._places, source.rows_of_a_piece(1, self.dtype))


def _words(sheet: Sheet, lines: TextIO, places: Sequence[tuple[int, str]]) -> dict[str, str]:
    """Return the features that are not numbers, each with its first such cell and the line of the cell."""
    bad: dict[str, str] = {}
    count: Counter[str] = Counter()
    n = 0
    for line, record in sheet.rows(lines):
        n += 1
        for j, name in places:
            if not sheet.at(j).number(record[j]):
                shown = repr(labels.shorten(record[j], _SHOWN))
                bad.setdefault(name, f"{shown} in column {name} (line {line})")
                count[name] += 1
    return {name: among(words, bad=count[name], of=n) for name, words in bad.items()}


def _warn_of_tail(sheet: Sheet) -> None:
    first, last = sheet.tail[0], sheet.tail[-1]
    place, are = f"Line {first}", "holds"
    if last > first:
        place, are = f"Lines {first} to {last}", "hold"
    warnings.warn(f"{place} of {sheet.file} {are} separators only, as Excel leaves them: no rows.", stacklevel=4)
