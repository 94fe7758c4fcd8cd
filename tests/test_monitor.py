"""Test T2 and SPE against a pooled computation, and limits from theory and from the clients' rows."""

from __future__ import annotations

import numpy as np
import pytest
from builders import StopError, gone_on, pooled
from cases import every
from fake_grid import arrays_in, grid_of, with_arrays
from results import assert_same_bits
from scipy import stats

from flower_pca import NotEnoughNodes, PCAConfig, PCAResult, ProtocolError, Table, make, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.audit.sentences import disclosures_of
from flower_pca.clients import Rules
from flower_pca.core.model import Model
from flower_pca.rows.local import LocalData
from flower_pca.stages import histograms
from flower_pca.strategies import PCAStrategy

BIN = 2.0 ** (1.0 / 16)  # the end of a bin over its beginning
pytestmark = pytest.mark.usefixtures("lines")
DEVIATIONS = np.array([9.0, 6.0, 4.0, 1.5, 1.2, 1.0, 0.7, 0.5])
SHARDS = [
    np.random.default_rng(seed).standard_normal((n, 8)) * DEVIATIONS + 3.0 for seed, n in enumerate((400, 250, 150))
]
NEW = np.random.default_rng(9).standard_normal((60, 8)) * 1.5 * DEVIATIONS + 3.0
FRAMES = {
    "centered": {},
    "scaled": {"scale": "std"},
    "by the largest": {"scale": "max_abs"},
    "not centered": {"center": False},
}


def tenth_missing(rows, seed):
    return np.where(np.random.default_rng(seed).random(rows.shape) < 0.1, np.nan, rows)


def distances_by_hand(rows, new, k, *, center=True, scale=None):
    """T2 and SPE of new rows from LAPACK's SVD of all rows."""
    reference = pooled([rows], center, scale)
    V, variances = reference.components[:k], reference.variances[:k]
    x = (new - reference.mean) / (1.0 if reference.scale is None else reference.scale)
    t = x @ V.T
    return np.sum(t**2 / variances, axis=1), np.sum((x - t @ V) ** 2, axis=1)


def of_frame(case, **more):
    return simulate("krylov", SHARDS, n_components=3, tol=1e-13, **FRAMES[case], **more)


@every("case", FRAMES)
def test_both_statistics_are_those_of_a_pooled_computation(case):
    scored = Monitor(of_frame(case)).score(NEW)
    t2, spe = distances_by_hand(np.vstack(SHARDS), NEW, 3, **FRAMES[case])
    np.testing.assert_allclose(scored.t2, t2, rtol=1e-10)
    np.testing.assert_allclose(scored.spe, spe, rtol=1e-10)


def test_missing_values_count_as_the_mean_of_their_column():
    shards, new = [tenth_missing(X, i) for i, X in enumerate(SHARDS)], tenth_missing(NEW, 7)
    result = simulate("krylov", shards, n_components=3, tol=1e-13, missing="mean")
    rows = np.vstack(shards)
    whole = [np.where(np.isnan(X), np.nanmean(rows, axis=0), X) for X in (rows, new)]
    t2, spe = distances_by_hand(*whole, 3)
    scored = Monitor(result).score(new)
    np.testing.assert_allclose(scored.t2, t2, rtol=1e-10)
    np.testing.assert_allclose(scored.spe, spe, rtol=1e-10)


def test_contributions_are_never_negative_and_add_up():
    monitor = Monitor(of_frame("scaled"))
    scored, (t2, spe) = monitor.score(NEW), monitor.contributions(NEW)
    assert t2.min() >= 0.0
    assert spe.min() >= 0.0
    np.testing.assert_allclose(t2.sum(axis=1), scored.t2, rtol=1e-12)
    np.testing.assert_allclose(spe.sum(axis=1), scored.spe, rtol=1e-12)


def test_a_column_that_is_moved_contributes_most():
    result, row = of_frame("centered"), np.full((1, 8), 3.0)
    row[0, 6] = 30.0
    monitor = Monitor(result)
    found = monitor.anomalies({"north": row}, monitor.limits(), top=2)
    assert [(a.site, a.row, a.statistic, a.largest[0][0]) for a in found] == [("north", 0, "SPE", "column 6")]
    assert found[0].because == "column 6 100%"
    assert found[0].value > found[0].limit == monitor.limits().spe
    row[0, [0, 6]] = 60.0, 3.0
    (found,) = [a for a in monitor.anomalies([NEW[:3], row], monitor.limits()) if a.site == 1]
    assert (found.statistic, found.row, found.largest[0][0]) == ("T2", 0, "column 0")


# Limits from theory.


@pytest.mark.slow
@pytest.mark.parametrize("centered", [True, False])
def test_the_limit_of_t2_from_theory_is_kept_to_by_normal_rows_however_few_the_run_had(centered):
    rng, kept, n = np.random.default_rng(3), {True: [], False: []}, 12
    for _ in range(250):
        rows, new = (rng.standard_normal((size, 3)) * [3.0, 2.0, 1.0] for size in (n, 20))
        monitor = Monitor(simulate("krylov", [rows], n_components=3, center=centered))
        for trained, scored in ((True, rows), (False, new)):
            limit = monitor.limits(0.9, source="theory", trained=trained).t2
            kept[trained].append(np.mean(monitor.score(scored).t2 <= limit))
    for each in kept.values():
        assert np.mean(each) == pytest.approx(0.9, abs=0.015)


def test_the_limit_of_spe_is_exact_where_all_directions_left_out_have_one_variance():
    result = simulate("krylov", [np.vstack([np.diag([9.0, 5.0, 2.0, 2.0, 2.0]), -np.diag([9.0, 5.0, 2.0, 2.0, 2.0])])],
                      n_components=2)  # fmt: skip
    variances = 2.0 * np.array([9.0, 5.0, 2.0, 2.0, 2.0]) ** 2 / 9.0
    trained = Monitor(result).limits(0.95, source="theory", trained=True)
    assert trained.spe == pytest.approx(variances[2] * stats.chi2(3).ppf(0.95), rel=1e-10)
    # New rows: the scores that shrink along the components show up beside them.
    factors = 1.0 / (1.0 + 3.0 * variances[2] / (9.0 * (variances[:2] - variances[2])))
    left = 1.1 * (variances.sum() - factors**2 @ variances[:2])
    limits = Monitor(result).limits(0.95, source="theory")
    assert limits.spe == pytest.approx(left / 3.0 * stats.chi2(3).ppf(0.95), rel=1e-10)
    f = 2 * 9 / (10 - 2) * 1.1 * stats.f(2, 8).ppf(0.95)
    assert limits.t2 == pytest.approx(f * np.mean(factors**2), rel=1e-10)
    assert "same variance in each of 3 remaining directions" in limits.words


def test_components_beyond_those_in_use_make_the_limit_of_spe_that_of_box():
    result = simulate("krylov", SHARDS, n_components=8, tol=1e-13)
    limits = Monitor(result, n_components=3).limits(0.99, source="theory")
    left = pooled(SHARDS).variances[3:]
    g, h = np.sum(left**2) / left.sum(), left.sum() ** 2 / np.sum(left**2)
    trained = Monitor(result, n_components=3).limits(0.99, source="theory", trained=True)
    assert trained.spe == pytest.approx(g * stats.chi2(h).ppf(0.99), rel=1e-9)
    assert trained.spe < limits.spe < 1.01 * trained.spe
    assert limits.words == "theory for new rows with a normal distribution"
    least = Monitor(simulate("krylov", SHARDS, n_components=3)).limits(0.99, source="theory").spe
    assert least < limits.spe
    rows = np.random.default_rng(5).standard_normal((20_000, 8)) * DEVIATIONS + 3.0
    assert np.mean(Monitor(result, n_components=3).score(rows).spe <= limits.spe) == pytest.approx(0.99, abs=0.005)


def test_where_components_explain_all_only_more_than_rounding_is_beyond():
    rows = np.vstack(SHARDS)[:, :2] @ np.random.default_rng(1).standard_normal((2, 5))
    result = simulate("krylov", np.array_split(rows, 3), n_components=4, monitor=True)
    for source in ("theory", "clients"):
        monitor = Monitor(result)
        assert monitor.n_components == 2
        limits = monitor.limits(source=source)
        assert not np.any(monitor.score(rows).spe > limits.spe)
        assert np.all(monitor.score(rows + 0.1 * np.eye(5)[0]).spe > limits.spe)


# Limits from the clients' own rows.


def pooled_quantiles(result, shards, level):
    """The quantiles of T2 and SPE of all rows along the components of a result; gaps are the mean of their column."""
    rows = np.vstack(shards)
    centered = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows) - result.mean_
    scores = centered @ result.components_.T
    t2 = np.sum(scores**2 / result.explained_variance_, axis=1)
    spe = np.sum((centered - scores @ result.components_) ** 2, axis=1)
    return [np.quantile(values, level, method="inverted_cdf") for values in (t2, spe)]


def assert_within_a_bin(limits, quantiles):
    for limit, quantile in zip((limits.t2, limits.spe), quantiles, strict=True):
        assert quantile / BIN <= limit <= quantile * BIN


@pytest.mark.parametrize("missing", ["error", "mean", "local_mean"])
def test_limits_of_components_that_are_no_eigenvectors_are_quantiles_of_the_rows_that_made_them(missing):
    shards = SHARDS if missing == "error" else [tenth_missing(X, i) for i, X in enumerate(SHARDS)]
    cut = {"n_components": 3, "missing": missing, "monitor": True, "max_rounds": 1}
    result = simulate("ssi(oversample=0)", shards, **cut)
    assert result.histograms_of == "rows"
    if missing == "local_mean":
        shards = [np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in shards]
    limits = Monitor(result).limits(0.95)
    assert_within_a_bin(limits, pooled_quantiles(result, shards, 0.95))
    assert "which the components were fitted to; new rows exceed the limits more often" in limits.words


def both(limits):
    return [limits.t2, limits.spe]


@pytest.mark.slow
def test_masks_and_nodes_give_the_same_counts():
    plain = of_frame("scaled", monitor=True, reconstruction_error=True)
    config = PCAConfig(make("krylov", tol=1e-13), n_components=3, scale="std", monitor=True, reconstruction_error=True)
    over_flower = PCAStrategy(config, min_nodes=3).fit(grid_of(SHARDS))
    assert_same_bits(over_flower, plain)
    np.testing.assert_array_equal(over_flower.histograms_, plain.histograms_)
    masked = of_frame("scaled", monitor=True, mask=True)
    assert masked.histograms_.sum(axis=1).tolist() == [800.0, 800.0]
    shifted = np.abs(np.cumsum(masked.histograms_ - plain.histograms_, axis=1)).max()
    assert shifted <= 2  # Rounding may move a row over the end of a bin.
    masks = {"n_components": 3, "scale": "std", "monitor": True, "mask": True, "min_nodes": 3}
    same = PCAStrategy("krylov(tol=1e-13)", **masks).fit(grid_of(SHARDS))
    np.testing.assert_allclose(both(Monitor(same).limits(0.9)), both(Monitor(plain).limits(0.9)), rtol=0.01)


def test_the_counts_of_a_result_are_saved(tmp_path):
    result = of_frame("centered", monitor=True)
    loaded = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert Monitor(loaded).limits() == Monitor(result).limits()
    assert loaded.histograms_of == "left out"
    words = "all 800 rows, each scored with components computed without it; valid for new rows of the same sites"
    assert words in str(Monitor(loaded).limits())
    plain = PCAResult.load(of_frame("centered").save(tmp_path / "plain.npz"))
    assert plain.histograms_ is None
    assert Monitor(plain).limits().words.startswith("theory for new rows with a normal distribution")


def test_limits_say_which_sites_had_no_part_in_the_run():
    named = dict(zip(("bonn", "jena", "ulm"), SHARDS, strict=True))
    result = simulate("krylov", named, n_components=3, monitor=True)
    monitor = Monitor(result)
    said = "no site of the run is called kiel. Of the rows of a site that took no part, more exceed a limit"
    for source in ("clients", "theory"):
        plain = monitor.limits(source=source)
        assert "no site of the run" not in plain.words
        assert monitor.limits(source=source, sites=named) == plain
        other = monitor.limits(source=source, sites={"jena": SHARDS[1], "kiel": NEW})
        assert other.words.startswith(f"{plain.words}; {said}")
        assert both(other) == both(plain)
    nameless = Monitor(simulate("krylov", SHARDS, n_components=3))
    assert nameless.limits(sites=["kiel"]) == nameless.limits()


# What is refused.


def test_nodes_serve_the_counts_only_if_their_operator_has_named_them():
    settings = {"n_components": 3, "monitor": True, "min_nodes": 3}
    words = (
        r"monitor compare single rows, so this node sends them only if its rule allow names monitor\. Ask the node's "
        "operator"
    )
    grid = grid_of(SHARDS, allow=None)
    with pytest.raises(NotEnoughNodes, match=words):
        PCAStrategy("krylov", **settings).fit(grid)
    assert set(grid.counts.values()) == {1}  # The counts are not asked for again at the end of the run.
    with pytest.raises(NotEnoughNodes, match=r"This node does not serve monitor\. It serves krylov"):
        PCAStrategy("krylov", **settings).fit(grid_of(SHARDS, allow=["krylov"]))
    result = PCAStrategy("krylov", **settings).fit(grid_of(SHARDS, allow=["krylov", "monitor"]))
    assert result.histograms_ is not None


def test_a_server_that_does_not_say_so_gets_none_either():
    grid = grid_of(SHARDS, allow=["krylov"])
    config = PCAConfig(make("krylov"), n_components=3, monitor=True, min_nodes=3)
    strategy = PCAStrategy(config)

    def silent(message):
        config = next(iter(message.content.config_records.values()))
        config["algorithm"] = "krylov"

    grid.on_push = silent
    with pytest.raises(NotEnoughNodes, match=r"does not serve monitor\. It serves krylov"):
        strategy.fit(grid)


def test_what_a_node_tells_by_it_is_on_its_operators_page():
    page = disclosures_of(Rules(allow=["krylov", "monitor"]))
    assert page.served["monitor"] == (
        "the number of rows at each distance from a basis that the server chooses; "
        "how many rows resemble the rows before and after them"
    )
    assert any(
        "compare rows by design" in line and line.endswith("too: monitor. To prevent this, leave them out of allow.")
        for line in page.open
    )


def test_a_client_that_counts_more_rows_than_it_has_is_refused():
    def more(message, reply):
        arrays = arrays_in(reply)
        return with_arrays(reply, {**arrays, "counts": 2.0 * arrays["counts"]}) if "counts" in arrays else reply

    grid = grid_of(SHARDS)
    grid.tamper = more
    with pytest.raises(
        NotEnoughNodes, match=r"counts in the answer of client .* has entries that are larger than its own rows allow"
    ):
        PCAStrategy("krylov", n_components=3, monitor=True, min_nodes=3).fit(grid)


def test_a_run_that_is_interrupted_before_the_counts_goes_on(tmp_path):
    def stop(run):
        if run.history[-1].stage == "evaluate":
            raise StopError

    asked = {"monitor": True, "reconstruction_error": True}
    result = gone_on(of_frame, "scaled", path=tmp_path / "state.npz", stop=stop, **asked)
    np.testing.assert_array_equal(result.histograms_, of_frame("scaled", monitor=True).histograms_)


def test_one_table_is_that_of_one_site():
    monitor = Monitor(of_frame("centered", monitor=True))
    limits = monitor.limits(0.9)
    found = monitor.anomalies(NEW, limits)
    assert found
    assert found == monitor.anomalies([NEW], limits) == monitor.anomalies({0: NEW}, limits)
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(NEW, columns=list("abcdefgh"))
    named = Monitor(simulate("krylov", [pd.DataFrame(X, columns=frame.columns) for X in SHARDS], n_components=3))
    whole = named.anomalies(frame, named.limits(0.9))
    assert whole == named.anomalies([frame], named.limits(0.9))
    assert {name for anomaly in whole for name, _ in anomaly.largest} <= set(frame)
    assert {a.site for a in named.anomalies(Table(NEW, tuple(frame), site="north"), named.limits(0.9))} == {"north"}


def test_rows_with_names_are_matched_by_them():
    pd = pytest.importorskip("pandas")
    names = list("hgfedcba")
    frames = [pd.DataFrame(X, columns=names) for X in SHARDS]
    result = simulate("krylov", [frames[0], frames[1][sorted(names)], frames[2]], n_components=3, tol=1e-13)
    monitor, new = Monitor(result), pd.DataFrame(NEW, columns=names)
    plain = Monitor(of_frame("centered"))
    np.testing.assert_allclose(monitor.score(new[sorted(names)]).t2, plain.score(NEW).t2, rtol=1e-10)
    np.testing.assert_allclose(monitor.score(new).spe, plain.score(NEW).spe, rtol=1e-10)
    new.loc[3, "b"] += 40.0
    (found,) = monitor.anomalies({"north": new[3:4]}, monitor.limits())
    assert (found.statistic, found.largest[0][0]) == ("SPE", "b")


def test_a_column_called_site_names_no_site():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(NEW, columns=[*"abcdefg", "site"])
    monitor = Monitor(simulate("krylov", [pd.DataFrame(X, columns=frame.columns) for X in SHARDS], n_components=3))
    found = monitor.anomalies(frame, monitor.limits(0.9))
    assert {anomaly.site for anomaly in found} == {0}
    assert found == monitor.anomalies({0: frame}, monitor.limits(0.9))


def test_a_level_may_have_a_percent_sign():
    monitor = Monitor(of_frame("centered"))
    assert monitor.limits("99%") == monitor.limits(0.99)


def test_counts_that_are_none_are_refused():
    stage = histograms.Histograms()
    state = stage.start(finished_model())
    good = {"counts": np.ones((2, 642)), "neighbors": np.array(0.0)}
    stage.inspect(state, good)
    stage.inspect(state, {**good, "neighbors": np.array(642.0)})
    for bad in (-good["counts"], good["counts"] / 2.0, good["counts"] * [[1.0], [2.0]]):
        with pytest.raises(
            ProtocolError, match="The counts of an answer are not whole numbers, or they cover different"
        ):
            stage.inspect(state, {**good, "counts": bad})
    with pytest.raises(ProtocolError, match="The counts of an answer are not whole numbers, or they cover different"):
        stage.inspect(state, {**good, "neighbors": np.array(3.0)})


def finished_model():
    """A run that has found all three components of three columns."""
    values = np.array([9.0, 4.0, 1.0])
    return Model(
        n_components=3, center=True, scale=None, seed=0, n=10, d=3, trace=14.0,
        basis=np.eye(3), product=np.diag(values), values=values, residuals=np.zeros(3),
    )  # fmt: skip


def test_a_message_whose_shapes_do_not_go_together_is_refused():
    stage = histograms.Histograms()
    message = stage.broadcast(stage.start(finished_model()))
    rows = LocalData(np.random.default_rng(1).standard_normal((10, 3)))
    assert stage.client(message, rows, {})[0]["counts"].sum() == 20.0
    for wrong in (
        {"Z": np.eye(4)[:, :3]},
        {"values": np.ones(2)},
        {"variances": np.ones(4)},
        {"variances": np.empty(0)},
        {"values": np.empty(0), "variances": np.ones(2)},
        {"rows": np.array(9.0)},  # fewer than the client has itself
    ):
        with pytest.raises(ProtocolError, match="A message for monitor needs components of 3 columns"):
            stage.client({**message, **wrong}, rows, {})


@pytest.mark.parametrize("d", [5, 101])
def test_every_value_has_a_bin_and_few_columns_have_wide_ones(d):
    grid = histograms.BinGrid.for_column_count(d)
    values = np.array([0.0, 2.0**-30, 0.5, 1.0, 3.0, 2.0**25, np.inf])
    counts = grid.count_values(values)
    assert counts.sum() == len(values)
    assert counts[[0, -1]].tolist() == [2.0, 2.0]
    assert histograms.BinGrid.from_counts(counts) == grid
    widths = grid.edges[1:] / grid.edges[:-1]
    near = (grid.edges[1:] <= 4.0) & (grid.edges[:-1] >= 0.25)
    np.testing.assert_allclose(widths[near], 2.0 ** (1.0 / (16 if d <= 100 else 256)))
    np.testing.assert_allclose(widths[~near], 2.0 ** (1.0 / 16))
    assert grid.bins == (642 if d <= 100 else 1602)
