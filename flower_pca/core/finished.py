"""What a finished model amounts to: the fields of a result that follow from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from flower_pca.base import linalg
from flower_pca.core import hints, saved
from flower_pca.core.model import Model


def fields(model: Model) -> dict[str, Any]:
    """The fields of `PCAResult`, by name, but those that the run alone knows."""
    assert model.values is not None
    assert model.residuals is not None
    assert model.status is not None
    k, ddof = model.k, max(model.n - 1, 1)
    first = float(model.values[0]) or 1.0
    unscaled = model.sizes if model.frame.scale is None else None
    return {
        "components_": np.ascontiguousarray(linalg.fix_signs(model.columns[:, :k]).T),
        "explained_variance_": model.values[:k] / ddof,
        "mean_": np.zeros(model.d) if model.frame.mean is None else model.frame.mean,
        "scale_": model.frame.scale,
        "total_variance_": model.trace / ddof,
        "n_samples_": model.n,
        "residuals_": model.residuals[:k] / first,
        "sine_estimate_": model.sine_estimate,
        "mse_": model.mse,
        "rounds": model.rounds,
        "status": model.status,
        "seed": model.seed,
        "centered": model.center,
        "answers": model.answers,
        "fill_": model.frame.fill,
        "histograms_": model.histograms,
        "feature_names_in_": saved.columns(model.feature_names),
        "feature_digest": "" if model.heading is None else model.heading.digest,
        "hints": () if unscaled is None else hints.of_sizes(unscaled, model.feature_names),
    }
