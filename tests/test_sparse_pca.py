"""Test sparse PCA against truncated power steps on the pooled rows, and all choices of columns."""

from itertools import combinations

import numpy as np
import pytest
from builders import deal
from cases import every

from flower_pca import PCAResult, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.results.projection import Projection

D, SIZES = 12, (4, 3, 2)


def rows_of_causes(seed, n=300):
    """Three causes, each of other columns, but for one that two of them share; about a mean."""
    rng = np.random.default_rng(seed)
    loads = np.zeros((D, 3))
    loads[:4, 0], loads[3:6, 1], loads[7:9, 2] = 0.5, 3**-0.5, 2**-0.5
    return rng.standard_normal((n, 3)) * [5.0, 3.5, 2.5] @ loads.T + 0.3 * rng.standard_normal((n, D)) + 1.0


X = rows_of_causes(0)
SHARDS = deal(X, (150, 100, 50))
SPEC = f"sparse_pca(cardinality={SIZES}, tol=1e-13)"
FOUND = simulate(SPEC, SHARDS, n_components=3, reconstruction_error=True, monitor=True)


def sparse_by_hand(X, sizes):
    """Component by component, on matrices that are formed: from all columns to half of them, and so on, to so few."""
    C, d, found = np.cov(X, rowvar=False), X.shape[1], []
    for size in sizes:
        Q = np.linalg.qr(np.array(found).T)[0] if found else np.zeros((d, 0))
        P = np.eye(d) - Q @ Q.T
        x, kept = np.linalg.eigh(P @ C @ P)[1][:, -1], d
        while True:
            y = P @ C @ P @ x
            y[np.argsort(-np.abs(y))[max(kept, size) :]] = 0.0
            y /= np.linalg.norm(y)
            if kept <= size and np.linalg.norm(y - x) < 1e-14:
                break
            x, kept = y, kept // 2
        found.append(x * np.sign(x[np.argmax(np.abs(x))]))
    return np.array(found)


@pytest.mark.slow
@every("seed", range(5))
def test_sparse_pca_equals_the_truncated_power_method_on_pooled_rows(seed):
    X = rows_of_causes(seed)
    found = simulate(SPEC, deal(X, (150, 100, 50)), n_components=3)
    assert found.status.ok
    np.testing.assert_allclose(found.components_, sparse_by_hand(X, SIZES), rtol=0.0, atol=1e-10)
    assert [np.count_nonzero(row) for row in found.components_] == list(SIZES)


def test_the_first_component_is_the_best_of_all_choices_of_columns():
    X = rows_of_causes(3)[:, :8]
    C = np.cov(X, rowvar=False)
    best = max(np.linalg.eigvalsh(C[np.ix_(S, S)])[-1] for S in combinations(range(8), 3))
    found = simulate("sparse_pca(cardinality=3, tol=1e-12)", [X[:200], X[200:]], n_components=1)
    assert found.explained_variance_[0] == pytest.approx(best, rel=1e-12)


def test_with_all_columns_it_is_the_pca():
    found = simulate("sparse_pca(cardinality=12, tol=1e-12)", SHARDS, n_components=3)
    plain = simulate("krylov", SHARDS, n_components=3)
    assert found.angle_to(plain) < 1e-8
    np.testing.assert_allclose(found.explained_variance_, plain.explained_variance_, rtol=1e-12)
    assert found.left_out_variance_ == pytest.approx(plain.left_out_variance_, rel=1e-9)


@pytest.mark.slow
def test_the_order_and_number_of_clients_change_nothing_nor_do_masks_nor_a_file(tmp_path):
    again = simulate(SPEC, deal(X, (10, 200, 40, 50)), n_components=3)
    np.testing.assert_allclose(again.components_, FOUND.components_, rtol=0.0, atol=1e-10)
    masked = simulate(SPEC, SHARDS, n_components=3, mask=True, monitor=True)
    np.testing.assert_allclose(masked.components_, FOUND.components_, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(masked.cross_, FOUND.cross_, rtol=1e-9, atol=1e-9)
    loaded = PCAResult.load(FOUND.save(tmp_path / "sparse.npz"))
    np.testing.assert_array_equal(loaded.cross_, FOUND.cross_)
    np.testing.assert_array_equal(loaded.transform(X), FOUND.transform(X))


# Of components that are not orthonormal, whatever made them.
CENTERED = X - X.mean(axis=0)
Z = FOUND.components_.T
SCORES = np.linalg.lstsq(Z, CENTERED.T, rcond=None)[0].T
REST = CENTERED - SCORES @ Z.T


def test_the_components_of_these_tests_are_not_orthonormal():
    assert np.abs(Z.T @ Z - np.eye(3)).max() > 0.05


def test_scores_are_the_nearest_rows_in_the_span():
    np.testing.assert_allclose(FOUND.transform(X), SCORES, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(FOUND.inverse_transform(SCORES) + REST, X, rtol=0.0, atol=1e-11)
    sent = Projection.from_record(FOUND.to_record())
    np.testing.assert_array_equal(sent.transform(X), FOUND.transform(X))
    np.testing.assert_array_equal(sent.inverse_transform(SCORES), FOUND.inverse_transform(SCORES))


def test_what_is_left_out_is_what_the_nearest_rows_miss():
    error = np.sum(REST**2) / len(X)
    assert FOUND.reconstruction_error(X) == pytest.approx(error, rel=1e-12)
    assert FOUND.mse_ == pytest.approx(error, rel=1e-12)
    assert FOUND.left_out_variance_ == pytest.approx(error * 300 / 299, rel=1e-12)
    assert FOUND.explained_variance_.sum() + FOUND.left_out_variance_ == pytest.approx(FOUND.total_variance_)
    np.testing.assert_allclose(FOUND.cross_, Z.T @ np.cov(X, rowvar=False) @ Z, rtol=1e-12, atol=1e-12)


def test_distances_and_limits_are_those_of_the_span():
    monitor = Monitor(FOUND)
    scored = monitor.score(X)
    np.testing.assert_allclose(scored.spe, np.sum(REST**2, axis=1), rtol=1e-9, atol=1e-12)
    inverse = np.linalg.inv(np.cov(SCORES, rowvar=False))
    np.testing.assert_allclose(scored.t2, np.einsum("ij,jk,ik->i", SCORES, inverse, SCORES), rtol=1e-9)
    limits = monitor.limits(0.99)
    assert np.mean(scored.spe > limits.spe) <= 0.01
    assert np.mean(scored.t2 > limits.t2) <= 0.01
    t2, spe = monitor.contributions(X)
    np.testing.assert_allclose(spe.sum(axis=1), scored.spe)
    np.testing.assert_allclose(t2.sum(axis=1), scored.t2)


@every("rounds", [1, 2, 3])
def test_components_of_a_run_that_ends_early_are_of_length_one(rounds):
    found = simulate(f"sparse_pca(cardinality={SIZES}, max_rounds={rounds})", SHARDS, n_components=3)
    assert [np.count_nonzero(row) for row in found.components_] == list(SIZES)
    np.testing.assert_allclose(np.linalg.norm(found.components_, axis=1), 1.0, rtol=1e-12)
    left_out = found.total_variance_ - found.explained_variance_.sum()
    assert found.left_out_variance_ == pytest.approx(left_out, rel=1e-9)
