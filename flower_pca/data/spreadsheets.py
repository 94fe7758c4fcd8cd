"""Read spreadsheets with python-calamine: .xlsx, .xls, .xlsb and .ods. A file can only be read whole."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError, requiring
from flower_pca.base.shown import in_one_line, shown
from flower_pca.data.reading import file_stem, reading_file, require_memory
from flower_pca.data.typed import table_of
from flower_pca.names.columns import enumeration
from flower_pca.names.table import Table

_SIZE: Final = 4.0  # bytes of memory per byte of an unpacked sheet, because each cell becomes a Python object
_ENCRYPTED: Final = b"E\x00n\x00c\x00r\x00y\x00p\x00t\x00e\x00d\x00P\x00a\x00c\x00k\x00a\x00g\x00e"
_OLE: Final = b"\xd0\xcf\x11\xe0"  # the first bytes of an old Excel file, or of an Excel file with a password


def excel(
    *,
    path: str,
    sheet: str | int | None = None,
    header: bool = True,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
    max_gb: float = 1.0,
) -> Table:
    """Read a sheet of a spreadsheet. Its first line holds the column names. Needs python-calamine.

    Parameters
    ----------
    path : str
        The file.
    sheet : str, int or None, default=None
        The name of the sheet, or its number, counted from 0. By default, it is the only sheet with cells.
    header : bool, default=True
        Whether the first line holds the column names.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns that are not in `beside`.
    beside : sequence of str, default=()
        Names of columns that are not features, such as labels or row identifiers. They may hold text.
    ids : str or None, default=None
        The name of the column of row identifiers.
    gaps : default=None
        Values that stand for a missing value, in addition to empty cells and NA: see `csv`.
    max_gb : float, default=1.0
        The memory limit in GB, because a spreadsheet can only be read whole.
    """
    checks.choice("header", header, (True, False))
    with requiring("python-calamine", "to read spreadsheets"):
        import python_calamine as calamine
    with reading_file(path, "a spreadsheet") as file:
        _require_no_password(file)
        require_memory(file, _SIZE * _unpacked_size(file), max_gb)
        try:
            book = calamine.CalamineWorkbook.from_path(str(file))
            lines = _chosen_sheet(file, book, sheet).to_python(skip_empty_area=False)
        except (calamine.CalamineError, calamine.PasswordError, calamine.ZipError, calamine.XmlError) as error:
            raise DataError(
                f"{file} is not a readable spreadsheet ({in_one_line(error)}). Save it as .xlsx again."
            ) from error
    above = next((i for i, line in enumerate(lines) if any(map(_is_filled, line))), len(lines))
    while lines and not any(map(_is_filled, lines[-1])):
        lines.pop()
    if above >= len(lines):
        raise DataError(f"{file} has no cell with a value. Leave it out, or name another sheet.")
    first = lines[above]
    names = [str(cell) for cell in first] if header else [str(j + 1) for j in range(len(first))]
    if header:
        _require_names(file, first, above + 1)
    start = above + int(header)
    cells = list(zip(*lines[start:], strict=True)) or [()] * len(first)
    return table_of(
        file, names, cells, wanted=columns, beside=beside, ids=ids, gaps=gaps, line=lambda row: start + row + 1
    )


def _is_filled(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def _require_no_password(file: Path) -> None:
    """Raise a DataError if the file is protected by a password."""
    with file.open("rb") as raw:
        start = raw.read(4)
        if start == _OLE and file.suffix.lower() not in (".xls",):
            rest = raw.read()
            if _ENCRYPTED in rest:
                raise DataError(f"{file} is protected by a password. Open it, and save a copy without one.")


def _unpacked_size(file: Path) -> float:
    """Return the size of all sheets after unpacking, in bytes."""
    if not zipfile.is_zipfile(file):
        return float(file.stat().st_size)
    with zipfile.ZipFile(file) as archive:
        return float(sum(part.file_size for part in archive.infolist()))


def _chosen_sheet(file: Path, book: Any, sheet: str | int | None) -> Any:
    """Return the chosen sheet, or the only sheet with cells."""
    names = list(book.sheet_names)
    if isinstance(sheet, str) and sheet in names:
        return book.get_sheet_by_name(sheet)
    if isinstance(sheet, int) and not isinstance(sheet, bool) and 0 <= sheet < len(names):
        return book.get_sheet_by_index(sheet)
    if sheet is not None:
        raise ConfigError(
            f"{file} has no sheet {shown(sheet)}. It has {enumeration(map(repr, names))}.", setting="sheet", value=sheet
        )
    every = [book.get_sheet_by_index(i) for i in range(len(names))]
    filled = [name for name, found in zip(names, every, strict=True) if found.height and found.width]
    if len(filled) > 1:
        raise DataError(
            f"{file} has {labels.count(len(filled), 'sheet')} with cells in them: {enumeration(map(repr, filled))}. "
            f"Name one: excel(path={str(file)!r}, sheet={filled[0]!r}); for a folder, folder(..., "
            f"sheet={ {file_stem(file): filled[0]}!r})."
        )
    return book.get_sheet_by_name(filled[0] if filled else names[0])


def _require_names(file: Path, first: Sequence[Any], line: int) -> None:
    """Raise a DataError if the first line has numbers, or has empty cells because of a title or merged cells."""
    there = [cell for cell in first if _is_filled(cell)]
    if len(there) < len(first) and any(isinstance(cell, str) for cell in there):
        empty = labels.count(len(first) - len(there), "cell")
        raise DataError(
            f"Line {line} of {file} names {len(there)} of {len(first)} columns and leaves {empty} empty. It may hold "
            "merged cells or a title. Write one name above each column, in the first line."
        )
    if numbers := [cell for cell in first if not isinstance(cell, str)]:
        raise DataError(
            f"Line {line} of {file} holds {labels.count(len(numbers), 'number')} where names of columns should be. "
            f"Name the columns there, or write excel(path={str(file)!r}, header=False)."
        )
