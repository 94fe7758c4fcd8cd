"""Test limits for new rows against refits without each row, order statistics, and new rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fake_grid import grid_of, in_a_run
from scipy import stats

from flower_pca import ConfigError, PCAResult, simulate
from flower_pca.analysis import quantiles, sites
from flower_pca.analysis.monitor import Monitor
from flower_pca.base import files
from flower_pca.rows.adjusted import hat_root
from flower_pca.stages.downdate import LeaveOneOut, dependent_neighbors
from flower_pca.stages.histograms import BinGrid
from flower_pca.strategies import PCAStrategy


def rows_with_structure(n, d, seed=0, deviations=(9.0, 7.0, 5.0)):
    """Noise, and a few components that are planted in it."""
    rng = np.random.default_rng([seed, n, d])
    Q = np.linalg.qr(rng.standard_normal((d, len(deviations))))[0]
    return rng.standard_normal((n, d)) + rng.standard_normal((n, len(deviations))) * deviations @ Q.T


def refitted(X, k, *, center=True, scale=False, around=0):
    """T2 and SPE of each row by LAPACK's SVD of all others, without so many neighbors on both sides."""
    found = []
    for i, x in enumerate(X):
        others = np.delete(X, np.s_[max(i - around, 0) : i + around + 1], axis=0)
        mean = others.mean(axis=0) if center else 0.0
        deviation = others.std(axis=0) if scale else 1.0
        _, s, V = np.linalg.svd((others - mean) / deviation, full_matrices=False)
        y = (x - mean) / deviation
        t = V[:k] @ y
        found.append([np.sum(t**2 / s[:k] ** 2) * (len(others) - 1), np.sum((y - t @ V[:k]) ** 2)])
    return np.array(found).T


@pytest.mark.parametrize(
    ("n", "d", "given", "close"),
    [
        (80, 12, {}, (1e-3, 1e-3)),
        (100, 60, {}, (0.01, 2e-3)),
        (100, 60, {"center": False}, (0.01, 2e-3)),
        (60, 200, {}, (0.03, 4e-3)),
        (100, 200, {"scale": "std"}, (0.03, 4e-3)),
    ],
)
def test_a_row_without_itself_is_scored_as_by_a_fit_to_all_other_rows(n, d, given, close):
    X = rows_with_structure(n, d)
    result = simulate("krylov", np.array_split(X, 2), n_components=3, monitor=True, **given)
    assert result.histograms_of == "left out"
    scored = Monitor(result).score(X, in_run=True)
    expected = refitted(X, 3, center=given.get("center", True), scale="scale" in given)
    for found, by_hand, tolerance in zip((scored.t2, scored.spe), expected, close, strict=True):
        assert np.median(np.abs(found / by_hand - 1.0)) < tolerance
    # the counts are of these numbers, but for rows at the ends of bins: the run knows one more Ritz vector
    grid = BinGrid.for_column_count(d)
    own = [grid.count_values(scored.t2 / 3.0), grid.count_values(scored.spe / result.left_out_variance_)]
    assert np.abs(np.cumsum(own - result.histograms_, axis=1)).max() <= 0.05 * n


def refitted_beside(X, A, k, *, scale=False, around=0):
    """T2 and SPE of each row by least squares on A and LAPACK's SVD of all others, as `refitted` has them."""
    found, removed = [], np.linalg.matrix_rank(A) - 1
    for i, (x, a) in enumerate(zip(X, A, strict=True)):
        out = np.s_[max(i - around, 0) : i + around + 1]
        others, design = np.delete(X, out, axis=0), np.delete(A, out, axis=0)
        slopes = np.linalg.lstsq(design, others, rcond=None)[0]
        left = others - design @ slopes
        deviation = left.std(axis=0) if scale else 1.0
        _, s, V = np.linalg.svd(left / deviation, full_matrices=False)
        y = (x - a @ slopes) / deviation
        t = V[:k] @ y
        found.append([np.sum(t**2 / s[:k] ** 2) * (len(others) - 1 - removed), np.sum((y - t @ V[:k]) ** 2)])
    return np.array(found).T


def with_covariates(n, d, *, sites=2, apart=0.0, seed=1):
    """Rows that follow age and sex, some of far-out age, in tables of sites whose means lie apart."""
    X, rng = rows_with_structure(n, d, seed), np.random.default_rng(seed)
    age = rng.normal(50.0, 10.0, n)
    age[:3] += [60.0, -70.0, 90.0]
    sex, site = rng.integers(0, 2, n).astype(float), np.arange(n) * sites // n
    X += np.outer(age, rng.standard_normal(d)) * 0.2 + np.outer(sex, rng.standard_normal(d)) + apart * site[:, None]
    table = pd.DataFrame(X).add_prefix("x").assign(age=age, sex=sex)
    return [table[site == i] for i in range(sites)], X, np.column_stack([age, sex]), np.eye(sites)[site]


@pytest.mark.parametrize("by_site", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "given", "close"),
    [
        (80, 30, {}, (4e-3, 2e-3)),
        (100, 300, {}, (0.02, 4e-3)),
        (100, 200, {"scale": "std"}, (0.03, 4e-3)),
        (100, 30, {"mask": True}, (4e-3, 2e-3)),
    ],
)
def test_an_adjusted_row_without_itself_is_scored_as_by_a_regression_and_a_fit_of_all_others(
    n, d, given, close, by_site
):
    tables, X, A, site = with_covariates(n, d, apart=2.0 * by_site)
    adjust = ("age", "sex", "site") if by_site else ("age", "sex")
    result = simulate("krylov", tables, n_components=3, monitor=True, adjust=adjust, **given)
    assert result.histograms_of == "left out"
    design = np.column_stack([A, site if by_site else np.ones(n)])
    expected = refitted_beside(X, design, 3, scale="scale" in given)
    of_sites = [result.at_site(i) if by_site else result for i in range(2)]
    scored = [Monitor(of).score(table, in_run=True) for of, table in zip(of_sites, tables, strict=True)]
    t2, spe = np.concatenate([own.t2 for own in scored]), np.concatenate([own.spe for own in scored])
    for found, by_hand, tolerance in zip((t2, spe), expected, close, strict=True):
        off = np.abs(found / by_hand - 1.0)
        assert np.median(off) < tolerance
        assert off[:3].max() < 20 * tolerance  # rows of extreme age
    grid, rest = BinGrid.for_column_count(d), result.left_out_variance_ * (n - 1) / (n - 1 - result.adjusted_degrees_)
    for counts, values in zip(result.histograms_, (t2 / 3.0, spe / rest), strict=True):
        assert counts.sum() == n
        assert np.abs(np.cumsum(counts - grid.count_values(values))).max() <= 2


def test_adjusted_neighbors_are_left_out_together_as_by_a_fit_without_them():
    tables, X, A, _ = with_covariates(100, 30, sites=1)
    design = np.column_stack([A, np.ones(100)])
    result = simulate("krylov", tables, n_components=3, adjust="age,sex", tol=1e-12)
    data = result._rows_in_frame(tables[0])
    _, s, V = np.linalg.svd(X - design @ np.linalg.lstsq(design, X, rcond=None)[0], full_matrices=False)
    values = s[:4] ** 2
    without = LeaveOneOut(
        W=V[:4].T, values=values, k=3, mean_rest=float(np.mean(s[4:] ** 2)), n=100, centered=True, removed=2,
        hat=hat_root(data, result.covariate_inverse_, 100),
    )  # fmt: skip
    t2, spe = (np.concatenate(a) for a in zip(*without.distances(data.dense(), 3), strict=True))
    by_hand = refitted_beside(X, design, 3, around=3)
    for found, expected, tolerance in ((t2, by_hand[0], 0.01), (spe, by_hand[1], 5e-3)):
        assert np.median(np.abs(found / expected - 1.0)) < tolerance


def test_a_row_that_its_covariates_fit_alone_is_counted_nowhere():
    tables, _, _, _ = with_covariates(60, 10)
    tables[1] = tables[1].assign(alone=0.0)
    tables[0] = tables[0].assign(alone=(np.arange(30) == 4).astype(float))
    result = simulate("krylov", tables, n_components=2, monitor=True, adjust="age,alone")
    assert list(result.histograms_.sum(axis=1)) == [59.0, 59.0]
    scored = Monitor(result).score(tables[0], in_run=True)
    assert list(np.flatnonzero(np.isnan(scored.t2))) == list(np.flatnonzero(np.isnan(scored.spe))) == [4]


@pytest.mark.parametrize("mask", [False, True])
def test_nodes_count_adjusted_rows_as_a_loop_in_process_does(mask):
    tables, _, _, _ = with_covariates(90, 12, sites=3)
    asked = {"n_components": 2, "monitor": True, "adjust": "age,sex,site", "tol": 1e-12}
    expected = simulate("krylov", tables, **asked)
    with in_a_run():
        result = PCAStrategy("krylov", mask=mask, min_nodes=3, **asked).fit(
            grid_of(tables, covariates="age,sex", allow=["krylov", "monitor"])
        )
    np.testing.assert_array_equal(result.histograms_, expected.histograms_)


def test_neighbors_are_left_out_together_as_by_a_fit_without_them():
    X = rows_with_structure(100, 60)
    Y = X - X.mean(axis=0)
    _, s, V = np.linalg.svd(Y, full_matrices=False)
    without = LeaveOneOut(
        W=V[:4].T, values=s[:4] ** 2, k=3, mean_rest=float(np.mean(s[4:99] ** 2)), n=100, centered=True
    )
    t2, spe = map(np.concatenate, zip(*without.distances(iter(np.array_split(Y, 7)), 3), strict=True))
    by_hand = refitted(X, 3, around=3)
    assert np.median(np.abs(t2 / by_hand[0] - 1.0)) < 0.01
    assert np.median(np.abs(spe / by_hand[1] - 1.0)) < 2e-3
    whole = [np.concatenate(part) for part in zip(*without.distances(iter([Y]), 3), strict=True)]
    np.testing.assert_allclose([t2, spe], whole, rtol=1e-9)


@pytest.mark.parametrize("centered", [True, False])
def test_without_neighbors_both_formulas_are_the_same(centered):
    X = rows_with_structure(40, 12)
    Y = X - X.mean(axis=0) if centered else X
    _, s, V = np.linalg.svd(Y, full_matrices=False)
    without = LeaveOneOut(
        W=V[:4].T, values=s[:4] ** 2, k=3, mean_rest=float(np.mean(s[4:] ** 2)), n=40, centered=centered
    )
    lines = without._rows_of_F(0, len(Y))
    alone = without._distances_without_row(Y, lines)
    for i in range(40):
        np.testing.assert_allclose(
            np.ravel(without._distances_without_neighbors(Y, lines, i, i + 1, 0)), [a[i] for a in alone], rtol=1e-9
        )


def in_time(n, correlation, seed):
    """Scores of a stationary autoregression."""
    rng = np.random.default_rng(seed)
    T = rng.standard_normal((n, 3))
    for i in range(1, n):
        T[i] = correlation * T[i - 1] + np.sqrt(1.0 - correlation**2) * T[i]
    return T


def test_rows_belong_together_if_their_scores_are_correlated():
    assert [dependent_neighbors(in_time(300, 0.0, seed)) for seed in range(20)] == [0] * 20
    few, many = (np.mean([dependent_neighbors(in_time(300, a, seed)) for seed in range(10)]) for a in (0.5, 0.9))
    assert 1 <= few < many <= 300 / 8
    assert dependent_neighbors(np.ones((30, 2))) == dependent_neighbors(np.ones((1, 2))) == 0


def test_a_run_says_that_rows_were_left_out_with_their_neighbors():
    T = in_time(300, 0.9, 3) * [6.0, 4.0, 3.0]
    X = T @ np.linalg.qr(np.random.default_rng(1).standard_normal((20, 3)))[0].T
    X += np.random.default_rng(2).standard_normal(X.shape)
    result = simulate("krylov", np.array_split(X, 2), n_components=3, monitor=True)
    assert any("300 rows resemble the rows before and after them" in words for words in result.decisions)
    shuffled = np.random.default_rng(4).permutation(X)
    other = simulate("krylov", np.array_split(shuffled, 2), n_components=3, monitor=True)
    assert not any("resemble" in words for words in other.decisions)
    assert Monitor(result).limits().spe > Monitor(other).limits().spe


def test_the_same_rows_at_other_sites_give_the_same_counts():
    X = rows_with_structure(200, 30)
    two, other = (simulate("krylov", np.split(X, [at]), n_components=3, monitor=True) for at in (60, 150))
    shifted = np.abs(np.cumsum(two.histograms_ - other.histograms_, axis=1)).max()
    assert shifted <= 1  # Rounding may move a row over the end of a bin.


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("n", "d"), [(90, 300), (150, 60), (20, 50)])
def test_new_rows_lie_beyond_as_often_as_the_level_says(n, d, masked):
    beyond = []
    for seed in range(2 if masked else 12):
        X = rows_with_structure(n + 2000, d, seed)
        result = simulate("krylov", np.array_split(X[:n], 3), n_components=3, monitor=True, mask=masked)
        monitor = Monitor(result)
        limits, scored = monitor.limits(0.95), monitor.score(X[n:])
        beyond.append([np.mean(scored.t2 > limits.t2), np.mean(scored.spe > limits.spe)])
    low, high = (0.02, 0.1) if not masked else (0.005, 0.2)
    assert (np.mean(beyond, axis=0) > low).all()
    assert (np.mean(beyond, axis=0) < high).all()


# Quantiles from counts.


def test_limits_are_order_statistics_where_enough_rows_lie_beyond():
    values = np.random.default_rng(1).gamma(8.0, 1.0 / 8.0, 1999)
    counts = BinGrid(True).count_values(values)
    for level in (0.5, 0.9, 0.99):
        place = int(np.ceil(2000 * level - 1e-9))
        assert not quantiles.is_extended(counts, level)
        assert quantiles.limit_at(counts, level) == pytest.approx(
            np.sort(values)[place - 1], rel=2.0 ** (1 / 256) - 1.0
        )


def test_beyond_them_they_continue_the_tail_by_a_law_with_the_moments_of_the_values():
    values = np.random.default_rng(2).gamma(8.0, 1.0 / 8.0, 99)
    counts = BinGrid(True).count_values(values)
    assert quantiles.is_extended(counts, 0.99)
    skewness = max(stats.skew(values), 2.0 * values.std() / values.mean())
    law = stats.pearson3(skewness, loc=values.mean(), scale=values.std())
    higher = stats.norm.cdf(stats.t(98).ppf(0.99) * np.sqrt(1.0 + 1.0 / 99.0))
    expected = np.sort(values)[94] * law.ppf(higher) / law.ppf(0.95)
    assert quantiles.limit_at(counts, 0.99) == pytest.approx(expected, rel=5e-3)


def test_limits_from_few_rows_are_called_a_guess():
    few, many = (
        Monitor(simulate("krylov", [rows_with_structure(n, 8)], n_components=3, monitor=True)) for n in (60, 600)
    )
    assert few.limits(0.99).words.endswith("is a guess")
    assert "guess" not in many.limits(0.99).words
    assert many.limits(0.999).words.endswith("is a guess unless the rows are normally distributed")


def test_where_rows_vary_alone_along_a_component_t2_has_no_limit_and_everything_says_so(tmp_path, capsys):
    """Five rows of many columns have four components. Without one of the rows, there are only three."""
    from flower_pca import cli
    from flower_pca.plots import monitored

    X = np.random.default_rng(0).standard_normal((5, 15))
    result = simulate("krylov", [X[:2], X[2:]], n_components=4, monitor=True)
    monitor = Monitor(result)
    limits = monitor.limits()
    assert limits.t2 == np.inf
    assert "T2 has no limit" in str(limits)
    assert "Use fewer components" in limits.words
    path, rows = result.save(tmp_path / "result.npz"), tmp_path / "rows.npy"
    np.save(rows, X + 1.0)
    for asked in (["show", str(path)], ["score", str(path), str(rows)]):
        assert cli.main([*asked, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["limits"]
        assert (told["t2"], told["spe"]) == (None, limits.spe)
        assert cli.main(asked) == 0
        said = capsys.readouterr().out
        assert "T2 has no limit" in said
        assert "inf" not in said
    unusual = sites.most_unusual_rows(result, [X[:2], X[2:]])
    assert unusual is not None
    assert all(np.isfinite([row.t2, row.spe]).all() for row in unusual.rows)
    picture = monitored.spe_against_t2({"new": monitor.score(X + 1.0)}, limits, tmp_path / "rows.svg")
    assert picture.stat().st_size


def test_where_components_leave_out_rounding_errors_alone_spe_has_no_limit():
    """In single precision, rounding errors are so small beside what rows leave out that no bin holds the ratio."""
    for n in range(3, 12):
        X = np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32)
        limits = Monitor(simulate("krylov", [X[:1], X[1:]], n_components=2, scale="std", monitor=True)).limits()
        assert not np.isnan([limits.t2, limits.spe]).any()
        assert ("SPE has no limit" in limits.words) == np.isinf(limits.spe)
        assert "inf" not in str(limits)
        json.dumps(limits.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("n", "level", "is_known"),
    [(2, 0.95, False), (2, 0.99, False), (3, 0.99, True), (3, 0.999, False), (5, 0.999, True)],
)
def test_where_rows_are_too_few_for_the_level_there_is_no_limit_and_the_words_give_this_reason(n, level, is_known):
    """Two rows are equally far from their mean, so only rounding would decide about a limit from these distances."""
    for seed in range(8):
        X = np.random.default_rng([seed, n]).standard_normal((n, 6))
        result = simulate("krylov", [X[:1], X[1:]], n_components=1, monitor=True)
        monitor = Monitor(result)
        limits = monitor.limits(level)
        assert np.isfinite(limits.t2) == is_known
        assert "no other row varies" not in limits.words
        assert "leave out nothing" not in limits.words
        assert ("is a guess" in limits.words) == is_known
        assert (f"{n} rows are too few for a limit at this level. Use limits from theory" in limits.words) != is_known
        assert np.isfinite(monitor.limits(level, source="theory").t2)


def test_limits_from_theory_with_few_rows_are_called_a_guess_and_name_monitor():
    few, many = (Monitor(simulate("krylov", [rows_with_structure(n, 20)], n_components=3)) for n in (99, 101))
    assert "a guess" in few.limits().words
    assert "run with monitor" in few.limits().words
    assert "guess" not in many.limits().words


def test_a_file_from_before_says_that_its_components_know_the_rows(tmp_path):
    result = simulate("krylov", [rows_with_structure(60, 20)], n_components=3, monitor=True)
    path = result.save(tmp_path / "result.npz")
    header, arrays = files.read(path, "result")
    del header["histograms_of"]
    old = PCAResult.load(files.write(tmp_path / "old.npz", "result", header, arrays))
    assert old.histograms_of == "rows"
    assert "which the components were fitted to" in Monitor(old).limits().words
    assert "run again with monitor" in Monitor(old).limits().words


def test_rows_of_a_run_that_lie_furthest_out_are_scored_without_themselves():
    X = rows_with_structure(90, 200)
    X[5, 7] += 9.0
    result = simulate("krylov", np.array_split(X, 2), n_components=3, monitor=True)
    found = sites.most_unusual_rows(result, np.array_split(X, 2))
    assert found is not None
    first = found.rows[0]
    assert (first.site, first.row) == (0, 5)
    assert first.why.startswith("column 7")
    monitor = Monitor(result)
    own = monitor.score(np.array_split(X, 2)[0], in_run=True)
    assert first.spe == pytest.approx(own.spe[5] / monitor.limits().spe)
    assert own.spe[5] > 1.05 * monitor.score(X[:45]).spe[5]


def test_own_rows_of_components_that_are_no_eigenvectors_are_refused():
    result = simulate("sparse_pca", [rows_with_structure(60, 12)], n_components=2)
    with pytest.raises(ConfigError, match="Leave out in_run=True"):
        Monitor(result).score(rows_with_structure(60, 12), in_run=True)


# Scores of new rows.


def test_shrinkage_is_the_factor_by_which_scores_of_new_rows_are_smaller():
    ratios, divided, factors = [], [], []
    for seed in range(12):
        X = rows_with_structure(90 + 400, 600, seed, deviations=(16.0, 11.0, 8.0))
        result = simulate("krylov", np.array_split(X[:90], 2), n_components=3)
        spread = result.transform(X[:90]).std(axis=0)
        ratios.append(result.transform(X[90:]).std(axis=0) / spread)
        divided.append(result.project(X[90:]).std(axis=0) / spread)
        factors.append(result.shrinkage_)
    assert np.mean(ratios, axis=0)[2] < 0.93
    np.testing.assert_allclose(np.mean(divided, axis=0), 1.0, atol=0.05)
    total, v = result.left_out_variance_, result.explained_variance_
    np.testing.assert_allclose(factors[-1], 1.0 / (1.0 + total / (89.0 * (v - total / 86.0))), rtol=1e-12)


def test_project_is_the_same_of_a_result_its_record_and_the_estimator():
    pytest.importorskip("sklearn")
    from flower_pca import FederatedPCA
    from flower_pca.results.projection import Projection

    shards = np.array_split(rows_with_structure(60, 100), 2)
    result, new = simulate("krylov", shards, n_components=3), rows_with_structure(10, 100, seed=5)
    same = Projection.from_record(result.to_record())
    np.testing.assert_array_equal(same.project(new), result.project(new))
    np.testing.assert_array_equal(result.project(new), result.transform(new) / result.shrinkage_)
    estimator = FederatedPCA(3, algorithm="krylov").fit(shards)
    np.testing.assert_array_equal(estimator.project(new), estimator.result_.project(new))


def test_new_rows_close_to_the_center_are_reported(tmp_path, capsys):
    from flower_pca import cli

    wide, narrow = (simulate("krylov", [rows_with_structure(n, d)], n_components=3) for n, d in ((60, 300), (900, 12)))
    assert min(narrow.shrinkage_) > 0.95
    assert not narrow.shrinkage_hint
    assert "new rows" not in narrow.summary().components.heads
    assert wide.shrinkage_hint in [remark.words for remark in wide.summary().remarks]
    shrunk = f"by {1.0 - wide.shrinkage_[2]:.0%} along component 3"
    assert shrunk in wide.shrinkage_hint
    heads, lines = wide.summary().components
    assert [line[heads.index("new rows")] for line in lines] == [f"{f:.2f}" for f in wide.shrinkage_]
    path, rows = wide.save(tmp_path / "result.npz"), tmp_path / "new.npy"
    np.save(rows, rows_with_structure(20, 300, seed=8))
    given = ["transform", str(path), str(rows), "-o", str(tmp_path / "scores.npy")]
    assert cli.main(given) == 0
    assert shrunk in capsys.readouterr().out
    assert cli.main([*given, "--among-own"]) == 0
    assert shrunk not in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), wide.project(np.load(rows)))
    assert cli.main(["score", str(path), str(rows)]) == 0
    assert shrunk in capsys.readouterr().out
    assert cli.main(["show", str(path), "--json"]) == 0
    assert wide.shrinkage_hint in json.loads(capsys.readouterr().out)["hints"]


@pytest.mark.parametrize(
    ("algorithm", "given"), [("sparse_pca", {}), ("krylov", {"max_share": 0.5}), ("median_pca", {})]
)
def test_shrinkage_is_known_of_eigenvectors_of_all_rows_only(algorithm, given):
    result = simulate(algorithm, np.array_split(rows_with_structure(90, 12), 3), n_components=2, **given)
    assert result.shrinkage_ is None
    with pytest.raises(ConfigError, match="Use transform instead of project"):
        result.project(rows_with_structure(5, 12))
