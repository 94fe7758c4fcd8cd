"""Test every figure of a result against LAPACK on the pooled rows, for every algorithm.

The components of a result are taken as they are. What the result says of them has to be what the
rows say of them, whether the run converged, was stopped early, or took one round.

Every algorithm runs with every option, and a seeded sample of pairs of options runs with a seeded sample of
parameters of the algorithms.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas
import pytest
from builders import Array, evenly, framed, gone_on, rotation, sine
from cases import every
from fake_grid import grid_of, in_a_run

from flower_pca import ConfigError, PCAResult, make, registry, simulate
from flower_pca.algorithms.one_shot import UDA
from flower_pca.analysis import likelihood
from flower_pca.assembly import config, run
from flower_pca.core import compatible
from flower_pca.core.drive import drive
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards
from flower_pca.strategies import PCAStrategy

K = 3
# The algorithms whose components are closed by a Rayleigh-Ritz step: eigenvectors of C, or on the way there.
SUBSPACE = [name for name, entry in registry.TABLE.items() if entry.closing.name == "ritz"]
ITERATING = [name for name in SUBSPACE if compatible.ITERATES.holds(make(name))]
STOPPED = [f"{name}(max_rounds={rounds})" for name in ITERATING for rounds in (1, 3)]
OTHERS = [name for name in registry.TABLE if name not in SUBSPACE]


def rows_of_two_sizes() -> Array:
    """Five columns of deviation 1 and five of .01: the components of short columns outside, and long ones within."""
    return np.random.default_rng(0).standard_normal((60, 10)) * np.r_[np.ones(5), np.full(5, 0.01)]


def rows_that_fall() -> Array:
    X = np.random.default_rng(1).standard_normal((90, 12)) * 0.8 ** np.arange(12)
    return np.asarray(X @ rotation(12, 1) + 0.5)


def rows_of_spectrum(deviations: Array, *, seed: int) -> Array:
    """Rows whose covariance has exactly these eigenvalues."""
    U = np.random.default_rng(seed).standard_normal((90, len(deviations)))
    U, _ = np.linalg.qr(U - U.mean(axis=0))
    return np.asarray(U * deviations @ rotation(len(deviations), seed) * np.sqrt(89.0))


def wide_rows() -> Array:
    return np.random.default_rng(2).standard_normal((40, 60)) * 0.9 ** np.arange(60)


ROWS = {
    "two sizes": rows_of_two_sizes(),
    "falling": rows_that_fall(),
    "tied at the last component": rows_of_spectrum(np.r_[5.0, 4, 3, 3, 3, np.ones(7)], seed=3),
    "tied beyond the last component": rows_of_spectrum(np.r_[5.0, 4, 3, 2, 2, 2, np.ones(6)], seed=4),
    "wide": wide_rows(),
    "of 1e-140": 1e-140 * rows_that_fall(),
}
# The relative tolerance of each: the figures are of the rows that clients answer for.
OPTIONS: dict[str, tuple[dict[str, Any], float]] = {
    "plain": ({}, 1e-8),
    "float32": ({"wire": "float32", "tol": 1e-6}, 1e-6),
    "float16": ({"wire": "float16", "tol": 1e-3}, 2e-3),
    "as few bits as go with tol": ({"wire": "auto", "tol": 1e-3}, 2e-3),
    "gaps by all clients": ({"missing": "mean"}, 1e-8),
    "gaps by each client": ({"missing": "local_mean"}, 1e-8),
    "gaps and deviations": ({"missing": "mean", "scale": "std"}, 1e-8),
    "deviations": ({"scale": "std"}, 1e-8),
    "largest values": ({"scale": "max_abs"}, 1e-8),
    "not centered": ({"center": False}, 1e-8),
    "evaluated": ({"reconstruction_error": True}, 1e-8),
    "masks": ({"mask": True}, 1e-6),
    "masks of few bits": ({"mask": True, "wire": "float16", "tol": 1e-3}, 2e-3),
    "largest share": ({"max_share": 0.3}, 1e-8),
    "a covariate removed": ({"adjust": ["age"]}, 1e-8),
    "means of sites removed": ({"adjust": ["site"]}, 1e-8),
    "levels of a text column": ({"categorical": {"kind": ["high", "low", "none"]}}, 1e-8),
    "half of the clients in a round": ({"fraction": 0.5}, 1e-8),
    "fixed statistics": ({"answers": "fixed"}, 1e-8),
    "resumed": ({"checkpoint": True}, 1e-8),
    "started from other components": ({"init": np.eye(K, 12) + 0.1}, 1e-8),
    "a share of the variance": ({"n_components": 0.7}, 1e-8),
    "nodes that wait for changed rows": ({"min_change": 5}, 1e-8),
}
# Parameters of algorithms other than the defaults.
PARAMETERS = [
    *("krylov(oversample=0)", "krylov(max_basis=8)", "krylov(max_rounds=2, oversample=1)"),
    *("ssi(oversample=0)", "ssi(oversample=4)", "ssi(max_rounds=5)"),
    *("local_power(local_steps=2)", "local_power(align='none')", "local_power(decay=False, halve_every=1)"),
    *("faps(inner_steps=2)", "faps(penalty='paper')", "faps(oversample=2)", "faps(inner_tol=1e-3)"),
    *("fed_oapm(qr_every=2)", "fed_oapm(oversample=2)"),
    *("uda(oversample=2)", "wda(oversample=2)", "dist_pca(local_components=5)", "covariance(oversample=2)"),
    *("dr_svd(rank=6)", "dr_svd(oversample=2)"),
]


@dataclass(frozen=True, eq=False)
class HeldCase:
    """A result, the rows that it is of in its frame, each counted as often as in the run, and the units."""

    result: PCAResult
    F: Array
    unit: float

    @property
    def C(self) -> Array:
        return np.asarray(self.F.T @ self.F / (len(self.F) - 1))

    @property
    def left(self) -> float:
        """The variance outside of the components' span, without the difference of two large traces."""
        Z = np.linalg.qr(self.result.components_.T)[0]
        return float(np.sum((self.F - self.F @ Z @ Z.T) ** 2)) / (len(self.F) - 1)


def with_holes(X: Array) -> Array:
    X = X.copy()
    X[np.random.default_rng(5).random(X.shape) < 0.1] = np.nan
    return X


def cut_unevenly(X: Array) -> list[Array]:
    n = len(X)
    return np.split(X, [n // 5, n // 3, 2 * n // 3])


def without_holes(parts: list[Array], missing: str) -> Array:
    """All rows, with the mean of what their column has at all clients, or at their own, in the place of gaps."""
    whole = np.vstack(parts)
    if missing == "mean":
        return np.where(np.isnan(whole), np.nanmean(whole, axis=0), whole)
    return np.vstack([np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in parts])


def with_other_columns(parts: list[Array]) -> list[pandas.DataFrame]:
    """The same rows with names of columns, an age that is related to them, and a text."""
    whole = np.nan_to_num(np.vstack(parts))
    rng = np.random.default_rng(9)
    age = whole @ rng.standard_normal(whole.shape[1]) + whole.std() * rng.standard_normal(len(whole))
    kind = rng.choice(["high", "low", "none"], len(whole), p=[0.5, 0.3, 0.2])
    table = pandas.DataFrame(np.vstack(parts), columns=[f"x{j:02d}" for j in range(whole.shape[1])])
    table = table.assign(age=age, kind=kind)
    ends = np.cumsum([len(part) for part in parts])
    return [table.iloc[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]


def indicators(tables: list[pandas.DataFrame]) -> Array:
    """A column for each level of the text: 1 in rows with this level, else 0."""
    kinds = pandas.concat(tables)["kind"].to_numpy()
    return np.column_stack([kinds == level for level in ("high", "low", "none")]).astype(float)


def less_covariates(X: Array, adjust: list[str], tables: list[pandas.DataFrame]) -> Array:
    """The residuals of least squares on the covariates."""
    sites = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    D = [np.eye(len(tables))[sites]] if "site" in adjust else [np.ones((len(X), 1))]
    if "age" in adjust:
        age = pandas.concat(tables)["age"].to_numpy()
        D.append((age / np.abs(age).max())[:, None])
    D = np.hstack(D)
    return np.asarray(X - D @ np.linalg.lstsq(D, X, rcond=None)[0])


def divisors(whole: Array, parts: list[Array], asked: dict[str, Any], levels: int) -> Array:
    """What the columns of these rows are divided by. The last columns are levels of a text."""
    observed = np.vstack(parts) if asked.get("missing") == "mean" else whole
    if asked.get("scale") == "std":
        size = np.nanstd(observed, axis=0)
    elif asked.get("scale") == "max_abs":
        size = np.nanmax(np.abs(observed), axis=0)
    else:
        size = np.ones(whole.shape[1])
    if levels:
        size = np.r_[size[: whole.shape[1] - levels], np.sqrt(whole[:, -levels:].mean(axis=0))]
    return np.asarray(size)


def settings_of(name: str, options: tuple[str, ...]) -> dict[str, Any] | None:
    """The settings that these options ask for. None if they do not go together, or not with the algorithm."""
    asked: dict[str, Any] = {}
    for option in options:
        if asked.keys() & OPTIONS[option][0].keys() - {"tol"}:
            return None
        asked |= {**OPTIONS[option][0], "tol": max(OPTIONS[option][0].get("tol", 0.0), asked.get("tol", 0.0))}
    algorithm = make(name)
    if not (compatible.ITERATES.holds(algorithm) and asked["tol"]):
        del asked["tol"]
    if compatible.missing_properties(algorithm, *asked):
        return None
    outside = {"answers", "checkpoint", "init", "min_change"}
    if len(outside & asked.keys()) > 1:
        return None  # Only one of them can decide how the run is started here.
    if "max_share" in asked and (outside | {"missing"}) & asked.keys():
        return None  # The weights of clients are read from a run of complete arrays.
    if {"adjust", "missing"} <= asked.keys():
        return None  # test_adjust_missing.py has a reference for both together.
    try:
        config(name, **{"n_components": K} | {key: value for key, value in asked.items() if key not in outside})
    except ConfigError:
        return None
    return asked


def run_case(name: str, parts: list[Any], asked: dict[str, Any]) -> PCAResult:
    """The result of a run with these settings, in a simulation or over the nodes of a grid."""
    asked = {"n_components": K, "seed": 1, **asked}
    with tempfile.TemporaryDirectory() as folder:
        if asked.pop("checkpoint", False):
            return gone_on(simulate, name, parts, path=Path(folder) / "run", stop=[1], **asked)
        if "min_change" in asked:
            rules = {"min_change": asked.pop("min_change"), "memory_dir": folder}
            served = {"covariates": "age"} if "age" in asked.get("adjust", ()) else {}
            served |= {"categorical": "kind"} if "categorical" in asked else {}
            tol = {"tol": asked.pop("tol")} if "tol" in asked else {}
            with in_a_run():
                return PCAStrategy(make(name, **tol), **asked).fit(grid_of(parts, **rules, **served))
    return simulate(name, parts, **asked)


@functools.cache
def held_case(name: str, rows: str, *options: str) -> HeldCase | None:
    """The run and its reference; None if the algorithm does not go with the options."""
    asked = settings_of(name, options)
    X = ROWS[rows]
    if asked is None:
        return None
    if X.std() < 1e-100 and ("qr_every" in name or asked.keys() & {"mask", "categorical", "min_change"}):
        # The squares of the smallest rows vanish in fixed point and beside levels, and so do fourth powers everywhere.
        # Nodes that share a folder tell their rows apart by what single precision can hold.
        return None
    if "max_share" in asked and ("categorical" in asked or "age" in asked.get("adjust", ())):
        return None  # These runs have rows without names here.
    if "init" in asked:
        asked["init"] = np.eye(K, X.shape[1] + 3 * ("categorical" in asked)) + 0.1
    parts = cut_unevenly(with_holes(X) if "missing" in asked else X)
    tables = with_other_columns(parts)
    shards: list[Any] = parts
    if "categorical" in asked:
        shards = [table.drop(columns="age") for table in tables]
    elif "age" in asked.get("adjust", ()):
        shards = [table.drop(columns="kind") for table in tables]
    weights = np.ones(len(parts))
    if "max_share" in asked:
        # How much a client counts is held against its definition in test_max_share.
        made = run(config(name, **{"n_components": K, "seed": 1, **asked}))
        result = drive(made, Shards([LocalData(part) for part in parts]))
        counted = made.position.model.counted.weights
        weights = np.array([counted.get(i, 1.0) for i in range(len(parts))])
    else:
        result = run_case(name, shards, asked)
    whole = without_holes(parts, asked["missing"]) if "missing" in asked else X
    if "categorical" in asked:
        whole = np.hstack([whole, indicators(tables)])
    if "adjust" in asked:
        whole = less_covariates(whole, asked["adjust"], tables)
    counts = np.repeat(weights, [len(part) for part in parts])[:, None]
    unit = float(np.abs(whole).max()) if result.scale_ is None else 1.0
    F = whole - (counts * whole).sum(axis=0) / counts.sum() if result.centered else whole
    if result.scale_ is not None and "max_share" not in asked:
        expected = divisors(whole, parts, asked, 3 * ("categorical" in asked))
        np.testing.assert_allclose(result.scale_, expected, rtol=max(OPTIONS[option][1] for option in options))
    F = F / (unit if result.scale_ is None else result.scale_)
    return HeldCase(result, F * np.sqrt(counts), unit)


def is_near(found: Any, true: Any, size: float, tol: float) -> bool:
    return bool(np.abs(np.asarray(found, dtype=float) - np.asarray(true, dtype=float)).max() <= tol * size)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SUBSPACE, *STOPPED, "auto"])
@pytest.mark.parametrize("rows", ROWS)
@every("option", OPTIONS)
def test_what_a_result_says_of_its_components_is_what_the_rows_say(name: str, rows: str, option: str) -> None:
    case = held_case(name, rows, option)
    if case is not None:
        require_true_figures(case, OPTIONS[option][1])


def require_true_figures(case: HeldCase, tol: float, *, rounding: float = 1.0) -> None:
    """Hold the figures of a result against the rows that it is of, within this relative tolerance.

    Residuals may count rounding of so many tolerances.
    """
    result, C = case.result, case.C
    n, d = case.F.shape
    K = len(result.components_)
    Z, total = result.components_.T, float(np.trace(C))
    values, V = np.linalg.eigh(C)
    values, V = values[::-1], V[:, ::-1]
    square = case.unit**2
    along = np.diag(Z.T @ C @ Z)
    assert is_near(Z.T @ Z, np.eye(K), 1.0, 1e-10)
    assert is_near(result.explained_variance_ / square, along, values[0], tol)
    assert is_near(result.total_variance_ / square, total, total, tol)
    assert is_near(result.explained_variance_ratio_, along / total, 1.0, tol)
    assert is_near(result.singular_values_ / case.unit, np.sqrt((n - 1) * along), np.sqrt((n - 1) * values[0]), tol)
    assert is_near(result.left_out_variance_ / square, case.left, total, tol)
    assert is_near(result.noise_variance_ / square, case.left / (min(n, d) - K), total, tol)
    if result.mse_ is not None:
        assert is_near(result.mse_ * n / (n - 1) / square, case.left, total, tol)
    residuals = np.linalg.norm(C @ Z - Z * along, axis=0) / values[0]
    assert result.residuals_ is not None
    # Rounding counts as residual. It is at most about that of numbers of so few bits.
    assert (result.residuals_ >= residuals / 3.0 - 1e-12).all()
    assert (result.residuals_ <= 3.0 * residuals + rounding * max(tol, 1e-8)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SUBSPACE, *STOPPED, "auto"])
@pytest.mark.parametrize("rows", ROWS)
@every("option", OPTIONS)
def test_the_sine_that_is_left_is_no_larger_than_a_result_says(name: str, rows: str, option: str) -> None:
    case = held_case(name, rows, option)
    if case is not None:
        require_true_sine(case)


def require_true_sine(case: HeldCase) -> None:
    """Hold the sine that a result estimates against LAPACK's."""
    values, V = np.linalg.eigh(case.C)
    values, V = values[::-1], V[:, ::-1]
    K = len(case.result.components_)
    if len(values) == K:
        return
    true, estimate = sine(V[:, :K].T, case.result.components_), case.result.sine_estimate_
    gap = float(values[K - 1] - values[K]) / float(values[0])
    if gap < 1e-9:
        assert estimate is None, estimate
    if estimate is None:
        return
    assert true <= 2.0 * estimate + 1e-12
    assert case.result.residuals_ is not None
    # nor is it beyond what the true gap and the residuals say
    assert estimate <= 30.0 * max(true, float(np.linalg.norm(case.result.residuals_)) / gap, 1e-12)


def sampled(count: int, seed: int) -> list[tuple[str, str, tuple[str, ...]]]:
    """A seeded sample of algorithms with parameters, rows, and two options that go together."""
    rng, found = np.random.default_rng(seed), []
    pairs = list(itertools.combinations(OPTIONS, 2))
    names, rows = [*PARAMETERS, *SUBSPACE, *STOPPED, "auto"], list(ROWS)
    while len(found) < count:
        name, pair = names[rng.integers(len(names))], pairs[rng.integers(len(pairs))]
        if settings_of(name, pair) is not None:
            found.append((name, rows[rng.integers(len(rows))], pair))
    return found


def require_true_results(sample: list[tuple[str, str, tuple[str, ...]]]) -> None:
    """Hold all figures of these runs against their rows, and name each run with a false one."""
    false, held = [], 0
    for name, rows, pair in sample:
        try:
            case = held_case(name, rows, *pair)
            if case is None:
                continue
            held += 1
            # Rounding of messages is bounded for columns of any size, and scaled columns are all of one size.
            require_true_figures(case, max(OPTIONS[option][1] for option in pair), rounding=3.0)
            require_true_sine(case)
        except Exception as error:
            false.append(f"{name} on rows {rows}, {' and '.join(pair)}: {type(error).__name__}: {error}")
    assert not false, f"{len(false)} of {held}\n" + "\n".join(false)
    assert held >= 0.8 * len(sample)


def test_figures_are_true_with_a_few_pairs_of_options() -> None:
    require_true_results(sampled(40, seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_figures_are_true_with_many_pairs_of_options(seed: int) -> None:
    require_true_results(sampled(60, seed=seed))


@pytest.mark.slow
@every("name", [name for name in [*ITERATING, "covariance", "auto"] if name != "faps"])
@every("rows", ["two sizes", "falling", "wide", "of 1e-140"])
def test_where_eigenvalues_are_apart_a_result_says_which_sine_is_left(name: str, rows: str) -> None:
    """Components of faps and of one-shot algorithms come with one more direction, which need not tell the gap."""
    case = held_case(name, rows, "plain")
    assert case is not None
    assert case.result.sine_estimate_ is not None
    assert case.result.sine_estimate_ <= 1e-4


@pytest.mark.parametrize("name", [*SUBSPACE, "auto"])
@every("kind", ["counts", "normal"])
def test_the_rounding_of_products_in_single_precision_counts_as_residual(name: str, kind: str) -> None:
    rng = np.random.default_rng(6)
    rates = np.exp(rng.standard_normal(20))
    X = rng.poisson(rates, (3_000, 20)) if kind == "counts" else rng.standard_normal((3_000, 20)) * rates
    X = X.astype(np.float32)
    result = simulate(name, cut_unevenly(X), n_components=K, seed=1)
    C, Z = np.cov(X.astype(np.float64).T), result.components_.T
    true = np.linalg.norm(C @ Z - Z * np.diag(Z.T @ C @ Z), axis=0) / np.linalg.norm(C, 2)
    assert result.residuals_ is not None
    assert (true <= 1.05 * result.residuals_).all()
    assert (result.residuals_ <= 1.05 * true + 10.0 * np.finfo(np.float32).eps).all()


@every("seed", range(5))
def test_under_masks_a_covariance_is_as_exact_as_its_result_says(seed: int) -> None:
    """The third component has 1e-8 of the first one's variance, so it feels how the entries are rounded."""
    X = rows_of_spectrum(10.0 ** (-2.0 * np.arange(5)), seed=seed)
    result = simulate("covariance", cut_unevenly(X), n_components=3, mask=True, seed=seed)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    assert result.sine_estimate_ is not None
    assert sine(V, result.components_) <= 2.0 * result.sine_estimate_


@pytest.mark.slow
@every("seed", range(30))
def test_ties_of_all_kinds_are_no_gap(seed: int) -> None:
    """Of few distinct eigenvalues a block may hold some directions of one exactly, and none of the others."""
    rng = np.random.default_rng([seed, 7])
    d = int(rng.integers(4, 14))
    k, distinct = int(rng.integers(1, d)), int(rng.integers(1, 4))
    values = np.sort(rng.choice(10.0 ** rng.uniform(-2.0, 1.0, distinct), d))[::-1]
    X = rows_of_spectrum(np.sqrt(values), seed=seed)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]
    for name in ("krylov", "ssi", "local_power", "faps", "fed_oapm", "ssi(oversample=0)", "ssi(oversample=3)"):
        result = simulate(name, evenly(X, 3), n_components=k, seed=seed)
        if result.sine_estimate_ is not None:
            assert sine(V, result.components_) <= 2.0 * result.sine_estimate_ + 1e-12, name


@pytest.mark.slow
@every("name", ["krylov", "ssi(max_rounds=3)", "covariance", "uda", "dr_svd", "local_power", "sparse_pca"])
@every("rows", ["two sizes", "falling"])
def test_the_density_of_a_result_is_that_of_its_components_and_the_rest(name: str, rows: str) -> None:
    """score and get_precision against the density of numpy's Gaussian, with the noise of the directions left out."""
    case = held_case(name, rows, "deviations")
    assert case is not None
    result, d = case.result, case.F.shape[1]
    Q, _ = np.linalg.qr(result.components_.T)
    noise = case.left / (d - K)
    inside = Q @ (Q.T @ case.C @ Q) @ Q.T
    true = inside + noise * (np.eye(d) - Q @ Q.T)
    scale = result.scale_
    assert scale is not None
    true = true * np.outer(scale, scale)
    np.testing.assert_allclose(likelihood.covariance(result), true, rtol=1e-6, atol=1e-8 * np.trace(true))
    np.testing.assert_allclose(likelihood.precision(result) @ true, np.eye(d), atol=1e-5)
    X = ROWS[rows]
    off = X - X.mean(axis=0)
    density = -0.5 * (
        np.einsum("ij,jk,ik->i", off, np.linalg.inv(true), off) + np.linalg.slogdet(true)[1] + d * np.log(2.0 * np.pi)
    )
    np.testing.assert_allclose(likelihood.log_likelihood(result, X), density, rtol=1e-6)


@pytest.mark.parametrize("name", [*SUBSPACE, *STOPPED])
@every("rows", ["two sizes", "falling"])
def test_what_components_leave_out_is_what_the_rows_have_outside_of_their_span(name: str, rows: str) -> None:
    """The components of a one-shot algorithm, and those of an early round, span no invariant space of C."""
    X = ROWS[rows]
    for k in (1, 4, 5):
        result = simulate(name, evenly(X, 6), n_components=k)
        F = framed(X)
        Z = result.components_.T
        left = float(np.sum((F - F @ Z @ Z.T) ** 2)) / (len(F) - 1)
        assert result.left_out_variance_ == pytest.approx(left, rel=1e-9), k


@pytest.mark.parametrize("name", OTHERS)
def test_a_result_of_other_components_has_no_figures_of_eigenvectors(name: str) -> None:
    """Medians, robust, personal and sparse components are no eigenvectors of C: what C makes of them says nothing."""
    few = {"local_components": 0} if name == "triple_pca" else {}
    result = simulate(make(name, **few), evenly(ROWS["falling"], 3), n_components=2, seed=1)
    assert result.residuals_ is None
    assert result.sine_estimate_ is None
    found = {fact.key: fact.value for fact in result.summary().facts if fact.key}
    assert found["residuals"] is None
    assert found["sine_estimate"] is None
    assert "residual" not in result.table()


@dataclass(frozen=True, kw_only=True)
class OtherComponents(UDA):
    """Components that are not meant to be those of all rows together."""

    pooled: ClassVar[bool] = False


def test_components_that_are_not_those_of_all_rows_are_not_chosen_by_what_all_rows_say() -> None:
    parts = evenly(ROWS["falling"], 3)
    with pytest.raises(RuntimeError, match=r"left a basis of 4 columns for 2 components.*Return 2 columns"):
        simulate(OtherComponents(oversample=2), parts, n_components=2)
    with pytest.raises(RuntimeError, match=r"left a basis for n_components=0\.9\. .* pooled = False"):
        simulate(OtherComponents(), parts, n_components=0.9)
    result = simulate(OtherComponents(), parts, n_components=2)
    assert "may be a different direction" not in result.status.words
    assert result.residuals_ is None
    assert not result.is_pooled
    assert sine(result.components_, simulate("uda", parts, n_components=2).components_) < 1e-12


def test_a_column_with_gaps_that_is_scaled_has_the_share_of_its_values_as_variance() -> None:
    X = with_holes(ROWS["falling"])
    result = simulate("krylov", evenly(X, 3), n_components=2, missing="mean", scale="std")
    there = float((~np.isnan(X)).mean(axis=0).sum())
    assert result.total_variance_ == pytest.approx(there * len(X) / (len(X) - 1))
