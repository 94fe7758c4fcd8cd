"""Monitor: how far new rows lie from what a run has found, by Hotelling's T2 and by the squared prediction error, SPE.

T2 says how far a row lies within the span of the components, SPE how far from it (see
`stages.histograms`). Both are split up by column: of T2 = |M^(1/2) x|^2 with M = Z diag(1/v) Z',
and of SPE = |x - ZZ'x|^2, each column has one square (the complete decomposition of Alcala and Qin
2011), so that contributions are never negative and add up.

Limits are from the clients' own rows, where the run was asked to monitor: the quantile of all rows
together, read from the sum of their histograms. Or they are from theory, for rows of a normal law:

    T2   k (n-1)(n+1) / (n (n-k)) F(k, n-k) of new rows, (n-1)^2 / n Beta(k/2, (n-k-1)/2) of the run's own
    SPE  g chi2(h) with g = s2 / s1 and h = s1^2 / s2 (Box 1954), where s1 and s2 are the sums of the variances along
         the directions left out and of their squares

A result knows s1, and s2 as far as it has components beyond those in use. The other directions
count as if all had the same variance, which makes s2 as small as it can be: their limit is the
least of all that the totals allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, Setting, Words
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.sites import SiteRows
from flower_pca.results.facts import names_of
from flower_pca.results.pca import PCAResult
from flower_pca.stages import histograms

LEVEL: Final = 0.99
SOURCES: Final = ("clients", "theory")


@dataclass(frozen=True)
class Limits:
    """What a share `level` of the rows keeps to in T2, and in SPE; `words` say how it is known."""

    level: float
    t2: float
    spe: float
    words: str

    def __str__(self) -> str:
        return f"{self.level:.6g} of the rows have T2 up to {self.t2:.4g} and SPE up to {self.spe:.4g}, by {self.words}"


@dataclass(frozen=True, eq=False)
class RowScores:
    """T2 and SPE of rows, (n,) each."""

    t2: Array
    spe: Array

    __repr__ = brief

    def beyond(self, limits: Limits) -> Array:
        """Whether a row is beyond either limit, (n,)."""
        return np.asarray((self.t2 > limits.t2) | (self.spe > limits.spe))


@dataclass(frozen=True)
class Anomaly:
    """A row beyond a limit.

    Attributes:
        site: Whose row it is: a name, or a position.
        row: Its number at that site, from 0 on.
        statistic: "T2" or "SPE".
        value, limit: Its statistic, and the limit that it is beyond.
        largest: The columns that contribute most, by name, with the share of each.
    """

    site: str | int
    row: int
    statistic: str
    value: float
    limit: float
    largest: tuple[tuple[str, float], ...]

    @property
    def because(self) -> str:
        """The largest contributions in words."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.largest if share >= 0.005)


class Monitor:
    """Scores rows by the components of a result.

    Args:
        result: What a run has returned. Its components must be all that is expected of a row: not
            those of a robust or a personalized run, nor of one with dp, whose variances have noise.
        n_components: How many of the components to use; all of them if left out. What the others
            explain is then part of SPE, and known to its limit from theory. Components whose
            variance is rounding never count.
    """

    def __init__(self, result: PCAResult, *, n_components: int | None = None) -> None:
        what = "The result to monitor by"
        if not result.complete:
            raise ConfigError(
                what,
                must="of a run whose components are all there is to say of a row",
                got=type(result).__name__,
                then="Run krylov.",
            )
        if result.privacy is not None:
            raise ConfigError(
                what,
                must="of a run without dp",
                got="noise in the variances that limits are made of",
                then="Score against a result without a budget.",
            )
        if n_components is not None:
            checks.integer("n_components of a Monitor", n_components, least=1, most=result.n_components_)
        # which a run has not whose clients keep their loadings
        self._result, _ = result, result.frame
        axes, variances = result.axes
        self._axis_variances = variances
        self._all = max(histograms.meaningful(variances), 1)
        self._k = min(self._all, n_components or self._all)
        if variances[0] <= 0.0:
            raise ConfigError(what, must="of rows that vary", got="variances of 0", then="Check the rows of the run.")
        self._Z = np.ascontiguousarray(axes[:, : self._k], dtype=np.float64)
        self._variances = np.asarray(variances[: self._k], dtype=np.float64)

    @property
    def n_components(self) -> int:
        """k, the components in use."""
        return self._k

    def score(self, X: Any) -> RowScores:
        """T2 and SPE of the rows of X, (n, d): an array, or whatever `transform` takes."""
        parts = [histograms.distances(block, self._Z, self._variances) for block in self._blocks(X)]
        return RowScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def contributions(self, X: Any) -> tuple[Array, Array]:
        """What each column contributes to T2 and SPE of each row of X, (n, d) each."""
        parts = [self._contributions(block) for block in self._blocks(X)]
        t2, spe = (np.concatenate(column) for column in zip(*parts, strict=True))
        return t2, spe

    def limits(self, level: float | str = LEVEL, *, source: str | None = None, trained: bool = False) -> Limits:
        """Limits that a share `level` of the rows keeps to.

        Args:
            level: The share, in (0, 1), for each of both limits: 0.99 or "99%".
            source: "clients", from the rows of all clients, of which the run was asked to monitor;
                or "theory", for rows of a normal law. If left out, from the clients where the
                result knows them.
            trained: Whether the rows that limits from theory are for are the run's own, not new
                ones.

        Raises:
            ConfigError: If the result does not know what the source needs.
        """
        most = 1.0 - 2.0**-20
        checks.number("level", share := checks.share(level), least=1e-6, most=most, remedy="Try 0.99.")
        if source is None:
            source = "theory" if self._counts is None else "clients"
        checks.choice("source", source, SOURCES)
        if source == "theory":
            return self._theory(float(share), trained=trained)
        if self._counts is None:
            remedy = Words("Use ", Setting("source", "theory"), ".")
            raise ConfigError(
                "Limits from the clients",
                must=Words("asked of a run with ", Setting("monitor", True), ", for all of its components"),
                got="another",
                then=remedy,
            )
        t2, spe = (histograms.quantile(counts, share) for counts in self._counts)
        above = f"at most {histograms.WIDTH - 1.0:.1%} above it"
        words = f"the quantile of the {int(self._counts[0].sum()):,} rows of all clients, {above}"
        return Limits(float(share), t2 * self._k, max(spe * self._rest, self._floor), words)

    def anomalies(self, sites: Any, limits: Limits, *, top: int = 3) -> list[Anomaly]:
        """The rows beyond a limit, an entry for each statistic that is, with the heaviest columns.

        Args:
            sites: The rows of each site by its name; or in a list, by position where they name
                none; or one table, which is that of site 0 where it names none.
            limits: See `limits`.
            top: How many columns to name.
        """
        checks.integer("top", top, least=1)
        if not isinstance(sites, Mapping):
            if not isinstance(sites, list | tuple) and getattr(sites, "ndim", 2) != 3:
                sites = [sites]
            sites = {(isinstance(X, SiteRows) and X.site) or i: X for i, X in enumerate(sites)}
        return [found for site, X in sites.items() for found in self._beyond(site, X, limits, top)]

    def _beyond(self, site: Any, X: Any, limits: Limits, top: int) -> Iterator[Anomaly]:
        start, names = 0, names_of(self._result)
        for block in self._blocks(X):
            scored = RowScores(*histograms.distances(block, self._Z, self._variances))
            rows = np.flatnonzero(scored.beyond(limits))
            # Contributions are as large as the rows: only those are made that are told.
            t2, spe = self._contributions(block[rows])
            for i, row in enumerate(rows):
                pairs = (("T2", scored.t2[row], limits.t2, t2[i]), ("SPE", scored.spe[row], limits.spe, spe[i]))
                for statistic, value, limit, shares in pairs:
                    if value > limit:
                        order = np.argsort(-shares, kind="stable")[:top]
                        largest = tuple((names[j], float(shares[j] / shares.sum())) for j in order)
                        yield Anomaly(site, start + int(row), statistic, float(value), float(limit), largest)
            start += len(block)

    def _contributions(self, X: Array) -> tuple[Array, Array]:
        scores = X @ self._Z
        return ((scores / np.sqrt(self._variances)) @ self._Z.T) ** 2, (X - scores @ self._Z.T) ** 2

    def _blocks(self, X: Any) -> Iterator[Array]:
        blocks = self._result._data(X).dense()
        return (np.asarray(block, dtype=np.float64) for block in blocks)

    @property
    def _counts(self) -> Array | None:
        """The histograms, which are of all components of the result."""
        return self._result.histograms_ if self._k == self._all else None

    @property
    def _rest(self) -> float:
        """The variance left out."""
        return max(float(self._result.total_variance_ - self._variances.sum()), 0.0)

    @property
    def _floor(self) -> float:
        """What rounding leaves of a row, and more: where nothing is left out, SPE is beyond it for other reasons."""
        return histograms.ROUNDING * float(self._result.total_variance_)

    def _theory(self, level: float, *, trained: bool) -> Limits:
        from scipy import special

        if self._result.cross_ is not None:
            raise ConfigError(
                "Limits from theory",
                must="for components that are orthonormal, which leave out what varies least",
                got="others",
                then=Words("Run with ", Setting("monitor", True), "."),
            )
        n, k = self._result.n_samples_, self._k
        free = n - k - int(self._result.centered) + int(not trained)
        if free < 1:
            raise ConfigError(
                "The rows of a run, for limits from theory,",
                must=f"more than {n - free}",
                got=n,
                then="Use fewer components, or limits from the clients.",
            )
        # a mean that was estimated adds to what new rows differ by
        about = n if self._result.centered else np.inf
        if trained:
            whose = "the run's own"
            t2 = (n - 1) * (1.0 - 1.0 / about) * special.betaincinv(k / 2.0, free / 2.0, level)
        else:
            whose = "new"
            t2 = k * (n - 1) / free * (1.0 + 1.0 / about) * special.fdtri(k, free, level)
        spe, assumed = self._box(level)
        return Limits(level, float(t2), max(spe, self._floor), f"theory for {whose} rows of a normal law{assumed}")

    def _box(self, level: float) -> tuple[float, str]:
        """The limit of SPE by Box's g chi2(h); and what it assumes."""
        from scipy import special

        known = np.asarray(self._axis_variances[self._k : self._all], dtype=np.float64)
        rows = self._result.n_samples_ - int(self._result.centered)
        count = min(rows, self._result.n_features_in_) - self._k - len(known)
        s1, s2, assumed = float(known.sum()), float(np.sum(known**2)), ""
        unknown = self._rest - s1
        if unknown > self._floor and count > 0:
            s1, s2 = s1 + unknown, s2 + unknown**2 / count
            if count > 1:
                assumed = f", with the same variance in all of {count:,} directions left out"
        if s1 <= 0.0:
            return 0.0, assumed
        g, h = s2 / s1, s1**2 / s2
        return float(g * 2.0 * special.gammaincinv(h / 2.0, level)), assumed
