"""Test runs over columns of the same people, against LAPACK's SVD of the pooled table."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from builders import gone_on, sparse_random
from cases import every
from checks import suiting
from people import PARTS, PEOPLE, K, X, frames, reference
from scipy import sparse

from flower_pca import ColumnsResult, PCAResult, simulate
from flower_pca.assembly import config
from flower_pca.assembly import run as run_of
from flower_pca.hints import faults
from flower_pca.names import ids

APART = suiting("partitioned_by")


def assert_columns_pca_of(result, table, *, tol=1e-8, **framed):
    scores, components, variances = reference(table, **framed)
    k = result.n_components_
    np.testing.assert_allclose(result.scores_, scores[:, :k], atol=tol * np.abs(scores).max())
    np.testing.assert_allclose(result.components_, components[:k], atol=tol)
    np.testing.assert_allclose(result.explained_variance_, variances[:k], rtol=tol)
    assert result.total_variance_ == pytest.approx(variances.sum(), rel=min(tol, 1e-7))
    assert result.left_out_variance_ == pytest.approx(variances[k:].sum(), rel=max(tol, 1e-7))


@pytest.mark.slow
@every("algorithm", ["auto", *APART])
@every("answers", ["rows", "fixed"])
def test_the_result_is_the_pca_of_the_pooled_table(algorithm, answers):
    result = simulate(algorithm, PARTS, n_components=K, partitioned_by="columns", answers=answers)
    assert_columns_pca_of(result, X, tol=2e-5 if algorithm in ("ssi", "fed_oapm") else 1e-8)
    assert isinstance(result, ColumnsResult)
    assert result.status.ok
    assert result.n_samples_ == 90
    assert result.n_features_in_ == 12
    assert result.parties_ == 3


@pytest.mark.slow
def test_a_process_that_has_imported_nothing_else_loads_it_as_its_class(tmp_path):
    path = simulate("krylov", PARTS, n_components=K, partitioned_by="columns").save(tmp_path / "r.npz")
    program = f"from flower_pca import PCAResult; print(type(PCAResult.load({str(path)!r})).__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("ColumnsResult\n", "")


@every("center", [True, False])
@every("scale", [None, "std", "max_abs"])
def test_each_client_centres_and_scales_its_own_columns(center, scale):
    result = simulate("krylov", PARTS, n_components=K, partitioned_by="columns", center=center, scale=scale, tol=1e-12)
    assert_columns_pca_of(result, X, center=center, scale=scale)
    np.testing.assert_allclose(result.mean_, X.mean(axis=0) if center else np.zeros(12), atol=1e-12)
    assert (result.scale_ is None) == (scale is None)


@pytest.mark.parametrize("algorithm", ["krylov", "ssi", "covariance"])
@pytest.mark.parametrize("scale", [None, "max_abs"])
def test_masks_change_nothing_but_the_last_digits(algorithm, scale):
    result = simulate(algorithm, PARTS, n_components=K, partitioned_by="columns", scale=scale, mask=True)
    assert_columns_pca_of(result, X, scale=scale, tol=2e-5 if algorithm == "ssi" else 1e-8)


@every("missing", ["local_mean", "mean"])
@every("scale", [None, "std"])
def test_a_gap_takes_the_mean_of_its_column_which_its_client_has_whole(missing, scale):
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    parts = np.split(holes, [5, 6], axis=1)
    result = simulate("krylov", parts, n_components=K, partitioned_by="columns", scale=scale, missing=missing)
    assert_columns_pca_of(result, holes, scale=scale)
    np.testing.assert_allclose(result.fill_, np.nanmean(holes, axis=0))


def test_a_share_of_the_variance_decides_how_many():
    share = np.cumsum(reference(X)[2])[4] / reference(X)[2].sum()
    result = simulate("krylov", PARTS, n_components=float(share) - 1e-6, partitioned_by="columns")
    assert result.n_components_ == 5
    assert_columns_pca_of(result, X)


@every("shape", [(8, 30), (90, 12), (40, 40)])
def test_more_columns_than_people_and_as_many_components_as_there_are(shape):
    table = np.random.default_rng(4).standard_normal(shape)
    k = min(shape)
    result = simulate("krylov", np.array_split(table, 4, axis=1), n_components=k, partitioned_by="columns")
    scores, _, variances = reference(table)
    np.testing.assert_allclose(result.explained_variance_, variances[:k], atol=1e-8)
    found = result.scores_ @ result.scores_.T
    np.testing.assert_allclose(found, scores @ scores.T, atol=1e-6)


def test_rank_deficient_tables_have_no_loadings_where_there_is_no_variance():
    table = np.outer(np.arange(20.0), [1.0, 2.0, -1.0, 0.5])
    result = simulate("krylov", [table[:, :2], table[:, 2:]], n_components=2, partitioned_by="columns")
    assert result.explained_variance_[1] == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(result.components_).all()
    np.testing.assert_array_equal(result.components_[1], 0.0)


def test_single_precision_and_sparse_columns():
    counts = sparse.random(90, 6, density=0.3, random_state=1)
    result = simulate("krylov", [X[:, :6].astype(np.float32), counts], n_components=K, partitioned_by="columns")
    assert_columns_pca_of(result, np.hstack([X[:, :6], counts.toarray()]), tol=1e-4)


@pytest.mark.slow
def test_the_same_bits_whichever_way_a_result_is_had(tmp_path):
    given = {"n_components": K, "partitioned_by": "columns", "mask": True}
    one, other = (simulate("krylov", PARTS, **given) for _ in range(2))
    np.testing.assert_array_equal(one.scores_, other.scores_)
    back = PCAResult.load(one.save(tmp_path / "r.npz"))
    assert isinstance(back, ColumnsResult)
    np.testing.assert_array_equal(back.scores_, one.scores_)
    np.testing.assert_array_equal(back.components_, one.components_)
    np.testing.assert_array_equal(back.transform(dict(enumerate(PARTS))), one.transform(dict(enumerate(PARTS))))
    asked = config(**one.config)
    assert asked.partitioned_by == "columns"


def test_a_run_that_is_interrupted_goes_on_from_its_checkpoint(tmp_path):
    given = {"n_components": K, "partitioned_by": "columns"}
    again = gone_on(simulate, "krylov", PARTS, path=tmp_path / "c.npz", stop=[3], **given)
    np.testing.assert_array_equal(again.scores_, simulate("krylov", PARTS, **given).scores_)


# Loadings, and new people.


@pytest.mark.slow
def test_ids_match_rows_in_any_order_and_names_go_with_the_loadings():
    tables = frames()
    result = simulate("krylov", tables, n_components=K, partitioned_by="columns")
    order = [*sorted(tables["hospital"].columns), *sorted(tables["lab"].columns)]
    pooled = tables["hospital"].join(tables["lab"])[order]
    assert_columns_pca_of(result, pooled.loc[PEOPLE].to_numpy())
    assert result.row_ids_ == PEOPLE
    assert list(result.feature_names_in_) == order
    assert result.decisions == ()
    lab = result.loadings("lab")
    assert list(lab.feature_names_in_) == order[5:]
    np.testing.assert_array_equal(lab.components_, result.components_[:, 5:])
    np.testing.assert_allclose(
        result.local[1]["scores"], result.scores_[[PEOPLE.index(i) for i in tables["lab"].index]]
    )


@pytest.mark.slow
def test_scores_of_new_people_are_the_sum_of_what_each_client_has():
    tables = frames()
    result = simulate("krylov", tables, n_components=K, partitioned_by="columns", scale="std")
    aligned = {site: table.loc[PEOPLE] for site, table in tables.items()}
    np.testing.assert_allclose(result.transform(aligned), result.scores_, atol=1e-6)
    np.testing.assert_allclose(result.transform(aligned["hospital"].join(aligned["lab"])), result.scores_, atol=1e-6)
    halves = [result.loadings(site).transform(table) for site, table in aligned.items()]
    np.testing.assert_allclose(halves[0] + halves[1], result.scores_, atol=1e-6)
    shuffled = result.transform(tables)
    np.testing.assert_allclose(shuffled, result.scores_, atol=1e-6)
    turned = result.transform(dict(reversed(tables.items())))
    np.testing.assert_allclose(turned, pd.DataFrame(shuffled, index=PEOPLE).loc[tables["lab"].index], atol=1e-12)


def test_scores_of_people_in_several_orders_have_the_order_of_the_first_table():
    table = np.random.default_rng(0).standard_normal((9, 4)) * [4.0, 3.0, 2.0, 1.0]
    whole = pd.DataFrame(table, index=list("abcdefghi"), columns=list("pqrs"))
    halves = {"one": whole[["p", "q"]], "two": whole[["r", "s"]]}
    result = simulate("krylov", halves, n_components=2, partitioned_by="columns")
    order = [3, 0, 2, 1, 8, 7, 6, 5, 4]
    found = result.transform({"one": halves["one"].iloc[order], "two": halves["two"].iloc[::-1]})
    np.testing.assert_allclose(found, reference(table)[0][order, :2], atol=1e-6)


@pytest.mark.slow
def test_two_clients_columns_of_one_name_are_told_apart():
    tables = {site: table.rename(columns={table.columns[0]: "same"}) for site, table in frames().items()}
    result = simulate("krylov", tables, n_components=K, partitioned_by="columns")
    assert {"hospital/same", "lab/same"} <= set(result.feature_names_in_)
    assert "same" in result.loadings("lab").feature_names_in_


def test_a_private_client_keeps_its_loadings():
    result = simulate("krylov", PARTS, n_components=K, partitioned_by="columns", hide_local=[1])
    assert result.components_.shape == (K, 11)
    assert not result.whole
    assert np.isnan(result.noise_variance_)
    assert "Loadings stay with their parties." in result.table()
    np.testing.assert_allclose(result.scores_, reference(X)[0][:, :K], atol=1e-6)


def test_rows_without_ids_go_by_position_and_the_result_says_so():
    result = simulate("krylov", PARTS, n_components=K, partitioned_by="columns")
    assert result.row_ids_ is None
    assert any("matched by position" in choice for choice in result.decisions)


# Ids.


def test_ids_are_compared_as_text_and_ordered_by_value_where_they_are_numbers():
    assert ids.texts([7, 7.0, " 7 ", "07", None, np.nan]) == ("7", "7", "7", "07", "", "")
    assert ids.texts(["7.0", " 7,0", "-7.0", "0.0"]) == ("7", "7", "-7", "0")
    assert ids.texts([-0.0, "-0.0"]) == ("0", "0")
    assert ids.texts(["07.0", "7.5", "7.00", "a7.0", "1.7.0"]) == ("07.0", "7.5", "7.00", "a7.0", "1.7.0")
    assert ids.order_of_ids(["10", "9", "2"], "x").tolist() == [2, 1, 0]
    assert ids.order_of_ids(["b10", "b9", "a"], "x").tolist() == [2, 0, 1]


@pytest.mark.slow
def test_a_digest_is_of_all_ids_and_of_one_run():
    assert ids.digest_of_ids(["a", "b"], "run 1") == ids.digest_of_ids(["a", "b"], "run 1")
    assert (
        len({ids.digest_of_ids(*of) for of in [(["a", "b"], "1"), (["a", "b"], "2"), (["a", "c"], "1"), (["ab"], "1")]})
        == 4
    )
    salts = {
        run_of(config("krylov", n_components=1, partitioned_by="columns")).position.model.split.salt for _ in range(2)
    }
    assert len(salts) == 2


@pytest.mark.slow
def test_a_column_that_numbers_people_is_pointed_out():
    numbered = frames()["hospital"].assign(patient_id=np.arange(90.0))
    result = simulate(
        "krylov", {"hospital": numbered, "lab": frames()["lab"]}, n_components=2, partitioned_by="columns"
    )
    assert any("patient_id of client 0 (hospital) holds whole numbers" in hint for hint in result.hints)


@pytest.mark.parametrize("n", [300, 30_000])
def test_mistakes_in_the_rows_of_a_party_are_pointed_out(n):
    rng = np.random.default_rng(4)
    one, other = (pd.DataFrame(rng.normal(50, 5, (n, 12)), columns=[f"{who}{j}" for j in range(12)]) for who in "ab")
    other.iloc[[3, 200], 5] = -999.0
    one.iloc[-1] = one.iloc[:-1].sum()
    assert (n * 12 > faults.BARE) == (n > 300)
    for tables in ([one, other], [one.to_numpy(), other.to_numpy()]):
        hints = simulate("krylov", tables, n_components=2, partitioned_by="columns", scale="std").hints
        assert f"At client 0: Row {n - 1} (from 0 on) is the sum of the lines above it" in " ".join(hints)
        assert any(hint.startswith("At client 1: Column ") and "holds -999 2 times" in hint for hint in hints)


def test_a_run_says_what_was_not_looked_for_at_a_party():
    tables = [sparse_random(np.random.default_rng(i), 90, 6, 0.4) for i in range(2)]
    hints = simulate("krylov", tables, n_components=2, partitioned_by="columns").hints
    assert sum("were not looked for, because the rows are sparse" in hint for hint in hints) == 2
