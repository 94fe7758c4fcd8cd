"""Test links and files that another user has placed where ours belong, and two runs with one checkpoint."""

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from builders import StopError, stop_after
from dishonest import Node, RefusedError, arriving

from flower_pca import ConfigError, DataError, Stream, assembly
from flower_pca.base import files
from flower_pca.clients.storage.folders import FileStore
from flower_pca.core.drive import OnRound, drive
from flower_pca.results.record import Events
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards

pytestmark = pytest.mark.skipif(os.name != "posix", reason="users and links as POSIX has them")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6)) * 0.7 ** np.arange(6)
ONE = np.eye(6)[:, :1]
KEPT = {"memory": "flower_pca-0-run-*.npz", "ledger": "*ledger*.npz", "statistics": "*fixed*.npz"}


def at_rest():
    run = assembly.run(assembly.config("ssi", n_components=2, max_rounds=8, min_rounds=1, tol=0.0))
    return run, Shards([LocalData(X), LocalData(X + 1.0)])


@pytest.mark.parametrize("made", [at_rest, arriving])
def test_a_checkpoint_is_that_of_one_run_at_a_time(made, tmp_path):
    """A second run at it is refused before it has read or written anything, and the first goes on as if alone."""
    path, seen = tmp_path / "run.npz", []

    def beside(_):
        before = path.read_bytes()
        with pytest.raises(ConfigError, match=r"^Another run is using .*run\.npz\."):
            drive(*made(), checkpoint=path)
        assert path.read_bytes() == before
        seen.append(1)

    found = drive(*made(), checkpoint=path, watchers=[OnRound(beside)])
    assert len(seen) > 2
    np.testing.assert_array_equal(found.components_, drive(*made()).components_)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_goes_on_after_a_server_that_was_killed(tmp_path):
    """Its lock ends with it, though the file lies there still."""
    path = tmp_path / "run.npz"
    lock = f"with files.lock(Path({str(path)!r}), wait=False):\n print(flush=True); input()"
    words = [sys.executable, "-c", f"from pathlib import Path; from flower_pca.base import files\n{lock}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(ConfigError, match=r"^Another run is using .*run\.npz\."):
            drive(*at_rest(), checkpoint=path)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.with_name("run.npz.lock").exists()
    drive(*at_rest(), checkpoint=path)
    assert not list(tmp_path.iterdir())


def test_a_deleted_lock_file_is_locked_again(tmp_path, monkeypatch):
    """Who has it next locks the file that lies there, not the one that lay there."""
    path, waited = tmp_path / "run.npz", []
    flock = files.fcntl.flock

    def late(handle, how):
        flock(handle, how)
        if not waited:
            waited.append(1)
            path.with_name("run.npz.lock").unlink()

    monkeypatch.setattr(files.fcntl, "flock", late)
    with files.lock(path):
        monkeypatch.undo()
        with pytest.raises(ConfigError, match=r"^Another run is using .*run\.npz\."), files.lock(path, wait=False):
            pass


@pytest.fixture
def shared(tmp_path):
    """A folder such as /tmp: all may write, and nobody may take away what is another's."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def put_in_its_place(path, how, other):
    path.unlink(missing_ok=True)
    if how == "link":
        path.symlink_to(other)
    elif how == "name":
        path.hardlink_to(other)
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("how", ["link", "name", "pipe"])
@pytest.mark.parametrize("what", KEPT)
def test_what_a_node_keeps_is_no_link_of_anothers(what, how, shared, tmp_path):
    rules = {"memory_dir": shared, "max_messages_ever": 9, "allow": "faps"}
    given = {"Z": ONE, "inner_steps": 1, "inner_tol": 0.0}
    Node(0, X, **rules).ask("faps", given)
    (file,), other = shared.glob(KEPT[what]), tmp_path / "other.npz"
    other.write_bytes(file.read_bytes())
    before = other.read_bytes()
    put_in_its_place(file, how, other)
    refused = pytest.raises(RefusedError, match="another program wrote it")
    with refused if what == "ledger" else contextlib.nullcontext():
        Node(0, X, **rules).ask("faps", given)
    assert other.read_bytes() == before
    assert what == "ledger" or (file.is_file() and not file.is_symlink() and file.stat().st_nlink == 1)


@pytest.mark.parametrize("how", ["link", "name", "pipe"])
def test_a_lock_is_no_link_of_anothers(how, shared, tmp_path):
    """Else another's lock would be waited for without end, and a file made where the link leads to."""
    other = tmp_path / "other"
    if how == "name":
        other.touch()
    file = FileStore(shared, 0).file("r")
    put_in_its_place(file.with_name(f"{file.name}.lock"), how, other)
    with pytest.raises(RefusedError, match=r"^This node cannot read its rows or its rules") as refused:
        Node(0, X, memory_dir=shared).ask("ssi", {"Z": ONE})
    assert str(shared) not in str(refused.value)
    assert how == "name" or not other.exists()


def test_a_checkpoint_is_no_link_of_anothers(shared, tmp_path):
    path, other = shared / "run.npz", tmp_path / "other.npz"

    with pytest.raises(StopError):
        drive(*at_rest(), checkpoint=path, watchers=[OnRound(stop_after(1))])
    path.rename(other)
    path.symlink_to(other)
    with pytest.raises(DataError, match=r"is a link, and other users may write to its folder"):
        drive(*at_rest(), checkpoint=path)
    shared.chmod(0o700)
    drive(*at_rest(), checkpoint=path)  # In your own folder, a link is your own.


def test_a_folder_from_which_others_may_take_a_ledger_away_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    node = Node(0, X, memory_dir=folder, max_messages_ever=2)
    with pytest.raises(RefusedError, match=r"^This node cannot read its rows or its rules") as refused:
        node.ask("ssi", {"Z": ONE})
    assert str(folder) not in str(refused.value)
    assert not list(folder.iterdir())
    assert Node(0, X, memory_dir=folder / "node").ask("ssi", {"Z": ONE})["Y"].shape == (6, 1)


def test_no_file_of_ours_is_opened_to_others_by_a_link(tmp_path, monkeypatch):
    """Laid in place of the draft of a result in the last moment, by one who may write to the folder."""
    own = tmp_path / "own"
    own.touch(mode=0o600)
    own.chmod(0o600)

    def laid(handle):
        (draft,) = tmp_path.glob(".result.npz.*")
        draft.unlink()
        draft.symlink_to(own)

    monkeypatch.setattr(os, "fsync", laid)
    files.write(tmp_path / "result.npz", "result", {}, {})
    assert own.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def of_another(monkeypatch):
    """Makes a file or a link another user's; where only the system's own user can, this process is another's."""

    def give(path):
        if os.geteuid() == 0:
            os.lchown(path, 4321, 4321)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 4321)

    return give


def test_in_a_folder_of_anothers_no_link_of_his_is_locked(of_another, tmp_path):
    folder, other = tmp_path / "his", tmp_path / "other"
    folder.mkdir()
    put_in_its_place(folder / "run.npz.lock", "link", other)
    of_another(folder)
    with pytest.raises(DataError, match=r"run\.npz\.lock is a link, and other users may write to its folder"):
        drive(*at_rest(), checkpoint=folder / "run.npz")
    assert not other.exists()


@pytest.mark.parametrize("kept", ["memory", "batches"])
def test_a_folder_that_is_anothers_link_is_none_of_ours(kept, shared, of_another, tmp_path):
    """As of one who knows what a node's folder is to be called, and lays it before the node does."""
    target, link = tmp_path / "target", shared / ("node" if kept == "memory" else "flower_pca-local-0")
    target.mkdir()
    link.symlink_to(target)
    of_another(link)
    source, asked = X, ("ssi", {"Z": ONE})
    rules = {"memory_dir": link} if kept == "memory" else {"output_dir": shared, "allow": "st_miss"}
    if kept == "batches":
        source = Stream(X, batch=60)
        asked = ("st_miss", {"step": 0, "lap": 0, "refine": False, "block": np.eye(6)})
    with pytest.raises(RefusedError, match=r"^This node cannot (read its rows or its rules|answer because)"):
        Node(0, source, **rules).ask(*asked)
    assert not list(target.iterdir())


def test_events_are_not_written_through_a_link_of_anothers(shared, tmp_path):
    other = tmp_path / "other"
    other.touch()
    put_in_its_place(shared / "steps.jsonl", "link", other)
    with pytest.raises(ConfigError, match=r"^The event file .* cannot be written: "):
        Events(shared / "steps.jsonl")
    assert not other.read_bytes()
