"""FederatedPCA is a scikit-learn transformer by scikit-learn's own checks, and finds what its pooled PCA finds."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from builders import shards
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import flower_pca
from flower_pca import ConfigError, FederatedPCA


@parametrize_with_checks(
    [FederatedPCA(), FederatedPCA(whiten=True, scale="max_abs"), FederatedPCA(algorithm="ssi", missing="mean")]
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


SHARDS = shards((60, 25, 7), 0.7 ** np.arange(8), shift=1.0)


def labelled(parts, seed=1):
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


def test_groups_are_the_same_clients_as_a_list():
    X, sites = labelled(SHARDS)
    by_list = FederatedPCA(3).fit([X[sites == site] for site in ("east", "north", "west")])
    by_group = FederatedPCA(3).fit(X, groups=sites)
    assert by_group.components_.tobytes() == by_list.components_.tobytes()
    assert by_group.result_.history[0].asked == 3
    assert FederatedPCA(3).fit(X).result_.history[0].asked == 1


def test_fit_transform_takes_groups_and_keeps_the_order_of_rows():
    X, sites = labelled(SHARDS)
    scores = FederatedPCA(3).fit_transform(X, groups=sites)
    assert scores.tobytes() == FederatedPCA(3).fit(X, groups=sites).transform(X).tobytes()
    stacked = FederatedPCA(3).fit_transform(SHARDS)
    np.testing.assert_allclose(stacked, FederatedPCA(3).fit(SHARDS).transform(np.vstack(SHARDS)), atol=1e-12)


@pytest.mark.parametrize("scale", [None, "std", "max_abs"])
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
    with pytest.raises(ValueError, match="contains NaN"):
        FederatedPCA(3).fit(holes)


def test_sparse_rows_give_the_components_of_dense_ones():
    X = np.random.default_rng(3).poisson(0.3, (80, 12)).astype(float)
    sites = np.arange(80) % 3
    dense = FederatedPCA(2, tol=1e-12).fit(X, groups=sites)
    thin = FederatedPCA(2, tol=1e-12).fit(sparse.csr_array(X), groups=sites)
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


def test_shards_with_other_columns_are_refused_and_named():
    frames = [pd.DataFrame(part, columns=list("abcdefgh")) for part in SHARDS]
    frames[1] = frames[1][list("hgfedcba")]
    with pytest.raises(ValueError, match="Feature names must be in the same order") as caught:
        FederatedPCA(2).fit(frames)
    assert caught.value.__notes__ == ["in the table of client 1"]
    with pytest.raises(ValueError, match="X has 7 features, but FederatedPCA is expecting 8"):
        FederatedPCA(2).fit([SHARDS[0], SHARDS[1][:, :7]])


def test_it_is_a_step_of_a_pipeline_and_of_a_search():
    X = np.vstack(SHARDS)
    y = X @ np.arange(8.0)
    search = GridSearchCV(make_pipeline(FederatedPCA(), LinearRegression()), {"federatedpca__n_components": [1, 8]})
    assert search.fit(X, y).best_params_ == {"federatedpca__n_components": 8}
    assert search.score(X, y) > 1.0 - 1e-9


def test_a_pipeline_hands_the_groups_on():
    X, sites = labelled(SHARDS)
    pipeline = make_pipeline(FederatedPCA(3), LinearRegression()).fit(X, X @ np.arange(8.0), federatedpca__groups=sites)
    assert pipeline[0].result_.history[0].asked == 3
    assert pipeline[0].components_.tobytes() == FederatedPCA(3).fit(X, groups=sites).components_.tobytes()


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
    seeds = [FederatedPCA(2, random_state=np.random.RandomState(7)).fit(SHARDS).result_.seed for _ in range(2)]
    assert seeds[0] == seeds[1] != FederatedPCA(2).fit(SHARDS).result_.seed


def test_an_end_without_convergence_is_warned_of():
    with pytest.warns(ConvergenceWarning, match="max_rounds: largest residual"):
        FederatedPCA(3, algorithm="ssi", tol=1e-14, max_rounds=2).fit(SHARDS)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda: FederatedPCA(9).fit(SHARDS), ConfigError, r"min\(92, 8\) = 8. Got 9"),
        (lambda: FederatedPCA(2).fit(SHARDS, groups=[0]), ConfigError, "groups must be left out of a list of tables"),
        (lambda: FederatedPCA(2).fit(SHARDS[0], groups=[0, 1]), ValueError, "inconsistent numbers of samples"),
        (lambda: FederatedPCA(2).fit([]), ValueError, "Expected 2D array"),
        (lambda: FederatedPCA(2).inverse_transform(np.ones((3, 2))), NotFittedError, "not fitted yet"),
        (lambda: FederatedPCA(2).fit(SHARDS).inverse_transform(np.ones((3, 4))), ConfigError, "must be 2. Got 4"),
        (lambda: FederatedPCA(2, algorithm="krilov").fit(SHARDS), ConfigError, "Did you mean 'krylov'"),
    ],
)
def test_what_does_not_fit_is_said_so(act, error, words):
    with pytest.raises(error, match=words):
        act()


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_scikit_learn_is_imported_with_the_estimator_and_not_before():
    look = "print('sklearn' in sys.modules)"
    assert python(f"import sys, flower_pca; {look}; flower_pca.FederatedPCA; {look}") == "False\nTrue\n"


def test_without_scikit_learn_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import flower_pca\n"
        "try: flower_pca.FederatedPCA\n"
        "except flower_pca.ConfigError as error: print(error)\n"
    )
    sentence = "scikit-learn must be installed for FederatedPCA. Got no such package."
    assert python(code) == f'{sentence} Run: pip install "flower-pca[sklearn]"\n'


def test_other_unknown_names_are_unknown_still():
    with pytest.raises(AttributeError, match="has no attribute 'FederatedPCAs'"):
        flower_pca.FederatedPCAs  # noqa: B018
