"""Data from files: svmlight text and npz."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse

from flower_pca import DataError

VARIABLE: Final = "FLOWER_PCA_DATA"  # of the environment: the folder of the papers' data sets
_DENSE: Final = 0.25  # share of entries stored from which svmlight rows are handled as a dense array


def folder() -> Path:
    """Where the papers' data sets lie as npz: what the variable FLOWER_PCA_DATA names, or else `data`."""
    return Path(os.environ.get(VARIABLE, "data"))


def located(source: str | Path) -> tuple[Path, str]:
    """The file and the key that PATH or PATH:KEY speaks of."""
    before, _, after = str(source).rpartition(":")
    path, key = (Path(source), "X") if Path(source).is_file() else (Path(before), after)
    if not path.is_file():
        raise DataError(f"The data must be a file, PATH or PATH:KEY. Got {str(source)!r}. Check the path.")
    return path, key


def read(source: str | Path) -> Any:
    """The rows in PATH or PATH:KEY, n x d: of an npz the array KEY ("X" if left out), of other files svmlight text.

    Arrays of more than two dimensions (pictures) become one row per first index. An npz that scipy's save_npz wrote is
    read as the sparse array it holds. float32 becomes float64, as products of float32 rows would end the curves early.
    """
    path, key = located(source)
    if path.suffix != ".npz":
        return read_svmlight(path)
    with np.load(path) as archive:
        if {"indptr", "indices", "shape", "format"} <= set(archive.files):
            return sparse.csr_array(sparse.load_npz(path))
        if key not in archive.files:
            named = ", ".join(archive.files)
            raise DataError(f"The key of {path} must be one of {named}. Got {key!r}. Write {path}:KEY.")
        X = archive[key]
    if X.ndim < 2 or X.dtype.kind not in "fiub":
        got = f"{X.ndim} dimensions of dtype {X.dtype}"
        raise DataError(f"The array {key!r} must be of numbers, a row per sample. Got {got}. Choose another key.")
    X = X.reshape(len(X), -1)
    return X.astype(np.float64) if X.dtype.kind == "f" else X


def read_svmlight(path: str | Path) -> Any:
    """The features of "label index:value ... # comment" lines. Indices count from 1, or from 0 if a 0 occurs."""
    columns, values, ends = array("q"), array("d"), array("q", [0])
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            try:
                pairs = [field.split(":") for field in fields[1:] if not field.startswith("qid:")]
                columns.extend([int(index) for index, _ in pairs])
                values.extend([float(value) for _, value in pairs])
            except ValueError:
                raise DataError(
                    f'Line {number} of {path} must be "label index:value ...". Got {line.strip()[:60]!r}. Correct it.'
                ) from None
            ends.append(len(columns))
    if len(columns) == 0 or min(columns) < 0:
        raise DataError(f"The indices in {path} must count from 0 or 1. Got {min(columns, default=None)}. Correct it.")
    indices = np.array(columns) - (1 if min(columns) > 0 else 0)
    shape = (len(ends) - 1, int(indices.max()) + 1)
    X = sparse.csr_array((np.array(values), indices, np.array(ends)), shape=shape)
    return X.toarray() if len(columns) >= _DENSE * shape[0] * shape[1] else X
