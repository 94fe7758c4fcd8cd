"""Covariates whose influence is removed before the PCA."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import gone_on, share_between_sites
from fake_grid import grid_of, in_a_run
from pages import folder_of_sites
from scipy import sparse, stats
from test_explain import FEATURES, people_of_sites

from flower_pca import PCAResult, assembly, cli, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.estimator.federated import to_sklearn
from flower_pca.names.table import Table
from flower_pca.results import site as sites
from flower_pca.rows.covariates import pseudo_inverse
from flower_pca.strategies import PCAStrategy

EVERY = [("age", "sex"), ("age", "sex", "site")]


def left_of(tables, names, *, scaled=False, gaps=False):
    """The pooled features less what least squares on covariates and sites explain of them."""
    if gaps:
        tables = [table.fillna(table[FEATURES].mean()) for table in tables]
    pooled = pd.concat(tables)
    design = [np.ones((len(pooled), 1))]
    if "age" in names:
        design.append(pooled[["age"]].to_numpy())
    if "sex" in names:
        design.append(pd.get_dummies(pooled.sex).to_numpy(float))
    if "site" in names:
        design.append(np.repeat(np.eye(len(tables)), [len(table) for table in tables], axis=0))
    A, X = np.column_stack(design), pooled[FEATURES].to_numpy()
    rows = X - A @ np.linalg.lstsq(A, X, rcond=None)[0]
    return rows / rows.std(axis=0) if scaled else rows


def assert_components_of(result, rows, atol=1e-10):
    """Components, variances and total variance are those of LAPACK's SVD of the pooled rows."""
    _, s, V = np.linalg.svd(rows, full_matrices=False)
    k = result.n_components_
    signs = np.sign(np.sum(V[:k] * result.components_, axis=1))
    np.testing.assert_allclose(result.components_, V[:k] * signs[:, None], atol=atol)
    np.testing.assert_allclose(result.explained_variance_, s[:k] ** 2 / (len(rows) - 1), rtol=atol)
    assert result.total_variance_ == pytest.approx(np.sum(s**2) / (len(rows) - 1), rel=atol)


@pytest.mark.parametrize("names", EVERY, ids=str)
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("krylov(tol=1e-12)", {}),
        ("krylov(tol=1e-12)", {"mask": True}),
        ("krylov(tol=1e-12)", {"answers": "fixed"}),
        ("krylov(tol=1e-12)", {"scale": "std", "mask": True, "answers": "fixed"}),
        ("krylov(tol=1e-12)", {"missing": "local_mean"}),
        ("krylov(tol=1e-12)", {"missing": "local_mean", "mask": True, "answers": "fixed"}),
        ("covariance", {}),
        ("covariance", {"missing": "local_mean", "mask": True, "answers": "fixed"}),
        ("ssi(tol=1e-12)", {"scale": "std", "mask": True, "answers": "fixed"}),
        ("auto(tol=1e-12)", {"missing": "local_mean"}),
    ],
    ids=str,
)
def test_components_are_those_of_what_pooled_least_squares_leaves(algorithm, settings, names):
    tables, gaps = people_of_sites(1), "missing" in settings
    if gaps:
        rng = np.random.default_rng(2)
        for table in tables:
            table[FEATURES] = table[FEATURES].mask(rng.random((len(table), 6)) < 0.1)
    result = simulate(algorithm, tables, n_components=3, adjust=names, **settings)
    rows = left_of(tables, names, scaled="scale" in settings, gaps=gaps)
    assert_components_of(result, rows)
    if "site" not in names and not gaps:
        np.testing.assert_allclose(result.transform(pd.concat(tables)), rows @ result.components_.T, atol=1e-10)


@pytest.mark.parametrize("names", ["age,sex=F,sex=M", "age,sex=F,sex=M,site"])
@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_give_the_same_components(mask, answers, names):
    tables = people_of_sites(3)
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=3, adjust=names, mask=mask, tol=1e-12, min_nodes=3)
        result = strategy.fit(grid_of(tables, covariates="age,sex", answers=answers))
    assert list(result.feature_names_in_) == FEATURES
    assert_components_of(result, left_of(tables, names))


@pytest.mark.parametrize("mask", [False, True])
def test_sites_that_leave_are_left_out_of_means_and_slopes(mask):
    tables = people_of_sites(18)
    result = simulate(
        "krylov", tables, n_components=3, adjust="age,sex", tol=1e-12, mask=mask,
        fraction=lambda message: [0, 1, 2] if message < (4 if mask else 1) else [0, 1],
    )  # fmt: skip
    assert [r.answered for r in result.history if "opening" in r.stage][:2] == [3, 2]
    assert_components_of(result, left_of(tables[:2], ("age", "sex")))


def table_with_age(n, d, *, gaps=False):
    """A table of age and d columns that depend on it; what least squares leaves of these columns, and its slopes."""
    rng = np.random.default_rng(4)
    age = rng.normal(50, 10, n)
    X = rng.standard_normal((n, d)) * np.linspace(3, 1, d) + np.outer(0.1 * age, rng.standard_normal(d)) + 20.0
    if gaps:
        X[(rng.random((n, d)) < 0.2) & (age > 45)[:, None]] = np.nan
    whole, A = np.where(np.isnan(X), np.nanmean(X, axis=0), X), np.column_stack([np.ones(n), age])
    slopes = np.linalg.lstsq(A, whole, rcond=None)[0]
    return pd.DataFrame(X, columns=[f"x{j:03d}" for j in range(d)]).assign(age=age), whole - A @ slopes, slopes[1]


@pytest.mark.parametrize("shape", [(30, 80), (400, 40), (60, 300)], ids=str)
@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_wide_and_long_tables_agree_with_least_squares(answers, shape):
    table, rows, slopes = table_with_age(*shape)
    parts = [table[: len(table) // 3], table[len(table) // 3 :]]
    result = simulate("krylov", parts, n_components=2, adjust="age", tol=1e-12, answers=answers)
    assert_components_of(result, rows)
    assert result.adjusted_degrees_ == 1
    np.testing.assert_allclose(result.slopes_[0], slopes, atol=1e-10)


def test_covariates_that_depend_on_each_other_count_once():
    tables = [table.drop(columns="sex").assign(months=12.0 * table.age) for table in people_of_sites(5)]
    result = simulate("krylov", tables, n_components=2, adjust="age,months", tol=1e-12)
    assert_components_of(result, left_of(tables, ("age",)))
    assert result.adjusted_degrees_ == 1
    products = np.array([[4.0, 2.0], [2.0, 1.0]])
    np.testing.assert_allclose(products @ pseudo_inverse(products) @ products, products, atol=1e-12)


@pytest.mark.parametrize("size", [1e-140, 1e-30])
def test_rows_and_covariates_whose_squares_are_tiny_are_adjusted(size):
    """The product of two sums of squares is 0 in double precision, though neither of them is."""
    rng = np.random.default_rng(12)
    age = rng.standard_normal(60)
    X = rng.standard_normal((60, 5)) * [5.0, 3.0, 1.0, 1.0, 1.0] + age[:, None]
    table = pd.DataFrame(1e-140 * X, columns=list("abcde")).assign(age=size * age)
    result = simulate("krylov(tol=1e-12)", [table[:20], table[20:]], n_components=2, adjust=["age"])
    A = np.column_stack([np.ones(60), age])
    left = X - A @ np.linalg.lstsq(A, X, rcond=None)[0]
    V = np.linalg.svd(left, full_matrices=False)[2][:2]
    assert np.linalg.norm(V - V @ result.components_.T @ result.components_) < 1e-7


def test_no_further_message_is_needed():
    tables = people_of_sites(6)
    plain = simulate("krylov", [table[FEATURES] for table in tables], n_components=2)
    for names in EVERY:
        assert len(simulate("krylov", tables, n_components=2, adjust=names).history) <= len(plain.history)


def test_nothing_of_a_sites_own_means_leaves_it():
    told = []
    tables = people_of_sites(7)
    moved = [table.assign(**{name: table[name] + 1000.0 for name in FEATURES}) for table in tables]
    for given in (tables, moved):
        grid = grid_of(given, covariates="age,sex", answers="fixed")
        answers = {}

        def keep(message, reply, answers=answers, grid=grid):
            content = reply.content.array_records
            key = grid.nodes[message.metadata.dst_node_id].node_config["partition-id"], len(answers) // 3
            answers[key] = [a.numpy() for record in content.values() for a in record.values()]
            return reply

        grid.tamper = keep
        with in_a_run():
            PCAStrategy("krylov", n_components=2, adjust="age,sex=F,sex=M,site", min_nodes=3).fit(grid)
        told.append(answers)
    first = [told[0][i, 0] for i in range(3)], [told[1][i, 0] for i in range(3)]
    for before, after in zip(*first, strict=True):
        for a, b in zip(before, after, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_new_rows_of_a_site_are_adjusted_by_the_means_of_that_site(tmp_path):
    tables = people_of_sites(8)
    result = simulate("krylov", dict(zip("abc", tables, strict=True)), n_components=2, adjust="age,sex,site", tol=1e-12)
    rows = np.split(left_of(tables, ("age", "sex", "site")), np.cumsum([len(table) for table in tables])[:-1])
    for name, table, own in zip("abc", tables, rows, strict=True):
        np.testing.assert_allclose(result.at_site(name).transform(table), own @ result.components_.T, atol=1e-10)
    with pytest.raises(ConfigError, match=r"Call result\.at_site\(name\)"):
        result.transform(tables[0])
    with pytest.raises(ConfigError, match=r"has no local results of the site 'z' \(only of: a, b, c"):
        result.at_site("z")
    at_b = PCAResult.load(result.at_site("b").save(tmp_path / "b.npz"))
    np.testing.assert_array_equal(at_b.transform(tables[1]), result.at_site("b").transform(tables[1]))


def test_a_node_keeps_its_means_in_its_own_folder(tmp_path):
    tables = people_of_sites(9)
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=2, adjust="age,site", tol=1e-12, min_nodes=3)
        grid = grid_of(
            [table.drop(columns="sex") for table in tables],
            covariates="age", answers="fixed", output_dir=tmp_path, memory_dir=tmp_path / "memory",
        )  # fmt: skip
        result = strategy.fit(grid)
    own = sites.read_local_result(tmp_path / "flower_pca-local-1.npz")
    rows = left_of(tables, ("age", "site"))[len(tables[0]) :][: len(tables[1])]
    scores = result.at_site(own).transform(tables[1].drop(columns="sex"))
    np.testing.assert_allclose(scores, rows @ result.components_.T, atol=1e-10)


def test_new_rows_need_their_covariates_by_name(tmp_path):
    tables = people_of_sites(10)
    result = simulate("krylov", tables, n_components=2, adjust="age,sex")
    new = tables[0][:5]
    np.testing.assert_allclose(result.transform(new[[*FEATURES[::-1], "sex", "age"]]), result.transform(new))
    for missing in ("age", "sex"):
        with pytest.raises(ConfigError, match=f"The rows given have no column {missing}"):
            result.transform(new.drop(columns=missing))
    with pytest.raises(DataError, match="The covariate age of the rows given has missing values"):
        result.transform(new.assign(age=np.nan))
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(again.transform(new), result.transform(new))
    assert again.adjusted_by_ == ("age", "sex=F", "sex=M")
    middle = result.inverse_transform(np.zeros((1, 2)))
    np.testing.assert_allclose(middle[0], pd.concat(tables)[FEATURES].mean(), atol=1e-12)
    scores = Monitor(result).score(new)
    np.testing.assert_allclose(scores.spe, np.sum((left_rows(result, new)) ** 2, axis=1), rtol=1e-9)
    with pytest.raises(ConfigError, match="A record has no covariates"):
        result.to_record()
    with pytest.raises(ConfigError, match="scikit-learn's PCA cannot adjust for covariates"):
        to_sklearn(result)


def left_rows(result, table):
    """What the components leave of adjusted rows, by the fields of the result."""
    A = np.column_stack([table.age, table.sex == "F", table.sex == "M"])
    X = table[FEATURES].to_numpy() - result.mean_ - (A - result.covariate_mean_) @ result.slopes_
    return X - X @ result.components_.T @ result.components_


def test_shrinkage_counts_the_covariates_as_degrees_of_freedom():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((40, 200)) + np.outer(rng.standard_normal(40) * 10, np.ones(200))
    table = pd.DataFrame(X).add_prefix("x").assign(age=rng.normal(50, 9, 40))
    tables = [table[:20], table[20:]]
    result = simulate("krylov", tables, n_components=1, adjust="age,site")
    assert result.adjusted_degrees_ == 2
    rest = result.left_out_variance_ / (min(40 - 1 - 2, 200) - 1)
    factor = 1 / (1 + result.left_out_variance_ / ((40 - 1 - 2) * (result.explained_variance_[0] - rest)))
    assert result.shrinkage_[0] == pytest.approx(factor, rel=1e-12)


def test_limits_from_theory_count_the_covariates_as_degrees_of_freedom():
    tables = people_of_sites(17)
    result = simulate("krylov", [table[:20] for table in tables], n_components=2, adjust="age,sex")
    free = 60 - 2 - 2  # rows less components, age and sex
    limit = 2 * (59 - 2) / free * (1 + 1 / 60) * stats.f.ppf(0.99, 2, free) * np.mean(result.shrinkage_**2)
    assert Monitor(result).limits(0.99).t2 == pytest.approx(limit, rel=1e-9)


def test_a_column_that_covariates_explain_is_named_under_a_scale():
    tables = [table.drop(columns="sex").assign(f=3.0 * table.age - 7.0) for table in people_of_sites(12)]
    with pytest.raises(DataError, match="the same value in column f"):
        simulate("krylov", tables, n_components=2, adjust="age", scale="std")
    result = simulate("krylov", tables, n_components=2, adjust="age")
    np.testing.assert_allclose(result.components_[:, 5], 0.0, atol=1e-6)


def test_sparse_rows_are_adjusted_too():
    rng = np.random.default_rng(13)
    dense = (rng.random((90, 8)) < 0.3) * rng.standard_normal((90, 8))
    names = [*(f"x{j}" for j in range(7)), "age"]
    frame = pd.DataFrame(dense, columns=names)
    tables = [Table(sparse.csr_array(part), tuple(names)) for part in np.split(dense, 3)]
    design = np.column_stack([np.ones(90), dense[:, 7]])
    rows = dense[:, :7] - design @ np.linalg.lstsq(design, dense[:, :7], rcond=None)[0]
    for answers in ("rows", "fixed"):
        result = simulate("krylov", tables, n_components=2, adjust="age", tol=1e-12, answers=answers)
        assert_components_of(result, rows)
    np.testing.assert_allclose(result.transform(frame), rows @ result.components_.T, atol=1e-10)


def test_a_run_repeats_from_its_settings_and_goes_on_from_a_checkpoint(tmp_path):
    tables = people_of_sites(14)
    result = simulate("ssi", tables, n_components=2, adjust="age,sex")
    again = simulate(assembly.config(**result.config), tables)
    np.testing.assert_array_equal(again.components_, result.components_)
    resumed = gone_on(simulate, "ssi", tables, path=tmp_path / "state", stop=[4], n_components=2, adjust="age,sex")
    np.testing.assert_array_equal(resumed.components_, result.components_)


def test_the_share_between_sites_is_that_of_adjusted_scores():
    tables = people_of_sites(15)
    result = simulate("krylov", tables, n_components=3, adjust="age", explain="age,sex,site")
    shares = share_between_sites([result.transform(table) for table in tables])
    np.testing.assert_allclose(result.site_share_, shares, atol=1e-12)
    np.testing.assert_allclose(result.explained_by_["age"], 0.0, atol=1e-12)
    masked = simulate("krylov", tables, n_components=3, adjust="age", explain="age,sex,site", mask=True)
    np.testing.assert_allclose(masked.site_share_, result.site_share_, atol=1e-12)


@pytest.mark.parametrize("mask", [False, True])
def test_rows_about_the_means_of_their_own_site_have_no_share_between_sites(mask):
    tables = people_of_sites(15)
    plain = simulate("krylov", tables, n_components=2, adjust="age,site", explain="age,sex", mask=mask)
    assert plain.site_share_ is None
    assert plain.sites_ is None
    assert list(plain.explained_by_) == ["age", "sex", "age and sex"]
    assert "by sex" in plain.table()
    assert "between sites" not in plain.table()
    alone = simulate("krylov", tables, n_components=2, adjust="site", explain="sex", mask=mask, columns=FEATURES)
    assert list(alone.explained_by_) == ["sex"]
    assert "by sex" in alone.table()


@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_adjusts_and_scores_new_rows(tmp_path, capsys):
    tables, out = people_of_sites(16), tmp_path / "out"
    folder = folder_of_sites(tmp_path / "sites", tables)
    assert cli.main(["run", str(folder), "--adjust", "age,sex", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = simulate("auto", tables, n_components=2, adjust="age,sex")
    np.testing.assert_allclose(told["explained_variance"], expected.explained_variance_, rtol=1e-9)
    scores = tmp_path / "scores.npy"
    assert cli.main(["transform", str(out / "result.npz"), str(folder / "1.csv"), "-o", str(scores)]) == 0
    np.testing.assert_allclose(np.load(scores), expected.transform(tables[1]), atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dp": "dp(epsilon=50.0, delta=1e-6, clip=20.0)", "max_rounds": 5}, "adjust.* cannot be combined with dp"),
        ({"max_share": 0.5}, "adjust.* cannot be combined with max_share"),
        ({"partitioned_by": "columns"}, "adjust.* cannot be combined with partitioned_by"),
        ({"categorical": "sex"}, "categorical.* cannot be combined with adjust"),
        ({"scale": "max_abs"}, "scale.* cannot be combined with adjust"),
        (
            {"scale": "genotype"},
            "scale.* cannot be combined with adjust: other scales are computed from the values before",
        ),
        ({"center": False}, "Leave center out"),
        ({"adjust": "site", "explain": "site"}, "Leave site out of explain"),
        ({"standard_errors": True}, "standard_errors.* cannot be combined with adjust"),
    ],
)
def test_what_does_not_go_with_adjust_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        simulate("ssi", people_of_sites(), **{"n_components": 2, "adjust": "age", **settings})


@pytest.mark.parametrize("algorithm", ["dcf_pca", "consensus_rpca", "median_pca", "triple_pca"])
def test_an_algorithm_in_which_far_entries_decide_is_refused(algorithm):
    with pytest.raises(ConfigError, match="does not support adjust"):
        simulate(algorithm, people_of_sites(), n_components=2, adjust="age")


def test_too_few_rows_for_so_many_covariates_are_refused():
    tables = [table[:2].drop(columns="sex") for table in people_of_sites()]
    with pytest.raises(DataError, match="too few to adjust for 5 covariates and sites"):
        simulate("krylov", tables, n_components=1, adjust="age,b,c,site")


def test_rows_without_names_have_no_covariates():
    with pytest.raises(DataError, match="names"):
        simulate("krylov", [np.random.default_rng(0).standard_normal((20, 4))] * 2, n_components=1, adjust="age")
