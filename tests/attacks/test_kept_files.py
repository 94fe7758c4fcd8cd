"""Test forged headers in files that a run resumes from: each is refused at once, in one sentence."""

import contextlib
import copy
import os

import numpy as np
import pytest
from builders import StopError, stop_after
from dishonest import arriving

from flower_pca import DataError, FlowerPCAError, assembly
from flower_pca.base import files
from flower_pca.core.drive import OnRound, drive
from flower_pca.results.record import Events
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6)) * 0.7 ** np.arange(6)
STRANGE = [None, -1, 0, 2**62, 10**12, 1e308, "", "x", [], [1], {}, {"x": 1}, True, [[1]], 0.5]
ASKED = {"n_components": 2, "max_rounds": 30, "min_rounds": 1}


def stopped(run, transport, path, after):
    """A checkpoint after so many messages."""
    with pytest.raises(StopError):
        drive(run, transport, checkpoint=path, watchers=[OnRound(stop_after(after))])


def rows_at_rest():
    return assembly.run(assembly.config("ssi", **ASKED)), Shards([LocalData(X), LocalData(X + 1.0)])


def places(value, path=()):
    """All places in a header, by the keys that lead there."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def header_with(header, path, value):
    """With a value of another type in a place."""
    header = copy.deepcopy(header)
    place = header
    for key in path[:-1]:
        place = place[key]
    before = place[path[-1]]
    place[path[-1]] = before if type(value) is type(before) or before is None else value
    return header


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("made", "after"), [(rows_at_rest, 3), (arriving, 5)])
def test_a_checkpoint_is_gone_on_from_or_refused(made, after, seed, tmp_path):
    """A changed number may be as good as the one that was there; what is none ends in a sentence, and takes no time."""
    rng, path = np.random.default_rng(seed), tmp_path / "run.npz"
    run, transport = made()
    stopped(run, transport, path, after)
    header, arrays = files.read(path, transport.kind)
    found = [place for place in places(header) if place and place[0] not in ("asked", "kind")]
    beside = path.with_name("run.npz.steps")
    steps = beside.read_bytes() if beside.exists() else None
    for _ in range(30):
        strange = header_with(header, found[rng.integers(len(found))], STRANGE[rng.integers(len(STRANGE))])
        files.write(path, transport.kind, strange, arrays)
        if steps is not None:
            beside.write_bytes(steps)
        run, transport = made()
        with contextlib.suppress(FlowerPCAError):
            drive(run, transport, checkpoint=path)


def test_more_steps_than_are_kept_are_not_looked_for(tmp_path):
    """A header that speaks of 10^12 steps, beside no file of steps at all."""
    path = tmp_path / "run.npz"
    run, transport = arriving(X)
    stopped(run, transport, path, 5)
    header, arrays = files.read(path, transport.kind)
    path.with_name("run.npz.steps").unlink()
    for many in ({"kept": 10**12}, {"kept": 10**12, "count": 10**12}, {"width": 2**62}, {"kept": -1}, {"width": -5}):
        files.write(path, transport.kind, {**header, "steps": {**header["steps"], **many}}, arrays)
        with pytest.raises(FlowerPCAError, match=r"is not a tracking checkpoint|not belong to the checkpoint"):
            drive(*arriving(X), checkpoint=path)


@pytest.mark.parametrize("content", [b"a page of notes, in one line", b'{"step": 3, "notes": "of something else"'])
def test_a_file_of_something_else_is_no_file_of_events(content, tmp_path):
    """A last line that the machine has stopped in the midst of is cut off; nothing that no run has written."""
    path = tmp_path / "steps.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not the event file of this run"):
        Events(path, resume=True)
    assert path.read_bytes() == content


def test_the_half_of_a_line_of_events_is_cut_off(tmp_path):
    path = tmp_path / "steps.jsonl"
    for half in (b'{"ti', b'{"time": "2026-01-01T00:00:00'):
        path.write_bytes(half)
        Events(path, resume=True)
        assert path.read_bytes() == b""


@pytest.mark.parametrize(("made", "after"), [(rows_at_rest, 3), (arriving, 5)])
def test_a_checkpoint_is_its_owners(made, after, tmp_path):
    """It holds answers of single clients, and in a simulation what they remember: rows of a batch, say."""
    before = os.umask(0)
    try:
        stopped(*made(), tmp_path / "run.npz", after)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_steps_are_not_written_through_a_link(tmp_path):
    """In a folder that others may write to, a link under the name of the steps would have any file of ours spoilt."""
    other, path = tmp_path / "other", tmp_path / "run.npz"
    other.write_bytes(b"of something else")
    beside = path.with_name("run.npz.steps")
    beside.symlink_to(other)
    stopped(*arriving(X), path, 5)
    assert other.read_bytes() == b"of something else"
    assert not beside.is_symlink()
    there = beside.read_bytes()
    beside.unlink()
    other.write_bytes(there)
    beside.symlink_to(other)
    with pytest.raises(DataError, match=r"are a link"):
        drive(*arriving(X), checkpoint=path)
    assert other.read_bytes() == there


def test_steps_are_not_written_into_a_file_that_others_may_read(tmp_path):
    path = tmp_path / "run.npz"
    beside = path.with_name("run.npz.steps")
    beside.touch()
    beside.chmod(0o666)
    stopped(*arriving(X), path, 5)
    assert beside.stat().st_mode & 0o777 == 0o600
