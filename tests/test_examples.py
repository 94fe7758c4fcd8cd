"""The examples run as they stand, and find what they should."""

import importlib
import importlib.util
import re
import warnings

import numpy as np
import pytest
from fake_grid import FakeGrid, in_a_run
from pages import ROOT

from flower_pca import PCAResult

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, RecordDict
    from flwr.cli.config_utils import load_and_validate

EXAMPLES = ROOT / "examples"


@pytest.fixture
def app_of_example(monkeypatch):
    """A module of an example's app, and its default run-config."""

    def load(example, module):
        config, complaints = load_and_validate(EXAMPLES / example / "pyproject.toml")
        assert not complaints
        monkeypatch.syspath_prepend(EXAMPLES / example)
        return importlib.import_module(module), config["tool"]["flwr"]["app"]["config"]

    return load


def test_deployment_computes_from_the_files_of_its_nodes(app_of_example, tmp_path):
    app, config = app_of_example("deployment", "deployed.app")
    config["output"] = str(tmp_path / "components.npz")
    X = np.random.default_rng(0).standard_normal((90, 7)) @ np.diag(0.5 ** np.arange(7)) @ np.triu(np.ones((7, 7)))
    shards = np.split(X, [30, 80])  # The last site has too few rows to take part.
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
    assert any("This node has fewer rows than its min_rows, 20." in line for line in lines)


@pytest.mark.slow
def test_the_pipeline_trains_on_what_the_nodes_project(app_of_example, tmp_path):
    server, config = app_of_example("pipeline", "pipeline.server_app")
    client, _ = app_of_example("pipeline", "pipeline.client_app")
    task = importlib.import_module("pipeline.task")
    config["output"] = str(tmp_path / "pipeline.npz")
    with in_a_run():
        grid = FakeGrid(client.app, 3)
        server.app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config))
    with np.load(config["output"]) as saved:
        weights, components, mean = saved["weights"], saved["components"], saved["mean"]
    X = np.vstack([task.load(i)[0] for i in range(3)])
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
    unseen, y = task.load(99)
    assert task.accuracy(weights, (unseen - mean) @ components.T, y) > 0.85


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_older_app_with_a_client_fn_trains_after_pca(capsys):
    spec = importlib.util.spec_from_file_location("older_app", EXAMPLES / "older_app.py")
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    with in_a_run() as lines:
        grid = FakeGrid(app.client_app, 3)
        app.server_app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}))
    error = float(re.search(r"Mean squared error with 3 weights: (\S+)", capsys.readouterr().out)[1])
    y = np.concatenate([app.load(i)[1] for i in range(3)])
    assert error < 0.1 * y.var()
    assert not [line for line in lines if "failure" in line and "0 failures" not in line]
