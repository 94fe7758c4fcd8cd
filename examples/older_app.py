"""PCA, then training, in an older app: a client_fn with a NumPyClient, and a strategy of flwr.server.

python examples/older_app.py, with the extra "simulation" installed.
"""

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from flower_pca import Projection
from flower_pca.clients import PCAClient, WithPCA
from flower_pca.strategies import Krylov


def load(partition):
    """What one client holds: 40 features in units that differ, with two directions behind them, and what follows."""
    mixing = np.random.default_rng(0).standard_normal((2, 40)) * np.logspace(-2, 2, 40)
    rng = np.random.default_rng(partition + 1)
    signal = rng.standard_normal((80, 2)) * [2.0, 1.0]
    noise = 0.1 * rng.standard_normal((80, 40)) * np.logspace(-2, 2, 40)
    return signal @ mixing + noise, signal @ [1.0, -1.0] + 3.0


class Regression(NumPyClient):
    """The app's own client: a few steps of least squares on the rows as the server projects them."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def rows(self, config):
        """The rows along the components that came with the config, and a column of ones."""
        scores = Projection.from_record(config).transform(self.X)
        return np.column_stack([scores, np.ones(len(scores))])

    def fit(self, parameters, config):
        """Train."""
        (weights,), rows = parameters, self.rows(config)
        for _ in range(config["steps"]):
            weights = weights - 0.02 * rows.T @ (rows @ weights - self.y) / len(rows)
        return [weights], len(rows), {}

    def evaluate(self, parameters, config):
        """Measure the mean squared error."""
        rows = self.rows(config)
        return float(np.mean((rows @ parameters[0] - self.y) ** 2)), len(rows), {}


def client_fn(context):
    X, y = load(context.node_config["partition-id"])
    return WithPCA(Regression(X, y), PCAClient(X, context=context)).to_client()


client_app = ClientApp(client_fn=client_fn)
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    pca = Krylov(n_components=2, scale="std", min_nodes=3).fit(grid)

    config = {"steps": 20, **pca.to_record()}
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters([np.zeros(3)]),
        on_fit_config_fn=lambda server_round: config,
        on_evaluate_config_fn=lambda server_round: config,
        min_available_clients=3,
    )
    training = LegacyContext(context, config=ServerConfig(num_rounds=10), strategy=strategy)
    DefaultWorkflow()(grid, training)
    loss = training.history.losses_distributed[-1][1]
    print(f"Mean squared error with 3 weights: {loss:.3f}")


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=3)
