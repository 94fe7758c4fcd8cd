"""Covariates are removed from rows with missing values, for which the means of all rows stand."""

import numpy as np
import pandas as pd
import pytest
from builders import gone_on
from dishonest import Node, RefusedError
from fake_grid import arrays_in, grid_of, in_a_run, with_arrays
from scipy import sparse
from test_adjust import assert_components_of, table_with_age
from test_explain import FEATURES, people_of_sites, share_of

from flower_pca import FederatedPCA, PCAResult, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.base.errors import ConfigError, DataError, NotEnoughNodes
from flower_pca.names.table import Table
from flower_pca.results import site as sites
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.strategies import PCAStrategy

EVERY = [("age",), ("age", "sex")]


def people_with_gaps(seed, *, words=True):
    """Sites whose gaps follow age, so that the slopes of filled rows are others than those of the values alone.

    Column b has values at one site only, and the first site lacks nothing in column c.
    """
    rng = np.random.default_rng([seed, 1])
    tables = people_of_sites(seed)
    for i, table in enumerate(tables):
        gone = rng.random((len(table), 6)) < (0.25 * (table.age > table.age.median()) + 0.05).to_numpy()[:, None]
        gone[:, 1], gone[:, 2] = gone[:, 1] | (i != 1), gone[:, 2] & (i > 0)
        table[FEATURES] = table[FEATURES].mask(gone)
    return tables if words else [table.drop(columns="sex") for table in tables]


def filled_by_means(tables, means=None):
    """The pooled features with the means of the columns in place of missing values."""
    pooled = pd.concat(tables)[FEATURES]
    return pooled.fillna(pooled.mean() if means is None else means).to_numpy()


def residuals_of(tables, names, *, scaled=False):
    """What least squares on the covariates leave of the filled rows, by numpy."""
    pooled, X = pd.concat(tables), filled_by_means(tables)
    design = [np.ones(len(pooled)), pooled.age]
    if "sex" in names:
        design += [*pd.get_dummies(pooled.sex).to_numpy(float).T]
    A = np.column_stack(design)
    rows = X - A @ np.linalg.lstsq(A, X, rcond=None)[0]
    # A scale counts the values that are there, as in runs that remove nothing.
    return rows / np.sqrt((rows**2).sum(axis=0) / pooled[FEATURES].notna().sum().to_numpy()) if scaled else rows


@pytest.mark.parametrize("names", EVERY, ids=str)
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("krylov(tol=1e-12)", {}),
        ("krylov(tol=1e-12)", {"mask": True}),
        ("krylov(tol=1e-12)", {"answers": "fixed"}),
        ("krylov(tol=1e-12)", {"scale": "std"}),
        ("krylov(tol=1e-12)", {"scale": "std", "mask": True, "answers": "fixed"}),
        ("covariance", {"scale": "std"}),
        ("covariance", {"mask": True}),
        ("ssi(tol=1e-12)", {"scale": "std", "mask": True, "answers": "fixed"}),
        ("auto(tol=1e-12)", {"answers": "fixed"}),
    ],
    ids=str,
)
def test_components_are_those_of_what_least_squares_leaves_of_filled_rows(algorithm, settings, names):
    tables = people_with_gaps(1, words="sex" in names)
    result = simulate(algorithm, tables, n_components=3, adjust=names, missing="mean", **settings)
    rows = residuals_of(tables, names, scaled="scale" in settings)
    assert_components_of(result, rows)
    np.testing.assert_allclose(result.transform(pd.concat(tables)), rows @ result.components_.T, atol=1e-10)
    np.testing.assert_allclose(result.mean_, pd.concat(tables)[FEATURES].mean(), atol=1e-12)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_give_the_same_components(mask, answers):
    tables = people_with_gaps(2)
    asked = {"n_components": 3, "adjust": "age,sex=F,sex=M", "missing": "mean", "tol": 1e-12, "min_nodes": 3}
    with in_a_run():
        strategy = PCAStrategy("krylov", mask=mask, columns=",".join(FEATURES[::-1]), **asked)
        result = strategy.fit(grid_of(tables, covariates="age,sex", missing="mean", answers=answers))
    assert list(result.feature_names_in_) == FEATURES[::-1]
    assert_components_of(result, residuals_of(tables, ("age", "sex"))[:, ::-1])


@pytest.mark.parametrize("shape", [(30, 80), (400, 12)], ids=str)
@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("mask", [False, True])
def test_wide_and_long_tables_agree_with_least_squares(mask, answers, shape):
    table, rows, slopes = table_with_age(*shape, gaps=True)
    parts = [table[: len(table) // 3], table[len(table) // 3 :]]
    given = {"adjust": "age", "missing": "mean", "answers": answers, "mask": mask}
    result = simulate("krylov", parts, n_components=2, tol=1e-12, **given)
    assert_components_of(result, rows)
    np.testing.assert_allclose(result.slopes_[0], slopes, atol=1e-10)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_sparse_rows_with_missing_values_are_adjusted_too(answers):
    rng = np.random.default_rng(4)
    dense = (rng.random((90, 8)) < 0.4) * rng.standard_normal((90, 8))
    dense[:, :7][rng.random((90, 7)) < 0.1] = np.nan
    names = (*(f"x{j}" for j in range(7)), "age")
    tables = [Table(sparse.csr_array(part), names) for part in np.split(dense, 3)]
    X = np.where(np.isnan(dense), np.nanmean(dense, axis=0), dense)
    A = np.column_stack([np.ones(90), X[:, 7]])
    rows = X[:, :7] - A @ np.linalg.lstsq(A, X[:, :7], rcond=None)[0]
    result = simulate("krylov", tables, n_components=2, adjust="age", missing="mean", tol=1e-12, answers=answers)
    assert_components_of(result, rows)


@pytest.mark.parametrize("mask", [False, True])
def test_sites_that_leave_are_left_out_of_means_and_slopes(mask):
    tables = people_with_gaps(5, words=False)
    result = simulate(
        "krylov", tables, n_components=2, adjust="age", missing="mean", tol=1e-12, mask=mask,
        fraction=lambda message: [0, 1, 2] if message < (4 if mask else 1) else [0, 1],
    )  # fmt: skip
    assert [r.answered for r in result.history if "opening" in r.stage][:2] == [3, 2]
    assert_components_of(result, residuals_of(tables[:2], ("age",)))


@pytest.mark.parametrize("mask", [False, True])
def test_components_are_explained_and_watched_over(mask):
    tables = people_with_gaps(6)
    asked = {"adjust": "age", "explain": "age,sex,site", "missing": "mean", "monitor": True}
    result = simulate("krylov(tol=1e-12)", tables, n_components=2, mask=mask, **asked)
    pooled, scores = pd.concat(tables), residuals_of(tables, ("age",)) @ result.components_.T
    site = np.repeat(np.eye(3), [len(table) for table in tables], axis=0)
    np.testing.assert_allclose(result.site_share_, share_of(scores, site), atol=1e-12)
    sex = pd.get_dummies(pooled.sex).to_numpy(float)
    np.testing.assert_allclose(result.explained_by_["sex"], share_of(scores, sex), atol=1e-12)
    np.testing.assert_allclose(result.explained_by_["age"], 0.0, atol=1e-12)
    spe = Monitor(result).score(pooled).spe
    rows = residuals_of(tables, ("age",))
    np.testing.assert_allclose(spe, ((rows - scores @ result.components_) ** 2).sum(axis=1), rtol=1e-9)


def test_no_further_message_is_needed():
    tables = people_with_gaps(7)
    plain = simulate("krylov", [table[FEATURES] for table in tables], n_components=2, missing="mean")
    adjusted = simulate("krylov", tables, n_components=2, adjust=("age", "sex"), missing="mean")
    assert len(adjusted.history) <= len(plain.history)


def test_new_rows_are_filled_with_the_means_of_the_run(tmp_path):
    tables = people_with_gaps(8)
    result = simulate("krylov", tables, n_components=2, adjust="age,sex", missing="mean")
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    new = people_with_gaps(9)[0]
    X = filled_by_means([new], pd.concat(tables)[FEATURES].mean())
    A = np.column_stack([new.age, new.sex == "F", new.sex == "M"])
    rows = X - result.mean_ - (A - result.covariate_mean_) @ result.slopes_
    for one in (result, again):
        np.testing.assert_allclose(one.transform(new), rows @ result.components_.T, atol=1e-10)
    # A single row, with a column without known values.
    np.testing.assert_allclose(result.transform(new[:1]), rows[:1] @ result.components_.T, atol=1e-10)
    with pytest.raises(DataError, match="The covariate age of the rows given has missing values"):
        result.transform(new.assign(age=np.nan))


def test_the_estimator_fills_and_adjusts_alike():
    pooled = pd.concat(people_with_gaps(10), ignore_index=True)
    site = np.repeat(["bonn", "jena", "ulm"], [80, 60, 50])
    pca = FederatedPCA(n_components=2, adjust="age,sex", missing="mean").fit(pooled, sites=site)
    rows = residuals_of([pooled], ("age", "sex"))
    assert_components_of(pca.result_, rows, atol=1e-6)
    np.testing.assert_allclose(pca.transform(pooled), rows @ pca.components_.T, atol=1e-10)
    np.testing.assert_allclose(pca.transform(pooled[3:4]), rows[3:4] @ pca.components_.T, atol=1e-10)


def test_new_rows_of_a_site_are_filled_with_the_means_of_that_site(tmp_path):
    tables = people_with_gaps(11)
    for table in tables:
        table["b"] = np.arange(len(table)) % 7.0
    with in_a_run():
        grid = grid_of(tables, covariates="age,sex", missing="local_mean", answers="fixed", output_dir=tmp_path)
        strategy = PCAStrategy(
            "krylov", n_components=2, adjust="age,sex=F,sex=M,site", missing="local_mean", min_nodes=3, tol=1e-12
        )
        result = strategy.fit(grid)
    at_jena = result.at_site(sites.read_local_result(tmp_path / "flower_pca-local-1.npz"))
    jena = tables[1]
    A = np.column_stack([jena.age, jena.sex == "F", jena.sex == "M"])
    X = jena[FEATURES].fillna(jena[FEATURES].mean()).to_numpy()
    rows = X - X.mean(axis=0) - (A - A.mean(axis=0)) @ result.slopes_
    np.testing.assert_allclose(at_jena.transform(jena), rows @ result.components_.T, atol=1e-10)
    np.testing.assert_allclose(at_jena.transform(jena[:1]), rows[:1] @ result.components_.T, atol=1e-10)


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    tables = people_with_gaps(12)
    asked = {"n_components": 2, "adjust": "age,sex", "missing": "mean"}
    result = simulate("ssi", tables, **asked)
    for after in (1, 4):
        resumed = gone_on(simulate, "ssi", tables, path=tmp_path / "state", stop=[after], **asked)
        np.testing.assert_array_equal(resumed.components_, result.components_)


def test_the_means_of_all_rows_are_not_known_if_each_site_removes_its_own():
    with pytest.raises(ConfigError) as refusal:
        simulate("krylov", people_with_gaps(13), n_components=2, adjust=("age", "sex", "site"), missing="mean")
    assert str(refusal.value) == (
        'missing="mean" needs the means of all rows, but with adjust each site subtracts its own means and does not '
        'send them. Use missing="local_mean".'
    )


@pytest.mark.parametrize("mask", [False, True])
def test_a_node_fills_with_the_means_of_all_if_its_rule_says_so_only(mask):
    asked = {"n_components": 2, "adjust": "age", "missing": "mean", "min_nodes": 3, "mask": mask}
    tables = [table.drop(columns="sex") for table in people_of_sites(14)]
    for table in tables:
        table.loc[:19, "a"] = np.nan
    for rules, words in (
        ({"missing": "local_mean"}, "fills missing values with its own means only"),
        ({"missing": "mean", "min_rows": 25}, "fewer than 25 missing values"),
    ):
        strategy = PCAStrategy("krylov", **asked)
        with in_a_run(), pytest.raises(NotEnoughNodes, match=words):
            strategy.fit(grid_of(tables, covariates="age", **rules))


@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize("stage", ["adjusted_opening", "adjusted_summed_opening"])
def test_no_message_gets_the_ages_of_rows_with_gaps_while_own_means_fill_them(stage, answers):
    rows = people_with_gaps(15, words=False)[1]
    node = Node(0, rows, covariates="age", missing="local_mean", answers=answers)
    asked = {"covariates": np.array(1), "gaps": np.array(True), "common_fill": np.array(True)}
    asked |= {"peaks": np.array(False), "width": np.array(2), "seed": np.array(0)}
    if "summed" in stage:
        asked |= {"reference": np.zeros(6), "covariate_reference": np.zeros(1)}
    for own, words in ((True, "to fill missing values both with"), (False, "its own means only")):
        frame = Frame(own=own, covariates=Covariates(("age",), 1), names=tuple(FEATURES))
        with pytest.raises(RefusedError, match=words):
            node.ask(stage, asked, frame, algorithm="krylov")


def test_an_answer_with_more_than_its_squares_allow_is_not_counted():
    tables = people_with_gaps(16, words=False)
    grid = grid_of(tables, covariates="age", missing="mean")

    def exaggerate(message, reply):
        arrays = arrays_in(reply)
        if message.metadata.dst_node_id == grid.node(2) and "covariate_sums_where_seen" in arrays:
            arrays["covariate_sums_where_seen"] = 1e6 + arrays["covariate_sums_where_seen"]
            return with_arrays(reply, arrays)
        return reply

    grid.tamper = exaggerate
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=2, adjust="age", missing="mean", tol=1e-12)
        result = strategy.fit(grid)
    assert_components_of(result, residuals_of(tables[:2], ("age",)))
    assert any("contradicts itself" in why for r in result.history for why in r.failures.values())
