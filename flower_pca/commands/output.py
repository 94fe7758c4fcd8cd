"""The files that commands write, such as scores for a spreadsheet and the local results of clients."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca.base import errors, files, labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown, shown_as_text
from flower_pca.names import ids
from flower_pca.names.identifiers import is_called_identifier

if TYPE_CHECKING:
    from flower_pca.results.pca import PCAResult
    from flower_pca.results.personal import PersonalResult
    from flower_pca.results.projection import Projection
    from flower_pca.vertical.result import ColumnsResult


def picture_in_list(name: str) -> str:
    """Return the end of a sentence that lists files: "and NAME", or "and no picture (...)" without matplotlib."""
    if errors.is_installed("matplotlib"):
        return f"and {name}"
    return f"and no picture ({errors.not_installed('matplotlib', 'to draw')})"


_LOCAL_FILE: Final = "flower_pca-local-{}.npz"
_KIND: Final = "own result"
_FILE_OF_RUN: Final = "Give a file that was written by the same run as the result."
_TOLERANCE: Final = 1e-6  # absolute tolerance for inner products of orthonormal components, which must be 0 or 1


def require_local_results(algorithm: Any, partitioned_by: str = "rows", *, by_site: bool = False) -> None:
    """Raise a ConfigError if a run has no local results for --save-local.

    Local results come from the algorithm, from parties that hold different columns, or from an adjustment `by_site`.
    """
    from flower_pca import registry

    if partitioned_by == "rows" and not by_site and not registry.has_local_results(algorithm):
        raise ConfigError(
            f"{algorithm.name} computes no local results, so --save-local has nothing to write. Use consensus_rpca, "
            "exact_per_pca, --adjust site or --harmonize combat, or leave --save-local out."
        )


def write_local_results(result: PCAResult, folder: Path, shards: Sequence[Any]) -> list[str]:
    """Write the local result of each client of a simulation to its own file. Return the names of the files."""
    from flower_pca.vertical.result import ColumnsResult

    for key, arrays in result.local.items():
        header: dict[str, Any] = {"algorithm": result.algorithm, "site": result.site_names.get(key, "")}
        names = result.feature_names_in_
        if isinstance(result, ColumnsResult):
            names = result.loadings(key).feature_names_in_
            header["rows"] = getattr(shards[key], "ids", None)
        header["columns"] = None if names is None else [str(name) for name in names]
        files.write(folder / _LOCAL_FILE.format(key), _KIND, header, arrays, private=True)
    return [_LOCAL_FILE.format(key) for key in result.local]


def leftover_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the names of files with local results or scores that an earlier run wrote, which are not in `names`."""
    found = [*folder.glob(_LOCAL_FILE.format("*")), *folder.glob(_SCORES)]
    return sorted(file.name for file in found if file.name not in names)


def require_personal(result: PCAResult | Projection, option: str) -> PersonalResult:
    """Return the result if it is from a personalized run, or else raise a ConfigError that names this option."""
    from flower_pca.results.personal import PersonalResult

    if not isinstance(result, PersonalResult):
        raise ConfigError(
            f"{option} is for results of personalized runs, but this is a {type(result).__name__}. Leave {option} out."
        )
    return result


def local_components_of(path: str, result: PersonalResult) -> tuple[Array, str]:
    """Read a client's local components from a file, and return them with the client's name, or "" if it has no name.

    The columns are returned in the order of the result.
    """
    from flower_pca.algorithms.personal.closing import OWN

    header, arrays = _read_local_components(path)
    specs = (header["algorithm"], result.algorithm)
    made, wanted = (str(spec).partition("(")[0] for spec in specs)
    if made != wanted:
        raise DataError(f"{path} belongs to another run ({made} instead of {wanted}). {_FILE_OF_RUN}")
    columns, names = header["columns"], result.feature_names_in_
    own = arrays.get(OWN, np.zeros(0))
    fits = own.dtype.kind == "f" and own.shape[1:] == (result.n_features_in_,)
    differ = columns is not None and names is not None and sorted(columns) != sorted(names)
    if not fits or differ:
        raise DataError(f"The components in {path} have different columns from the result. {_FILE_OF_RUN}")
    if columns is not None and names is not None:
        own = own[:, [columns.index(name) for name in names]]
    _require_orthogonal(path, own, result)
    return np.asarray(own), str(header.get("site") or "")


def _read_local_components(path: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the arrays of a file of local components."""
    try:
        header, arrays = files.read(path, _KIND)
    except FileNotFoundError as error:
        raise DataError(
            f"No file named {shown(path)}. Give a file that flower-pca run --save-local or a node has written."
        ) from error
    if lacking := {"algorithm", "columns"} - header.keys():
        raise DataError(f"The header of {path} has no {' and no '.join(sorted(lacking))}. {_FILE_OF_RUN}")
    return header, arrays


def _require_orthogonal(path: str, local_components: Array, result: PersonalResult) -> None:
    """Raise a DataError if local components do not fit the result.

    Except for rows of zeros, they must be orthonormal, and orthogonal to the shared components. There must not be more
    local components than the run allows.
    """
    if len(local_components) > (most := result.local_components):
        raise DataError(
            f"{path} has {len(local_components)} local components, but the result's run allows at most {most}. "
            f"{_FILE_OF_RUN}"
        )
    local_components = local_components[local_components.any(axis=1)]
    products = local_components @ np.vstack([local_components, result.components_]).T
    if not np.allclose(products, np.eye(*products.shape), rtol=0.0, atol=_TOLERANCE):
        raise DataError(
            f"The components in {path} are not orthogonal to the shared components, so they belong to another run. "
            f"{_FILE_OF_RUN}"
        )


_SCORES: Final = "scores.csv"


def row_labels(data: str, features: Sequence[str] | None, gaps: Any = None) -> dict[str, list[str]]:
    """Return the id, file and site of each row, if they are known, by the name of the label.

    The id is taken from a column whose name is typical of an identifier and that is not a column of the result.
    """
    from flower_pca.data import sources

    spare = additional_columns(data, features, gaps)
    table = sources.table_for_columns(data, features, gaps=gaps)
    called = {
        "id": [name for name in spare if is_called_identifier(name)],
        "site": [name for name in spare if name.casefold() == "site"],
    }
    names = {label: found[0] for label, found in called.items() if found}
    with suppress(ConfigError):  # Some file formats cannot keep columns that are not features.
        table = sources.table_for_columns(data, features, beside=tuple(names.values()), gaps=gaps)
    known = {label: table.beside[name] for label, name in names.items() if name in table.beside}
    columns = {label: list(map(ids.as_text, cells.tolist())) for label, cells in known.items()}
    if table.ids is not None:
        columns["id"] = list(map(ids.as_text, table.ids))
    if table.origin is not None:
        columns["file"] = [Path(part.file).name for part in table.origin.stretches for _ in range(part.n)]
    if table.sites:
        columns["site"] = [part.site for part in table.parts for _ in range(len(part))]
    return {label: columns[label] for label in ("id", "file", "site") if label in columns}


def additional_columns(data: str, features: Sequence[str] | None, gaps: Any = None) -> list[str]:
    """Return the names of the columns of the data that are not features of the result.

    For a folder, the columns of its first file are returned.
    """
    from flower_pca.data import sources

    if features is None:
        return []
    if Path(data).expanduser().is_dir():
        data = str(sources.files_of(data, "*")[1][0])
    known = {"", *map(str, features)}
    return [name for name in sources.table_for_columns(data, features, gaps=gaps).columns if name not in known]


def write_table(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]], *, private: bool = True) -> None:
    """Write a csv file for R and spreadsheets. If `private`, only the owner of the file can read it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([shown_as_text(cell) for cell in row] for row in (head, *rows))
    with files.replacing_file(path, private=private) as file:
        file.write(text.getvalue().encode())


def write_scores(result: ColumnsResult, folder: Path) -> list[str]:
    """Write the scores, with the ids of rows if they are known. Return the name of the file."""
    # With 17 digits, reading the text restores the exact float.
    rows = [[f"{value:.17g}" for value in row] for row in result.scores_.tolist()]
    head = [*result.get_feature_names_out()]
    if result.row_ids_ is not None:
        head = ["id", *head]
        rows = [[id_, *row] for id_, row in zip(result.row_ids_, rows, strict=True)]
    write_table(folder / _SCORES, head, rows)
    return [_SCORES]


def write_loadings(result: PCAResult, path: Path) -> None:
    """Write the components, with one line for each column of the data."""
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    head = ["column", *(f"component_{i + 1}" for i in range(result.n_components_))]
    named = zip(names, result.components_.T.tolist(), strict=True)
    rows = [[name, *(f"{value:.17g}" for value in row)] for name, row in named]
    write_table(path, head, rows, private=False)
