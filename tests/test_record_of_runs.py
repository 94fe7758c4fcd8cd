"""Test the record of runs at a node, with one line per run."""

from datetime import UTC, datetime

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, signed
from fake_grid import FakeGrid, in_a_run
from pages import table

from flower_pca import cli, strategies
from flower_pca.clients import Rules, client_app
from flower_pca.clients.storage import record

D = 6
X = np.random.default_rng(3).standard_normal((60, D))
Z = {"Z": np.eye(D)[:, :2]}


def recorded(folder, node=""):
    """The lines of the only month in a folder, which may belong to several nodes."""
    (path,) = folder.glob(f"flower_pca-record-{node}*.csv")
    return table(path)


def test_a_run_is_one_line_however_many_messages_it_has(tmp_path):
    node = Node(0, X, memory_dir=tmp_path)
    for _ in range(3):
        answer = node.ask("ssi", Z, run="first")
    node.ask("covariance", {"columns": np.array(D)}, run="second")
    first, second = recorded(tmp_path)
    assert (first["flower_run"], first["run"], first["algorithm"]) == ("1", "first", "ssi")
    assert (first["messages"], first["refused"], first["columns"]) == ("3", "0", str(D))
    assert int(first["bytes_sent"]) == 3 * sum(a.nbytes for a in answer.values())
    assert (first["protection"], first["ended"]) == ("none", "answered ssi")
    assert (second["run"], second["stages"]) == ("second", "covariance")
    assert first["began"] <= first["last_message"] <= f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def test_the_lines_of_two_tables_of_other_values_are_the_same(tmp_path):
    lines = []
    for i, rows in enumerate((X, 100.0 * np.exp(X))):
        node = Node(0, rows, memory_dir=tmp_path / f"{i}")
        node.ask("opening", {"peaks": True, "seed": 1, "width": 2}, algorithm="krylov", run="first")
        node.ask("ssi", Z, run="first")
        node.ask("covariance", {"columns": np.array(D)}, run="second")
        with pytest.raises(RefusedError):
            node.ask("signal", {}, run="third")
        lines.append([{**line, "began": "", "last_message": ""} for line in recorded(tmp_path / f"{i}")])
    assert len(lines[0]) == 3
    assert lines[0] == lines[1]


def test_a_refusal_is_written_down_with_its_reason(tmp_path):
    node = Node(0, X, memory_dir=tmp_path, min_rows=100)
    with pytest.raises(RefusedError):
        node.ask("ssi", Z)
    (line,) = recorded(tmp_path)
    assert (line["messages"], line["refused"], line["bytes_sent"]) == ("1", "1", "0")
    assert line["ended"].startswith("refused: This node has fewer rows than its min_rows, 100.")


def test_masks_and_noise_are_named(tmp_path):
    nodes = signed(tmp_path, [X, X + 1.0, X * 2.0])
    Sums(nodes, run="masked run").product(np.eye(D))
    (found,) = [line for line in recorded(tmp_path / "memory", "0-") if line["run"] == "masked run"]
    assert (found["protection"], found["stages"]) == ("masks", "masked, ssi")


def test_an_honest_run_over_flower_is_recorded_with_what_its_run_config_says(tmp_path):
    app = client_app(lambda context: X + context.node_config["partition-id"], rules=Rules(memory_dir=tmp_path))
    with in_a_run():
        result = strategies.Krylov(n_components=2).fit(FakeGrid(app, 3))
    assert result.n_samples_ == 3 * len(X)
    for key in range(3):
        (line,) = recorded(tmp_path, f"{key}-")
        assert (line["algorithm"], line["refused"]) == ("krylov", "0")
        assert "krylov" in line["stages"]


def test_nothing_is_run_as_a_formula_by_a_spreadsheet(tmp_path):
    node = Node(0, X, memory_dir=tmp_path)
    node.context.run_config["options"] = "=1+1"
    for _ in "12":
        node.ask("ssi", Z, run="=HYPERLINK(1)", algorithm="ssi")
    (line,) = recorded(tmp_path)
    assert line["run"] == "'=HYPERLINK(1)"
    assert line["asked"] == '{"options": "=1+1"}'
    assert line["messages"] == "2"


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({}, None),
        ({"memory_dir": "memory"}, "memory"),
        ({"memory_dir": "memory", "run_record": False}, None),
        ({"memory_dir": "memory", "run_record": "records"}, "records"),
        ({"run_record": "records"}, "records"),
    ],
)
def test_the_operator_chooses_whether_and_where_runs_are_recorded(rules, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    Node(0, X, **rules).ask("ssi", Z)
    assert {path.parent.name for path in tmp_path.rglob("flower_pca-record-*.csv")} == ({kept} if kept else set())


def test_a_node_with_a_ledger_in_its_home_has_its_record_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Node(0, X, max_columns=50).ask("ssi", Z)
    assert len(recorded(tmp_path / ".flower_pca")) == 1


def test_a_month_goes_when_it_is_older_than_the_days_that_are_kept(tmp_path):
    for month in ("2019-12", "2020-01", f"{datetime.now(UTC):%Y}-01"):
        (tmp_path / f"flower_pca-record-0-{month}.csv").write_text("began\n")
    (tmp_path / "flower_pca-record-1-2019-12.csv").write_text("of another node\n")
    Node(0, X, memory_dir=tmp_path, record_days=700).ask("ssi", Z)
    assert Rules().record_days == 1096
    left = {path.name[-11:-4] for path in tmp_path.glob("flower_pca-record-0-*.csv")}
    assert left == {f"{datetime.now(UTC):%Y}-01", f"{datetime.now(UTC):%Y-%m}"}
    assert (tmp_path / "flower_pca-record-1-2019-12.csv").exists()


def test_names_of_runs_without_end_share_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_MOST", 3)
    node = Node(0, X, memory_dir=tmp_path)
    for run in "abcde":
        node.ask("ssi", Z, run=run)
    assert [(line["run"], line["messages"]) for line in recorded(tmp_path)] == [
        ("a", "1"),
        ("b", "1"),
        ("c", "1"),
        ("more runs of this month", "2"),
    ]


def test_an_answer_that_cannot_be_written_down_does_not_leave(tmp_path, monkeypatch):
    def full(path, lines):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "_write", full)
    with pytest.raises(RefusedError, match="No space left on device"):
        Node(0, X, memory_dir=tmp_path).ask("ssi", Z)


def test_forget_erases_the_record_by_name_only(tmp_path, capsys):
    Node(0, X, memory_dir=tmp_path).ask("ssi", Z)
    config = f"memory-dir='{tmp_path}' partition-id=0"
    assert cli.main(["forget", config, "--yes"]) == 0
    assert len(recorded(tmp_path)) == 1
    assert cli.main(["forget", config, "--what", "record", "--yes"]) == 0
    assert not list(tmp_path.glob("flower_pca-record-*.csv"))
    assert "the record of runs" in capsys.readouterr().out
