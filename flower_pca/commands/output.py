"""The files that commands write: scores for a spreadsheet, and what clients keep, which transform reads again."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca.base import archive
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array

if TYPE_CHECKING:
    from flower_pca.results.personal import PersonalResult

_OWN_FILE: Final = "flower_pca-own-{}.npz"
_KIND: Final = "own result"


def require_own(algorithm: Any, split: str = "rows") -> None:
    """Require an algorithm that leaves clients something of their own."""
    from flower_pca import registry

    if split == "rows" and not registry.leaves_own(algorithm):
        remedy = "Use consensus_rpca or exact_per_pca, or leave --own out."
        rule = "one that leaves clients something of their own"
        raise ConfigError("The algorithm with --own", must=rule, got=algorithm.name, then=remedy)


def write_own(result: Any, folder: Path, shards: Sequence[Any]) -> list[str]:
    """Write what each client of a simulation keeps into a file of its own; their names."""
    from flower_pca.vertical.result import ColumnsResult

    for key, arrays in result.own.items():
        apart = isinstance(result, ColumnsResult)
        names = (result.loadings(key) if apart else result).feature_names_in_
        about = {"algorithm": result.algorithm, "site": result.site_names.get(key, "")}
        header = {**about, "columns": None if names is None else [str(name) for name in names]}
        header |= {"rows": getattr(shards[key], "ids", None)} if apart else {}
        archive.write(folder / _OWN_FILE.format(key), _KIND, header, arrays, private=True)
    return [_OWN_FILE.format(key) for key in result.own]


def require_personal(result: Any, option: str) -> PersonalResult:
    """The result, which has to be that of a personalized run."""
    from flower_pca.results.personal import PersonalResult

    if not isinstance(result, PersonalResult):
        rule, got = "of a personalized run", f"a {type(result).__name__}"
        raise ConfigError(f"The result with {option}", must=rule, got=got, then=f"Leave {option} out.")
    return result


def own_components(path: str, result: Any) -> tuple[Array, str]:
    """The own components of a client in such a file, for the columns of a personalized result; and whose they are.

    That is the name of a site; "" where the file has none.
    """
    from flower_pca.algorithms.personal.closing import OWN

    require_personal(result, "--own")
    try:
        header, arrays = archive.read(path, _KIND)
    except FileNotFoundError as error:
        remedy = "Give a file that run --own, or a node, has written."
        raise DataError("The file of own components", must="there", got=f"no file {path}", then=remedy) from error
    made, wanted = (str(name).partition("(")[0] for name in (header.get("algorithm"), result.algorithm))
    if made != wanted:
        raise DataError(path, must=f"own components of {wanted}", got=f"those of {made}", then="Give those of its run.")
    columns, names = header.get("columns"), result.feature_names_in_
    there = OWN in arrays and arrays[OWN].shape[1:] == (result.n_features_in_,)
    if not there or (columns is not None and names is not None and sorted(columns) != sorted(names)):
        rule, remedy = "own components for the columns of the result", "Give those of its run."
        raise DataError(path, must=rule, got="others", then=remedy)
    if len(arrays[OWN]) > (most := result.local_components):
        rule, count = f"at most {most} own components, as the run of the result has", len(arrays[OWN])
        raise DataError(path, must=rule, got=count, then="Give those of its run.")
    order = range(result.n_features_in_) if columns is None or names is None else [columns.index(n) for n in names]
    return np.asarray(arrays[OWN][:, list(order)]), str(header.get("site") or "")


_SCORES: Final = "scores.csv"


def write_scores(result: Any, folder: Path) -> list[str]:
    """Write the scores, with the ids of the rows where they are known; the name of the file."""
    ids = result.row_ids_
    with (folder / _SCORES).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(["id"] if ids is not None else []), *result.get_feature_names_out()])
        for i, row in enumerate(result.scores_.tolist()):
            writer.writerow([*([ids[i]] if ids is not None else []), *(f"{value:.17g}" for value in row)])
    return [_SCORES]
