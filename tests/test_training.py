"""Test a client that trains and also answers PCA, in an app with a client_fn."""

import warnings

import numpy as np
import pytest
from builders import shards
from fake_grid import FakeGrid

from flower_pca import Projection, simulate
from flower_pca.strategies import Krylov

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import Context, RecordDict
    from flwr.client import NumPyClient
    from flwr.clientapp import ClientApp
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow

    from flower_pca.clients import PCAClient, WithPCA

pytestmark = [pytest.mark.usefixtures("lines"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
SHARDS = shards((60, 25, 7), 0.7 ** np.arange(8), shift=1.0)


class Summing(NumPyClient):
    """Sends the sums of its rows along the components that it is sent."""

    def __init__(self, rows):
        self.rows = rows

    def get_parameters(self, config):
        return [np.full(3, 5.0)]

    def get_properties(self, config):
        return {"rows": len(self.rows)}

    def fit(self, parameters, config):
        assert parameters[0].tolist() == [5.0, 5.0, 5.0]
        return [Projection.from_record(config).transform(self.rows).sum(axis=0)], 1, {}

    def evaluate(self, parameters, config):
        return float(config["offset"]), len(self.rows), {}


def client_fn(context):
    rows = SHARDS[context.node_config["partition-id"]]
    return WithPCA(Summing(rows), PCAClient(rows, context=context)).to_client()


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked", [{"reconstruction_error": True}, {"mask": True, "reconstruction_error": True}, {"scale": "std"}]
)
def test_a_client_answers_pca_and_trains(asked):
    grid = FakeGrid(ClientApp(client_fn=client_fn), 3)
    pca = Krylov(n_components=3, **asked).fit(grid)
    expected = simulate("krylov", SHARDS, n_components=3, **asked, answers="fixed")
    assert pca.angle_to(expected) < 1e-6
    assert pca.mse_ == (
        expected.mse_ if "reconstruction_error" not in asked else pytest.approx(expected.mse_, rel=1e-6)
    )
    ways = {f"on_{way}_config_fn": lambda number: {"offset": 0.25, **pca.to_record()} for way in ("fit", "evaluate")}
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    training = LegacyContext(context, config=ServerConfig(num_rounds=1), strategy=FedAvg(**ways))
    DefaultWorkflow()(grid, training)
    weights = next(iter(training.state.array_records.values())).to_numpy_ndarrays()[0]
    sums = [pca.transform(rows).sum(axis=0) for rows in SHARDS]
    np.testing.assert_allclose(weights, np.mean(sums, axis=0), atol=1e-10)
    assert training.history.losses_distributed == [(1, 0.25)]


def test_properties_are_those_of_both_clients():
    rows = SHARDS[0]
    pca = PCAClient(rows, allow=("krylov",))
    assert WithPCA(Summing(rows), pca).get_properties({}) == {"rows": 60, **pca.get_properties({})}
    assert pca.get_properties({})["algorithms"] == "krylov"
