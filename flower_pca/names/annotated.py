"""Read an AnnData object as a table with a row for each cell and a column for each gene."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import clean_name, describe_duplicate
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.blocks import adapters
from flower_pca.blocks.normalized import normalized
from flower_pca.names.columns import enumeration

MARKS = "highly_variable"  # the column of var in which scanpy marks highly variable genes


def is_annotated(X: Any) -> bool:
    """Return whether X has the attributes of an AnnData object."""
    return all(hasattr(X, what) for what in ("X", "obs_names", "var_names", "obs"))


def fields_of(
    X: Any, who: str, *, layer: str | None = None, normalize: float | None = None, log: bool = False
) -> dict[str, Any]:
    """Return the fields of a `Table` with the rows of an AnnData object, which may be backed by a file."""
    rows = _rows_of(X, who, layer)
    values = adapters.as_blocks(rows, who) if adapters.is_stored(rows) else rows
    names = tuple(clean_name(str(name)) for name in X.var_names)
    require_different(names, f"The AnnData object of {who}", "Run adata.var_names_make_unique().")
    values = normalized(values, who, normalize=normalize, log=log)
    beside = {str(name): np.asarray(X.obs[name]) for name in X.obs.columns}
    return {"values": values, "names": names, "ids": tuple(map(str, X.obs_names)), "beside": beside}


def _rows_of(X: Any, who: str, layer: str | None) -> Any:
    """Return the named layer of an AnnData object, or its matrix X if `layer` is None."""
    # Newer versions list X among the layers, under the name None.
    layers = [name for name in getattr(X, "layers", ()) if name is not None]
    if layer is not None:
        if layer not in layers:
            raise no_such_layer_error(f"The AnnData object of {who}", layer, layers)
        return X.layers[layer]
    if X.X is None:
        remedy = f"Name a layer: cells(adata, layer={layers[0]!r})." if layers else "Set adata.X to the counts."
        raise DataError(f"The AnnData object of {who} has no X. {remedy}")
    return X.X


def no_such_layer_error(who: str, layer: object, layers: Sequence[str]) -> ConfigError:
    """Return the error for a layer that does not exist."""
    has = f"It has the layers {enumeration(layers)}." if layers else "It has no layers, so leave layer out."
    return ConfigError(f"{who} has no layer {shown(layer)}. {has}", setting="layer", value=layer)


def require_different(names: Sequence[str], who: str, remedy: str) -> None:
    """Raise a DataError if two genes have the same name."""
    if len(set(names)) < len(names):
        most = Counter(names).most_common(1)[0][0]
        raise DataError(f"{who} has {describe_duplicate(most)} among its gene names. {remedy}")


def highly_variable_genes(names: Sequence[str], marks: Array | None, who: str) -> tuple[str, ...]:
    """Return the names of the genes that are marked as highly variable. Raise a DataError if no gene is marked."""
    if marks is None or not marks.any():
        what = f"has no column {MARKS} in var" if marks is None else "marks no gene as highly variable"
        raise DataError(
            f"{who} {what}. Run scanpy.pp.highly_variable_genes on it first, or leave use_highly_variable out."
        )
    return tuple(name for name, mark in zip(names, marks, strict=True) if mark)
