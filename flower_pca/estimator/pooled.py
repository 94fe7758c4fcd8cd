"""to_sklearn: a result as scikit-learn's own PCA."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from flower_pca.base.errors import ConfigError
from flower_pca.results.pca import PCAResult
from flower_pca.results.robust import RobustResult


def to_sklearn(result: PCAResult) -> Any:
    """A fitted scikit-learn PCA of a result; a Pipeline, where values may be missing, or columns are scaled.

    A SimpleImputer, a StandardScaler, or both then come before the PCA. Names of columns go to the first step.

    Raises:
        ConfigError: If the result is that of a robust run, whose `transform` is no projection.
    """
    if isinstance(result, RobustResult):
        rule, remedy = "one that projects rows", "Use its own transform."
        raise ConfigError("The result for scikit-learn", must=rule, got=type(result).__name__, then=remedy)
    steps = [*_before(result), _pca(result)]
    if result.feature_names_in_ is not None:
        steps[0].feature_names_in_ = result.feature_names_in_
    return steps[0] if len(steps) == 1 else make_pipeline(*steps)


def _before(result: PCAResult) -> list[Any]:
    """What has to be done to rows first."""
    steps: list[Any] = []
    if result.fill_ is not None:
        steps.append(SimpleImputer(keep_empty_features=True).fit(result.fill_[None, :]))
    if result.scale_ is not None:
        scaler = StandardScaler(with_mean=result.centered)
        scaler.mean_, scaler.scale_, scaler.var_ = result.mean_, result.scale_, result.scale_**2
        scaler.n_samples_seen_, scaler.n_features_in_ = result.n_samples_, result.n_features_in_
        steps.append(scaler)
    return steps


def _pca(result: PCAResult) -> Any:
    pca = PCA(n_components=result.n_components_, svd_solver="full")
    pca.mean_ = result.mean_ if result.scale_ is None else np.zeros(result.n_features_in_)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"):
        setattr(pca, name, np.array(getattr(result, name)))
    for name in ("noise_variance_", "n_components_", "n_samples_", "n_features_in_"):
        setattr(pca, name, getattr(result, name))
    return pca
