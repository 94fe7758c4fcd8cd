"""The examples run as they stand, and find what they should."""

import importlib
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from fake_grid import FakeGrid, in_a_run
from local_superlink import ROOT, LocalSuperLink, needed

from flower_pca import PCAResult

with warnings.catch_warnings():  # what Flower's own imports warn of is not ours to mend
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, RecordDict
    from flwr.cli.config_utils import load_and_validate

EXAMPLES = ROOT / "examples"


@pytest.fixture
def app_of(monkeypatch):
    """A module of an example's app, and its default run-config."""

    def load(example, module):
        config, complaints = load_and_validate(EXAMPLES / example / "pyproject.toml")
        assert not complaints
        monkeypatch.syspath_prepend(EXAMPLES / example)
        return importlib.import_module(module), config["tool"]["flwr"]["app"]["config"]

    return load


@needed
def test_pipeline_trains_on_the_components(app_of, tmp_path):
    task, _ = app_of("pipeline", "pipeline.task")
    link = LocalSuperLink(tmp_path)
    try:
        run = link.run(EXAMPLES / "pipeline", 3, f"output='{tmp_path}/pipeline.npz'")
    finally:
        link.close()
    assert run.status == "finished:completed", run
    with np.load(tmp_path / "pipeline.npz") as saved:
        weights, components, mean = saved["weights"], saved["components"], saved["mean"]
    parts = [task.load(i) for i in range(3)]
    X = np.vstack([rows for rows, _ in parts])
    truth = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: len(components)]
    assert np.allclose(mean, X.mean(axis=0))
    assert np.allclose(np.abs(np.linalg.det(components @ truth.T)), 1.0, atol=1e-9)
    unseen, y = task.load(99)
    assert task.accuracy(weights, (unseen - mean) @ components.T, y) > 0.85


@needed
def test_numpy_client_finds_the_pooled_components():
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "numpy_client.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = re.search(r"Angle to the PCA of the pooled rows: (\S+)", run.stdout)
    assert found, run.stdout + run.stderr
    assert float(found[1]) < 1e-7


def test_deployment_computes_from_the_files_of_its_nodes(app_of, tmp_path):
    app, config = app_of("deployment", "deployed.app")
    config["output"] = str(tmp_path / "components.npz")
    X = np.random.default_rng(0).standard_normal((90, 7)) @ np.diag(0.5 ** np.arange(7)) @ np.triu(np.ones((7, 7)))
    shards = np.split(X, [30, 80])  # the last has too few rows to take part
    with in_a_run() as lines:
        grid = FakeGrid(app.client_app, 3)
        for i, (context, shard) in enumerate(zip(grid.nodes.values(), shards, strict=True)):
            np.savetxt(tmp_path / f"{i}.csv", shard, delimiter=",")
            context.node_config = {"data": str(tmp_path / f"{i}.csv")}
        app.server_app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config))
    result = PCAResult.load(tmp_path / "components.npz")
    Z = X[:80] - X[:80].mean(axis=0)
    values, V = np.linalg.svd(Z / Z.std(axis=0, ddof=1), full_matrices=False)[1:]
    assert result.n_samples_ == 80
    assert result.n_components_ == int(np.searchsorted(np.cumsum(values**2) / np.sum(values**2), 0.9)) + 1
    assert result.angle_to(V[: result.n_components_]) < 1e-6
    assert any("The rows of this node must be at least 20. Got 10." in line for line in lines)
