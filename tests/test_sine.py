"""Test the estimated angle of components: what a small residual does not show."""

from __future__ import annotations

import numpy as np
import pytest
from builders import SPECTRUM, evenly, pooled, rotation, rows, shards, sine
from cases import every, paired
from fake_grid import grid_of, in_a_run

from flower_pca import DP, Outcome, make, registry, simulate
from flower_pca.core import compatible
from flower_pca.strategies import PCAStrategy

SUBSPACE = [name for name, entry in registry.TABLE.items() if entry.closing.name == "ritz"]
SUMMED = [name for name in SUBSPACE if registry.make(name).additive]
PAPER = "faps(penalty='paper')"
CLIENTS = {
    "of all sizes": shards([120, 60, 200], SPECTRUM[:12], seed=3),
    "alike": evenly(rows(900, SPECTRUM[:12], seed=4), 3),
    "single precision": [X.astype(np.float32) for X in evenly(rows(600, SPECTRUM[:12], seed=5), 4)],
}


def leading_and_rest(parts, k):
    """The first k components of all rows together, and the mean variance of the other directions."""
    whole = pooled([np.asarray(X, dtype=np.float64) for X in parts])
    n, d = sum(len(X) for X in parts), parts[0].shape[1]
    return whole.components[:k], float(whole.variances[k:].sum()) / (min(n, d) - k)


def rows_of_all_sizes(*, orders, d=20, n=600, turned=False, seed=0):
    X = rows(n, np.logspace(orders / 2, -orders / 2, d), seed=seed)
    return evenly(X @ rotation(d, seed) if turned else X, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "k", "name"), paired(CLIENTS.values(), [1, 3], [*SUBSPACE, PAPER, "local_power(decay=False)"])
)
def test_every_algorithm_says_what_angle_is_left(name, k, parts):
    V, _ = leading_and_rest(parts, k)
    result = simulate(name, parts, n_components=k, seed=1)
    assert result.sine_estimate_ is not None, result.status
    assert sine(V, result.components_) <= 2.0 * result.sine_estimate_ + 1e-12
    if result.status.outcome is Outcome.CONVERGED:
        assert result.sine_estimate_ <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMMED)
def test_the_sine_is_estimated_from_sums_alone(name):
    parts = CLIENTS["of all sizes"]
    masked = simulate(name, parts, n_components=3, seed=1, mask=True)
    assert masked.sine_estimate_ is not None
    assert sine(leading_and_rest(parts, 3)[0], masked.components_) <= 2.0 * masked.sine_estimate_ + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["krylov", "ssi", "local_power", "faps", "uda"])
def test_the_sine_is_estimated_over_nodes(name):
    parts = CLIENTS["of all sizes"]
    with in_a_run():
        there = PCAStrategy(name, n_components=3, seed=1).fit(grid_of(parts))
    here = simulate(name, parts, n_components=3, seed=1)
    assert there.sine_estimate_ == pytest.approx(here.sine_estimate_, rel=1e-3, abs=1e-9)


@pytest.mark.slow
@every("name", [name for name in SUMMED if compatible.ITERATES.holds(make(name)) and make(name).products_only])
def test_the_gap_costs_no_message(name):
    result = simulate(name, CLIENTS["alike"], n_components=3)
    assert not result.history.of("ritz")
    assert simulate("faps", CLIENTS["alike"], n_components=3).history[-1].stage == "ritz"


def test_what_is_left_out_bounds_a_gap_that_nothing_has_looked_for():
    parts = evenly(rows(900, np.r_[5.0, 4.0, 3.0, np.full(5, 0.5)], seed=0), 3)
    for oversample in (0, 1):
        result = simulate(f"ssi(oversample={oversample})", parts, n_components=3)
        assert sine(leading_and_rest(parts, 3)[0], result.components_) <= 2.0 * result.sine_estimate_ <= 1e-4


@pytest.mark.parametrize("name", ["ssi", "fed_oapm"])
def test_a_tie_but_for_little_is_not_taken_for_a_gap(name):
    axes = np.diag([3.0, 2.0, 2.0 - 1e-9, 1.0, 0.5])
    result = simulate(name, [np.vstack([axes, -axes])], n_components=2)
    assert result.sine_estimate_ is None
    assert result.status.outcome is Outcome.CONVERGED
    assert "eigenvalues 2 and 3 differ by " in result.status.words
    assert result.status.words.endswith(" cannot be distinguished")


def test_a_gap_that_nobody_has_looked_for_is_not_said_to_be_none():
    result = simulate("uda", [np.random.default_rng(0).standard_normal((30, 5))], n_components=1)
    assert result.sine_estimate_ is None
    assert result.status.words.endswith("eigenvalue 2 was not measured: component 1 may be a different direction")


@pytest.mark.slow
@every("turned", [False, True])
@every("name", ["ssi", "fed_oapm"])
def test_residuals_say_nothing_of_eigenvalues_below_tol(name, turned):
    parts = rows_of_all_sizes(orders=6, turned=turned)
    V, _ = leading_and_rest(parts, 15)
    rough = simulate(name, parts, n_components=15)
    assert sine(V, rough.components_) > 0.01
    assert rough.status.outcome is Outcome.STALLED
    assert rough.status.words == (
        "residuals are at most tol, but the eigenvalues of components 11 to 15 are below tol=1e-06 times the first, "
        'so their residuals prove nothing: use tol=1e-11, or scale="std"'
    )
    fine = simulate(name, parts, n_components=15, tol=1e-12)
    assert fine.status.outcome is Outcome.CONVERGED
    assert sine(V, fine.components_) <= 2.0 * fine.sine_estimate_ <= 0.1


def test_small_eigenvalues_that_are_found_are_said_to_be():
    parts = rows_of_all_sizes(orders=6)
    result = simulate("krylov", parts, n_components=15)
    assert sine(leading_and_rest(parts, 15)[0], result.components_) <= 1e-6
    assert result.status.outcome is Outcome.CONVERGED
    assert (
        "the eigenvalues of components 14 and 15 are below tol=1e-08 times the first, and the estimated error is an "
        "angle with a sine of" in (result.status.words)
    )


def test_beyond_the_precision_of_the_data_no_tol_helps():
    parts = rows_of_all_sizes(orders=14)
    result = simulate("ssi", parts, n_components=12)
    assert result.status.outcome is Outcome.STALLED
    assert result.status.words.endswith(': use scale="std", or ask for fewer components')


@pytest.mark.slow
@every("name", [*SUBSPACE, PAPER, "local_power(decay=False)"])
def test_rows_of_lower_rank_than_wanted_end_as_converged(name):
    rng = np.random.default_rng(0)
    parts = evenly(rng.standard_normal((300, 2)) @ rng.standard_normal((2, 10)), 4)
    result = simulate(name, parts, n_components=4)
    assert result.status.ok, result.status
    assert result.status.words.endswith(
        "; components 3 and 4 have no variance except rounding errors, so the directions are arbitrary"
    )
    assert len(result.history) < 50  # The run does not wait for the patience of every client.
    exact = simulate(name, parts, n_components=2)
    assert exact.sine_estimate_ <= 1e-9
    assert "rounding" not in exact.status.words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting"),
    paired(["krylov", "ssi", "faps", "covariance"], [{}, {"mask": True}, {"scale": "max_abs"}, {"center": False}]),
)
def test_the_noise_variance_beside_a_column_that_outweighs_it(name, setting):
    rng = np.random.default_rng(0)
    X = np.hstack([1e7 * rng.standard_normal((500, 1)), 0.1 * rng.standard_normal((500, 20))])
    framed = X / np.abs(X).max(axis=0) if "scale" in setting else X
    framed = framed - framed.mean(axis=0) if setting.get("center", True) else framed
    left = np.sum(np.linalg.svd(framed, full_matrices=False)[1][1:] ** 2) / 499 / 20
    result = simulate(name, evenly(X, 4), n_components=1, **setting)
    assert result.noise_variance_ == pytest.approx(left, rel=1e-2 if "mask" in setting else 1e-6)


def test_the_noise_variance_of_evaluated_rows_has_no_cancellation_whichever_way_they_lie():
    rng = np.random.default_rng(0)
    X = np.hstack([1e7 * rng.standard_normal((500, 1)), 0.1 * rng.standard_normal((500, 20))]) @ rotation(21, 0)
    left = np.sum(np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[1][1:] ** 2) / 499 / 20
    assert simulate("krylov", evenly(X, 4), n_components=1, reconstruction_error=True).noise_variance_ == pytest.approx(
        left, 1e-6
    )


@pytest.mark.parametrize("name", ["ssi(max_rounds=8)", "krylov(max_rounds=3)", "covariance"])
def test_noise_counts_as_residual(name):
    X = rows(8000, np.r_[1.0, 0.8, 0.7, 0.5 * 0.9 ** np.arange(12)], seed=0) @ rotation(15, 0)
    V = pooled([X]).components[:3]
    for epsilon in (0.3, 50.0):
        budget = DP(epsilon=epsilon, delta=1e-6, clip=4.0, noise_seed=1)
        result = simulate(name, evenly(X, 4), n_components=3, dp=budget)
        if epsilon > 1.0:
            assert result.status.ok
            assert sine(V, result.components_) <= result.sine_estimate_ <= 0.25
        else:
            assert result.sine_estimate_ is None
            assert "eigenvalues 3 and 4 differ by" in result.status.words
            assert "of the first, and the noise is" in result.status.words


def rows_of_a_multiple_eigenvalue(seed):
    """Rows with several eigenvalues of 4 and one a little smaller, how many components are wanted, and a tolerance."""
    rng = np.random.default_rng([seed, 5392])
    k = int(rng.integers(1, 4))
    times, near = int(rng.integers(k + 1, k + 6)), float(rng.choice([0.99, 0.95, 0.9, 0.7]))
    tol = float(rng.choice([1e-2, 1e-4, 1e-6]))
    deviations = np.sqrt(np.r_[np.full(times, 4.0), 4.0 * near, np.linspace(1.0, 0.5, 14 - times)])
    Z = rng.standard_normal((40, 40))
    U = np.linalg.qr((Z - Z.mean(axis=0))[:, :30])[0][:, :15]
    return U * deviations @ np.linalg.qr(rng.standard_normal((15, 15)))[0].T, k, tol


@every(
    ("name", "seed"),
    [
        ("ssi", 17),
        ("ssi", 28),
        ("local_power", 27),
        ("krylov(oversample=1)", 17),
        *(("faps", i) for i in (8, 14, 15, 19)),
    ],
)
def test_an_eigenvalue_that_is_there_more_often_than_columns_show_is_no_gap(name, seed):
    """A further column may find the next smaller eigenvalue first, or there may be no column left for the same one."""
    X, k, tol = rows_of_a_multiple_eigenvalue(seed)
    result = simulate(name, evenly(X, 3), n_components=k, tol=tol, seed=seed)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]
    assert result.sine_estimate_ is None or sine(V, result.components_) <= 2.0 * result.sine_estimate_


def rows_of_a_first_eigenvalue_that_others_come_near_to(seed):
    """Rows in which 2 to 5 eigenvalues are the first one, exactly or nearly, the eigenvalues, and a tolerance."""
    rng = np.random.default_rng([seed, 99531])
    d, times = int(rng.integers(6, 30)), int(rng.integers(2, 6))
    apart = 0.0 if seed % 2 else 10.0 ** rng.uniform(-7, -1.3)
    values = np.r_[4.0 * (1.0 - apart * np.sort(np.r_[0.0, rng.random(times - 1)])), np.linspace(1.0, 0.5, d - times)]
    values[times] = 4.0 * float(rng.choice([0.9, 0.7, 0.3]))
    Z = rng.standard_normal((d + 40, d))
    U = np.linalg.qr(Z - Z.mean(axis=0))[0]
    X = U * np.sqrt(values) @ np.linalg.qr(rng.standard_normal((d, d)))[0].T
    return X, values, float(rng.choice([1e-2, 1e-4, 1e-6]))


@pytest.mark.slow
@every("name", ["faps", "ssi", "ssi(oversample=0)", "local_power", "krylov", "krylov(oversample=1)", "fed_oapm", "uda"])
def test_the_angle_of_a_single_component_is_that_to_the_nearest_exact_direction(name):
    """Eigenvalues within ten residuals of each other count as one, whose directions are all exact."""
    for seed in range(60):
        X, values, tol = rows_of_a_first_eigenvalue_that_others_come_near_to(seed)
        given = {} if name == "uda" else {"tol": tol}
        result = simulate(name, evenly(X, 3), n_components=1, seed=seed, **given)
        if result.sine_estimate_ is None:
            continue
        same = int(np.sum(values >= values[0] * (1.0 - 10.0 * result.residuals_[0])))
        V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:same]
        z = result.components_[0]
        off = np.linalg.norm(z - V.T @ (V @ z))
        rounding = 20.0 * np.finfo(float).eps * values[0] / (values[0] - values[same])
        assert off <= 2.0 * result.sine_estimate_ + rounding, seed
