"""Test an app like Flower's quickstart examples with PCA added, over a grid in memory."""

import importlib
import json

import numpy as np
import pytest
from builders import leading, pooled, shards
from fake_grid import FakeGrid, in_a_run
from flwr.app import Context, RecordDict
from pages import ROOT

from flower_pca import simulate

SHARDS = shards((90, 80, 70), [9.0, 6.0, 0.2, 0.2, 0.1, 0.1], seed=1)


@pytest.fixture
def quickstart_apps(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests/deployment/quickstart")
    return tuple(importlib.import_module(f"quickstart.{name}").app for name in ("server_app", "client_app"))


@pytest.mark.slow
def test_pca_and_training_in_one_run_with_a_mod_and_overridden_hooks(quickstart_apps, tmp_path):
    server, client = quickstart_apps
    config = {"num-server-rounds": 3, "lr": 0.5, "output": str(tmp_path / "said.json")}
    config |= {"n-components": 2, "action": "pca"}
    with in_a_run():
        grid = FakeGrid(client, len(SHARDS))
        for i, (rows, context) in enumerate(zip(SHARDS, grid.nodes.values(), strict=True)):
            np.save(tmp_path / f"{i}.npy", rows)
            context.node_config |= {"data": str(tmp_path / f"{i}.npy"), "tracked": str(tmp_path / f"{i}.jsonl")}
            context.run_config = config
        server(grid, Context(1, 0, {}, RecordDict(), config))
    said = json.loads((tmp_path / "said.json").read_text())
    components = np.array(said["components"])
    reference = leading(SHARDS)
    np.testing.assert_allclose(np.abs(np.linalg.det(components @ reference.T)), 1.0, atol=1e-9)
    np.testing.assert_allclose(said["mean"], pooled(SHARDS).mean, atol=1e-12)
    assert said["rounds"] == list(range(1, len(said["rounds"]) + 1))
    assert said["accuracy"]["3"] > 0.8
    lines = [json.loads(line) for line in (tmp_path / "0.jsonl").read_text().splitlines()]
    # two of the three nodes are sampled for each message, and each node is needed for each step
    of_pca = [line["round"] for line in lines if line["kind"] == "train.pca"]
    assert set(of_pca) < set(said["rounds"])
    assert said["rows"] == sum(map(len, SHARDS))
    assert said["errors"]["round"] == said["rounds"][-1] + 1
    assert said["errors"]["replies"] == len(SHARDS)
    rebuilt = simulate("krylov", SHARDS, n_components=2, reconstruction_error=True)
    assert said["errors"]["mse"] == pytest.approx(rebuilt.mse_)
    assert [line["round"] for line in lines if line["kind"] == "train"] == [1, 2, 3]
    assert {line["num-examples"] for line in lines} == {len(SHARDS[0])}
