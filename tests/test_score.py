"""Test `flower-pca score`: its output agrees with the library, and its exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from pages import flower_pca, table

from flower_pca import PCAResult, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.base import files
from flower_pca.data import sources

rng = np.random.default_rng(0)
MIXING = rng.standard_normal((3, 6))
HEAD = "age,bmi,systolic,diastolic,cholesterol,glucose"


def rows_to_score(n, seed):
    own = np.random.default_rng(seed)
    return own.standard_normal((n, 3)) @ MIXING + 0.3 * own.standard_normal((n, 6))


@pytest.fixture
def folder_to_score(tmp_path):
    """A result with limits from two sites, a file and a folder of new rows, one of them off in one column."""
    result = simulate("krylov", [rows_to_score(200, 1), rows_to_score(150, 2)], n_components=3, monitor=True)
    named = replace(result, feature_names_in_=np.array(HEAD.split(","), dtype=object))
    named.save(tmp_path / "result.npz")
    today = rows_to_score(40, 3)
    today[7, 3] += 6.0
    (tmp_path / "sites").mkdir()
    for name, part in (("today", today), ("sites/north", today[:20]), ("sites/south", today[20:])):
        np.savetxt(tmp_path / f"{name}.csv", part, delimiter=",", header=HEAD, comments="", fmt="%.17g")
    return tmp_path


def score(capsys, place, data="today.csv", *words):
    return flower_pca(capsys, "score", place / "result.npz", place / data, *words)


def test_the_rows_beyond_a_limit_are_listed_with_the_columns_that_are_why(folder_to_score, capsys):
    code, said, err = score(capsys, folder_to_score)
    assert (code, err) == (0, "")
    (line,) = [line for line in said.splitlines() if " SPE " in line and " 7 " in line]
    assert "diastolic" in line
    assert "of 40 rows" in said
    assert "from all 350 rows, each scored with components computed without it" in said


def test_whose_row_it_is_stands_there_as_in_its_file(folder_to_score, capsys):
    lines = (folder_to_score / "today.csv").read_text().splitlines()
    lines = [f"patient_id,{lines[0]}", *(f"{5000 + 7 * i},{line}" for i, line in enumerate(lines[1:]))]
    (folder_to_score / "today.csv").write_text("\n".join(lines))
    _, said, _ = score(capsys, folder_to_score)
    (line,) = [line for line in said.splitlines() if " SPE " in line and " 7 " in line]
    assert line.split()[:4] == ["today", "7", "5049", "today.csv"]
    _, said, _ = score(capsys, folder_to_score, "today.csv", "--json")
    assert ("5049", "today.csv") in [(found["id"], found["file"]) for found in json.loads(said)["anomalies"]]


@pytest.mark.parametrize("level", [0.1, 0.99])
def test_the_farthest_40_are_listed_and_the_others_are_counted(level, folder_to_score, capsys):
    found = len(json.loads(score(capsys, folder_to_score, "today.csv", "--level", level, "--json")[1])["anomalies"])
    _, said, _ = score(capsys, folder_to_score, "today.csv", "--level", level)
    assert len(re.findall("^ *today .* (?:T2|SPE) ", said, re.M)) == min(found, 40)
    assert re.findall("^and .* more; .*", said, re.M) == (
        [f"and {found - 40} more; use -o FILE.csv to write all"] if level == 0.1 else []
    )


def with_sites(place, name, sites):
    lines = (place / "today.csv").read_text().splitlines()
    path = place / "sited.csv"
    path.write_text("\n".join([f"{lines[0]},{name}", *(f"{a},{b}" for a, b in zip(lines[1:], sites, strict=True))]))
    return path


@pytest.mark.parametrize("case", ["its file", "a column of sites", "numbers", "names of the run", "others"])
def test_sites_are_named(case, folder_to_score, capsys):
    """The row that is off is the eighth of the file, and the fourth of those with an odd number."""
    out = folder_to_score / "scores.csv"
    if case == "names of the run":
        result = PCAResult.load(folder_to_score / "result.npz")
        replace(result, site_names={0: "north", 1: "south", 2: "west"}).save(folder_to_score / "result.npz")
    column = {"its file": None, "names of the run": "hospital", "others": "hospital"}.get(case, "Site")
    names = [1, 2] if case == "numbers" else ["north", "south"]
    data = "today.csv" if column is None else with_sites(folder_to_score, column, names * 20).name
    code, said, err = score(capsys, folder_to_score, data, "-o", out)
    assert (code, err) == (0, "")
    sites = [line["site"] for line in table(out)]
    if case in ("its file", "others"):
        assert set(sites) == {data.removesuffix(".csv")}
        assert "Sites are" not in said
    else:
        assert sites == [str(names[0])] * 20 + [str(names[1])] * 20
        assert f"Sites are by the column {column}." in said
        assert re.search(rf"{names[1]} +3 +sited\.csv +SPE", said)


@pytest.mark.slow
def test_shares_are_understood_with_a_percent_sign(folder_to_score, capsys):
    for one, other in ((("--level", "0.95"), ("--level", "95%")), (("--fail-above", "0.01"), ("--fail-above", "1 %"))):
        assert score(capsys, folder_to_score, "today.csv", *one) == score(capsys, folder_to_score, "today.csv", *other)
    with pytest.raises(SystemExit, match="2"):
        score(capsys, folder_to_score, "today.csv", "--level", "high")
    assert "argument --level: it must be a share such as 0.95 or 95%, not 'high'" in capsys.readouterr().err


@pytest.mark.usefixtures("unillustrated")
def test_show_names_the_sites(tmp_path, capsys):
    sites = {"north": rows_to_score(30, 1), "south": rows_to_score(20, 2)}
    simulate("krylov", sites, n_components=2).save(tmp_path / "r.npz")
    assert "sites: north, south\n" in flower_pca(capsys, "show", tmp_path / "r.npz")[1]
    simulate("krylov", list(sites.values()), n_components=2).save(tmp_path / "r.npz")
    assert "sites:" not in flower_pca(capsys, "show", tmp_path / "r.npz")[1]


@pytest.mark.usefixtures("unillustrated")
def test_show_says_the_limits_of_a_run_that_was_asked_to_monitor(folder_to_score, capsys):
    said = flower_pca(capsys, "show", folder_to_score / "result.npz")[1]
    assert re.search(
        r"^limits: 0\.99 of the rows have T2 up to [\d.]+ and SPE up to [\d.]+, from all 350 rows, each", said, re.M
    )


def test_rows_that_go_by_position_are_said_to(folder_to_score, capsys):
    np.save(folder_to_score / "today.npy", rows_to_score(30, 4))
    code, said, err = score(capsys, folder_to_score, "today.npy")
    assert code == 0
    assert "of 30 rows" in said
    assert err.count("by position") == 1


@pytest.mark.usefixtures("unillustrated")
def test_show_aligns_words_left_and_numbers_right(folder_to_score, capsys):
    _, head, _, *lines = flower_pca(capsys, "show", folder_to_score / "result.npz")[1].splitlines()[:6]
    for line in lines:
        assert re.search(r"  ([+-]\S+ [a-z]+(?:, )?){3}", line).start() == head.index("  largest weights")
        assert re.match(r" *\d+ +[\d.]+", line).end() == re.match(" component +variance", head).end()


@pytest.mark.usefixtures("unillustrated")
def test_show_says_so_to_machines_too(folder_to_score, capsys):
    limits = json.loads(flower_pca(capsys, "show", folder_to_score / "result.npz", "--json")[1])["limits"]
    assert limits == asdict(Monitor(PCAResult.load(folder_to_score / "result.npz")).limits())


@pytest.mark.slow
def test_all_rows_are_written_and_drawn(folder_to_score, capsys):
    out, picture = folder_to_score / "scores.csv", folder_to_score / "scores.svg"
    code, said, _ = score(capsys, folder_to_score, "sites", "-o", out, "--picture", picture, "--limits", "theory")
    assert code == 0
    assert said.endswith(f"Wrote {out} and {picture}\n")
    lines = table(out)
    monitor = Monitor(PCAResult.load(folder_to_score / "result.npz"))
    scored = monitor.score(sources.make(str(folder_to_score / "today.csv")))
    np.testing.assert_allclose([float(line["T2"]) for line in lines], scored.t2, rtol=1e-12)
    np.testing.assert_allclose([float(line["SPE"]) for line in lines], scored.spe, rtol=1e-12)
    assert [line["row"] for line in lines] == [str(i) for i in range(20)] * 2
    assert [line["site"] for line in lines] == ["north"] * 20 + ["south"] * 20
    beyond = scored.beyond(monitor.limits(source="theory"))
    assert [bool(line["beyond"]) for line in lines] == beyond.tolist()
    assert lines[7]["because"].startswith("SPE: diastolic")
    assert picture.read_text().startswith("<?xml")


def test_for_machines_and_the_exit_codes(folder_to_score, capsys):
    code, said, _ = score(capsys, folder_to_score, "today.csv", "--json", "--level", 0.999, "--fail-above", 0.5)
    told = json.loads(said)
    assert (code, told["rows"], told["limits"]["level"]) == (0, 40, 0.999)
    assert {"site", "row", "statistic", "value", "limit", "largest"} <= set(told["anomalies"][0])
    assert score(capsys, folder_to_score, "today.csv", "--fail-above", 0.001)[0] == 1
    assert score(capsys, folder_to_score, "nothing.csv")[0] == 2


REFUSED = {
    "ending": (["-o", "scores.npy"], "The file for the scores must end in .csv, but scores.npy does not."),
    "picture": (["--picture", "a.pdf"], "The file for the scores must end in .svg or .png, but a.pdf does not."),
    "share": (["--fail-above", "7"], "--fail-above must be a number from 0 to 1, not 7.0."),
    "level": (["--level", "99"], "--level must be a number from 1e-06 to"),
    "components": (["--components", "4"], "--components of a Monitor must be a whole number from 1 to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_said_in_a_sentence(case, folder_to_score, capsys, monkeypatch):
    monkeypatch.chdir(folder_to_score)
    words, sentence = REFUSED[case]
    code, said, err = score(capsys, folder_to_score, "today.csv", *words)
    assert (code, said) == (2, "")
    assert err.startswith(f"flower-pca: {sentence}")


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_very_data_of_a_run_of_some_columns_are_scored_and_transformed(tmp_path, capsys):
    draw, data = np.random.default_rng(3), tmp_path / "sites"
    data.mkdir()
    for site, extra in (("north", "note"), ("south", "remark")):
        lines = [f"{a:.4f},{b:.4f},{c:.4f},{site}" for a, b, c in draw.standard_normal((20, 3))]
        (data / f"{site}.csv").write_text("\n".join([f"bmi,age,glucose,{extra}", *lines]))
    out, scores = tmp_path / "out", tmp_path / "scores.npy"
    assert flower_pca(capsys, "run", data, "--columns", "glucose,bmi", "--out", out)[0] == 0
    code, said, err = flower_pca(capsys, "score", out / "result.npz", data)
    assert (code, err) == (0, "")
    assert "of 40 rows" in said
    code, _, err = flower_pca(capsys, "transform", out / "result.npz", data, "-o", scores)
    assert (code, err) == (0, "")
    result = PCAResult.load(out / "result.npz")
    wanted = sources.table(str(data), columns=("glucose", "bmi")).rows
    np.testing.assert_allclose(np.load(scores), (wanted - wanted.mean(axis=0)) @ result.components_.T, atol=1e-10)
    np.testing.assert_allclose(result.transform(str(data)), np.load(scores))
    np.testing.assert_allclose(result.transform(str(data / "south.csv")), np.load(scores)[20:])


@pytest.mark.parametrize("command", ["transform", "score"])
def test_a_tracking_result_is_said_to_be_one(command, tmp_path, capsys):
    path = files.write(tmp_path / "tracking.npz", "tracking result", {}, {})
    more = ["-o", tmp_path / "s.npy"] if command == "transform" else []
    code, _, err = flower_pca(capsys, command, path, tmp_path / "x.csv", *more)
    assert code == 2
    assert f"{path} is the result of a tracker, whose components change from step to step" in err
    assert "it has no scores. Use: flower-pca show " in err


@pytest.mark.usefixtures("unillustrated")
def test_score_and_report_say_that_a_site_had_no_part_in_the_run(folder_to_score, capsys):
    shards = {"north": rows_to_score(200, 1), "west": rows_to_score(150, 2)}
    result = simulate("krylov", shards, n_components=3, monitor=True)
    names = np.array(HEAD.split(","), dtype=object)
    replace(result, feature_names_in_=names).save(folder_to_score / "result.npz")
    words = "o site of the run is called south. Of the rows of a site that took no part, more exceed a limit"
    assert f"n{words}" in score(capsys, folder_to_score, "sites")[1]
    assert f"n{words}" in json.loads(score(capsys, folder_to_score, "sites", "--json")[1])["limits"]["words"]
    assert "no site of the run" not in score(capsys, folder_to_score, "sites/north.csv")[1]
    page = folder_to_score / "page.html"
    flower_pca(capsys, "report", folder_to_score / "result.npz", folder_to_score / "sites", "-o", page)
    assert f"N{words}" in page.read_text()
