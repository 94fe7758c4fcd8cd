"""Test simultaneous runs at nodes that keep their memory in files: each is as if it were alone."""

import itertools

import numpy as np
import pytest
from builders import two_lead, unequal
from fake_grid import grid_of, in_a_run
from spoilt import ROWS

from flower_pca import ConfigError, strategies
from flower_pca.clients.storage import folders
from flower_pca.registry import ALGORITHMS

SHARDS = unequal(3)
PLAIN = {"answers": "rows", "noise_seed": 0}


def run_briefly(name, grid, **asked):
    spec = f"{name}(max_rounds=4)" if hasattr(ALGORITHMS[name], "max_rounds") else name
    return strategies.PCAStrategy(spec, n_components=2, **asked).fit(grid)


def run_between(grid, others, every=2):
    """Have a whole run of others take place at every so many messages of a grid."""
    sent = itertools.count(1)

    def push(_):
        if next(sent) % every == 0 and others:
            others.pop()()

    grid.on_push = push


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "name"),
    [
        *(({}, "krylov"), ({"mask": True}, "ssi")),  # algorithms whose clients keep nothing
        ({}, "faps"),
        ({"mask": True}, "consensus_rpca"),
    ],
)
def test_runs_beside_a_run_leave_its_bits(name, asked, tmp_path):
    with in_a_run():
        try:
            alone = run_briefly(name, grid_of(SHARDS, **PLAIN), **asked)
        except ConfigError:
            pytest.skip(f"{name} goes with no masks")
        grid = grid_of(SHARDS, memory_dir=tmp_path, **PLAIN)
        others = [
            lambda: run_briefly("faps", grid_of(SHARDS, memory_dir=tmp_path, **PLAIN), seed=1),
            lambda: run_briefly("dcf_pca", grid_of(SHARDS, memory_dir=tmp_path, **PLAIN), seed=2),
            lambda: run_briefly("ssi", grid_of(SHARDS, memory_dir=tmp_path, **PLAIN), seed=3, mask=True),
        ]
        run_between(grid, others)
        found = run_briefly(name, grid, **asked)
    assert len(others) < 3
    np.testing.assert_array_equal(found.components_, alone.components_)
    assert str(found.status) == str(alone.status)


@pytest.mark.slow
def test_the_oldest_memory_goes_once_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "MOST_RUNS", 3)
    with in_a_run():
        for seed in range(5):
            run_briefly("faps", grid_of(SHARDS, memory_dir=tmp_path, answers="rows"), seed=seed)
    files = sorted(path.name.rpartition("-")[0] for path in tmp_path.glob("*.npz"))
    assert files == [f"flower_pca-{i}-run" for i in range(3) for _ in range(3)]
    assert len(list(tmp_path.glob("*-run-*"))) == 2 * len(files)  # There is a lock file for each of them.


def test_a_run_that_keeps_nothing_leaves_a_line_in_the_record_alone(tmp_path):
    for rules, kept in (({}, {"record"}), ({"run_record": False}, set())):
        with in_a_run():
            run_briefly("krylov", grid_of(SHARDS, memory_dir=tmp_path / str(len(rules)), answers="rows", **rules))
        assert {path.name.split("-")[1] for path in (tmp_path / str(len(rules))).glob("*")} == kept


REMEMBERING = {
    "faps": ("faps", 2, SHARDS),
    "consensus_rpca": ("consensus_rpca(gamma=0.7)", 5, np.array_split(ROWS, 3)),
    "dcf_pca": ("dcf_pca(step='scaled', tol=0.003)", 5, np.array_split(ROWS, 3)),
    "exact_per_pca": ("exact_per_pca(local_components=2, local_steps=1)", 2, two_lead(3)),
    "per_pca": ("per_pca(local_components=2, eta=0.02, tol=0.2)", 2, two_lead(3)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")  # Clients as similar as these have almost no own components.
@pytest.mark.parametrize(("name", "asked"), [*((name, {}) for name in REMEMBERING), ("per_pca", {"mask": True})])
def test_what_a_lost_memory_has_disturbed_is_noted_and_is_right_or_not_called_converged(name, asked, tmp_path):
    spec, k, parts = REMEMBERING[name]

    def run(grid):
        return strategies.PCAStrategy(spec, n_components=k, **asked).fit(grid)

    with in_a_run():
        try:
            alone = run(grid_of(parts, **PLAIN))
        except ConfigError:
            pytest.skip(f"{name} goes with no masks")
        grid, losses = grid_of(parts, memory_dir=tmp_path, **PLAIN), [len(alone.history) // 2]

        def lose(message):
            if losses and message.metadata.group_id == str(losses[0]):
                losses.clear()
                (path,) = tmp_path.glob("flower_pca-1-run*.npz")
                path.unlink()

        grid.on_push = lose
        found = run(grid)
    (note,) = [note for record in found.history for note in record.notes.values()]
    assert str(grid.node(1)) in note
    assert alone.status.ok
    if found.status.ok:
        assert found.angle_to(alone.components_) < 1e-5
