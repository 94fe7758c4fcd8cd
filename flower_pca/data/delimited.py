"""Text files with a separator between their cells: csv. An empty cell is a missing value, NaN.

The first line says whether it holds names, and whether the file has another separator than the one that is looked for.
A file of plain numbers is read by numpy. One with gaps or with decimal commas is read cell by cell, which is slower.
Where a cell is no number, a last pass finds the first one of each column, with its line.
"""

from __future__ import annotations

import csv as tables
import functools
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.data.dialect import Cells, option, require_clear, text_of
from flower_pca.data.reading import chosen, reading, with_ids
from flower_pca.data.table import Table
from flower_pca.names.columns import no_numbers
from flower_pca.names.origin import Origin
from flower_pca.names.spelling import clean

_HELD: Final = 2**18  # cells that are held as Python's numbers at a time
_SHOWN: Final = 40  # characters of a cell that a message shows


def csv(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    sep: str | None = None,
    header: bool | None = None,
    decimal: str = ".",
    encoding: str | None = None,
) -> Table:
    """Numbers between commas, one row a line; a first line with words in it names the columns.

    Columns with words in them, without a name or with that of another, which are neither chosen nor apart, are an error
    as soon as the run does not leave them out by its own choice of columns.

    Args:
        path: The file.
        columns: Names of the columns to use; all that are not beside, if left out. Without names they are 1, 2, ...
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
        ids: The name of a column that says whose row it is, for runs over columns of the same people. It may be text.
        sep: What stands between two cells; "," if left out, or ";" with decimal=",".
        header: Whether the first line holds names; found out by whether it is all numbers, if left out.
        decimal: What stands before decimals: "." or ",".
        encoding: Of the file: "latin-1", say. If left out, what its byte-order mark says, else UTF-8.
    """
    cells = Cells.of(sep, decimal)
    checks.choice("header", header, (True, False, None))
    with reading(path, "text with commas") as file, text_of(file, encoding) as lines:
        records = filter(None, tables.reader(lines, delimiter=cells.sep))
        first, second = next(records, []), next(records, [])
        if header is None:
            require_clear(file, first, itertools.chain([second], records), cells)
        _require_separator(file, first, second, cells)
        _require_no_commas(file, first, second, cells)
        guessed = header is None and all(map(cells.number, first))
        header = not guessed if header is None else bool(header)
        names = [clean(cell) for cell in first] if header else [str(j + 1) for j in range(len(first))]
        beside = with_ids(beside, ids)
        features, apart, words = chosen(file, names, columns, beside) if first else ((), (), {})
        place = {name: j for j, name in reversed([*enumerate(names)])}  # of a name that is there twice the first
        places = [place[name] for name in features]
        whole = features == tuple(names)
        values: dict[str, list[str]] = {name: [] for name in apart}
        after = functools.partial(_after_header, lines, cells, header)
        if not whole:  # numpy would pass over cells too many
            for _, record in _records(file, after(), len(names)):
                for name in apart:
                    values[name].append(record[place[name]])
        rows = _loaded(file, after, lines, cells, len(names), places) if features else np.empty((0, 0))
        if rows is None:
            text = _words(_records(file, after(), len(names)), [*zip(places, features, strict=True)], cells)
            kept = tuple(name for name in features if name not in text)
            if columns is not None or not header or not kept:
                raise no_numbers(file, text)
            features, words = kept, {**words, **text}
            rows = _loaded(file, after, lines, cells, len(names), [place[name] for name in features])
            assert rows is not None
    rows = rows if rows.size else np.empty((0, len(features)))
    beside_rows = {name: np.array(found) if name == ids else cells.plain(found) for name, found in values.items()}
    line = functools.partial(line_of, file=file, cells=cells, encoding=encoding, header=header)
    origin = Origin.of(file, len(rows), line, guessed=guessed)
    return Table((rows,), features if header else (), beside_rows, words, str(file), origin).identified(ids)


def line_of(row: int, *, file: Path, cells: Cells, encoding: str | None, header: bool) -> int:
    """The line that a row is on."""
    with text_of(file, encoding) as lines:
        reader = _after_header(lines, cells, header)
        before = reader.line_num
        for record in reader:
            if record and row == 0:
                break
            row, before = row - bool(record), reader.line_num
        return int(before) + 1


def _require_separator(file: Path, first: Sequence[str], second: Sequence[str], cells: Cells) -> None:
    """Refuse a file whose first line has another separator in it than the one that is looked for."""
    for other in ";\t|":
        split = len(first) == 1 and other in first[0]
        if other != cells.sep and (
            split or any(re.fullmatch(rf"[-+.\d]*\d{re.escape(other)}[-+.\d]*", c) for c in first)
        ):
            lines = (cells.sep.join(record).split(other) for record in (first, second))
            comma = any(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell) for line in lines for cell in line)
            more = {"decimal": ","} if comma else {}
            got = f"{cells.sep.join(first)!r} in the first line"
            remedy = f"{option(file, sep=other, **more)}."
            what = f"What stands between two cells of {file}"
            raise DataError(what, must=repr(cells.sep), got=got, then=remedy)


def _require_no_commas(file: Path, first: Sequence[str], second: Sequence[str], cells: Cells) -> None:
    """Refuse a file with commas between its cells where another separator is looked for."""
    if cells.sep == "," or len(first) != 1 or len(second) != 1:
        return
    count = second[0].count(",")
    if first[0].count(",") == count > int(cells.decimal == ","):  # one alone may stand before decimals
        got, remedy = f"{first[0]!r} in the first line", f"{option(file, sep=',')}."
        raise DataError(f"What stands between two cells of {file}", must=repr(cells.sep), got=got, then=remedy)


def _after_header(lines: Any, cells: Cells, header: bool) -> Any:
    """The records from the first one with values on; the lines are left there too."""
    lines.seek(0)
    reader = tables.reader(lines, delimiter=cells.sep)
    if header:
        next(filter(None, reader))
    return reader


def _loaded(file: Path, after: Any, lines: Any, cells: Cells, width: int, places: list[int]) -> Array | None:
    """The cells by numpy's own reader, or one by one where some are empty; None if some are not numbers."""
    if cells.decimal == ".":
        after()
        used = None if places == list(range(width)) else places
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about a file without rows, which is LocalData's matter
                return np.loadtxt(lines, delimiter=cells.sep, comments=None, quotechar='"', ndmin=2, usecols=used)
        except UnicodeError:
            raise
        except ValueError:
            pass
    try:
        return _by_cell(_records(file, after(), width), places, cells)
    except ValueError as error:
        if isinstance(error, DataError | UnicodeError):
            raise
        return None


def _by_cell(records: Iterator[tuple[int, list[str]]], places: list[int], cells: Cells) -> Array:
    blocks, value, step = [np.empty((0, len(places)))], cells.value, max(_HELD // len(places), 1)
    while block := [[value(record[j]) for j in places] for _, record in itertools.islice(records, step)]:
        blocks.append(np.array(block))
    return np.concatenate(blocks)


def _records(file: Path, reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    """The lines with cells, and their numbers; all of one width."""
    before = reader.line_num
    for record in reader:
        line, before = before + 1, reader.line_num  # of a record over several lines the first
        if record and len(record) != width:
            what, rule = f"Line {line} of {file}", f"of {labels.count(width, 'cell')}, as the first one"
            raise DataError(what, must=rule, got=len(record), then=_mended(line, before, len(record) > width > 0))
        if record:
            yield line, record


def _mended(first: int, last: int, longer: bool) -> str:
    """What may be wrong with a line of another width."""
    if last > first:
        return f"Close its quotation marks: it goes on to line {last}."
    return "Mend the line, or take away what stands above the names." if longer else "Mend the line."


def _words(records: Iterator[tuple[int, list[str]]], places: Sequence[tuple[int, str]], cells: Cells) -> dict[str, str]:
    """The features that are no numbers: of each the first cell that is none, and its line."""
    bad: dict[str, str] = {}
    for line, record in records:
        for j, name in places:
            if name not in bad and not cells.number(record[j]):
                bad[name] = f"{labels.elided(record[j], _SHOWN)!r} in column {name} (line {line})"
    return bad
