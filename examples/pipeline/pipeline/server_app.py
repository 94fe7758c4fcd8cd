"""The server: PCA first, then Flower's own FedAvg on the same grid."""

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_pca.strategies import Krylov

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    pca = Krylov(n_components=config["n-components"], action="pca").fit(grid)

    trained = FedAvg().start(
        grid,
        initial_arrays=ArrayRecord({"weights": Array(np.zeros(pca.n_components_ + 1))}),
        num_rounds=config["num-rounds"],
        train_config=pca.to_record(),
        evaluate_config=pca.to_record(),
    )
    weights = trained.arrays["weights"].numpy()
    np.savez(config["output"], weights=weights, components=pca.components_, mean=pca.mean_)
