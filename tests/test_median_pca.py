"""The geometric median of subspaces: what it is, and what bad clients in collusion cannot do to it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import Array, peak_memory, sine
from scipy.linalg import subspace_angles

from flower_pca import MedianPCA, simulate
from flower_pca.base.linalg import median_of_points, median_of_spans, weighted_median

pytestmark = pytest.mark.usefixtures("lines")
D, NODES, BAD, K = 12, 20, 8, 2
SIZES = np.array([5.0, 4.0, *1.5 * 0.9 ** np.arange(D - 2)])


def drawn_by(rng: np.random.Generator, n: int = 80) -> Array:
    return np.asarray(rng.standard_normal((n, D)) * SIZES)


def angle(A: Array, B: Array) -> float:
    return float(subspace_angles(A, B).max())


def eigenvectors(C: Array, k: int = K) -> Array:
    return np.linalg.eigh(C)[1][:, ::-1][:, :k]


def test_the_median_with_weights_is_that_of_each_value_so_many_times():
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal((7, 3)), rng.integers(1, 5, 7)
    expected = np.median(np.repeat(values, weights, axis=0), axis=0)
    np.testing.assert_allclose(weighted_median(values, weights), expected, rtol=1e-12)
    np.testing.assert_allclose(weighted_median(values[:6], np.ones(6)), np.median(values[:6], axis=0), rtol=1e-12)


def test_a_value_without_weight_is_none_of_the_median():
    there = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(weighted_median(np.array([[1.0, 9.0], [2.0, 3.0], [7.0, 5.0]]), there), [2.0, 4.0])


def test_weiszfeld_finds_the_point_from_which_the_directions_to_all_cancel():
    rng = np.random.default_rng(1)
    P, w = rng.standard_normal((9, 4)), rng.uniform(1.0, 2.0, 9)
    a = median_of_points(P, w)
    apart = P - a @ P
    pulls = w[:, None] * apart / np.linalg.norm(apart, axis=1)[:, None]
    np.testing.assert_allclose(pulls.sum(axis=0), 0.0, atol=1e-6)
    assert a.sum() == pytest.approx(1.0)


def test_more_than_half_of_the_weight_in_one_place_is_the_median():
    P = np.array([[1.0, 0.0]] * 3 + [[0.0, 9.0], [-5.0, 2.0]])
    np.testing.assert_allclose(median_of_points(P, np.ones(5)) @ P, [1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("count", [3, 6, 7, 40])
def test_spans_more_or_fewer_than_dimensions_have_the_median_of_their_projections(count):
    """Of projections written out as points, which need not be as many columns each."""
    rng = np.random.default_rng(count)
    bases = [np.linalg.qr(rng.standard_normal((6, 1 + i % 3)))[0] for i in range(count)]
    bases[1] = bases[1][:, :0]
    w = rng.uniform(1.0, 2.0, count)
    a = median_of_spans(bases, w)
    P = np.stack([(V @ V.T).ravel() for V in bases])
    np.testing.assert_allclose(a, median_of_points(P, w), atol=1e-9)
    apart = P - a @ P
    pulls = w[:, None] * apart / np.linalg.norm(apart, axis=1)[:, None]
    np.testing.assert_allclose(pulls.sum(axis=0), 0.0, atol=1e-6)


@pytest.mark.slow
def test_what_the_server_keeps_grows_with_the_clients_and_not_with_their_square():
    rng = np.random.default_rng(0)
    peaks = []
    for count in (400, 1600):
        bases = [np.linalg.qr(rng.standard_normal((10, 2)))[0] for _ in range(count)]
        with peak_memory() as peak:
            median_of_spans(bases, np.ones(count))
            median_of_points(np.stack([V.ravel() for V in bases]), np.ones(count))
        peaks.append(peak())
    assert peaks[1] < 5.0 * peaks[0]


def test_clients_that_are_alike_have_the_components_and_variances_of_each():
    X = drawn_by(np.random.default_rng(2)) + 3.0
    result = simulate("median_pca", [X] * 5, n_components=K)
    s, V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[1:]
    assert sine(result.components_, V[:K]) < 1e-7
    np.testing.assert_allclose(result.mean_, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result.explained_variance_, s[:K] ** 2 / len(X), rtol=5e-3)
    np.testing.assert_allclose(result.total_variance_, X.var(axis=0).sum(), rtol=5e-3)
    assert "half of the clients lie within" in result.status.words


def test_centre_scale_and_variances_are_medians_of_the_clients_own():
    rng = np.random.default_rng(3)
    shards = [drawn_by(rng, 40 + 7 * i) + i for i in range(5)]
    shards[4] = 1e6 * shards[4]
    result = simulate("median_pca", shards, n_components=K, scale="std")
    np.testing.assert_allclose(result.mean_, np.median([X.mean(axis=0) for X in shards], axis=0))
    np.testing.assert_allclose(result.scale_**2, np.median([X.var(axis=0) for X in shards], axis=0))
    Z = [(X - result.mean_) / result.scale_ @ result.components_.T for X in shards]
    expected = np.median([np.mean(scores**2, axis=0) for scores in Z], axis=0)
    np.testing.assert_allclose(result.explained_variance_, expected, rtol=5e-3)


def colluding(how: str, good: list[Array], rng: np.random.Generator, off: float) -> list[Array]:
    """Rows of bad clients that all say the same: which of them come first is up to them."""
    V = eigenvectors(sum(X.T @ X for X in good), D)
    last, nearest, first = V[:, -1], V[:, K], V[:, K - 1]
    towards = {
        "the last": [V[:, 0], last],
        "the next": [V[:, 0], nearest],
        "all others": [last, V[:, -2]],
        "a little": [V[:, 0], np.cos(2.0 * off) * first + np.sin(2.0 * off) * nearest],
        "dense": [V[:, 0], np.linalg.qr(rng.standard_normal((D, 1)))[0][:, 0]],
    }[how]
    many = 10_000 if how == "all others" else 60
    block = np.stack(towards) * [[900.0], [800.0]]
    signs = rng.choice([-1.0, 1.0], (many, 2))
    far = 1e4 * last if how == "the last" else 0.0
    return [signs @ block + 0.01 * rng.standard_normal((many, D)) + far for _ in range(BAD)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "share"),
    [("the last", None), ("the next", None), ("all others", 0.05), ("a little", 0.05), ("dense", None)],
)
def test_eight_of_twenty_in_collusion_turn_it_by_less_than_twice_what_one_node_is_off_by(how, share):
    within = 0
    for draw in range(20):
        rng = np.random.default_rng([draw, 7])
        good = [drawn_by(rng) for _ in range(NODES - BAD)]
        P = eigenvectors(sum(X.T @ X for X in good))
        off = float(np.median([angle(eigenvectors(X.T @ X), P) for X in good]))
        bad = colluding(how, good, rng, off)
        result = simulate("median_pca", [*bad, *good], n_components=K, max_share=share)
        within += angle(result.components_.T, P) <= 2.0 * off
    assert within >= 19


def test_a_client_that_claims_ten_million_rows_does_not_move_the_centre():
    rng = np.random.default_rng(4)
    good = [drawn_by(rng) for _ in range(6)]
    bad = np.full((200_000, D), 1e4) + 1e-3 * rng.standard_normal((200_000, D))
    result = simulate("median_pca", [bad, *good], n_components=K)
    means = np.array([X.mean(axis=0) for X in good])
    assert (result.mean_ >= means.min(axis=0)).all()
    assert (result.mean_ <= means.max(axis=0)).all()
    assert result.total_variance_ < 2.0 * SIZES @ SIZES


@pytest.mark.parametrize("missing", ["mean", "local_mean"])
def test_gaps_are_left_out_of_the_medians(missing):
    rng = np.random.default_rng(5)
    shards = [drawn_by(rng) + 2.0 for _ in range(5)]
    shards[1][::3, 4] = np.nan
    shards[2][:, 5] = np.nan if missing == "mean" else shards[2][:, 5]
    result = simulate("median_pca", shards, n_components=K, missing=missing)
    medians = np.nanmedian(
        [
            np.nanmean(X, axis=0)
            if not np.isnan(X).all(axis=0).any()
            else np.where(np.isnan(X).all(axis=0), np.nan, X.mean(axis=0))
            for X in shards
        ],
        axis=0,
    )
    np.testing.assert_allclose(result.mean_, medians, rtol=1e-12)


def test_more_components_than_a_client_has_rows_are_found_from_the_others():
    rng = np.random.default_rng(6)
    shards = [drawn_by(rng, n) for n in (1, 2, 60, 60, 60)]
    result = simulate("median_pca", shards, n_components=4)
    assert result.components_.shape == (4, D)
    np.testing.assert_allclose(result.components_ @ result.components_.T, np.eye(4), atol=1e-10)


def test_a_share_of_the_variance_and_all_components():
    shards = [drawn_by(np.random.default_rng(i)) for i in range(4)]
    assert simulate("median_pca", shards, n_components="80%").n_components_ < D
    whole = simulate("median_pca", shards, n_components=D)
    np.testing.assert_allclose(whole.components_ @ whole.components_.T, np.eye(D), atol=1e-10)


def test_the_result_says_that_it_is_none_of_all_rows_together(tmp_path):
    shards = [drawn_by(np.random.default_rng(i)) for i in range(4)]
    result = simulate(MedianPCA(), shards, n_components=K, reconstruction_error=True, monitor=True)
    assert not result.is_pooled
    assert "the median client's variance" in " ".join(result.summary().findings)
    again = type(result).load(result.save(tmp_path / "result.npz"))
    assert type(again) is type(result)
    assert result.mse_ > 0.0


@pytest.mark.parametrize("count", [1, 2])
def test_the_median_of_one_or_two_clients_lies_between_them(count):
    shards = [drawn_by(np.random.default_rng(i)) for i in range(count)]
    result = simulate("median_pca", shards, n_components=K)
    Z = eigenvectors(sum((X - result.mean_).T @ (X - result.mean_) for X in shards))
    assert angle(result.components_.T, Z) < (1e-7 if count == 1 else 0.3)


def test_rows_in_single_precision_and_a_client_of_zeros():
    shards = [drawn_by(np.random.default_rng(i)) for i in range(6)]
    whole = simulate("median_pca", shards, n_components=K)
    single = simulate("median_pca", [X.astype(np.float32) for X in shards], n_components=K)
    assert sine(single.components_, whole.components_) < 1e-5
    beside = simulate("median_pca", [*shards, np.zeros((50, D))], n_components=K)
    assert sine(beside.components_, whole.components_) < 0.2


@pytest.mark.parametrize("number", [1, 2])
def test_a_client_that_goes_is_left_out_of_the_medians(number):
    shards = [drawn_by(np.random.default_rng(i)) for i in range(5)]
    there = [range(5)] * number + [range(4)] * 100
    result = simulate("median_pca", shards, n_components=K, fraction=lambda n: there[n])
    fresh = simulate("median_pca", shards[:4], n_components=K)
    if result.n_samples_ == fresh.n_samples_:
        assert sine(result.components_, fresh.components_) < 1e-7
    else:
        assert sine(result.components_, fresh.components_) < 0.1


def test_a_sample_of_clients_will_do():
    shards = [drawn_by(np.random.default_rng(i)) for i in range(10)]
    result = simulate("median_pca", shards, n_components=K, fraction=0.5)
    truth = eigenvectors(sum(X.T @ X for X in shards))
    assert angle(result.components_.T, truth) < 0.2
