"""The server: PCA first, then Flower's own FedAvg on the same grid."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_pca.strategies import Krylov

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    pca = Krylov(n_components=config["n-components"], action="pca").fit(grid)

    projection = {"mean": pca.mean_.tobytes(), "components": pca.components_.tobytes()}
    trained = FedAvg().start(
        grid,
        initial_arrays=ArrayRecord({"weights": Array(np.zeros(pca.n_components_ + 1))}),
        num_rounds=config["num-rounds"],
        train_config=ConfigRecord(projection),
        evaluate_config=ConfigRecord(projection),
    )
    weights = trained.arrays["weights"].numpy()
    np.savez(config["output"], weights=weights, components=pca.components_, mean=pca.mean_)
