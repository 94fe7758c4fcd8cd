"""Read files of several arrays in pieces: HDF5, zarr, and the .h5ad files of anndata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError, DataError, requiring
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.blocks import adapters
from flower_pca.blocks.normalized import normalized
from flower_pca.data.gaps import with_gaps_as_nan
from flower_pca.data.reading import in_memory_if_small, names_beside, reading_file, tuple_of_names, with_id_column
from flower_pca.names import annotated
from flower_pca.names.columns import enumeration
from flower_pca.names.table import Table

_NAMES_AT_ONCE: Final = 2**16


def h5(*, path: str, key: str = "X", beside: Sequence[str] = (), ids: str | None = None, gaps: Any = None) -> Table:
    """Read an array of an HDF5 file in pieces. Other arrays of the file may hold labels. Needs h5py.

    An array of text called feature_names or columns holds the names of the columns.

    Parameters
    ----------
    path : str
        The file.
    key : str, default="X"
        The name of the array, or of a group that holds a sparse matrix. It may be left out if the file has only one
        two-dimensional array.
    beside : sequence of str, default=()
        Names of arrays of labels, with one value per row.
    ids : str or None, default=None
        The name of the array of row identifiers.
    gaps : default=None
        Numbers that stand for a missing value: [-999], or one list per column.
    """
    with requiring("h5py", "to read HDF5"):
        import h5py
    with reading_file(path, "an HDF5 file") as file:
        opened = h5py.File(file, "r")
        return _table_of_arrays(file, opened, key, beside, ids, gaps)


def zarr(
    *, path: str, key: str | None = None, beside: Sequence[str] = (), ids: str | None = None, gaps: Any = None
) -> Table:
    """Read a zarr array, or an array of a zarr group, in pieces. Needs zarr.

    Parameters
    ----------
    path : str
        The folder of the store.
    key : str or None, default=None
        The name of the array in a group. By default, it is X.
    beside : sequence of str, default=()
        Names of arrays of labels in the group, with one value per row.
    ids : str or None, default=None
        The name of the array of row identifiers.
    gaps : default=None
        Numbers that stand for a missing value: [-999], or one list per column.
    """
    with requiring("zarr", "to read zarr"):
        import zarr as store
    with reading_file(path, "a zarr array or group") as file:
        if not file.exists():
            raise FileNotFoundError(path)
        try:
            opened = store.open(str(file), mode="r")
        except FileNotFoundError as error:
            raise DataError(f"{file} has no zarr array or group. Write it again, or name another source.") from error
        if hasattr(opened, "shape"):
            return with_gaps_as_nan(
                Table.of_file(file, in_memory_if_small(adapters.as_blocks(opened, str(file)))), gaps
            )
        return _table_of_arrays(file, opened, key or "X", beside, ids, gaps)


def _tables_in_groups(opened: Any, groups: Sequence[str]) -> list[str]:
    """Return the names of the tables in the groups of a file, such as "visits/X"."""
    names = (f"{group}/{name}" for group in groups if hasattr(opened[group], "keys") for name in opened[group])
    return [name for name in names if len(getattr(opened.get(name), "shape", None) or ()) == 2]


def _table_of_arrays(file: Path, opened: Any, key: str, beside: Sequence[str], ids: str | None, gaps: Any) -> Table:
    """Return the table of a file with several arrays. The array named `key` holds the rows."""
    # A link may lead nowhere.
    members = [name for name in opened if opened.get(name) is not None]
    tables = [name for name in members if len(getattr(opened[name], "shape", None) or ()) == 2]
    if opened.get(key) is None and key == "X" and len(tables) == 1:
        key = tables[0]
    if opened.get(key) is None:
        inner = tables or _tables_in_groups(opened, members)
        remedy = checks.did_you_mean(key, members, f"Write key={inner[0]!r}." if inner else "Name another file.")
        raise ConfigError(
            f"{file} has no array {key!r}. It has {enumeration(members) or 'none'}. {remedy}", setting="key"
        )
    source = adapters.as_blocks(opened[key], f"{key} of {file}")
    n = source.shape[0]
    columns = {}
    for name in tuple_of_names("beside", with_id_column(beside, ids)):
        if name not in opened or tuple(getattr(opened[name], "shape", ())) != (n,):
            raise ConfigError(
                f"{file} has no array {shown(name)} with one value for each of its {labels.count(n, 'row')}. "
                f"{checks.did_you_mean(name, members)}"
            )
        columns[name] = _array_in_memory(opened[name])
    named = names_beside(file, opened, key, source.shape, lambda array: map(str, _array_in_memory(array).tolist()))
    return with_gaps_as_nan(Table.of_file(file, in_memory_if_small(source), named, columns, ids=ids), gaps)


def _array_in_memory(array: Any) -> Array:
    """Read an array into memory. Bytes are decoded to text."""
    values = np.asarray(array.asstr()[:] if _is_text(array) else array[:])
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    return values.astype(str) if values.dtype.kind == "O" else values


def _is_text(array: Any) -> bool:
    """Return whether an array is an HDF5 dataset of text."""
    return hasattr(array, "asstr") and array.dtype.kind == "O"


def h5ad(
    *,
    path: str,
    layer: str | None = None,
    use_highly_variable: bool = False,
    normalize: float | None = None,
    log: bool = False,
    beside: Sequence[str] | None = None,
    gaps: Any = None,
) -> Table:
    """Read the cells of an .h5ad file in pieces, with a row per cell and a column per gene. Needs h5py.

    The names of the cells become the row identifiers, and the columns of obs become label columns.

    Parameters
    ----------
    path : str
        The file.
    layer : str or None, default=None
        The layer to read. By default, X is read.
    use_highly_variable : bool, default=False
        Whether to use only the genes that the column highly_variable of var marks.
    normalize : float or None, default=None
        The sum over all genes to which each cell is scaled, such as 1e4. See `cells`.
    log : bool, default=False
        Whether each entry x is replaced by log(1 + x), after `normalize`.
    beside : sequence of str or None, default=None
        Names of the columns of obs to keep as label columns. By default, all columns are kept.
    gaps : default=None
        Numbers that stand for a missing value: [-999], or one list per gene.
    """
    with requiring("h5py", "to read .h5ad files"):
        import h5py
    with reading_file(path, "an .h5ad file of anndata") as file:
        opened = h5py.File(file, "r")
        for part in ("var", "obs"):
            if part not in opened:
                raise DataError(
                    f"{file} has no {part}, so it was not written by anndata. Read it with h5(path={path!r})."
                )
        matrix = _expression_matrix(file, opened, layer)
        source = adapters.as_blocks(matrix, str(file))
        genes, whose = (_row_names(opened[part]) for part in ("var", "obs"))
        if (len(whose), len(genes)) != source.shape:
            raise DataError(
                f"The rows of {file} are {source.shape[0]:,} x {source.shape[1]:,}, but obs has {len(whose):,} names "
                f"and var has {len(genes):,} names. Write the file again with adata.write_h5ad."
            )
        names = tuple(map(labels.clean_name, genes))
        annotated.require_different(names, str(file), "Run adata.var_names_make_unique() and write the file again.")
        obs = _columns_of_frame(opened["obs"])
        wanted = list(obs) if beside is None else list(tuple_of_names("beside", beside))
        if lacking := [name for name in wanted if name not in obs]:
            raise ConfigError(
                f"obs of {file} has no column {lacking[0]!r}. It has {enumeration(obs) or 'none'}. "
                f"{checks.did_you_mean(lacking[0], list(obs))}"
            )
        columns = {name: _read_column(obs[name]) for name in wanted}
        rows = normalized(in_memory_if_small(source), str(file), normalize=normalize, log=log)
        checks.choice("use_highly_variable", use_highly_variable, (True, False))
        wanted_genes = names
        if use_highly_variable:
            of_genes = _columns_of_frame(opened["var"])
            marks = _read_column(of_genes[annotated.MARKS]) if annotated.MARKS in of_genes else None
            wanted_genes = annotated.highly_variable_genes(names, marks, str(file))
    table = Table.of_file(file, rows, names, columns).pick(wanted_genes)
    return with_gaps_as_nan(replace(table, ids=tuple(whose)), gaps)


def _expression_matrix(file: Path, opened: Any, layer: str | None) -> Any:
    layers = list(opened.get("layers", ()))
    if layer is not None:
        if layer not in layers:
            raise annotated.no_such_layer_error(str(file), layer, layers)
        return opened["layers"][layer]
    # anndata can write an X of None as an empty array.
    if "X" not in opened or getattr(opened["X"], "shape", ()) is None:
        remedy = (
            f"Write h5ad(path={str(file)!r}, layer={layers[0]!r})." if layers else "Set adata.X, and write it again."
        )
        raise DataError(f"{file} has no X. {remedy}")
    return opened["X"]


def _row_names(group: Any) -> list[str]:
    """Return the row names of a data frame in a file."""
    if not hasattr(group, "keys"):  # Old versions of anndata wrote an array of records, one for each row.
        values = np.asarray(group[:])
        return [_decoded(value) for value in values[(values.dtype.names or ("index",))[0]].tolist()]
    stored = group[group.attrs.get("_index", "_index")]
    if hasattr(stored, "keys"):  # Newer versions of anndata write texts that may be missing, although no name is.
        stored = stored["values"]
    if not _is_text(stored):
        return [_decoded(value) for value in _array_in_memory(stored).tolist()]
    # Decode the names in parts, because decoding millions of names at once takes several times their memory.
    return [name for i in range(0, len(stored), _NAMES_AT_ONCE) for name in stored.asstr()[i : i + _NAMES_AT_ONCE]]


def _decoded(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _columns_of_frame(group: Any) -> Mapping[str, Any]:
    """Return the columns of a data frame in a file, by name."""
    if not hasattr(group, "keys"):
        return {}
    index = group.attrs.get("_index", "_index")
    return {name: group[name] for name in group if name not in (index, "__categories")}


def _read_column(stored: Any) -> Array:
    """Read a column of a data frame. Categories, and columns that may have missing values, are stored as groups."""
    if hasattr(stored, "shape"):
        return _array_in_memory(stored)
    if "codes" in stored:
        codes, kinds = np.asarray(stored["codes"][:]), _read_column(stored["categories"]).astype(str)
        return np.where(codes < 0, "", kinds[np.maximum(codes, 0)]) if len(kinds) else np.full(len(codes), "")
    values, gone = _array_in_memory(stored["values"]), np.asarray(stored["mask"][:])
    if values.dtype.kind in "iufb":
        return np.where(gone, np.nan, values.astype(np.float64))
    return np.where(gone, "", values)
