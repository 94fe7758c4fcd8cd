"""Test a folder that is followed: files become batches as they arrive, each read once, whatever happens to it."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from builders import StopError

from flower_pca import track
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.data.inbox import Inbox, ReadFiles
from flower_pca.names.columns import Heading

NAMES = "a,b,c,d"


def write_batch(folder, name, rows, names=NAMES):
    folder.mkdir(exist_ok=True)
    np.savetxt(folder / name, rows, delimiter=",", header=names, comments="", fmt="%.17g")
    os.utime(folder / name, (1e9, 1e9))  # unchanged for a long time


def arriving_batches(count, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    plane = rng.standard_normal((2, 4))
    noise = 0.01 * rng.standard_normal((count, rows, 4))
    return rng.standard_normal((count, rows, 2)) @ plane + noise


@pytest.fixture
def heard():
    return []


@pytest.fixture
def inbox(tmp_path, heard):
    """Makes inboxes that look often; once nothing is there they do what is next in `then`, and close at its end."""

    def make(*then, folder=tmp_path, **more):
        following = iter(then)

        def on_wait():
            do = next(following, None)
            made.close() if do is None else do()

        made = Inbox(folder, interval=0.01, report=heard.append, on_wait=on_wait, **more)
        return made

    return make


def test_files_are_batches_by_folders_of_sites(tmp_path, inbox):
    X, Y = arriving_batches(3), arriving_batches(2, seed=1)
    for i, rows in enumerate(X):
        write_batch(tmp_path / "north", f"day{i + 9}.csv", rows)  # day10 after day9
    write_batch(tmp_path / "west", "day1.csv", Y[0])
    made = inbox(lambda: write_batch(tmp_path / "west", "late.csv", Y[1]))
    assert made.sites == ("north", "west")
    result = track("st_miss", made.streams(), n_components=2)
    wanted = track("st_miss", [[*list(X), None], [Y[0], None, None, Y[1]]], n_components=2)
    assert np.array_equal(result.components_, wanted.components_)
    assert result.rows_.tolist() == [12, 6, 6, 6]
    assert result.site_names == {0: "north", 1: "west"}
    assert "no client has more rows" in result.status.words


def test_sites_by_the_names_of_files(tmp_path, inbox):
    for name in ("north_1.csv", "site2_2026-11-23.csv", "2026_11.csv"):
        write_batch(tmp_path, name, arriving_batches(1)[0])
    write_batch(tmp_path, "notes.txt", arriving_batches(1)[0])
    made = inbox()
    assert made.sites == ("", "north", "site2")
    assert track("st_miss", made.streams(), n_components=2).rows_.tolist() == [18]


def test_a_file_that_grows_is_left_until_it_has_come_to_rest(tmp_path, inbox):
    rows, file = arriving_batches(2), tmp_path / "a_1.csv"
    write_batch(tmp_path, "a_0.csv", rows[0])
    write_batch(tmp_path, "a_1.csv", rows[1][:2])
    made, looks = inbox(*[lambda: None] * 5), []

    def ready(known, look=made._ready_files):
        looks.append(file.stat().st_size)
        if len(looks) < 4:
            with file.open("a") as handle:
                np.savetxt(handle, rows[1][len(looks) + 1 : len(looks) + 2], delimiter=",", fmt="%.17g")
        os.utime(file, (2e10, 2e10))  # just written, however slow the machine is
        return look(known)

    made._ready_files = ready
    assert track("st_miss", made.streams(), n_components=2).rows_.tolist() == [6, 5]


def test_what_cannot_be_read_is_said_once_and_read_when_it_is_mended(tmp_path, inbox, heard):
    rows = arriving_batches(4)
    write_batch(tmp_path, "a_0.csv", rows[0])
    (tmp_path / "a_1.csv").write_text(f"{NAMES}\n1,2,3,4\n1,2,much,4\n")
    write_batch(tmp_path, "a_2.csv", rows[1], names="a,b,c,other")
    write_batch(tmp_path, "a_3.csv", rows[2])
    (tmp_path / "a_4.npy").write_bytes(b"half")
    for name in ("a_1.csv", "a_4.npy"):
        os.utime(tmp_path / name, (1e9, 1e9))

    def mend():
        write_batch(tmp_path, "a_1.csv", rows[3])  # a file of another size

    result = track("st_miss", inbox(mend).streams(), n_components=2)
    assert result.rows_.tolist() == [6, 6, 6]
    assert [words.split(" is ignored until it changes. ")[0] for words in heard] == ["a_1.csv", "a_2.csv", "a_4.npy"]
    assert "a text of 4 letters in column c (line 3)" in heard[0]
    assert "other" in heard[1]


@pytest.mark.parametrize("content", ["", "\ufeff", "\n\n", f"{NAMES}\n"])
def test_a_file_without_rows_is_said_to_have_none(tmp_path, inbox, heard, content):
    rows = arriving_batches(2)
    write_batch(tmp_path, "a_0.csv", rows[0])
    write_batch(tmp_path, "a_2.csv", rows[1])
    empty = tmp_path / "a_1.csv"
    empty.write_text(content, encoding="utf-8")
    os.utime(empty, (1e9, 1e9))
    result = track("st_miss", inbox().streams(), n_components=2)
    assert result.rows_.tolist() == [6, 6]
    said = f"The data file {empty} has no rows. Correct it, or remove it."
    assert heard == [f"a_1.csv is ignored until it changes. {said}"]


def test_files_may_go_away_and_come_back(tmp_path, inbox, heard):
    rows = arriving_batches(2)
    write_batch(tmp_path / "a", "0.csv", rows[0])
    write_batch(tmp_path / "a", "1.csv", rows[1])
    file = tmp_path / "a" / "0.csv"
    text = file.read_text()
    made = inbox(file.unlink, lambda: file.write_text(text))
    read = made._table_in

    def gone(path):
        if path.name == "1.csv":
            path.unlink(missing_ok=True)
        return read(path)

    made._table_in = gone
    assert track("st_miss", made.streams(), n_components=2).rows_.tolist() == [6]
    assert not heard


@pytest.mark.slow
def test_a_killed_run_goes_on_with_no_file_twice_and_none_lost(tmp_path, inbox):
    rows, folder = arriving_batches(6), tmp_path / "in"
    for i in range(4):
        write_batch(folder, f"a_{i}.csv", rows[i])
        write_batch(folder, f"b_{i}.csv", rows[i][:3])
    messages = []
    wanted = track("st_miss", inbox(folder=folder).streams(), n_components=2, on_round=messages.append)
    for stop in range(1, len(messages)):
        count = []

        def broken(run, count=count, stop=stop):
            count.append(run)
            if len(count) == stop:
                raise StopError

        given = {"n_components": 2, "checkpoint": tmp_path / f"{stop}.npz"}
        with pytest.raises(StopError):
            track("st_miss", inbox(folder=folder).streams(), on_round=broken, **given)
        result = track("st_miss", inbox(folder=folder).streams(), **given)
        assert np.array_equal(result.components_, wanted.components_)
        assert result.rows_.tolist() == [9, 9, 9, 9]


def test_two_runs_may_follow_one_folder_but_not_with_one_checkpoint(tmp_path, inbox):
    write_batch(tmp_path / "in", "a_0.csv", arriving_batches(1)[0])
    first, second = (inbox(folder=tmp_path / "in").streams() for _ in range(2))
    seen = []

    def other(run):
        if not seen:
            seen.append(track("st_miss", second, n_components=2).rows_.tolist())
            with pytest.raises((ConfigError, DataError), match=r"c\.npz"):
                track("st_miss", second, n_components=2, checkpoint=tmp_path / "c.npz")

    track("st_miss", first, n_components=2, checkpoint=tmp_path / "c.npz", on_round=other)
    assert seen == [[6]]


def test_small_files_wait_for_the_next_ones(tmp_path, inbox):
    rows = arriving_batches(5, rows=2)
    for i in range(5):
        write_batch(tmp_path, f"a_{i}.csv", rows[i], names=NAMES if i % 2 else "b,a,c,d")
    result = track("st_miss", inbox(batch=4).streams(), n_components=2)
    assert result.rows_.tolist() == [4, 4]


@pytest.mark.parametrize("mask", [False, True])
def test_a_first_step_with_few_rows_pools(mask):
    """One row at each client is fewer than the components: they are put before the next ones."""
    rows = arriving_batches(4, rows=1, seed=3)
    clients = [[row + 0.1 * k for row in rows] for k in range(2)]
    result = track("st_miss", clients, n_components=3, mask=mask)
    assert result.rows_.tolist() == [4, 2, 2]
    whole = np.vstack([rows[:2].reshape(-1, 4), rows[:2].reshape(-1, 4) + 0.1])
    space = np.linalg.svd(whole)[2][:3]
    assert np.linalg.norm(space - space @ result.components_[0].T @ result.components_[0], 2) < 1e-6


def test_a_run_that_pools_goes_on_where_it_was_stopped(tmp_path):
    def stop(run):
        raise StopError

    clients, given = [list(arriving_batches(5, rows=1))], {"n_components": 3, "checkpoint": tmp_path / "c.npz"}
    with pytest.raises(StopError):
        track("st_miss", clients, on_round=stop, **given)
    for _ in range(2):  # The second step has begun by then, while the rows of the first are still there.
        with pytest.raises(StopError):
            track("st_miss", clients, on_round=stop, **given)
    assert np.array_equal(
        track("st_miss", clients, **given).components_, track("st_miss", clients, n_components=3).components_
    )


def test_columns_are_chosen_and_left_out(tmp_path, inbox):
    rows = arriving_batches(1)[0]
    write_batch(tmp_path, "a_0.csv", rows)
    assert track("st_miss", inbox(drop=["d"]).streams(), n_components=2).n_features_in_ == 3
    chosen = track("st_miss", inbox(columns=("c", "a")).streams(), n_components=2)
    assert chosen.feature_names_in_.tolist() == ["a", "c"]


def test_a_missing_folder_and_a_file_of_no_site_are_reported(tmp_path, inbox, heard, monkeypatch):
    write_batch(tmp_path, "a_0.csv", arriving_batches(1)[0])
    looks = iter([PermissionError(13, "Permission denied")])

    def listing(path, usual=Path.iterdir):
        if path == tmp_path and (error := next(looks, None)):
            raise error
        return usual(path)

    def more():
        write_batch(tmp_path, "0.csv", arriving_batches(1)[0])
        monkeypatch.setattr(Path, "iterdir", listing)

    assert track("st_miss", inbox(more, lambda: None).streams(), n_components=2).rows_.tolist() == [6]
    assert heard == [
        f"The folder {tmp_path} cannot be read: Permission denied. The run waits for it.",
        "0.csv names no site, unlike the files at the start of the run, so it is ignored. Begin its name with a "
        "site and an underscore.",
    ]


def test_a_site_that_comes_later_is_said_unless_it_was_named(tmp_path, inbox, heard):
    write_batch(tmp_path, "a_0.csv", arriving_batches(1)[0])

    def more():
        write_batch(tmp_path, "b_0.csv", arriving_batches(1)[0])

    assert track("st_miss", inbox(more).streams(), n_components=2).rows_.tolist() == [6]
    assert heard == [
        "b_0.csv belongs to b, which did not exist when the run began, so it is ignored. Start another run to include "
        "this site."
    ]
    (tmp_path / "b_0.csv").unlink()
    named = inbox(more, sites=("a", "b")).streams()
    assert track("st_miss", named, n_components=2).rows_.tolist() == [6, 6]


def test_a_site_that_is_there_but_was_not_named_is_said_not_to_be_named(tmp_path, inbox, heard):
    for site in "ab":
        write_batch(tmp_path, f"{site}_0.csv", arriving_batches(1)[0])
    assert track("st_miss", inbox(sites=("a", "c")).streams(), n_components=2).rows_.tolist() == [6]
    assert heard == [
        "b_0.csv belongs to b, which is not among the sites that were named, so it is ignored. Start another run to "
        "include this site."
    ]


def test_close_ends_a_wait_from_another_thread(tmp_path):
    write_batch(tmp_path, "a_0.csv", arriving_batches(1)[0])
    began = threading.Event()
    made = Inbox(tmp_path, interval=60, on_wait=began.set)
    file = tmp_path / "a_0.csv"
    made._looked = {file.name: (file.stat().st_size, file.stat().st_mtime_ns)}
    ends = threading.Thread(target=lambda: (began.wait(), made.close()))
    ends.start()
    assert track("st_miss", made.streams(), n_components=2).rows_.tolist() == [6]
    ends.join()


def test_a_ledger_forgets_the_oldest_that_have_gone_once_they_are_many(monkeypatch):
    monkeypatch.setattr("flower_pca.data.inbox._REMEMBERED", 2)
    ledger = ReadFiles()
    for name in ("x", "y", "z"):
        ledger = ReadFiles.from_cursor(ledger.add(Heading(4), [name], ["x"]).cursor())
    assert len(ledger.files) == 3
    assert len(ledger.add(Heading(4), ["v"], []).files) == 2
