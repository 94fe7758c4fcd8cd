"""Test how much of each component is explained by other columns and by site."""

import json

import numpy as np
import pandas as pd
import pytest
from fake_grid import grid_of, in_a_run
from pages import folder_of_sites

from flower_pca import PCAResult, assembly, cli, simulate
from flower_pca.base.errors import ConfigError, DataError, NotEnoughNodes
from flower_pca.results import facts
from flower_pca.strategies import PCAStrategy

FEATURES = list("abcdef")
OFFSETS = (0.0, 1.0, -1.0)
SIZES = (80, 60, 50)


def people_of_sites(seed=0, *, year=50.0):
    """Sites with a feature that follows age, one that follows the site, and a column of words."""
    rng = np.random.default_rng(seed)
    tables = []
    for n, off in zip(SIZES, OFFSETS, strict=True):
        age = rng.normal(year + 5.0 * off, 10.0, n)
        X = rng.standard_normal((n, 6)) * np.arange(6, 0, -1) + off * np.array([0.0, 3.0, 0.0, 0.0, 1.0, 0.0])
        X[:, 0] += 0.3 * (age - year)
        table = pd.DataFrame(X, columns=FEATURES)
        table["age"], table["sex"] = age, rng.choice(["F", "M"], n)
        tables.append(table)
    return tables


def share_of(scores, columns, beyond=None):
    """1 - RSS / RSS of `beyond`, by numpy's least squares."""

    def left(A):
        design = np.column_stack([np.ones(len(scores)), A])
        return ((scores - design @ np.linalg.lstsq(design, scores, rcond=None)[0]) ** 2).sum(axis=0)

    before = left(np.empty((len(scores), 0)) if beyond is None else beyond)
    return 1.0 - left(columns if beyond is None else np.column_stack([columns, beyond])) / before


def shares_by_least_squares(scores, tables, sites=True):
    """The shares of age, sex, both, and of the site beyond both and alone, of pooled scores."""
    pooled = pd.concat(tables)
    age, sex = pooled.age.to_numpy()[:, None], pd.get_dummies(pooled.sex).to_numpy(float)
    site, both = np.repeat(np.eye(len(tables)), [len(t) for t in tables], axis=0), np.column_stack([age, sex])
    found = {"age": share_of(scores, age), "sex": share_of(scores, sex), "age and sex": share_of(scores, both)}
    if sites:
        found |= {"site beyond age and sex": share_of(scores, site, both), "site": share_of(scores, site)}
    return found


def expected_shares(result, tables):
    shares = shares_by_least_squares(result.transform(pd.concat(tables)), tables)
    return shares, shares.pop("site")


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("krylov", {}),
        ("krylov", {"mask": True}),
        ("krylov", {"answers": "fixed"}),
        ("krylov", {"scale": "std", "mask": True}),
        ("krylov", {"center": False}),
        ("krylov", {"missing": "mean"}),
        ("krylov", {"missing": "local_mean", "answers": "fixed"}),
        ("krylov", {"missing": "mean", "answers": "fixed"}),
        ("covariance", {"mask": True}),
        ("ssi", {"scale": "std", "mask": True}),
        ("uda", {"missing": "mean", "answers": "fixed"}),
        ("uda", {"center": False}),
        ("auto", {"missing": "local_mean", "answers": "fixed"}),
    ],
    ids=str,
)
def test_shares_are_those_of_least_squares_of_the_pooled_scores(algorithm, settings):
    tables = people_of_sites(1)
    if "missing" in settings:
        rng = np.random.default_rng(2)
        for table in tables:
            table[FEATURES] = table[FEATURES].mask(rng.random((len(table), 6)) < 0.1)
    result = simulate(algorithm, tables, n_components=3, explain=("age", "sex", "site"), **settings)
    if settings.get("missing") == "local_mean":
        tables = [table.fillna(table[FEATURES].mean()) for table in tables]
    shares, of_site = expected_shares(result, tables)
    assert list(result.explained_by_) == list(shares)
    for name, share in shares.items():
        np.testing.assert_allclose(result.explained_by_[name], share, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(result.site_share_, of_site, atol=1e-12)
    assert result.sites_ == 3


@pytest.mark.parametrize(
    ("mask", "answers", "columns"),
    [
        (False, "rows", None),
        (False, "fixed", ",".join(FEATURES)),
        (True, "rows", ",".join(FEATURES)),
        (True, "fixed", None),
    ],
)
def test_nodes_tell_the_same_shares(mask, answers, columns):
    tables = people_of_sites(3)
    with in_a_run():
        strategy = PCAStrategy(
            "krylov", n_components=3, explain="age,sex=F,sex=M,site", columns=columns, mask=mask, min_nodes=3
        )
        result = strategy.fit(grid_of(tables, covariates="age,sex", answers=answers))
    assert list(result.feature_names_in_) == FEATURES
    shares, of_site = expected_shares(result, tables)
    for name, share in shares.items():
        np.testing.assert_allclose(result.explained_by_[name], share, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(result.site_share_, of_site, atol=1e-12)


def test_covariates_are_no_features():
    tables = people_of_sites(4)
    plain = simulate("krylov", [table[FEATURES] for table in tables], n_components=2)
    result = simulate("krylov", tables, n_components=2, explain="age,sex")
    np.testing.assert_allclose(result.components_, plain.components_, atol=1e-12)
    assert [record.stage for record in result.history][-1] == "explain"
    assert len(result.history) == len(plain.history) + 1


def test_under_masks_the_site_is_told_if_it_is_asked_for():
    tables = [table[FEATURES] for table in people_of_sites(5)]
    assert simulate("krylov", tables, n_components=2, mask=True).site_share_ is None
    result = simulate("krylov", tables, n_components=2, mask=True, explain="site")
    np.testing.assert_allclose(result.site_share_, simulate("krylov", tables, n_components=2).site_share_, atol=1e-12)
    assert result.explained_by_ == {}
    assert [hint for hint in result.hints if "between sites" in hint]


def test_two_covariates_that_say_the_same_count_once():
    tables = [table.drop(columns="sex") for table in people_of_sites(6)]
    for table in tables:
        table["months"] = 12.0 * table.age
    result = simulate("krylov", tables, n_components=2, explain="age,months")
    shares = result.explained_by_
    np.testing.assert_allclose(shares["age"], shares["months"], atol=1e-12)
    np.testing.assert_allclose(shares["age"], shares["age and months"], atol=1e-12)


def test_a_covariate_far_from_0_is_known_as_well():
    tables = people_of_sites(7, year=2015.0)
    result = simulate("krylov", tables, n_components=2, mask=True, explain="age,sex")
    assert np.abs(result.explained_by_["age"] - expected_shares(result, tables)[0]["age"]).max() < 1e-10


def test_table_json_and_file_have_the_shares(tmp_path):
    result = simulate("krylov", people_of_sites(8), n_components=2, explain=["age", "sex"])
    assert "by age" in result.table().splitlines()[0]
    assert f"{result.explained_by_['age'][0]:.1%}" in result.table().splitlines()[1]
    assert "site beyond" not in result.table()
    figures = facts.facts_as_json(result.summary().facts)
    assert json.loads(json.dumps(figures["explained_by"]))["age"] == result.explained_by_["age"].tolist()
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert list(again.explained_by_) == list(result.explained_by_)
    np.testing.assert_array_equal(again.explained_shares_, result.explained_shares_)
    repeated = simulate(assembly.config(**again.config), people_of_sites(8))
    np.testing.assert_array_equal(repeated.explained_shares_, result.explained_shares_)


@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_explains_by_columns_of_a_folder(tmp_path, capsys):
    tables, out = people_of_sites(9), tmp_path / "out"
    folder = folder_of_sites(tmp_path / "sites", tables)
    assert cli.main(["run", str(folder), "--explain", "age,sex", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["explained_by"]
    expected = simulate("auto", tables, n_components=2, explain="age,sex").explained_by_
    np.testing.assert_allclose(told["age and sex"], expected["age and sex"], atol=1e-9)
    assert cli.main(["show", str(out / "result.npz")]) == 0
    assert "by sex" in capsys.readouterr().out
    assert "by age" in (out / "report.html").read_text()
    assert cli.main(["run", str(folder), "--explain", "age", "--drop", "age,sex", "--out", str(out)]) == 2
    assert "--drop leaves out age, but --explain" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dp": "dp(epsilon=50.0, delta=1e-6, clip=20.0)", "max_rounds": 5}, "explain.* cannot be combined with dp"),
        ({"channel": "air(noise_std=0.1)"}, "explain cannot be combined with channel"),
        ({"max_share": 0.5}, "explain.* cannot be combined with max_share"),
        ({"partitioned_by": "columns"}, "explain.* cannot be combined with partitioned_by"),
    ],
)
def test_a_run_with_noise_or_weights_is_not_explained(settings, words):
    with pytest.raises(ConfigError, match=words):
        simulate("ssi", people_of_sites(), n_components=2, explain="age", **settings)


@pytest.mark.parametrize("setting", ["explain", "harmonize"])
def test_components_of_each_sites_own_are_what_differs_between_sites(setting):
    with pytest.raises(
        ConfigError,
        match=r"^per_pca does not support .*, because the local components .* already contain the .*\. Use krylov",
    ):
        simulate("per_pca", people_of_sites(), n_components=2, **{setting: {"explain": "age"}.get(setting, "combat")})


@pytest.mark.parametrize("algorithm", ["exact_per_pca", "sparse_pca", "dcf_pca", "median_pca"])
def test_an_algorithm_without_components_of_all_rows_is_not_explained(algorithm):
    with pytest.raises(ConfigError, match="does not support explain"):
        simulate(algorithm, people_of_sites(), n_components=2, explain="age")


def test_names_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="names a column twice"):
        simulate("krylov", people_of_sites(), n_components=2, explain="age,age")
    with pytest.raises(ConfigError, match="does not name columns"):
        simulate("krylov", people_of_sites(), n_components=2, explain=(3,))
    with pytest.raises(DataError, match="height"):
        simulate("krylov", people_of_sites(), n_components=2, explain="height,sex")


def test_a_covariate_with_missing_values_is_refused_by_its_name():
    tables = people_of_sites()
    tables[1].loc[3, "age"] = np.nan
    with pytest.raises(DataError, match="The covariate age of client 1 has missing values"):
        simulate("krylov", tables, n_components=2, explain="age,sex", missing="local_mean")


@pytest.mark.parametrize(
    "asked",
    [{"explain": "age,sex=F,sex=M"}, {"adjust": "age,sex=F,sex=M"}, {"harmonize": "combat", "keep": "age,sex=F,sex=M"}],
    ids=str,
)
def test_a_node_lets_runs_use_the_covariates_that_its_rule_names(asked):
    grid = grid_of(people_of_sites(), covariates="age")
    with in_a_run(), pytest.raises(NotEnoughNodes, match="does not let a run use sex=F, sex=M as a covariate"):
        PCAStrategy("krylov", n_components=2, min_nodes=3, **asked).fit(grid)


def test_a_rare_level_counts_as_other_at_a_node():
    tables = people_of_sites()
    tables[0].loc[:4, "sex"] = "X"
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=2, explain="sex=F,sex=M,sex=other", min_nodes=3)
        result = strategy.fit(grid_of([table.drop(columns="age") for table in tables], covariates="sex", min_rows=5))
    assert list(result.explained_by_) == ["sex", "site beyond sex"]
