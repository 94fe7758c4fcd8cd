"""What a ClientApp's process loads: Flower starts one for every message, and a slow board waits for its imports."""

import subprocess
import sys

import numpy as np
import pytest
from builders import falling
from fake_grid import config_of, grid_of, in_a_run

from flower_pca import registry
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.slow

# Answers a message as flwr-clientapp does, by the app of `flwr run`, and prints what has been loaded for it since.
NODE = """
import sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import flwr.supernode.runtime.run_clientapp, flwr.serverapp
from flwr.app import Context, RecordDict
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message
flowers = {*sys.modules}
from flower_pca.app import client_app
message = message_from_proto(Message.FromString(open(sys.argv[1], "rb").read()))
reply = client_app(message, Context(1, 1, {"data": sys.argv[2]}, RecordDict(), {"algorithm": sys.argv[3]}))
(answer,) = [r for name, r in reply.content.config_records.items() if name.endswith("metrics")]
assert "refusal" not in answer, answer["refusal"]
print(*sorted({*sys.modules} - flowers))
"""
HEAVY = ("scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "ray", "cryptography")
# Rooms of the server and of those who read results.
SERVERS = (
    *("strategies", "assembly", "simulation", "commands", "estimator", "audit", "cli", "report", "plots", "analysis"),
    *("results.pca", "results.steps", "results.record", "tracking.tracker", "core.run", "core.drive", "core.roll"),
)


@pytest.fixture(scope="module")
def file_of_rows(tmp_path_factory):
    """A file of rows."""
    place = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(place, falling(60, 8, seed=0))
    return place


def loaded(algorithm, stage, rows, folder):
    """The modules that a node's process loads for the first message of a stage in a run of an algorithm."""
    from flwr.common.serde import message_to_proto  # with Flower's own warnings behind us

    shard, messages = np.load(rows), []
    with in_a_run():
        grid = grid_of([shard, shard + 1.0])
        grid.on_push = lambda message: messages.append((config_of(message)["stage"], message_to_proto(message)))
        PCAStrategy(algorithm, n_components=2).fit(grid)
    packed = folder / "message"
    packed.write_bytes(dict(reversed(messages))[stage].SerializeToString())
    command = [sys.executable, "-c", NODE, str(packed), str(rows), algorithm]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("stage", ["opening", "krylov"])
def test_a_message_of_krylov_loads_no_other_algorithm_and_nothing_of_the_server(stage, file_of_rows, tmp_path):
    found = loaded("krylov", stage, file_of_rows, tmp_path)
    wanted = {kind.__module__ for kind in registry.ALGORITHMS["krylov"].__mro__}
    others = {kind.__module__ for kind in [*registry.ALGORITHMS.values(), *registry.TRACKERS.values()]} - wanted
    unwanted = [*HEAVY, *others, *(f"flower_pca.{room}" for room in SERVERS)]
    assert [name for name in found for part in unwanted if name == part or name.startswith(f"{part}.")] == []
    assert "flower_pca.algorithms.krylov" in found
