"""The server: PCA by a strategy with overridden hooks, then FedAvg on the scores."""

import json
import random
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_pca.strategies import Krylov

app = ServerApp()


class LoggedKrylov(Krylov):
    """Keeps what each round has come to, tells the nodes a rate that falls, and samples two nodes for each round."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.rounds = []

    def configure_train(self, server_round, arrays, config, grid):
        config["rate"] = 1.0 / server_round
        messages = list(super().configure_train(server_round, arrays, config, grid))
        return random.Random(server_round).sample(messages, min(2, len(messages)))

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        if metrics is not None:
            self.rounds.append(server_round)
            metrics = MetricRecord({**metrics, "replies": len(list(replies))})
        return arrays, metrics

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        if metrics is not None:
            self.errors = {"round": server_round, "replies": len(list(replies)), **metrics}
        return metrics


@app.main()
def pca_and_training(grid, context):
    config = context.run_config
    strategy = LoggedKrylov(
        n_components=config["n-components"], min_available_nodes=2, reconstruction_error=True, action=config["action"]
    )
    found = strategy.fit(grid)
    weights = ArrayRecord({"weights": Array(np.zeros(3))})
    trained = FedAvg(min_available_nodes=2).start(
        grid,
        weights,
        num_rounds=context.run_config["num-server-rounds"],
        train_config=found.to_record(),
        evaluate_config=found.to_record(),
    )
    figures = {n: m["accuracy"] for n, m in trained.evaluate_metrics_clientapp.items()}
    said = {"components": found.components_.tolist(), "mean": found.mean_.tolist(), "rounds": strategy.rounds}
    said |= {
        "errors": strategy.errors,
        "rows": found.n_samples_,
        "accuracy": figures,
        "weights": trained.arrays["weights"].numpy().tolist(),
    }
    Path(context.run_config["output"]).write_text(json.dumps(said))
