"""Ready data sets: those that come with scikit-learn, and those of Hugging Face through flwr-datasets."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import DataError
from flower_pca.base.extras import needing
from flower_pca.base.linalg import Array
from flower_pca.data.reading import chosen
from flower_pca.data.table import Table
from flower_pca.names.columns import no_numbers
from flower_pca.names.spelling import clean

_BUNDLED: Final = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")


def sklearn(*, name: str) -> Table:
    """A data set that comes with scikit-learn; what it predicts goes beside, as y. Needs scikit-learn.

    Args:
        name: breast_cancer, diabetes, digits, iris, linnerud or wine.
    """
    checks.choice("The data set of scikit-learn", name, _BUNDLED)
    with needing("scikit-learn", "to read this"):
        from sklearn import datasets
    bunch = getattr(datasets, f"load_{name}")()
    target = np.asarray(bunch.target)
    return Table((bunch.data,), tuple(map(str, bunch.feature_names)), {"y": target} if target.ndim == 1 else {})


def hugging_face(
    *,
    name: str,
    split: str = "train",
    subset: str | None = None,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> Table:
    """A data set of Hugging Face, loaded by flwr-datasets: numbers, vectors, or pictures as rows of pixels.

    Args:
        name: Its name, or the path of a local folder of csv, json or parquet files.
        split: Which part of it.
        subset: Which of its configurations, where it has several.
        columns: Names of the columns to use; all that are not beside, if left out.
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
    """
    with needing("flwr-datasets", "to read this"):
        from flwr_datasets import FederatedDataset
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            federated = FederatedDataset(dataset=name, subset=subset, partitioners={split: 1}, shuffle=False)
            loaded = federated.load_split(split)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        got = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        remedy = "Check its name, the split and the connection."
        raise DataError(f"The data set {name}", must="one that can be loaded", got=got, then=remedy) from error
    names = [clean(column) for column in loaded.column_names]
    features, apart, words = chosen(name, names, columns, beside)
    if words:
        raise no_numbers(name, words)
    spelt = {column: loaded.column_names[names.index(column)] for column in (*features, *apart)}
    numeric = loaded.select_columns([spelt[feature] for feature in features]).with_format("numpy")
    blocks = {feature: _block(numeric[:][spelt[feature]]) for feature in features}
    bad = {
        feature: f"{_kind(block)} in column {feature}"
        for feature, block in blocks.items()
        if block.dtype.kind not in "fiub"
    }
    if bad:
        raise no_numbers(name, bad)
    kinds = loaded.select_columns([spelt[column] for column in apart]).with_format(None)
    values = {column: np.asarray(kinds[:][spelt[column]]) for column in apart}
    single = all(block.shape[1] == 1 for block in blocks.values())
    return Table((np.hstack(list(blocks.values())),), features if single else (), values)


def _block(values: Any) -> Array:
    """A column as n x m, whatever the shape of its entries."""
    block = np.asarray(values)
    return block.reshape(len(block), -1)


def _kind(block: Array) -> str:
    return f"{str(block.flat[0])[:40]!r}" if block.size else str(block.dtype)
