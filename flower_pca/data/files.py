"""Read files of arrays and of typed columns: npy, npz, scipy's sparse npz, svmlight and mtx text, parquet, Arrow."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, files, labels
from flower_pca.base.errors import ConfigError, DataError, requiring
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.blocks.groups import RowGroups, is_number, is_single_precision, number_of_rows, record_batches
from flower_pca.data.gaps import with_gaps_as_nan
from flower_pca.data.reading import (
    UnchangedFile,
    chosen_columns,
    in_memory_if_small,
    names_beside,
    reading_file,
    require_memory,
    require_numbers,
    require_size,
    tuple_of_names,
    with_id_column,
)
from flower_pca.names.columns import unusable_columns_error
from flower_pca.names.table import Table

_ENTRY: Final = 32  # bytes of memory for one entry of a sparse matrix while the matrix is read from text
# The types of Arrow that hold text
_TEXTS: Final = ("string", "large_string", "string_view")


def npy(*, path: str, gaps: Any = None) -> Table:
    """Read an array saved by numpy.save as a memory map. `gaps` lists numbers that stand for a missing value."""
    with reading_file(path, "an array saved by numpy.save") as file:
        rows = np.lib.format.open_memmap(file, mode="r")
    require_numbers(file, rows.dtype)
    return with_gaps_as_nan(Table.of_file(file, rows), gaps)


def npz(
    *,
    path: str,
    key: str = "X",
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
    max_gb: float = 1.0,
) -> Table:
    """Read one array of a file saved by numpy.savez.

    Parameters
    ----------
    path : str
        The file.
    key : str, default="X"
        The name of the array of rows. An array of text called feature_names or columns names its columns.
    beside : sequence of str, default=()
        Names of arrays of labels, with one value per row.
    ids : str or None, default=None
        The name of the array of row identifiers, for runs over different columns of the same people.
    gaps : default=None
        Numbers that stand for a missing value: [-999], or one list per column.
    max_gb : float, default=1.0
        The memory limit of the arrays in GB, because they can only be read whole.
    """
    with (
        reading_file(path, "a file saved by numpy.savez, without pickled objects") as file,
        file.open("rb") as raw,
        np.load(raw) as archive,
    ):
        if files.HEADER in archive:
            raise DataError(
                f"{file} was saved by flower_pca and holds no rows of data. Move it elsewhere, or leave it out.",
                place=str(file),
            )
        remedy = f"Write npz(path={path!r}, key={next(iter(archive), '...')!r})."
        _require_member(archive, file, key, remedy)
        require_size(file, sum(member.file_size for member in archive.zip.infolist()))
        beside = with_id_column(beside, ids)
        for name in tuple_of_names("beside", beside):
            _require_member(archive, file, name, checks.did_you_mean(name, archive))
        require_memory(file, sum(archive.zip.getinfo(f"{name}.npy").file_size for name in (key, *beside)), max_gb)
        rows = np.asarray(archive[key])
        columns = {name: np.asarray(archive[name]) for name in beside}
        named = names_beside(file, archive, key, rows.shape, lambda array: np.asarray(array).tolist())
    for name, column in columns.items():
        if column.shape != rows.shape[:1]:
            raise DataError(
                f"The array {name} of {file} has shape {column.shape}, but it must have one value for each of the "
                f"{labels.count(len(rows), 'row')}. Choose another array.",
                place=str(file),
            )
    return with_gaps_as_nan(Table.of_file(file, rows, named, columns, ids=ids), gaps)


def _require_member(archive: Any, file: Path, name: str, remedy: str) -> None:
    """Raise a ConfigError if the file has no array with this name."""
    if name not in archive:
        raise ConfigError(
            f"{file} has no array named {shown(name)}, only {', '.join(archive)}. {remedy}", place=str(file)
        )


def sparse(*, path: str, max_gb: float = 1.0) -> Table:
    """Read a matrix saved by scipy.sparse.save_npz. `max_gb` limits its memory, because it can only be read whole."""
    from scipy.sparse import load_npz

    with reading_file(path, "a matrix saved by scipy.sparse.save_npz") as file, file.open("rb") as raw:
        with zipfile.ZipFile(raw) as archive:
            require_memory(file, sum(member.file_size for member in archive.infolist()), max_gb)
        loaded: Any = load_npz(raw)
        rows = loaded.tocsr()
        rows.check_format()  # An entry outside the columns would make scipy read memory beyond its arrays.
    return Table.of_file(file, rows)


def svmlight(*, path: str, features: int | None = None, max_gb: float = 1.0) -> Table:
    """Read lines of "label index:value ..." as a sparse matrix with the label column y. Needs scikit-learn.

    Parameters
    ----------
    path : str
        The file.
    features : int or None, default=None
        The number of columns. It is needed if the last columns have no entry in this file.
    max_gb : float, default=1.0
        The memory limit in GB, because the file can only be read whole.
    """
    if features is not None:
        checks.integer("features", features, least=1)
    with requiring("scikit-learn", "to read this"):
        from sklearn.datasets import load_svmlight_file
    with reading_file(path, 'lines of "label index:value ..."') as file, file.open("rb") as raw:
        require_memory(file, _ENTRY * sum(piece.count(b":") for piece in iter(lambda: raw.read(2**20), b"")), max_gb)
        raw.seek(0)
        rows, labels = load_svmlight_file(raw, n_features=features)
    return Table.of_file(file, rows, beside={"y": labels})


def npz_or_sparse(*, path: str, beside: Sequence[str] = ()) -> Table:
    """Read an npz file that numpy.savez or scipy.sparse.save_npz has saved."""
    with reading_file(path, "a zip file") as file, zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    if {"format.npy", "shape.npy"} <= names:
        return sparse(path=path)
    return npz(path=path, beside=beside)


def parquet(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
) -> Table:
    """Read a parquet file by row groups. Needs pyarrow.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns that are not in `beside`.
    beside : sequence of str, default=()
        Names of columns that are not features, such as labels or row identifiers. They may hold text.
    ids : str or None, default=None
        The name of the column of row identifiers, for runs over different columns of the same people. It may hold
        text.
    gaps : default=None
        Numbers that stand for a missing value: [-999], or one list per column.
    """
    with requiring("pyarrow", "to read this"):
        import pyarrow.parquet as pq
    with reading_file(path, "a parquet file") as file:
        # This raises Python's own error if the file is missing or is a folder. pyarrow's error is hard to read.
        file.stat()

        def opened() -> Any:
            # With pre_buffer, pyarrow would keep everything it reads until the last row group: the whole file.
            return pq.ParquetFile(file, memory_map=True, pre_buffer=False)

        with file.open("rb"), opened() as first:
            require_size(file, 8 * first.metadata.num_rows * len(first.schema_arrow.names))
            return _table_of_groups(file, first, opened, columns, beside, ids, gaps)


def arrow(
    *,
    path: str,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
    ids: str | None = None,
    gaps: Any = None,
) -> Table:
    """Read a file of Arrow record batches, such as a feather file, as a memory map. Needs pyarrow.

    See `parquet` for the parameters.
    """
    with requiring("pyarrow", "to read this"):
        import pyarrow as pa
    with reading_file(path, "an Arrow file of record batches, or a feather file of version 2") as file:
        _require_arrow_file(file)

        def opened() -> Any:
            return pa.ipc.open_file(pa.memory_map(str(file)))

        return _table_of_groups(file, opened(), opened, columns, beside, ids, gaps)


def _require_arrow_file(file: Path) -> None:
    """Raise a DataError if a file is of an older or another format of Arrow, in which rows cannot be found by batch."""
    with file.open("rb") as begin:
        mark = begin.read(4)
    if mark == b"FEA1":
        raise DataError(f"{file} is a feather file of version 1. Write it again with version=2.", place=str(file))
    if mark == b"\xff\xff\xff\xff":
        raise DataError(
            f"{file} is a stream of Arrow, not a file of record batches. Write it with pyarrow.ipc.new_file.",
            place=str(file),
        )


def _table_of_groups(
    file: Path,
    opened: Any,
    again: Callable[[], Any],
    columns: Sequence[str] | None,
    beside: Sequence[str],
    ids: str | None,
    gaps: Any,
) -> Table:
    """Return the table of an opened file of row groups or record batches. `again` opens the file once more."""
    # A schema without columns is false.
    schema = opened.schema_arrow if hasattr(opened, "schema_arrow") else opened.schema
    names = [labels.clean_name(name) for name in schema.names]
    if not names:
        raise DataError(f"The data file {file} has no columns. Correct it, or remove it.", place=str(file))
    beside = with_id_column(beside, ids)
    asked = [name for given in (columns, beside) if isinstance(given, Sequence) for name in given]
    index = [name for name in _index_of_pandas(schema) if name not in asked]
    features, apart, words = chosen_columns(file, [name for name in names if name not in index], columns, beside)
    # Map each cleaned name to the name in the file.
    spelt = {name: schema.names[names.index(name)] for name in (*features, *apart) if name}
    kinds = {name: schema.field(spelt[name]).type for name in features}
    bad = {name: f"{_in_words(kind)} in column {name}" for name, kind in kinds.items() if not is_number(kind)}
    features = tuple(name for name in features if name not in bad)
    if bad and (columns is not None or not features):
        raise unusable_columns_error(file, bad)
    unchanged = UnchangedFile(file)

    def reopened() -> Any:
        unchanged.require_unchanged()
        return again()

    single = is_single_precision(kinds[name] for name in features)
    source = RowGroups(reopened, [spelt[name] for name in features], number_of_rows(opened), single=single)
    values = {name: _labels_of(opened, spelt[name]) for name in apart if name}
    return with_gaps_as_nan(
        Table.of_file(file, in_memory_if_small(source), features, values, words | bad, ids=ids), gaps
    )


def _in_words(kind: Any) -> str:
    """Describe a type of Arrow that is no number."""
    name = str(kind)
    return "text" if name in _TEXTS or name.startswith("dictionary<values=string") else f"a value of the type {name}"


def _index_of_pandas(schema: Any) -> set[str]:
    """Return the names of the columns in which pandas has stored the index of a data frame."""
    described = (schema.pandas_metadata or {}).get("index_columns", ())
    # An index that only counts the rows is described by a mapping, and is not stored as a column.
    return {labels.clean_name(name) for name in described if isinstance(name, str)}


def _labels_of(opened: Any, column: str) -> Array:
    """Return the labels in a column of all groups, as one array."""
    columns = (batch.column(column) for batch in record_batches(opened, [column], 2**16))
    parts = [(c.dictionary_decode() if hasattr(c, "dictionary_decode") else c).to_pylist() for c in columns]
    # Lists and structs count as words. numpy would refuse lists of different lengths.
    return np.array([str(value) if isinstance(value, list | dict) else value for part in parts for value in part])


def mtx(*, path: str, transpose: bool = False, max_gb: float = 1.0) -> Table:
    """Read a sparse matrix in the Matrix Market format, plain or compressed with gzip.

    Parameters
    ----------
    path : str
        The file.
    transpose : bool, default=False
        Whether to transpose the matrix, for example if a file has a row for each gene and a column for each cell.
    max_gb : float, default=1.0
        The memory limit in GB, because the file can only be read whole.
    """
    from scipy.io import mminfo, mmread

    checks.choice("transpose", transpose, (True, False))
    with reading_file(path, "a matrix in the format of Matrix Market") as file:
        file.stat()
        _, _, entries, _, field, _ = mminfo(str(file))
        if field == "complex":
            raise DataError(f"{file} holds complex numbers, but a PCA needs real numbers. Save a real matrix.")
        require_memory(file, _ENTRY * entries, max_gb)
        with warnings.catch_warnings():  # Newer versions of scipy warn that the class of the result will change.
            warnings.simplefilter("ignore", DeprecationWarning)
            rows: Any = mmread(str(file))
    from scipy.sparse import csr_array

    return Table.of_file(file, csr_array(rows.T if transpose else rows))
