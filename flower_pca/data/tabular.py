"""Tables with named columns: csv and parquet. An empty cell is a missing value, NaN."""

from __future__ import annotations

import csv as tables
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.extras import needing
from flower_pca.base.linalg import Array
from flower_pca.data.reading import chosen, reading
from flower_pca.data.table import Table
from flower_pca.rows.columns import no_numbers

_GAPS: Final = ("", "na", "n/a", "nan", "null", "none")  # what stands in files for a value that is missing


def csv(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    sep: str = ",",
    header: bool | None = None,
) -> Table:
    """Numbers between commas, one row a line; a first line with words in it names the columns.

    Columns with words in them, which are neither chosen nor apart, are an error as soon as the run does not leave them
    out by its own choice of columns.

    Args:
        path: The file, in UTF-8.
        columns: Names of the columns to use; all that are not beside, if left out. Without names they are 1, 2, ...
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
        sep: What stands between two cells.
        header: Whether the first line holds names; found out by whether it is all numbers, if left out.
    """
    if not isinstance(sep, str) or len(sep) != 1:
        raise ConfigError("sep", must="one character", got=repr(sep), then="Write sep=';'.")
    with reading(path, "text in UTF-8 with commas") as file, file.open(encoding="utf-8-sig", newline="") as lines:
        records = filter(None, tables.reader(lines, delimiter=sep))
        first = next(records, [])
        if header is None:
            _require_clear(file, first, next(records, []))
        _require_separator(file, first, sep)
        header = not all(_is_number(cell) for cell in first) if header is None else bool(header)
        names = [cell.strip() for cell in first] if header else [str(j + 1) for j in range(len(first))]
        features, apart = chosen(file, names, columns, beside) if first else ((), ())
        whole = features == tuple(names)
        place = {name: j for j, name in reversed([*enumerate(names)])}  # of a name that is there twice the first
        values: dict[str, list[str]] = {name: [] for name in apart}
        if not whole:  # numpy would pass over cells too many
            for _, record in _records(file, _after_header(lines, sep, header), len(names)):
                for name in apart:
                    values[name].append(record[place[name]])
        places = None if whole else [place[name] for name in features]
        rows = _loaded(lines, sep, header, places) if features else np.empty((0, 0))
        words: dict[str, str] = {}
        if rows is None:
            words = _words(_records(file, _after_header(lines, sep, header), len(names)), names, features)
            features = tuple(name for name in features if name not in words)
            if columns is not None or not header or not features:
                raise no_numbers(file, words)
            rows = _loaded(lines, sep, header, [place[name] for name in features])
            assert rows is not None
    rows = rows if rows.size else np.empty((0, len(features)))
    beside_rows = {name: _plain(cells) for name, cells in values.items()}
    return Table((rows,), features if header else (), beside_rows, words, str(file))


def _require_clear(file: Path, first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse a first line that may be names or values: years, codes, or numbers of columns above other numbers."""
    if len(set(first)) != len(first) or len(first) < 2 or not all(re.fullmatch(r"\d+", c.strip()) for c in first):
        return
    counted = [int(cell) for cell in first] == list(range(len(first)))  # as pandas numbers columns without names
    broken = any(_is_number(cell) and not re.fullmatch(r"[-+]?\d+", cell.strip()) for cell in second)
    if broken or counted:
        rule, got = "clearly names, or clearly values", f"whole numbers, {', '.join(first[:3])}, ..."
        remedy = f"Write csv(path={str(file)!r}, header=True) or header=False; of a folder, folder(..., header=True)."
        raise DataError(f"The first line of {file}", must=rule, got=got, then=remedy)


def _require_separator(file: Path, first: Sequence[str], sep: str) -> None:
    """Refuse a file whose first line has another separator in it than the one that is looked for."""
    for other in ";\t|":
        split = len(first) == 1 and other in first[0]
        if other != sep and (split or any(re.fullmatch(rf"[-+.\d]*\d{re.escape(other)}[-+.\d]*", c) for c in first)):
            remedy = f"Write csv(path={str(file)!r}, sep={other!r}); of a folder, folder(..., sep={other!r})."
            got = f"{sep.join(first)!r} in the first line"
            raise DataError(f"What stands between two cells of {file}", must=repr(sep), got=got, then=remedy)


def parquet(*, path: str, columns: Sequence[str] | None = None, beside: Sequence[str] = ()) -> Table:
    """A parquet file. Needs pyarrow.

    Args:
        path: The file.
        columns: Names of the columns to use; all that are not beside, if left out.
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
    """
    with needing("pyarrow", "to read this"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with reading(path, "a parquet file") as file, file.open("rb") as raw:
        source = pq.ParquetFile(raw)
        names = source.schema_arrow.names
        features, apart = chosen(file, names, columns, beside)
        table = source.read(columns=[*features, *apart])
        kinds = {name: table.schema.field(name).type for name in features}
        number = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
        bad = {
            name: f"{kind} in column {name}"
            for name, kind in kinds.items()
            if not any(is_one(kind) for is_one in number)
        }
        features = tuple(name for name in features if name not in bad)
        if bad and (columns is not None or not features):
            raise no_numbers(file, bad)
        single = all(pa.types.is_float32(kinds[name]) or pa.types.is_float16(kinds[name]) for name in features)
        rows = np.empty((table.num_rows, len(features)), dtype=np.float32 if single and features else np.float64)
        for j, name in enumerate(features):
            rows[:, j] = table[name].cast(pa.float64(), safe=False).to_numpy()
        values = {name: _decoded(table[name]) for name in apart}
    return Table((rows,), features, values, bad, str(file))


def _decoded(column: Any) -> Array:
    whole = column.combine_chunks()
    return np.asarray((whole.dictionary_decode() if hasattr(whole, "dictionary_decode") else whole).to_pylist())


def _after_header(lines: Any, sep: str, header: bool) -> Any:
    """The records from the first one with values on; the lines are left there too."""
    lines.seek(0)
    reader = tables.reader(lines, delimiter=sep)
    if header:
        next(filter(None, reader))
    return reader


def _loaded(lines: Any, sep: str, header: bool, places: list[int] | None) -> Array | None:
    """The cells by numpy's own reader, which is slower where some are empty; None if some are not numbers."""
    options: dict[str, Any] = {"delimiter": sep, "comments": None, "quotechar": '"', "ndmin": 2, "usecols": places}
    slower: dict[str, Any] = {"converters": _value, "encoding": None}
    for more in ({}, slower):
        _after_header(lines, sep, header)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # about a file without rows, which is LocalData's matter
                return np.asarray(np.loadtxt(lines, **{**options, **more}))
        except UnicodeDecodeError:
            raise
        except ValueError:
            continue
    return None


def _records(file: Path, reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    """The lines with cells, and their numbers; all of one width."""
    for record in filter(None, reader):
        if len(record) != width:
            what, rule = f"Line {reader.line_num} of {file}", f"of {width} cells, as the first one"
            raise DataError(what, must=rule, got=len(record), then="Mend the file.")
        yield reader.line_num, record


def _words(records: Iterator[tuple[int, list[str]]], names: Sequence[str], features: Sequence[str]) -> dict[str, str]:
    """The features that are no numbers: of each the first cell that is none, and its line."""
    bad: dict[str, str] = {}
    places = [(names.index(name), name) for name in features]
    for line, record in records:
        for j, name in places:
            if name not in bad and not _is_number(record[j]):
                bad[name] = f"{record[j]!r} in column {name} (line {line})"
    return bad


def _value(cell: str) -> float:
    if cell.strip().lower() in _GAPS:
        return np.nan
    if not _is_value(cell):
        raise ValueError(cell)
    return float(cell)


def _plain(cells: Sequence[str]) -> Array:
    """Labels as numbers where all of them are, else as text."""
    return np.array([float(cell) for cell in cells]) if all(map(_is_value, cells)) else np.array(cells)


def _is_number(cell: str) -> bool:
    return _is_value(cell) or cell.strip().lower() in _GAPS


def _is_value(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which only Python reads
