"""Test FederatedPCA with covariates: to explain components, to adjust, or to keep while harmonizing."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from test_explain import FEATURES, people_of_sites

from flower_pca import FederatedPCA, simulate
from flower_pca.base.errors import ConfigError

NAMES = ("bonn", "jena", "ulm")


def mixed_table():
    """One table of all sites in an order that mixes them, with the site of each row; and the sites as a mapping."""
    tables = dict(zip(NAMES, people_of_sites(1), strict=True))
    pooled = pd.concat([table.assign(ward=name) for name, table in tables.items()], ignore_index=True)
    pooled = pooled.sample(frac=1.0, random_state=0).reset_index(drop=True)
    tables = {name: pooled[pooled.ward == name].drop(columns="ward") for name in NAMES}
    return pooled.drop(columns="ward"), pooled.ward, tables


def test_components_are_explained_as_by_simulate():
    X, sites, tables = mixed_table()
    pca = FederatedPCA(n_components=2, explain=("age", "sex")).fit(X, sites=sites)
    expected = simulate("auto", tables, n_components=2, explain=("age", "sex"))
    np.testing.assert_allclose(pca.components_, expected.components_, atol=1e-12)
    for name, share in expected.explained_by_.items():
        np.testing.assert_allclose(pca.result_.explained_by_[name], share, atol=1e-12)
    assert list(pca.feature_names_in_) == [*FEATURES, "age", "sex"]
    assert pca.n_features_in_ == 8
    assert pca.components_.shape == (2, 6)
    # New rows do not need the columns of `explain`.
    np.testing.assert_array_equal(pca.transform(X[FEATURES]), pca.transform(X))
    assert list(pca.get_feature_names_out()) == ["federatedpca0", "federatedpca1"]


def test_new_rows_are_adjusted_by_their_covariates():
    X, sites, tables = mixed_table()
    pca = FederatedPCA(n_components=2, adjust="age,sex", whiten=True).fit(X, sites=sites)
    expected = simulate("auto", tables, n_components=2, adjust="age,sex")
    scores = expected.transform(X) / np.sqrt(expected.explained_variance_)
    np.testing.assert_allclose(pca.transform(X), scores, atol=1e-10)
    np.testing.assert_allclose(pca.transform(X[["sex", *FEATURES[::-1], "age"]]), scores, atol=1e-10)
    np.testing.assert_allclose(pca.fit_transform(X, sites=sites), scores, atol=1e-10)
    with pytest.raises(ConfigError, match="The rows given have no column age"):
        pca.transform(X.drop(columns="age"))
    with pytest.raises(ConfigError, match=r"adjust names columns, but X, .*, has no column names\. Give data frames"):
        FederatedPCA(adjust="age").fit(X[FEATURES].to_numpy())


@pytest.mark.parametrize("settings", [{"adjust": ("age", "site")}, {"harmonize": "combat", "keep": "age"}], ids=str)
def test_rows_of_a_site_are_scored_by_what_is_known_of_this_site(settings):
    X, sites, tables = mixed_table()
    X, tables = X.drop(columns="sex"), {name: table.drop(columns="sex") for name, table in tables.items()}
    pca = FederatedPCA(n_components=2, **settings)
    scores = pca.fit_transform(X, sites=sites)
    expected = simulate("auto", tables, n_components=2, **settings)
    for name, table in tables.items():
        np.testing.assert_allclose(scores[sites == name], expected.at_site(name).transform(table), atol=1e-10)
    np.testing.assert_array_equal(pca.transform(X, sites=sites), scores)
    stacked = pca.transform(tables)
    np.testing.assert_allclose(stacked, np.vstack([scores[sites == name] for name in NAMES]), atol=1e-12)
    np.testing.assert_allclose(clone(pca).fit_transform(tables), stacked, atol=1e-10)
    of_list = FederatedPCA(n_components=2, **settings).fit_transform(list(tables.values()))
    np.testing.assert_allclose(of_list, stacked, atol=1e-10)
    with pytest.raises(ConfigError, match=r"so the site of new rows is needed\. Give the site of each row"):
        pca.transform(X)
    with pytest.raises(ConfigError, match=r"has no local results of the site 'kiel' \(only of: bonn, jena, ulm"):
        pca.transform(X, sites=["kiel"] * len(X))
    assert pca.project(X, sites=sites).shape == scores.shape
    assert np.isfinite(pca.score(X, sites=sites))


def test_arrays_without_names_are_harmonized_too():
    X, sites, tables = mixed_table()
    pca = FederatedPCA(n_components=2, harmonize="combat")
    scores = pca.fit_transform(X[FEATURES].to_numpy(), sites=sites)
    expected = simulate("auto", {n: t[FEATURES] for n, t in tables.items()}, n_components=2, harmonize="combat")
    np.testing.assert_allclose(
        scores[sites == "ulm"], expected.at_site("ulm").transform(tables["ulm"][FEATURES]), atol=1e-10
    )


@pytest.mark.parametrize("components", ["mle", None])
def test_shares_are_of_the_components_that_are_kept(components):
    X, sites, _ = mixed_table()
    pca = FederatedPCA(components, explain="age").fit(X.drop(columns="sex"), sites=sites)
    assert pca.result_.site_share_.shape == (pca.n_components_,)
    assert pca.result_.explained_by_["age"].shape == (pca.n_components_,)
    assert len(pca.result_.table().splitlines()) == 1 + pca.n_components_


def test_no_hint_is_about_a_component_that_is_not_kept():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 6)) * [30.0, 20.0, 1.0, 1.0, 1.0, 1.0]
    sites = np.repeat(["bonn", "jena"], 200)
    X[200:, 5] += 1.0  # in a direction of little variance
    every = FederatedPCA().fit(X, sites=sites).result_
    pca = FederatedPCA("mle").fit(X, sites=sites)
    far = np.flatnonzero(every.site_share_ > 0.1)
    assert far.min() >= pca.n_components_
    assert [hint for hint in every.hints if "between sites" in hint]
    assert not [hint for hint in pca.result_.hints if "between sites" in hint]


def test_a_pipeline_passes_the_sites_on_to_fit_and_to_transform():
    X, sites, _ = mixed_table()
    y = (X.sex == "F").to_numpy()
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FederatedPCA(n_components=2, adjust="age,site"), LogisticRegression())
        pipeline.fit(X.drop(columns="sex"), y, sites=sites)
        assert pipeline.predict(X.drop(columns="sex"), sites=sites).shape == y.shape
        named = FederatedPCA(n_components=2).set_fit_request(sites=True)
        make_pipeline(named, LogisticRegression()).fit(X[FEATURES], y, sites=sites).predict(X[FEATURES])


def test_scores_come_as_data_frames_if_they_are_asked_for():
    X, sites, _ = mixed_table()
    pca = FederatedPCA(n_components=2, adjust="age,sex,site").set_output(transform="pandas")
    found = pca.fit_transform(X, sites=sites)
    assert list(found.columns) == ["federatedpca0", "federatedpca1"]
    assert list(found.index) == list(X.index)


def test_a_refusal_of_the_run_is_that_of_the_estimator():
    X, sites, _ = mixed_table()
    with pytest.raises(ConfigError, match="adjust=3 does not name columns"):
        FederatedPCA(adjust=3).fit(X, sites=sites)
    with pytest.raises(ConfigError, match="keep works only with harmonize"):
        FederatedPCA(keep="age").fit(X.drop(columns="sex"), sites=sites)
    with pytest.raises(ConfigError, match="adjust cannot be combined with harmonize"):
        FederatedPCA(adjust="age", harmonize="combat").fit(X, sites=sites)
