"""Test a folder with a file per client, in natural order and with one set of columns."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pages import flower_pca
from scipy import sparse

from flower_pca import ConfigError, DataError, cli
from flower_pca.data import partition, sources
from flower_pca.data.sources import make, table

PARTS = [np.arange(4.0).reshape(2, 2), np.ones((1, 2)), np.full((3, 2), 7.0)]


def test_files_are_clients_in_their_natural_order(tmp_path):
    for name, part in zip(("client1", "client2", "client10"), PARTS, strict=True):
        np.save(tmp_path / f"{name}.npy", part)
    (tmp_path / "README.txt").write_text("not data")
    (tmp_path / "Thumbs.db").write_text("pictures of a folder, which Windows keeps there")
    (tmp_path / ".hidden.npy").write_text("not data")
    found = table(str(tmp_path))
    shards = partition.deal(found)
    assert all(isinstance(shard.values, np.memmap) for shard in shards)
    assert [shard.site for shard in shards] == ["client1", "client2", "client10"]
    assert all(np.array_equal(a, b) for a, b in zip(shards, PARTS, strict=True))
    assert np.array_equal(make(f"folder(path={str(tmp_path)!r})"), np.vstack(PARTS))
    assert found.beside["file"].tolist() == ["client1"] * 2 + ["client2"] + ["client10"] * 3
    again = partition.deal(table(str(tmp_path), beside=["file"]), "by_column('file')")
    assert sorted(map(len, again)) == [1, 2, 3]
    assert [len(shard) for shard in partition.deal(found, "iid", 2)] == [3, 3]


def test_sparse_files_stay_sparse(tmp_path):
    for i, part in enumerate(PARTS):
        sparse.save_npz(tmp_path / f"{i}.npz", sparse.csr_array(part))
    rows = make(str(tmp_path))
    assert sparse.issparse(rows)
    assert np.array_equal(rows.toarray(), np.vstack(PARTS))


def test_columns_are_brought_into_the_first_files_order(tmp_path):
    (tmp_path / "a.csv").write_text("age,bmi,site\n1,2,x\n")
    (tmp_path / "b.csv").write_text("site,bmi,age\ny,20,10\n")
    found = table(f"folder(path={str(tmp_path)!r}, beside=['site'])")
    assert found.names == ("age", "bmi")
    assert np.array_equal(found.rows, [[1, 2], [10, 20]])
    assert found.beside["site"].tolist() == ["x", "y"]
    chosen = make(f"folder(path={str(tmp_path)!r}, pattern='*.csv', columns=['bmi'])")
    assert np.array_equal(chosen, [[2], [20]])


def test_a_link_to_a_file_that_is_not_there_is_no_reason_to_leave_its_site_out(tmp_path):
    np.save(tmp_path / "ulm.npy", PARTS[0])
    (tmp_path / "aachen.npy").symlink_to(tmp_path / "elsewhere" / "aachen.npy")
    with pytest.raises(DataError, match=r"No file or folder named .*aachen\.npy"):
        table(str(tmp_path))
    assert table(f"folder(path={str(tmp_path)!r}, without=['aachen'])").sites == ("ulm",)


def test_the_summary_of_a_folder_names_its_sites(tmp_path):
    for site in ("north", "south"):
        (tmp_path / site).mkdir()
        (tmp_path / site / "data.csv").write_text("age,bmi\n1,2\n3,5\n")
    spec = f"folder(path={str(tmp_path)!r}, pattern='*/*')"
    with pytest.raises(DataError, match=re.escape(f"To read its subfolders, write {spec}, a client for each file.")):
        make(str(tmp_path))
    assert table(spec).sites == ("north", "south")
    (tmp_path / "south" / "more.csv").write_text("age,bmi\n1,2\n")
    assert table(spec).sites == ("north/data.csv", "south/data.csv", "south/more.csv")


def test_files_called_alike_come_in_the_order_of_their_folders_on_every_disk(tmp_path, monkeypatch):
    sites = ["site1", "site2", "site10"]
    for i, site in enumerate(sites):
        (tmp_path / site).mkdir()
        (tmp_path / site / "data.csv").write_text(f"age,bmi\n{i},2\n3,5\n")
    glob = Path.glob
    for order in (sites, sites[::-1], sites[1:] + sites[:1]):  # in any order in which a disk may list them

        def listed(path, pattern, order=order):
            return sorted(glob(path, pattern), key=lambda file: order.index(file.parent.name))

        monkeypatch.setattr(Path, "glob", listed)
        assert table(f"folder(path={str(tmp_path)!r}, pattern='*/*')").sites == tuple(sites)


@pytest.mark.parametrize("odd", range(4))
def test_the_odd_file_is_named_wherever_it_stands(odd, tmp_path, capsys):
    names = ["a.csv", "b.csv", "c.csv", "d.csv"]
    for i, name in enumerate(names):
        (tmp_path / name).write_text(f"age,{'size' if i == odd else 'bmi'}\n1,2\n{i},4\n5,{i}\n9,7\n")
    words = f"{names[odd]} do not fit: there are 2, without 'bmi' and with 'size' in addition, instead of"
    with pytest.raises(DataError, match=words):
        make(str(tmp_path))
    code, out, _ = flower_pca(capsys, "check", tmp_path)
    assert code == 2
    assert out.count("error: ") == 1
    assert re.search(words, out)
    assert out.splitlines()[-1].endswith(f"about 12 rows at 3 sites; left out: {names[odd][0]}")
    found = json.loads(flower_pca(capsys, "check", tmp_path, "--json")[1])
    assert (found["sites"], found["left_out"]) == (3, [names[odd][0]])
    assert re.search(words, *found["errors"])


@pytest.mark.usefixtures("unillustrated")
def test_a_folder_with_one_file_is_dealt_out_and_the_command_says_so(tmp_path, capsys):
    folder = tmp_path / "hospitals"
    folder.mkdir()
    np.savetxt(folder / "ulm.csv", np.random.default_rng(0).standard_normal((40, 3)), delimiter=",")
    said = f"{folder} has one file, so its rows are dealt out to 10 clients. For another number, add --clients."
    for words, heard in (([], True), (["--clients", "4"], False), (["--partition", "iid"], False)):
        assert cli.main(["run", str(folder), *words, "--out", str(tmp_path / "out")]) == 0
        assert (said in capsys.readouterr().err) == heard


def test_a_value_for_a_file_that_is_not_there_is_refused(tmp_path):
    np.savetxt(tmp_path / "trier.csv", np.ones((4, 3)), delimiter=",")
    with pytest.raises(ConfigError, match=r"has no file 'treir', for which encoding has a value. Did you mean 'trier'"):
        sources.table(f"folder(path={str(tmp_path)!r}, encoding={{'treir': 'latin-1'}})")


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_subfolder_with_tables_is_pointed_out(command, tmp_path, capsys):
    folder = tmp_path / "sites"
    (folder / "results").mkdir(parents=True)
    for name in ("bonn", "jena"):
        np.save(folder / f"{name}.npy", np.random.default_rng(ord(name[0])).standard_normal((30, 3)))
    np.save(folder / "results" / "loadings.npy", np.ones((2, 2)))
    (folder / "results" / "result.npz").write_bytes(b"")
    words = [command, folder, *(["--components", 1, "--out", tmp_path / "out"] if command == "run" else [])]
    assert flower_pca(capsys, *words)[0] == 0
    (folder / "later").mkdir()
    np.save(folder / "later" / "trier.npy", np.ones((30, 3)))
    printed = "".join(map(str, flower_pca(capsys, *words)))
    assert printed.count("has a subfolder with tables, which are not read: later. Move the files of sites into") == 1
    assert len(table(f"folder(path={str(folder)!r}, pattern='*/trier*')")) == 30


def test_a_subfolder_that_may_not_be_opened_is_passed_over(tmp_path, monkeypatch):
    """Its files are listed, but nothing else is told about them."""
    (tmp_path / "closed").mkdir()
    for file in (tmp_path / "bonn.csv", tmp_path / "closed" / "jena.csv"):
        file.write_text("age,bmi\n1,2\n3,5\n")
    is_file = Path.is_file

    def may_see(path):
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", may_see)
    assert len(table(f"folder(path={str(tmp_path)!r})")) == 2
