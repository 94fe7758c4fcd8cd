"""Read files of SPSS, Stata and SAS with pyreadstat. These files can only be read whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flower_pca.base.errors import DataError, requiring
from flower_pca.base.shown import in_one_line
from flower_pca.data.reading import reading_file, require_memory
from flower_pca.data.typed import table_of
from flower_pca.names.table import Table

_SIZE: Final = 40  # bytes of memory for a cell while the file is read: a Python number and a reference in a list


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
    """Read an SPSS file, .sav or .zsav. Values that the file declares as missing become NaN. Needs pyreadstat.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns that are not in `beside`.
    beside : sequence of str, default=()
        Names of columns that are not features, such as labels or row identifiers. They may hold text.
    ids : str or None, default=None
        The name of the column of row identifiers.
    gaps : default=None
        Values that stand for a missing value, in addition to the values that the file declares: see `csv`.
    encoding : str or None, default=None
        The encoding of the file. By default, the encoding that the file declares.
    max_gb : float, default=1.0
        The memory limit in GB, because the file can only be read whole.
    """
    return _read_survey("read_sav", "a file of SPSS", path, encoding, max_gb, columns, beside, ids, gaps)


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
    """Read a Stata file, .dta. Its missing values, . and .a to .z, become NaN. Needs pyreadstat.

    See `spss` for the parameters.
    """
    return _read_survey("read_dta", "a file of Stata", path, encoding, max_gb, columns, beside, ids, gaps)


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
    """Read a SAS file: .sas7bdat, or the transport format .xpt. Needs pyreadstat.

    See `spss` for the parameters.
    """
    reader = "read_xport" if str(path).lower().endswith(".xpt") else "read_sas7bdat"
    return _read_survey(reader, "a file of SAS", path, encoding, max_gb, columns, beside, ids, gaps)


def _read_survey(
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
    with requiring("pyreadstat", "to read this"):
        import pyreadstat
    read: Callable[..., Any] = getattr(pyreadstat, reader)
    with reading_file(path, rule) as file:
        file.stat()  # If the file is missing, Python's own error is clearer than pyreadstat's.
        try:
            about = read(str(file), metadataonly=True, encoding=encoding)[1]
            cells = (about.number_rows or 0) * (about.number_columns or 0)
            require_memory(file, max(_SIZE * cells, file.stat().st_size), max_gb)
            found = read(str(file), output_format="dict", encoding=encoding)[0]
        except _reader_errors(pyreadstat) as error:
            raise DataError(
                f"{file} cannot be read as {rule} ({in_one_line(error)}). Export it again, or name its encoding, for "
                "example encoding='latin-1'."
            ) from error
    names = list(found)
    return table_of(file, names, [found[name] for name in names], wanted=columns, beside=beside, ids=ids, gaps=gaps)


def _reader_errors(package: Any) -> tuple[type[Exception], ...]:
    """Return the kinds of errors that pyreadstat raises, which depend on its version."""
    return tuple(getattr(package, name) for name in ("ReadstatError", "PyreadstatError") if hasattr(package, name))
