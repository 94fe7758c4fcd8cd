"""Test FederatedPCA by scikit-learn's checks, and against its pooled PCA."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from builders import shards
from cases import every
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import flower_pca
from flower_pca import FederatedPCA, PCAResult, Ray, registry
from flower_pca.estimator import federated


@pytest.mark.slow
@parametrize_with_checks(
    [FederatedPCA(), FederatedPCA(1, algorithm="ssi", missing="mean", whiten=True, scale="max_abs")]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


# What scikit-learn runs on its own transformers, beside the checks above. Two of them mix tables with and without names
# on purpose, and so warn of it with scikit-learn's PCA as well.
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
        estimator_checks.check_set_output_transform,
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_global_output_transform_pandas,
    ],
)
def test_scikit_learns_checks_of_names_and_output(check):
    check("FederatedPCA", FederatedPCA())


BUDGET = "dp(epsilon=50.0, delta=1e-6, clip=20.0, noise_seed=1)"
SHARDS = shards((60, 25, 7), 0.7 ** np.arange(8), shift=1.0)


def labeled(parts, seed=1):
    """The same rows in one shuffled table, with the name of each row's site."""
    sites = np.repeat(["north", "east", "west"], [len(part) for part in parts])
    order = np.random.default_rng(seed).permutation(len(sites))
    return np.vstack(parts)[order], sites[order]


def test_a_list_of_shards_gives_the_pooled_pca():
    X = np.vstack(SHARDS)
    ours, pooled = FederatedPCA(3, tol=1e-12).fit(SHARDS), PCA(3, svd_solver="full").fit(X)
    signs = np.sign(np.sum(ours.components_ * pooled.components_, axis=1))
    np.testing.assert_allclose(ours.components_ * signs[:, None], pooled.components_, atol=1e-9)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_", "mean_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(pooled, name), rtol=1e-10)
    assert (ours.n_samples_, ours.n_components_, ours.n_features_in_) == (92, 3, 8)
    np.testing.assert_allclose(ours.transform(X) * signs, pooled.transform(X), atol=1e-8)


def test_sites_are_the_same_clients_as_a_list():
    X, sites = labeled(SHARDS)
    by_list = FederatedPCA(3).fit([X[sites == site] for site in ("east", "north", "west")])
    by_group = FederatedPCA(3).fit(X, sites=sites)
    assert by_group.components_.tobytes() == by_list.components_.tobytes()
    assert by_group.result_.history[0].asked == 3
    assert FederatedPCA(3).fit(X).result_.history[0].asked == 1


@every("sites", [[10, 9, 9, 10, 2, 2, 2], ["b", 9, 9, "b", 1, 1, 1], pd.Series(list("cbbcaaa"))])
def test_sites_are_ordered_by_what_they_are(sites):
    pca = FederatedPCA(2).fit(SHARDS[2], sites=sites)
    order = [SHARDS[2][4:], SHARDS[2][1:3], SHARDS[2][[0, 3]]]
    assert pca.components_.tobytes() == FederatedPCA(2).fit(order).components_.tobytes()
    assert list(pca.result_.site_names.values()) in (["2", "9", "10"], ["1", "9", "b"], ["a", "b", "c"])


def test_sites_of_whole_numbers_have_no_decimals():
    # pandas stores whole numbers as floats in a column that once had missing values.
    sites = pd.Series([1.0, None, 2.0] * 20).fillna(2.0)
    pca = FederatedPCA(2, adjust="site").fit(SHARDS[0][:60], sites=sites)
    assert pca.result_.site_names == {0: "1", 1: "2"}
    np.testing.assert_array_equal(
        pca.transform(SHARDS[0][:60], sites=sites.astype(int)), pca.transform(SHARDS[0][:60], sites=sites)
    )


def test_fit_transform_takes_sites_and_keeps_the_order_of_rows():
    X, sites = labeled(SHARDS)
    scores = FederatedPCA(3).fit_transform(X, sites=sites)
    assert scores.tobytes() == FederatedPCA(3).fit(X, sites=sites).transform(X).tobytes()
    stacked = FederatedPCA(3).fit_transform(SHARDS)
    np.testing.assert_allclose(stacked, FederatedPCA(3).fit(SHARDS).transform(np.vstack(SHARDS)), atol=1e-12)


@pytest.mark.slow
@every("scale", [None, "std", "max_abs"])
def test_whitened_scores_have_unit_variance_and_an_exact_inverse(scale):
    X = np.vstack(SHARDS)
    whole = FederatedPCA(8, whiten=True, scale=scale, tol=1e-12).fit(SHARDS)
    scores = whole.transform(X)
    np.testing.assert_allclose(np.cov(scores.T), np.eye(8), atol=1e-8)
    np.testing.assert_allclose(whole.inverse_transform(scores), X, atol=1e-12)
    few, plain = (FederatedPCA(3, whiten=w, scale=scale).fit(SHARDS) for w in (True, False))
    rebuilt = [estimator.inverse_transform(estimator.transform(X)) for estimator in (few, plain)]
    np.testing.assert_allclose(*rebuilt, atol=1e-12)
    assert np.abs(rebuilt[0] - X).max() > 1e-3


def test_whitening_does_not_divide_by_a_variance_of_zero():
    X = np.vstack(SHARDS)
    X = np.column_stack([X, X[:, :2].sum(axis=1), np.full(len(X), 3.0)])
    pca = FederatedPCA(10, whiten=True).fit(X)
    assert np.isfinite(pca.transform(X)).all()
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), X, atol=1e-10)


def test_missing_values_become_the_mean_of_their_column_over_all_clients():
    rng = np.random.default_rng(5)
    holes = [np.where(rng.random(part.shape) < 0.1, np.nan, part) for part in SHARDS]
    X = np.vstack(holes)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    ours, pooled = FederatedPCA(3, missing="mean", tol=1e-12).fit(holes), PCA(3, svd_solver="full").fit(filled)
    np.testing.assert_allclose(ours.explained_variance_, pooled.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(pooled.transform(filled)), atol=1e-8)


def test_sparse_rows_give_the_components_of_dense_ones():
    X = np.random.default_rng(3).poisson(0.3, (80, 12)).astype(float)
    sites = np.arange(80) % 3
    dense = FederatedPCA(2, tol=1e-12).fit(X, sites=sites)
    thin = FederatedPCA(2, tol=1e-12).fit(sparse.csr_array(X), sites=sites)
    assert dense.result_.angle_to(thin.result_) < 1e-9
    np.testing.assert_allclose(thin.transform(sparse.csr_array(X)), dense.transform(X), atol=1e-9)


def test_names_of_features_go_in_and_names_of_components_come_out():
    frames = [pd.DataFrame(part, columns=list("abcdefgh")) for part in SHARDS]
    pca = FederatedPCA(2).set_output(transform="pandas").fit(frames)
    assert list(pca.feature_names_in_) == list("abcdefgh")
    assert list(pca.get_feature_names_out()) == ["federatedpca0", "federatedpca1"]
    one = pca.transform(frames[0].set_index(np.arange(60) + 100))
    assert list(one.columns) == ["federatedpca0", "federatedpca1"]
    assert list(one.index[:2]) == [100, 101]
    assert pca.transform(frames).shape == (92, 2)


def test_shards_with_turned_columns_are_the_same():
    frames = [pd.DataFrame(part, columns=list("abcdefgh")) for part in SHARDS]
    whole = FederatedPCA(2).fit(frames)
    turned = FederatedPCA(2).fit([frames[0], frames[1][list("hgfedcba")], *frames[2:]])
    np.testing.assert_array_equal(turned.components_, whole.components_)


@pytest.mark.parametrize("algorithm", ["krylov", "ssi", "faps", "covariance"])
def test_without_a_number_there_are_all_components(algorithm):
    pca = FederatedPCA(algorithm=algorithm, tol=1e-10 if algorithm in ("ssi", "faps") else None).fit(SHARDS)
    pooled = PCA().fit(np.vstack(SHARDS))
    np.testing.assert_allclose(pca.explained_variance_, pooled.explained_variance_, rtol=1e-9)
    assert (pca.n_components, pca.n_components_, pca.noise_variance_) == (None, 8, 0.0)
    assert FederatedPCA(algorithm=algorithm).fit([SHARDS[2][:3], SHARDS[2][3:5]]).n_components_ == 5


@pytest.mark.parametrize("mask", [False, True])
def test_minkas_estimate_is_that_of_scikit_learn(mask):
    rng = np.random.default_rng(2)
    for k in (1, 3, 6):
        X = rng.standard_normal((90, k)) @ rng.standard_normal((k, 8)) * 3.0 + 0.3 * rng.standard_normal((90, 8))
        ours, pooled = FederatedPCA("mle", mask=mask).fit(np.split(X, [40, 70])), PCA("mle").fit(X)
        assert ours.n_components_ == pooled.n_components_ == k
        np.testing.assert_allclose(ours.noise_variance_, pooled.noise_variance_, rtol=1e-7)
        assert ours.transform(X).shape == (90, k)
        assert ours.result_.config["n_components"] == k
        assert ours.result_.residuals_.shape == (k,)
        assert ours.result_.sine_estimate_ < 1e-6


def test_one_column_has_one_component():
    assert FederatedPCA("mle").fit(SHARDS[0][:, :1]).n_components_ == 1


def test_float32_in_is_float32_out():
    thin = [part.astype(np.float32) for part in SHARDS]
    ours, pooled = FederatedPCA(3).fit(thin), PCA(3).fit(np.vstack(thin))
    names = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_")
    for name in names:
        assert getattr(ours, name).dtype == getattr(pooled, name).dtype == np.float32
        np.testing.assert_allclose(np.abs(getattr(ours, name)), np.abs(getattr(pooled, name)), atol=1e-3)
    assert FederatedPCA(3, scale="std").fit(thin).scale_.dtype == np.float32
    given = {
        "scores": lambda pca, rows: pca.transform(rows),
        "rows": lambda pca, rows: pca.inverse_transform(pca.transform(rows)),
        "covariance": lambda pca, rows: pca.get_covariance(),
        "precision": lambda pca, rows: pca.get_precision(),
    }
    for name, of in given.items():
        assert of(ours, thin[0]).dtype == np.float32, name
        assert of(FederatedPCA(3, whiten=True).fit(SHARDS), SHARDS[0]).dtype == np.float64, name
    assert FederatedPCA(3).fit([thin[0], SHARDS[1]]).components_.dtype == np.float64


@every("k", [1, 3, 8])
def test_covariance_precision_and_score_are_those_of_scikit_learn(k):
    X = np.vstack(SHARDS)
    ours, pooled = FederatedPCA(k, tol=1e-12).fit(SHARDS), PCA(k, svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.get_covariance(), pooled.get_covariance(), atol=1e-9)
    np.testing.assert_allclose(ours.get_precision(), pooled.get_precision(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.score_samples(SHARDS), pooled.score_samples(X), rtol=1e-8)
    assert ours.score(X) == pytest.approx(pooled.score(X), rel=1e-9)
    np.testing.assert_allclose(ours.score_samples(sparse.csr_array(X)), pooled.score_samples(X), rtol=1e-8)


@every("setting", [{"scale": "std"}, {"center": False}, {"scale": "max_abs", "center": False}])
def test_covariance_and_score_are_in_the_datas_own_units(setting):
    X = np.vstack(SHARDS) * [0.1, 5.0, 1.0, 2.0, 0.5, 3.0, 0.2, 1.0]
    whole, some = FederatedPCA(whiten=True, **setting).fit(X), FederatedPCA(3, **setting).fit(X)
    moments = X.T @ X / (len(X) - 1) if "center" in setting else np.cov(X.T)
    np.testing.assert_allclose(whole.get_covariance(), moments, rtol=1e-9, atol=1e-9)
    for pca in (whole, some):
        np.testing.assert_allclose(pca.get_covariance() @ pca.get_precision(), np.eye(8), atol=1e-7)
        density = stats.multivariate_normal(pca.mean_, pca.get_covariance())
        np.testing.assert_allclose(pca.score_samples(X), density.logpdf(X), rtol=1e-8)


@pytest.mark.parametrize("rows", [SHARDS[2][:5], np.vstack(SHARDS)[:, [0, 1, 1]]])
def test_where_a_direction_has_no_variance_the_covariance_is_singular(rows):
    pca = FederatedPCA().fit(rows)
    rank = np.linalg.matrix_rank(rows - rows.mean(axis=0))
    assert np.linalg.matrix_rank(pca.get_covariance()) == rank


@pytest.mark.slow
def test_a_search_by_score_finds_the_number_of_components():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 8)) * 2.0 + 0.5 * rng.standard_normal((300, 8))
    assert GridSearchCV(FederatedPCA(), {"n_components": [1, 2, 3, 4, 5]}).fit(X).best_params_ == {"n_components": 3}


def test_missing_values_may_have_the_means_of_their_own_client():
    holes = [np.where(np.random.default_rng(5).random(part.shape) < 0.1, np.nan, part) for part in SHARDS]
    filled = [np.where(np.isnan(part), np.nanmean(part, axis=0), part) for part in holes]
    ours = FederatedPCA(3, missing="local_mean").fit(holes)
    np.testing.assert_allclose(ours.explained_variance_, PCA(3).fit(np.vstack(filled)).explained_variance_, rtol=1e-9)
    assert np.isfinite(ours.score(holes))


def test_masks_are_cloned():
    masked = clone(FederatedPCA(3, mask=flower_pca.MaskedSums(threshold=0.6))).fit(SHARDS)
    assert masked.result_.config["mask"].startswith("MaskedSums(threshold=0.6,")


def test_an_interrupted_fit_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    path, whole = tmp_path / "run.npz", FederatedPCA(3, algorithm="ssi").fit(SHARDS)
    rounds = []
    ritz = registry.STAGES["ssi"].server

    def fails(self, *args):
        rounds.append(1)
        if len(rounds) == 4:
            raise KeyboardInterrupt
        return ritz(self, *args)

    monkeypatch.setattr(registry.STAGES["ssi"], "server", fails)
    with pytest.raises(KeyboardInterrupt):
        FederatedPCA(3, algorithm="ssi", checkpoint=path).fit(SHARDS)
    assert path.exists()
    again = FederatedPCA(3, algorithm="ssi", checkpoint=path).fit(SHARDS)
    assert again.components_.tobytes() == whole.components_.tobytes()
    assert len(rounds) == whole.result_.rounds + 1
    assert not path.exists()


def test_a_mapping_names_the_sites_of_its_tables():
    tables = dict(zip(["north", "east", "west"], SHARDS, strict=True))
    pca = FederatedPCA(2).fit(tables)
    assert pca.components_.tobytes() == FederatedPCA(2).fit(SHARDS).components_.tobytes()
    assert pca.result_.site_names == {0: "north", 1: "east", 2: "west"}
    assert pca.transform(tables).tobytes() == pca.transform(SHARDS).tobytes()
    assert pca.score(tables) == pca.score(SHARDS)
    with pytest.raises(ValueError, match="X has 7 features") as caught:
        FederatedPCA(2).fit({**tables, "east": SHARDS[1][:, :7]})
    assert caught.value.__notes__ == ["in the table of east"]


def test_names_of_columns_and_sites_are_in_the_result(tmp_path):
    X, sites = labeled(SHARDS)
    pca = FederatedPCA(2).fit(pd.DataFrame(X, columns=list("abcdefgh")), sites=sites)
    assert list(PCAResult.load(pca.result_.save(tmp_path / "pca.npz")).feature_names_in_) == list("abcdefgh")
    assert pca.result_.site_names == {0: "east", 1: "north", 2: "west"}
    bare = FederatedPCA(2).fit(SHARDS).result_
    assert bare.feature_names_in_ is None
    assert bare.site_names == {}
    with pytest.raises(ValueError, match="Feature names unseen at fit time"):
        pca.transform(pd.DataFrame(X, columns=list("abcdefgi")))


@pytest.mark.parametrize("scale", [None, "std"])
def test_to_sklearn_knows_missing_values_and_names(scale):
    holes = [np.where(np.random.default_rng(5).random(part.shape) < 0.1, np.nan, part) for part in SHARDS]
    frames = [pd.DataFrame(part, columns=list("abcdefgh")) for part in holes]
    result = flower_pca.simulate("krylov", frames, n_components=3, missing="mean", scale=scale)
    pipeline = flower_pca.to_sklearn(result)
    np.testing.assert_allclose(pipeline.transform(frames[0]), result.transform(frames[0]), atol=1e-12)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        pipeline.transform(frames[0][list("hgfedcba")])
    plain = flower_pca.to_sklearn(flower_pca.simulate("krylov", SHARDS, n_components=3))
    assert type(plain) is PCA
    assert not hasattr(plain, "feature_names_in_")


@pytest.mark.slow
def test_the_estimator_works_in_a_pipeline_and_a_grid_search():
    X = np.vstack(SHARDS)
    y = X @ np.arange(8.0)
    search = GridSearchCV(make_pipeline(FederatedPCA(), LinearRegression()), {"federatedpca__n_components": [1, 8]})
    assert search.fit(X, y).best_params_ == {"federatedpca__n_components": 8}
    assert search.score(X, y) > 1.0 - 1e-9


@pytest.mark.slow
def test_sites_are_metadata_that_pipelines_and_searches_route():
    X, sites = labeled(SHARDS)
    y = X @ np.arange(8.0)
    with sklearn.config_context(enable_metadata_routing=True):
        pca = FederatedPCA(3).set_fit_request(sites=True)
        pipeline = make_pipeline(pca, LinearRegression()).fit(X, y, sites=sites)
        assert pipeline[0].components_.tobytes() == FederatedPCA(3).fit(X, sites=sites).components_.tobytes()
        grid = {"federatedpca__n_components": [1, 8]}
        search = GridSearchCV(make_pipeline(pca, LinearRegression()), grid, cv=LeaveOneGroupOut())
        search.fit(X, y, sites=sites, groups=sites)
    assert search.best_params_ == {"federatedpca__n_components": 8}
    assert search.best_estimator_[0].result_.history[0].asked == 3


def test_a_pipeline_hands_the_sites_on():
    X, sites = labeled(SHARDS)
    pipeline = make_pipeline(FederatedPCA(3), LinearRegression()).fit(X, X @ np.arange(8.0), federatedpca__sites=sites)
    assert pipeline[0].result_.history[0].asked == 3
    assert pipeline[0].components_.tobytes() == FederatedPCA(3).fit(X, sites=sites).components_.tobytes()


@pytest.mark.slow
def test_a_fitted_one_is_pickled_and_an_algorithm_is_cloned():
    pca = clone(FederatedPCA(3, algorithm=flower_pca.FAPS(inner_steps=4), tol=1e-4)).fit(SHARDS)
    again = pickle.loads(pickle.dumps(pca))
    assert pca.result_.algorithm == "faps(tol=0.0001, inner_steps=4)"
    assert again.transform(SHARDS[0]).tobytes() == pca.transform(SHARDS[0]).tobytes()


def test_a_fraction_and_the_seed_reach_the_run():
    pca = FederatedPCA(0.9, random_state=5).fit(SHARDS)
    together = PCA(8).fit(np.vstack(SHARDS)).explained_variance_ratio_.cumsum()
    assert pca.n_components_ == int(np.searchsorted(together, 0.9)) + 1
    assert pca.result_.seed == 5
    assert FederatedPCA("90%", random_state=5).fit(SHARDS).components_.tobytes() == pca.components_.tobytes()
    seeds = [FederatedPCA(2, random_state=np.random.RandomState(7)).fit(SHARDS).result_.seed for _ in range(2)]
    assert seeds[0] == seeds[1] != FederatedPCA(2).fit(SHARDS).result_.seed


def test_an_end_without_convergence_is_warned_of():
    with pytest.warns(ConvergenceWarning, match="max_rounds: largest residual"):
        FederatedPCA(3, algorithm="ssi", tol=1e-14, max_rounds=2).fit(SHARDS)


def test_other_unknown_names_are_unknown_still():
    with pytest.raises(AttributeError, match="has no attribute 'FederatedPCAs'"):
        flower_pca.FederatedPCAs  # noqa: B018


def test_the_estimator_passes_backend_and_options_on(monkeypatch):
    asked = {}

    def run(algorithm, tables, **given):
        asked.update(given)
        return flower_pca.simulate(algorithm, tables, n_components=2)

    monkeypatch.setattr(federated, "simulate", run)
    given = {"backend": Ray(), "checkpoint": "run.npz", "max_rounds": 7, "tol": 1e-3, "mask": True, "dp": BUDGET}
    given |= {"scale": "std", "center": False, "missing": "mean", "init": np.eye(2, 3), "harmonize": "combat"}
    FederatedPCA(2, **given).fit(shards((30, 20), [3.0, 2.0, 1.0]))
    assert {name: asked[name] for name in given} == given
