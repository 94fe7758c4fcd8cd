"""Test FedOAPM and the channel: noise floors, the top eigenvalue, and krylov and ssi over the air."""

import numpy as np
import pytest
from builders import StopError, evenly, rotation, sine, stop_after
from cases import every

from flower_pca import AirChannel, ConfigError, FedOAPM, Krylov, simulate
from sims.over_air import moving

N, R, S = 200, 8, 1.1


def subspace_error(result, U):
    return moving.se(result.components_.T, U)


def solve_over_air(X, sigma, seed, **parameters):
    algorithm = FedOAPM(tol=0.0, patience=10**6, **parameters)
    return simulate(
        algorithm, [X[::2], X[1::2]], n_components=R, center=False, channel=AirChannel(noise_std=sigma, seed=seed)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("eta", "low", "high"), [(1, 0.85, 1.15), (10, 0.85, 1.3), (50, 0.95, 2.6)])
def test_the_error_floor_is_the_noise_over_the_eta_th_power_of_the_eigenvalue(eta, low, high):
    for seed in range(2):
        X, U = moving.low_rank(n=N, r=R, s=S, seed=seed)
        result = solve_over_air(X, 1e-5, seed, qr_every=eta, max_rounds=300)
        predicted = 1e-5 * (np.sqrt(N - R) + np.sqrt(R)) / S ** (2 * eta)
        assert low <= subspace_error(result, U) / predicted <= high


def test_the_top_eigenvalue_is_estimated_to_the_noise():
    for seed in range(5):
        X = np.diag(np.linspace(3.0, 1.0, 30)) @ moving.orth(np.random.default_rng(seed).standard_normal((30, 30)))
        result = simulate(
            FedOAPM(max_rounds=10, tol=0.0),
            [X],
            n_components=4,
            center=False,
            channel=AirChannel(noise_std=1e-3, seed=seed),
        )
        exact = np.linalg.svd(X)
        sine = moving.se(result.components_.T, exact[2][:1].T)
        found = result.explained_variance_[0] * (result.n_samples_ - 1)
        assert abs(found - 9.0) / 9.0 <= 5e-3 * np.sqrt(4) / 9.0 + sine**2


def test_uncentered_the_mean_is_the_first_component():
    X = np.random.default_rng(0).standard_normal((60, 12)) + 5.0
    plain = simulate("fed_oapm", [X], n_components=2, center=False)
    assert subspace_error(plain, np.linalg.svd(X)[2][:1].T) < 1e-6


@pytest.mark.parametrize("name", ["ssi", "krylov", "fed_oapm"])
def test_an_algorithm_that_the_channel_is_for_finds_the_components_up_to_the_noise(name):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 20)) * np.r_[9.0, 7.0, np.ones(18)]
    shards = np.array_split(X, 3)
    C = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    exact = np.linalg.eigh(C)[1][:, ::-1][:, :2]
    errors = []
    for sigma in (0.0, 10.0, 1000.0):
        silent = AirChannel(noise_std=sigma, seed=2)
        result = simulate(name, shards, n_components=2, center=True, max_rounds=60, patience=60, channel=silent)
        errors.append(subspace_error(result, exact))
        if sigma != 10.0:
            continue
        again = simulate(name, shards, n_components=2, center=True, max_rounds=60, patience=60, channel=silent)
        assert np.array_equal(result.components_, again.components_)
    assert errors[0] < 1e-4
    assert 1e-4 < errors[1] < 0.05
    assert errors[2] > 3 * errors[1]
    ideal = simulate(name, shards, n_components=2, center=True, max_rounds=60, patience=60)
    assert errors[0] == pytest.approx(subspace_error(ideal, exact), abs=1e-12)


def test_noise_is_added_once_to_the_sum_whatever_the_number_of_clients():
    # A basis of ten columns would be full after three messages, and rounding would decide which noise remains.
    X = np.random.default_rng(3).standard_normal((120, 40)) * np.arange(40, 0, -1)
    a, b = (
        simulate("krylov", np.array_split(X, k), n_components=2, channel=AirChannel(noise_std=5.0, seed=1))
        for k in (1, 6)
    )
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-9)
    heard = AirChannel(noise_std=2.0, seed=4).open_answer(
        {"S": np.zeros((400, 50)), "n": np.array(7)}, number=3, position=None
    )
    assert heard["n"] == 7  # counts are digital
    assert heard["S"].std() == pytest.approx(2.0, rel=0.03)
    other = AirChannel(noise_std=2.0, seed=4).open_answer({"S": np.zeros((400, 50))}, number=4, position=None)
    assert abs(np.corrcoef(heard["S"].ravel(), other["S"].ravel())[0, 1]) < 0.03


@pytest.mark.slow
def test_gains_are_inverted_up_to_their_error():
    reply = {"S": np.ones((3, 2)), "n": np.array(5)}
    perfect = AirChannel(noise_std=0.0, gain=(0.1, 3.0))
    assert np.array_equal(perfect.open_answer(reply, number=0, position=1)["S"], reply["S"])
    factors = [
        AirChannel(noise_std=0.0, gain=gain, gain_error=0.2).open_answer(reply, number=number, position=0)
        for gain in (1.0, 4.0)
        for number in range(2000)
    ]
    spread = np.array([f["S"][0, 0] for f in factors]).reshape(2, 2000).std(axis=1)
    np.testing.assert_allclose(spread, [0.2, 0.05], rtol=0.08)
    assert all(f["n"] == 5 for f in factors)


def test_the_channel_is_part_of_what_a_checkpoint_belongs_to(tmp_path):
    X = np.random.default_rng(5).standard_normal((40, 9))
    air = AirChannel(noise_std=0.1, seed=1)
    settings = {"n_components": 2, "checkpoint": tmp_path / "c.npz"}
    algorithm = Krylov(tol=0.0, max_rounds=5, patience=50)
    whole = simulate(algorithm, [X], n_components=2, channel=air)
    with pytest.raises(StopError):
        simulate(algorithm, [X], channel=air, on_round=stop_after(3), **settings)
    with pytest.raises(ConfigError, match="belongs to another run"):
        simulate(algorithm, [X], channel=AirChannel(noise_std=0.1, seed=2), **settings)
    resumed = simulate(algorithm, [X], channel=air, **settings)
    assert np.array_equal(whole.components_, resumed.components_)


@pytest.mark.slow
@every("following", [np.full(17, 300.0), 30.0 * 0.8 ** np.arange(17), np.full(17, 0.01)])
def test_the_error_is_what_the_description_says_for_any_number_of_products_between_two_qrs(following):
    leading = np.array([1.2, 1.1, 1.0]) * max(25.0 * following[0], 30.0)
    values = np.r_[leading, following]
    U = np.linalg.qr(np.random.default_rng(1).standard_normal((60, 20)))[0]
    X, V = U * np.sqrt(values) @ rotation(20, 1).T, rotation(20, 1).T[:3]
    for eta in (1, 2, 3):
        sines = []
        for seed in range(6):
            result = simulate(
                f"fed_oapm(qr_every={eta}, max_rounds={8 * eta})", evenly(X, 3), n_components=3, seed=seed,
                center=False, channel=AirChannel(noise_std=1.0, seed=seed),
            )  # fmt: skip
            sines.append(sine(V, result.components_))
        left = sum(np.sum(following ** (2 * i)) for i in range(eta))
        assert 0.5 < np.median(sines) / (np.sqrt(left) / values[2] ** eta) < 2.0, eta


@pytest.mark.slow
@every("eta", [2, 3])
def test_with_more_columns_the_error_of_one_product_remains(eta):
    values = np.r_[150.0, 50.0, np.full(18, 0.5)]
    U = np.linalg.qr(np.random.default_rng(1).standard_normal((60, 20)))[0]
    X, V = U * np.sqrt(values) @ rotation(20, 1).T, rotation(20, 1).T[:2]
    sines = {0: [], 2: []}
    for oversample, found in sines.items():
        for seed in range(6):
            result = simulate(
                f"fed_oapm(qr_every={eta}, max_rounds=30, oversample={oversample})", evenly(X, 3), n_components=2,
                center=False, channel=AirChannel(noise_std=1e-3, seed=seed),
            )  # fmt: skip
            found.append(sine(V, result.components_))
    assert np.median(sines[0]) < 0.2e-3 / values[1] < np.median(sines[2]) < 2e-3 / values[1]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_share_of_the_variance_is_found_where_the_block_has_no_column_beside_the_components(d):
    X = np.random.default_rng(0).standard_normal((60, d)) * np.arange(d, 0, -1)
    result = simulate("fed_oapm", [X[:30], X[30:]], n_components=0.99)
    assert result.explained_variance_ratio_.sum() >= 0.99
    assert result.n_components_ == d
