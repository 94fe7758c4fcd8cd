"""Test which modules the process of a ClientApp imports, because Flower starts one for every message."""

import subprocess
import sys

import numpy as np
import pytest
from builders import falling
from fake_grid import config_of, grid_of, in_a_run

from flower_pca import registry
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.slow

# Answers messages as flwr-clientapp does, by the app of `flwr run`, and prints what has been loaded after each of them.
NODE = """
import sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import flwr.supernode.runtime.run_clientapp, flwr.serverapp
from flwr.app import Context, RecordDict
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message
flowers = {*sys.modules}
from flower_pca.app import client_app
rows, algorithm, *packed = sys.argv[1:]
for place in packed:
    message = message_from_proto(Message.FromString(open(place, "rb").read()))
    reply = client_app(message, Context(1, 1, {"data": rows}, RecordDict(), {"algorithm": algorithm}))
    answer = reply.content["config"]
    assert "refusal" not in answer, answer["refusal"]
    print(*sorted({*sys.modules} - flowers))
"""
HEAVY = ("scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "ray", "cryptography")
# Rooms of the server and of those who read results.
SERVERS = (
    *("strategies", "assembly", "simulation", "commands", "estimator", "audit", "cli", "report", "plots", "analysis"),
    *("results.pca", "results.steps", "results.record", "tracking.tracker", "core.run", "core.drive", "core.roll"),
)


def loaded(algorithm, stages, rows, folder):
    """The modules that a node's process has loaded by the first message of each stage in a run of an algorithm."""
    from flwr.common.serde import message_to_proto  # Flower has given its warnings by now.

    shard, messages = np.load(rows), []
    with in_a_run():
        grid = grid_of([shard, shard + 1.0])
        grid.on_push = lambda message: messages.append((config_of(message)["stage"], message_to_proto(message)))
        PCAStrategy(algorithm, n_components=2).fit(grid)
    for stage in stages:
        (folder / stage).write_bytes(dict(reversed(messages))[stage].SerializeToString())
    command = [sys.executable, "-c", NODE, str(rows), algorithm, *(str(folder / stage) for stage in stages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_a_message_of_krylov_loads_no_other_algorithm_and_nothing_of_the_server(tmp_path):
    np.save(place := tmp_path / "rows.npy", falling(60, 8, seed=0))
    opening, work = loaded("krylov", ["opening", "krylov"], place, tmp_path)
    wanted = {kind.__module__ for kind in registry.ALGORITHMS["krylov"].__mro__}
    others = {kind.__module__ for kind in [*registry.ALGORITHMS.values(), *registry.TRACKERS.values()]} - wanted
    unwanted = [*HEAVY, *others, *(f"flower_pca.{room}" for room in SERVERS)]
    for found in (opening, work):
        assert [name for name in found for part in unwanted if name == part or name.startswith(f"{part}.")] == []
        assert "flower_pca.algorithms.krylov" in found
