"""PCA with Flower's NumPyClient in a plain ClientApp.

python examples/numpy_client.py, with the extra "simulation" installed.
"""

import numpy as np
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from flower_pca.clients import KrylovClient
from flower_pca.strategies import Krylov


def rows(partition):
    """What one client holds: rows that lie near a plane, around a mean of the client's own."""
    rng = np.random.default_rng(partition)
    plane = np.array([[3.0, 2.0, 1.0, 0.0, 0.0], [0.0, 1.0, -2.0, 2.0, 1.0]])
    noise = 0.1 * rng.standard_normal((50 + 100 * partition, 5))
    return rng.standard_normal((len(noise), 2)) @ plane + rng.standard_normal(5) + noise


def client_fn(context):
    return KrylovClient(rows(context.node_config["partition-id"]), context=context).to_client()


client_app = ClientApp(client_fn=client_fn)
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    result = Krylov(n_components=2, min_nodes=3).fit(grid)

    pooled = np.vstack([rows(partition) for partition in range(3)])
    truth = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)[2][:2]
    print(f"Angle to the PCA of the pooled rows: {result.angle_to(truth):.0e}")


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=3)
