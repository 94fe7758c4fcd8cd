"""Time of a round on Flower's Ray engine, over that of the barest Strategy that sends the same arrays.

`python -m benchmarks.ray_rounds 100`: so many virtual clients, 784 x 20 float64 each way, medians of five rounds each.
The barest one: a plain ClientApp that sends the array back, and Flower's own send_and_receive.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from benchmarks import table
from flower_pca import simulate

ROUNDS, D, P = 5, 784, 20


def barest(clients: int) -> list[float]:
    """Seconds of each round of send_and_receive."""
    seconds: list[float] = []
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Any) -> Message:
        return Message(message.content, reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        for _ in range(ROUNDS + 1):
            began = time.perf_counter()
            record = ArrayRecord([np.random.default_rng(0).standard_normal((D, P))])
            messages = [Message(RecordDict({"arrays": record}), node, "train") for node in nodes]
            replies = list(grid.send_and_receive(messages))
            total = sum(reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies)
            seconds.append(time.perf_counter() - began)
            assert total.shape == (D, P)

    run_simulation(server, client, clients, backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}})
    return seconds[1:]


def ours(clients: int) -> list[float]:
    """Seconds of each round of SSI on clients of two rows, which is all transport."""
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        np.save(Path(name) / "rows.npy", np.random.default_rng(0).standard_normal((2 * clients, D)))
        rows = np.load(Path(name) / "rows.npy", mmap_mode="r")
        simulate(
            "ssi", np.split(rows, clients), n_components=P, center=False, tol=0.0, max_rounds=ROUNDS, backend="ray",
            on_round=lambda session: marks.append(time.perf_counter()),
        )  # fmt: skip
    return list(np.diff(marks))[-ROUNDS:]


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    plain, own = float(np.median(barest(number))), float(np.median(ours(number)))
    print(table(["clients", "round of ours over the barest"], [[number, f"{own / plain:.2f}"]]))
