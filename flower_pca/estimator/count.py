"""How many components there are where scikit-learn has no number: None means all of them, "mle" Minka's estimate.

Either way the run finds all of them. A run with noise on its answers finds none of these, so a budget needs a number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from flower_pca.analysis.dimension import minka
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.results.pca import PCAResult

_LIKELIEST: Final = "mle"


def asked(n_components: Any, n: int, d: int, *, private: bool) -> Any:
    """What a run over n rows of d columns is asked for."""
    estimated = n_components == _LIKELIEST
    if isinstance(n_components, str) and "%" not in n_components:
        checks.choice("n_components", n_components, (_LIKELIEST,))
    if n_components is not None and not estimated:
        return n_components
    if private:
        got = repr(n_components)
        raise ConfigError("n_components with dp", must="a whole number", got=got, then="Name a number.")
    if estimated and n < d:
        rule, remedy = f"at least as many as columns, {d}", "Name a number of components."
        raise DataError('The rows for n_components="mle"', must=rule, got=n, then=remedy)
    return min(n, d)


def kept(result: PCAResult, n_components: Any) -> PCAResult:
    """What is kept of the run's result: the likeliest number of components, if that was wanted, else all."""
    if n_components != _LIKELIEST:
        return result
    return _first(result, minka(result.explained_variance_, result.n_samples_))


def _first(result: PCAResult, k: int) -> PCAResult:
    """The first k components of a result that has them all."""
    if k == result.n_components_:
        return result
    beyond = float(result.explained_variance_[k:].sum())
    arrays = {name: getattr(result, name)[:k] for name in ("components_", "explained_variance_", "residuals_")}
    first, last, following = result.explained_variance_[[0, k - 1, k]]
    residual, gap = float(np.linalg.norm(arrays["residuals_"])), float(last - following) / (float(first) or 1.0)
    sine = residual / gap if gap > max(residual, 1e-12) else None
    left = result.left_out_variance_ + beyond
    asked = {**result.asked, "n_components": k}
    return replace(result, **arrays, left_out_variance_=left, sine_estimate_=sine, asked=asked)
