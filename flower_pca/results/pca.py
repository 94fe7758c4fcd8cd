"""`PCAResult`: the result of a run, with the attribute names of scikit-learn."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from flower_pca.base import checks, files, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import History, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import Sentence, marks_of
from flower_pca.base.shown import shown
from flower_pca.core.model import Model
from flower_pca.dp.certainty import Certainty, certainty
from flower_pca.dp.spent import Spent
from flower_pca.hints.sizes import hints_of_mean, hints_of_sizes
from flower_pca.hints.variants import hints_of_constants, hints_of_variants
from flower_pca.names.table import cells
from flower_pca.results import drawn, facts, saved
from flower_pca.results.facts import Fact, Listing, Remark, Summary
from flower_pca.results.left_out import LeftOut, plain_left_out
from flower_pca.results.matching import components_in_order, rows_in_frame
from flower_pca.results.projection import Projection, require_shrinkage, shrinkage_factors
from flower_pca.results.site import fields_for_site
from flower_pca.rows.adjusted import local_adjustment
from flower_pca.rows.combat import SiteEffect, hints_of_constant_columns, hints_of_few_rows
from flower_pca.rows.covariates import ADJUSTED, INVERSE, SITE, Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.settings.budget import DP
from flower_pca.stages import outlying_sites
from flower_pca.stages.opening import CONSTANT, OUTLYING, SITE_KEYS, SITE_ROWS
from flower_pca.stages.site_share import (
    BY_COLUMNS,
    BY_COLUMNS_BEFORE,
    SITE_SHARE,
    SITE_SHARE_BEFORE,
    hints_of_sites,
    names_of_shares,
    names_of_single_shares,
    number_of_sites,
)

_EXPLAINED: Final = 4  # maximum number of explaining columns with shares in a table
# Fewer rows are too few to harmonize a new site. With 20 rows, harmonizing reduced the share of variance between sites
# from 4.5 % to 1.9 %, and with 10 rows only to 3.2 %.
_MIN_ROWS: Final = 20
# With scale="std", the variances of columns without missing values add up to their number, up to this share.
_FILLED: Final = 1e-6
_SHRUNK: Final = 0.95  # A hint appears if the shrinkage of a component is below this factor.
# This matches the number of a client in a text, unless the client's name follows in parentheses.
_CLIENT_NUMBER: Final = re.compile(r"\bclient (\d+)\b(?! \()")
# This maps the name of a field with clients' keys to the name of the field that has one row per key.
_LINES_BY_KEY: Final = {"client_keys_": "clients_"}
# This maps the names in saved files to result classes.
_KINDS: Final[dict[str, type[PCAResult]]] = {}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PCAResult:
    """The principal components of the rows of all clients together.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Components as rows, orthonormal, largest variance first. Sparse components are not orthonormal, and are in the
        order in which they were found. Each row's largest entry is positive.
    explained_variance_ : ndarray of shape (k,)
        Variance along each component, with divisor n - 1.
    mean_ : ndarray of shape (d,)
        Mean of all rows; zeros if the run was not centered.
    scale_ : ndarray of shape (d,) or None
        Divisor of each column, or None.
    total_variance_ : float
        Total variance of all rows in the frame, with divisor n - 1.
    left_out_variance_ : float
        The part of the total variance outside the components. In runs without noise, a variance is off by at most its
        residual times the first variance, and this part by at most all residuals together. For rows in single
        precision, that is about 5e-7 of the first variance for each component. With `dp`, noise makes it inaccurate,
        and it is 0 if the noise is stronger: see `certainty`, which has bounds.
    n_samples_ : int
        Rows of all clients together.
    residuals_ : ndarray of shape (k,) or None
        ||C z - theta z|| of each component relative to the first eigenvalue. If numbers were sent in fewer bits or in
        masked sums, this includes a bound on the rounding errors. None if the components do not approximate
        eigenvectors of the covariance of all rows.
    sine_estimate_ : float or None
        Estimated sine of the largest angle to the true subspace, residual / gap. None if the gap may be no larger than
        the residual, for example if eigenvalues k and k+1 are tied, so that the true subspace is not unique. If
        only the last component belongs to a multiple eigenvalue, or to one of several that nearly agree, the run may
        not see it. Then every direction in the space of these eigenvalues is exact, and this is the sine of the angle
        to the nearest. None if `residuals_` is None.
    mse_ : float or None
        Mean squared reconstruction error of a row in the frame, if the run evaluated it; else None.
    rounds : int
        Number of rounds in the algorithm's own stage. `history` lists the messages of all stages.
    status, history
        Why the run ended, and what happened in each round.
    algorithm, seed, centered
        The algorithm's spec string, the seed, and whether the run was centered.
    answers : str
        "fixed" if every client answered from fixed statistics of its rows, else "rows".
    config : mapping
        The configuration of the run, as plain values: `flower_pca.assembly.config(**config)` recreates it.
    local : mapping
        Local results that clients do not send, by the client's position. `simulate` returns them, and `save` leaves
        them out.
    fill_ : ndarray of shape (d,) or None
        The value that replaces a missing value in each column, which is the column's mean. None if no missing values
        were allowed.
    histograms_ : ndarray of shape (2, bins) or None
        Number of rows of all clients in each bin of T2 and of SPE, after a run with `monitor`, else None. See
        `analysis.monitor.Monitor`.
    histograms_of : str
        "left out" if each row was compared with components that were fitted without this row, so that limits hold for
        new rows. "rows" if the components were fitted to all rows.
    cross_ : ndarray of shape (k, k) or None
        Covariances along the components, Z'CZ / (n - 1), if the components are not orthonormal, else None.
    loading_errors_, variance_errors_ : ndarray or None
        Standard errors of the loadings, (k, d), and of the variances, (k,): how much they would vary with new rows from
        the same sites. None without `standard_errors`. See `stages.standard_errors`.
    site_loading_errors_, site_variance_errors_ : ndarray or None
        Standard errors that show how much loadings and variances would vary with new sites. None without
        `standard_errors`, and with a single client.
    noise_thresholds_ : ndarray of shape (k + 1,) or None
        The variance that noise alone would reach, for each component and for the first component left out, after a run
        with n_components="signal", else None. See `stages.signal`.
    site_share_ : ndarray of shape (k,) or None
        The share of each component's variance between sites, which is eta squared in an analysis of variance of the
        scores by site. None if the server cannot compute it: with masks, noise or max_share, for robust, personalized
        and sparse components, for very many sites with many columns, and if `wire` leaves too few bits for a small
        component. Also None with adjust="site" and with harmonize, because the means of each site were estimated from
        its own rows.
    sites_ : int or None
        The number of sites that `site_share_` compares, or None.
    explained_names_ : tuple of str
        The names in `explained_by_`.
    explained_shares_ : ndarray of shape (m, k) or None
        The shares in `explained_by_`, one row per name. None without `explain`.
    explained_before_names_, explained_before_shares_
        The names and shares in `explained_before_`. None without `harmonize` or without `explain`.
    adjusted_by_ : tuple of str
        The covariates whose effect the run removed because of `adjust`, and "site" if the run subtracted the means of
        each site.
    covariate_mean_, slopes_ : ndarray or None
        The means of the q covariates, (q,), and how much each column changes with each covariate, (q, d). "site" is not
        one of the q covariates. None without covariates.
    covariate_inverse_ : ndarray of shape (q, q) or None
        The pseudo-inverse of M'M, where the rows of M are the covariates minus their means. The leverages of rows are
        computed from it.
    adjusted_degrees_ : int
        The number of degrees of freedom that covariates and sites use up.
    harmonized_by_ : str
        "combat" if sites were harmonized, else "".
    kept_ : tuple of str
        The covariates whose effect `harmonize` preserved. Their slopes are in `slopes_`.
    grand_, sigma_ : ndarray of shape (d,) or None
        The grand mean of each column, and the standard deviation of the part of the column that sites and covariates do
        not explain. None if sites were not harmonized.
    site_location_, site_scale_ : ndarray of shape (d,) or None
        The location and scale of one site, in a result for rows of this site, else None. See `at_site`.
    feature_names_in_ : ndarray of shape (d,) or None
        Names of the columns, in the order of the columns of `components_`. None if columns are matched by position.
    feature_digest : str
        SHA-256 of the sorted names, if clients do not send the names. "" if columns have no names.
    site_names : mapping
        Names of the contributing clients by key, as in `local`. Clients without a name are not listed.
    left_out : mapping
        Clients whose rows are not in the result, by key, each with its `name_of_client` and `why`.
    decisions : tuple of str
        Automatic choices of the run and the reasons, for example which algorithm algorithm="auto" has chosen.
    hints : tuple of str
        Hints about suspicious data, for example about a column that dominates the components because it is an
        identifier or has a different unit.
    privacy : Spent or None
        The privacy cost of a run with differential privacy, else None. With differential privacy, counts, means and
        variances are noisy.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("krylov", sites, n_components=2)
    >>> result.components_.shape, result.n_samples_
    ((2, 6), 180)
    >>> result.transform(sites[0]).shape
    (60, 2)
    """

    # This is true if the shared components alone describe a row, without local components or a sparse part.
    complete: ClassVar[bool] = True
    # This is true if the components approximate eigenvectors of the covariance of all rows.
    pooled: ClassVar[bool] = True
    # This is true if `transform` is a projection.
    projects: ClassVar[bool] = True
    variance_of: ClassVar[str] = "the variance"  # what the components explain a share of, as a phrase for sentences
    share_head: ClassVar[str] = "share"  # the head of a table column with shares of this quantity

    components_: Array
    explained_variance_: Array
    mean_: Array
    scale_: Array | None
    total_variance_: float
    left_out_variance_: float
    n_samples_: int
    residuals_: Array | None
    sine_estimate_: float | None
    mse_: float | None
    rounds: int
    status: Status
    history: History
    algorithm: str
    seed: int
    centered: bool
    answers: str = "rows"
    fill_: Array | None = None
    histograms_: Array | None = None
    histograms_of: str = "rows"
    cross_: Array | None = None
    loading_errors_: Array | None = None
    variance_errors_: Array | None = None
    site_loading_errors_: Array | None = None
    site_variance_errors_: Array | None = None
    noise_thresholds_: Array | None = None
    site_share_: Array | None = None
    sites_: int | None = None
    explained_names_: tuple[str, ...] = ()
    explained_shares_: Array | None = None
    explained_before_names_: tuple[str, ...] = ()
    explained_before_shares_: Array | None = None
    adjusted_by_: tuple[str, ...] = ()
    covariate_mean_: Array | None = None
    slopes_: Array | None = None
    covariate_inverse_: Array | None = None
    adjusted_degrees_: int = 0
    harmonized_by_: str = ""
    kept_: tuple[str, ...] = ()
    grand_: Array | None = None
    sigma_: Array | None = None
    site_location_: Array | None = None
    site_scale_: Array | None = None
    feature_names_in_: Array | None = None
    feature_digest: str = ""
    site_names: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    decisions: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    privacy: Spent | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[int, dict[str, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("decisions", "hints"):
            object.__setattr__(self, name, tuple(map(Sentence, getattr(self, name))))
        for name in ("explained_names_", "explained_before_names_", "adjusted_by_", "kept_"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _KINDS[cls.__name__] = cls

    @classmethod
    def of(cls, model: Model, *, algorithm: str, history: History, config: Mapping[str, Any]) -> Self:
        """Return the result of a finished model."""
        return cls(**cls._fields(model), algorithm=algorithm, history=history, config=config)

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        """Return the fields that follow from a finished model. Subclasses add their own fields."""
        fields = fields_of(model)
        if cls.pooled and model.pooled and fields["cross_"] is None:
            return fields
        # Residuals and the sine estimate have a meaning only for eigenvectors of the covariance of all rows.
        return {**fields, "residuals_": None, "sine_estimate_": None}

    @property
    def n_components_(self) -> int:
        """k, the number of components."""
        return len(self.components_)

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return int(self.components_.shape[1])

    @property
    def explained_variance_ratio_(self) -> Array:
        """The share of the total variance along each component, (k,). With `dp`, noise makes it inaccurate."""
        total = self.total_variance_
        if self.privacy is not None:
            total = max(total, float(self.explained_variance_.sum()))
        return np.asarray(self.explained_variance_ / (total or 1.0))

    @property
    def explained_by_(self) -> dict[str, Array]:
        """The share of each component's variance that other columns explain, {name: (k,)}.

        The share is the R squared of a least squares fit of the scores on columns that are not features. There is an
        entry for each column of the option `explain`, and if there are several columns, an entry for all of them
        together. An entry "site beyond ..." is the part of the remaining variance that is between sites.
        """
        if self.explained_shares_ is None:
            return {}
        return dict(zip(self.explained_names_, self.explained_shares_, strict=True))

    @property
    def explained_before_(self) -> dict[str, Array]:
        """The shares of `explained_by_` before sites were harmonized, {name: (k,)}.

        These shares are about the scores of the original rows along the same components. The entry "site" is the share
        between sites. For harmonized rows, this share can only be computed from new rows, because the means of each
        site were estimated from the rows of the run.
        """
        if self.explained_before_shares_ is None:
            return {}
        return dict(zip(self.explained_before_names_, self.explained_before_shares_, strict=True))

    @property
    def shares_by_name(self) -> dict[str, Array]:
        """The shares of each component's variance that sites and a few columns explain, by their labels in tables."""
        columns, before = names_of_single_shares(self.explained_names_)[:_EXPLAINED], self.explained_before_
        found = {} if self.site_share_ is None else {"between sites": self.site_share_}
        if SITE in before:
            found["between sites before"] = before[SITE]
        for name in columns:
            if name in before:
                found[f"by {name} before"] = before[name]
            found[f"by {name}"] = self.explained_by_[name]
        return found

    @property
    def certainty(self) -> Certainty | None:
        """Bounds on the variances of a run with differential privacy, else None.

        Noise hides the exact variances, so bounds are all that can be known.
        """
        if self.privacy is None:
            return None
        return certainty(
            self.privacy,
            DP.of(self.config.get("dp")),
            self.frame,
            rows=self.n_samples_,
            columns=self.n_features_in_,
            answered=facts.number_of_clients(self.history),
            variances=self.explained_variance_,
            total=self.total_variance_,
        )

    @property
    def singular_values_(self) -> Array:
        """The singular values of the matrix of all rows, in the frame, (k,)."""
        return np.asarray(np.sqrt(self.explained_variance_ * max(self.n_samples_ - 1, 1)))

    @property
    def noise_variance_(self) -> float:
        """The mean variance of directions outside the components (Tipping and Bishop 1999), as in scikit-learn.

        With `dp`, noise makes it inaccurate, as for `left_out_variance_`.
        """
        rest = min(self.n_samples_, self.n_features_in_) - self.n_components_
        if rest:
            return self.left_out_variance_ / rest
        return 0.0

    @property
    def shrinkage_(self) -> Array | None:
        """The factor by which scores of new rows are smaller than scores of the run's rows, (k,).

        Components are biased towards the rows that they were fitted to, so the scores of new rows are smaller (Lee,
        Zou, Wright 2010; Dey, Lee 2019). The effect is large if there are more columns than rows. The factors are None
        if variances are noisy, if `max_share` was set, if parties hold different columns, or if components are not
        eigenvectors of the covariance of all rows.
        """
        if not self.is_pooled or self.privacy is not None:
            return None
        if self.config.get("max_share") is not None or self.config.get("partitioned_by", "rows") != "rows":
            return None
        rows = self.n_samples_ - int(self.centered) - self.adjusted_degrees_
        return shrinkage_factors(
            self.explained_variance_, self.left_out_variance_, rows=rows, columns=self.n_features_in_
        )

    @property
    def shrinkage_hint(self) -> str:
        """A hint if scores of new rows are clearly smaller than scores of the run's rows, with the remedy, else ""."""
        if words := self.shrinkage_in_words:
            return f"{words}. project() corrects this, and so does flower-pca transform --among-own."
        return ""

    @property
    def shrinkage_in_words(self) -> str:
        """A sentence without a period if scores of new rows are clearly smaller than scores in the run, else ""."""
        factors = self.shrinkage_
        if factors is None or float(factors.min()) >= _SHRUNK:
            return ""
        j = int(factors.argmin())
        return (
            f"Scores of new rows are smaller than scores of the rows of the run, by {1.0 - factors[j]:.0%} along "
            f"component {j + 1}"
        )

    @property
    def frame(self) -> Frame:
        """The coordinate system of components and variances: mean, scale, fill and names."""
        names = labels.tuple_of(self.feature_names_in_)
        mean = self.mean_ if self.centered else None
        return Frame(mean, self.scale_, self.fill_, names=names, covariates=self.adjust_)

    @property
    def is_by_site(self) -> bool:
        """Whether the rows of a site can be adjusted only with the local results of this site. See `at_site`."""
        return SITE in self.adjusted_by_ or (bool(self.harmonized_by_) and self.site_location_ is None)

    @property
    def columns_needed_(self) -> tuple[str, ...] | None:
        """The names of the features and covariates that new rows need, or None if columns are matched by position."""
        names = labels.tuple_of(self.feature_names_in_)
        if names is None or self.adjust_ is None:
            return names
        return (*names, *self.adjust_.names)

    @property
    def adjust_(self) -> Covariates | None:
        """The adjustment of rows before the PCA, or None if rows were not adjusted.

        The adjustment consists of the covariates whose effect was removed, with their means and slopes, or of the
        quantities by which sites were harmonized.
        """
        if self.harmonized_by_:
            effect = None
            if self.site_location_ is not None and self.site_scale_ is not None:
                effect = SiteEffect(self.site_location_, self.site_scale_, np.zeros(self.n_features_in_, dtype=bool))
            return Covariates(self.kept_, len(self.kept_), False, None, self.slopes_, self.grand_, self.sigma_, effect)
        if not self.adjusted_by_:
            return None
        names = tuple(name for name in self.adjusted_by_ if name != SITE)
        within = SITE in self.adjusted_by_
        return Covariates(names, len(names), within, self.covariate_mean_, self.slopes_)

    def with_keys(self, keys: Mapping[int, int]) -> Self:
        """Return the result with new keys for its clients, and with its clients in the order of the new keys."""
        result = self
        for named, lines in _LINES_BY_KEY.items():
            before = getattr(result, named, None)
            if before is not None:
                # Keys may be Flower's node ids, which are unsigned 64-bit integers.
                new = np.array([keys.get(int(key), int(key)) for key in before], dtype=np.uint64)
                order = np.argsort(new)
                in_order = getattr(result, lines)[order]
                result = replace(result, **{named: new[order], lines: in_order})
        return result

    def with_names(self, keys: Mapping[int, int]) -> Self:
        """Return the result with texts that call clients by name or by key, instead of by position in the run."""
        names = {key: out.name for key, out in self.left_out.items()} | {**self.site_names}

        def name_of_client(found: re.Match[str]) -> str:
            place = int(found[1])
            return labels.client_name(names, keys.get(place, place))

        def with_client_names(words: str) -> str:
            return Sentence(_CLIENT_NUMBER.sub(name_of_client, marks_of(words)))

        status = replace(self.status, words=with_client_names(self.status.words))
        decisions, hints = (tuple(map(with_client_names, sentences)) for sentences in (self.decisions, self.hints))
        return replace(self, status=status, decisions=decisions, hints=hints)

    def at_site(self, site: int | str | Mapping[str, Array]) -> Self:
        """Return the result for rows of one site, after a run with adjust="site" or with harmonize.

        The methods of this result, such as `transform` and `project`, take rows of the run and new rows of this site.

        Parameters
        ----------
        site : int, str or mapping
            The name of the site or its key in `local`, after `simulate`. Or the local results that the site's node has
            written, as `flower_pca.results.site.read_local_result` returns them.

        Raises
        ------
        ConfigError
            If the run neither subtracted the means of sites nor harmonized sites, or if the result has no local results
            of this site.
        """
        return replace(self, **fields_for_site(self, site))

    def harmonize(self, X: Any) -> Self:
        """Return the result for rows of a new site. The location and scale of the site are estimated from X.

        Parameters
        ----------
        X : array-like
            At least 20 rows of the site, which took no part in the run. Columns with the covariates to keep must have
            the names of these covariates.

        Raises
        ------
        ConfigError
            If the run did not harmonize sites, or if X has fewer than 20 rows.
        """
        if not self.harmonized_by_:
            raise ConfigError('The run did not harmonize sites. Run with harmonize="combat", or call transform.')
        known = replace(self, site_location_=None, site_scale_=None)
        data = rows_in_frame(X, known.frame, self.n_features_in_, digest=self.feature_digest)
        if data.n < _MIN_ROWS:
            raise ConfigError(
                f"The new site has {data.n} rows, but estimating its location and scale takes at least {_MIN_ROWS}. "
                "Wait until the site has more rows."
            )
        return replace(self, **fields_for_site(known, local_adjustment(data)))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns of `transform`: pc1, pc2 and so on. `input_features` is ignored."""
        return labels.names_as_array([f"pc{j + 1}" for j in range(self.n_components_)])

    @property
    def is_pooled(self) -> bool:
        """Whether components approximate eigenvectors of the covariance of all rows."""
        return self.residuals_ is not None

    @property
    def axes(self) -> tuple[Array, Array]:
        """Orthonormal axes of the components' span, one axis per column, and the variances along them, descending.

        The axes differ from the components only if the components are not orthonormal.
        """
        if self.cross_ is None:
            return self.components_.T, self.explained_variance_
        return linalg.span_axes(self.components_.T, self.cross_)

    @property
    def weights_(self) -> Array:
        """The matrix that turns rows into scores, (k, d).

        Its rows are the components. If the components are not orthonormal, its rows are the columns of the
        pseudo-inverse of `components_`. Scores are the least squares coordinates of a row in the span of the
        components.
        """
        if self.cross_ is None:
            return self.components_
        return np.linalg.pinv(self.components_).T

    def transform(self, X: Any) -> Array:
        """Return the coordinates of rows along the components, (n, k).

        Parameters
        ----------
        X : array-like
            The rows, (n, d), as a dense or sparse array or a data frame, or the path or spec string of a file. Columns
            are matched by name. If only X or only the result has column names, columns are matched by position, with a
            UserWarning.
        """
        return self._rows_in_frame(X).scores(self.weights_.T)

    def project(self, X: Any) -> Array:
        """Return scores of new rows that are comparable with the run's rows, (n, k): `transform(X) / shrinkage_`.

        Do not pass these scores to `inverse_transform`, which takes scores of `transform` only.

        Raises
        ------
        ConfigError
            If `shrinkage_` is None.
        """
        return self.transform(X) / require_shrinkage(self.shrinkage_)

    def with_imputation(self) -> Self:
        """Return a result that fills missing values of new rows with the run's means, as after missing="mean".

        Raises
        ------
        ConfigError
            If the run allowed no missing values and was not centered, so that no means are known.
        """
        if self.fill_ is not None:
            return self
        if self.centered:
            return replace(self, fill_=self.mean_)
        raise ConfigError(
            "The run was not centered and allowed no missing values, so it has no means that could replace missing "
            "values. Impute the missing values first."
        )

    def inverse_transform(self, scores: Array) -> Array:
        """Return the rows, (n, d), that have these scores and are in the components' span, in the original units."""
        return np.asarray(self._in_original_units(np.asarray(scores) @ self.components_) + self.mean_)

    def _in_original_units(self, X: Array) -> Array:
        """Return rows of the frame in the original units, without adding the mean."""
        return np.asarray(X if self.scale_ is None else X * self.scale_)

    def reconstruction_error(self, X: Any) -> float:
        """Return the mean squared distance, in the frame, between the rows of X and their reconstructions."""
        data = self._rows_in_frame(X)
        return data.squared_error(self.axes[0]) / data.n

    def to_record(self) -> Any:
        """Return a Flower `ConfigRecord` with all that is needed to project rows: see `Projection.from_record`.

        Raises
        ------
        ConfigError
            If `transform` is not a projection, because it removes outlying entries, or if the run removed the effect of
            covariates.
        """
        self.require_projecting("A record", "Save the result with result.save(path), and load it where the rows are.")
        if self.adjust_ is not None:
            raise ConfigError(
                "A record has no covariates, so it cannot project rows as this run did, which removed the effect of "
                "covariates. Save the result with result.save(path), and load it where the rows are."
            )
        weights = None if self.cross_ is None else self.weights_
        projection = Projection(
            components_=self.components_,
            mean_=self.frame.mean,
            scale_=self.scale_,
            fill_=self.fill_,
            weights_=weights,
            shrinkage_=self.shrinkage_,
            feature_names_in_=self.feature_names_in_,
            feature_digest=self.feature_digest,
        )
        return projection.to_record()

    def to_plink(self, folder: str | os.PathLike[str], X: Any = None) -> list[Path]:
        """Write files for PLINK after a run on genotypes with scale="genotype".

        `pca.eigenval` has the variances. `pca.eigenvec.allele` has the loadings and `pca.afreq` the allele frequencies,
        for plink2 --score and --read-freq. `pca.eigenvec` has the scores of people, for --covar of PLINK and other
        programs.

        Parameters
        ----------
        folder : str or path
            The folder to write to, which is created if it does not exist. Its parent must exist.
        X : array-like, default=None
            The genotypes of the people to score, as read from a .bed file. Without X, no `pca.eigenvec` is written.

        Returns
        -------
        list of path
            The paths of the files.
        """
        from flower_pca.results import plink

        return plink.write_plink_files(self, folder, X)

    def require_projecting(self, use: str, remedy: str) -> None:
        """Raise a ConfigError with this use and this remedy if the `transform` of the result is not a projection."""
        if not self.projects:
            raise ConfigError(
                f"{use} needs a result that only projects rows, but a {type(self).__name__} does more. {remedy}"
            )

    def angle_to(self, other: PCAResult | Array) -> float:
        """Return the largest principal angle, in radians, to the components of another result or the rows of an array.

        If both results have column names, columns are matched by name.
        """
        components = other.components_ if isinstance(other, PCAResult) else other
        rows = np.atleast_2d(checks.as_numbers("The other components", components))
        rows = components_in_order(rows, getattr(other, "feature_names_in_", None), self.feature_names_in_)
        if rows.shape[1] != self.n_features_in_:
            raise ConfigError(
                f"The other components have shape {rows.shape}, but must be rows of "
                f"{labels.count(self.n_features_in_, 'feature')}. Give components of the same features, one per row."
            )
        angles = linalg.principal_angles(self.axes[0], linalg.orth(rows.T))
        return float(angles[-1])

    def to_anndata(
        self,
        adata: Any,
        *,
        key: str = "X_pca",
        layer: str | None = None,
        normalize: float | None = None,
        log: bool = False,
    ) -> None:
        """Write the scores of cells and the loadings of genes into an AnnData object, as scanpy.pp.pca does.

        ``adata.obsm["X_pca"]`` gets the scores. ``adata.varm["PCs"]`` gets the loadings, with zeros for genes that the
        run left out. ``adata.uns["pca"]`` gets variances, their shares and parameters. If you pass another key, all
        three entries get that name. Only the cells of this object are read, and nothing is sent. As in scanpy, the
        largest loading of each component is positive.

        Parameters
        ----------
        adata : AnnData
            The AnnData object, in memory or backed.
        key : str, default="X_pca"
            The name of the entry in obsm.
        layer : str or None, default=None
            The layer that the run read. See `cells` for this parameter and the next two.
        normalize : float or None, default=None
            The sum that each cell was scaled to in the run.
        log : bool, default=False
            Whether the run took log(1 + x).

        Raises
        ------
        ConfigError
            If genes of the run are missing.
        """
        from flower_pca.results import anndata

        if not isinstance(key, str) or not key:
            raise ConfigError(f'The key of obsm cannot be {shown(key)}. Write key="X_pca".', setting="key", value=key)
        anndata.write_to_anndata(
            adata,
            key,
            scores=self.transform(cells(adata, layer=layer, normalize=normalize, log=log)),
            components=self.components_,
            names=self.feature_names_in_,
            variances={
                "variance": np.array(self.explained_variance_),
                "variance_ratio": np.array(self.explained_variance_ratio_),
            },
            params={"zero_center": bool(self.centered), **({} if layer is None else {"layer": layer})},
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result, without `local`, to an npz file with a JSON header, and return the path."""
        arrays = saved.arrays_of(self)
        # The file may hold scores, which are personal data.
        return files.write(path, "result", saved.header_of_result(self), arrays, private="scores_" in arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PCAResult:
        """Read a file that `save` has written, and return an object of the class that was saved."""
        header, arrays = files.read(path, "result")
        with files.refusing_malformed(path, "result"):
            kind = saved.class_of(path, header, _KINDS)
            return kind(**saved.fields_from_file(path, header, arrays, kind=kind))

    def plot(self, what: str, path: str | os.PathLike[str], *, shards: Any = None) -> Path:
        """Draw a picture into an SVG or PNG file, and return its path. Needs matplotlib.

        Parameters
        ----------
        what : str
            "overview", or the name of a single picture, such as "scree", "loadings", "convergence" or "scores".
            `flower_pca.plots.available(result, shards)` lists the pictures of this result and what they show.
        path : str or path
            The file, which ends in .svg or .png. An old file is replaced only when the new picture is complete.
        shards : sequence of array-like, default=None
            The rows of each client, which some pictures need.

        Raises
        ------
        ConfigError
            If there is no such picture, shards are missing, or matplotlib is not installed.
        """
        return drawn.draw_result(self, what, path, shards=shards)

    def summary(self, *, digits: int = 4) -> Summary:
        """Return a summary in sentences, figures and a table, with remarks on the reliability of the result.

        Parameters
        ----------
        digits : int, default=4
            Number of significant digits of the variances in the table.

        Returns
        -------
        Summary
            The summary, which `print` shows as text. Programs can read its `facts`, `findings`, `remarks` and
            `components`.
        """
        return Summary(
            self._title,
            self._size_in_words,
            facts=self._facts(),
            findings=self._findings(),
            remarks=self._remarks(),
            components=self._listing(digits),
        )

    @property
    def _title(self) -> str:
        """The result in one line."""
        what = f"{labels.count(self.n_components_, 'component')} of {self._size_in_words} by {self.algorithm}"
        outcome = self.status.outcome.value.replace("_", " ")
        return f"{what}, {outcome} after {labels.count(len(self.history), 'message')}"

    @property
    def _size_in_words(self) -> str:
        return f"{self._row_count_in_words} rows x {self._column_count_in_words}"

    def _facts(self) -> list[Fact]:
        return [
            facts.json_only_fact("kind", type(self).__name__),
            facts.json_only_fact("algorithm", self.algorithm),
            facts.json_only_fact("outcome", self.status.outcome.value),
            facts.json_only_fact("status", self.status.words),
            Fact("n_samples", "rows", self.n_samples_, self._row_count_in_words),
            Fact("n_features", "features", self.n_features_in_, self._feature_names),
            facts.json_only_fact("feature_names", facts.names_for_json(self)),
            facts.json_only_fact("site_names", {str(key): name for key, name in self.site_names.items()}),
            facts.json_only_fact("left_out", plain_left_out(self.left_out)),
            Fact("", "clients", None, f"{facts.number_of_clients(self.history):,}"),
            Fact("n_components", "components", self.n_components_, f"{self.n_components_:,}"),
            *self._facts_on_variances(),
            Fact("centered", "columns", self.centered, self._frame_in_words),
            *self._facts_on_errors(),
            facts.json_only_fact("decisions", list(self.decisions)),
            facts.json_only_fact("hints", [*self.hints, *filter(None, [self.shrinkage_hint])]),
            facts.json_only_fact("rounds", self.rounds),
            *facts.facts_on_messages(self.history),
            facts.fact_on_answers(masked=bool(self.config.get("mask"))),
            facts.json_only_fact("seed", self.seed),
        ]

    def _findings(self) -> list[str]:
        """Return sentences about the variance that the components explain, and about the columns in each component."""
        clients = labels.count(facts.number_of_clients(self.history), "client")
        said = [f"{self._row_count_in_words} rows of {self._column_count_in_words} at {clients}."]
        known, k, ratio = self.certainty, self.n_components_, self.explained_variance_ratio_
        together = f"{ratio.sum():.1%}"
        shares = [f", {share:.1%}" for share in ratio]
        if known is not None:
            together, shares = known.in_words, [""] * k
        components = labels.count(k, "component")
        verb = "holds" if k == 1 else "hold"
        said.append(f"{components} {verb} {together} of {self.variance_of}.")
        names = facts.column_names(self)
        for j, weights in enumerate(self.components_[: facts.FOUND if names else 0]):
            if known is None or known.signal[j] > 1.0:
                said.append(f"Component {j + 1}{shares[j]}: {facts.component_in_words(weights, names)}.")
        return said

    def _remarks(self) -> list[Remark]:
        """Return remarks on the reliability of the result, automatic choices of the run, and suspicious columns."""
        said = [
            *facts.remarks_on_status(self.status),
            *(Remark(choice) for choice in self.decisions),
            *facts.remarks_on_left_out(self.left_out),
            *(Remark(hint, "warn") for hint in self.hints),
            *([Remark(self.shrinkage_hint)] if self.shrinkage_hint else []),
        ]
        if self.certainty is None:
            return said
        return [_remark_on_noise(self.certainty), *said]

    def _listing(self, digits: int) -> Listing:
        """Return a table with a line for each component.

        With differential privacy, shares are bounds, and a column shows how much of a variance may be noise. If
        components are not eigenvectors of the covariance of all rows, there is no column of residuals. `digits` is the
        number of significant digits of variances.
        """
        checks.integer("digits", digits, least=1, most=17)
        known, shares = self.certainty, self.explained_variance_ratio_
        if known is None:
            columns = {
                self.share_head: [f"{share:.2%}" for share in shares],
                "together": [f"{together:.2%}" for together in shares.cumsum()],
            }
        else:
            digits = 3
            columns = {
                "of that, noise up to": [f"{part:.0%}" for part in known.noise_share],
                "share": list(map(labels.share_in_words, known.shares)),
                "together": list(map(labels.share_in_words, known.together)),
            }
        sizes = [f"{variance:.{digits}g}" for variance in self.explained_variance_]
        if self.variance_errors_ is not None:
            sizes = facts.with_errors(sizes, self.variance_errors_)
        if known is None and self.residuals_ is not None:
            columns["residual"] = [f"{residual:.1e}" for residual in self.residuals_]
        columns |= {name: [f"{share:.1%}" for share in shares] for name, shares in self.shares_by_name.items()}
        if self.shrinkage_hint and self.shrinkage_ is not None:
            columns["new rows"] = [f"{factor:.2f}" for factor in self.shrinkage_]
        columns["largest weights"] = self._largest_weights(facts.column_names(self))
        numbers = [f"{j}" for j in range(1, len(sizes) + 1)]
        lines = [list(line) for line in zip(numbers, sizes, *columns.values(), strict=True)]
        return Listing(["component", "variance", *columns], lines)

    def _largest_weights(self, names: Sequence[str]) -> list[str]:
        """Return the columns with the largest weights in each component, with standard errors if they are known."""
        if self.loading_errors_ is None:
            return [labels.weights_in_words(weights, names) for weights in self.components_]
        pairs = zip(self.components_, self.loading_errors_, strict=True)
        return [facts.weights_with_errors(weights, off, names) for weights, off in pairs]

    def table(self) -> str:
        """Return a plain text table with the variances, and with the columns that have the largest weights.

        Failures of the run are above the table, and remarks on noise and on sites that were left out are below it.
        """
        below = [remark.words for remark in facts.remarks_on_left_out(self.left_out)]
        if self.certainty is not None:
            below.insert(0, _remark_on_noise(self.certainty).words)
        bad = [remark.words for remark in facts.with_tones(self._remarks(), "bad")]
        others = [words for words in below if words not in bad]
        return "\n".join([*bad, labels.text_table(*self._listing(4)), *others])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title})"

    def _repr_html_(self) -> str:
        return facts.result_as_html(self)

    @property
    def _row_count_in_words(self) -> str:
        """The number of rows as text, with "about" if the number is noisy."""
        if self.privacy is None:
            return f"{self.n_samples_:,}"
        return f"about {self.n_samples_:,}"

    @property
    def _column_count_in_words(self) -> str:
        return labels.count(self.n_features_in_, "column")

    @property
    def _feature_names(self) -> str:
        return f"{self.n_features_in_:,}"

    @property
    def _frame_in_words(self) -> str:
        centered = "centered" if self.centered else "not centered"
        if self.scale_ is None:
            return centered
        return f"{centered}, scaled"

    def _facts_on_variances(self) -> list[Fact]:
        """Return figures on the explained variance. With differential privacy, they are bounds and figures on noise."""
        shares, known, spent = self.explained_variance_ratio_, self.certainty, self.privacy
        names, off, noise = facts.column_names(self), self.variance_errors_, self.noise_thresholds_
        found = [
            facts.json_only_fact("explained_variance", self.explained_variance_.tolist()),
            facts.json_only_fact("variance_errors", off if off is None else off.tolist()),
            facts.json_only_fact("noise_thresholds", noise if noise is None else noise.tolist()),
            facts.json_only_fact("site_share", None if self.site_share_ is None else self.site_share_.tolist()),
            facts.json_only_fact("explained_by", {name: share.tolist() for name, share in self.explained_by_.items()}),
            facts.json_only_fact(
                "explained_before", {name: share.tolist() for name, share in self.explained_before_.items()}
            ),
            facts.json_only_fact("largest_weights", [facts.weights_for_json(row, names) for row in self.components_]),
            facts.json_only_fact("total_variance", self.total_variance_),
        ]
        if known is None or spent is None:
            lacking = ("bounds_of_ratio", "bounds_together", "bounds_left_out", "noise_alone", "privacy")
            return [
                *found,
                facts.json_only_fact("explained_variance_ratio", shares.tolist()),
                *(facts.json_only_fact(name, None) for name in lacking),
                Fact("", "variance explained", None, f"{shares.sum():.2%}"),
            ]
        return [
            *found,
            facts.json_only_fact("explained_variance_ratio", None),
            facts.json_only_fact("bounds_of_ratio", known.shares.tolist()),
            facts.json_only_fact("bounds_together", known.together.tolist()),
            facts.json_only_fact("bounds_left_out", known.left_out.tolist()),
            facts.json_only_fact("noise_alone", known.floor),
            facts.json_only_fact("privacy", asdict(spent)),
            Fact("", "variance explained", None, labels.share_in_words(known.together[-1])),
            Fact("", "privacy: epsilon, delta", None, f"{spent.epsilon:.4g}, {spent.delta:g}"),
            Fact("", "deviation of the noise", None, f"{spent.noise:.4g}"),
            Fact("", "noise is added", None, "in shares" if spent.shared else "by each client"),
        ]

    def _facts_on_errors(self) -> list[Fact]:
        """Return figures on the accuracy of the components, and on the reconstruction error."""
        private = self.privacy is not None
        residuals, sine, mse = self.residuals_, self.sine_estimate_, self.mse_
        found = [facts.json_only_fact("residuals", None if residuals is None else residuals.tolist())]
        if residuals is not None and not private:
            found.append(Fact("", "largest residual", None, f"{residuals.max():.1e}", run=True))
        if sine is None:
            found.append(facts.json_only_fact("sine_estimate", None))
        else:
            words = "at most about" if private else "about"
            found.append(Fact("sine_estimate", f"sine of the angle left, {words}", sine, f"{sine:.1e}", run=True))
        if mse is None:
            return [*found, facts.json_only_fact("mse", None)]
        return [*found, Fact("mse", "mean squared error", mse, f"{mse:.4g}")]

    def _rows_in_frame(self, X: Any) -> LocalData:
        if self.harmonized_by_ and self.site_location_ is None:
            raise ConfigError(
                "The run harmonized sites, so rows of a site need the location and scale of this site. Call "
                "result.at_site(name) first, or result.harmonize(rows) for a site that took no part in the run."
            )
        if SITE in self.adjusted_by_:
            raise ConfigError(
                "The run subtracted the means of each site, so only a site's own means can adjust its rows. Call "
                "result.at_site(name) first, on a machine that has the local results of this site."
            )
        return rows_in_frame(X, self.frame, self.n_features_in_, digest=self.feature_digest)


_KINDS["PCAResult"] = PCAResult


def _remark_on_noise(certainty: Certainty) -> Remark:
    """Return a remark on the noise of differential privacy, as a failure if no component stands out from the noise."""
    if not (certainty.signal > 1.0).any():
        return Remark(str(certainty), "bad")
    return Remark(str(certainty), "plain" if (certainty.signal > 1.0).all() else "warn")


def _fields_of_covariates(covariates: Covariates) -> dict[str, Any]:
    """Return the fields of `PCAResult` about the adjustment of rows before the PCA."""
    if covariates.sigma is None:
        return {
            "adjusted_by_": covariates.names_in_result,
            "covariate_mean_": covariates.mean,
            "slopes_": covariates.slopes,
        }
    return {
        "harmonized_by_": "combat",
        "kept_": covariates.adjusted_names,
        "slopes_": covariates.slopes,
        "grand_": covariates.grand,
        "sigma_": covariates.sigma,
    }


def _shares_before(model: Model) -> tuple[Array | None, tuple[str, ...]]:
    """Return the shares of variance that columns and sites explained before sites were harmonized, and their names.

    Return None and () if these shares are not known.
    """
    shares = list(model.left.get(BY_COLUMNS_BEFORE, ()))
    names = names_of_shares(model.explain, len(shares)) if shares else ()
    if SITE_SHARE_BEFORE in model.left:
        shares, names = [*shares, model.left[SITE_SHARE_BEFORE]], (*names, SITE)
    return (np.array(shares) if shares else None), names


def _sentence_on_filled_values(model: Model) -> str:
    """Return a sentence on the total variance if filled values lower it, although columns were scaled, or ""."""
    filled = model.scale == "std" and model.missing == "mean" and model.center and not model.shared
    if not filled or model.sizes is None or model.noise:
        return ""
    columns, ddof = int(np.sum(model.sizes > 0.0)), max(model.n - 1, 1)
    if model.trace >= columns * model.n * (1.0 - _FILLED):
        return ""
    return (
        f"missing values are filled with means, which do not vary, so the total variance of the {columns:,} scaled "
        f"columns is {model.trace / ddof:.4g} instead of {columns * model.n / ddof:.4g}"
    )


def fields_of(model: Model) -> dict[str, Any]:
    """Return the fields of `PCAResult` that follow from a finished model."""
    assert model.values is not None
    assert model.residuals is not None
    assert model.status is not None
    k, ddof, names = model.k, max(model.n - 1, 1), model.feature_names
    first = float(model.values[0]) or 1.0
    sizes: Sequence[str] = ()
    if model.frame.scale is None and model.sizes is not None:
        sizes = hints_of_sizes(model.sizes, names)
    outlying: list[str] = []
    if OUTLYING in model.sites:
        outlying = outlying_sites.hints_of(model.sites[OUTLYING], model.sites[SITE_KEYS], names)
    few: list[str] = []
    if CONSTANT in model.sites:
        few = hints_of_constant_columns(model.sites[CONSTANT], model.sites[SITE_KEYS], names)
    if model.frame.covariates is not None and model.frame.covariates.sigma is not None and SITE_ROWS in model.sites:
        few += hints_of_few_rows(model.sites[SITE_ROWS], model.sites[SITE_KEYS])
    site_share = model.left.get(SITE_SHARE)
    sites = None if site_share is None else number_of_sites(model)
    explained, adjusted = model.left.get(BY_COLUMNS), model.frame.covariates
    before, before_names = _shares_before(model)
    if adjusted is not None and not adjusted.changes_rows:
        adjusted = None
    components = np.ascontiguousarray(linalg.fix_signs(model.columns[:, :k]).T)
    of_variants: list[str] = []
    if model.scale == "genotype" and model.sizes is not None:
        of_variants += hints_of_constants(model.sizes, model.n, names)
    if names is not None:
        of_variants += hints_of_variants(names, components)
    return {
        "components_": components,
        "explained_variance_": model.values[:k] / ddof,
        "mean_": np.zeros(model.d) if model.frame.mean is None else model.frame.mean,
        "scale_": model.frame.scale,
        "total_variance_": model.trace / ddof,
        "left_out_variance_": model.residual_squares / ddof,
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
        "histograms_of": model.histograms_of,
        "loading_errors_": model.left.get("loading_errors"),
        "variance_errors_": model.left.get("variance_errors"),
        "site_loading_errors_": model.left.get("site_loading_errors"),
        "site_variance_errors_": model.left.get("site_variance_errors"),
        "noise_thresholds_": None if "noise_thresholds" not in model.left else model.left["noise_thresholds"] / ddof,
        "site_share_": site_share,
        "sites_": sites,
        "explained_names_": () if explained is None else names_of_shares(model.explain, len(explained)),
        "explained_shares_": explained,
        "explained_before_names_": before_names,
        "explained_before_shares_": before,
        **({} if adjusted is None else _fields_of_covariates(adjusted)),
        "covariate_inverse_": model.left.get(INVERSE),
        "adjusted_degrees_": int(model.left.get(ADJUSTED, 0)),
        "cross_": None if "cross" not in model.left else model.left["cross"][:k, :k] / ddof,
        "feature_names_in_": labels.array_of(names),
        "feature_digest": model.feature_digest,
        "decisions": (*model.decisions.values(), *filter(None, [_sentence_on_filled_values(model)])),
        "hints": (
            *hints_of_mean(model.offset, model.values[0]),
            *sizes,
            *of_variants,
            *hints_of_sites(site_share, sites, model.n, model.scale),
            *outlying,
            *few,
        ),
    }
