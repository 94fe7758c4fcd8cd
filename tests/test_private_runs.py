"""Test runs with differential privacy: the budget, refusals, and the accuracy that remains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import loss, three_lead
from cases import PLAIN_OR_MASKED, every, paired
from fake_grid import FakeGrid, examples_of, grid_of, in_a_run, listen_to
from scipy import sparse

from flower_pca import DP, DataError, NotEnoughNodes, Outcome, PCAResult, clients, make, simulate, strategies
from flower_pca.analysis import likelihood
from flower_pca.dp.certainty import Certainty, _total_noise, _variance_from_mean_noise, certainty
from flower_pca.dp.spent import Spent
from flower_pca.layers.noise import BudgetLayer, noise_share
from flower_pca.rows.frame import Frame
from flower_pca.strategies import PCAStrategy

METHODS = ["ssi(oversample=2, max_rounds=4)", "krylov(max_rounds=3)", "covariance"]
MESSAGES = dict(zip(METHODS, (4, 3, 1), strict=True))
SPEC = "dp(epsilon=1.0, delta=1e-6, clip=4.0)"


SHARDS = three_lead(4)


def weak(**changes):
    return DP(**{"epsilon": 300.0, "delta": 1e-6, "clip": 6.0, "noise_seed": 3, **changes})


@pytest.mark.slow
@every("method", METHODS)
@every("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
def test_the_noise_on_all_messages_together_is_the_budget(mask, method, epsilon):
    """Against the formula of the Gaussian mechanism, in its textbook form."""
    dp = DP(epsilon=epsilon, delta=1e-6, clip=4.0)
    result = simulate(method, SHARDS, n_components=3, dp=dp, mask=mask)
    spent, T = result.privacy, MESSAGES[method]
    seen = [record.stage for record in result.history if not record.stage.startswith("mask.")]
    assert seen == ["private_opening", *[method.split("(")[0]] * T]
    mu = np.sqrt(T * (4.0**2 / spent.noise) ** 2 / 0.9)  # The algorithm gets nine tenths of mu^2.
    assert loss(epsilon, mu) == pytest.approx(1e-6, rel=1e-5)
    assert (spent.delta, spent.clip, spent.messages, spent.shared) == (1e-6, 4.0, T + 1, mask)
    assert spent.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert spent.epsilon <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "run", "store"),
    paired(
        METHODS,
        [{}, {"center": False}, {"scale": "std"}, {"scale": "std", "center": False}],
        [np.asarray, sparse.csr_array],
    ),
)
@pytest.mark.parametrize("mask", [False, True])
def test_with_little_noise_the_answer_is_nearly_the_exact_one(mask, method, run, store):
    method = method.replace("max_rounds=4", "max_rounds=15")
    exact = simulate("krylov", SHARDS, n_components=3, **run)
    dp = weak(epsilon=1e6, clip=30.0, reach=30.0)
    found = simulate(method, [store(X) for X in SHARDS], n_components=3, dp=dp, mask=mask, **run)
    assert found.angle_to(exact) < 0.02
    assert abs(found.n_samples_ - exact.n_samples_) <= 2
    np.testing.assert_allclose(found.mean_, exact.mean_, atol=0.01)
    np.testing.assert_allclose(found.explained_variance_, exact.explained_variance_, rtol=0.02)
    assert found.total_variance_ == pytest.approx(exact.total_variance_, rel=0.02)
    if exact.scale_ is not None:
        np.testing.assert_allclose(found.scale_, exact.scale_, rtol=0.02)


def test_clipping_alone_gives_the_components_of_clipped_rows():
    rows = np.vstack(SHARDS)
    mean = rows.mean(axis=0)
    F = (rows - mean) * np.minimum(1.0, 1.5 / np.linalg.norm(rows - mean, axis=1))[:, None]
    truth = np.linalg.svd(F, full_matrices=False)[2][:3]
    found = simulate("covariance", SHARDS, n_components=3, dp=weak(epsilon=1e9, clip=1.5, reach=50.0))
    assert found.angle_to(truth) < 1e-3


@every("method", METHODS)
def test_bounds_of_shares_hold_unless_rows_are_shortened_and_this_is_said(method):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((2000, 6)) * [1.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    rows[::10, 0] *= 20.0
    centered = rows - rows.mean(axis=0)
    for clip, hold in ((60.0, True), (6.0, False)):
        result = simulate(
            method, np.array_split(rows, 4), n_components=2,
            dp=weak(epsilon=3000.0, clip=clip, reach=60.0), center=True,
        )  # fmt: skip
        shares = np.sum((centered @ result.components_.T) ** 2, axis=0) / np.sum(centered**2)
        low, high = result.certainty.shares.T
        assert bool(((low <= shares) & (shares <= high)).all()) == hold
        assert (low <= shares).all()
        assert "They do not include what changes when long rows are shortened to clip or reach." in str(
            result.certainty
        )


@pytest.mark.slow
@every("method", METHODS)
@every("mask", [False, True])
@pytest.mark.parametrize("scale", [None, "std"])
def test_the_variance_that_is_left_out_lies_within_its_bounds(method, mask, scale):
    """Against the rows themselves, none of which is shortened. The doubt about the total is two deviations."""
    within, zero = [], 0
    for seed in range(12):
        rng = np.random.default_rng([seed, 61])
        X = np.clip(rng.standard_normal((1500, 6)), -3.0, 3.0) * [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
        dp = weak(epsilon=float(rng.choice([1.0, 10.0, 100.0])), clip=13.0, reach=13.0, noise_seed=seed)
        found = simulate(method, np.array_split(X, 4), n_components=2, dp=dp, mask=mask, scale=scale, center=True)
        F = X - found.mean_
        F = F if found.scale_ is None else F / found.scale_
        left = np.sum((F - F @ found.components_.T @ found.components_) ** 2) / (found.n_samples_ - 1)
        low, high = found.certainty.left_out
        within.append(low <= left <= high)
        assert low <= found.left_out_variance_ <= high
        zero += found.left_out_variance_ == 0.0
    assert np.mean(within) >= 0.9
    assert scale or mask or zero, "no draw has so much noise that nothing seems to be left"


def test_the_bounds_of_the_variance_left_out_allow_for_noise_on_the_mean_of_many_columns():
    within = []
    for seed in range(12):
        rng = np.random.default_rng([seed, 62])
        X = rng.standard_normal((600, 60)) * np.where(np.arange(60) < 2, 3.0, 1.0)
        longest = float(np.linalg.norm(X, axis=1).max())
        dp = DP(epsilon=0.5, delta=1e-5, clip=longest, noise_seed=seed)
        found = simulate("krylov", np.array_split(X, 2), n_components=2, dp=dp, max_rounds=3)
        C = np.cov(X.T)
        left = np.trace(C) - np.trace(found.components_ @ C @ found.components_.T)
        low, high = found.certainty.left_out
        within.append(low <= left <= high)
    assert np.mean(within) >= 0.9


@pytest.mark.parametrize("mean", [None, np.array([3.0, -1.0, 0.5, 0.0, 2.0])])
@pytest.mark.parametrize("scale", [None, np.array([0.5, 1.0, 2.0, 4.0, 0.25])])
def test_the_doubt_about_the_total_is_that_of_drawn_noise_on_the_first_message(mean, scale):
    """The sums of x / R and of x^2 / R^2, or of |x|^2 / R^2 alone, times R^2 / sqrt(parts), get noise of one size."""
    rng, R, deviation, sums = np.random.default_rng(0), 6.0, 1.5, mean is not None or scale is not None
    unit = R**2 / np.sqrt(3.0 if sums else 2.0)
    of_sums, of_squares, of_all = (deviation / unit * rng.standard_normal((40_000, m)) for m in (5, 5, 1))
    weights = np.ones(5) if scale is None else scale**-2.0
    off = of_all[:, 0] * R**2 if scale is None and sums else of_squares @ weights * R**2
    off = off - 2.0 * (of_sums * R) @ ((0.0 if mean is None else mean) * weights)
    assert _total_noise(Frame(mean, scale), deviation, R, 5) == pytest.approx(off.std(), rel=0.02)


def test_noise_on_the_mean_rarely_gives_more_variance_than_is_allowed_for():
    rng, scale = np.random.default_rng(0), np.linspace(0.5, 4.0, 200)
    step = np.sqrt(3.0) * 0.7 / 90.0  # of the mean, if a sum over all rows is clipped to a norm of 90
    squares = np.sum((step * rng.standard_normal((2000, 200)) / scale) ** 2, axis=1)
    assert 1.0 < _variance_from_mean_noise(scale, 0.7, 90.0, 200) / squares.mean() < 1.3


def test_the_variance_left_out_is_never_below_0():
    spent = Spent(epsilon=1.0, delta=1e-6, clip=1.0, noise=5.0, messages=2, frame_noise=5.0)
    more = {"rows": 50, "columns": 4, "answered": 2, "variances": np.array([0.1, 0.05]), "total": 0.2}
    low, high = certainty(spent, None, Frame(), **more).left_out
    assert low == 0.0 < high


@pytest.mark.parametrize("lost", [["ssi"], ["ssi"] * 4, ["private_opening"], ["private_opening", "ssi", "ssi"]])
def test_rounds_are_left_for_what_lost_sums_have_not_spent(lost):
    dp, rounds, algorithm = weak(frame_share=0.2), 20, make("ssi(max_rounds=20, min_rounds=20)")
    each = (1.0 - dp.frame_share) / rounds
    layer = BudgetLayer(dp, rounds, opening="private_opening")
    for stage in lost:
        layer, algorithm = layer.after_lost_sum(stage, algorithm, "a client was lost")
    left = 1.0 - dp.frame_share - sum(dp.frame_share if stage == "private_opening" else each for stage in lost)
    assert 0 < algorithm.max_rounds == algorithm.min_rounds == int(left / each + 1e-9) < rounds
    with pytest.raises(NotEnoughNodes, match="the privacy budget does not allow another attempt"):
        replace(layer, losses=("ssi",) * (rounds - 1)).after_lost_sum("ssi", algorithm, "a client was lost")


def test_each_component_is_compared_with_the_noise_in_words():
    none = np.empty((0, 2))
    known = Certainty(floor=0.25, shares=none, together=none, signal=np.array([12.0, 3.21, 0.5]), left_out=none)
    assert str(known).startswith(
        "Privacy noise alone can give a component a variance of 0.25. Components 1 and 2 have 12 and 3.2 times as "
        "much. Component 3 cannot be distinguished from noise. "
    )


def test_a_likelihood_that_noise_leaves_no_variance_for_is_refused_with_this_reason():
    X = np.random.default_rng(2).standard_normal((60, 6))
    found = simulate("covariance", np.array_split(X, 4), n_components=2, dp=weak(epsilon=0.5))
    assert found.noise_variance_ == 0.0
    with pytest.raises(DataError, match="The noise of this run is stronger than the variance outside the"):
        likelihood.log_likelihood(found, X)


@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
def test_noise_comes_again_with_its_seed_only(mask):
    one, again, free = (
        simulate("ssi(max_rounds=2)", SHARDS, n_components=2, dp=weak(noise_seed=seed), mask=mask)
        for seed in (3, 3, None)
    )
    assert one.components_.tobytes() == again.components_.tobytes()
    assert one.components_.tobytes() != free.components_.tobytes()


@pytest.mark.slow
def test_a_tighter_budget_means_a_worse_answer():
    exact = simulate("krylov", SHARDS, n_components=3)
    angles = [
        np.median([
            simulate("ssi(max_rounds=4)", SHARDS, n_components=3, dp=weak(epsilon=e, noise_seed=s)).angle_to(exact)
            for s in range(5)
        ])
        for e in (0.05, 2.0, 100.0)
    ]  # fmt: skip
    assert angles[0] > 3 * angles[1] > 3 * angles[2]


def test_the_run_takes_exactly_its_rounds_and_says_so():
    result = simulate("ssi(max_rounds=6, tol=0.5)", SHARDS, n_components=2, dp=weak())
    assert result.rounds == 6
    assert result.status.ok
    assert result.status.outcome is Outcome.BUDGET_SPENT
    assert "all 6 planned rounds" in result.status.words
    narrow = simulate("krylov(max_rounds=9)", [X[:, :4] for X in SHARDS], n_components=2, dp=weak())
    assert narrow.rounds == 9  # The space is exhausted after one round, but the number of rounds must not reveal this.


def test_what_was_spent_is_saved_with_the_result(tmp_path):
    result = simulate("covariance", SHARDS, n_components=2, dp=SPEC)
    assert PCAResult.load(result.save(tmp_path / "r.npz")).privacy == result.privacy
    assert PCAResult.load(simulate("ssi", SHARDS, n_components=2).save(tmp_path / "p.npz")).privacy is None


def test_a_client_that_leaves_ends_krylov_and_not_ssi():
    def present(number):
        return range(4) if number < 2 else range(3)

    with pytest.raises(NotEnoughNodes, match="The set of clients changed after a part of the privacy budget was spent"):
        simulate(METHODS[1], SHARDS, n_components=2, dp=weak(), fraction=present)
    result = simulate(METHODS[0], SHARDS, n_components=2, dp=weak(), fraction=present)
    assert result.privacy.messages == 5
    assert result.angle_to(simulate("krylov", SHARDS, n_components=2)) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SSI", "Krylov", "Covariance"])
def test_nodes_add_their_own_noise(name):
    with in_a_run():
        given = {} if name == "Covariance" else {"max_rounds": 3}
        dp = "dp(epsilon=300.0, delta=1e-6, clip=6.0)"
        strategy = getattr(strategies, name)(n_components=3, oversample=2, dp=dp, **given)
        one, other = (strategy.fit(grid_of(SHARDS)) for _ in range(2))
    exact = simulate("krylov", SHARDS, n_components=3)
    assert one.angle_to(exact) < 0.3
    assert one.components_.tobytes() != other.components_.tobytes()
    assert one.privacy.epsilon == pytest.approx(300.0, rel=1e-9)


def test_a_node_never_tells_its_number_of_rows():
    with in_a_run():
        grid = grid_of(SHARDS)
        told = listen_to(grid, examples_of)
        PCAStrategy("ssi(max_rounds=2)", n_components=2, dp=SPEC).fit(grid)
    assert told == [1] * 12


def test_a_run_within_a_nodes_bounds_is_answered():
    app = clients.client_app(lambda context: SHARDS[context.node_config["partition-id"]], min_noise=1.0, max_clip=4.0)
    with in_a_run():
        result = PCAStrategy("covariance", n_components=2, dp=SPEC).fit(FakeGrid(app, 4))
    assert result.privacy.noise >= 16.0


def test_shares_of_noise_add_up_to_it_at_the_fewest_survivors():
    """Variances add: t clients with std / sqrt(t) each have std together."""
    assert noise_share(3.0, 1) == 3.0
    for survivors in (2, 7):
        draws = noise_share(5.0, survivors) * np.random.default_rng(0).standard_normal((200_000, survivors))
        assert draws.sum(axis=1).std() == pytest.approx(5.0, rel=0.01)
