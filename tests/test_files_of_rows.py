"""Test files of rows that commands write: ids, files, sites, and permissions."""

import stat

import numpy as np
import pytest
from pages import flower_pca, table

from flower_pca import PCAResult, simulate

pd = pytest.importorskip("pandas")
ROWS = np.random.default_rng(0).normal([50.0, 20.0, 5.0], 1.0, (30, 3))
NAMES = ["weight", "age", "bmi"]


@pytest.fixture
def folder_of_patients(tmp_path, capsys, unillustrated):
    (tmp_path / "sites").mkdir()
    for i, site in enumerate(("bonn", "jena", "trier")):
        frame = pd.DataFrame(ROWS[10 * i : 10 * i + 10], columns=NAMES)
        frame.insert(0, "patient_id", [f"{site[0].upper()}{k}" for k in range(10)])
        frame.to_csv(tmp_path / f"sites/{site}.csv", index=False)
    options = ["--drop", "patient_id", "--components", 2, "--out", tmp_path / "out"]
    assert flower_pca(capsys, "run", tmp_path / "sites", *options)[0] == 0
    return tmp_path


def only_for_its_owner(path):
    return stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
def test_scores_have_the_id_the_file_and_the_site_of_their_rows(folder_of_patients, capsys):
    result = PCAResult.load(folder_of_patients / "out/result.npz")
    asked = ["transform", folder_of_patients / "out/result.npz", folder_of_patients / "sites", "-o"]
    assert flower_pca(capsys, *asked, folder_of_patients / "s.csv")[0] == 0
    lines = table(folder_of_patients / "s.csv")
    assert list(lines[0]) == ["id", "file", "site", "component_1", "component_2"]
    assert [line["id"] for line in lines[9:11]] == ["B9", "J0"]
    assert (lines[25]["file"], lines[25]["site"]) == ("trier.csv", "trier")
    scores = [[float(line[f"component_{k}"]) for k in (1, 2)] for line in lines]
    np.testing.assert_allclose(scores, result.transform(pd.DataFrame(ROWS, columns=NAMES)), rtol=0, atol=1e-12)
    frame = pd.read_csv(folder_of_patients / "s.csv", index_col="id")  # read like R reads it
    assert frame.loc["J0", "site"] == "jena"
    assert flower_pca(capsys, *asked, folder_of_patients / "s.npy")[0] == 0
    assert np.load(folder_of_patients / "s.npy").shape == (30, 2)
    assert only_for_its_owner(folder_of_patients / "s.csv")
    assert only_for_its_owner(folder_of_patients / "s.npy")


@pytest.mark.slow
def test_far_rows_have_the_id_and_the_file(folder_of_patients, capsys):
    words = [folder_of_patients / "out/result.npz", folder_of_patients / "sites", "-o", folder_of_patients / "far.csv"]
    assert flower_pca(capsys, "score", *words)[0] == 0
    line = table(folder_of_patients / "far.csv")[12]
    assert [line[name] for name in ("site", "row", "id", "file")] == ["jena", "2", "J2", "jena.csv"]
    assert only_for_its_owner(folder_of_patients / "far.csv")


@pytest.mark.slow
def test_loadings_are_a_table_for_a_spreadsheet(folder_of_patients, capsys):
    result = PCAResult.load(folder_of_patients / "out/result.npz")
    lines = table(folder_of_patients / "out/loadings.csv")
    assert [line["column"] for line in lines] == NAMES
    np.testing.assert_array_equal([float(line["component_2"]) for line in lines], result.components_[1])
    assert only_for_its_owner(folder_of_patients / "out/report.html")  # The report shows the scores of all rows.
    again = folder_of_patients / "again.html"
    words = (folder_of_patients / "out/result.npz", folder_of_patients / "sites", "-o", again)
    assert flower_pca(capsys, "report", *words)[0] == 0
    assert only_for_its_owner(again)


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_scores_of_a_run_over_columns_are_for_their_owner(folder_of_patients, capsys):
    (folder_of_patients / "parties").mkdir()
    for names in (["a", "b"], ["c"]):
        part = pd.DataFrame(ROWS, columns=[*"abc"])[names]
        part.to_csv(folder_of_patients / f"parties/{names[0]}.csv", index=False)
    words = ["--partitioned-by", "columns", "--components", 1, "--out", folder_of_patients / "whole"]
    assert flower_pca(capsys, "run", folder_of_patients / "parties", *words)[0] == 0
    assert only_for_its_owner(folder_of_patients / "whole/scores.csv")
    assert only_for_its_owner(folder_of_patients / "whole/result.npz")


def test_a_result_is_in_the_order_of_the_columns_where_all_agree():
    frames = [pd.DataFrame(part, columns=NAMES) for part in np.array_split(ROWS, 3)]
    result = simulate("krylov", frames, n_components=2)
    assert result.feature_names_in_.tolist() == NAMES
    mixed = simulate("krylov", [frames[0][sorted(NAMES)], *frames[1:]], n_components=2)
    assert mixed.feature_names_in_.tolist() == sorted(NAMES)
    order = [sorted(NAMES).index(name) for name in NAMES]
    np.testing.assert_allclose(result.components_, mixed.components_[:, order], rtol=0, atol=1e-12)
