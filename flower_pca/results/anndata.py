"""Write scores and loadings into an AnnData object, where scanpy looks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array


def write_to_anndata(
    adata: Any,
    key: str,
    *,
    scores: Array,
    components: Array,
    names: Array | None,
    variances: Mapping[str, Array],
    params: Mapping[str, Any],
) -> None:
    """Fill obsm, varm and uns as scanpy.pp.pca does. Genes that the run left out get zero loadings."""
    genes = {clean_name(str(name)): j for j, name in enumerate(adata.var_names)}
    places = np.arange(len(genes)) if names is None else np.array([genes[clean_name(str(name))] for name in names])
    loadings = np.zeros((len(genes), len(components)))
    loadings[places] = components.T
    selected = len(places) < len(genes)
    which = {"use_highly_variable": selected, **({"mask_var": "highly_variable"} if selected else {})}
    # With the default key, scanpy stores the loadings under "PCs" and the variances under "pca".
    usual = key == "X_pca"
    adata.obsm[key] = scores
    adata.varm["PCs" if usual else key] = loadings
    adata.uns["pca" if usual else key] = {"params": {**params, **which}, **variances}
