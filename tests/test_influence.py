"""What the components would be without each client: against the SVD of the pooled rows of the others."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import pooled
from cases import every
from fake_grid import grid_of
from results import assert_same_bits

from benchmarks import influence as bench
from flower_pca import PCAResult, ProtocolError, simulate
from flower_pca.analysis.influence import cheap, influence, of_rows, warnings
from flower_pca.base import linalg
from flower_pca.cli import main
from flower_pca.stages.influence import Influence
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")
NAMES = ["age", "hb", "glucose", "sodium", "weight", "height"]
SITES = ("north", "south", "west", "east")
SIZES = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.7])


def rows_of_site(seed, n, sizes=SIZES):
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(np.random.default_rng(99).standard_normal((len(sizes), len(sizes))))[0]
    return (rng.standard_normal((n, len(sizes))) * sizes) @ turned + 3.0


def tables_of_sites(*, units=1.0):
    """Tables of four sites, of which south may measure glucose in other units."""
    found = {name: pd.DataFrame(rows_of_site(i, 60 + 15 * i), columns=NAMES) for i, name in enumerate(SITES)}
    found["south"]["glucose"] *= units
    return found


def measured_without(shards, i, k, *, center=True, scale=None, components=None):
    """The angle, the explained share and the variance of the rows of all others, in the frame of all rows."""
    whole = pooled(shards, center, scale)
    others = np.vstack([X for j, X in enumerate(shards) if j != i]) / (1.0 if whole.scale is None else whole.scale)
    others = others - others.mean(axis=0) if center else others
    _, s, V = np.linalg.svd(others, full_matrices=False)
    angle = linalg.principal_angles(components.T, V[:k].T)[-1]
    return angle, (s[:k] ** 2).sum() / (s**2).sum(), (s**2).sum() / (len(others) - 1)


FRAMES = {"centred": {}, "scaled": {"scale": "std"}, "not centred": {"center": False}}


OTHERS = [("covariance", "scaled"), ("ssi", "not centred"), ("faps", "scaled")]


@pytest.mark.slow
@every(("algorithm", "frame"), [*(("krylov", frame) for frame in FRAMES), *OTHERS])
def test_each_client_turns_the_components_as_the_pooled_rows_of_the_others_say(algorithm, frame):
    shards = [np.asarray(table) for table in tables_of_sites(units=18.0).values()]
    result = simulate(algorithm, shards, n_components=2, influence=True, **FRAMES[frame])
    found = influence(result)
    assert [one.client for one in found] != [0, 1, 2, 3]
    assert [one.angle for one in found] == sorted((one.angle for one in found), reverse=True)
    for one in found:
        angle, explained, variance = measured_without(
            shards, one.client, 2, **FRAMES[frame], components=result.components_
        )
        assert one.rows == len(shards[one.client])
        assert one.angle == pytest.approx(angle, abs=1e-7)
        assert one.explained == pytest.approx(explained, rel=1e-9)
        assert one.total_variance == pytest.approx(variance, rel=1e-9)
        assert one.doubt < 1e-7


@pytest.mark.slow
def test_in_many_columns_an_angle_is_as_right_as_it_says():
    sizes = 6.0 * np.arange(1, 161.0) ** -0.7
    shards = [rows_of_site(i, 60 + 20 * i, sizes) for i in range(6)]
    shards[3] = rows_of_site(9, 150, sizes[::-1].copy())
    result = simulate("krylov", shards, n_components=4, influence=True)
    assert [record.stage for record in result.history].count("influence") == 3
    for one in influence(result):
        angle, explained, _ = measured_without(shards, one.client, 4, components=result.components_)
        assert abs(one.angle - angle) <= max(one.doubt, 1e-6)
        assert one.angle == pytest.approx(angle, rel=0.02)
        assert one.explained == pytest.approx(explained, rel=1e-3)
    assert influence(result)[0].client == 3


def test_no_more_is_asked_than_the_basis_needs():
    result = simulate("covariance", list(tables_of_sites().values()), n_components=6, influence=True)
    assert [record.stage for record in result.history].count("influence") == 1
    assert max(one.angle for one in influence(result)) < 1e-7  # all six columns are in it, with whom or without
    assert not warnings(result)


def test_a_site_in_other_units_is_named_with_its_column():
    result = simulate("krylov", tables_of_sites(units=18.0), n_components=2, influence=True)
    first = influence(result)[0]
    assert (first.name, first.column, first.far, first.off) == ("south", "glucose", True, True)
    assert 12.0 < first.times < 27.0
    assert not any(one.far for one in influence(result)[1:])
    assert len(warnings(result)) == 1
    assert warnings(result)[0].startswith(
        "south is far off: without south (75 rows) the components turn by 55.1 degrees; the values of glucose lie 26"
    )
    assert warnings(result)[0].endswith("times as far out there as at the other clients, as in other units.")
    nearer = str(replace(first, times=0.01))
    assert nearer.endswith("glucose lie 100 times as near to the mean there as at the other clients, as in other units")


def test_a_column_that_others_never_vary_in_is_said_in_words_and_accuses_nobody_whom_the_components_do_not_miss():
    tables = tables_of_sites()
    for name, table in tables.items():
        table["sodium"] = 140.0 if name != "west" else 140.0 + np.arange(len(table)) % 3
    found = {one.name: one for one in influence(simulate("krylov", tables, n_components=2, influence=True))}
    assert (found["west"].column, found["west"].times, found["west"].far) == ("sodium", np.inf, False)
    assert "inf" not in str(found["west"])
    assert "sodium is one and the same number at all others" in str(found["west"])
    assert not any(one.off for name, one in found.items() if name != "west")


@pytest.mark.slow
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("draw", [bench.mixed, bench.rare], ids=lambda draw: draw.__name__)
def test_clients_that_are_alike_are_not_accused_of_rare_values(draw, scale):
    assert bench.accusing(draw, bench.equal, scale=scale, runs=20) == 0


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [bench.equal, bench.unequal, bench.three], ids=lambda sizes: sizes.__name__)
def test_the_one_in_other_units_is_named_and_no_other(sizes):
    assert bench.found(bench.mixed, sizes, runs=5) == 5


def test_a_column_that_lies_about_zero_is_found_by_its_deviation():
    shards = [rows_of_site(i, 60) - 3.0 for i in range(8)]
    shards[5][:, 2] *= 18.0
    result = simulate("krylov", shards, n_components=2, influence=True)
    assert [(one.client, one.column) for one in influence(result) if one.far] == [(5, "column 2")]


def test_at_most_three_are_named_and_the_others_counted():
    result = simulate("krylov", [rows_of_site(i, 90) for i in range(12)], n_components=2, influence=True)
    assert warnings(result) == []
    figures = result.influence_.copy()
    figures[2:7, 1], figures[2:7, 7] = 1.2, 4.0
    said = warnings(replace(result, influence_=figures))
    assert len(said) == 3
    assert said[-1].endswith(" So are 2 more clients.")


@pytest.mark.slow
@pytest.mark.parametrize("frame", FRAMES)
def test_from_the_rows_it_is_as_from_messages(frame):
    tables = tables_of_sites(units=18.0)
    plain = simulate("krylov", tables, n_components=2, **FRAMES[frame])
    asked = simulate("krylov", tables, n_components=2, influence=True, **FRAMES[frame])
    assert cheap(plain, len(tables))
    found = of_rows(plain, tables.values())
    assert len(found.history) == len(plain.history)
    np.testing.assert_array_equal(found.influence_keys_, asked.influence_keys_)
    np.testing.assert_allclose(found.influence_, asked.influence_, rtol=1e-6, atol=1e-7)
    assert not cheap(simulate("krylov", tables, n_components=2, mask=True), len(tables))


def test_sites_that_are_alike_are_not_far_off():
    result = simulate("krylov", tables_of_sites(), n_components=2, influence=True)
    assert warnings(result) == []
    assert not any(one.far or one.off for one in influence(result))


def test_gaps_count_as_what_stands_for_them():
    shards = [np.asarray(table) for table in tables_of_sites(units=4.0).values()]
    gappy = [np.where(np.random.default_rng(i).random(X.shape) < 0.1, np.nan, X) for i, X in enumerate(shards)]
    for missing in ("mean", "own_mean"):
        result = simulate("krylov", gappy, n_components=2, missing=missing, influence=True)
        means = [np.nanmean(np.vstack(gappy) if missing == "mean" else X, axis=0) for X in gappy]
        filled = [np.where(np.isnan(X), mean, X) for X, mean in zip(gappy, means, strict=True)]
        for one in influence(result):
            angle, explained, _ = measured_without(filled, one.client, 2, components=result.components_)
            assert one.angle == pytest.approx(angle, abs=1e-7)
            assert one.explained == pytest.approx(explained, rel=1e-9)


@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_nodes_answer_as_clients_in_process_do(answers):
    tables = [table.to_numpy() for table in tables_of_sites(units=18.0).values()]
    there = PCAStrategy("krylov", n_components=2, influence=True).fit(grid_of(tables, answers=answers))
    here = simulate("krylov", tables, n_components=2, influence=True, answers=answers)
    np.testing.assert_array_equal(there.influence_, here.influence_)
    np.testing.assert_array_equal(there.influence_keys_, here.influence_keys_)


def test_a_result_keeps_it_in_a_file_and_a_run_goes_on_from_a_checkpoint(tmp_path):
    tables, path = tables_of_sites(units=18.0), tmp_path / "state.npz"
    whole = simulate("krylov", tables, n_components=2, influence=True)

    def stop(run):
        if run.history[-1].stage == "influence":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate("krylov", tables, n_components=2, influence=True, checkpoint=path, on_round=stop)
    resumed = simulate("krylov", tables, n_components=2, influence=True, checkpoint=path)
    assert_same_bits(resumed, whole)
    np.testing.assert_array_equal(resumed.influence_, whole.influence_)
    read = PCAResult.load(whole.save(tmp_path / "result.npz"))
    assert influence(read) == influence(whole)


def test_of_a_single_client_there_is_nothing_to_warn_of():
    tables = tables_of_sites()
    alone = simulate("krylov", [tables["south"]], n_components=2, influence=True)
    assert warnings(alone) == []


def test_an_answer_whose_sums_its_squares_do_not_allow_is_refused():
    reply = {"n": np.array(10), "sum": np.array([11.0, 0.0]), "squares": np.array([10.0, 1.0]), "Y": np.zeros((2, 1))}
    with pytest.raises(ProtocolError, match="The sums of an answer must be as its squares allow"):
        Influence().inspect(None, reply)  # type: ignore[arg-type]
    Influence().inspect(None, {**reply, "sum": np.array([10.0, 0.0])})  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="The sums of an answer"):
        Influence().inspect(None, {**reply, "squares": np.array([-1.0, 1.0])})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_names_the_site_and_the_report_has_a_table(tmp_path, capsys):
    (tmp_path / "sites").mkdir()
    for name, table in tables_of_sites(units=18.0).items():
        table.to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    given = [str(tmp_path / "sites"), "--components", "2", "--influence", "--out", str(tmp_path / "out")]
    assert main(["run", *given]) == 0
    said = capsys.readouterr().out
    assert "influence: without it the components turn by: south 55.1 degrees" in said
    assert "south is far off" in said
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What each client does to the components" in page
    assert "south is far off" in page
    assert main(["show", str(tmp_path / "out" / "result.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["influence"][0]["name"] == "south"
    assert main(["run", *given[:3], "--out", str(tmp_path / "unasked")]) == 0  # its rows are at hand
    assert "south is far off" in capsys.readouterr().out
    assert main(["run", *given[:3], "--no-influence", "--out", str(tmp_path / "without")]) == 0
    assert "far off" not in capsys.readouterr().out
    assert main(["run", *given, "--mask"]) != 0
    assert "--influence under masks" in capsys.readouterr().err
