"""Files of arrays and of typed columns: npy, npz, scipy's sparse npz, svmlight text, parquet."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, files, labels
from flower_pca.base.errors import ConfigError, DataError, needing
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.data.reading import chosen, reading, require_size, texts, with_ids
from flower_pca.names.columns import Columns, no_numbers
from flower_pca.names.table import Table

# of arrays that name the columns of the others
_NAMES: Final = ("feature_names", "columns")


def npy(*, path: str) -> Table:
    """An array saved by numpy.save, memory-mapped."""
    with reading(path, "an array saved by numpy.save") as file:
        rows = np.lib.format.open_memmap(file, mode="r")
    return Table.of_file(file, rows)


def npz(*, path: str, key: str = "X", beside: Sequence[str] = (), ids: str | None = None) -> Table:
    """One array of a file saved by numpy.savez; others of it, with one value for each row, may go
    beside.

    An array of text called feature_names or columns, of the length of a row, names the columns. The
    one that `ids` names says whose row each is, for runs over columns of the same people.
    """
    with (
        reading(path, "saved by numpy.savez, without pickled objects") as file,
        file.open("rb") as raw,
        np.load(raw) as archive,
    ):
        if files.HEADER in archive:
            got = "a file that flower_pca has saved"
            raise DataError(str(file), must="one of rows", got=got, then="Keep it elsewhere, or leave it out.")
        remedy = f"Write npz(path={path!r}, key={next(iter(archive), '...')!r})."
        _require_member(archive, f"The key of {file}", key, remedy)
        require_size(file, sum(member.file_size for member in archive.zip.infolist()))
        beside = with_ids(beside, ids)
        for name in texts("beside", beside):
            _require_member(archive, f"A column of {file}", name, checks.did_you_mean(name, archive))
        rows = np.asarray(archive[key])
        columns = {name: np.asarray(archive[name]) for name in beside}
        of_names = next((name for name in _NAMES if name in archive and name != key), "")
        named: tuple[str, ...] = ()
        if of_names:
            named = tuple(np.asarray(archive[of_names]).tolist())
    for name, column in columns.items():
        if column.shape != rows.shape[:1]:
            rule, got = (f"{labels.count(len(rows), 'value')}, one for each row", f"shape {column.shape}")
            raise DataError(f"{name} of {file}", must=rule, got=got, then="Choose another column.")
    if named and (rows.ndim != 2 or len(named) != rows.shape[1]):
        raise DataError(
            f"{of_names} of {file}",
            must=f"{rows.shape[-1]}, one for each column",
            got=len(named),
            then="Name each column, or leave them out.",
        )
    return Table.of_file(file, rows, Columns(named, str(file)).names, columns, ids=ids)


def _require_member(archive: Any, what: str, name: str, then: str) -> None:
    """Refuse the name of an array that is not in a file of several."""
    if name not in archive:
        raise ConfigError(what, must=f"one of {', '.join(archive)}", got=shown(name), then=then)


def sparse(*, path: str) -> Table:
    """A matrix saved by scipy.sparse.save_npz."""
    from scipy.sparse import load_npz

    with reading(path, "saved by scipy.sparse.save_npz") as file, file.open("rb") as raw:
        loaded: Any = load_npz(raw)
    return Table.of_file(file, loaded.tocsr())


def svmlight(*, path: str, features: int | None = None) -> Table:
    """Lines of "label index:value ...", as a sparse matrix; the labels go beside, as y. Needs
    scikit-learn.

    Args:
        path: The file.
        features: The number of columns, where the last ones may not occur in this file.
    """
    if features is not None:
        checks.integer("features", features, least=1)
    with needing("scikit-learn", "to read this"):
        from sklearn.datasets import load_svmlight_file
    with reading(path, 'lines of "label index:value ..."') as file, file.open("rb") as raw:
        rows, labels = load_svmlight_file(raw, n_features=features)
    return Table.of_file(file, rows, beside={"y": labels})


def npz_or_sparse(*, path: str, beside: Sequence[str] = ()) -> Table:
    """The kind of npz file that a bare path speaks of."""
    with reading(path, "a zip file") as file, zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    if {"format.npy", "shape.npy"} <= names:
        return sparse(path=path)
    return npz(path=path, beside=beside)


def parquet(
    *, path: str, columns: Sequence[str] | None = None, beside: Sequence[str] = (), ids: str | None = None
) -> Table:
    """A parquet file. Needs pyarrow.

    Args:
        path: The file.
        columns: Names of the columns to use; all that are not beside, if left out.
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
        ids: The name of one that says whose row it is, for runs over columns of the same people. It
            may be text.
    """
    with needing("pyarrow", "to read this"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with reading(path, "a parquet file") as file, file.open("rb") as raw:
        source = pq.ParquetFile(raw)
        spellings = source.schema_arrow.names
        names = [labels.clean(name) for name in spellings]
        features, apart, words = chosen(file, names, columns, with_ids(beside, ids))
        # as the file has it
        wanted = [name for name in (*features, *apart) if name]
        require_size(file, 8 * source.metadata.num_rows * len(wanted))
        spelt = {name: spellings[names.index(name)] for name in wanted}
        table = source.read(columns=list(spelt.values()))
        kinds = {name: table.schema.field(spelt[name]).type for name in features}
        number = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
        bad = {
            name: f"{kind} in column {name}"
            for name, kind in kinds.items()
            if not any(is_one(kind) for is_one in number)
        }
        features = tuple(name for name in features if name not in bad)
        if bad and (columns is not None or not features):
            raise no_numbers(file, bad)
        words |= bad
        used = [kinds[name] for name in features]
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in used)
        kind = np.float32 if single and features else np.float64
        rows = np.empty((table.num_rows, len(features)), dtype=kind)
        for j, name in enumerate(features):
            # Safe casts refuse whole numbers beyond 2^53, which only lose their last digits.
            column = table[spelt[name]].cast(pa.float64(), safe=False)
            rows[:, j] = column.to_numpy()
        values = {name: _decode(table[spelt[name]]) for name in apart if name}
    return Table.of_file(file, rows, features, values, words, ids=ids)


def _decode(column: Any) -> Array:
    whole = column.combine_chunks()
    return np.asarray((whole.dictionary_decode() if hasattr(whole, "dictionary_decode") else whole).to_pylist())
