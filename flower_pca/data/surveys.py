"""Read files of SPSS, Stata and SAS with pyreadstat. They can only be read whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from flower_pca.base.errors import DataError, requires
from flower_pca.base.shown import in_one_line
from flower_pca.data.reading import reading, require_memory
from flower_pca.data.typed import table_of
from flower_pca.names.table import Table

_SIZE: Final = 40  # bytes of memory for a cell while it is read: a Python number, and its place in a list


def spss(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
    encoding: str | None = None,
    max_gb: float = 1.0,
) -> Table:
    """Read a file of SPSS: .sav or .zsav. Values that the file declares missing become NaN. Needs pyreadstat.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all that are not in `beside`.
    beside : sequence of str, default=()
        Names of columns that are not features: labels, or row identifiers. They may be text.
    ids : str or None, default=None
        The name of a column that says whose row it is.
    gaps : default=None
        What stands for a missing value beside what the file says: see `csv`.
    encoding : str or None, default=None
        Of the file; as it says itself, if left out.
    max_gb : float, default=1.0
        The memory limit, because the file can only be read whole.
    """
    return _read("read_sav", "a file of SPSS", path, encoding, max_gb, columns, beside, ids, gaps)


def stata(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
    encoding: str | None = None,
    max_gb: float = 1.0,
) -> Table:
    """Read a file of Stata: .dta. Its missing values, . and .a to .z, become NaN. Needs pyreadstat.

    The parameters are those of `spss`.
    """
    return _read("read_dta", "a file of Stata", path, encoding, max_gb, columns, beside, ids, gaps)


def sas(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
    encoding: str | None = None,
    max_gb: float = 1.0,
) -> Table:
    """Read a file of SAS: .sas7bdat, or .xpt, its transport format. Needs pyreadstat.

    The parameters are those of `spss`.
    """
    reader = "read_xport" if str(path).lower().endswith(".xpt") else "read_sas7bdat"
    return _read(reader, "a file of SAS", path, encoding, max_gb, columns, beside, ids, gaps)


def _read(
    reader: str,
    rule: str,
    path: str,
    encoding: str | None,
    max_gb: float,
    columns: Sequence[str] | None,
    beside: Sequence[str],
    ids: str | None,
    gaps: Any,
) -> Table:
    with requires("pyreadstat", "to read this"):
        import pyreadstat
    read: Callable[..., Any] = getattr(pyreadstat, reader)
    with reading(path, rule) as file:
        file.stat()  # pyreadstat raises an error of its own if the file is missing.
        try:
            about = read(str(file), metadataonly=True, encoding=encoding)[1]
            cells = (about.number_rows or 0) * (about.number_columns or 0)
            require_memory(file, max(_SIZE * cells, file.stat().st_size), max_gb)
            found = read(str(file), output_format="dict", encoding=encoding)[0]
        except _errors(pyreadstat) as error:
            raise _unreadable(file, rule, error) from error
    names = list(found)
    return table_of(file, names, [found[name] for name in names], wanted=columns, beside=beside, ids=ids, gaps=gaps)


def _errors(package: Any) -> tuple[type[Exception], ...]:
    """Return the errors that pyreadstat raises. Newer versions have one kind more."""
    return tuple(getattr(package, name) for name in ("ReadstatError", "PyreadstatError") if hasattr(package, name))


def _unreadable(file: Path, rule: str, error: Exception) -> DataError:
    return DataError(
        f"{file} cannot be read as {rule} ({in_one_line(error)}). Export it again, or name its encoding with "
        "encoding=..."
    )
