"""Test what a running run shows: log lines, lines on stderr, a bar in a notebook."""

import logging
import re
import sys
import types

import numpy as np
import pytest
from builders import mixed
from pages import flower_pca

from flower_pca import Stream, simulate, track
from flower_pca.commands import common
from flower_pca.simulation import backend

EVERY = common.EVERY  # before a test changes it
SHARDS = mixed(0).shards


def test_every_round_is_logged_at_info_and_nothing_above_it(caplog):
    with caplog.at_level(logging.INFO, logger="flower_pca"):
        result = simulate("krylov", SHARDS, n_components=2)
    said = [record.getMessage() for record in caplog.records if record.name == "flower_pca"]
    rows, columns = sum(map(len, SHARDS)), SHARDS[0].shape[1]
    assert said[0] == f"Starting krylov of {rows:,} rows x {columns:,} columns at {len(SHARDS):,} clients"
    assert said[1:-1] == [str(record) for record in result.history]
    assert said[-1] == str(result.status)
    assert {record.levelno for record in caplog.records if record.name == "flower_pca"} == {logging.INFO}


def test_a_tracker_is_logged_too_and_the_callers_own_function_is_called(caplog):
    rows = np.random.default_rng(0).standard_normal((40, 5)) * [5.0, 3.0, 1.0, 0.5, 0.2]
    seen = []
    with caplog.at_level(logging.INFO, logger="flower_pca"):
        track("st_miss", [Stream(rows, batch=10)], n_components=2, on_round=lambda run: seen.append(len(run.history)))
    said = [record.getMessage() for record in caplog.records if record.name == "flower_pca"]
    assert said[0] == "Starting st_miss of 1 client"
    assert len(said) - 2 == len(seen) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_without_a_terminal_a_long_run_says_where_it_stands(tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", np.vstack(SHARDS))
    words = ["run", tmp_path / "x.npy", "--clients", 3, "--algorithm", "ssi", "--out", tmp_path / "out"]
    assert 1.0 < EVERY < 60.0
    assert flower_pca(capsys, *words)[2] == ""  # over before that
    monkeypatch.setattr(common, "EVERY", 0.0)
    code, said, err = flower_pca(capsys, *words, "--json")
    assert code == 0
    assert said.startswith("{")
    assert len(err.splitlines()) > 2
    assert all(re.match(r"flower-pca: after \d+ s: round \d+ \(\w+\): 3/3 clients", line) for line in err.splitlines())
    words = ["track", tmp_path / "x.npy", "--batch", 30, "--components", 2, "--out", tmp_path / "tracked"]
    assert re.search(r"^flower-pca: after \d+ s: round 0 \(st_miss\)", flower_pca(capsys, *words)[2], re.MULTILINE)


class Handle:
    """What IPython gives for something displayed."""

    def __init__(self, shown):
        self.shown = shown

    def update(self, page):
        self.shown.append(page._repr_html_())


@pytest.fixture
def notebook(monkeypatch):
    """A kernel of IPython; the pages that it has shown."""
    shown = []

    def display(page, *, display_id):
        assert display_id is True
        shown.append(page._repr_html_())
        return Handle(shown)

    shell = type("ZMQInteractiveShell", (), {})()
    front = types.ModuleType("IPython")
    front.get_ipython = lambda: shell
    front.display = types.ModuleType("IPython.display")
    front.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", front)
    monkeypatch.setitem(sys.modules, "IPython.display", front.display)
    return shown


def values_shown(pages):
    return [float(re.search(r'<progress value="([\d.]+)" max="1"', page)[1]) for page in pages]


def test_a_notebook_shows_a_bar_that_only_grows_and_ends_full(notebook, monkeypatch):
    monkeypatch.setattr(backend, "_EVERY", 0.0)
    result = simulate("ssi", SHARDS, n_components=2)
    bars = values_shown(notebook)
    assert len(bars) == len(result.history) + 1
    assert bars == sorted(bars)
    assert (bars[0], bars[-1]) == (0.0, 1.0)
    assert sum(0.0 < bar < 1.0 for bar in bars) >= 3
    assert str(result.status) in notebook[-1]


def test_the_bar_is_shown_five_times_a_second_and_in_any_case_when_it_is_full(notebook, monkeypatch):
    clock = iter([100.0, 100.1, 100.19, 100.3, 100.4])
    monkeypatch.setattr(backend, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    bar = backend.NotebookBar()
    for reached in (0.0, 0.25, 0.5, 0.75, 1.0):
        bar.show(reached, "")
    assert values_shown(notebook) == [0.0, 0.75, 1.0]


@pytest.mark.parametrize("settings", [{"mask": True}, {"algorithm": "uda"}, {"reconstruction_error": True}], ids=str)
def test_the_bar_of_every_kind_of_run_ends_full(notebook, settings):
    simulate(**{"algorithm": "krylov", "n_components": 2, **settings}, shards=SHARDS)
    assert values_shown(notebook)[-1] == 1.0


def test_elsewhere_there_is_no_bar(monkeypatch):
    assert not backend.in_notebook()
    terminal = types.ModuleType("IPython")
    terminal.get_ipython = lambda: object()
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not backend.in_notebook()


def test_a_notebook_shows_the_steps_of_a_tracker():
    rows = np.random.default_rng(0).standard_normal((40, 5)) * [5.0, 3.0, 1.0, 0.5, 0.2]
    result = track("st_miss", [Stream(rows, batch=10)], n_components=2)
    page = result._repr_html_()
    assert page.startswith("<div><pre>")
    assert result.table().splitlines()[-1].split()[2] in page
    assert "<script" not in page


def test_a_notebook_shows_a_result_as_a_table():
    rows = np.vstack(SHARDS)
    result = simulate("krylov", [np.insert(rows, 0, np.arange(len(rows)) * 1e4, axis=1)], n_components=2)
    page = result._repr_html_()
    assert page.count("<tr>") == 3
    assert f"{result.explained_variance_ratio_[1]:.2%}" in page
    assert "Column 0 alone has" in page.replace("column 0 alone", "Column 0 alone")
    assert "converged" in page
    many = simulate("krylov", [np.random.default_rng(0).standard_normal((60, 30))], n_components=25)._repr_html_()
    assert "and 5 more components" in many
    assert "<script" not in many
