"""Test files that a node or a reader may meet by accident, and files that somebody has forged."""

import csv
import os

import numpy as np
import pandas as pd
import pytest
from dishonest import Node, RefusedError

from flower_pca.base.errors import DataError
from flower_pca.cli import main
from flower_pca.data import sources

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Z = np.eye(4)[:, :1]


def replaced(node, rows):
    """The node's process ends, and the next one meets other rows, in the same run of Flower."""
    context = node.context
    node.X = rows
    node.start()
    node.context = context
    node.client = type(node.client)(rows, context=context, **node.rules)
    return node


@pytest.mark.parametrize("memory", [False, True])
def test_rows_that_change_in_the_midst_of_a_run_are_refused(memory, tmp_path):
    node = Node(0, X, **({"memory_dir": tmp_path} if memory else {}))
    before = node.ask("ssi", {"Z": Z}, run="a")["Y"]
    np.testing.assert_array_equal(replaced(node, X.copy()).ask("ssi", {"Z": Z}, run="a")["Y"], before)
    for other in (X[1:], X + 1.0, np.vstack([X, X[:1]])):
        with pytest.raises(RefusedError, match="The rows of this node changed after the run began"):
            replaced(node, other).ask("ssi", {"Z": Z}, run="a")
        assert replaced(node, other).ask("ssi", {"Z": Z}, run=f"new {other.shape} {other[0, 0]}")["Y"].shape == (4, 1)


def test_what_a_node_keeps_of_the_rows_at_the_start_of_a_run_does_not_grow_with_their_columns(tmp_path):
    """Flower carries this state to the ClientApp and back with every message."""
    rows = pd.DataFrame(np.hstack([X] * 50), columns=[f"column {j}" for j in range(200)])
    node = Node(0, rows, memory_dir=tmp_path)
    node.ask("ssi", {"Z": np.eye(200)[:, :1]}, run="a")
    (kept,) = node.context.state.config_records["flower_pca.rows"].values()
    assert len(kept) < 120
    for renamed in ({"column 7": "other"}, {"column 7": "column 8", "column 8": "column 7"}):
        with pytest.raises(RefusedError, match="The rows of this node changed after the run began"):
            replaced(node, rows.rename(columns=renamed)).ask("ssi", {"Z": np.eye(200)[:, :1]}, run="a")


def test_changed_rows_are_refused_after_a_restart_and_in_a_resumed_run(tmp_path):
    """Both give the node another context; what it keeps in its folder is the same."""
    node = Node(0, X, memory_dir=tmp_path)
    before = node.ask("ssi", {"Z": Z}, run="a")["Y"]
    node.start()
    np.testing.assert_array_equal(node.ask("ssi", {"Z": Z}, run="a")["Y"], before)
    node.X = X + 1.0
    node.start()
    with pytest.raises(RefusedError, match="The rows of this node changed after the run began"):
        node.ask("ssi", {"Z": Z}, run="a")
    assert node.ask("ssi", {"Z": Z}, run="b")["Y"].shape == (4, 1)


def test_a_node_with_a_copy_goes_on_with_the_copy(tmp_path):
    for rules in ({"min_change": 20}, {"max_epsilon": 9.0, "max_delta": 1e-6}):
        node = Node(0, X, memory_dir=tmp_path / str(len(rules)), **rules)
        noised = {"dp.clip": 1.0, "dp.noise": 9.0, "dp.budget": 1.0} if "max_epsilon" in rules else {}
        for rows in (X, X[1:]):
            assert replaced(node, rows).ask("ssi", {"Z": Z, **noised}, run="a")["Y"].shape == (4, 1)


NAMES = ["=1+1", "+cmd|' /C calc'!A0", "-log10p", "@SUM(A1)", "plain", "a=b"]


def test_no_cell_of_a_table_that_is_written_is_run_by_a_spreadsheet(tmp_path, unillustrated):
    rows = RNG.standard_normal((50, len(NAMES))) * [6, 5, 4, 3, 2, 1]
    pd.DataFrame(rows, columns=NAMES).to_csv(tmp_path / "x.csv", index=False)
    run = ["run", str(tmp_path / "x.csv"), "--clients", "2", "--components", "2", "--out", str(tmp_path / "out")]
    assert main(run) == 0
    with (tmp_path / "out" / "loadings.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    for cell in cells:
        assert cell[:1] not in ("=", "+", "@")
        assert not cell.startswith("-") or float(cell) < 0.0
    assert {"'=1+1", "'-log10p", "plain", "a=b"} <= set(cells)


@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_a_header_of_many_long_names_is_read(sep, tmp_path):
    names = [f"ENSG{i:011d}.{i % 7}" for i in range(20_000)]
    path = tmp_path / "genes.csv"
    lines = [sep.join(names), *(sep.join(f"{value:.3f}" for value in RNG.standard_normal(20_000)) for _ in "123")]
    path.write_text("\n".join(lines) + "\n")
    read = sources.make(str(path))
    assert read.names == tuple(names)
    assert read.shape == (3, 20_000)


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    os.symlink("/dev/zero", tmp_path / "y.csv")
    for name in (str(tmp_path / "x.csv"), str(tmp_path / "y.csv"), "/dev/zero"):
        with pytest.raises(DataError, match="is a pipe or a device, which may never end"):
            sources.make(name)


def test_a_small_file_of_very_many_rows_is_refused_before_they_are_read(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("flower_pca.data.reading._LARGE", 2**20)
    flat = np.zeros((400_000, 3))
    pd.DataFrame(flat, columns=list("abc")).to_parquet(tmp_path / "x.parquet")
    np.savez_compressed(tmp_path / "x.npz", X=flat)
    for name in ("x.parquet", "x.npz"):
        with pytest.raises(DataError, match="MB of memory, which is more than 200 times the size of the file"):
            sources.make(str(tmp_path / name))
    np.savez(tmp_path / "plain.npz", X=flat)
    assert sources.make(str(tmp_path / "plain.npz")).shape == flat.shape
