"""Test trackers whose nodes are rebooted, alone and with the server: they continue with the same bits."""

import itertools
import json

import numpy as np
import pytest
from builders import StopError
from cases import paired
from fake_grid import FakeGrid
from test_watching import R, streaming_clients, without_sites

from flower_pca import STMiss, Stream, strategies, track
from flower_pca.clients import client_app
from flower_pca.data.sources import Arrivals
from flower_pca.results.record import Events

pytestmark = pytest.mark.usefixtures("lines")
STEPS = 5
PARTS = streaming_clients(3, steps=STEPS)


def folders(place, parts):
    """A folder of batches for each client."""
    for k, own in enumerate(parts):
        (place / f"in{k}").mkdir(exist_ok=True)
        for t, rows in enumerate(own):
            np.save(place / f"in{k}/{t:03}.npy", rows)
    return lambda k: Stream(Arrivals(place / f"in{k}"))


def started_app(place, streams):
    """The nodes' app, as their processes have it after a boot."""
    rules = {"allow": ["st_miss"], "noise_seed": 0, "memory_dir": place / "memory", "output_dir": place / "own"}
    return client_app(lambda context: streams(int(context.node_config["partition-id"])), **rules)


def reboot(grid, place, streams):
    """All nodes have lost what their processes knew; what lies in their folders is there."""
    grid.app = started_app(place, streams)
    for node in grid.nodes:
        grid.forget(node)


SOURCES = {
    "folder": folders,
    "array": lambda place, parts: lambda k: Stream(np.vstack(parts[k]), batch=12),
    "function": lambda place, parts: lambda k: Stream(lambda t: parts[k][t] if t < len(parts[k]) else None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "source"), paired([False, True], SOURCES))
def test_nodes_that_are_rebooted_go_on_to_the_bit(source, mask, tmp_path):
    told, reference = [], []
    whole = track(STMiss(refine=True), PARTS, n_components=R, steps=STEPS, on_step=reference.append)
    streams = SOURCES[source](tmp_path, PARTS)
    grid, boots = FakeGrid(started_app(tmp_path, streams), 3, seed=2), itertools.count(1)

    def boot(_):
        if next(boots) % 2 == 0:
            reboot(grid, tmp_path, streams)

    given = {"n_components": R, "min_nodes": 3, "steps": STEPS, "mask": mask, "on_step": told.append}
    result = strategies.STMiss(refine=True, **given).fit(grid, on_round=boot)
    assert result.rows_.tolist() == whole.rows_.tolist()
    if mask:
        assert np.abs(result.components_ - whole.components_).max() < 1e-8
    else:
        assert np.array_equal(result.components_, whole.components_)
        assert [without_sites(record) for record in told] == [without_sites(record) for record in reference]
    for k, own in enumerate(PARTS):
        for t, rows in enumerate(own):
            with np.load(tmp_path / f"own/flower_pca-local-{k}/batch-{t:06d}.npz") as file:
                assert np.array_equal(file["missing"], np.isnan(rows))
                assert np.array_equal(file["rows"][~file["missing"]], rows[~file["missing"]])


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_a_power_failure_everywhere_after_any_message_costs_nothing(source, tmp_path):
    """Server and nodes are started again, and more batches have arrived by then."""
    whole, messages = track("st_miss", PARTS, n_components=R, steps=STEPS), []
    track("st_miss", PARTS, n_components=R, steps=3, on_round=messages.append)
    path, place = tmp_path / "server.npz", tmp_path
    streams, few = SOURCES[source](place, [own[:3] for own in PARTS]), len(messages) - 2
    grid, boots = FakeGrid(started_app(place, streams), 3, seed=2), itertools.count(1)

    def fail(run):
        if next(boots) <= few:
            raise StopError

    given = {"n_components": R, "min_nodes": 3, "steps": STEPS, "checkpoint": path}
    for _ in range(few):
        strategy = strategies.STMiss(**given, on_step=Events(tmp_path / "e.jsonl", resume=True))
        with pytest.raises(StopError):
            strategy.fit(grid, on_round=fail)
        reboot(grid, place, streams)
    streams = SOURCES[source](place, PARTS)
    reboot(grid, place, streams)
    result = strategies.STMiss(**given, on_step=Events(tmp_path / "e.jsonl", resume=True)).fit(grid)
    assert np.array_equal(result.components_, whole.components_)
    assert result.rows_.tolist() == [36] * STEPS
    told = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [event["step"] for event in told] == list(range(STEPS))
    assert not path.exists()
