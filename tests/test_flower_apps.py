"""Test apps like Flower's examples with PCA added: scikit-learn's model, logging mods, a saved model."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from builders import leading, pooled, shards
from fake_grid import FakeGrid
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from pages import ROOT

from flower_pca import PCAResult, Projection, clients
from flower_pca.strategies import Krylov

pytestmark = pytest.mark.usefixtures("lines")

ROWS = shards((90, 80, 70), [6.0, 4.0, 0.3, 0.3, 0.2, 0.2, 0.2, 0.2], seed=4)
LABELS = [(X[:, 0] + X[:, 1] > (X[:, 0] + X[:, 1]).mean()).astype(int) for X in ROWS]


def rows_here(context):
    return ROWS[context.node_config["partition-id"]]


def logistic_app(*, mods=()):
    """The client of Flower's quickstart with scikit-learn: logistic regression, here on the scores of a PCA."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    app = ClientApp(mods=list(mods))
    clients.register(app, rows_here, action="pca")

    def model_with(message, context):
        i = context.node_config["partition-id"]
        X = Projection.from_record(message.content["config"]).transform(ROWS[i])
        model = linear_model.LogisticRegression(max_iter=5, warm_start=True)
        model.classes_ = np.array([0, 1])
        model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
        return model, X, LABELS[i]

    @app.train()
    def train(message, context):
        model, X, y = model_with(message, context)
        model.fit(X, y)
        metrics = MetricRecord({"num-examples": len(X), "train-accuracy": float(model.score(X, y))})
        arrays = ArrayRecord([model.coef_, model.intercept_])
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        model, X, y = model_with(message, context)
        metrics = MetricRecord({"num-examples": len(X), "accuracy": float(model.score(X, y))})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_logistic_regression_by_fedavg_on_the_scores_of_a_pca():
    grid = FakeGrid(logistic_app(), len(ROWS))
    pca = Krylov(n_components=2, action="pca").fit(grid)
    assert pca.angle_to(leading(ROWS)) < 1e-7
    start = ArrayRecord([np.zeros((1, 2)), np.zeros(1)])
    config = pca.to_record()
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(grid, start, num_rounds=5, train_config=config, evaluate_config=config)
    assert result.evaluate_metrics_clientapp[5]["accuracy"] > 0.95
    coefficients, intercept = result.arrays.to_numpy_ndarrays()
    scores = (np.vstack(ROWS) - pooled(ROWS).mean) @ leading(ROWS).T
    turned = pca.components_ @ leading(ROWS).T  # signs of the two bases
    guessed = (scores @ turned.T @ coefficients.ravel() + intercept > 0).astype(int)
    assert np.mean(guessed == np.concatenate(LABELS)) > 0.95


class Board:
    """Keeps what mods write for TensorBoard or Weights & Biases: name, value and step."""

    def __init__(self):
        self.written = []

    def tensorboard_mod(self, message, context, call_next):
        """Writes the size of all arrays that come in, and the metrics that go out, by the server's round."""
        step = int(message.content["config"]["server-round"])
        for name, array in message.content["arrays"].items():
            self.written.append((f"in/{name}", float(np.abs(array.numpy()).max(initial=0.0)), step))
        reply = call_next(message, context)
        for name, value in reply.content["metrics"].items():
            self.written.append((f"out/{name}", float(value), step))
        return reply

    def wandb_mod(self, message, context, call_next):
        """Times the answer, and adds the time to its metrics."""
        group = f"Run ID: {message.metadata.run_id}, node {message.metadata.dst_node_id}"
        step = int(message.content["config"]["server-round"])
        began = time.time()
        reply = call_next(message, context)
        if reply.has_content() and reply.metadata.message_type.startswith("train"):
            results = dict(reply.content["metrics"]) | {"fit_time": time.time() - began}
            reply.content["metrics"] = MetricRecord(results)
            self.written += [(f"{group}/{name}", float(value), step) for name, value in results.items()]
        return reply


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_mods_that_log_see_pca_and_training_alike():
    board = Board()
    grid = FakeGrid(logistic_app(mods=[board.tensorboard_mod, board.wandb_mod]), len(ROWS))
    pca = Krylov(n_components=2, action="pca").start(grid, evaluate_config=ConfigRecord())
    named = [name for name, *_ in board.written]
    assert {name for name in named if name.startswith("in/")} >= {"in/B"}
    steps = {step for name, _, step in board.written if name == "out/num-examples"}
    assert steps == set(range(1, max(pca.train_metrics_clientapp) + 1))
    assert {value for name, value, _ in board.written if name == "out/num-examples"} == set(map(len, ROWS))
    assert sum("fit_time" in name for name in named) == 2 * len(ROWS) * len(
        steps
    )  # Each line is written once, and is visible outside.
    plain = Krylov(n_components=2, action="pca").start(FakeGrid(logistic_app(), len(ROWS)))
    np.testing.assert_array_equal(pca.arrays["components"].numpy(), plain.arrays["components"].numpy())
    board.written.clear()
    result = FedAvg().start(
        grid,
        ArrayRecord([np.zeros((1, 2)), np.zeros(1)]),
        num_rounds=2,
        train_config=Krylov(n_components=2, action="pca").fit(grid).to_record(),
        evaluate_config=Krylov(n_components=2, action="pca").fit(grid).to_record(),
    )
    assert {step for name, _, step in board.written if name == "out/train-accuracy"} == {1, 2}
    assert "fit_time" in result.train_metrics_clientapp[2]


class SavesBest(Krylov):
    """What Flower's advanced examples do in a strategy: a rate that falls, and the best model in a file."""

    def __init__(self, place, **keywords):
        super().__init__(**keywords)
        self.place, self.best = place, np.inf

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 0.1 * 0.5 ** (server_round - 1)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if metrics is not None and (error := metrics.get("error", np.inf)) < self.best:
            self.best = error
            np.savez(self.place, **{name: array.numpy() for name, array in arrays.items()})
        return arrays, metrics


def test_a_strategy_that_saves_its_best_model_in_its_hooks(tmp_path):
    grid = FakeGrid(clients.client_app(rows_here), len(ROWS))
    asked = []
    strategy = SavesBest(tmp_path / "best.npz", n_components=2, min_train_nodes=2, min_available_nodes=3)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(),
        num_rounds=10,
        train_config=ConfigRecord({"lr": 0.1}),
        evaluate_fn=lambda number, arrays: (
            asked.append(number) or MetricRecord({"columns": arrays["components"].shape[1]})
        ),
    )
    with np.load(tmp_path / "best.npz") as best:
        np.testing.assert_array_equal(best["mean"], result.arrays["mean"].numpy())
        turned = best["components"] @ leading(ROWS).T
    np.testing.assert_allclose(np.abs(np.linalg.det(turned)), 1.0, atol=1e-9)
    assert strategy.best == min(m.get("error", np.inf) for m in result.train_metrics_clientapp.values())
    assert asked == sorted(result.evaluate_metrics_serverapp)
    rates = {m.content["config"]["server-round"]: m.content["config"]["lr"] for m in grid.sent}
    assert rates == {number: 0.1 * 0.5 ** (number - 1) for number in rates}
    again = Krylov(n_components=2).fit(FakeGrid(clients.client_app(rows_here), len(ROWS)))
    assert isinstance(again, PCAResult)
    np.testing.assert_allclose(again.components_, result.arrays["components"].numpy(), atol=1e-9)


WITHOUT = """
import warnings
warnings.simplefilter("ignore")
import flwr.client, flwr.simulation
del flwr.client.NumPyClient, flwr.simulation.run_simulation
import numpy as np
from builders import unequal
from fake_grid import grid_of, in_a_run
from flower_pca import clients, simulate
from flower_pca.strategies import Krylov
rows = unequal()
with in_a_run():
    found = Krylov(n_components=2).fit(grid_of(rows))
print(np.array_equal(found.components_, simulate("krylov", rows, n_components=2).components_))
try:
    clients.PCAClient(rows[0]).to_client()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_flower_without_its_deprecated_half_runs_the_message_api():
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    same, refused = run.stdout.splitlines()
    assert same == "True"
    assert refused.startswith(
        "ConfigError This version of Flower no longer supports client_fn. Use flower_pca.clients.client"
    )
