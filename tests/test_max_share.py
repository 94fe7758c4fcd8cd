"""No client counts for more than a share of all squares or rows: against LAPACK on rows weighed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from builders import Array, gone_on, rotation, sine
from cases import every
from checks import exact, suiting
from fake_grid import grid_of, hosts_of
from scipy.linalg import subspace_angles

from flower_pca import simulate
from flower_pca.assembly import config, run
from flower_pca.core.drive import drive
from flower_pca.core.model import Model
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards
from flower_pca.stages.weighing import cap_factors
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")
D, K = 8, 2
SIZES = np.array([6.0, 5.0, *0.5 * 0.9 ** np.arange(D - 2)])
SUMS = [*map(exact, suiting("max_share")), "auto"]


def sized_rows(seed: int, n: int = 60) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal((n, D)) * SIZES + 1.0)


def far_out(seed: int, n: int = 60, size: float = 1e3) -> Array:
    rng = np.random.default_rng(seed)
    return sized_rows(seed, n) + size * rng.standard_normal((n, 1)) * np.eye(D)[-1]


def result_and_known(shards: list[Array], algorithm: str = "krylov", **asked: object) -> tuple[object, Model]:
    """The result, and what the run knew at its end."""
    made = run(config(algorithm, n_components=K, **asked))
    result = drive(made, Shards([LocalData(X, missing="missing" in asked) for X in shards]))
    return result, made.position.model


def weighted_moments(shards: list[Array], weights: Array, scale: bool) -> tuple[Array, Array, Array]:
    """Mean, second moments and squares by client, each row counted so many times."""
    n = np.array([len(X) for X in shards])
    mean = sum(w * X.sum(axis=0) for w, X in zip(weights, shards, strict=True)) / (weights @ n)
    off = [X - mean for X in shards]
    size = (
        np.sqrt(sum(w * (X**2).sum(axis=0) for w, X in zip(weights, off, strict=True)) / (weights @ n))
        if scale
        else 1.0
    )
    off = [X / size for X in off]
    return mean, sum(w * X.T @ X for w, X in zip(weights, off, strict=True)), np.array([(X**2).sum() for X in off])


@every("share", [0.25, 0.3, 0.5, 0.9, 1.0])
def test_a_size_is_cut_to_the_share_of_what_is_left_and_others_stay(share):
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = rng.uniform(0.1, 1.0, 4) ** 6
        left = sizes * cap_factors(sizes, share)
        assert (left <= share * left.sum() * (1.0 + 1e-6)).all()
        cut = left < sizes * (1.0 - 1e-9)
        np.testing.assert_allclose(left[cut], share * left.sum(), rtol=1e-6)


def test_at_one_over_n_all_are_cut_to_the_least():
    np.testing.assert_allclose(np.array([4.0, 2.0, 8.0]) * cap_factors(np.array([4.0, 2.0, 8.0]), 1 / 3), 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"scale": "std"}])
@every("algorithm", SUMS)
def test_the_result_is_that_of_rows_that_count_for_so_much(algorithm, asked):
    shards = [30.0 * far_out(0), sized_rows(1, 90), sized_rows(2, 40), sized_rows(3, 70), sized_rows(4, 50)]
    result, model = result_and_known(shards, algorithm, max_share=0.3, **asked)
    weights = np.array([model.counted.weights[i] for i in range(5)])
    n = np.array([len(X) for X in shards])
    mean, C, squares = weighted_moments(shards, weights, bool(asked))
    assert weights @ n == pytest.approx(n.sum())
    assert (weights * squares <= 0.3 * (weights @ squares) * (1.0 + 1e-9)).all()
    assert (weights * squares)[0] == pytest.approx(0.3 * (weights @ squares), rel=1e-9)
    values, V = np.linalg.eigh(C)
    values, V = values[::-1], V[:, ::-1]
    np.testing.assert_allclose(result.mean_, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.explained_variance_, values[:K] / (n.sum() - 1), rtol=1e-5)
    assert sine(result.components_, V[:, :K].T) < 1e-4
    assert "client 0 counts" in " ".join(result.decisions)


def test_where_nobody_has_more_the_result_is_the_plain_one():
    shards = [sized_rows(i) for i in range(5)]
    plain, capped_ = (simulate("krylov", shards, n_components=K, max_share=share) for share in (None, 0.9))
    np.testing.assert_allclose(capped_.components_, plain.components_, atol=1e-12)
    np.testing.assert_allclose(capped_.explained_variance_, plain.explained_variance_, rtol=1e-12)
    assert "all clients count in full" in " ".join(capped_.decisions)
    assert "max_share" not in plain.status.words


FOES = {
    "one direction": lambda seed: far_out(seed),
    "a far place": lambda seed: sized_rows(seed) + 1e5 * np.eye(D)[-1],
    "many rows": lambda seed: far_out(seed, 20_000, 4.0),
    "many rows in a far place": lambda seed: 1e3 * np.eye(D)[-2] + 1e-3 * sized_rows(seed, 20_000),
    "dense": lambda seed: sized_rows(seed) @ rotation(D, seed) * 30.0,
}


@pytest.mark.slow
@every("foe", FOES)
@every("share", [0.051, 0.1, 0.15])
def test_one_client_turns_the_components_by_no_more_than_the_status_says(foe, share):
    shards = [FOES[foe](0), *(sized_rows(i) for i in range(1, 20))]
    result, model = result_and_known(shards, max_share=share)
    weights = np.array([model.counted.weights.get(i, 1.0) for i in range(20)])
    others = weighted_moments(shards[1:], weights[1:], False)[1]
    turn = np.rad2deg(subspace_angles(result.components_.T, np.linalg.eigh(others)[1][:, -K:]).max())
    share_of_gap = model.counted.most * model.trace / model.gap
    assert share <= model.counted.most * 1.2 <= 1.44 * share / (1.0 - share)
    stated = result.status.words.rpartition("by at most ")[2].partition(" degrees")[0]
    assert share_of_gap < 1.0
    assert float(stated) == pytest.approx(np.rad2deg(np.arcsin(share_of_gap)), rel=0.06)
    assert turn <= np.rad2deg(np.arcsin(share_of_gap))


def test_the_status_says_where_a_share_bounds_no_turn():
    shards = [np.random.default_rng(i).standard_normal((60, D)) for i in range(4)]
    result = simulate("krylov", shards, n_components=K, max_share=0.3)
    assert "max_share=0.3 does not bound the influence of one client: " in result.status.words


def test_the_reconstruction_error_is_that_of_the_rows_as_they_count():
    shards = [far_out(0), *(sized_rows(i) for i in range(1, 6))]
    result, model = result_and_known(shards, max_share=0.2, reconstruction_error=True)
    weights = np.array([model.counted.weights[i] for i in range(6)])
    Q = result.components_.T
    errors = [np.sum(((X - result.mean_) - (X - result.mean_) @ Q @ Q.T) ** 2) for X in shards]
    assert result.mse_ == pytest.approx(weights @ errors / 360.0, rel=1e-9)


def test_gaps_are_weighed_with_their_rows():
    shards = [far_out(0), *(sized_rows(i) for i in range(1, 6))]
    for i, X in enumerate(shards):
        X[i::9, 2] = np.nan
    result, model = result_and_known(shards, max_share=0.2, missing="local_mean")
    weights = np.array([model.counted.weights[i] for i in range(6)])
    filled = [np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in shards]
    mean, C, squares = weighted_moments(filled, weights, False)
    np.testing.assert_allclose(result.mean_, mean, rtol=1e-9)
    assert sine(result.components_, np.linalg.eigh(C)[1][:, -K:].T) < 1e-5
    assert (weights * squares <= 0.2 * (weights @ squares) * (1.0 + 1e-6)).all()


def test_a_run_goes_on_from_its_checkpoint_with_the_same_weights(tmp_path):
    shards = [far_out(0), *(sized_rows(i) for i in range(1, 6))]
    whole = simulate("ssi", shards, n_components=K, max_share=0.2)
    asked = {"n_components": K, "max_share": 0.2}
    again = gone_on(simulate, "ssi", shards, path=tmp_path / "run.npz", stop=[2], **asked)
    np.testing.assert_array_equal(again.components_, whole.components_)
    assert again.decisions == whole.decisions


def test_a_client_that_comes_later_counts_for_next_to_nothing_until_the_opening_is_held_again():
    shards = [far_out(9), *(sized_rows(i) for i in range(1, 6))]
    there = [range(1, 6), range(1, 6), *[range(6)] * 500]
    result = simulate("ssi", shards, n_components=K, max_share=0.2, fraction=lambda number: there[number])
    whole = simulate("ssi", shards, n_components=K, max_share=0.2)
    assert sine(result.components_, whole.components_) < 1e-4
    assert result.decisions == whole.decisions


FOE = [far_out(0), *(sized_rows(i) for i in range(1, 6))]
NEAR = {"float32": 1e-5, "float16": 2e-2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "beside",
    [
        {"wire": "float32", "tol": 1e-6},
        {"wire": "float16", "tol": 1e-2},
        {"init": np.eye(D)[:K] + 0.1},
        {"fraction": 0.7},
        {"answers": "fixed"},
        {"fraction": lambda number: [1, 2, 3, 4, 5] if number in (2, 3) else range(6)},
    ],
)
def test_other_options_do_not_change_what_clients_count(beside):
    algorithm = "ssi" if {"fraction"} & set(beside) else "krylov"
    whole = simulate(algorithm, FOE, n_components=K, max_share=0.2)
    result = simulate(algorithm, FOE, n_components=K, max_share=0.2, **beside)
    assert "max_share=0.2: each row of client 0 counts" in " ".join(result.decisions)
    assert sine(result.components_, whole.components_) <= NEAR.get(beside.get("wire", ""), 1e-3)
    np.testing.assert_allclose(result.explained_variance_, whole.explained_variance_, rtol=0.05)


@pytest.mark.parametrize("grid", [grid_of, lambda shards: hosts_of(shards, each=2)])
@pytest.mark.parametrize("algorithm", ["krylov", "ssi", "median_pca"])
def test_over_flower_it_is_the_run_in_process(algorithm, grid):
    hosted = None if grid is grid_of else "stacked"
    strategy = PCAStrategy(algorithm, n_components=K, max_share=0.2, hosted=hosted)
    result, here = strategy.fit(grid(FOE)), simulate(algorithm, FOE, n_components=K, max_share=0.2)
    assert sine(result.components_, here.components_) < 1e-7
    assert (result.decisions, result.n_samples_) == (here.decisions, 360)
    np.testing.assert_allclose(result.explained_variance_, here.explained_variance_, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["krylov", "ssi", "median_pca"])
@pytest.mark.parametrize("gone", [1, 2])
def test_without_a_client_that_went_others_count_as_if_it_had_never_been(algorithm, gone):
    there = [range(6)] * gone + [range(5)] * 500
    result = simulate(algorithm, FOE, n_components=K, max_share=0.25, fraction=lambda number: there[number])
    fresh = simulate(algorithm, FOE[:5], n_components=K, max_share=0.25)
    if result.n_samples_ == fresh.n_samples_:
        assert sine(result.components_, fresh.components_) < 1e-4
        assert result.decisions == fresh.decisions
    else:  # It left after it had answered everything.
        assert gone == 2
        assert result.n_samples_ == 360
