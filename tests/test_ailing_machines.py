"""Test faults of a node's machine in a run: a full disk, a damaged ledger, a clock that jumps."""

import itertools
import os
import time
from pathlib import Path

import pytest
from builders import unequal, write_to_full_disk
from fake_grid import FakeGrid, grid_of
from results import assert_same_bits

from flower_pca import strategies
from flower_pca.clients import Rules, client_app
from flower_pca.clients.storage import folders

SHARDS = unequal(3)
PLAIN = {"answers": "rows", "noise_seed": 0}
BAD = 1  # the partition-id of the faulty node
DAY = 86_400.0

pytestmark = pytest.mark.usefixtures("lines")


def fill(monkeypatch, folder):
    """From now on the disk with this folder is full."""

    def fsync(handle):
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_relative_to(folder):
            write_to_full_disk()

    monkeypatch.setattr(os, "fsync", fsync)


def grid_with_folders(place, **rules):
    """Nodes of which each has folders of its own."""

    def own(context):
        here = place / str(context.node_config["partition-id"])
        return Rules(memory_dir=here / "memory", output_dir=here / "output", **PLAIN, **rules)

    names = ["faps", "ssi", "consensus_rpca", "exact_per_pca"]
    return FakeGrid(client_app(lambda context: SHARDS[context.node_config["partition-id"]], rules=own, allow=names), 3)


WORDS = "This node cannot answer because of an error (OSError: No space left on device)"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="it finds the names of open files in /proc")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules", "full"),
    [
        ("faps(max_rounds=9)", {}, "memory"),
        ("ssi", {"max_columns": 1000}, "memory"),  # the folder of its ledger
        ("consensus_rpca(max_rounds=3)", {}, "output"),
        ("exact_per_pca(max_rounds=3)", {}, "output"),
    ],
)
@pytest.mark.parametrize("when", [0, 2])
def test_a_node_whose_disk_is_full_is_left_out_and_named_and_leaves_no_half_file(
    name, rules, full, when, tmp_path, monkeypatch
):
    grid, folder = grid_with_folders(tmp_path, **rules), tmp_path / str(BAD) / full
    before = {}

    def on_push(message):
        if len(grid.sent) == 3 * when + 1:  # the first of the messages of this number
            before.update((file.name, file.read_bytes()) for file in folder.glob("*.npz"))
            fill(monkeypatch, folder)

    grid.on_push = on_push
    result = strategies.PCAStrategy(name, n_components=2).fit(grid)
    failures = [failure for record in result.history for failure in record.failures.items()]
    assert {node for node, _ in failures} == {str(grid.node(BAD))}
    assert all(why.startswith(WORDS) for _, why in failures)
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(SHARDS) if i != BAD)
    assert {file.name: file.read_bytes() for file in folder.glob("*.npz")} == before
    assert not [file for file in folder.iterdir() if file.suffix not in (".npz", ".lock") and "record" not in file.name]


@pytest.mark.slow
def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    alone = strategies.FAPS(n_components=2, max_rounds=5).fit(grid_of(SHARDS, **PLAIN))
    now, jumps = time.time, itertools.cycle((0.0, DAY, -DAY, 400.0 * DAY))
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    grid = grid_of(SHARDS, memory_dir=tmp_path, **PLAIN)
    found = strategies.FAPS(n_components=2, max_rounds=5).fit(grid)
    assert_same_bits(found, alone)


@pytest.mark.slow
def test_runs_after_a_clock_was_set_back_are_the_newest(tmp_path, monkeypatch):
    """Files of earlier runs then lie in the future."""
    monkeypatch.setattr(folders, "MOST_RUNS", 4)

    def run(seed, on_round=None):
        grid = grid_of(SHARDS, memory_dir=tmp_path, **PLAIN)
        return strategies.FAPS(n_components=2, max_rounds=6, seed=seed).fit(grid, on_round=on_round)

    for seed in range(folders.MOST_RUNS):
        run(seed)
    for number, file in enumerate(sorted(tmp_path.glob("*.npz"))):
        os.utime(file, (time.time() + DAY + number,) * 2)
    others = [lambda: run(31), lambda: run(32)]

    def beside(session):
        if others and len(session.history) % 2 == 0:
            others.pop()()

    found = run(30, beside)
    alone = strategies.FAPS(n_components=2, max_rounds=6, seed=30).fit(grid_of(SHARDS, **PLAIN))
    assert not others
    assert_same_bits(found, alone)
    assert not any(record.notes for record in found.history)
