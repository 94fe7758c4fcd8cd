"""`FederatedPCA`, a federated run with scikit-learn's interface, and `to_sklearn`, which converts a result.

`fit` lets scikit-learn check the tables, and passes them to `simulate` as the clients' shards. Most methods of the
estimator call the result of this run. This module adds the features of scikit-learn that a result does not have:
whitening, outputs in the dtype of the rows, names of features, and two more values of `n_components`. None means all
components, and "mle" means Minka's estimate of their number. Both values require a run with all components. With
differential privacy, many of these components would be noise, so `n_components` must be a number.
"""

from __future__ import annotations

import inspect
import numbers
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from flower_pca.analysis import likelihood
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.labels import count
from flower_pca.base.linalg import Array
from flower_pca.base.options import marks_of, option
from flower_pca.base.settings import COUNTING
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.config import COVARIATES, covariate_names
from flower_pca.estimator import tables
from flower_pca.names.columns import enumeration
from flower_pca.names.levels import AsGiven, Coding, read_levels, source_of
from flower_pca.names.table import Table
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import require_shrinkage
from flower_pca.results.start import Start
from flower_pca.rows.covariates import SITE
from flower_pca.settings.budget import DP
from flower_pca.settings.masks import MaskedSums
from flower_pca.simulation import Ray, simulate
from flower_pca.stages.site_share import hints_of_sites

_PASSED_ON: Final = (
    "center",
    "scale",
    "missing",
    "categorical",
    "explain",
    "adjust",
    "harmonize",
    "keep",
    "tol",
    "max_rounds",
    "mask",
    "dp",
    "backend",
    "checkpoint",
)
_FITTED: Final = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
    "scale_",
    "noise_variance_",
    "n_components_",
    "n_samples_",
)


class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that fits the PCA of several clients' rows.

    `fit` runs the server and all clients in this process, or on Flower's simulation engine. It finds the
    components of all rows together, while each client sends only a few small matrices. In a deployment,
    Flower runs the same algorithms. The estimator has no `partial_fit`. To process rows as they arrive, use
    `track`.

    Parameters
    ----------
    n_components : int, float, "signal", "shared", "mle" or None, default=None
        The number of components, or the fraction of the total variance, in (0, 1), that the components must explain.
        None keeps all min(n_samples, n_features) components. "mle" uses Minka's estimate from the variances of all
        components. With "signal" or "shared", the run finds the number: see `PCAConfig`.
    algorithm : str or Algorithm, default="auto"
        The name of an algorithm, a string with parameters such as "faps(inner_steps=5)", or an instance. "auto" uses
        krylov, or covariance if it costs less.
    center : bool, default=True
        Whether to subtract the mean of all rows.
    scale : None or {"std", "max_abs", "genotype"}, default=None
        How to scale the columns: "std" to unit variance, "max_abs" by the largest absolute value, or "genotype" for
        counts of an allele (see `PCAConfig`). None leaves the columns unscaled.
    missing : {"error", "local_mean", "mean"}, default="error"
        What to do with missing values, which are NaN: raise an error ("error"), or replace them by the mean of the
        column at the same client ("local_mean") or at all clients ("mean").
    columns : sequence of str, str or None, default=None
        The names of the columns to use, if X consists of data frames. By default, all columns are used.
    categorical : sequence of str, mapping or str, or None, default=None
        The names of text columns in data frames, or a mapping from these names to their levels. Each text column
        is replaced by one column for each of its levels, such as `ward=surgery`, weighted as `PCAConfig` describes.
        `components_` has a column for each level.
    explain, adjust, keep : sequence of str or str, default=()
        The names of columns in data frames that are not features, such as age. The run computes how much of each
        component the columns in `explain` explain. It removes the influence of the columns in `adjust` from all
        features, and "site" in `adjust` removes the means of each site. Harmonizing does not remove the influence of
        the columns in `keep`. `transform` also needs the columns in `adjust` and `keep`. See `PCAConfig`.
    harmonize : None or {"combat"}, default=None
        "combat" gives each column the same location and scale at all sites before the PCA.
    whiten : bool, default=False
        Whether `transform` divides the scores by the standard deviations of the components.
    tol : float or None, default=None
        The error at which an iterative algorithm has converged. By default, the algorithm's default.
    max_rounds : int or None, default=None
        Maximum number of rounds of an iterative algorithm. By default, the algorithm's default.
    random_state : default=0
        The seed of all random numbers: an int, None or a numpy RandomState, as in scikit-learn.
    mask : bool, MaskedSums or str, default=False
        Whether to mask the clients' answers. To set parameters of the masks, pass a MaskedSums or a string such as
        "masks(neighbors=20)".
    dp : DP, str or None, default=None
        The budget of differential privacy, such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)". The fitted components then
        contain noise. `transform` itself is not private.
    backend, checkpoint
        The backend on which the run takes place, and the file from which an interrupted `fit` continues: see
        `simulate`.
    init : PCAResult, path or array-like, or None, default=None
        The components with which the run begins: an earlier result, its file, or an array with components as rows.

    Attributes
    ----------
    components_
        Components as rows, (n_components_, n_features_in_), orthonormal, with fixed signs. They have no weights for
        the columns in `explain`, `adjust` and `keep`.
    explained_variance_
        Variance along each component, with divisor n - 1.
    explained_variance_ratio_
        Each component's share of the total variance. With `dp`, it is only an estimate: see `result_.certainty`.
    singular_values_
        Singular values of the stacked rows of all clients, after centering and scaling.
    mean_
        Mean of all rows, or zeros if the rows were not centered.
    scale_
        Divisor of each column, or None.
    noise_variance_
        Mean variance along the directions outside the components.
    n_components_
        The number of components.
    n_samples_
        The total number of rows of all clients.
    n_features_in_
        The number of columns of X that are used. Each text column counts once, and so does each column in `explain`,
        `adjust` and `keep`.
    feature_names_in_
        The names of the used columns, if all these names are strings.
    result_
        The `PCAResult` of the run, with its status, residuals, history and plots. It is always in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import FederatedPCA
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> pca = FederatedPCA(n_components=2).fit(sites)
    >>> pca.transform(sites[0]).shape
    (60, 2)
    """

    # In scikit-learn's metadata routing, all methods that take the site of each row request it.
    __metadata_request__fit: ClassVar = {"sites": True}
    __metadata_request__transform: ClassVar = {"sites": True}
    __metadata_request__score: ClassVar = {"sites": True}

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        algorithm: str | Algorithm[Any] = "auto",
        center: bool = True,
        scale: str | None = None,
        missing: str = "error",
        columns: Sequence[str] | str | None = None,
        categorical: AsGiven | None = None,
        explain: Sequence[str] | str = (),
        adjust: Sequence[str] | str = (),
        harmonize: str | None = None,
        keep: Sequence[str] | str = (),
        whiten: bool = False,
        tol: float | None = None,
        max_rounds: int | None = None,
        random_state: Any = 0,
        mask: bool | MaskedSums | str = False,
        dp: DP | str | None = None,
        backend: str | Ray = "in_process",
        checkpoint: str | os.PathLike[str] | None = None,
        init: Start | None = None,
    ) -> None:
        # scikit-learn clones an estimator by its parameters, and requires that the constructor does not change them. So
        # they are checked and converted only in `fit`.
        self.n_components = n_components
        self.algorithm = algorithm
        self.center = center
        self.scale = scale
        self.missing = missing
        self.columns = columns
        self.categorical = categorical
        self.explain = explain
        self.adjust = adjust
        self.harmonize = harmonize
        self.keep = keep
        self.whiten = whiten
        self.tol = tol
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.mask = mask
        self.dp = dp
        self.backend = backend
        self.checkpoint = checkpoint
        self.init = init

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the class and the parameters that differ from their defaults, without values that may be rows."""
        told = [
            f"{name}={_text_of(value)}"
            for name, value in self.get_params(deep=False).items()
            if _differs_from_default(name, value)
        ]
        return f"{type(self).__name__}({', '.join(told)})"

    def fit(self, X: Any, y: Any = None, sites: Any = None) -> FederatedPCA:
        """Find the components of all rows, and return the estimator itself.

        Parameters
        ----------
        X : array-like
            The rows, (n_samples, n_features), dense or sparse. Alternatively, a list of such tables, one per client, or
            a mapping from the names of sites to tables.
        y : default=None
            Not used.
        sites : default=None
            For a single table, the site of each row, (n_samples,). By default, all rows belong to one client. A
            pipeline passes `sites` to this step if scikit-learn's metadata routing is enabled.
        """
        shards = tables.checked_shards(self, X, sites)
        self.result_ = self._run_pca(shards)
        dtype = np.float32 if all(shard.dtype == np.float32 for shard in shards) else np.float64
        for name in _FITTED:
            value = getattr(self.result_, name)
            setattr(self, name, value.astype(dtype) if isinstance(value, np.ndarray) else value)
        if not self.result_.status.ok:
            warnings.warn(str(self.result_.status), ConvergenceWarning, stacklevel=2)
        return self

    def fit_transform(self, X: Any, y: Any = None, sites: Any = None) -> Array:
        """Find the components of all rows, and return the coordinates of the rows, (n_samples, n_components_).

        Parameters
        ----------
        X, sites : array-like
            The rows, and the site of each row, in the same form as for `fit`.
        y : default=None
            Not used.
        """
        if sites is None:  # A subclass may define a `fit` without `sites`, as in scikit-learn's tests.
            return np.asarray(self.fit(X, y).transform(X))
        return np.asarray(self.fit(X, y, sites).transform(X, sites))

    def transform(self, X: Any, sites: Any = None) -> Array:
        """Return the coordinates of rows along the components, (n_samples, n_components_).

        Parameters
        ----------
        X : array-like
            The rows, (n_samples, n_features_in_), dense or sparse. If several tables are given, their scores are
            stacked.
        sites : array-like, optional
            For a single table, the site of each row, (n_samples,). It is required if the run removed the means of each
            site or harmonized the sites, because the scores of a row then depend on its site. If X is a mapping of
            tables, its keys are the sites. If X is a list of tables, the positions identify the sites.
        """
        return self._stack_by_site(X, sites, self._scores)

    def project(self, X: Any, sites: Any = None) -> Array:
        """Return the scores of new rows without shrinkage, (n_samples, n_components_): see `PCAResult.project`.

        Parameters
        ----------
        X, sites : array-like
            The rows, and the site of each row, in the same form as for `transform`.
        """
        scores = self._stack_by_site(X, sites, self._scores)
        return np.asarray(scores / require_shrinkage(self.result_.shrinkage_))

    def inverse_transform(self, X: Any) -> Array:
        """Return the rows that have the scores X and lie in the span of the components, (n_samples, n_features_in_)."""
        check_is_fitted(self)
        with tables.hiding_cells(X, "X"):
            scores = check_array(X, dtype=tables.DTYPES, input_name="X")
        if scores.shape[1] != self.n_components_:
            raise ConfigError(
                f"X has {count(scores.shape[1], 'column')}, but inverse_transform needs one for each of the "
                f"{self.n_components_} components. Give the scores that transform returns."
            )
        along = scores * self._whitening_divisors() if self.whiten else scores
        return self.result_.inverse_transform(along).astype(scores.dtype, copy=False)

    def score_samples(self, X: Any, sites: Any = None) -> Array:
        """Return the log density of each row under probabilistic PCA, (n_samples,), in the units of the data.

        Parameters
        ----------
        X, sites : array-like
            The rows, and the site of each row, in the same form as for `transform`.

        Raises
        ------
        DataError
            If the rows passed to `fit` had no variance along some direction, so that no density exists.
        """
        return self._stack_by_site(X, sites, likelihood.log_likelihood)

    def score(self, X: Any, y: Any = None, sites: Any = None) -> float:
        """Return the mean of `score_samples` over the rows. A grid search over `n_components` can maximize it."""
        return float(np.mean(self.score_samples(X, sites)))

    def get_covariance(self) -> Array:
        """Return the covariance under probabilistic PCA, (n_features_in_, n_features_in_), in the units of the data."""
        check_is_fitted(self)
        return likelihood.covariance(self.result_).astype(self.components_.dtype, copy=False)

    def get_precision(self) -> Array:
        """Return the inverse of the covariance under probabilistic PCA, (n_features_in_, n_features_in_)."""
        check_is_fitted(self)
        return likelihood.precision(self.result_).astype(self.components_.dtype, copy=False)

    @property
    def _coding(self) -> Coding | None:
        """The coding of text columns, or None without `categorical`."""
        if self.categorical is None:
            return None
        return Coding(read_levels(self.categorical) or ())

    @property
    def _covariates(self) -> tuple[str, ...]:
        """The columns of a table that are not features."""
        named = [name for setting in COVARIATES for name in covariate_names(setting, getattr(self, setting))]
        return tuple(dict.fromkeys(source_of(name) or name for name in named if name != SITE))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.categorical = self._coding is not None
        tags.input_tags.allow_nan = self.missing != "error"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _run_pca(self, shards: list[Any]) -> PCAResult:
        columns, d = tables.columns_of_run(self, shards)
        n = sum(shard.shape[0] for shard in shards)
        if n < 2 and self.center:
            raise DataError("A centered PCA needs at least 2 rows, but X has 1 sample. Give more rows.")
        result = simulate(
            self.algorithm,
            shards,
            n_components=components_to_ask(self.n_components, n, d, private=self.dp is not None),
            seed=self._seed(),
            init=self.init,
            columns=columns,
            **{name: getattr(self, name) for name in _PASSED_ON},
        )
        return components_to_keep(result, self.n_components)

    def _stack_by_site(self, X: Any, sites: Any, work: Callable[[PCAResult, Table], Array]) -> Array:
        """Return the stacked arrays that `work` returns for one or several tables.

        `work` takes two arguments: the result for the site of the rows, and the rows.
        """
        check_is_fitted(self)
        result, several = self.result_, tables.separate_tables(X)
        if several is not None:
            every, whose = several
            filled = [(i, table) for i, table in enumerate(every) if table.shape[0]] or list(enumerate(every))
            return np.concatenate(
                [work(self._result_at(whose.get(i, i)), self._with_names(table)) for i, table in filled]
            )
        rows = self._with_names(X)
        if not result.is_by_site:
            return work(result, rows)
        if sites is None:
            raise ConfigError(
                "The run adjusted or harmonized the rows of each site separately, so the site of new rows is needed. "
                "Give the site of each row, for example transform(X, sites=X['ward']), or a mapping from sites to "
                "tables."
            )
        names, place = tables.sites_of(rows, sites)
        found = np.concatenate([work(self._result_at(name), rows[place == i]) for i, name in enumerate(names)])
        return np.asarray(found[np.argsort(np.argsort(place, kind="stable"), kind="stable")])

    def _result_at(self, site: str | int) -> PCAResult:
        """Return the result for the rows of a site. `site` is the name or the position of the site.

        All sites have the same result unless the run adjusted or harmonized the sites.
        """
        return self.result_.at_site(site) if self.result_.is_by_site else self.result_

    def _scores(self, result: PCAResult, rows: Table) -> Array:
        scores = result.transform(rows)
        if self.whiten:
            return (scores / self._whitening_divisors()).astype(scores.dtype)
        return scores

    def _with_names(self, X: Any) -> Table:
        """Return the rows with the names of their columns, after scikit-learn's checks."""
        names = self.result_.feature_names_in_
        rows = tables.checked_rows(self, X, reset=False, who="X")
        if isinstance(rows, Table):  # The table has text columns.
            return rows
        return Table(rows, names=None if names is None else tuple(names))

    def _whitening_divisors(self) -> Array:
        """Return the divisors for whitening: the standard deviation of each component's scores, or 1 if it is 0."""
        result = self.result_
        deviations = np.sqrt(result.explained_variance_)
        # If components are not orthonormal, the variance of scores differs from the explained variance.
        if result.cross_ is not None:
            inverse = np.linalg.pinv(result.components_ @ result.components_.T)
            variances = np.diag(inverse @ result.cross_ @ inverse)
            deviations = np.sqrt(np.maximum(variances, 0.0))
        return np.asarray(np.where(deviations > 0.0, deviations, 1.0))

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError:
            # The message of scikit-learn would quote the data.
            raise ConfigError(
                f"random_state must be a whole number, None or a numpy RandomState, not {shown(self.random_state)}."
            ) from None


_MLE: Final = "mle"
# These fields of a result are arrays with one number for each component.
_SHARES: Final = ("site_share_", "explained_shares_", "explained_before_shares_")


def _differs_from_default(name: str, value: object) -> bool:
    usual = inspect.signature(FederatedPCA).parameters[name].default
    return value is not usual and not (isinstance(value, str | bool | int | float) and value == usual)


def _text_of(value: object) -> str:
    return repr(value.spec) if isinstance(value, Algorithm) else shown(value)


def components_to_ask(n_components: Any, n: int, d: int, *, private: bool) -> Any:
    """Return the `n_components` of the run over n rows and d columns, given the `n_components` of the estimator."""
    estimated = n_components == _MLE
    if isinstance(n_components, str) and "%" not in n_components:
        checks.choice("n_components", n_components, (_MLE, *COUNTING))
    if n_components is not None and not estimated:
        return n_components
    if private:
        raise ConfigError(
            f"{option('n_components')} is {shown(n_components)}, but with dp it must be a whole number. Give a number "
            "of components.",
            setting="n_components",
            value=n_components,
        )
    if estimated and n < d:
        raise DataError(
            f'n_components="mle" needs at least as many rows as columns, but X has {n} rows and {d} columns. Give '
            "a number of components.",
            setting="n_components",
            value=n_components,
        )
    return min(n, d)


def components_to_keep(result: PCAResult, n_components: Any) -> PCAResult:
    """Return the result with the most likely number of components for "mle", and otherwise with all components."""
    if n_components != _MLE:
        return result
    return _first_components(result, likelihood.minka(result.explained_variance_, result.n_samples_))


def _first_components(result: PCAResult, k: int) -> PCAResult:
    """Return the result with only its first k components. The given result has all components."""
    if k == result.n_components_:
        return result
    beyond = float(result.explained_variance_[k:].sum())
    residuals = result.residuals_
    sine = None
    if residuals is not None:
        first, last, following = result.explained_variance_[[0, k - 1, k]]
        largest = float(first) or 1.0
        # All components are known, so the next variance is known up to its residual.
        gap = float(last - following) / largest - float(residuals[k])
        residuals = residuals[:k]
        residual = float(np.linalg.norm(residuals))
        if gap > max(residual, 1e-12):
            sine = residual / gap
    cross = result.cross_
    if cross is not None:
        cross = cross[:k, :k]
    shares: dict[str, Any] = {name: a[..., :k] for name in _SHARES if (a := getattr(result, name)) is not None}
    scale = result.config.get("scale")
    of_sites = set(hints_of_sites(result.site_share_, result.sites_, result.n_samples_, scale))
    hints = [hint for hint in result.hints if marks_of(hint) not in of_sites]
    hints += hints_of_sites(shares.get("site_share_"), result.sites_, result.n_samples_, scale)
    return replace(
        result,
        components_=result.components_[:k],
        cross_=cross,
        explained_variance_=result.explained_variance_[:k],
        **shares,
        hints=tuple(hints),
        residuals_=residuals,
        left_out_variance_=result.left_out_variance_ + beyond,
        sine_estimate_=sine,
        config={**result.config, "n_components": k},
    )


def to_sklearn(result: PCAResult) -> Any:
    """Return a result as a fitted scikit-learn PCA, or as a Pipeline if it fills missing values or scales columns.

    In the Pipeline, a SimpleImputer, a StandardScaler, or both precede the PCA. The first step gets the names of
    columns.

    Raises
    ------
    ConfigError
        If scikit-learn's PCA cannot represent `result.transform`. This happens if `transform` is not a projection,
        components are not orthonormal, clients keep some of the components, or the run harmonized sites or adjusted
        for covariates.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate, to_sklearn
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> pca = to_sklearn(simulate("krylov", sites, n_components=2))
    >>> type(pca).__name__, pca.n_components_
    ('PCA', 2)
    """
    result.require_projecting("scikit-learn's PCA", "Use result.transform instead.")
    if result.cross_ is not None:
        raise ConfigError(
            f"scikit-learn's PCA needs orthonormal components, but the components of {result.algorithm} are not. Use "
            "result.transform instead."
        )
    if result.harmonized_by_:
        raise ConfigError("scikit-learn's PCA cannot harmonize sites. Use result.transform instead.")
    if result.adjusted_by_:
        raise ConfigError(
            "scikit-learn's PCA cannot adjust for covariates, but this run removed the effect of "
            f"{enumeration(result.adjusted_by_)}. Use result.transform instead."
        )
    names = result.frame.names
    steps = [*_steps_before_pca(result), _sklearn_pca(result)]
    if names is not None:
        steps[0].feature_names_in_ = result.feature_names_in_
    if len(steps) == 1:
        return steps[0]
    return make_pipeline(*steps)


def _steps_before_pca(result: PCAResult) -> list[Any]:
    """Return the steps before the PCA: an imputer and a scaler, if the result needs them."""
    steps: list[Any] = []
    if result.fill_ is not None:
        # The mean of a column over a single row is the entry itself.
        steps.append(SimpleImputer(keep_empty_features=True).fit(result.fill_[None, :]))
    if result.scale_ is not None:
        scaler = StandardScaler(with_mean=result.centered)
        scaler.mean_, scaler.scale_, scaler.var_ = result.mean_, result.scale_, result.scale_**2
        scaler.n_samples_seen_, scaler.n_features_in_ = result.n_samples_, result.n_features_in_
        steps.append(scaler)
    return steps


def _sklearn_pca(result: PCAResult) -> Any:
    pca = PCA(n_components=result.n_components_, svd_solver="full")
    pca.mean_ = result.mean_ if result.scale_ is None else np.zeros(result.n_features_in_)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"):
        setattr(pca, name, np.array(getattr(result, name)))
    for name in ("noise_variance_", "n_components_", "n_samples_", "n_features_in_"):
        setattr(pca, name, getattr(result, name))
    return pca
