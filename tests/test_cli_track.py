"""Test `flower-pca track`: events, alarms, and runs that are interrupted and resumed."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from pages import flower_pca

from flower_pca import DataError, TrackingResult, cli, track
from flower_pca.base import files
from flower_pca.commands.track import deal_batches
from flower_pca.results.record import Events

D, R, BATCH, STEPS = 12, 2, 30, 8


def turning_rows(steps=STEPS, turn=5):
    """A plane with noise and gaps in the order of time, which is another one from step `turn` on."""
    rng = np.random.default_rng(3)
    bases = [np.linalg.qr(U)[0] for U in rng.standard_normal((2, D, R))]
    drawn = [
        rng.standard_normal((BATCH, R)) * [9.0, 6.0] @ bases[t >= turn].T + 0.1 * rng.standard_normal((BATCH, D))
        for t in range(steps)
    ]
    every = np.vstack(drawn)
    return np.where(rng.random(every.shape) < 0.05, np.nan, every)


ALGORITHM = "st_miss(threshold=5.0, update_length=1)"


def command_in(folder):
    """The command on a file of rows, with events and a checkpoint."""
    np.save(folder / "rows.npy", turning_rows())
    given = ["--batch", BATCH, "--components", R, "--clients", 3, "--algorithm", ALGORITHM, "--detect"]
    files = ["--out", folder / "out", "--events", folder / "e.jsonl", "--checkpoint", folder / "c.npz"]
    return ["track", folder / "rows.npy", *given, *files]


@pytest.fixture
def track_command(tmp_path, monkeypatch, unillustrated):
    """That command; pictures take most of its time, and are left out."""
    monkeypatch.setattr("flower_pca.commands.track._write_picture", lambda *given: "no picture")
    monkeypatch.setattr("flower_pca.report.write", lambda *given, **more: None)
    return command_in(tmp_path)


@pytest.fixture(scope="module")
def followed_to_the_end(tmp_path_factory):
    """The events and the result of that command, where nothing breaks it off."""
    folder = tmp_path_factory.mktemp("followed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flower_pca.commands.track._write_picture", lambda *given: "no picture")
        patch.setattr("flower_pca.report.write", lambda *given, **more: None)
        assert cli.main([str(word) for word in command_in(folder)]) == 0
    return events(folder / "e.jsonl"), TrackingResult.load(folder / "out/tracking.npz")


def events(path):
    """The lines of a file of events, but for the time of day."""
    lines = path.read_text().splitlines()
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", json.loads(line)["time"]) for line in lines)
    return [{name: value for name, value in json.loads(line).items() if name != "time"} for line in lines]


def break_off(monkeypatch, at, *, after=False):
    """Ctrl-C while the state is written for the time `at`, before or after it is there."""
    count, write = [0], files.write

    def broken(*given, **more):
        count[0] += 1
        if after and count[0] == at:
            write(*given, **more)
        if count[0] == at:
            raise KeyboardInterrupt
        return write(*given, **more)

    monkeypatch.setattr("flower_pca.core.drive.files.write", broken)


def test_rows_are_dealt_by_step_and_then_in_turn():
    rows = np.arange(11)
    dealt = deal_batches(rows, 4, 3)
    found = {int(row): (step, k) for k, own in enumerate(dealt) for step, part in enumerate(own) for row in part}
    assert found == {row: (row // 4, row % 4 % 3) for row in range(11)}
    assert [own[1] is None for own in deal_batches(rows[:5], 4, 2)] == [False, True]


@pytest.mark.slow
def test_events_and_alarms_say_what_the_result_says(track_command, tmp_path, capsys):
    code, said, err = flower_pca(capsys, *track_command)
    assert code == 0
    result, found = TrackingResult.load(tmp_path / "out/tracking.npz"), events(tmp_path / "e.jsonl")
    assert [event["step"] for event in found] == list(range(STEPS))
    assert [event["rows"] for event in found] == result.rows_.tolist()
    assert [event["residual"] for event in found] == result.residuals_.tolist()
    assert {e["step"]: e["statistic"] for e in found if e["statistic"] is not None} == result.statistics_
    assert found[0]["subspace_change"] is None
    assert [event["subspace_change"] for event in found[1:]] == pytest.approx(
        result.subspace_change_[1:].tolist(), abs=1e-12
    )
    shares = np.isnan(turning_rows()).reshape(STEPS, -1).mean(axis=1)
    assert [event["missing_share"] for event in found] == pytest.approx(shares.tolist(), abs=1e-15)
    assert [[own["rows"] for own in event["clients"].values()] for event in found] == [[10, 10, 10]] * STEPS
    alarms = [event["change"] for event in found if event["change"]]
    assert len(alarms) == 1
    assert alarms[0].startswith("The subspace has changed at step 5: the statistic is ")
    assert err == f"flower-pca: {alarms[0]}\n"
    assert result.changes_.tolist() == [5]
    assert "\nchange at step 5\n" in said
    assert not (tmp_path / "c.npz").exists()


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_files_of_a_folder_are_clients_each_with_its_own_time(track_command, tmp_path, capsys):
    every = turning_rows(steps=8)
    parts = {"north": every[::2], "west": every[1::2][:80]}  # This stream ends two steps earlier.
    (tmp_path / "sites").mkdir()
    for site, part in parts.items():
        file, names = tmp_path / "sites" / f"{site}.csv", ",".join("abcdefghijkl")
        np.savetxt(file, part, delimiter=",", header=names, comments="")
    at = track_command.index("--clients")
    track_command = ["track", tmp_path / "sites", *track_command[2:at], *track_command[at + 2 :]]
    assert flower_pca(capsys, *track_command)[0] == 0
    result, found = TrackingResult.load(tmp_path / "out/tracking.npz"), events(tmp_path / "e.jsonl")
    reference = track(ALGORITHM.replace("(", "(detect=True, "), list(parts.values()), n_components=R, batch=15)
    assert np.array_equal(result.components_, reference.components_)
    assert result.rows_.tolist() == [30] * 5 + [20] + [15] * 2
    assert result.site_names == {0: "north", 1: "west"}
    assert [own["site"] for own in found[0]["clients"].values()] == ["north", "west"]
    for more, sentence in {
        ("--clients", 3): "The data has 2 clients, not 3. Leave --clients out.",
        ("--batch", 31): "--batch must be divisible by the number of clients (2), but 31 is not. Choose",
    }.items():
        code, _, err = flower_pca(capsys, *track_command, *more)
        assert code == 2
        assert err.startswith(f"flower-pca: {sentence}")


@pytest.mark.slow
def test_a_run_too_short_for_alarms_does_not_say_that_nothing_has_changed(track_command, tmp_path, capsys):
    short = "too few steps to detect changes: detection starts after about"
    for algorithm, more, said_of_it in (
        ("st_miss", (), f"{short} 18 steps"),
        ("st_miss", ("--threshold", "1e9"), f"{short} 10 steps"),
        ("st_miss(update_length=3)", ("--threshold", "1e9"), "no change"),
    ):
        given = [algorithm if word == ALGORITHM else word for word in track_command]
        code, said, _ = flower_pca(capsys, *given, *more)
        assert code == 0
        assert f"\n{said_of_it}\n" in said
        (tmp_path / "e.jsonl").unlink()


@pytest.mark.slow
def test_under_masks_events_have_no_clients(track_command, tmp_path, capsys):
    assert flower_pca(capsys, *track_command, "--mask")[0] == 0
    assert [event["clients"] for event in events(tmp_path / "e.jsonl")] == [{}] * STEPS


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before it is kept", "after it is kept"])
@pytest.mark.parametrize("at", [1, 2, 10, 11, 12])
def test_a_run_that_is_broken_off_goes_on_to_the_bit_with_every_step_once(
    at, after, track_command, followed_to_the_end, tmp_path, capsys, monkeypatch
):
    reference, one = followed_to_the_end
    with monkeypatch.context() as patch:
        break_off(patch, at, after=after)
        code, _, err = flower_pca(capsys, *track_command, "--resume")
    assert code == 130
    there = (tmp_path / "c.npz").exists()
    assert ("the same command with --resume continues from it." in err) == there == (at > 1 or after)
    with (tmp_path / "e.jsonl").open("ab") as file:
        file.write(b'{"time": "2026-01-01T00:00:00+00:00", "step": 3, "half')  # A power failure may leave half a line.
    code, _, err = flower_pca(capsys, *track_command, "--resume")
    assert code == 0
    assert ("There is no checkpoint" in err) == (not there)
    assert events(tmp_path / "e.jsonl") == reference
    two = TrackingResult.load(tmp_path / "out/tracking.npz")
    assert np.array_equal(one.components_, two.components_)
    assert np.array_equal(one.values_, two.values_)
    assert one.totals_ == two.totals_


@pytest.mark.slow
def test_a_file_that_has_grown_is_followed_further(track_command, tmp_path, capsys, monkeypatch):
    """Broken off in every message of the last step too, when it seemed that no more rows would come."""
    np.save(tmp_path / "long.npy", turning_rows(STEPS + 3))
    np.save(tmp_path / "rows.npy", turning_rows(STEPS + 3)[: STEPS * BATCH])
    reference = [tmp_path / "whole" if word == tmp_path / "out" else word for word in track_command[:-4]]
    flower_pca(capsys, *[tmp_path / "long.npy" if word == tmp_path / "rows.npy" else word for word in reference])
    one = TrackingResult.load(tmp_path / "whole/tracking.npz")
    flower_pca(capsys, *[tmp_path / "short" if word == tmp_path / "out" else word for word in track_command[:-4]])
    messages = len(TrackingResult.load(tmp_path / "short/tracking.npz").history)
    for at in range(messages - 3, messages):
        np.save(tmp_path / "rows.npy", turning_rows(STEPS + 3)[: STEPS * BATCH])
        with monkeypatch.context() as patch:
            break_off(patch, at, after=True)
            assert flower_pca(capsys, *track_command, "--resume")[0] == 130
        np.save(tmp_path / "rows.npy", turning_rows(STEPS + 3))
        assert flower_pca(capsys, *track_command, "--resume")[0] == 0
        two = TrackingResult.load(tmp_path / "out/tracking.npz")
        assert np.array_equal(one.components_, two.components_)
        assert [event["step"] for event in events(tmp_path / "e.jsonl")] == list(range(STEPS + 3))
        (tmp_path / "e.jsonl").unlink()


@pytest.mark.slow
def test_a_run_that_has_ended_may_be_repeated_over_its_own_events(track_command, tmp_path, capsys):
    flower_pca(capsys, *track_command)
    before = (tmp_path / "e.jsonl").read_text()
    assert flower_pca(capsys, *track_command, "--resume")[0] == 0
    assert (tmp_path / "e.jsonl").read_text() == before


@pytest.mark.slow
def test_what_cannot_be_gone_on_with_is_said_in_one_sentence(track_command, tmp_path, capsys, monkeypatch):
    def said(*more, code=2, given=track_command):
        found, out, err = flower_pca(capsys, *given, *more)
        assert (found, out) == (code, "")
        return err.removeprefix("flower-pca: ")

    assert said("--resume", given=track_command[:-2]) == (
        "--resume needs the file to continue from. Add --checkpoint FILE.\n"
    )
    gone = [tmp_path / "no/c.npz" if word == tmp_path / "c.npz" else word for word in track_command]
    no_folder = f"The folder of the checkpoint, {tmp_path}/no, does not exist. Create this folder first.\n"
    assert said(given=gone) == no_folder
    unwritable = [tmp_path / "no/e.jsonl" if word == tmp_path / "e.jsonl" else word for word in track_command]
    assert "/no/e.jsonl cannot be written: " in said(given=unwritable)
    folder = [tmp_path if word == tmp_path / "e.jsonl" else word for word in track_command]
    assert f"The event file {tmp_path} cannot be written: " in said(given=folder)
    with monkeypatch.context() as patch:
        break_off(patch, 10)
        flower_pca(capsys, *track_command)
    assert said() == (
        f"The checkpoint {tmp_path}/c.npz exists. Add --resume to continue from it, or name another file.\n"
    )
    new = [tmp_path / "d.npz" if word == tmp_path / "c.npz" else word for word in track_command]
    assert said(given=new) == (
        f"The event file {tmp_path}/e.jsonl already has events. Choose another file, or use --resume to continue it.\n"
    )
    assert "The checkpoint belongs to another run, with --components 2." in said("--resume", "--components", 3)
    assert "The checkpoint belongs to a run of 3 streams, but this run has 4." in said("--resume", "--clients", 4)
    np.save(tmp_path / "other.npy", turning_rows() + 1.0)
    other = [tmp_path / "other.npy" if word == tmp_path / "rows.npy" else word for word in track_command]
    assert re.fullmatch(
        r"The checkpoint belongs to a run with different rows at client 0, step \d\. "
        r"Give the rows of that run, or choose another checkpoint\.\n",
        said("--resume", given=other),
    )
    (tmp_path / "strange.jsonl").write_text('{"name": "another program"}\n')
    strange = [tmp_path / "strange.jsonl" if word == tmp_path / "e.jsonl" else word for word in track_command]
    assert "is not the event file of this run: it has a line that is not a step." in said("--resume", given=strange)
    whole = (tmp_path / "e.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "e.jsonl").write_text("".join(whole[:1]))
    assert re.search(r"this run: it ends with step 0, before step \d\.", said("--resume"))


@pytest.mark.parametrize("option", [["--threshold", 0.5], ["--alarm-rate", 0.01], ["--monitor"]])
def test_what_changes_are_told_by_is_of_no_use_where_none_is_looked_for(option, track_command, capsys):
    bare = [word for word in track_command if word not in ("--detect", "--algorithm", ALGORITHM)]
    code, _, err = flower_pca(capsys, *bare, *option)
    assert code == 2
    assert err == (f"flower-pca: {option[0]} works only with --detect. Add --detect.\n")


@pytest.mark.slow
def test_what_a_change_is_of_is_said_by_column_and_by_client(track_command, tmp_path, capsys):
    every = turning_rows(steps=26, turn=26)
    every[23 * BATCH :, 4] *= 30.0
    np.save(tmp_path / "rows.npy", every)
    track_command[track_command.index(ALGORITHM)] = "st_miss"
    code, _, err = flower_pca(capsys, *track_command, "--monitor")
    assert code == 0
    result, found = TrackingResult.load(tmp_path / "out/tracking.npz"), events(tmp_path / "e.jsonl")
    (alarm,) = [event for event in found if event["change"]]
    assert result.causes_ == {24: alarm["cause"]}
    assert alarm["cause"]["columns"][0] == 4
    assert sorted(alarm["cause"]["sites"]) == [0, 1, 2]
    assert "SPE" in alarm["cause"]["reasons"]
    assert ", most in column 4, " in err
    assert ", at client " in err
    assert "Step 24: by SPE, because rows have left the subspace" in " ".join(result.summary().findings)
    flower_pca(capsys, *track_command, "--out", tmp_path / "plain", "--events", tmp_path / "plain.jsonl")
    assert all(event["cause"] is None for event in events(tmp_path / "plain.jsonl"))


@pytest.mark.slow
def test_another_runs_step_is_no_repetition(tmp_path, capsys, track_command):
    flower_pca(capsys, *track_command)
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    lines[4] = json.dumps({**json.loads(lines[4]), "rows": 31})
    (tmp_path / "e.jsonl").write_text("\n".join(lines) + "\n")
    code, _, err = flower_pca(capsys, *track_command, "--resume")
    assert code == 2
    assert "is not the event file of this run: it has a different step 4" in err


@pytest.mark.slow
def test_events_may_go_into_a_pipe(tmp_path, track_command, capsys):
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.extend(pipe.read_text().splitlines()))
    reader.start()
    given = [pipe if word == tmp_path / "e.jsonl" else word for word in track_command]
    assert flower_pca(capsys, *given)[0] == 0
    reader.join()
    assert [json.loads(line)["step"] for line in heard] == list(range(STEPS))


def test_an_event_is_on_the_disk_before_the_run_goes_on(tmp_path):
    counts, path = [], tmp_path / "e.jsonl"
    tell = Events(path)

    def after(record):
        tell(record)
        counts.append(len(path.read_bytes().splitlines()))

    track("st_miss", [turning_rows()], batch=BATCH, n_components=R, on_step=after)
    assert counts == list(range(1, STEPS + 1))


def test_a_file_of_events_is_gone_on_with_at_its_next_step_only(tmp_path):
    records, path = [], tmp_path / "e.jsonl"
    track("st_miss", [turning_rows()], batch=BATCH, n_components=R, on_step=records.append)
    Events(path)(records[0])
    with pytest.raises(DataError, match="ends with step 0, before step 2"):
        Events(path, resume=True)(records[2])
    Events(path, resume=True)(records[1])
    assert [event["step"] for event in events(path)] == [0, 1]


def test_a_file_of_events_is_open_for_no_longer_than_it_is_read(tmp_path, monkeypatch):
    """Of a run that goes on, of which some steps are in it already."""
    records, path, opened, plain = [], tmp_path / "e.jsonl", [], Path.open
    track("st_miss", [turning_rows()], batch=BATCH, n_components=R, on_step=records.append)
    before = Events(path)
    for record in records[:5]:
        before(record)
    monkeypatch.setattr(Path, "open", lambda *given, **more: opened.append(plain(*given, **more)) or opened[-1])
    after = Events(path, resume=True)
    for record in records[3:]:
        after(record)
        assert opened
        assert all(file.closed for file in opened)
    assert [event["step"] for event in events(path)] == list(range(STEPS))


# The command, which says so and stands still in the midst of a message once there are so many lines of events.
STANDING_STILL = """
import sys, time
from pathlib import Path
from flower_pca import cli
from flower_pca.base import files
path, lines, write = Path(sys.argv[1]), int(sys.argv[2]), files.write

def write_and_wait(*given, **more):
    if path.exists() and path.read_bytes().count(b"\\n") >= lines:
        print("here", flush=True)
        time.sleep(600)
    return write(*given, **more)

files.write = write_and_wait
sys.exit(cli.main(sys.argv[3:]))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on(track_command, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", turning_rows(30))
    for lines in (4, 11):
        command = [
            sys.executable,
            "-c",
            STANDING_STILL,
            str(tmp_path / "e.jsonl"),
            str(lines),
            *map(str, track_command),
        ]
        run = subprocess.Popen([*command, "--resume"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert run.stdout.readline() == b"here\n"
        run.kill()
        run.communicate()
        assert (tmp_path / "e.jsonl").read_bytes().count(b"\n") == lines
    assert flower_pca(capsys, *track_command, "--resume")[0] == 0
    found = events(tmp_path / "e.jsonl")
    assert [event["step"] for event in found] == list(range(30))
    other = [tmp_path / "whole" if word == tmp_path / "out" else word for word in track_command[:-4]]
    assert flower_pca(capsys, *other)[0] == 0
    one, two = (TrackingResult.load(tmp_path / name / "tracking.npz") for name in ("whole", "out"))
    assert np.array_equal(one.components_, two.components_)
