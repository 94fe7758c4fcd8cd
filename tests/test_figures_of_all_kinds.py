"""Test figures besides components for every algorithm: errors, counts for limits, shares.

Each is held against an independent formula on the pooled rows, with numpy's LAPACK. A figure that an
algorithm cannot know is absent, and the option that asks for it is refused.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas
import pytest
from builders import EPS, Array, framed, share_between_sites, sine
from cases import every
from test_figures import STOPPED, cut_unevenly, rows_of_spectrum

from flower_pca import ConfigError, PCAResult, make, registry, simulate, to_sklearn
from flower_pca.analysis import likelihood
from flower_pca.commands.results import figures_as_json
from flower_pca.core import compatible
from flower_pca.results.personal import PersonalResult, TripleResult
from flower_pca.results.robust import RobustResult
from flower_pca.stages import ritz
from flower_pca.stages.histograms import BinGrid

K = 3
NAMES = [*registry.TABLE, "auto", *STOPPED]
# Behind the wanted components all eigenvalues are the same, as errors of a narrow basis take them to be.
FLAT = rows_of_spectrum(np.r_[7.0, 5.0, 3.5, np.ones(9)], seed=6)
PARTS = cut_unevenly(FLAT)
SITES = np.repeat(np.arange(len(PARTS)), [len(part) for part in PARTS])
AGE = FLAT[:, 0] + np.random.default_rng(8).standard_normal(len(FLAT))
TABLES = [pandas.DataFrame(part).assign(age=AGE[i == SITES]).rename(columns=str) for i, part in enumerate(PARTS)]
ASKED: dict[str, dict[str, Any]] = {
    "": {},
    "standard_errors": {"standard_errors": True},
    "monitor": {"monitor": True},
    "explain": {"explain": ["age"]},
}


@functools.cache
def run_with(name: str, option: str = "") -> PCAResult | None:
    """The run with this option; None if the algorithm refuses the option."""
    if option and compatible.missing_properties(make(name), option):
        with pytest.raises(ConfigError, match=f"does not support {option}"):
            simulate(name, TABLES, n_components=K, **ASKED[option])
        return None
    return simulate(name, TABLES if option == "explain" else PARTS, n_components=K, seed=1, **ASKED[option])


def scores(result: PCAResult) -> Array:
    return np.asarray(framed(FLAT) @ result.components_.T)


def angle_of(result: PCAResult) -> float:
    """The sine of the angle to LAPACK's components."""
    return sine(np.linalg.svd(framed(FLAT), full_matrices=False)[2][:K], result.components_)


def by_site(parts: Array) -> tuple[Array, Array]:
    """The errors by rows of the same sites, and by other sites, of what each row adds."""
    sites = [parts[i == SITES] for i in range(len(PARTS))]
    within = sum(len(own) * own.var(axis=0, ddof=1) for own in sites)
    between = sum(own.sum(axis=0) ** 2 for own in sites) * len(sites) / (len(sites) - 1)
    return np.sqrt(within), np.sqrt(between)


@pytest.mark.slow
@every("name", NAMES)
def test_errors_of_variances_are_those_of_what_each_row_adds(name: str) -> None:
    result = run_with(name, "standard_errors")
    if result is None:
        return
    squares = scores(result) ** 2
    found, sites = by_site((squares - squares.mean(axis=0)) / (len(FLAT) - 1))
    np.testing.assert_allclose(result.variance_errors_, found, rtol=1e-6)
    np.testing.assert_allclose(result.site_variance_errors_, sites, rtol=1e-6)


@pytest.mark.slow
@every("name", NAMES)
def test_errors_of_loadings_are_those_of_how_each_row_turns_eigenvectors(name: str) -> None:
    result = run_with(name, "standard_errors")
    if result is None or angle_of(result) > 1e-5:
        return
    F = framed(FLAT)
    values, V = np.linalg.eigh(F.T @ F)
    T = F @ V
    for j, component in enumerate(result.components_):
        place = int(np.argmax(np.abs(V.T @ component)))
        gaps = values[place] - values
        gaps[place] = np.inf
        found, sites = by_site(((T * T[:, [place]]) / gaps) @ V.T)
        np.testing.assert_allclose(result.loading_errors_[j], found, rtol=1e-4)
        np.testing.assert_allclose(result.site_loading_errors_[j], sites, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@every("name", NAMES)
def test_limits_are_of_rows_without_themselves_or_it_is_said_that_they_are_not(name: str) -> None:
    result = run_with(name, "monitor")
    if result is None:
        return
    counts = result.histograms_
    assert counts is not None
    distances = []
    if result.histograms_of == "left out":
        assert result.is_pooled
        assert angle_of(result) < 0.1, "rows cannot be left out of components that are no eigenvectors"
        for i, row in enumerate(FLAT):
            others = np.delete(FLAT, i, axis=0)
            _, s, V = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)
            y = row - others.mean(axis=0)
            t = V[:K] @ y
            distances.append([np.sum(t**2 / s[:K] ** 2) * (len(others) - 1), np.sum((y - t @ V[:K]) ** 2)])
    else:
        assert not result.is_pooled or angle_of(result) > 1e-3, "rows could have been left out"
        Z, variances = result.axes
        F = FLAT - result.mean_
        T = F @ Z
        rest = np.sum((F - T @ Z.T) ** 2, axis=1)
        distances = np.column_stack([np.sum(T**2 / variances, axis=1), rest]).tolist()
    t2, spe = np.array(distances).T
    grid = BinGrid.for_column_count(FLAT.shape[1])
    rest = result.total_variance_ - float(result.axes[1].sum())
    expected = np.array([grid.count_values(t2 / K), grid.count_values(spe / rest)])
    # A row at the end of a bin may be counted in the next one.
    most = 2 if result.histograms_of == "rows" else 5
    assert np.abs(np.cumsum(expected - counts, axis=1)).max() <= most


@pytest.mark.slow
@every("name", NAMES)
def test_the_share_between_sites_is_that_of_an_analysis_of_variance(name: str) -> None:
    result = run_with(name)
    assert result is not None
    if result.site_share_ is None:
        assert not result.is_pooled
        assert figures_as_json(result)["site_share"] is None
        assert "between sites" not in result.table()
        return
    T = scores(result)
    shares = share_between_sites([T[i == SITES] for i in range(len(PARTS))])
    np.testing.assert_allclose(result.site_share_, shares, rtol=1e-6)


@pytest.mark.slow
@every("name", NAMES)
def test_the_share_that_a_column_explains_is_that_of_least_squares(name: str) -> None:
    result = run_with(name, "explain")
    if result is None:
        return
    T = scores(result)
    about, dummies = AGE - AGE.mean(), np.eye(len(PARTS))[SITES]
    r = T.T @ about / np.sqrt(np.sum(T**2, axis=0) * np.sum(about**2))
    np.testing.assert_allclose(result.explained_by_["age"], r**2, rtol=1e-6)

    def left(columns: Array) -> Array:
        return np.sum((T - columns @ np.linalg.lstsq(columns, T, rcond=None)[0]) ** 2, axis=0)

    alone = left(np.column_stack([np.ones(len(T)), AGE]))
    beyond = 1.0 - left(np.column_stack([dummies, AGE])) / alone
    np.testing.assert_allclose(result.explained_by_["site beyond age"], beyond, rtol=1e-6)


@every("name", NAMES)
def test_what_was_not_asked_for_or_cannot_be_known_is_absent_everywhere(name: str) -> None:
    result = run_with(name)
    assert result is not None
    figures = figures_as_json(result)
    for figure in ("variance_errors", "mse", "limits", "noise_thresholds"):
        assert figures[figure] is None, figure
    assert figures["explained_by"] == {}
    assert "±" not in result.table()
    (heading,) = [line for line in result.table().splitlines() if line.lstrip().startswith("component ")]
    assert (figures["residuals"] is None) == (not result.is_pooled) == ("residual" not in heading)
    assert (result.shrinkage_ is None) == (not result.is_pooled)
    if result.sine_estimate_ is None:
        assert figures["sine_estimate"] is None


@pytest.mark.slow
@every("name", NAMES)
def test_scikit_learn_is_given_the_same_figures_or_none(name: str) -> None:
    result = run_with(name)
    assert result is not None
    if result.cross_ is not None or not result.projects:
        with pytest.raises(ConfigError, match="scikit-learn's PCA"):
            to_sklearn(result)
        return
    there = to_sklearn(result)
    for figure in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"):
        np.testing.assert_allclose(getattr(there, figure), getattr(result, figure), rtol=8 * EPS)


def figures_of(result: PCAResult, C: Array, n: int, tol: float) -> None:
    """Hold what a result says of its components against this covariance of the rows that it is of."""
    Z = result.components_.T
    along, total = np.diag(Z.T @ C @ Z), float(np.trace(C))
    Q = np.linalg.qr(Z)[0]
    left = total - float(np.trace(Q.T @ C @ Q))
    d, k = Z.shape
    np.testing.assert_allclose(result.explained_variance_, along, rtol=tol)
    np.testing.assert_allclose(result.total_variance_, total, rtol=tol)
    np.testing.assert_allclose(result.explained_variance_ratio_, along / total, rtol=tol)
    np.testing.assert_allclose(result.singular_values_, np.sqrt((n - 1) * along), rtol=tol)
    np.testing.assert_allclose(result.left_out_variance_, left, atol=tol * total)
    np.testing.assert_allclose(result.noise_variance_, left / (min(n, d) - k), atol=tol * total)


def spoilt_parts(seed: int) -> list[Array]:
    """Rows of three components and a little noise, in which a few entries are far off."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, K)) * [6.0, 4.0, 3.0] @ np.linalg.qr(rng.standard_normal((16, K)))[0].T
    X += 0.05 * rng.standard_normal(X.shape)
    far = rng.random(X.shape) < 0.03
    return cut_unevenly(X + far * rng.choice([-30.0, 30.0], X.shape) + 1.0)


FAR = {
    "plain": {},
    "deviations": {"scale": "std"},
    "not centered": {"center": False},
    "masks": {"mask": True},
    "stopped": {"max_rounds": 5},
}


def own_parts(result: PCAResult, parts: list[Array], name: str) -> Array:
    """L or S of all clients together, in the frame."""
    whole = np.vstack([result.local[i][name] for i in range(len(parts))])
    if name == "L":
        whole = whole - result.mean_
    return np.asarray(whole if result.scale_ is None else whole / result.scale_)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dcf_pca", "consensus_rpca"])
@every("option", FAR)
def test_figures_of_a_robust_run_are_those_of_its_low_rank_part(name: str, option: str) -> None:
    parts = spoilt_parts(11)
    result = simulate(name, parts, n_components=K, seed=1, **FAR[option])
    assert isinstance(result, RobustResult)
    L, S = (own_parts(result, parts, part) for part in "LS")
    figures_of(result, L.T @ L / (len(L) - 1), len(L), 1e-6)
    np.testing.assert_allclose(result.removed_share_, np.mean(S != 0.0, axis=0), atol=1e-12)
    X = np.vstack(parts) - result.mean_
    off = np.abs((X if result.scale_ is None else X / result.scale_) - L)
    far = off > result.threshold_ * min(10.0, result.cut_ or np.inf)
    np.testing.assert_allclose(result.outlier_share_by_column_, far.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(result.outlier_share_, far.mean(), atol=1e-12)
    if result.clients_ is not None:
        for i, (n, taken, outliers) in enumerate(result.clients_):
            own = slice(sum(map(len, parts[:i])), sum(map(len, parts[: i + 1])))
            assert n == len(parts[i])
            np.testing.assert_allclose([taken, outliers], [np.mean(S[own] != 0.0), far[own].mean()], atol=1e-12)
    else:
        assert "mask" in option


@pytest.mark.slow
@pytest.mark.parametrize("name", ["per_pca(eta=0.1)", "exact_per_pca", "triple_pca"])
@every("option", FAR)
@pytest.mark.filterwarnings("ignore:theta is")
def test_figures_of_a_personalized_run_are_those_of_the_rows_that_it_takes_apart(name: str, option: str) -> None:
    parts = spoilt_parts(12)
    given = {"max_rounds": 200, **FAR[option]}
    result = simulate(make(name, local_components=1), parts, n_components=2, seed=1, **given)
    assert isinstance(result, PersonalResult)
    rows = [part - result.mean_ for part in parts]
    if result.scale_ is not None:
        rows = [part / result.scale_ for part in rows]
    if isinstance(result, TripleResult):
        S = own_parts(result, parts, "S")
        rows = np.split(np.vstack(rows) - S, np.cumsum([len(part) for part in parts])[:-1])
        np.testing.assert_allclose(result.removed_share_, np.mean(S != 0.0, axis=0), atol=1e-12)
    whole = np.vstack(rows)
    figures_of(result, whole.T @ whole / (len(whole) - 1), len(whole), 1e-6)
    off = []
    for i, part in enumerate(rows):
        own = result.local[i]["components"]
        W = np.vstack([result.components_, own])
        off.append(np.mean(np.sum((part - part @ W.T @ W) ** 2, axis=1)))
        np.testing.assert_allclose(result.local[i]["variances"], np.mean((part @ own.T) ** 2, axis=0), rtol=1e-6)
    np.testing.assert_allclose(result.error_, np.mean(off), rtol=1e-6)
    P = np.mean([own["components"].T @ own["components"] for own in result.local.values()], axis=0)
    theta = 1.0 - float(np.linalg.eigvalsh(P)[-1])
    np.testing.assert_allclose(result.theta_, theta, atol=1e-9)
    assert np.isnan(result.theta_estimate_) or result.theta_estimate_ >= theta - 1e-9


@pytest.mark.slow
@every("option", ["plain", "deviations", "not centered"])
@every("number", [3, 4, 7])
def test_figures_of_median_pca_are_medians_over_the_clients(option: str, number: int) -> None:
    X = rows_of_spectrum(np.r_[7.0, 5.0, 3.5, np.ones(9)], seed=7)
    parts = [X[i::number] + 0.2 * i for i in range(number)]
    result = simulate("median_pca", parts, n_components=K, seed=1, **FAR[option])
    whole = [part - result.mean_ for part in parts]
    if result.scale_ is not None:
        whole = [part / result.scale_ for part in whole]
    along = np.median([np.mean((rows @ result.components_.T) ** 2, axis=0) for rows in whole], axis=0)
    n = len(X)
    np.testing.assert_allclose(result.explained_variance_, along * n / (n - 1), rtol=1e-9)
    total = np.median([np.mean(rows**2, axis=0) for rows in whole], axis=0).sum() * n / (n - 1)
    np.testing.assert_allclose(result.total_variance_, total, rtol=1e-9)
    np.testing.assert_allclose(result.explained_variance_ratio_, result.explained_variance_ / total, rtol=1e-9)
    np.testing.assert_allclose(result.singular_values_, np.sqrt((n - 1) * result.explained_variance_), rtol=1e-9)
    left = max(total - float(result.explained_variance_.sum()), 0.0)
    np.testing.assert_allclose(result.left_out_variance_, left, atol=1e-9 * total)
    assert likelihood.covariance(result).shape == (12, 12)


FEWER_BITS = [("float32", 1e-7), ("float32", 1e-6), ("float16", 1e-3), ("auto", 1e-6), ("auto", 1e-3)]


def true_residuals(result: PCAResult, X: Array) -> Array:
    """|C z - theta z| of each component over the first eigenvalue. Missing values are filled with column means."""
    F = np.nan_to_num(X - np.nanmean(X, axis=0))
    C, Z = F.T @ F, result.components_.T
    return np.asarray(np.linalg.norm(C @ Z - Z * np.sum(Z * (C @ Z), axis=0), axis=0) / np.linalg.norm(C, 2))


@pytest.mark.slow
@every("name", ["krylov", "ssi", "fed_oapm", "auto"])
@every("setting", FEWER_BITS)
def test_the_residual_of_each_component_counts_the_rounding_of_messages(name: str, setting: tuple[str, float]) -> None:
    wire, tol = setting
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(10, 60))
        sizes = [np.arange(1, d + 1) ** -0.5, 0.9 ** np.arange(d), 10.0 ** -np.linspace(0, 6, d)][seed % 3]
        X = rng.standard_normal((300, d)) * sizes @ np.linalg.qr(rng.standard_normal((d, d)))[0] + 30.0 * (seed % 2)
        result = simulate(name, cut_unevenly(X), n_components=K, wire=wire, tol=tol, seed=seed, max_rounds=300)
        assert result.residuals_ is not None
        assert (true_residuals(result, X) <= 1.1 * result.residuals_ + 2e-15).all()


@every("name", ["covariance", "krylov"])
def test_residuals_count_the_noise_of_masked_sums(name: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((200, 20)) @ np.diag(0.8 ** np.arange(20)) @ rng.standard_normal((20, 20)) + 5.0
        X[rng.random(X.shape) < 0.1] = np.nan
        result = simulate(name, cut_unevenly(X), n_components=K, mask=True, missing="mean", seed=seed)
        assert result.residuals_ is not None
        true = true_residuals(result, X)
        assert np.max(true) > 1e-14, "the noise of masked sums is not visible here"
        assert (true <= 1.1 * result.residuals_).all()
        assert np.linalg.norm(result.residuals_) <= 100.0 * np.linalg.norm(true)


@every("name", ["covariance", "krylov", "ssi", "faps", "fed_oapm"])
@every("missing", ["mean", "local_mean"])
def test_masked_sums_of_tiny_rows_with_gaps_keep_their_digits(name: str, missing: str) -> None:
    X = 1e-8 * (np.random.default_rng(5).standard_normal((200, 10)) * 0.6 ** np.arange(10) + 1.0)
    X[np.random.default_rng(6).random(X.shape) < 0.1] = np.nan
    parts = cut_unevenly(X)
    plain, masked = (
        simulate(name, parts, n_components=2, missing=missing, mask=mask, seed=1) for mask in (False, True)
    )
    np.testing.assert_allclose(masked.explained_variance_, plain.explained_variance_, rtol=1e-8)
    assert sine(masked.components_, plain.components_) < 1e-5


@every("name", ["ssi", "fed_oapm"])
@every("mask", [False, True])
def test_variances_of_a_run_that_is_cut_have_the_digits_that_its_tolerance_asks_for(name: str, mask: bool) -> None:
    for rounds in (2, 3, 5, 8):
        X = rows_of_spectrum(0.8 ** np.arange(12), seed=rounds)
        result = simulate(
            name, cut_unevenly(X), n_components=K, wire="auto", tol=1e-8, max_rounds=rounds, mask=mask, seed=rounds
        )
        C = np.cov(X, rowvar=False)
        along = np.diag(result.components_ @ C @ result.components_.T)
        np.testing.assert_allclose(result.explained_variance_, along, rtol=1e-8)


@every("setting", [("float16", 1e-3), ("auto", 1e-3)])
@every("name", ["ssi", "fed_oapm", "krylov"])
def test_under_masks_the_residual_counts_the_rounding_of_blocks(name: str, setting: tuple[str, float]) -> None:
    wire, tol = setting
    for seed in range(6):
        X = rows_of_spectrum(np.r_[5.0, 4, 3, np.ones(30)], seed=seed)
        result = simulate(
            name, cut_unevenly(X), n_components=6, wire=wire, tol=tol, seed=seed, max_rounds=300, mask=True
        )
        assert result.residuals_ is not None
        assert (true_residuals(result, X) <= 1.1 * result.residuals_ + 2e-15).all()


def test_the_share_between_sites_of_a_component_below_the_rounding_of_messages_is_absent() -> None:
    X = rows_of_spectrum(np.r_[5.0, 3.0, 1e-3, 1e-4 * np.ones(5)], seed=2)
    parts = cut_unevenly(X)
    assert simulate("krylov", parts, n_components=2, wire="float16", tol=1e-3).site_share_ is not None
    rounded = simulate("krylov", parts, n_components=3, wire="float16", tol=1e-3)
    assert rounded.site_share_ is None
    assert figures_as_json(rounded)["site_share"] is None
    assert simulate("krylov", parts, n_components=3).site_share_ is not None


@every("wire", ["float32", "float16", "auto"])
def test_the_residual_counts_rounding_where_covariates_explain_most_of_the_rows(wire: str) -> None:
    tol = 1e-6 if wire == "float32" else 1e-3
    for seed in range(8):
        rng = np.random.default_rng([seed, 9])
        X, a = rng.standard_normal((100, 12)) * 0.97 ** np.arange(12), rng.standard_normal(100)
        rows = X + 10.0 * np.outer(a, rng.standard_normal(12))
        tables = [pandas.DataFrame(rows[i::3]).assign(age=a[i::3]).rename(columns=str) for i in range(3)]
        result = simulate("krylov", tables, n_components=2, adjust=["age"], wire=wire, tol=tol, seed=seed)
        D = np.column_stack([np.ones(100), a])
        F = rows - D @ np.linalg.lstsq(D, rows, rcond=None)[0]
        assert result.residuals_ is not None
        assert (true_residuals(result, F) <= 1.1 * result.residuals_ + 2e-15).all()


@every("name", ["krylov", "ssi", "fed_oapm"])
@every("setting", [("float32", 1e-6), ("auto", 1e-6), ("float16", 1e-3)])
def test_a_start_on_the_same_rows_takes_few_messages_whatever_their_bits(name: str, setting: tuple[str, float]) -> None:
    wire, tol = setting
    parts = cut_unevenly(np.random.default_rng(3).standard_normal((140, 20)) * 0.9 ** np.arange(20))
    first = simulate(name, parts, n_components=2, wire=wire, tol=tol)
    assert len(simulate(name, parts, n_components=2, wire=wire, tol=tol, init=first).history) <= 3


@every("name", ["krylov", "ssi", "fed_oapm", "covariance"])
@pytest.mark.parametrize(("wire", "tol"), [("float16", 1e-3), ("float32", 1e-6)])
def test_rounded_messages_explain_no_more_than_there_is(name: str, wire: str, tol: float) -> None:
    """With as many components as directions, nothing is left out, so rounding alone would explain more than 100 %."""
    given = {} if name == "covariance" else {"tol": tol}
    for seed in range(12):
        rng = np.random.default_rng([seed, 1745])
        n, d = int(rng.integers(3, 8)), int(rng.integers(2, 7))
        X = rng.standard_normal((n, d)) * rng.choice([1.0, 3.0, 10.0], d)
        k = min(n, d)
        result = simulate(name, [X[:2], X[2:]], n_components=k, seed=seed, wire=wire, **given)
        assert result.explained_variance_ratio_.sum() <= 1.0 + 1e-12
        assert (np.diff(result.explained_variance_) <= 0.0).all()
        assert (result.explained_variance_ >= 0.0).all()


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_values_within_the_trace_are_nearer_to_all_that_rows_can_have(seed: int, alike: bool) -> None:
    rng = np.random.default_rng(seed)
    exact = np.sort(rng.exponential(size=5) ** 3)[::-1]
    errors = np.full(5, 0.2 * exact[0]) if alike else 0.2 * np.sqrt(exact[0] * exact)
    values = np.sort(np.maximum(exact + rng.uniform(0.0, 1.0, 5) * errors, 0.0))[::-1]
    trace = float(exact.sum()) * float(rng.uniform(1.0, 1.05))
    within = ritz._nearest_within_trace(values, trace, errors)
    assert within.sum() <= trace * (1.0 + 1e-15)
    assert (within >= 0.0).all()
    assert (np.diff(within) <= 0.0).all()
    off, before = (np.linalg.norm((x - exact) / errors) for x in (within, values))
    assert off <= before * (1.0 + 1e-15)


def test_errors_of_tied_components_are_those_of_the_components_that_the_result_has() -> None:
    """Rows with a single 1 have the same variance in all directions, so another basis would be as good."""
    X = np.tile(np.eye(9), (6, 1))
    parts = [X[:7], X[7:30], X[30:]]
    for name in ("covariance", "krylov"):
        result = simulate(name, parts, n_components=2, standard_errors=True)
        squares = (framed(X) @ result.components_.T) ** 2 / (len(X) - 1)
        within = sum(len(own) * own.var(axis=0, ddof=1) for own in np.split(squares, [7, 30]))
        np.testing.assert_allclose(result.variance_errors_, np.sqrt(within), rtol=1e-6)


@every("name", ["covariance", "krylov", "ssi", "fed_oapm"])
@pytest.mark.parametrize(("wire", "tol"), [("float16", 1e-3), ("float32", 1e-6)])
def test_a_variance_from_rounded_messages_is_no_further_off_than_its_residual(name: str, wire: str, tol: float) -> None:
    """If nothing is left out, rounding alone may explain more than the total, so variances are lowered to fit."""
    given = {} if name == "covariance" else {"tol": tol}
    for seed in range(20):
        rng = np.random.default_rng([seed, 1325])
        d = int(rng.integers(3, 7))
        X = rows_of_spectrum(10.0 ** -np.linspace(0.0, 3.0, d), seed=seed)
        result = simulate(name, cut_unevenly(X), n_components=d, seed=seed, wire=wire, **given)
        along = np.diag(result.components_ @ np.cov(X.T) @ result.components_.T)
        assert result.residuals_ is not None
        off = np.abs(result.explained_variance_ - along) / np.linalg.norm(np.cov(X.T), 2)
        assert (off <= 1.1 * result.residuals_ + 1e-14).all(), seed


@every("name", ["ssi", "fed_oapm"])
def test_a_run_does_not_end_with_a_message_of_fewer_bits_than_its_tolerance_needs(name: str) -> None:
    """Far from the origin, one round reduces the error by so much that the rounding of its message exceeds `tol`."""
    for seed in range(40):
        rng = np.random.default_rng([seed, 3179])
        X = rng.standard_normal((180, 34)) + 30.0 * rng.choice([1.0, 2.0, 5.0]) * rng.standard_normal(34)
        result = simulate(
            name, cut_unevenly(X), n_components=1, seed=seed, wire="auto", tol=1e-8, center=False, scale="std"
        )
        assert result.scale_ is not None
        assert result.residuals_ is not None
        F, z = X / result.scale_, result.components_[0]
        C = F.T @ F
        theta = float(z @ C @ z)
        true = np.linalg.norm(C @ z - theta * z) / np.linalg.norm(C, 2)
        assert true <= 1.1 * result.residuals_[0] + 2e-15, seed


@every("center", [True, False])
@every("number", [3, 4, 7])
def test_medians_of_variances_explain_no_more_than_there_is(center: bool, number: int) -> None:
    """Medians along components may add up to more than medians of columns, which are the total otherwise."""
    more = 0
    for seed in range(12):
        X = np.random.default_rng(seed).standard_normal((60, 4)) * [2.0, 1.5, 1.0, 0.5]
        result = simulate("median_pca", [X[i::number] for i in range(number)], n_components=4, center=center, seed=seed)
        assert result.explained_variance_ratio_.sum() <= 1.0 + 1e-12
        assert result.left_out_variance_ == pytest.approx(
            result.total_variance_ - result.explained_variance_.sum(), abs=1e-9
        )
        more += result.left_out_variance_ < 1e-9
    assert more, "no draw has medians that add up to more"


def test_a_result_says_that_missing_values_lower_the_variance_of_scaled_columns() -> None:
    X = np.random.default_rng(4).standard_normal((90, 8)) + 1.0
    holes = X.copy()
    holes[np.random.default_rng(5).random(X.shape) < 0.2] = np.nan
    for given in ({}, {"mask": True}, {"center": False}):
        scaled = simulate("krylov", cut_unevenly(holes), n_components=2, scale="std", missing="mean", **given)
        below = scaled.total_variance_ < 8.0 * 0.9
        words = [choice for choice in scaled.decisions if "missing values" in choice]
        assert len(words) == below
        if below:
            assert f"{scaled.total_variance_:.4g}" in words[0]
            assert words[0] in str(scaled.summary())
            assert scaled.centered
    for rows, given in (
        (X, {"scale": "std", "missing": "mean"}),
        (holes, {"missing": "mean"}),
        (holes, {"scale": "std", "missing": "local_mean"}),
    ):
        result = simulate("krylov", cut_unevenly(rows), n_components=2, **given)
        assert not any("missing values" in choice for choice in result.decisions)


@every("name", ["covariance", "krylov", "ssi", "fed_oapm", "local_power", "uda", "auto"])
@every("kind", ["single precision", "float32", "float16"])
def test_variances_are_off_by_no_more_than_residuals_say(name: str, kind: str) -> None:
    """So is what is left out, by no more than all residuals together."""
    given: dict[str, Any] = {} if "single" in kind else {"wire": kind}
    if compatible.ITERATES.holds(make(name)) and given:
        given["tol"] = 1e-3 if kind == "float16" else 1e-6
    if compatible.missing_properties(make(name), *given):
        return
    for seed in range(6):
        X = rows_of_spectrum(0.6 ** np.arange(12), seed=seed) + 3.0
        if not given:
            X = X.astype(np.float32)
        result = simulate(name, cut_unevenly(X), n_components=K, seed=seed, **given)
        C = np.cov(X.astype(np.float64).T)
        along = np.diag(result.components_ @ C @ result.components_.T)
        assert result.residuals_ is not None
        allowed = (result.residuals_ + 1e-14) * np.linalg.norm(C, 2)
        assert (np.abs(result.explained_variance_ - along) <= allowed).all()
        assert abs(result.left_out_variance_ - (np.trace(C) - along.sum())) <= allowed.sum()


@every("mask", [False, True])
def test_the_residual_counts_the_rounding_of_the_last_messages_of_krylov(mask: bool) -> None:
    """As the components converge, messages have fewer bits than the tolerance would need otherwise."""
    for seed in (38, 44, 143, 156, 165, 231):
        rng = np.random.default_rng([seed, 8156])
        d = int(rng.integers(28, 45))
        X = rng.standard_normal((80, d)) * [0.9 ** np.arange(d), np.arange(1, d + 1) ** -0.5, np.ones(d)][seed % 3]
        for k in (2, 4):
            result = simulate("krylov", cut_unevenly(X), n_components=k, wire="auto", tol=1e-8, seed=seed, mask=mask)
            assert result.residuals_ is not None
            assert (true_residuals(result, X) <= 1.05 * result.residuals_ + 2e-15).all(), (seed, k)
            assert (result.residuals_ <= 1e-8).all(), (seed, k)
