"""Test `flower-pca track FOLDER --follow` over a long time."""

import errno
import os
import signal

import numpy as np
import pytest
from pages import flower_pca

from flower_pca import TrackingResult
from flower_pca.base import files
from flower_pca.results.record import Events

NAMES = "a,b,c,d"


def write_file(folder, name, seed, text=None):
    folder.mkdir(exist_ok=True)
    rows = np.random.default_rng(seed).standard_normal((6, 4)) * [9.0, 5.0, 0.1, 0.1]
    np.savetxt(folder / name, rows, delimiter=",", header=NAMES, comments="")
    if text is not None:
        (folder / name).write_text(text)
    os.utime(folder / name, (1e9, 1e9))  # unchanged for a long time


@pytest.fixture
def follow_command(tmp_path, monkeypatch, unillustrated):
    """The command on a folder of two sites; pictures take most of its time, and are left out."""
    monkeypatch.setattr("flower_pca.commands.track._write_picture", lambda *given: "no picture")
    monkeypatch.setattr("flower_pca.report.write", lambda *given, **more: None)
    for i in range(3):
        write_file(tmp_path / "in", f"north_{i}.csv", i)
        write_file(tmp_path / "in", f"west_{i}.csv", 10 + i)
    files = ["--out", tmp_path / "out", "--events", tmp_path / "e.jsonl", "--checkpoint", tmp_path / "c.npz"]
    return ["track", tmp_path / "in", "--follow", "--interval", "0.01", "--components", 2, *files]


def interrupt_at(monkeypatch, step, stop):
    """Stop at a step, once it is told."""
    tell = Events.__call__

    def told(self, record):
        tell(self, record)
        if record.step == step:
            stop()

    monkeypatch.setattr(Events, "__call__", told)


def rows_by_step(tmp_path):
    return TrackingResult.load(tmp_path / "out/tracking.npz").rows_.tolist()


def test_follow_ends_after_the_given_number_of_steps(follow_command, tmp_path, capsys):
    code, _said, err = flower_pca(
        capsys, *follow_command, "--steps", 3, "--live", tmp_path / "live.html", "--drop", "d"
    )
    assert (code, err) == (0, "")
    assert rows_by_step(tmp_path) == [12, 12, 12]
    result = TrackingResult.load(tmp_path / "out/tracking.npz")
    assert result.feature_names_in_.tolist() == ["a", "b", "c"]
    assert result.site_names == {0: "north", 1: "west"}
    assert "The run has ended: 3 steps, as many as asked for" in (tmp_path / "live.html").read_text()


def test_looks_without_a_pause_are_refused(follow_command, capsys):
    code, _said, err = flower_pca(capsys, *follow_command, "--interval", 0)
    assert (code, "must be a finite number of at least 0.01" in err) == (2, True), err


@pytest.mark.usefixtures("unillustrated")
def test_values_that_stand_for_a_gap_and_lines_of_totals_are_named(follow_command, tmp_path, capsys):
    rows = np.random.default_rng(7).normal(50.0, 5.0, (8, 4)).round(1)
    lines = [",".join(map(str, row)) for row in rows]
    gap, total = "-999,51.0,,49.0", ",".join(f"{s:.1f}" for s in rows.sum(axis=0))
    write_file(tmp_path / "in", "north_1.csv", 0, "\n".join([NAMES, *lines, gap]) + "\n")
    write_file(tmp_path / "in", "west_1.csv", 0, "\n".join([NAMES, *lines, total]) + "\n")
    code, _said, err = flower_pca(capsys, *follow_command, "--steps", 3)
    folder = tmp_path / "in"
    first = f"Column a holds -999 1 time, far from all other values: the first is line 10 of {folder / 'north_1.csv'}."
    second = f"Line 10 of {folder / 'west_1.csv'} is the sum of the lines above it, not a row of data. Remove it."
    expected = [
        f"flower-pca: hint: {first} If it stands for a missing value, read the data with --gaps=-999.",
        f"flower-pca: hint: {second}",
    ]
    assert (code, err.splitlines()) == (0, expected)
    whole = ["track", folder / "north_1.csv", "--batch", 3, "--components", 2, "--out", tmp_path / "whole"]
    assert flower_pca(capsys, *whole)[2].splitlines() == expected[:1]


@pytest.fixture
def interruptible():
    """Signals as in a terminal: jobs in the background ignore Ctrl-C, and a simulation engine takes the other one."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stop", [lambda: os.kill(os.getpid(), signal.SIGTERM), lambda: signal.raise_signal(2)])
def test_a_service_that_is_stopped_leaves_its_result_and_goes_on(follow_command, tmp_path, capsys, monkeypatch, stop):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1, stop)
        code, _said, err = flower_pca(capsys, *follow_command)
    assert code == 0
    assert rows_by_step(tmp_path) == [12, 12]
    again = f"The state of the run is in {tmp_path / 'c.npz'}; the same command with --resume continues from it."
    assert err == f"flower-pca: Ended after step 1. {again}\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    write_file(tmp_path / "in", "west_9.csv", 20)
    assert flower_pca(capsys, *follow_command, "--resume", "--steps", 4)[0] == 0
    assert rows_by_step(tmp_path) == [12, 12, 12, 6]
    assert len((tmp_path / "e.jsonl").read_text().splitlines()) == 4


def test_a_bad_line_is_said_at_once_and_the_others_go_on(follow_command, tmp_path, capsys):
    write_file(tmp_path / "in", "west_1.csv", 0, text=f"{NAMES}\n1,2,3,4\n1,2,none of it,4\n")
    code, _, err = flower_pca(capsys, *follow_command, "--steps", 3)
    assert code == 0
    assert rows_by_step(tmp_path) == [12, 6, 12]
    assert err.count("\n") == 1
    assert err.startswith("flower-pca: west_1.csv is ignored until it changes. ")
    assert "line 3" in err


def test_a_full_disk_says_so_and_the_run_goes_on_later(follow_command, tmp_path, capsys, monkeypatch):
    written, write = [], files.write

    def full(*given, **more):
        written.append(given)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(given[0]))
        return write(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr("flower_pca.core.drive.files.write", full)
        code, _, err = flower_pca(capsys, *follow_command, "--live", tmp_path / "live.html")
    assert code == 2
    onwards = "The state of the run is in {0}; the same command with --resume continues from it."
    said = f"No space left on device: {{0}}. Correct this error first. {onwards}".format(tmp_path / "c.npz")
    assert err.splitlines()[-1] == f"flower-pca: {said}"
    assert flower_pca(capsys, *follow_command, "--resume", "--steps", 3)[0] == 0
    assert rows_by_step(tmp_path) == [12, 12, 12]


@pytest.mark.slow
def test_columns_of_a_table_are_chosen_and_left_out(tmp_path, capsys, unillustrated):
    (tmp_path / "rows.csv").write_text("when,a,b,c,d\n" + "monday,1,2,3,4\ntuesday,2,1,5,1\n" * 12)
    given = ["track", tmp_path / "rows.csv", "--batch", 6, "--components", 1, "--out", tmp_path / "out"]
    for more, names in ((("--columns", "b,a"), ["a", "b"]), (("--drop", "when,d"), ["a", "b", "c"])):
        assert flower_pca(capsys, *given, *more)[0] == 0
        assert TrackingResult.load(tmp_path / "out/tracking.npz").feature_names_in_.tolist() == names


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--clients", 3, "--follow"), "With --follow, each site of the folder is a client. Leave --clients out."),
        (("--interval", 3), "Give --batch, the number of rows of a step"),
        (("--interval", 3, "--batch", 9), "--interval is for --follow. Add --follow, or leave"),
        (("--sites", "a", "--batch", 9), "--sites is for --follow. Add --follow, or leave --sites out."),
        (("--follow", "--steps", 0), "--steps must be a whole number of at least 1, not 0."),
    ],
)
def test_options_that_do_not_go_together(tmp_path, capsys, more, sentence):
    code, _, err = flower_pca(capsys, "track", tmp_path, "--components", 2, *more)
    assert code == 2
    assert err.startswith(f"flower-pca: {sentence}")
