"""Test combinations: starts with names of columns, and results that cannot be used as projections."""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
from builders import rows
from cases import every

from flower_pca import ConfigError, FederatedPCA, PCAResult, Projection, cli, plots, simulate, to_sklearn, track
from flower_pca.base.errors import DataError
from flower_pca.commands.common import OptionWording
from flower_pca.comparison.ranks import alternatives, rank_table
from flower_pca.data import sources

RNG = np.random.default_rng(0)
PLANE = RNG.standard_normal((2, 4))
TABLES = [rows(n, [3.0, 2.0, 1.0, 0.7, 0.5, 0.3], seed=n) + i for i, n in enumerate((60, 50, 40))]


def of_the_plane(n, columns, sizes=1.0, seed=0):
    """Rows of two directions, as a table whose columns have an order of their own."""
    found = pd.DataFrame(np.random.default_rng(seed).standard_normal((n, 2)) @ PLANE * sizes, columns=list("dbca"))
    return found[list(columns)]


@every(
    ("columns", "sizes", "scale"),
    [("dbca", 1.0, None), ("abcd", 1.0, None), ("dbca", np.array([1.0, 1e2, 1e4, 1.0]), "std")],
)
def test_a_tracker_begins_with_a_result_by_the_names_and_units_of_its_columns(columns, sizes, scale):
    known = simulate("krylov", [of_the_plane(100, columns, sizes)], n_components=2, center=False, scale=scale)
    new = of_the_plane(20, "cabd", sizes, seed=1)
    gappy = new.copy()
    gappy["d"] = np.nan
    found = track("st_miss", [gappy], batch=10, n_components=2, init=known)
    completed = pd.DataFrame(found.complete(gappy, step=0), columns=list(found.feature_names_in_))
    np.testing.assert_allclose(completed["d"], new["d"], atol=1e-8 * np.abs(new["d"]).max())


def test_a_tracker_that_begins_with_other_columns_says_so():
    known = simulate("krylov", [of_the_plane(100, "dbca")], n_components=2)
    other = of_the_plane(20, "abcd").rename(columns={"a": "x"})
    with pytest.raises(DataError, match=r"lack 'a', which the run needs"):
        track("st_miss", [other], batch=10, n_components=2, init=known)
    with pytest.raises(ConfigError, match="The result to start from has no column x"):
        track("st_miss", [other], batch=10, n_components=2, init=known, columns=["x", "b", "c", "d"])


@every("algorithm", ["dcf_pca", "consensus_rpca", "per_pca", "exact_per_pca", "triple_pca"])
def test_a_start_that_would_be_ignored_is_refused(algorithm):
    with pytest.raises(ConfigError, match=f"{algorithm}.* does not support init"):
        simulate(algorithm, TABLES, n_components=2, init=np.eye(6)[:2])


@every(
    ("algorithm", "asked"), [("triple_pca(local_components=1, max_rounds=3)", {}), ("consensus_rpca(max_rounds=3)", {})]
)
@every("use", [lambda result: result.to_record(), to_sklearn])
def test_what_takes_far_entries_out_is_no_projection(algorithm, asked, use):
    result = simulate(algorithm, TABLES, n_components=2, **asked)
    with pytest.raises(
        ConfigError, match=r"needs a result that only projects rows, but a (Triple|Robust)Result does more"
    ):
        use(result)


def test_scikit_learn_takes_no_components_that_are_not_orthonormal_and_projections_do():
    result = simulate("sparse_pca(cardinality=3)", TABLES, n_components=2)
    with pytest.raises(
        ConfigError,
        match=r"scikit-learn's PCA needs orthonormal components, but the components of sparse_pca.* are not\.",
    ):
        to_sklearn(result)
    there = Projection.from_record(result.to_record()).transform(TABLES[0])
    np.testing.assert_allclose(there, result.transform(TABLES[0]), atol=1e-12)


def test_scikit_learn_takes_no_part_of_a_result_of_parties():
    result = simulate(
        "krylov", [TABLES[0][:, :3], TABLES[0][:, 3:]], n_components=2, partitioned_by="columns", hide_local=[0]
    )
    with pytest.raises(
        ConfigError,
        match="Only 1 of 2 parties have shared their loadings, but this method needs the loadings of all parties",
    ):
        to_sklearn(result)


def test_an_estimator_that_finds_the_number_of_sparse_components_has_all_of_their_figures():
    pooled = np.vstack(TABLES)
    found = FederatedPCA("mle", algorithm="sparse_pca(cardinality=4)").fit(pooled)
    k = found.n_components_
    assert k < 6
    assert found.result_.axes[0].shape == (6, k)
    assert found.result_.reconstruction_error(pooled) > 0.0
    assert np.isfinite(found.score(pooled))


def test_whitened_scores_of_sparse_components_have_deviation_one():
    pooled = np.vstack(TABLES)
    found = FederatedPCA(3, algorithm="sparse_pca(cardinality=3)", whiten=True).fit(pooled)
    scores = found.transform(pooled)
    np.testing.assert_allclose(scores.std(axis=0, ddof=1), 1.0, rtol=1e-8)
    back = found.inverse_transform(scores)
    np.testing.assert_allclose(back, found.result_.inverse_transform(found.result_.transform(pooled)), atol=1e-8)


def test_a_site_has_its_own_components_by_its_name():
    sites = {"east": TABLES[0], "west": TABLES[1]}
    result = simulate("exact_per_pca(local_components=1)", sites, n_components=1)
    np.testing.assert_array_equal(result.local_components_of("west"), result.local_components_of(1))
    np.testing.assert_array_equal(result.transform(TABLES[1], client="west"), result.transform(TABLES[1], client=1))
    with pytest.raises(
        ConfigError,
        match=re.escape("The result has no client 'x'. Its clients are east, west. Give a name or a position."),
    ):
        result.local_components_of("x")


@pytest.fixture
def folder(tmp_path):
    """Two sites, and files beside them of which one may be a table."""
    place = tmp_path / "sites"
    place.mkdir()
    for name, X in zip("ab", TABLES, strict=False):
        pd.DataFrame(X, columns=list("uvwxyz")).to_csv(place / f"{name}.csv", index=False)
    (place / "notes.md").write_text("of the sites")
    (place / "~$a.xlsx").write_bytes(b"")  # as Excel lays it beside an open table
    return place


@pytest.mark.usefixtures("unillustrated")
@every("command", ["run", "check"])
def test_a_folder_names_what_it_does_not_read(folder, tmp_path, capsys, command):
    (folder / "c.rds").write_bytes(b"")
    words = [command, str(folder), *(["--components", "1", "--out", str(tmp_path / "out")] if command == "run" else [])]
    cli.main(words)
    said = "".join(capsys.readouterr())
    assert f"{folder} has a file that may be a site, but flower_pca cannot read this kind of file: c.rds" in said
    assert "notes.md" not in said
    assert "xlsx" not in said


def test_a_result_among_the_sites_is_said_to_be_one(folder, tmp_path, capsys):
    simulate("krylov", TABLES, n_components=1).save(folder / "result.npz")
    assert cli.main(["run", str(folder), "--components", "1", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "result.npz was saved by flower_pca and holds no rows of data. Move it elsewhere, or leave it out." in said


@every("command", ["run", "compare", "audit", "track"])
def test_an_output_among_the_sites_is_refused(folder, capsys, command):
    more = ["--batch", "5"] if command == "track" else []
    assert cli.main([command, str(folder), "--components", "1", "--out", str(folder), *more]) == 2
    assert "has the data, so a run does not write to it." in capsys.readouterr().err
    assert sorted(file.name for file in folder.iterdir()) == ["a.csv", "b.csv", "notes.md", "~$a.xlsx"]


@pytest.fixture
def people_file(tmp_path):
    """Rows of people whose ids begin with zeros."""
    people = pd.DataFrame(TABLES[0][:, :3], columns=["a", "b", "c"])
    people["patient"] = [f"{i:03d}" for i in range(len(people))]
    people.to_csv(tmp_path / "people.csv", index=False)
    assert cli.main(["run", str(tmp_path / "people.csv"), "--clients", "2", "--columns", "a,b,c", "--components", "1",
                     "--out", str(tmp_path / "out")]) in (0, 1)  # fmt: skip
    return tmp_path


@every("source", ["{0}/people.csv", "csv(path='{0}/people.csv', ids='patient')", "folder(path='{0}', pattern='*.csv')"])
@every("command", ["transform", "score"])
def test_scores_have_the_ids_of_their_rows_as_they_are_written(people_file, command, source):
    data = source.format(people_file)
    assert (
        cli.main([command, str(people_file / "out/result.npz"), data, "-o", str(people_file / "out/scores.csv")]) == 0
    )
    written = pd.read_csv(people_file / "out/scores.csv", dtype=str)
    assert written["id"].tolist()[:3] == ["000", "001", "002"]


def test_what_stands_in_for_a_personalized_run_fills_gaps_as_the_run_does():
    holes = {"north": TABLES[0].copy(), "south": TABLES[1].copy()}
    holes["north"][3, 2] = np.nan
    result = simulate("exact_per_pca(local_components=1)", holes, n_components=1, missing="mean")
    filled = [np.where(np.isnan(X), result.fill_, X) for X in holes.values()]
    found = alternatives(result, holes)
    assert found["personalized"] == pytest.approx(alternatives(result, filled)["personalized"])
    (table,) = rank_table(holes, [(1, 1)], missing="mean")
    assert table.error == pytest.approx(found["personalized"].mean(), rel=1e-6)


def test_compare_offers_no_number_that_it_refuses(capsys):
    for command, counts in (("run", True), ("compare", False)):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        assert ('"signal"' in capsys.readouterr().out) == counts


@pytest.mark.filterwarnings("ignore:max_rounds")
def test_a_robust_estimator_says_why_it_has_no_density():
    found = FederatedPCA(1, algorithm="consensus_rpca(max_rounds=3)").fit(np.vstack(TABLES))
    with pytest.raises(DataError, match="the low-rank part of a robust PCA has no noise left"):
        found.score(np.vstack(TABLES))


def test_all_pictures_that_are_offered_of_parties_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    parties = [TABLES[0][:, :3], TABLES[0][:, 3:]]
    result = simulate("auto", parties, n_components=2, partitioned_by="columns")
    offered = plots.available(result, parties)
    assert "scores" in offered
    assert not {"means", "errors"} & set(offered)
    for picture in offered:
        assert result.plot(picture, tmp_path / f"{picture}.svg", shards=parties).exists()


@pytest.mark.usefixtures("unillustrated")
@every(("command", "ending"), [("transform", "npy"), ("score", "csv"), ("report", "html")])
def test_a_result_of_parties_is_told_how_their_folder_is_projected(tmp_path, capsys, command, ending):
    people = [f"{i:03d}" for i in range(60)]
    (tmp_path / "parties").mkdir(exist_ok=True)
    for name, columns in (("hospital", "uvw"), ("laboratory", "xyz")):
        table = pd.DataFrame(TABLES[0][:, :3], columns=list(columns)).assign(patient=people)
        table.to_csv(tmp_path / f"parties/{name}.csv", index=False)
    folder, out = str(tmp_path / "parties"), str(tmp_path / "out")
    assert (
        cli.main(["run", folder, "--partitioned-by", "columns", "--ids", "patient", "--components", "1", "--out", out])
        == 0
    )
    capsys.readouterr()
    assert cli.main([command, f"{out}/result.npz", folder, "-o", str(tmp_path / f"o.{ending}")]) == 2
    assert "flower-pca transform flower_pca-local-0.npz FILE" in capsys.readouterr().err


def refusal_at_the_command(refused, folder):
    """A refusal of a file in the words of the command line."""
    return OptionWording(f"{folder}/a.csv").in_options(refused.value.words)


@every("blank", [" ", "\u00a0", "\u2009", "\u202f", "'"])
def test_the_remedy_for_blanks_between_thousands_reads_the_numbers(tmp_path, blank):
    """Where no other cell shows which mark stands before decimals."""
    numbers = [1234.5, 7382.5, 9001.0, 2500.25]
    cells = [f"{number:,.2f}".replace(".", ";").replace(",", blank).replace(";", ",") for number in numbers]
    lines = [f"{cell};{i}" for i, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["x;y", *lines]), encoding="utf-8")
    with pytest.raises(DataError, match="Read thousands separators") as refused:
        sources.table(f"csv(path='{tmp_path}/a.csv')").whole()
    spec = re.search(
        r"Read thousands separators by a spec, \"(csv\(.*?\))\"\.", refusal_at_the_command(refused, tmp_path)
    )[1]
    found = sources.table(spec)
    np.testing.assert_array_equal(found.rows[:, 0], numbers)


def test_the_remedy_for_a_column_without_a_name_fits_a_folder_in_which_only_one_file_has_it(tmp_path, capsys):
    folder = tmp_path / "sites"
    folder.mkdir()
    pd.DataFrame(TABLES[0], columns=list("abcdef")).to_csv(folder / "bonn.csv", index=False)
    pd.DataFrame(TABLES[1], columns=list("abcdef")).to_csv(folder / "jena.csv")
    run = ["run", str(folder), "--out", str(tmp_path / "out")]
    assert cli.main(run) == 2
    said = capsys.readouterr().err
    advised = shlex.split(re.search(r"Leave it out with (--drop .*?), name the other columns", said)[1])
    assert cli.main([*run, *advised]) == 0
    together = np.vstack(TABLES[:2])
    variances = np.linalg.eigvalsh(np.cov(together.T))[::-1]
    result = PCAResult.load(tmp_path / "out/result.npz")
    np.testing.assert_allclose(result.explained_variance_, variances[:2], rtol=1e-10)
