"""Test runs over columns by command and by files with ids: outputs and refusals."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest
from pages import flower_pca
from people import PEOPLE, K, X, frames, parties_written, reference, tables_in_rows

from flower_pca import ColumnsResult, PCAResult, plots, report, simulate
from flower_pca.data import sources


@pytest.fixture
def written_tables(tmp_path):
    return parties_written(tmp_path / "tables")


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_writes_scores_with_ids_and_what_each_party_keeps(written_tables, tmp_path, capsys):
    out = tmp_path / "out"
    words = [
        "run",
        written_tables,
        "--partitioned-by",
        "columns",
        "--ids",
        "patient",
        "--components",
        K,
        "--scale",
        "std",
        "--mask",
    ]
    code, said, err = flower_pca(capsys, *words, "--save-local", "--out", out)
    assert (code, err) == (0, "")
    assert "90 rows x 12 columns at 2 clients" in said
    assert "scores.csv" in said
    result = PCAResult.load(out / "result.npz")
    pooled = simulate("auto", tables_in_rows(), n_components=K, partitioned_by="columns", scale="std", mask=True)
    assert isinstance(result, ColumnsResult)
    np.testing.assert_array_equal(result.scores_, pooled.scores_)
    lines = list(csv.reader((out / "scores.csv").read_text().splitlines()))
    assert lines[0] == ["id", "pc1", "pc2", "pc3"]
    assert [line[0] for line in lines[1:]] == PEOPLE == result.row_ids_
    np.testing.assert_array_equal(np.array([line[1:] for line in lines[1:]], dtype=float), result.scores_)
    parts = []
    for i, site in enumerate(frames()):
        target, data = tmp_path / f"{site}.npy", f"csv(path='{written_tables / site}.csv', ids='patient')"
        code, said, _ = flower_pca(capsys, "transform", out / f"flower_pca-local-{i}.npz", data, "-o", target)
        assert code == 0
        assert f"Wrote 90 x {K} scores" in said
        order = [list(frames()[site].index).index(person) for person in PEOPLE]
        parts.append(np.load(target)[order])
    np.testing.assert_allclose(sum(parts), result.scores_, atol=1e-8)


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_prints_json_and_shows_a_saved_result(written_tables, tmp_path, capsys):
    out = tmp_path / "out"
    code, said, _ = flower_pca(
        capsys, "run", written_tables, "--partitioned-by", "columns", "--ids", "patient", "--out", out, "--json"
    )
    assert code == 0
    assert json.loads(said)["n_features"] == 12
    code, said, _ = flower_pca(capsys, "show", out / "result.npz")
    assert code == 0
    assert "sites: hospital, lab" in said


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--partitioned-by", "columns"],
            r"must hold numbers, but there is a text of 4 characters in column patient .*If column "
            r"patient identifies people, use "
            r"--ids patient",
        ),
        (
            ["--partitioned-by", "columns", "--ids", "patent"],
            r"hospital\.csv has no column 'patent'\. Did you mean 'patient'\?",
        ),
        (["--ids", "patient"], r"--ids is for --partitioned-by columns\."),
        (
            ["--partitioned-by", "columns", "--ids", "patient", "--clients", "3"],
            "The folder has 2 files, so it has 2 clients, not 3",
        ),
        (
            ["--partitioned-by", "columns", "--ids", "patient", "--partition", "iid"],
            "With --partitioned-by columns, each file belongs to one client",
        ),
        (
            ["--partitioned-by", "columns", "--ids", "patient", "--columns", "age"],
            "--columns cannot be combined with --partitioned-by columns: each",
        ),
        (
            ["--partitioned-by", "columns", "--ids", "patient", "--algorithm", "faps"],
            "faps does not support --partitioned-by columns, because it needs more than products",
        ),
        (
            ["--partitioned-by", "columns", "--ids", "patient", "--reconstruction-error"],
            "left_out_variance_ of the result is this error",
        ),
    ],
)
def test_the_command_says_what_does_not_go(written_tables, tmp_path, capsys, words, text):
    code, _, err = flower_pca(capsys, "run", written_tables, *words, "--out", tmp_path / "out")
    assert code == 2
    assert re.search(text, err), err


def test_files_that_do_not_belong_together_are_named(written_tables, tmp_path, capsys):
    lab = (written_tables / "lab.csv").read_text().replace("P007", "P008")
    (written_tables / "lab.csv").write_text(lab)
    words = ["run", written_tables, "--partitioned-by", "columns", "--ids", "patient", "--out", tmp_path / "out"]
    assert "The ids of the rows of client 1 (lab) repeat: rows 10 and 14 (from 0" in flower_pca(capsys, *words)[2]
    (written_tables / "lab.csv").write_text(lab.replace("P008", "P999", 1))
    assert "differ from the ids of client 0 (hospital): 89 of 90 are the same" in flower_pca(capsys, *words)[2]


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_one_table_is_dealt_out_by_its_columns_for_a_trial(tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    words = [
        "run",
        tmp_path / "x.npy",
        "--partitioned-by",
        "columns",
        "--clients",
        3,
        "--out",
        tmp_path / "out",
        "--tol",
        1e-12,
    ]
    code, said, _ = flower_pca(capsys, *words, "--algorithm", "krylov")
    assert code == 0
    assert "matched by position" in said
    np.testing.assert_allclose(PCAResult.load(tmp_path / "out/result.npz").scores_, reference(X)[0][:, :2], atol=1e-6)


def test_ids_are_read_as_they_are_spelt(tmp_path):
    rows = pd.DataFrame({"who": ["007", "8", "a "], "x": [1.0, 2.0, 3.0]})
    rows.to_csv(tmp_path / "x.csv", index=False)
    assert sources.make(f"csv(path='{tmp_path}/x.csv', ids='who')").ids == ("007", "8", "a")
    np.savez(tmp_path / "x.npz", X=np.eye(3), who=np.array([7, 8, 9]))
    assert sources.make(f"npz(path='{tmp_path}/x.npz', ids='who')").ids == ("7", "8", "9")


def test_ids_of_a_parquet_file(tmp_path):
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    pd.DataFrame({"who": ["b", "a"], "x": [1.0, 2.0]}).to_parquet(tmp_path / "x.parquet")
    assert sources.make(f"parquet(path='{tmp_path}/x.parquet', ids='who')").ids == ("b", "a")


@pytest.mark.slow
def test_a_report_and_pictures_where_loadings_stay_with_their_parties(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    result = simulate("krylov", frames(), n_components=2, partitioned_by="columns", hide_local=[0, 1])
    assert "loadings" not in plots.available(result)
    result.plot("overview", tmp_path / "o.svg")
    page = report.write(result, tmp_path / "r.html", title="x").read_text()
    assert "the columns of 2 clients" in page
    assert "90 rows x the columns of 2 clients" in repr(result)


def test_check_names_each_mistake_of_a_party_once(tmp_path, capsys):
    parties = frames()
    parties["lab"].iloc[[4, 8], 1] = -999.0
    for name, table in parties.items():
        table.to_csv(tmp_path / f"{name}.csv", index_label="patient")
    code, said, err = flower_pca(capsys, "check", tmp_path, "--partitioned-by", "columns", "--ids", "patient")
    assert (code, err) == (1, "")
    (hint,) = [line for line in said.splitlines() if "-999" in line]
    assert hint.startswith("hint: At client 1 (lab): Column ")
