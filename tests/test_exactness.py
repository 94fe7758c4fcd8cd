"""Test that results equal LAPACK's and scikit-learn's on the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import (
    PEERS,
    Problem,
    arithmetic,
    deal,
    diagonal,
    evenly,
    geometric,
    pooled,
    rows,
    separated,
    sine,
    three_clients,
    tied_across,
    tied_within,
    uneven,
)
from cases import slow_if
from checks import PLAIN, SLOW
from sklearn.decomposition import PCA
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from flower_pca import Outcome, make, simulate
from flower_pca.algorithms import krylov
from flower_pca.base import linalg
from flower_pca.core.algorithm import Iterative
from flower_pca.registry import ALGORITHMS

ITERATIVE = [name for name in PLAIN if issubclass(ALGORITHMS[name], Iterative)]
BOUNDS = {"krylov": 1e-7, "ssi": 1e-7, "local_power": 1e-5, "faps": 1e-5}
TOL = {"krylov": 1e-10, "ssi": 1e-10, "local_power": 1e-10, "faps": 1e-7}  # faps takes many rounds to a tenth of it
SEEDS = pytest.mark.parametrize("seed", [1])


def seeded(names: list[str]) -> list[Any]:
    """One problem each, of two that the algorithms take in turn."""
    return slow_if([(name, i % 2 or int(name in SLOW)) for i, name in enumerate(names)], *SLOW)


BOUNDED = pytest.mark.parametrize(("name", "seed"), seeded(list(BOUNDS)))
ANY_ITERATIVE = pytest.mark.parametrize(("name", "seed"), seeded(ITERATIVE))


@BOUNDED
def test_three_unequal_clients_give_the_pooled_pca(name: str, seed: int) -> None:
    problem, bound = three_clients(seed), BOUNDS[name]
    reference = pooled(problem.shards)
    result = simulate(name, problem.shards, n_components=3, seed=seed, tol=TOL[name])
    assert result.status.outcome is Outcome.CONVERGED
    assert sine(result.components_, reference.components[:3]) <= bound
    tolerance = 1e-9 if name == "krylov" else max(bound**2, 1e-9)
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:3], rtol=tolerance)
    np.testing.assert_allclose(result.explained_variance_ratio_, reference.variances[:3] / reference.total, rtol=1e-8)
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "scaler"), [("std", StandardScaler), ("max_abs", MaxAbsScaler)])
@BOUNDED
def test_scaled_as_scikit_learn_does(name: str, scale: str, scaler: Any, seed: int) -> None:
    problem, bound = three_clients(seed), BOUNDS[name]
    fitted = scaler().fit(np.vstack(problem.shards))
    F = fitted.transform(np.vstack(problem.shards))
    reference = PCA(3, svd_solver="full").fit(F)
    result = simulate(name, problem.shards, n_components=3, scale=scale, seed=seed, tol=TOL[name])
    assert result.status.ok, result.status
    assert sine(result.components_, reference.components_) <= bound
    tolerance = 1e-9 if name == "krylov" else max(bound**2, 1e-9)
    np.testing.assert_allclose(result.explained_variance_, reference.explained_variance_, rtol=tolerance)
    np.testing.assert_allclose(result.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-8)
    np.testing.assert_allclose(result.scale_, fitted.scale_, rtol=1e-12)


@SEEDS
def test_uncentered_is_the_svd_of_the_raw_rows(seed: int) -> None:
    problem = three_clients(seed)
    reference = pooled(problem.shards, center=False)
    result = simulate("krylov", problem.shards, n_components=3, center=False, seed=seed)
    assert sine(result.components_, reference.components[:3]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:3], rtol=1e-9)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
    assert not result.mean_.any()


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize("case", PEERS)
@pytest.mark.parametrize("name", ["krylov", "ssi", "local_power"])
def test_where_peers_go_wrong(name: str, case: str, seed: int) -> None:
    problem = PEERS[case](seed)
    reference = pooled(problem.shards)
    # A residual of 1e-12 keeps the sine, residual / gap, below 1e-7 down to the smallest gap here, 3e-3.
    result = simulate(name, problem.shards, n_components=problem.k, seed=seed, tol=1e-12)
    assert result.status.outcome is Outcome.CONVERGED, result.status
    assert sine(result.components_, reference.components[: problem.k]) <= 1e-7


@pytest.mark.parametrize("case", slow_if(["sizes", "few_rows", "one_client", "sign_flipped"], "sizes", "few_rows"))
def test_where_peers_go_wrong_faps(case: str) -> None:
    problem = PEERS[case](0)
    result = simulate("faps", problem.shards, n_components=problem.k, tol=1e-9, seed=0)
    assert result.status.outcome is Outcome.CONVERGED, result.status
    assert sine(result.components_, pooled(problem.shards).components[: problem.k]) <= 1e-7


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize("basis", [4, 40])
@pytest.mark.parametrize("spectrum", ["geometric", "arithmetic"])
def test_krylov_on_the_problems_of_the_papers(spectrum: str, basis: int, seed: int) -> None:
    """Wide enough that the basis never spans the space; four blocks restart thickly."""
    n, d, k = 1000, 300, 10
    X = geometric(n, d, ratio=1.05, seed=seed) if spectrum == "geometric" else arithmetic(n, d, condition=10, seed=seed)
    shards = deal(X, uneven(n, 8))
    reference = pooled(shards, center=False)
    result = simulate(make("krylov", max_basis=basis), shards, n_components=k, center=False, seed=seed, tol=1e-10)
    assert result.status.outcome is Outcome.CONVERGED
    assert result.rounds * (k + 2) < (d if basis == 40 else 10 * d)
    assert sine(result.components_, reference.components[:k]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:k], rtol=1e-9)
    true = np.linalg.svd(X, compute_uv=False)
    law = 1.05 ** -np.arange(d) if spectrum == "geometric" else np.linspace(1.0, 0.1, d)
    np.testing.assert_allclose(true, law, rtol=0.0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("basis", [8, 40])
def test_krylov_where_it_finds_only_the_leading_eigenvectors(basis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "_LARGE", 20)
    X = geometric(1000, 300, ratio=1.05, seed=0)
    made = make("krylov", max_basis=basis)
    result = simulate(made, deal(X, uneven(1000, 8)), n_components=10, center=False, seed=0, tol=1e-10)
    reference = pooled([X], center=False)
    assert sine(result.components_, reference.components[:10]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:10], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", ["geometric", "arithmetic"])
def test_krylov_keeps_a_basis_of_few_blocks_where_they_are_wide(spectrum: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's eigenproblem is as large after forty rounds as after sixteen."""
    n, d, k = 900, 500, 6
    X = geometric(n, d, ratio=1.004, seed=0) if spectrum == "geometric" else arithmetic(n, d, condition=10, seed=0)
    sizes: list[int] = []
    solve = linalg.eigh_leading

    def counting(H: Any, count: int) -> Any:
        sizes.append(len(H))
        return solve(H, count)

    monkeypatch.setattr(linalg, "eigh_leading", counting)
    runs = {}
    for cheap in (600, 0):  # columns of which a basis may have more blocks
        monkeypatch.setattr(krylov, "_CHEAP", cheap)
        sizes.clear()
        runs[cheap] = simulate("krylov", deal(X, uneven(n, 5)), n_components=k, center=False, seed=0, tol=1e-7)
        assert runs[cheap].status.outcome is Outcome.CONVERGED
        assert (max(sizes) <= 16 * (k + 2)) == (cheap == 0)
    true = np.linalg.svd(X, compute_uv=False)[:k] ** 2 / n
    np.testing.assert_allclose(runs[0].explained_variance_ * ((n - 1) / n), true, rtol=1e-11)
    assert runs[0].rounds <= runs[600].rounds * (1 + 1 / 10)


@BOUNDED
def test_means_far_above_the_deviations(name: str, seed: int) -> None:
    problem, bound = separated(seed), BOUNDS[name]
    shards = [X / X.std(axis=0) + 1e5 * np.linspace(-1.0, 2.0, 10) for X in problem.shards]
    X = np.vstack(shards)
    mean = X.astype(np.longdouble).mean(axis=0)
    _, s, Vt = np.linalg.svd((X - mean).astype(np.float64), full_matrices=False)
    result = simulate(name, shards, n_components=2, seed=seed, tol=TOL[name])
    assert result.status.ok, result.status
    assert sine(result.components_, Vt[:2]) <= bound
    np.testing.assert_allclose(result.explained_variance_, s[:2] ** 2 / (len(X) - 1), rtol=max(bound**2, 1e-9))
    np.testing.assert_allclose(result.total_variance_, np.sum(s**2) / (len(X) - 1), rtol=1e-9)


@pytest.mark.parametrize("fraction", [0.5, 0.9])
@ANY_ITERATIVE
def test_as_many_components_as_a_fraction_needs(name: str, fraction: float, seed: int) -> None:
    shards = deal(rows(300, 3.0 * 0.75 ** np.arange(24), seed=seed), (200, 70, 30))
    reference = PCA(fraction, svd_solver="full").fit(np.vstack(shards))
    result = simulate(name, shards, n_components=fraction, seed=seed)
    assert result.n_components_ == reference.n_components_
    ratio = reference.explained_variance_ratio_
    np.testing.assert_allclose(result.explained_variance_ratio_, ratio, rtol=0.0, atol=1e-5)


@pytest.mark.slow
@SEEDS
def test_a_fraction_that_needs_more_than_the_first_width(seed: int) -> None:
    shards = evenly(rows(400, 0.97 ** np.arange(60), seed=seed), 4)
    reference = PCA(0.9, svd_solver="full").fit(np.vstack(shards))
    assert reference.n_components_ > 20
    for name in ("krylov", "ssi"):
        result = simulate(name, shards, n_components=0.9, seed=seed)
        assert result.n_components_ == reference.n_components_
        ratio = reference.explained_variance_ratio_
        np.testing.assert_allclose(result.explained_variance_ratio_, ratio, rtol=0.0, atol=1e-5)


TIED = {
    "more copies than columns": ([5.0] + [2.0] * 14 + [1.0] * 40, 0.65),
    "two ties": ([3.0] * 13 + [2.0] * 13 + [1.0] * 30, 0.85),
    "one after the other": ([2.0] * 25 + [1.0] * 5, 0.7),
    "nothing else": ([1.0] * 40, 0.62),
}


@SEEDS
@pytest.mark.parametrize(("name", "max_rounds"), [("krylov", 3), ("ssi", 9), ("local_power", 9)])
def test_a_fraction_takes_no_more_rounds_than_it_may(name: str, max_rounds: int, seed: int) -> None:
    """Every widening goes back to the opening; the rounds before it count."""
    shards = evenly(rows(400, 0.97 ** np.arange(60), seed=seed), 4)
    result = simulate(name, shards, n_components=0.9, seed=seed, max_rounds=max_rounds)
    assert result.status.outcome is Outcome.MAX_ROUNDS, result.status
    assert result.rounds == max_rounds


@SEEDS
@pytest.mark.parametrize("case", TIED)
def test_a_fraction_of_tied_variances(case: str, seed: int) -> None:
    """A block of p columns sees p copies of a tied eigenvalue: the others must not be passed over."""
    deviations, fraction = TIED[case]
    problem = diagonal(deviations, 1)
    needed = int((np.cumsum(np.square(deviations)) <= fraction * np.sum(np.square(deviations))).sum()) + 1
    for name in ("krylov", "ssi"):
        result = simulate(name, problem.shards, n_components=fraction, seed=seed)
        assert result.status.ok, result.status
        assert result.n_components_ == needed
        true = pooled(problem.shards).variances[:needed]
        np.testing.assert_allclose(result.explained_variance_, true, rtol=0.0, atol=1e-5 * true[0])


@pytest.mark.parametrize("oversample", [0, 2])
@ANY_ITERATIVE
def test_ties_across_the_last_component(name: str, oversample: int, seed: int) -> None:
    """No subspace is the right one: the run ends all the same, on one that is as good as any, and says no angle."""
    problem = tied_across(seed)
    reference = pooled(problem.shards)
    assert reference.gap(2) == 0.0
    alone = name == "faps" and oversample == 0
    brief: dict[str, Any] = {"max_rounds": 300} if alone else {}
    result = simulate(make(name, oversample=oversample, **brief), problem.shards, n_components=2, seed=seed, tol=1e-8)
    if not alone:  # It looks for the next direction along its steps, where a tied one never lies.
        assert result.sine_estimate_ is None
    # Residuals vanish on each of these subspaces. Steps need not: without a column to spare the second one goes on
    # turning, and after hundreds of rounds it is rounding that turns it. Such a run is not called converged.
    assert (result.status.outcome is Outcome.CONVERGED) or alone
    within, lost = 1e-4, 1e-9 * reference.variances[:2]
    V = result.components_
    assert (np.abs(result.explained_variance_ - reference.variances[:2]) <= lost).all()
    assert sine(V, np.eye(8)[:3]) <= within  # within the first three axes
    assert sine(V[:1], np.eye(8)[:1]) <= within


@BOUNDED
def test_ties_within_the_components(name: str, seed: int) -> None:
    problem, bound = tied_within(seed), BOUNDS[name]
    result = simulate(name, problem.shards, n_components=3, seed=seed, tol=TOL[name])
    assert result.status.outcome is Outcome.CONVERGED
    assert sine(result.components_, np.eye(8)[:3]) <= bound
    np.testing.assert_allclose(result.explained_variance_, pooled(problem.shards).variances[:3], rtol=1e-9)


@ANY_ITERATIVE
def test_signs_and_components_do_not_depend_on_the_seed(name: str, seed: int) -> None:
    problem = separated(seed)
    V = pooled(problem.shards).components[:3]
    V = V * np.sign(V[np.arange(3), np.abs(V).argmax(axis=1)])[:, None]
    for start in (0, 1):
        result = simulate(name, problem.shards, n_components=3, seed=start, tol=TOL.get(name, 1e-10))
        np.testing.assert_allclose(result.components_, V, rtol=0.0, atol=1e-6)
        upside_down = [-X[::-1] for X in problem.shards]
        turned = simulate(name, upside_down, n_components=3, seed=start, tol=TOL.get(name, 1e-10))
        np.testing.assert_allclose(turned.components_, V, rtol=0.0, atol=1e-6)


def test_equally_large_entries_take_the_sign_of_the_first() -> None:
    X = np.vstack([np.outer([3.0, -3.0, 2.0, -2.0], [1.0, -1.0, 1.0]), 0.1 * np.diag([1.0, 1.0, -2.0])])
    for shards in ([X], [-X], [X[:3], X[3:]]):
        assert simulate("krylov", shards, n_components=1, center=False).components_[0, 0] > 0.0


@SEEDS
@pytest.mark.parametrize("name", ["krylov", "ssi"])
def test_the_estimated_sine_is_an_upper_bound(name: str, seed: int) -> None:
    shards = evenly(geometric(600, 60, ratio=1.1, seed=seed), 3)
    V = pooled(shards).components[:5]
    for rounds in (4, 8, 16):
        algorithm = make(name, oversample=3, tol=0.0, max_rounds=rounds)
        result = simulate(algorithm, shards, n_components=5, seed=seed)
        assert result.sine_estimate_ is not None
        assert sine(result.components_, V) <= 2.0 * result.sine_estimate_ + 1e-12


@SEEDS
def test_local_power_without_decay_says_that_it_stands_on_its_floor(seed: int) -> None:
    problem = three_clients(seed)
    result = simulate("local_power(decay=False)", problem.shards, n_components=3, seed=seed, tol=1e-8, max_rounds=300)
    assert result.residuals_.max() > 1e-5  # Clients differ, so many local steps cannot be exact.
    assert not result.status.ok, result.status


def test_one_shot_results_carry_no_claim_of_convergence() -> None:
    problem: Problem = diagonal([3.0, 2.0, 1.0, 0.5], 2)
    for name in set(PLAIN) - set(ITERATIVE):
        assert simulate(name, problem.shards, n_components=2).status.outcome is Outcome.DONE
