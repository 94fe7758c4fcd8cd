"""Test local results of clients on the command line, and `show` for every kind of result."""

import csv
import json
import re

import numpy as np
import pytest
from builders import deal, mixed
from pages import flower_pca, folder_of_sites
from test_explain import people_of_sites
from test_report_kinds import COLUMNS, rows_with_far_entries, split, stepped

from flower_pca import ConfigError, DataError, PCAResult, TrackingResult, simulate
from flower_pca.analysis.monitor import Monitor
from flower_pca.base import files
from flower_pca.clients.storage import folders
from flower_pca.commands import output


def folder_of(parts, path):
    """A folder of one CSV file for each site."""
    path.mkdir()
    for i, part in enumerate(parts):
        with (path / f"{'abc'[i]}.csv").open("w", newline="") as file:
            write = csv.writer(file).writerow
            write(COLUMNS)
            for row in part.values:
                write(row.tolist())
    return path


@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
@pytest.mark.parametrize("algorithm", ["consensus_rpca(max_rounds=12)", "exact_per_pca(local_components=1)"])
@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_run_writes_what_belongs_to_each_client_into_files_as_a_node_does(algorithm, tmp_path, capsys):
    parts = rows_with_far_entries() if algorithm.startswith("consensus_rpca") else split()
    data, out = folder_of(parts, tmp_path / "sites"), tmp_path / "out"
    code, said, _ = flower_pca(capsys, "run", data, "--algorithm", algorithm, "--save-local", "--out", out)
    assert code in (0, 1)
    reference = simulate(algorithm, parts, n_components=2)
    for i in range(3):
        place = folders.local_file(out, i)
        assert place.name in said
        with np.load(place) as file:
            header = json.loads(file["header.json"].tobytes())
            assert header["columns"] == list(reference.feature_names_in_)
            assert header["site"] == "abc"[i]
            for name, array in reference.local[i].items():
                np.testing.assert_allclose(file[name], array, rtol=1e-9, atol=1e-9)
    flower_pca(capsys, "run", data, "--algorithm", algorithm, "--out", tmp_path / "plain")
    assert not list((tmp_path / "plain").glob("*local*"))


@pytest.mark.usefixtures("unillustrated")
def test_own_parts_of_an_algorithm_that_leaves_none_are_refused_before_the_run(tmp_path, capsys):
    code, _, err = flower_pca(capsys, "run", "none.csv", "--save-local", "--out", tmp_path / "out")
    assert code == 2
    assert err.startswith("flower-pca: krylov computes no local results, so --save-local has nothing to write.")
    assert "--adjust site or --harmonize combat, or leave --save-local out" in err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_scores_of_a_personalized_result_say_whose_components_they_are_along(tmp_path, capsys):
    parts = split()
    data, out = folder_of(parts, tmp_path / "sites"), tmp_path / "out"
    words = ["run", data, "--algorithm", "exact_per_pca(local_components=1)", "--save-local", "--out", out]
    assert flower_pca(capsys, *words)[0] == 0
    reference = simulate("exact_per_pca(local_components=1)", parts, n_components=2)
    transform = ["transform", out / "result.npz", data / "b.csv", "-o", tmp_path / "scores.csv"]
    code, said, _ = flower_pca(capsys, *transform)
    assert code == 0
    assert "scores on the 2 shared components; add local components with --local FILE or --fit-local" in said
    own = out / "flower_pca-local-1.npz"
    code, said, _ = flower_pca(capsys, *transform, "--local", own)
    assert f"scores on the 2 shared components and on the local components of b ({own})" in said
    with (tmp_path / "scores.csv").open() as file:
        assert next(csv.reader(file))[-3:] == ["component_1", "component_2", "own_1"]
        scores = np.array([[float(cell) for cell in row[-3:]] for row in csv.reader(file)])
    np.testing.assert_allclose(scores, reference.transform(parts[1], client=1), rtol=1e-7, atol=1e-7)
    said = flower_pca(capsys, *transform, "--fit-local")[1]
    assert "scores on the 2 shared components and on local components computed from these rows" in said
    with (tmp_path / "scores.csv").open() as file:
        anew = np.array([[float(cell) for cell in row[-3:]] for row in list(csv.reader(file))[1:]])
    np.testing.assert_allclose(anew, scores, atol=1e-4)
    said = flower_pca(capsys, *transform, "--local", own, "--json")[1]
    assert json.loads(said)["local_components"] == 1


@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_own_components_that_do_not_belong_to_the_result_are_refused(tmp_path, capsys):
    parts = split()
    data, out = folder_of(parts, tmp_path / "sites"), tmp_path / "out"
    words = ["--algorithm", "exact_per_pca(local_components=1)", "--save-local", "--out", out]
    assert flower_pca(capsys, "run", data, *words)[0] == 0
    other = simulate("krylov", parts, n_components=2).save(tmp_path / "other.npz")
    own = out / "flower_pca-local-1.npz"
    for result, file, message in [
        (other, own, "--local is for results of personalized runs, but this is a PCAResult. Leave --local out."),
        (
            out / "result.npz",
            "none.npz",
            "No file named 'none.npz'. Give a file that flower-pca run --save-local or a node has written.",
        ),
        (out / "result.npz", other, "is a result, not an own result."),
    ]:
        code, _, err = flower_pca(
            capsys, "transform", result, data / "b.csv", "-o", tmp_path / "s.npy", "--local", file
        )
        assert code == 2
        assert message in err
    fewer = mixed(0).shards
    simulate("exact_per_pca(local_components=1)", fewer, n_components=1).save(tmp_path / "narrow.npz")
    np.save(tmp_path / "x.npy", fewer[0])
    words = ["transform", tmp_path / "narrow.npz", tmp_path / "x.npy", "-o", tmp_path / "s.npy", "--local", own]
    code, _, err = flower_pca(capsys, *words)
    assert code == 2
    assert "have different columns from the result." in err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_show_names_the_columns_that_weigh_most(tmp_path, capsys):
    data, out = folder_of(split(), tmp_path / "sites"), tmp_path / "out"
    assert flower_pca(capsys, "run", data, "--out", out)[0] == 0
    result = PCAResult.load(out / "result.npz")
    heaviest = result.feature_names_in_[np.argsort(-np.abs(result.components_), axis=1)]
    said = flower_pca(capsys, "show", out / "result.npz")[1]
    assert all(f"{heaviest[j, 0]}" in said for j in range(2))
    shown = json.loads(flower_pca(capsys, "show", out / "result.npz", "--json")[1])
    assert shown["feature_names"] == list(result.feature_names_in_)
    assert shown["site_names"] == {"0": "a", "1": "b", "2": "c"}
    assert [[part["column"] for part in row] for row in shown["largest_weights"]] == heaviest.tolist()
    weights = [row[0]["weight"] for row in shown["largest_weights"]]
    np.testing.assert_allclose(np.abs(weights), np.abs(result.components_).max(axis=1))


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_show_says_what_only_a_family_of_results_has(tmp_path, capsys):
    personal = simulate("exact_per_pca(local_components=1)", split(), n_components=2)
    shown = json.loads(flower_pca(capsys, "show", personal.save(tmp_path / "p.npz"), "--json")[1])
    assert shown["kind"] == "PersonalResult"
    assert shown["theta"] == pytest.approx(personal.theta_estimate_)
    robust = simulate("consensus_rpca", rows_with_far_entries(), n_components=2)
    path = robust.save(tmp_path / "r.npz")
    assert "of all entries, far off" in flower_pca(capsys, "show", path)[1]
    assert json.loads(flower_pca(capsys, "show", path, "--json")[1])["share_of_far_entries"] == robust.outlier_share_
    parts = deal(stepped(), (120, 120))
    dp = "dp(epsilon=0.5, delta=1e-7, clip=3.0, noise_seed=1)"
    noisy = simulate("ssi(max_rounds=2)", parts, n_components=2, dp=dp).save(tmp_path / "n.npz")
    assert "Privacy noise alone can give a component a variance of" in flower_pca(capsys, "show", noisy)[1]
    bounds = np.array(json.loads(flower_pca(capsys, "show", noisy, "--json")[1])["bounds_of_ratio"])
    assert ((bounds >= 0.0) & (bounds <= 1.0)).all()


@pytest.mark.slow
def test_show_and_a_report_of_a_run_of_steps(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", stepped())
    words = ["track", tmp_path / "rows.npy", "--batch", 24, "--components", 2, "--out", tmp_path / "out"]
    code, said, _ = flower_pca(capsys, *words)
    assert code == 0
    assert f"report            {tmp_path.resolve() / 'out/report.html'}" in said
    assert "Basis of the last step" in (tmp_path / "out/report.html").read_text()
    path = tmp_path / "out/tracking.npz"
    result = TrackingResult.load(path)
    assert result.table() in flower_pca(capsys, "show", path)[1]
    shown = json.loads(flower_pca(capsys, "show", path, "--json")[1])
    assert (shown["kind"], shown["steps"]) == ("TrackingResult", 10)
    assert shown["subspace_change"] == result.subspace_change_.tolist()
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    code, _, err = flower_pca(capsys, "show", tmp_path / "bad.npz")
    assert code == 2
    assert "is not a result of flower_pca" in err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
def test_own_components_of_another_algorithm_or_of_more_ranks_are_refused(tmp_path):
    parts = split()
    result = simulate("exact_per_pca(local_components=1)", parts, n_components=2)
    more = simulate("exact_per_pca(local_components=2)", parts, n_components=2)
    for algorithm, arrays, message in [
        ("per_pca(max_rounds=5)", result.local[1], "belongs to another run (per_pca instead of exact_per_pca)."),
        (more.algorithm, more.local[1], "has 2 local components, but the result's run allows at most 1."),
    ]:
        header = {"algorithm": algorithm, "site": "b", "columns": list(map(str, result.feature_names_in_))}
        path = str(files.write(tmp_path / "own.npz", "own result", header, arrays))
        with pytest.raises(DataError, match=re.escape(message)):
            output.local_components_of(path, result)
    header["algorithm"] = "exact_per_pca"
    mine, scaled = (
        result.local[1]["components"],
        simulate("exact_per_pca(local_components=1)", parts, n_components=2, scale="std"),
    )
    for others in (scaled.local[1]["components"], 9.0 * mine, np.nan * mine, mine.astype(str)):
        path = str(files.write(tmp_path / "own.npz", "own result", header, {"components": others}))
        with pytest.raises(DataError, match=r"not orthogonal to the shared|have different columns from the result"):
            output.local_components_of(path, result)
    path = str(files.write(tmp_path / "own.npz", "own result", header, result.local[1]))
    found, site = output.local_components_of(path, result)
    np.testing.assert_array_equal(found, result.local[1]["components"])
    assert site == "b"


@pytest.mark.usefixtures("unillustrated")
def test_files_of_an_earlier_run_in_the_folder_are_named(tmp_path, capsys):
    data, out = folder_of(split(), tmp_path / "sites"), tmp_path / "out"
    words = ["run", data, "--algorithm", "exact_per_pca(local_components=1)", "--save-local", "--out", out]
    assert "of an earlier run" not in flower_pca(capsys, *words)[2]
    assert "of an earlier run" not in flower_pca(capsys, *words)[2]
    err = flower_pca(capsys, *words, "--without", "b,c", "--clients", 1)[2]
    assert f"an earlier run wrote them: flower_pca-local-1.npz, flower_pca-local-2.npz in {out}" in err


@pytest.fixture(params=["adjust", "harmonize"])
def folder_by_site(request, tmp_path, capsys, unillustrated):
    """Files of three sites, a run whose results are by site, and the same run in Python."""
    tables = dict(zip("abc", people_of_sites(16), strict=True))
    folder = folder_of_sites(tmp_path / "sites", tables)
    more = {"adjust": ["--adjust", "age,sex,site"], "harmonize": ["--harmonize", "combat", "--keep", "age,sex"]}
    code, said, _ = flower_pca(capsys, "run", folder, *more[request.param], "--save-local", "--out", tmp_path / "out")
    assert code == 0
    assert "flower_pca-local-1.npz" in said
    settings = {"adjust": ("age", "sex", "site")}
    if request.param == "harmonize":
        settings = {"harmonize": "combat", "keep": ("age", "sex")}
    return tmp_path, simulate("auto", tables, n_components=2, **settings), tables


def test_rows_of_a_site_are_scored_by_what_the_run_has_written_of_it(folder_by_site, capsys):
    place, reference, tables = folder_by_site
    result, own, scores = place / "out" / "result.npz", place / "out" / "flower_pca-local-1.npz", place / "scores.npy"
    given = [result, place / "sites" / "b.csv", "--local", own]
    assert flower_pca(capsys, "transform", *given, "-o", scores)[0] == 0
    at_b = reference.at_site("b")
    np.testing.assert_allclose(np.load(scores), at_b.transform(tables["b"]), atol=1e-9)
    code, said, _ = flower_pca(capsys, "score", *given, "--json")
    limits = Monitor(at_b).limits()
    assert code == 0
    assert json.loads(said)["beyond"] == int(Monitor(at_b).score(tables["b"]).beyond(limits).sum())
    assert json.loads(said)["limits"]["spe"] == pytest.approx(limits.spe, rel=1e-9)
    page = (place / "out" / "report.html").read_text()
    assert "<th>mean squared error of a row</th>" in page
    assert f"{at_b.reconstruction_error(tables['b']):.4g}" in page


def test_a_new_site_is_scored_by_what_its_rows_tell_if_sites_were_harmonized(folder_by_site, capsys):
    place, reference, tables = folder_by_site
    new, scores = place / "new.csv", place / "scores.npy"
    tables["b"][:30].to_csv(new, index=False)
    given = [place / "out" / "result.npz", new, "--fit-local"]
    code, _, err = flower_pca(capsys, "transform", *given, "-o", scores)
    if not reference.harmonized_by_:
        assert code == 2
        assert "so --fit-local cannot be used" in err
        return
    np.testing.assert_allclose(
        np.load(scores), reference.harmonize(tables["b"][:30]).transform(tables["b"][:30]), atol=1e-9
    )
    assert flower_pca(capsys, "score", *given)[0] == 0
    tables["b"][:19].to_csv(new, index=False)
    assert "The new site has 19 rows" in flower_pca(capsys, "score", *given)[2]


def test_what_is_known_of_a_site_is_asked_for_and_is_of_the_site_of_the_rows(folder_by_site, capsys):
    place, reference, _ = folder_by_site
    out, files = place / "out", place / "sites"
    whole = simulate("krylov", [np.eye(4)[:, :3]] * 3, n_components=1, adjust="site").save(place / "other.npz")
    for words, message in [
        ([out / "result.npz", files / "b.csv"], "Add --local FILE with the file that flower-pca run --save-local or"),
        ([out / "result.npz", files, "--local", out / "flower_pca-local-1.npz"], "has rows of 3 sites"),
        ([out / "result.npz", files / "b.csv", "--local", out / "flower_pca-local-0.npz"], "belongs to the site a"),
        ([out / "result.npz", files / "b.csv", "--local", "none.npz"], "No file named 'none.npz'"),
        ([out / "result.npz", files / "b.csv", "--local", whole], "not an own result"),
    ]:
        code, _, err = flower_pca(capsys, "score", *words)
        assert code == 2
        assert message in err
    code, _, err = flower_pca(capsys, "report", out / "result.npz", files, "-o", place / "page.html")
    assert code == 2
    assert "Leave DATA out" in err
    with pytest.raises(ConfigError, match="are from another run"):
        reference.at_site({name: array[:-1] for name, array in reference.local[0].items()})


def test_a_run_that_scores_all_sites_alike_takes_nothing_of_one_site(tmp_path, capsys):
    np.savetxt(tmp_path / "x.csv", np.random.default_rng(0).standard_normal((9, 3)), delimiter=",")
    result = simulate("krylov", [np.random.default_rng(0).standard_normal((9, 3))], n_components=1)
    path = result.save(tmp_path / "result.npz")
    code, _, err = flower_pca(capsys, "score", path, tmp_path / "x.csv", "--local", "own.npz")
    assert code == 2
    assert "but this run used neither. Leave --local and --fit-local out." in err
