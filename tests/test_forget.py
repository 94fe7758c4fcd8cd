"""Test `flower-pca forget`: it says what it erases and what cannot be undone, and erases it."""

import json

import numpy as np
import pytest
from cases import every
from dishonest import Node, RefusedError

from flower_pca import cli
from flower_pca.base import files
from flower_pca.clients.storage import erasure, folders, ledger

X = np.random.default_rng(3).standard_normal((60, 6))
Z = {"Z": np.eye(6)[:, :2]}


@pytest.fixture
def shelf(tmp_path):
    """The folders of a node with every kind of file, and its node-config."""
    ask_in_lots(tmp_path)
    Node(0, X, memory_dir=tmp_path, allow="faps").ask(
        "faps", {**Z, "inner_steps": np.array(2), "inner_tol": np.array(0.0)}, algorithm="faps"
    )
    own = tmp_path / "out"
    (own / "flower_pca-local-0").mkdir(parents=True)
    (own / "flower_pca-local-0" / "step-0.npz").write_bytes(b"rows")
    (own / "flower_pca-local-0.npz").write_bytes(b"components")
    return tmp_path, f"memory-dir='{tmp_path}' output-dir='{own}' partition-id=0"


def ask_in_lots(folder, rows=X, run="first"):
    """A message to a node that releases its rows in lots, with a ledger that counts columns."""
    return Node(0, rows, memory_dir=folder, min_change=20, max_columns=50).ask("ssi", Z, run=run)


def there(folder):
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(str(path.relative_to(folder)) for path in found)


def forget(*words):
    return cli.main(["forget", *words])


def test_forget_lists_what_it_would_erase(shelf, capsys):
    folder, config = shelf
    before = there(folder)
    assert forget(config) == 0
    out = capsys.readouterr().out
    assert there(folder) == before
    for name in ("-run-", "-fixed-0.npz", "-rows-0.npz", "-local-0.npz", "local-0: "):
        assert name in out
    assert "ledger-0.npz" not in out
    assert "cannot be taken back" in out
    assert out.endswith("Run the command again with --yes.\n")


def test_forget_erases_all_but_the_ledger(shelf, capsys):
    folder, config = shelf
    book = folders.ledger_file(folder, "0")
    with ledger.open_ledger(book) as found:
        told = found.columns
        assert found.versions == 1
    assert forget(config, "--yes", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["erased"]
    assert {one["kind"] for one in said["files"]} == {"runs", "statistics", "local", "rows"}
    assert [name for name in there(folder) if "record" not in name] == [book.name, "flower_pca-marks.npz"]
    with ledger.open_ledger(book) as found:
        assert (found.columns, found.versions, found.runs) == (told, 1, {})
    assert told > 0


def test_rows_that_are_gone_or_damaged_are_no_end(tmp_path):
    """What the refusal of a damaged version names as the way out is one."""
    ask_in_lots(tmp_path)
    folders.rows_file(tmp_path, "0").unlink()
    with pytest.raises(RefusedError, match="run flower-pca forget"):
        ask_in_lots(tmp_path, run="second")
    assert forget(f"memory-dir='{tmp_path}' partition-id=0", "--what", "rows", "--yes") == 0
    ask_in_lots(tmp_path, X[1:], run="third")


def test_the_ledger_goes_by_name_only(tmp_path, capsys):
    ask_in_lots(tmp_path)
    assert forget(f"memory-dir='{tmp_path}' partition-id=0", "--what", "ledger", "--yes") == 0
    assert "every budget of the node starts again" in capsys.readouterr().out
    assert not folders.ledger_file(tmp_path, "0").exists()


def test_a_ledger_in_use_and_all_else_stay(shelf, capsys):
    folder, config = shelf
    before = there(folder)
    with folders.lock_file(folders.ledger_file(folder, "0")):
        assert forget(config, "--yes") == 2
    assert "A run is using" in capsys.readouterr().err
    assert there(folder) == before


def test_other_nodes_of_the_folder_keep_theirs(shelf):
    folder, _ = shelf
    before = there(folder)
    assert forget(f"memory-dir='{folder}' partition-id=1", "--yes") == 0
    assert there(folder) == before


def test_a_folder_that_is_not_there_is_not_called_empty(tmp_path, capsys):
    """A misspelled folder must not look as if the copy of the rows were gone."""
    missing = tmp_path / "memry"
    assert forget(f"memory-dir='{missing}' partition-id=0", "--yes") == 2
    said = capsys.readouterr()
    assert f"There is no folder {missing}, so it is unknown what the node has kept." in said.err
    assert "nothing to erase" not in said.out
    own = tmp_path / "own" / "flower_pca-local-0.npz"
    own.parent.mkdir()
    own.write_bytes(b"")
    assert forget(f"memory-dir='{missing}' output-dir='{own.parent}'", "--what", "local", "--yes") == 0
    assert not own.exists()
    capsys.readouterr()
    missing.mkdir()
    assert forget(f"memory-dir='{missing}' partition-id=0", "--yes") == 0
    assert capsys.readouterr().out == "There is nothing to erase.\n"


def test_a_checkpoint_goes_with_its_newest_message_and_its_steps(tmp_path, capsys):
    kinds = {"run.npz": "tracking checkpoint", "run.npz.newest": "tracking checkpoint"}
    kinds |= {"run.npz.columns": "columns", "run.npz.steps": "steps"}
    for name, kind in kinds.items():
        files.write(tmp_path / name, kind, {}, {"state": np.zeros(2)})
    assert forget("--checkpoint", str(tmp_path / "run.npz"), "--yes") == 0
    assert there(tmp_path) == []
    assert forget("--checkpoint", str(tmp_path / "run.npz")) == 0
    assert capsys.readouterr().out.endswith("There is nothing to erase.\n")


@every("name", ["notes.txt", "result.npz"])
def test_what_is_no_checkpoint_is_not_erased_as_one(name, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("precious")
    files.write(tmp_path / "result.npz", "result", {}, {"components_": np.eye(2)})
    assert forget("--checkpoint", str(tmp_path / name), "--yes") == 2
    assert f"{tmp_path / name} is damaged or is not a checkpoint." in capsys.readouterr().err
    assert there(tmp_path) == ["notes.txt", "result.npz"]


def test_the_help_names_all_that_a_node_holds_and_the_command_takes_no_other(shelf, capsys):
    with pytest.raises(SystemExit):
        forget("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert f"what to erase: {', '.join([*erasure.HOLDS][:-1])} or {[*erasure.HOLDS][-1]} (default" in said
    assert forget(shelf[1], "--what", "run", "--yes") == 2
    assert "--what must be 'runs', " in capsys.readouterr().err
    assert any("-run-" in name for name in there(shelf[0]))
