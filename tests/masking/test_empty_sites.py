"""Test a site without rows in a masked run: its zeros change nothing, and it hides nobody."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from builders import Array, rotation
from cases import every
from fake_grid import grid_of, in_a_run

from flower_pca import ConfigError, DataError, FederatedPCA, NotEnoughNodes, PCAResult, make, registry, simulate
from flower_pca.audit import audit
from flower_pca.cli import main
from flower_pca.core import compatible
from flower_pca.data import sources
from flower_pca.results.left_out import left_out_in_words
from flower_pca.strategies import PCAStrategy

D = 8
MASKED = [name for name in [*registry.TABLE, "auto"] if not compatible.missing_properties(make(name), "mask")]
FIGURES = ("explained_variance_", "total_variance_", "left_out_variance_", "mean_", "site_share_", "sites_")


def three_sites() -> list[Array]:
    rng = np.random.default_rng(3)
    rows = [
        rng.standard_normal((n, D)) * 0.6 ** np.arange(D) @ rotation(D, 3) + 0.2 * i for i, n in enumerate((30, 25, 40))
    ]
    return [np.asarray(part) for part in rows]


def as_tables(shards: list[Array]) -> list[pandas.DataFrame]:
    rng = np.random.default_rng(4)
    names = [f"x{j}" for j in range(D)]
    return [pandas.DataFrame(part, columns=names).assign(age=rng.normal(50.0, 9.0, len(part))) for part in shards]


def with_an_empty_one(shards: list[Any], place: int) -> list[Any]:
    return [*shards[:place], shards[0][:0], *shards[place:]]


def assert_same(found: PCAResult, expected: PCAResult, tol: float = 1e-6) -> None:
    assert found.n_samples_ == expected.n_samples_
    np.testing.assert_allclose(found.components_, expected.components_, atol=tol)
    for name in (*FIGURES, "variance_errors_", "site_variance_errors_", "histograms_", "explained_shares_"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=tol, atol=tol, err_msg=name)


@pytest.mark.slow
@every("name", MASKED)
@pytest.mark.filterwarnings("ignore:theta is")
def test_the_result_is_that_of_the_other_sites(name: str) -> None:
    iterative = compatible.ITERATES.holds(make(name))
    given: dict[str, Any] = {"n_components": 2, "mask": True, "seed": 1, **({"max_rounds": 40} if iterative else {})}
    shards = three_sites()
    expected = simulate(name, shards, **given)
    found = simulate(name, with_an_empty_one(shards, 1), **given)
    assert len(found.history) == len(expected.history)
    assert found.status.outcome == expected.status.outcome
    assert_same(found, expected, 1e-5)


OPTIONS: dict[str, dict[str, Any]] = {
    "deviations": {"scale": "std"},
    "not centered": {"center": False},
    "gaps": {"missing": "mean"},
    "own means in gaps": {"missing": "local_mean"},
    "explained": {"explain": ["age", "site"]},
    "without the site": {"adjust": ["age", "site"]},
    "a signal": {"n_components": "signal"},
    "errors": {"standard_errors": True},
    "limits": {"monitor": True},
    "an error": {"reconstruction_error": True},
    "few bits": {"wire": "float32", "tol": 1e-6},
}


@pytest.mark.slow
@every("answers", ["rows", "fixed"])
@every("place", [0, 2, 3])
@pytest.mark.parametrize("option", OPTIONS)
def test_zeros_of_an_empty_site_change_no_option(option: str, answers: str, place: int) -> None:
    shards: list[Any] = three_sites()
    if "missing" in OPTIONS[option]:
        for part in shards:
            part[::7, 2] = np.nan
    if {"explain", "adjust"} & {*OPTIONS[option]}:
        shards = as_tables(shards)
    given = {"n_components": 2, "mask": True, "seed": 1, "answers": answers, **OPTIONS[option]}
    assert_same(simulate("krylov", with_an_empty_one(shards, place), **given), simulate("krylov", shards, **given))


def test_a_budget_covers_an_empty_site() -> None:
    shards = [part / 4.0 for part in three_sites()]
    given = {"n_components": 2, "mask": True, "dp": "dp(epsilon=50.0, delta=1e-6, clip=2.0, noise_seed=1)", "seed": 1}
    found = simulate("covariance", with_an_empty_one(shards, 3), **given)
    assert abs(found.n_samples_ - 95) < 30


def test_sites_cannot_be_harmonized_with_none() -> None:
    shards = as_tables(three_sites())
    with pytest.raises(DataError, match=r"^The data of client 1 has no rows, but harmonize compares"):
        simulate("krylov", with_an_empty_one(shards, 1), n_components=2, mask=True, harmonize="combat")


def test_without_masks_an_empty_site_is_left_out_and_named() -> None:
    given: dict[str, Any] = {"n_components": 2}
    shards = dict(zip("abc", three_sites(), strict=True))
    expected = simulate("krylov", shards, **given)
    found = simulate(
        "krylov", {"a": shards["a"], "empty": shards["a"][:0], "b": shards["b"], "c": shards["c"]}, **given
    )
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.left_out == {1: ("empty", "it has no rows")}
    assert found.site_names == {0: "a", 2: "b", 3: "c"}
    assert len(found.history) == len(expected.history)
    assert left_out_in_words(found.left_out) == "The rows of empty (it has no rows) are not in this result."


@every("place", [0, 3])
def test_own_results_keep_their_places(place: int) -> None:
    given: dict[str, Any] = {"n_components": 2, "max_rounds": 20}
    found = simulate("per_pca", with_an_empty_one(three_sites(), place), **given)
    assert [*found.local] == [i for i in range(4) if i != place]
    if place == 3:  # Starts are drawn by place.
        np.testing.assert_array_equal(found.components_, simulate("per_pca", three_sites(), **given).components_)


@pytest.mark.parametrize(
    "option", ["deviations", "gaps", "own means in gaps", "explained", "without the site", "a signal"]
)
def test_an_empty_site_is_left_out_with_every_option(option: str) -> None:
    shards: list[Any] = as_tables(three_sites())
    given = {"n_components": 2, "columns": [f"x{j}" for j in range(D)], **OPTIONS[option]}
    assert_same(simulate("krylov", with_an_empty_one(shards, 3), **given), simulate("krylov", shards, **given))


def test_columns_of_words_may_be_empty() -> None:
    shards = [
        table.assign(ward=["north", "south"] * (len(table) // 2) + ["north"] * (len(table) % 2))
        for table in as_tables(three_sites())
    ]
    given: dict[str, Any] = {"n_components": 2, "categorical": ["ward"]}
    assert_same(simulate("krylov", with_an_empty_one(shards, 0), **given), simulate("krylov", shards, **given))


def test_who_can_be_reached_may_be_a_function() -> None:
    shards = three_sites()
    given: dict[str, Any] = {"n_components": 2, "max_rounds": 30}
    found = simulate("ssi", with_an_empty_one(shards, 1), fraction=lambda number: range(4), **given)
    assert_same(found, simulate("ssi", shards, **given))
    assert list(found.left_out) == [1]


@pytest.mark.parametrize("mask", [None, True])
def test_an_estimator_takes_a_list_with_one(mask: bool | None) -> None:
    shards = three_sites()
    expected = FederatedPCA(n_components=2, mask=mask).fit(shards)
    found = FederatedPCA(n_components=2, mask=mask).fit(with_an_empty_one(shards, 1))
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-6)
    assert list(found.result_.left_out) == ([] if mask else [1])
    assert found.transform(with_an_empty_one(shards, 1)).shape == (95, 2)
    with pytest.raises(ValueError, match="0 sample"):
        found.fit(shards[0][:0])


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize("mask", [False, True])
def test_a_folder_may_have_a_file_with_its_header_only(tmp_path: Path, mask: bool) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    for site, table in zip("abc", as_tables(three_sites()), strict=True):
        table.drop(columns="age").to_csv(folder / f"{site}.csv", index=False)
    given = ["run", str(folder), "--components", "2", *(["--mask"] if mask else [])]
    assert main([*given, "--out", str(tmp_path / "all")]) == 0
    (folder / "empty.csv").write_text(",".join(f"x{j}" for j in range(D)) + "\n")
    assert main([*given, "--out", str(tmp_path / "one_empty")]) == 0
    found, expected = (PCAResult.load(tmp_path / name / "result.npz") for name in ("one_empty", "all"))
    assert_same(found, expected)
    assert [out.name for out in found.left_out.values()] == ([] if mask else ["empty"])


def folders_with_and_without(tmp_path: Path) -> tuple[Path, Path]:
    """The same three sites in two folders, the first of which has a fourth file with its header only."""
    folders = tmp_path / "one_empty", tmp_path / "all"
    for folder in folders:
        folder.mkdir()
        for site, table in zip("acd", as_tables(three_sites()), strict=True):
            table.drop(columns="age").to_csv(folder / f"{site}.csv", index=False)
    (folders[0] / "b.csv").write_text(",".join(f"x{j}" for j in range(D)) + "\n")
    return folders


def test_check_names_an_empty_site_and_examines_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_empty, whole = folders_with_and_without(tmp_path)
    codes, said = [], []
    for folder in (one_empty, whole):
        codes.append(main(["check", str(folder), "--json"]))
        said.append(json.loads(capsys.readouterr().out))
    found, expected = said
    named = "b has no rows, so it adds nothing to the result. Leave this site out, or add its rows."
    assert found["hints"] == [named, *expected["hints"]]
    assert found["errors"] == expected["errors"] == []
    assert found["left_out"] == ["b"]
    assert found["sites"] == expected["sites"] == 3
    assert codes[0] == 1


@pytest.mark.parametrize("command", ["compare", "audit"])
def test_compare_and_audit_name_an_empty_site_and_measure_the_others(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = []
    for folder in folders_with_and_without(tmp_path):
        given = [command, str(folder), "--out", str(tmp_path / "out"), "--components", "2"]
        assert main([*given, *(["--algorithms", "krylov,uda"] if command == "compare" else ["--mask"])]) == 0
        said = capsys.readouterr()
        named = "flower-pca: These sites are not used, because they have no rows: b\n" in said.err
        assert named == (folder.name == "one_empty")
        name = "comparison.csv" if command == "compare" else "leaks.csv"
        tables.append(
            pandas.read_csv(tmp_path / "out" / name).select_dtypes("number").drop(columns="seconds", errors="ignore")
        )
    found, expected = tables
    # The clients after the empty one keep their positions.
    if command == "audit":
        assert found.client.tolist() == [{0: 0, 1: 2, 2: 3}[i] for i in expected.client]
        found = found.assign(client=expected.client)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_audit_skips_a_site_without_rows() -> None:
    shards = with_an_empty_one(three_sites(), 1)
    assert {leak.client for leak in audit("uda", shards).leaks} == {0, 2, 3}
    with pytest.raises(ConfigError, match=r"^Client 1 has no rows to attack\. Leave it out of clients\.$"):
        audit("uda", shards, clients=[1])


@pytest.mark.parametrize("command", ["score", "report"])
def test_rows_of_the_others_are_scored_and_reported(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = folders_with_and_without(tmp_path)
    assert main(["run", str(folders[1]), "--out", str(tmp_path / "run")]) == 0
    result, written = str(tmp_path / "run" / "result.npz"), []
    for folder, out in zip(folders, ("1", "2"), strict=True):
        out = str(tmp_path / f"{out}.{'csv' if command == 'score' else 'html'}")
        assert main([command, result, str(folder), "-o", out]) == 0
        written.append(Path(out).read_text().replace(f"Principal components of {folder.name}", ""))
    assert written[0] == written[1]
    assert capsys.readouterr().err.count("not used, because they have no rows: b\n") == 1


@every("algorithm", ["krylov", "consensus_rpca", "exact_per_pca"])
def test_a_report_shows_the_others_under_their_names(algorithm: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tables = []
    for folder in folders_with_and_without(tmp_path_factory.mktemp("sites")):
        out = folder.parent / f"{folder.name}_out"
        main(["run", str(folder), "--components", "1", "--algorithm", algorithm, "--out", str(out)])
        page = (out / "report.html").read_text()
        rows = re.findall(r"<tr><td[^>]*>([acd])</td><td>(\d+)</td>.*?<td>([^<%]*)</td>", page)
        tables.append([(site, int(n), float(error)) for site, n, error in rows[:3]])
    found, expected = tables
    assert [site for site, *_ in expected] == ["a", "c", "d"]
    assert [(site, n) for site, n, _ in found] == [(site, n) for site, n, _ in expected]
    np.testing.assert_allclose([e for *_, e in found], [e for *_, e in expected], rtol=0.02)


def files_without_rows(folder: Path) -> list[str]:
    names = ",".join(f"x{j}" for j in range(D))
    (folder / "a.csv").write_text(f"{names}\n")
    as_tables(three_sites())[0].drop(columns="age")[:0].to_parquet(folder / "b.parquet")
    return [str(folder / "a.csv"), str(folder / "b.parquet")]


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("answers", ["rows", "fixed"])
def test_nodes_may_have_files_without_rows(tmp_path: Path, mask: bool, answers: str) -> None:
    tables = [table.drop(columns="age") for table in as_tables(three_sites())]
    expected = simulate("krylov", tables, n_components=2, mask=mask)
    for file in files_without_rows(tmp_path):
        nodes = [*tables, sources.make(file)]
        with in_a_run() as lines:
            found = PCAStrategy("krylov", n_components=2, mask=mask, min_nodes=3).fit(grid_of(nodes, answers=answers))
        assert_same(found, expected)
        if mask:
            assert not found.left_out
            # Only the log of its own node says so: nodes that multiply rows are those of a simulation.
            assert any("This node has no rows" in line for line in lines) == (answers == "fixed")
        else:
            (out,) = found.left_out.values()
            assert out.why.startswith("The data of this node has no rows. Leave it out")


def test_min_rows_keeps_no_site_without_rows_out_and_min_change_does(tmp_path: Path) -> None:
    """Its zeros tell nothing of rows. A node with min_change has no copy of its rows yet."""
    tables = [table.drop(columns="age") for table in as_tables(three_sites())]
    nodes = [*tables, sources.make(files_without_rows(tmp_path)[0])]
    for rules, out in (({"min_rows": 5}, []), ({"min_change": 20, "memory_dir": str(tmp_path)}, ["20 rows"])):
        with in_a_run():
            found = PCAStrategy("krylov", n_components=2, mask=True, min_nodes=2).fit(grid_of(nodes, **rules))
        assert found.n_samples_ == 95
        assert [why for why in out if why in str(found.left_out)] == out
        assert len(found.left_out) == len(out)


def test_nodes_with_a_budget_count_it_among_their_peers(tmp_path: Path) -> None:
    """They tell each other nothing of their columns, so not whether there are rows. Noise covers each of the others."""
    tables = [table.drop(columns="age") / 4.0 for table in as_tables(three_sites())]
    nodes = [*tables[:2], sources.make(files_without_rows(tmp_path)[0])]
    rules = {"min_peers": 2, "max_epsilon": 60.0, "max_delta": 1e-6, "memory_dir": str(tmp_path / "memory")}
    asked = {"n_components": 2, "mask": True, "min_nodes": 2}
    dp = "dp(epsilon=50.0, delta=1e-6, clip=2.0)"
    with in_a_run():
        found = PCAStrategy("covariance", dp=dp, **asked).fit(grid_of(nodes, **rules))
    assert not found.left_out
    del rules["max_epsilon"], rules["max_delta"]
    with in_a_run(), pytest.raises(NotEnoughNodes, match="Fewer than 3 sites in this masked sum have rows"):
        PCAStrategy("covariance", dp=dp, **asked).fit(grid_of(nodes, **rules))


def test_an_empty_site_hides_nobody(tmp_path: Path) -> None:
    """Two sites and an empty one are two sites: nodes that ask for two others refuse."""
    tables = [table.drop(columns="age") for table in as_tables(three_sites())]
    nodes = [*tables[:2], sources.make(files_without_rows(tmp_path)[0])]
    for min_peers, named in ((1, nodes[1:]), (2, nodes)):
        with (
            in_a_run(),
            pytest.raises(NotEnoughNodes, match=f"Fewer than {min_peers + 1} sites in this masked sum have r"),
        ):
            PCAStrategy("krylov", n_components=2, mask=True, min_nodes=2).fit(grid_of(named, min_peers=min_peers))
