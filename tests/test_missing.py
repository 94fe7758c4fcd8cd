"""Missing values become the mean of their column over all clients, whatever carries the run; the default refuses them.

The references pool the rows: numpy's nanmean and LAPACK, or scikit-learn's imputer, scaler and PCA.
"""

import numpy as np
import pytest
from builders import gone_on, imputed, mixed, mixed_with_gaps, pooled, sine
from cases import every
from fake_grid import FakeGrid, app_of, in_a_run
from scipy import sparse

from flower_pca import PCAResult, PersonalResult, make, simulate
from flower_pca.core.algorithm import Iterative
from flower_pca.registry import ALGORITHMS
from flower_pca.rows.frame import Moments, merge_moments
from flower_pca.rows.local import LocalData

MEAN = {"missing": "mean"}
REMEDY = 'Impute or drop them before the run, or use missing="mean".'


def agrees_without_gaps(result, reference, k, bound=1e-7):
    assert result.status.ok, result.status
    assert sine(result.components_, reference.components[:k]) <= bound
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:k], rtol=1e-10)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-12, atol=1e-12)
    assert result.n_samples_ == reference.n


@pytest.mark.slow
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("algorithm", ["krylov", "ssi", "faps(inner_steps=10)"])
def test_the_answer_is_that_of_pooled_and_imputed_rows(algorithm, center):
    shards = mixed_with_gaps()
    result = simulate(algorithm, shards, n_components=3, center=center, tol=1e-10, **MEAN)
    agrees_without_gaps(result, pooled(imputed(shards), center=center), 3)
    np.testing.assert_allclose(result.fill_, np.nanmean(np.vstack(shards), axis=0), rtol=1e-13)


# These end on the way, at a place that depends on the start, which is another one where entries are missing.
# And consensus_rpca and triple_pca do not look at what stands in the place of a missing value; median_pca takes medians
# over the clients that have values in a column, where the imputed rows make every client one of them.
UNSETTLED = {"dcf_pca", "per_pca", "consensus_rpca", "triple_pca", "median_pca"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - UNSETTLED))
def test_every_algorithm_answers_as_it_does_for_imputed_rows(name):
    shards = mixed_with_gaps(1)
    algorithm = make(name, tol=1e-10) if issubclass(ALGORITHMS[name], Iterative) else make(name)
    result = simulate(algorithm, shards, n_components=2, **MEAN)
    plain = simulate(algorithm, imputed(shards), n_components=2)
    np.testing.assert_allclose(result.total_variance_, plain.total_variance_, rtol=1e-12)
    if name != "dr_svd":  # The sketch of dr_svd starts from another block.
        np.testing.assert_allclose(result.explained_variance_, plain.explained_variance_, rtol=1e-8)
        assert sine(result.components_, plain.components_) <= 1e-7


def test_scikit_learn_says_the_same_with_and_without_scale():
    pytest.importorskip("sklearn")
    from sklearn.decomposition import PCA
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    shards = mixed_with_gaps(2)
    X = np.vstack(shards)
    for scale, rows in ((None, X), ("std", StandardScaler().fit_transform(X))):  # Deviations ignore missing values.
        pca = PCA(3, svd_solver="full").fit(SimpleImputer().fit_transform(rows))
        result = simulate("krylov", shards, n_components=3, scale=scale, tol=1e-10, **MEAN)
        assert sine(result.components_, pca.components_) <= 1e-7
        np.testing.assert_allclose(result.explained_variance_, pca.explained_variance_, rtol=1e-10)
        np.testing.assert_allclose(result.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-10)


@pytest.mark.parametrize("center", [True, False])
def test_max_abs_is_that_of_the_values_that_are_there(center):
    shards = mixed_with_gaps(3)
    result = simulate("krylov", shards, n_components=3, scale="max_abs", center=center, tol=1e-10, **MEAN)
    agrees_without_gaps(result, pooled(imputed(shards), center=center, scale="max_abs"), 3)


def test_rows_far_from_zero_lose_nothing():
    shards = [X * 1e-3 + 1e5 for X in mixed_with_gaps(4)]
    result = simulate("krylov", shards, n_components=3, tol=1e-9, **MEAN)
    near = [X - 1e5 for X in shards]
    reference = pooled(imputed(near))
    assert sine(result.components_, reference.components[:3]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:3], rtol=1e-8)


@pytest.mark.parametrize("center", [True, False])
def test_sparse_rows_with_stored_gaps_are_those_of_dense_ones(center):
    shards = [np.where(np.abs(X) < 1.0, 0.0, X) for X in mixed_with_gaps(5)]
    stored = [sparse.csr_array(X) for X in shards]
    options = {"n_components": 3, "center": center, "tol": 1e-10, "reconstruction_error": True, **MEAN}
    result = simulate("krylov", stored, **options)
    agrees_without_gaps(result, pooled(imputed(shards), center=center), 3)
    np.testing.assert_allclose(result.mse_, simulate("krylov", shards, **options).mse_, rtol=1e-10)
    peaks = np.max(np.nan_to_num(np.abs(shards[0])), axis=0)
    for rows in (stored[0], shards[0]):
        assert np.array_equal(LocalData(rows, missing=True).largest_absolute(), peaks)


def test_float32_and_memory_mapped_rows(tmp_path):
    shards = [X.astype(np.float32) for X in mixed_with_gaps(6)]
    mapped = []
    for i, X in enumerate(shards):
        np.save(tmp_path / f"{i}.npy", X)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
    result = simulate("krylov", mapped, n_components=3, **MEAN)
    wide = [X.astype(np.float64) for X in shards]
    assert sine(result.components_, pooled(imputed(wide)).components[:3]) <= 1e-4
    assert result.components_.tobytes() == simulate("krylov", shards, n_components=3, **MEAN).components_.tobytes()


def test_without_gaps_it_is_the_plain_run_to_the_bit():
    shards = mixed(0).shards
    plain, same = simulate("krylov", shards, n_components=3), simulate("krylov", shards, n_components=3, **MEAN)
    assert same.components_.tobytes() == plain.components_.tobytes()
    assert same.explained_variance_.tobytes() == plain.explained_variance_.tobytes()
    assert len(same.history) == len(plain.history)


def test_with_gaps_it_takes_one_product_more():
    shards = mixed_with_gaps(0)
    messages = len(simulate("krylov", imputed(shards), n_components=3, tol=1e-10).history)
    assert len(simulate("krylov", shards, n_components=3, tol=1e-10, **MEAN).history) <= messages + 1


def test_the_error_of_reconstruction_counts_imputed_entries():
    shards = mixed_with_gaps(0)
    result = simulate("krylov", shards, n_components=3, reconstruction_error=True, tol=1e-10, **MEAN)
    rows = np.vstack(imputed(shards)) - result.mean_
    left = rows - rows @ result.components_.T @ result.components_
    np.testing.assert_allclose(result.mse_, np.sum(left**2) / len(rows), rtol=1e-9)


def test_a_result_transforms_rows_with_gaps_and_keeps_how_in_its_file(tmp_path):
    shards = mixed_with_gaps(0)
    result = simulate("krylov", shards, n_components=3, center=False, **MEAN)
    loaded = PCAResult.load(result.save(tmp_path / "result.npz"))
    wanted = imputed(shards, result.fill_)[0] @ result.components_.T
    np.testing.assert_allclose(loaded.transform(shards[0]), wanted, rtol=1e-12, atol=1e-12)


def test_a_resumed_run_is_the_same_to_the_bit(tmp_path):
    shards = mixed_with_gaps(0)
    whole = simulate("krylov", shards, n_components=3, **MEAN)
    assert len(whole.history) > 3
    resumed = gone_on(simulate, "krylov", shards, path=tmp_path / "run.ckpt", stop=[2], n_components=3, **MEAN)
    assert resumed.components_.tobytes() == whole.components_.tobytes()


def test_a_client_that_leaves_takes_its_values_along():
    shards = mixed_with_gaps(0)
    result = simulate(
        "krylov", shards, n_components=3, tol=1e-10, fraction=lambda m: [0, 1, 2] if m < 2 else [1, 2], **MEAN
    )
    agrees_without_gaps(result, pooled(imputed(shards[1:])), 3)


def test_nodes_of_flower_are_told_by_the_message():
    with in_a_run():
        from flower_pca.strategies import PCAStrategy

        shards = mixed_with_gaps(0)
        app = app_of(shards)
        settings = {"n_components": 3, "min_nodes": 1}
        wanted = simulate("krylov", shards, n_components=3, **MEAN)
        result = PCAStrategy("krylov", missing="mean", **settings).fit(FakeGrid(app, 3))
        assert result.components_.tobytes() == wanted.components_.tobytes()
        assert result.fill_.tobytes() == wanted.fill_.tobytes()
        # The run continues with the nodes without missing values.
        plain = PCAStrategy("krylov", **settings).fit(FakeGrid(app, 3))
        assert plain.n_samples_ == len(shards[2])
        assert all(REMEDY.replace('"mean"', '"local_mean"') in reason for reason in plain.history[0].failures.values())


@every(
    ("option", "message"),
    [
        ({}, f"^The data of client 0 has .* missing .*. The first .*{REMEDY}$"),
        ({"missing": "mean", "bad": np.inf}, "^The data of client 1 has 1 infinite value.*"
         "Impute or drop them before the run.$"),
        ({"missing": "median"}, "^missing must be 'error', 'local_mean' or 'mean', not 'median'."),
        ({"missing": "mean", "empty": 4}, "^No client has a value in column 4. Drop it.$"),
    ],
)  # fmt: skip
def test_what_cannot_be_imputed_is_refused_in_words(option, message):
    shards = mixed_with_gaps(0)
    if "bad" in option:
        shards = imputed(shards)
        shards[1][0, 0] = option.pop("bad")
    if "empty" in option:
        for X in shards:
            X[:, option["empty"]] = np.nan
        option.pop("empty")
    with pytest.raises(ValueError, match=message):
        simulate("krylov", shards, n_components=3, **option)


def test_moments_of_parts_are_those_of_the_whole():
    X = mixed_with_gaps(0)[0]
    whole = LocalData(X, missing=True).moments()
    parts = [LocalData(X[i : i + 7], missing=True).moments() for i in range(0, len(X), 7)]
    total = parts[0]
    for part in parts[1:]:
        total = merge_moments(total, part)
    there = np.arange(12) != 5
    assert np.array_equal(total.count, np.sum(~np.isnan(X), axis=0))
    assert total.count[5] == 0
    np.testing.assert_allclose(total.mean[there], np.nanmean(X[:, there], axis=0), rtol=1e-13)
    np.testing.assert_allclose(total.m2[there], np.nanvar(X[:, there], axis=0) * total.count[there], rtol=1e-12)
    np.testing.assert_allclose(total.m2, whole.m2, rtol=1e-12)
    plain = Moments(3, np.full(12, 2.0), np.zeros(12))
    assert np.array_equal(merge_moments(total, plain).mean[5], 2.0)
    assert np.array_equal(merge_moments(plain, total).mean[5], 2.0)


def known_of_each(shards):
    """Means of each client's own values, and those of all where a client has none; mean and deviation as they divide.

    A client without a value in a column has no part in the column's mean and deviation.
    """
    filled = []
    for X in shards:
        there = ~np.isnan(X).all(axis=0)
        means = np.nanmean(np.vstack(shards), axis=0)
        means[there] = np.nanmean(X[:, there], axis=0)
        filled.append(np.where(np.isnan(X), means, X))
    columns = [
        np.concatenate([F[:, j] for F, X in zip(filled, shards, strict=True) if not np.isnan(X[:, j]).all()])
        for j in range(shards[0].shape[1])
    ]
    return filled, np.array([c.mean() for c in columns]), np.array([c.std() for c in columns])


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("algorithm", ["exact_per_pca(local_components=1)", "krylov"])
def test_a_column_that_one_client_lacks_is_scaled_by_the_others(algorithm, mask):
    """The optimum is that of the filled and scaled rows, written out; and the site without the column is named."""
    rng = np.random.default_rng(3)
    sizes = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.5])
    shards = [rng.standard_normal((n, 6)) * sizes + 3.0 * rng.standard_normal(6) for n in (40, 50, 30, 60)]
    shards[1][:, 4] = np.nan
    shards[2][::5, 0] = np.nan
    filled, mean, scale = known_of_each([X + 0.0 for X in shards])
    result = simulate(algorithm, shards, n_components=2, missing="local_mean", scale="std", mask=mask)
    np.testing.assert_allclose(result.mean_, mean, rtol=1e-9)
    np.testing.assert_allclose(result.scale_, scale, rtol=1e-9)
    written = [(F - mean) / scale for F in filled]
    reference = simulate(algorithm, written, n_components=2, center=False)
    assert result.angle_to(reference.components_) < 1e-6
    if isinstance(result, PersonalResult) and not mask:
        own, expected = (r.local_components_of(1) for r in (result, reference))
        np.testing.assert_allclose(own.T @ own, expected.T @ expected, atol=1e-6)
    if not mask:
        assert "Column 4 has no value at client 1." in " ".join(result.hints)
