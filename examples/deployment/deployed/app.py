"""The server asks for 90 % of the variance of standardized columns; each node-config says where the rows are."""

from logging import INFO
from pathlib import Path

from flwr.clientapp import ClientApp
from flwr.common import log
from flwr.serverapp import ServerApp

from flower_pca import clients
from flower_pca.data import sources
from flower_pca.strategies import SSI

server_app = ServerApp()
client_app = ClientApp()
clients.register(
    client_app,
    lambda context: sources.make(context.node_config["data"]),
    allow=["ssi"],  # the one algorithm that these nodes take part in
    min_rows=20,  # and a node with fewer rows than that keeps out of it
)


@server_app.main()
def main(grid, context):
    config = context.run_config
    strategy = SSI(n_components=config["variance"], scale="std", min_nodes=2, node_timeout=300, action="pca")
    path = Path(config["output"]).resolve()
    strategy.fit(grid).save(path)
    log(INFO, "Components saved in %s", path)
