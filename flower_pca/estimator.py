"""FederatedPCA, a federated run behind scikit-learn's interface; and to_sklearn, a result as scikit-learn's own PCA.

This module alone imports scikit-learn at its top.
"""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.result import PCAResult
from flower_pca.simulation import simulate

_DTYPES = (np.float64, np.float32)
_FITTED = (
    *("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "scale_"),
    *("noise_variance_", "n_components_", "n_samples_"),
)


class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component analysis of rows that belong to several clients, as a scikit-learn transformer.

    `fit` plays the server and all clients in this process. The components are those of all rows together; what a
    client sends on the way there is a few small matrices. In a deployment the same algorithms run by Flower.

    Args:
        n_components: How many components, or the fraction of the total variance in (0, 1) that they shall exceed.
        algorithm: A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance.
        center: Whether to subtract the mean of all rows.
        scale: None, "std" (unit variance) or "max_abs" (each column divided by its largest absolute value).
        missing: "error", or "mean": NaN is then a missing value, which becomes the mean of its column over all clients.
        whiten: Whether `transform` divides the scores by the standard deviations of the components.
        tol: The error at which an iterative algorithm has converged; its own value if left out.
        max_rounds: Rounds it takes at most; its own value if left out.
        random_state: Seed of everything random: an int, or what scikit-learn takes elsewhere.

    Attributes:
        components_: Components as rows, (n_components_, n_features_in_), orthonormal, signs fixed.
        explained_variance_: Variance along each component, with divisor n - 1.
        explained_variance_ratio_: Its share of the total variance.
        singular_values_: Singular values of all rows stacked, centred and scaled.
        mean_: Mean of all rows; zeros if not centred.
        scale_: What each column was divided by, or None.
        noise_variance_: Mean variance of the directions left out.
        n_components_: The number of components.
        n_samples_: Rows of all clients together.
        n_features_in_: The number of features.
        feature_names_in_: Names of the features, if they all are strings.
        result_: The run's `PCAResult`: its status, residuals, history and pictures.
    """

    def __init__(
        self,
        n_components: int | float = 2,
        *,
        algorithm: str | Algorithm[Any] = "krylov",
        center: bool = True,
        scale: str | None = None,
        missing: str = "error",
        whiten: bool = False,
        tol: float | None = None,
        max_rounds: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.center = center
        self.scale = scale
        self.missing = missing
        self.whiten = whiten
        self.tol = tol
        self.max_rounds = max_rounds
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> FederatedPCA:
        """Find the components of all rows.

        Args:
            X: The rows, (n_samples, n_features), dense or sparse; or a list of such tables, one per client.
            y: Not used.
            groups: For a single table, the client of each row, (n_samples,); left out, all rows are one client's.

        Returns:
            The estimator itself.
        """
        self.result_ = simulate(
            self.algorithm,
            self._shards(X, groups),
            n_components=self.n_components,
            center=self.center,
            scale=self.scale,
            missing=self.missing,
            seed=self._seed(),
            tol=self.tol,
            max_rounds=self.max_rounds,
        )
        for name in _FITTED:
            setattr(self, name, getattr(self.result_, name))
        if not self.result_.status.ok:
            warnings.warn(str(self.result_.status), ConvergenceWarning, stacklevel=2)
        return self

    def transform(self, X: Any) -> Array:
        """Coordinates of rows along the components, (n_samples, n_components_).

        Args:
            X: Rows, (n_samples, n_features_in_), dense or sparse; or a list of such tables, whose scores come stacked.
        """
        check_is_fitted(self)
        return np.concatenate([self._scores(table) for table in X]) if _is_list_of_tables(X) else self._scores(X)

    def inverse_transform(self, X: Any) -> Array:
        """Rows, (n_samples, n_features_in_), that have the scores X and nothing beside."""
        check_is_fitted(self)
        scores = check_array(X, dtype=_DTYPES, input_name="X")
        if scores.shape[1] != self.n_components_:
            remedy = "Give what transform returns."
            raise ConfigError("The columns of X", must=str(self.n_components_), got=scores.shape[1], then=remedy)
        return self.result_.inverse_transform(scores * self._deviations() if self.whiten else scores)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _scores(self, X: Any) -> Array:
        rows = self._validated(X, reset=False)
        scores = self.result_.transform(rows)
        return (scores / self._deviations()).astype(scores.dtype) if self.whiten else scores

    def _validated(self, X: Any, *, reset: bool) -> Any:
        finite = "allow-nan" if self.missing == "mean" else True
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=_DTYPES, ensure_all_finite=finite)

    def _deviations(self) -> Array:
        """What whitening divides by; 1 where there is no variance, and so nothing to divide."""
        deviations = np.sqrt(self.explained_variance_)
        return np.asarray(np.where(deviations > 0.0, deviations, 1.0))

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _shards(self, X: Any, groups: Any) -> list[Any]:
        if not _is_list_of_tables(X):
            rows = self._validated(X, reset=True)
            if groups is None:
                return [rows]
            check_consistent_length(rows, groups)
            _, client = np.unique(np.asarray(groups), return_inverse=True)
            return [rows[client == i] for i in range(client.max() + 1)]
        if groups is not None:
            remedy = "Give one table with groups, or a list of tables without."
            raise ConfigError("groups", must="left out of a list of tables", got="both", then=remedy)
        return [self._shard(table, first=i == 0, who=f"client {i}") for i, table in enumerate(X)]

    def _shard(self, table: Any, *, first: bool, who: str) -> Any:
        try:
            return self._validated(table, reset=first)
        except ValueError as error:
            error.add_note(f"in the table of {who}")
            raise


def _is_list_of_tables(X: Any) -> bool:
    """Whether X is a list of two-dimensional tables, not one table written as a list of rows."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(len(getattr(table, "shape", ())) == 2 for table in X)


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
