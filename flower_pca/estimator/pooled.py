"""to_sklearn: a result as scikit-learn's own PCA."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from flower_pca.core.result import PCAResult


def to_sklearn(result: PCAResult) -> Any:
    """A fitted scikit-learn PCA of a result; under a scale, a Pipeline of StandardScaler and PCA."""
    pca = PCA(n_components=result.n_components_, svd_solver="full")
    pca.mean_ = result.mean_ if result.scale_ is None else np.zeros(result.n_features_in_)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"):
        setattr(pca, name, np.array(getattr(result, name)))
    for name in ("noise_variance_", "n_components_", "n_samples_", "n_features_in_"):
        setattr(pca, name, getattr(result, name))
    if result.scale_ is None:
        return pca
    scaler = StandardScaler(with_mean=result.centered)
    scaler.mean_, scaler.scale_, scaler.var_ = result.mean_, result.scale_, result.scale_**2
    scaler.n_samples_seen_, scaler.n_features_in_ = result.n_samples_, result.n_features_in_
    return make_pipeline(scaler, pca)
