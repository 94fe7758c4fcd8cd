"""Monitor new rows with Hotelling's T2 and the squared prediction error, SPE.

T2 measures the distance of a row from the center within the span of the components, and SPE measures the distance of
the row from the span (see `stages.histograms`). Let x be a row in the frame, Z the matrix with the k components as
columns, and v their variances. Both statistics are sums of squares with one term for each column: T2 = |M^(1/2) x|^2
with M = Z diag(1/v) Z', and SPE = |x - ZZ'x|^2. So the contributions of columns are never negative, and their sum is
the statistic (the complete decomposition of Alcala and Qin 2011).

After a run with `monitor`, limits come from the rows of all clients. Each row was scored by components that were fitted
without this row, so a limit holds for new rows of the same sites (see `stages.histograms`, `analysis.quantiles`).
Otherwise limits come from theory, for n normally distributed rows. F, Beta and chi2 denote quantiles of these
distributions:

    T2   k (n-1)(n+1) / (n (n-k)) F(k, n-k) for new rows, (n-1)^2 / n Beta(k/2, (n-k-1)/2) for rows of the run
    SPE  g chi2(h) with g = s2 / s1 and h = s1^2 / s2 (Box 1954), where s1 and s2 are the sums of the variances along
         the directions left out and of their squares

The scores of new rows along the components are smaller, by the factors f_j of `PCAResult.shrinkage_`, and their
distances from the span are larger. So for new rows, the limit of T2 is multiplied by the mean of f_j^2, and s1 = (1 +
1/n) (total - sum_j f_j^2 v_j).

The sum s1 follows from the result. The sum s2 is known only for components of the result that are not in use. All other
directions are assumed to have equal variances. Under this assumption, s2 and the limit are as small as the totals
allow.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.analysis.monitor import Monitor
>>> rng = np.random.default_rng(0)
>>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
>>> monitor = Monitor(simulate("krylov", sites, n_components=2, monitor=True))
>>> new = sites[0][:20].copy()
>>> new[7, 4] += 9.0  # a sensor that is off
>>> [(found.row, found.statistic) for found in monitor.anomalies({"0": new}, monitor.limits(0.99))]
[(7, 'SPE')]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.analysis import quantiles
from flower_pca.base import checks, labels
from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief
from flower_pca.names.columns import enumeration
from flower_pca.names.table import Table
from flower_pca.results.facts import column_names
from flower_pca.results.pca import PCAResult
from flower_pca.results.projection import shrinkage_factors
from flower_pca.rows.adjusted import hat_root
from flower_pca.rows.covariates import SITE
from flower_pca.stages import downdate, histograms

LEVEL: Final = 0.99
SOURCES: Final = ("clients", "theory")
_FEW_ROWS: Final = 90  # With fewer rows than this, an extrapolated limit is a guess.
# With fewer rows per column than this, scores of the rows that components were fitted to differ much from new scores.
_PER_COLUMN: Final = 10
_PER_COLUMN_BY_THEORY: Final = 5  # With fewer rows per column than this, limits from theory are a guess.


@dataclass(frozen=True)
class Limits:
    """The limits of T2 and SPE that a share `level` of the rows does not exceed. `words` describes their source.

    A limit is infinite if there is none: for T2, if too many rows vary along a direction in which no other row varies,
    for SPE, if the components leave out nothing but rounding errors, and for both, if the run had too few rows for the
    level.
    """

    level: float
    t2: float
    spe: float
    words: str

    def __str__(self) -> str:
        limits = {"T2": self.t2, "SPE": self.spe}
        known = " and ".join(f"{name} up to {limit:.4g}" for name, limit in limits.items() if math.isfinite(limit))
        said = [f"{self.level:.6g} of the rows have {known}"] if known else []
        said += [f"{name} has no limit" for name, limit in limits.items() if not math.isfinite(limit)]
        return f"{', and '.join(said)}, from {self.words}"

    def as_json(self) -> dict[str, Any]:
        """Return the limits as plain values. A limit is None if there is none, because JSON has no infinity."""
        plain = asdict(self)
        return {name: None if plain[name] in (math.inf, -math.inf) else plain[name] for name in plain}


@dataclass(frozen=True, eq=False)
class RowScores:
    """The values of T2 and SPE for n rows, (n,) each."""

    t2: Array
    spe: Array

    __repr__ = brief

    def beyond(self, limits: Limits) -> Array:
        """Return whether each row is beyond either limit, (n,)."""
        return np.asarray((self.t2 > limits.t2) | (self.spe > limits.spe))


@dataclass(frozen=True)
class Anomaly:
    """A row beyond a limit.

    Attributes
    ----------
    site : str or int
        The name of the row's site, or the position of the site.
    row : int
        The number of the row at this site, counted from 0.
    statistic : str
        "T2" or "SPE".
    value, limit : float
        The value of the statistic, and the limit that it exceeds.
    largest : tuple of tuple
        The names of the columns that contribute most, each with its share of the statistic.
    """

    site: str | int
    row: int
    statistic: str
    value: float
    limit: float
    largest: tuple[tuple[str, float], ...]

    @property
    def because(self) -> str:
        """The columns with the largest contributions and their shares, as text."""
        return _columns_in_words(self.largest)


class Monitor:
    """A monitor that scores rows by T2 and SPE, computed from the components of a result.

    Parameters
    ----------
    result : PCAResult
        The result of a run whose components alone describe a row. Results of robust and personalized runs are refused,
        and results of runs with dp as well, because their variances are noisy.
    n_components : int or None, default=None
        The number of components to use, by default all. The variance of the other components is then part of SPE, and
        is taken into account by the limit from theory. Components whose variance is only rounding error are not used.
    """

    def __init__(self, result: PCAResult, *, n_components: int | None = None) -> None:
        if not result.complete:
            raise ConfigError(
                f"Rows cannot be scored by a {type(result).__name__}, because its components alone do not describe a "
                "row. Use the result of a run with krylov."
            )
        if result.privacy is not None:
            raise ConfigError(
                "Rows cannot be scored by the result of a run with dp, because the variances behind the limits have "
                "noise. Use a result of a run without dp."
            )
        if n_components is not None:
            checks.integer("n_components of a Monitor", n_components, least=1, most=result.n_components_)
        # Reading the frame raises an error if the parties of the run keep their loadings.
        self._result, _ = result, result.frame
        axes, variances = result.axes
        # Unbiased variances also account for the degrees of freedom that covariates and sites take.
        self._free = max(result.n_samples_ - 1 - result.adjusted_degrees_, 1)
        variances = variances * (max(result.n_samples_ - 1, 1) / self._free)
        self._total = float(result.total_variance_) * (max(result.n_samples_ - 1, 1) / self._free)
        self._axis_variances = variances
        self._all = max(histograms.count_meaningful(variances), 1)
        self._k = min(self._all, n_components or self._all)
        if variances[0] <= 0.0:
            raise ConfigError(
                "Rows cannot be scored by a result whose variances are 0, because all rows of the run are the same. "
                "Check the data of the run."
            )
        self._Z = np.ascontiguousarray(axes[:, : self._k], dtype=np.float64)
        self._variances = np.asarray(variances[: self._k], dtype=np.float64)

    @property
    def n_components(self) -> int:
        """k, the number of components in use."""
        return self._k

    def score(self, X: Any, *, in_run: bool = False) -> RowScores:
        """Return T2 and SPE of the rows of X, which may be anything that `transform` accepts.

        Parameters
        ----------
        X : array-like
            The rows.
        in_run : bool, default=False
            Whether these are rows of one site that the components were fitted to. If so, each row is scored by the
            components, the mean and the deviations that result without this row, and without its neighbors if
            consecutive rows are related. These scores can be compared with limits for new rows.

        Raises
        ------
        ConfigError
            If `in_run` is set and the components are not eigenvectors of the covariance of all rows, because the
            components without a row are then unknown.
        """
        parts = list(self._leave_one_out(X) if in_run else self._distances(X))
        return RowScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def contributions(self, X: Any) -> tuple[Array, Array]:
        """Return the contribution of each column to T2 and to SPE of each row of X, (n, d) each."""
        parts = [self._contributions(block) for block in self._row_blocks(X)]
        t2, spe = (np.concatenate(column) for column in zip(*parts, strict=True))
        return t2, spe

    def limits(
        self, level: float | str = LEVEL, *, source: str | None = None, trained: bool = False, sites: Any = ()
    ) -> Limits:
        """Return limits that a share `level` of the rows does not exceed.

        Parameters
        ----------
        level : float or str, default=0.99
            The share in (0, 1), for each of the two limits, as a number such as 0.99 or a text such as "99%".
        source : str or None, default=None
            "clients" for limits from the rows of all clients, which needs a run with `monitor`. "theory" for limits
            that assume normally distributed rows. By default, "clients" if the result has the counts of these rows.
        trained : bool, default=False
            Whether limits from theory are for the rows of the run instead of new rows.
        sites : default=()
            The names of the sites whose rows will be compared with the limits, or a mapping from names to rows. If a
            site took no part in the run, `words` of the limits says so, because its rows exceed the limits more often.

        Raises
        ------
        ConfigError
            If the result does not have what this source of limits needs.
        """
        limits = self._limits(level, source, trained=trained)
        if words := warning_of_unknown_sites(self._result, sites):
            return replace(limits, words=f"{limits.words}; {words}")
        return limits

    def _limits(self, level: float | str, source: str | None, *, trained: bool) -> Limits:
        most = 1.0 - 2.0**-20
        checks.number("level", share := checks.parse_share(level), least=1e-6, most=most, remedy="Try 0.99.")
        if source is None:
            source = "theory" if self._usable_histograms is None else "clients"
        checks.choice("source", source, SOURCES)
        if source == "theory":
            return self._limits_from_theory(float(share), trained=trained)
        if self._usable_histograms is None:
            remedy = f"Use {option('source', 'theory')}."
            raise ConfigError(
                f"Limits from the clients need a run with {option('monitor', True)}, and a Monitor of all its "
                f"components. {remedy}"
            )
        t2, spe = (quantiles.limit_at(counts, float(share)) for counts in self._usable_histograms)
        words = self._words_of_counts(self._usable_histograms, float(share))
        too_few = quantiles.are_too_few(self._usable_histograms[0], float(share))
        if not (math.isfinite(t2) or too_few):
            words += (
                "; T2 has no limit, because too many rows vary along a direction in which no other row varies. Use "
                "fewer components"
            )
        rest = self._residual_variance
        if not (math.isfinite(spe) or too_few):
            words += "; SPE has no limit, because the components leave out nothing but rounding errors"
        return Limits(float(share), t2 * self._k, max(spe * rest if rest else 0.0, self._lowest_spe_limit), words)

    def anomalies(self, sites: Any, limits: Limits, *, top: int = 3) -> list[Anomaly]:
        """Return the rows beyond a limit, with an entry for each statistic, and the columns that contribute most.

        Parameters
        ----------
        sites
            The rows of each site, as a mapping by name or as a list. In a list, sites without a name are called by
            position. A single table is taken as a list with one site.
        limits : Limits
            The limits, as the method `limits` returns them.
        top : int, default=3
            The number of columns to name.
        """
        checks.integer("top", top, least=1)
        if not isinstance(sites, Mapping):
            if not isinstance(sites, list | tuple) and getattr(sites, "ndim", 2) != 3:
                sites = [sites]
            sites = {(isinstance(X, Table) and X.site) or i: X for i, X in enumerate(sites)}
        return [found for site, X in sites.items() for found in self._anomalies_at(site, X, limits, top)]

    def because(self, X: Any, statistic: str, *, top: int = 3) -> str:
        """Return the columns that contribute most to "T2" or "SPE" of the single row in X, as text."""
        t2, spe = self.contributions(X)
        return _columns_in_words(
            _largest_columns(t2[0] if statistic == "T2" else spe[0], column_names(self._result), top)
        )

    def _anomalies_at(self, site: Any, X: Any, limits: Limits, top: int) -> Iterator[Anomaly]:
        start, names = 0, column_names(self._result)
        for block in self._row_blocks(X):
            scored = RowScores(*histograms.distances(block, self._Z, self._variances))
            rows = np.flatnonzero(scored.beyond(limits))
            # Contributions take as much memory as the rows, so they are computed only for rows that are reported.
            t2, spe = self._contributions(block[rows])
            for i, row in enumerate(rows):
                pairs = (("T2", scored.t2[row], limits.t2, t2[i]), ("SPE", scored.spe[row], limits.spe, spe[i]))
                for statistic, value, limit, shares in pairs:
                    if value > limit:
                        largest = _largest_columns(shares, names, top)
                        yield Anomaly(site, start + int(row), statistic, float(value), float(limit), largest)
            start += len(block)

    def _words_of_counts(self, counts: Array, level: float) -> str:
        """Describe the source of limits from counts, and the rows for which they hold."""
        n, d = int(counts[0].sum()), self._result.n_features_in_
        if self._result.histograms_of == histograms.LEFT_OUT:
            words = (
                f"all {n:,} rows, each scored with components computed without it; valid for new rows of the same sites"
            )
        else:
            words = f"all {n:,} rows, which the components were fitted to; new rows exceed the limits more often"
            if n < _PER_COLUMN * d:
                words += "; run again with monitor, by an algorithm that converges to the PCA of all rows"
        if quantiles.are_too_few(counts[0], level):
            return f"{words}; {n} rows are too few for a limit at this level. Use limits from theory"
        if not quantiles.is_extended(counts[0], level):
            return words
        share = f"; {1.0 - level:.3g} of {n:,} rows is less than {quantiles.TAIL} rows, so the limit"
        if n < _FEW_ROWS:
            return f"{words}{share} is a guess"
        words += f"{share} is extrapolated from their largest values"
        return f"{words}, and is a guess unless the rows are normally distributed"

    def _distances(self, X: Any) -> Iterator[tuple[Array, Array]]:
        """Return an iterator over T2 and SPE of the rows of X, block by block."""
        return (histograms.distances(block, self._Z, self._variances) for block in self._row_blocks(X))

    def _leave_one_out(self, X: Any) -> Iterator[tuple[Array, Array]]:
        """Return an iterator over T2 and SPE of rows of the run, each scored by components fitted without this row."""
        result = self._result
        if not result.is_pooled or result.n_samples_ < 3:
            raise ConfigError(
                "Rows of the run can be scored with in_run=True only if the components are eigenvectors of the "
                "covariance of at least 3 rows. Leave out in_run=True."
            )
        data, removed = result._rows_in_frame(X), result.adjusted_degrees_
        values, total = self._axis_variances[: self._all] * self._free, self._total * self._free
        rows, hat = result.n_samples_ - int(result.centered) - removed, None
        if result.covariate_inverse_ is not None:
            by_site = SITE in result.config["adjust"]
            hat = hat_root(data, result.covariate_inverse_, data.n if by_site else result.n_samples_)
        without = downdate.LeaveOneOut(
            W=np.ascontiguousarray(result.axes[0][:, : self._all], dtype=np.float64),
            values=np.asarray(values, dtype=np.float64),
            k=self._k,
            mean_rest=histograms.mean_rest(total, values, rows, result.n_features_in_),
            n=result.n_samples_,
            centered=result.centered,
            rescaled=self._rescaled_columns(),
            hat=hat,
            removed=removed,
        )
        around = downdate.dependent_neighbors(np.concatenate([without.scores(block) for block in data.dense()]))
        return without.distances(data.dense(), around)

    def _rescaled_columns(self) -> Array | None:
        """Return a mask of the columns that the run scaled by their standard deviations, or None if there are none."""
        result = self._result
        if result.config.get("scale") != "std" or not result.centered:
            return None
        return histograms.rescaled_columns(result.frame.names, result.n_features_in_)

    def _contributions(self, X: Array) -> tuple[Array, Array]:
        scores = X @ self._Z
        return ((scores / np.sqrt(self._variances)) @ self._Z.T) ** 2, (X - scores @ self._Z.T) ** 2

    def _row_blocks(self, X: Any) -> Iterator[Array]:
        blocks = self._result._rows_in_frame(X).dense()
        return (np.asarray(block, dtype=np.float64) for block in blocks)

    @property
    def _usable_histograms(self) -> Array | None:
        """The histograms of T2 and SPE if all components of the result are in use, else None."""
        return self._result.histograms_ if self._k == self._all else None

    @property
    def _residual_variance(self) -> float:
        """The total variance outside the components in use."""
        return max(self._total - float(self._variances.sum()), 0.0)

    @property
    def _lowest_spe_limit(self) -> float:
        """The minimum of the limit of SPE, which is above the SPE that rounding errors alone can cause."""
        return downdate.ROUNDING * self._total

    def _limits_from_theory(self, level: float, *, trained: bool) -> Limits:
        from scipy import special

        if self._result.cross_ is not None:
            raise ConfigError(
                f"Limits from theory need orthonormal components, but the components of {self._result.algorithm} are "
                f"not orthonormal. Run with {option('monitor', True)}."
            )
        n, k, removed = self._result.n_samples_, self._k, self._result.adjusted_degrees_
        free = n - k - int(self._result.centered) + int(not trained) - removed
        if free < 1:
            raise ConfigError(
                f"Limits from theory need more than {labels.count(n - free, 'row')}, but the run had {n}. Use fewer "
                "components, or limits from the clients."
            )
        # If the mean was estimated, its sampling error adds to the distances of new rows.
        about = n if self._result.centered else np.inf
        factors = None
        if not trained and self._result.shrinkage_ is not None:
            rows, columns = n - int(self._result.centered) - removed, self._result.n_features_in_
            factors = shrinkage_factors(self._variances, self._residual_variance, rows=rows, columns=columns)
        if trained:
            whose = "the run's own"
            t2 = self._free * (1.0 - 1.0 / about) * special.betaincinv(k / 2.0, free / 2.0, level)
        else:
            whose = "new"
            t2 = k * self._free / free * (1.0 + 1.0 / about) * special.fdtri(k, free, level)
        if factors is not None:
            t2 *= float(np.mean(factors**2))
        spe, assumed = self._limit_of_spe(level, factors)
        if factors is not None and self._residual_variance > self._lowest_spe_limit:
            left = self._total - float(np.sum(factors**2 * self._variances))
            spe *= (1.0 + 1.0 / about) * left / self._residual_variance
        words = f"theory for {whose} rows with a normal distribution{assumed}"
        if not trained and n < _PER_COLUMN_BY_THEORY * self._result.n_features_in_:
            words += "; a guess, because there are few rows for this many columns"
            if not self._result.harmonized_by_:
                words += ": for better limits, run with monitor"
        if self._result.harmonized_by_:
            words += (
                "; new rows of a site with few rows exceed the limits more often, because its location and scale are "
                "uncertain"
            )
        return Limits(level, float(t2), max(spe, self._lowest_spe_limit), words)

    def _limit_of_spe(self, level: float, factors: Array | None) -> tuple[float, str]:
        """Return the limit of SPE by Box's approximation g chi2(h), and the assumption behind this limit as text.

        With `factors`, the shrinkage factors of the scores, the limit is for new rows. New rows also vary in directions
        in which the rows of the run do not. With None, the limit is for the rows of the run.
        """
        from scipy import special

        known = np.asarray(self._axis_variances[self._k : self._all], dtype=np.float64)
        directions = self._result.n_features_in_
        if factors is None:
            directions = min(self._result.n_samples_ - int(self._result.centered), directions)
        count = directions - self._k - len(known)
        s1, s2, assumed = float(known.sum()), float(np.sum(known**2)), ""
        unknown = self._residual_variance - s1
        if unknown > self._lowest_spe_limit and count > 0:
            s1, s2 = s1 + unknown, s2 + unknown**2 / count
            if count > 1:
                assumed = f", with the same variance in each of {count:,} remaining directions"
        if s1 <= 0.0:
            return 0.0, assumed
        g, h = s2 / s1, s1**2 / s2
        return float(g * 2.0 * special.gammaincinv(h / 2.0, level)), assumed


def warning_of_unknown_sites(result: PCAResult, sites: Iterable[Any]) -> str:
    """Return the part of a sentence that names the sites which took no part in the run.

    Return "" if all sites took part, or if the names of the run's sites are not known.
    """
    known = {*result.site_names.values()}
    others = [site for site in sites if isinstance(site, str) and clean_name(site) not in known]
    if not known or not others:
        return ""
    return (
        f"no site of the run is called {enumeration(others)}. Of the rows of a site that took no part, more exceed a "
        "limit, for example 5% instead of 1%. If the site took part under another name, use that name"
    )


def _largest_columns(contributions: Array, names: Sequence[str], top: int) -> tuple[tuple[str, float], ...]:
    """Return the names of the columns that contribute most, with the share of each column."""
    order = np.argsort(-contributions, kind="stable")[:top]
    total = float(contributions.sum()) or 1.0
    return tuple((names[j], float(contributions[j] / total)) for j in order)


def _columns_in_words(largest: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.005)
