"""Test three hospitals with one table in three orders, one with text: files, the command, and the pooled PCA."""

import json

import numpy as np
import pytest
from hospitals import NAMES, ORDERS, SITES, SORTED, X, is_pooled, write
from pages import flower_pca

from flower_pca import PCAResult, simulate
from flower_pca.comparison import compare
from flower_pca.data import sources


@pytest.fixture
def sites_folder(tmp_path):
    """A folder with the file of each site."""
    (tmp_path / "sites").mkdir()
    for (site, part), order in zip(SITES.items(), ORDERS, strict=True):
        write(tmp_path / "sites" / f"{site}.csv", X[part][:, list(order)], [NAMES[j] for j in order])
    return tmp_path / "sites"


def add(folder, kind):
    """The third file with text, or with a column more or less."""
    rows, path = X[SITES["trier"]], folder / "trier.csv"
    if kind == "text":
        write(path, rows, NAMES, "x", between=" , ")
    elif kind == "more":
        write(path, np.hstack([rows, rows[:, :1]]), [*NAMES, "dose"])
    else:
        write(path, rows[:, :3], NAMES[:3])


def run_tables(capsys, folder, *words):
    """What `flower-pca run` leaves, or says."""
    code, _, err = flower_pca(capsys, "run", folder, "--components", 3, "--out", folder.parent / "out", *words)
    return PCAResult.load(folder.parent / "out/result.npz") if code == 0 else err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_matches_files_by_name(sites_folder, capsys):
    is_pooled(run_tables(capsys, sites_folder))
    is_pooled(run_tables(capsys, sites_folder, "--columns", "size, age,weight,beat"), ("size", "age", "weight", "beat"))
    add(sites_folder, "text")
    assert "trier.csv must hold numbers, but there is a text of 1 letter in column note (line 2)." in run_tables(
        capsys, sites_folder
    )
    is_pooled(run_tables(capsys, sites_folder, "--columns", ",".join(NAMES)), NAMES)
    add(sites_folder, "more")
    assert "there are 5, with 'dose' in addition" in run_tables(capsys, sites_folder)
    is_pooled(run_tables(capsys, sites_folder, "--columns", ",".join(NAMES)), NAMES)
    add(sites_folder, "less")
    assert "there are 3, without 'beat'" in run_tables(capsys, sites_folder)
    assert "trier.csv has no column 'beat'." in run_tables(capsys, sites_folder, "--columns", ",".join(NAMES))
    assert "columns must be a list of column names, not 'a,,b'." in run_tables(
        capsys, sites_folder, "--columns", "a,,b"
    )


def test_simulate_matches_files_by_name(sites_folder):
    def shards():
        return {site: sources.make(str(sites_folder / f"{site}.csv")) for site in SITES}

    is_pooled(simulate("krylov", shards(), n_components=3))
    add(sites_folder, "text")
    with pytest.raises(
        ValueError, match=r"trier\.csv must hold numbers, but there is a text of 1 letter in column note \(line 2\)\."
    ):
        simulate("krylov", shards(), n_components=3)
    is_pooled(simulate("krylov", shards(), n_components=3, columns=NAMES), NAMES)
    add(sites_folder, "more")
    with pytest.raises(ValueError, match=r"^The columns of client 2 \(trier\) do not fit: there are 5"):
        simulate("krylov", shards(), n_components=3)
    is_pooled(simulate("krylov", shards(), n_components=3, columns=NAMES), NAMES)
    add(sites_folder, "less")
    for columns in (None, NAMES):
        with pytest.raises(ValueError, match="'beat'"):
            simulate("krylov", shards(), n_components=3, columns=columns)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_transform_of_a_file_goes_by_name_and_says_if_it_cannot(sites_folder, tmp_path, capsys):
    result = run_tables(capsys, sites_folder)
    path, scores = tmp_path / "out/result.npz", tmp_path / "scores.npy"
    for site, part in SITES.items():
        assert flower_pca(capsys, "transform", path, sites_folder / f"{site}.csv", "-o", scores)[0::2] == (0, "")
        rows = X[part][:, [NAMES.index(name) for name in SORTED]]
        np.testing.assert_allclose(np.load(scores), (rows - result.mean_) @ result.components_.T, atol=1e-11)
    np.save(tmp_path / "x.npy", X)
    code, _, err = flower_pca(capsys, "transform", path, tmp_path / "x.npy", "-o", scores)
    line = "flower-pca: The result has column names but the rows have none, so they are matched by position.\n"
    assert (code, err) == (0, line)
    add(sites_folder, "less")
    code, _, err = flower_pca(capsys, "transform", path, sites_folder / "trier.csv", "-o", scores)
    assert code == 2
    assert "lack 'beat', which the result needs." in err


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_a_table_with_its_sites_in_a_column(tmp_path, capsys):
    names = ["site", *NAMES]
    lines = [f"{site}," + ",".join(f"{v:.17g}" for v in row) for site, part in SITES.items() for row in X[part]]
    (tmp_path / "all.csv").write_text("\n".join([",".join(names), *lines]))
    out = tmp_path / "out"
    words = ["run", tmp_path / "all.csv", "--partition", "by_column('site')", "--components", 3, "--out", out, "--json"]
    code, said, _ = flower_pca(capsys, *words)
    assert (code, json.loads(said)["clients"]) == (0, 3)
    is_pooled(PCAResult.load(out / "result.npz"), NAMES)


def test_a_comparison_matches_by_name(sites_folder):
    shards = [sources.make(str(sites_folder / f"{site}.csv")) for site in SITES]
    for course in compare(shards, algorithms=["krylov", "ssi"], n_components=2, tol=1e-10):
        assert course.angle < 1e-7
