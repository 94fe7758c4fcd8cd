"""Write the result of a run on genotypes for PLINK: scores as covariates, and loadings for scoring other people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flower_pca.base import checks, files
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.names import variants
from flower_pca.names.table import Table

FAMILY, PERSON = "FID", "IID"  # the columns that name a person in PLINK
_STEM: Final = "pca"


def family_and_person_ids(table: Any) -> list[tuple[str, str]]:
    """Return the family ID, or "0" if it is unknown, and the person ID of each row.

    Raise a ConfigError if the rows have no ids.
    """
    if isinstance(table, Table) and {FAMILY, PERSON} <= {*table.beside}:
        return list(zip(table.beside[FAMILY].tolist(), table.beside[PERSON].tolist(), strict=True))
    if not isinstance(table, Table) or table.ids is None:
        raise ConfigError(
            "The rows have no ids, so PLINK cannot match the scores to people. Read the rows from a .bed file, or name "
            "the column that holds the ids."
        )
    return [("0", "_".join(name.split())) for name in table.ids]


def write_covariates(path: Path, table: Any, scores: Array) -> None:
    """Write scores under the header FID IID PC1 PC2 ..., which PLINK's --covar and other programs read."""
    head = [FAMILY, PERSON, *(f"PC{j + 1}" for j in range(scores.shape[1]))]
    lines = (
        [*who, *map(_number_as_text, row)]
        for who, row in zip(family_and_person_ids(table), scores.tolist(), strict=True)
    )
    _write_lines(path, [head, *lines], private=True)


def write_plink_files(result: Any, folder: str | os.PathLike[str], X: Any = None) -> list[Path]:
    """Write the files that `PCAResult.to_plink` describes, and return their paths."""
    names = result.feature_names_in_
    scaled = result.config.get("scale") == "genotype" and result.centered
    if not scaled or names is None or not variants.are_variants([*map(str, names)]):
        raise ConfigError(
            "PLINK divides each variant by the deviation that its allele frequency implies, so it can only use a run "
            'that did the same. Run on .bed files with scale="genotype", and leave center out.'
        )
    place = Path(folder).expanduser()
    checks.parent_exists("the files of PLINK", place)
    place.mkdir(exist_ok=True)
    numbered = [f"PC{j + 1}" for j in range(result.n_components_)]
    of = [str(name).split(":") for name in names]
    weights = (map(_number_as_text, row) for row in result.components_.T.tolist())
    rows = ([v[0], ":".join(v), v[2], *row] for v, row in zip(of, weights, strict=True))
    frequencies = (
        [v[0], ":".join(v), v[3], v[2], _number_as_text(mean / 2.0), 2 * result.n_samples_]
        for v, mean in zip(of, result.mean_.tolist(), strict=True)
    )
    every: dict[str, Iterable[Sequence[object]]] = {
        "eigenval": ([_number_as_text(value)] for value in result.explained_variance_.tolist()),
        "eigenvec.allele": [["#CHROM", "ID", "A1", *numbered], *rows],
        "afreq": [["#CHROM", "ID", "REF", "ALT", "ALT_FREQS", "OBS_CT"], *frequencies],
    }
    written = []
    for ending, lines in every.items():
        written.append(place / f"{_STEM}.{ending}")
        _write_lines(written[-1], lines)
    if X is not None:
        written.append(place / f"{_STEM}.eigenvec")
        write_covariates(written[-1], X, result.transform(X))
    return written


def _number_as_text(value: float) -> str:
    # With 17 digits, reading the text restores the exact float.
    return f"{value:.17g}" if np.isfinite(value) else "NA"


def _write_lines(path: Path, lines: Iterable[Sequence[object]], *, private: bool = False) -> None:
    with files.replacing_file(path, private=private) as file:
        file.write("".join("\t".join(map(str, line)) + "\n" for line in lines).encode())
