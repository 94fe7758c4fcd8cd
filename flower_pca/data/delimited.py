"""Read text files whose cells are divided by a separator, such as csv. An empty cell is a missing value, NaN.

numpy reads a file of plain numbers. A file with missing values, decimal commas or words is read cell by cell, which is
slower. If a cell is not a number, a last pass finds the first word in each column and its line. Excel may leave lines
at the end of a file that hold only separators. These lines are not read as rows.
"""

from __future__ import annotations

import csv as tables
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from flower_pca.data.dialect import SAMPLE, CellRules, DecimalEvidence, check_marks, find_separator, separator_above
from flower_pca.data.first_line import require_clear_header
from flower_pca.data.gaps import GapCodes, with_gaps_as_nan
from flower_pca.data.reading import HELD, UnchangedFile, chosen_columns, reading_file, with_id_column
from flower_pca.data.text import advice_on_options, open_text
from flower_pca.names.columns import among_numbers, unusable_columns_error
from flower_pca.names.origin import Origin
from flower_pca.names.table import Table

_HELD: Final = 2**18  # maximum number of cells that are held as Python numbers at a time
_WHOLE: Final = HELD  # A text file of at most this many bytes is read whole. Its rows take about as much memory.
_SHOWN: Final = 40  # maximum number of characters of a cell in a message
_PIECE: Final = 2**20  # number of characters that are searched at a time
# In most files, this many cells from the start are enough to determine the decimal mark.
_MARKED: Final = 2**16


@dataclass
class TextTable:
    """A text file as a sequence of records, with the rules for splitting its lines into cells.

    Attributes
    ----------
    file : path
        The file.
    encoding : str or None
        The encoding that the caller gave, if any.
    cells : CellRules
        The rules for splitting a line into cells and for reading numbers.
    above : int
        The number of lines above the first record: 1 if a line such as sep=; tells Excel the separator, else 0.
    header : bool
        Whether the first record holds the column names.
    width : int
        The number of cells in a record.
    words : sequence of frozenset of str
        The words that stand for a missing value in each column, in the order of the columns.
    tail : list of int
        The numbers of the lines at the end that hold separators only. `rows` sets them once it has read all records.
    """

    file: Path
    encoding: str | None
    cells: CellRules
    above: int = 0
    header: bool = False
    width: int = 0
    words: Sequence[frozenset[str]] = ()
    tail: list[int] = field(default_factory=list)

    def cells_of_column(self, place: int) -> CellRules:
        """Return the rules for reading the cells of the column at this position."""
        if not self.words or not self.words[place]:
            return self.cells
        return replace(self.cells, gaps=self.words[place])

    def reader(self, lines: TextIO) -> Any:
        """Move the text stream to the first record, and return a csv reader that starts there."""
        lines.seek(0)
        for _ in range(self.above):
            lines.readline()
        return tables.reader(lines, delimiter=self.cells.sep)

    def below_header(self, lines: TextIO) -> Any:
        """Move the text stream to the first row below the names, and return a csv reader that starts there."""
        reader = self.reader(lines)
        if self.header:
            next(filter(None, reader))
        return reader

    def rows(self, lines: TextIO) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with its line number, and check its width.

        Empty lines are skipped, and so are lines at the end that hold separators only.
        """
        reader = self.below_header(lines)
        before, waiting = reader.line_num, []
        for record in reader:
            if not record:
                before = reader.line_num
                continue
            # A record that spans several lines is reported by its first line.
            line, before = before + 1, reader.line_num
            # A line of separators counts as a row only if a row with values follows, because Excel may leave lines of
            # separators at the end of a file.
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
        remedy = "Correct the line."
        if last > line:
            remedy = f"Close its quotation marks, because the record continues to line {last}."
        elif len(record) > self.width > 0:
            remedy = "Correct the line, or remove the lines above the names."
        raise DataError(
            f"Line {line} of {self.file} has {labels.count(len(record), 'cell')}, but the first line has "
            f"{self.width}. {remedy}",
            place=str(self.file),
        )

    def line_of_row(self, row: int) -> int:
        """Return the number of the line on which a row begins."""
        with open_text(self.file, self.encoding) as lines:
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
    """Read a text file of numbers with one row per line, such as csv. Words in the first line are the column names.

    The file may be compressed with gzip or zip. A file of more than 256 MB is read again at each pass.

    A column is unusable if it holds words, has no name, or shares its name with another column. An unusable column is
    an error, unless the run uses other columns or lists the column in `beside`.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns that are not in `beside`. If the file has no column names,
        the columns are called 1, 2 and so on.
    beside : sequence of str, default=()
        Names of columns that are not features, such as labels or row identifiers. They may hold text.
    ids : str or None, default=None
        The name of the column of row identifiers, for runs over different columns of the same people. It may hold
        text.
    sep : str or None, default=None
        The separator between cells. By default, it is detected from the file.
    header : bool or None, default=None
        Whether the first line holds the column names. By default, it does unless all of its cells are numbers.
    decimal : str or None, default=None
        The decimal mark, "." or ",". By default, it is detected from the file.
    thousands : str or None, default=None
        The thousands separator: ",", ".", "'" or " ", or "" for none. By default, it is "," if the decimal mark is ".",
        and "." if the decimal mark is ",".
    encoding : str or None, default=None
        The encoding of the file, for example "latin-1". By default, the byte-order mark decides, or else UTF-8 is used.
    gaps : default=None
        Values that stand for a missing value, in addition to empty cells and NA: a list such as [".", "?", -999], or
        one list per column, such as {"age": [-999], "lab_*": ["."]}.
    """
    without = GapCodes.from_option(gaps)
    check_marks(sep, decimal, thousands)
    checks.choice("header", header, (True, False, None))
    with reading_file(path, "text with commas") as file, open_text(file, encoding) as lines, _short_cells(file, lines):
        sheet = _text_table(file, lines, encoding, sep, decimal, thousands)
        first, guessed = _first_line(sheet, lines, header)
        names = [labels.clean_name(cell) for cell in first] if sheet.header else [str(j + 1) for j in range(len(first))]
        beside = with_id_column(beside, ids)
        features, apart, words = chosen_columns(file, names, columns, beside) if first else ((), (), {})
        place = {name: j for j, name in reversed([*enumerate(names)])}  # If a name occurs twice, the first one counts.
        sheet.words = [without.words(name) for name in names]
        if decimal is None and thousands not in (".", ","):
            sheet.cells = _with_decimal_mark(sheet, lines, [place[name] for name in features], names, thousands)
        values = _label_columns(sheet, lines, {name: place[name] for name in apart}, whole=features == tuple(names))
        rows = _numeric_rows(sheet, lines, [place[name] for name in features])
        if rows is None:
            text = _text_columns(sheet, lines, [(place[name], name) for name in features])
            usable = tuple(name for name in features if name not in text)
            if columns is not None or not sheet.header or not usable:
                raise unusable_columns_error(file, text)
            features, words = usable, {**words, **text}
            rows = _numeric_rows(sheet, lines, [place[name] for name in features])
            assert rows is not None
    if sheet.tail:
        _warn_of_tail(sheet)
    if not rows.shape[0] * rows.shape[1]:
        rows = _empty_rows(features, values)
    beside_rows = {
        n: np.array(found) if n == ids else sheet.cells_of_column(place[n]).as_labels(found)
        for n, found in values.items()
    }
    origin = Origin.of_file(file, len(rows), sheet.line_of_row, guessed=guessed)
    table = Table.of_file(file, rows, features if sheet.header else (), beside_rows, words, origin=origin, ids=ids)
    return with_gaps_as_nan(table, without)


@contextmanager
def _short_cells(file: Path, lines: TextIO) -> Iterator[None]:
    """Raise a DataError that names the line if Python's csv module refuses a cell because it is too long."""
    try:
        yield
    except tables.Error as error:
        lines.seek(0)
        reader = tables.reader(lines)
        line = 1
        try:
            for _ in reader:
                line = reader.line_num + 1
        except tables.Error:
            raise DataError(
                f"Line {line} of {file} has a cell of more than {tables.field_size_limit():,} characters. Correct the "
                "line, and close its quotation marks.",
                place=str(file),
            ) from error
        raise


def _empty_rows(features: Sequence[str], values: dict[str, list[str]]) -> Array:
    """Return the empty array of a file without rows or without features."""
    if features:
        return np.empty((0, len(features)))
    return np.empty((max(map(len, values.values()), default=0), 0))


def _text_table(
    file: Path, lines: TextIO, encoding: str | None, sep: str | None, decimal: str | None, thousands: str | None
) -> TextTable:
    """Return the sheet of a file. A separator that is not given is read from a line such as sep=; or detected."""
    sample = [*itertools.islice(lines, SAMPLE)]
    above = separator_above("".join(sample[:1]))
    between = sep or above or find_separator(sample, decimal)
    point = decimal or {".": ",", ",": "."}.get(thousands or "")
    if point is None:  # This is a first guess. `_with_decimal_mark` looks at more numbers and determines the mark.
        point = DecimalEvidence.from_records(tables.reader(sample, delimiter=between)).decimal
    return TextTable(file, encoding, CellRules.from_separator(between, point, thousands), above=int(bool(above)))


def _first_line(sheet: TextTable, lines: TextIO, header: bool | None) -> tuple[list[str], bool]:
    """Return the first record, and whether it was taken for a row because it holds only numbers."""
    records = filter(None, sheet.reader(lines))
    first: list[str] = next(records, [])
    second: list[str] = next(records, [])
    if header is None:
        require_clear_header(sheet.file, first, itertools.chain([second], records), sheet.cells)
    _require_separator(sheet.file, first, second, sheet.cells)
    _require_no_commas(sheet.file, first, second, sheet.cells)
    guessed = header is None and all(map(sheet.cells.is_number, first))
    sheet.header = not guessed and header in (None, True)
    sheet.width = len(first)
    return first, guessed


def _with_decimal_mark(
    sheet: TextTable, lines: TextIO, positions: Sequence[int], names: Sequence[str], thousands: str | None
) -> CellRules:
    """Return the rules for reading cells, with the decimal mark that the numbers of these columns use.

    Raises
    ------
    DataError
        If a point or comma may be a decimal mark or a thousands separator.
    """
    marks, looked, whole = DecimalEvidence(), 0, not _has_marks(sheet, lines)
    for line, record in sheet.rows(lines):
        gaps = sheet.words
        marks.add(line, [(j, record[j]) for j in positions if not gaps or record[j].strip() not in gaps[j]])
        looked += len(positions)
        # If no number has shown the decimal mark yet, a number far down in the file may show it.
        if looked > _MARKED and (whole or marks.is_clear):
            break
    unclear = marks.first_unclear(sheet.cells.sep)
    if unclear is None:
        return CellRules.from_separator(sheet.cells.sep, marks.decimal, thousands)
    cell, line, j = unclear
    mark, remedy = ".", advice_on_options(sheet.file, decimal=".")
    if "," in cell:
        mark, remedy = ",", advice_on_options(sheet.file, sep=sheet.cells.sep, decimal=",")
    raise DataError(
        f"{sheet.file} has a number in column {names[j]} (line {line}) in which {mark!r} may separate decimals or "
        f"thousands. {remedy}. If it separates thousands, write thousands={mark!r} instead of decimal.",
        place=str(sheet.file),
    )


def _has_marks(sheet: TextTable, lines: TextIO) -> bool:
    """Return whether any cell may hold a point or a comma. For speed, the text is searched without splitting it."""
    sheet.below_header(lines)
    for text in iter(partial(lines.read, _PIECE), ""):
        # A comma in quotes does not separate cells, so it may belong to a number.
        if "." in text or '"' in text or (sheet.cells.sep != "," and "," in text):
            return True
    return False


def _label_columns(sheet: TextTable, lines: TextIO, positions: dict[str, int], *, whole: bool) -> dict[str, list[str]]:
    """Return the cells of the label columns, by name. Reading them also checks the width of every line.

    If `whole` is true, all columns are features, so nothing is read.
    """
    values: dict[str, list[str]] = {name: [] for name in positions}
    if whole:
        return values
    for _, record in sheet.rows(lines):
        for name, j in positions.items():
            values[name].append("" if record[j].strip() in sheet.cells_of_column(j).gaps else record[j])
    return values


def _require_separator(file: Path, first_line: Sequence[str], second_line: Sequence[str], cells: CellRules) -> None:
    """Raise a DataError if the first line seems to use another separator than `cells.sep`."""
    for other in ";\t|":
        split = len(first_line) == 1 and other in first_line[0]
        number = re.compile(rf"[-+.\d]*\d{re.escape(other)}[-+.\d]*")
        if other != cells.sep and (split or any(map(number.fullmatch, first_line))):
            remedy = advice_on_options(file, sep=other)
            cells_there = other.join(map(cells.sep.join, (first_line, second_line))).split(other)
            if any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell) for cell in cells_there):
                remedy = advice_on_options(file, sep=other, decimal=",")
            raise _other_separator_error(file, other, cells, f"{remedy}, or leave sep out.")


def _require_no_commas(file: Path, first_line: Sequence[str], second_line: Sequence[str], cells: CellRules) -> None:
    """Raise a DataError if commas seem to separate the cells, but `cells` has another separator."""
    if cells.sep == "," or len(first_line) != 1 or len(second_line) != 1:
        return
    count = second_line[0].count(",")
    # If the decimal mark is a comma, a single comma may be a decimal mark instead of a separator.
    if first_line[0].count(",") == count > int(cells.decimal == ","):
        raise _other_separator_error(
            file, ",", cells, f"{advice_on_options(file, sep=',')}, or leave sep and decimal out."
        )


def _other_separator_error(file: Path, other: str, cells: CellRules, consequence: str) -> DataError:
    return DataError(
        f"{file} was read with the separator {cells.sep!r}, but its first line uses {other!r}. {consequence}",
        place=str(file),
    )


def _numeric_rows(sheet: TextTable, lines: TextIO, positions: list[int]) -> Any:
    """Return the rows, or None if some cells are not numbers. A file that numpy cannot read is read cell by cell."""
    if not positions:
        return np.empty((0, 0))
    if sheet.file.stat().st_size > _WHOLE:
        return TextRows.from_text_table(sheet, lines, positions)
    if sheet.cells.decimal == ".":
        sheet.below_header(lines)
        used = None if positions == list(range(sheet.width)) else positions
        try:
            with warnings.catch_warnings():
                # numpy warns about a file without rows, which `LocalData` reports later.
                warnings.simplefilter("ignore", UserWarning)
                return np.loadtxt(
                    lines,
                    delimiter=sheet.cells.sep,
                    # By default, numpy ignores all text after a #. An Excel error such as #DIV/0! in the first cell
                    # would hide the row.
                    comments=None,
                    quotechar='"',
                    ndmin=2,
                    usecols=used,
                )
        # A UnicodeDecodeError is a ValueError, but does not mean that a cell holds a word. `text_of` reports its place.
        except UnicodeError:
            raise
        except ValueError:
            pass
    try:
        return np.concatenate([np.empty((0, len(positions))), *_blocks_by_cell(sheet, lines, positions, _HELD)])
    except ValueError as error:
        if isinstance(error, DataError | UnicodeError):
            raise
        return None


def _blocks_by_cell(sheet: TextTable, lines: TextIO, positions: Sequence[int], cells: int) -> Iterator[Array]:
    """Yield blocks of rows of about this many cells, converted cell by cell."""
    records = sheet.rows(lines)
    values, step = [(sheet.cells_of_column(j).parse_cell, j) for j in positions], max(cells // len(positions), 1)
    while block := [[value(record[j]) for value, j in values] for _, record in itertools.islice(records, step)]:
        yield np.array(block)


def _blocks_by_numpy(sheet: TextTable, lines: TextIO, positions: Sequence[int], cells: int) -> Iterator[Array]:
    """Yield blocks of rows of about this many cells, read by numpy, which accepts no missing values."""
    sheet.below_header(lines)
    step = max(cells // len(positions), 1)
    while some := [*itertools.islice(lines, step)]:
        # If a line ends within a quoted cell, the record continues on the next line.
        while sum(line.count('"') for line in some) % 2 and (more := next(lines, "")):
            some.append(more)
        if any(map(str.strip, some)):
            yield np.loadtxt(
                some, delimiter=sheet.cells.sep, comments=None, quotechar='"', ndmin=2, usecols=list(positions)
            )


class TextRows(Stored):
    """The rows of a text file that is too large for memory. Each pass reads its lines again."""

    def __init__(self, sheet: TextTable, positions: Sequence[int], n: int, *, plain: bool) -> None:
        self._sheet, self._places, self._plain = sheet, tuple(positions), plain
        self._file = UnchangedFile(sheet.file)
        self.shape, self.dtype = (n, len(self._places)), np.dtype(np.float64)

    @classmethod
    def from_text_table(cls, sheet: TextTable, lines: TextIO, positions: Sequence[int]) -> TextRows | None:
        """Read all lines to count and check the rows, and return the rows, or None if some cells are not numbers."""
        for plain, read in ((True, _blocks_by_numpy), (False, _blocks_by_cell)):
            if plain and sheet.cells.decimal != ".":
                continue
            try:
                n = sum(len(block) for block in read(sheet, lines, positions, _HELD))
            except ValueError as error:
                if isinstance(error, DataError | UnicodeError):
                    raise
                continue
            return cls(sheet, positions, n, plain=plain)
        return None

    def pieces(self) -> Iterator[Array]:
        """Yield the rows in blocks of several thousand lines."""
        self._file.require_unchanged()
        read = _blocks_by_numpy if self._plain else _blocks_by_cell
        with open_text(self._sheet.file, self._sheet.encoding) as lines:
            yield from read(self._sheet, lines, self._places, source.rows_of_a_piece(1, self.dtype))


def _text_columns(sheet: TextTable, lines: TextIO, positions: Sequence[tuple[int, str]]) -> dict[str, str]:
    """Return the columns that hold text, by name. Each value describes the first cell that is not a number."""
    bad: dict[str, str] = {}
    count: Counter[str] = Counter()
    n = 0
    for line, record in sheet.rows(lines):
        n += 1
        for j, name in positions:
            if not sheet.cells_of_column(j).is_number(record[j]):
                shown = repr(labels.shorten(record[j], _SHOWN))
                bad.setdefault(name, f"{shown} in column {name} (line {line})")
                count[name] += 1
    return {name: among_numbers(words, bad=count[name], total=n) for name, words in bad.items()}


def _warn_of_tail(sheet: TextTable) -> None:
    first, last = sheet.tail[0], sheet.tail[-1]
    place, are = f"Line {first}", "holds"
    if last > first:
        place, are = f"Lines {first} to {last}", "hold"
    warnings.warn(
        f"{place} of {sheet.file} {are} separators only, as Excel may leave at the end of a table. The lines are not "
        "read as rows.",
        stacklevel=4,
    )
