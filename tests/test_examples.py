"""The examples run as they stand, and find what they should."""

import importlib
import warnings

import numpy as np
import pytest
from fake_grid import FakeGrid, in_a_run
from pages import ROOT

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
