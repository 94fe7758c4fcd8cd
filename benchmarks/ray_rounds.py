"""Time of a round on Flower's Ray engine, over that of the barest Strategy that sends the same arrays.

`python -m benchmarks.ray_rounds 300 1000`: so many virtual clients, 784 x 20 float64 each way, medians of the rounds,
of the wall's time and of the processors' (of all processes of the run). The barest one: a plain ClientApp that sends
the array back, and Flower's own send_and_receive. Ours: clients that virtual nodes host, and a message for each
client. With `--ours` the barest one and the messages for each client are left out, whose
time grows with the square of the clients.
"""

from __future__ import annotations

import os
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
from flower_pca import Ray, simulate

ROUNDS, D, P = 3, 784, 20
_TICKS = os.sysconf("SC_CLK_TCK")


def processors() -> float:
    """Seconds of processors that this process and all that descend from it have taken."""
    parents, taken = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(place.parent.name)
        parents[pid], taken[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine and pid not in mine}:
        mine |= more
    return sum(taken.get(pid, 0.0) for pid in mine)


def mark() -> tuple[float, float]:
    """Now, on the wall and by the processors."""
    return time.perf_counter(), processors()


def barest(clients: int) -> list[tuple[float, float]]:
    """The beginning of each round of send_and_receive, and the end of the last."""
    marks = []
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Any) -> Message:
        return Message(message.content, reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        while len(nodes := list(grid.get_node_ids())) < clients:
            time.sleep(0.1)
        for _ in range(ROUNDS + 1):
            record = ArrayRecord([np.random.default_rng(0).standard_normal((D, P))])
            messages = [Message(RecordDict({"arrays": record}), node, "train") for node in nodes]
            replies = list(grid.send_and_receive(messages))
            total = sum(reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies)
            marks.append(mark())
            assert total.shape == (D, P)

    run_simulation(server, client, clients, backend_config={"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}})
    return marks


def ours(clients: int, backend: Ray) -> list[tuple[float, float]]:
    """The same of SSI on clients of two rows, which is all transport."""
    marks = []
    with tempfile.TemporaryDirectory() as name:
        np.save(Path(name) / "rows.npy", np.random.default_rng(0).standard_normal((2 * clients, D)))
        rows = np.load(Path(name) / "rows.npy", mmap_mode="r")
        simulate(
            "ssi(oversample=0)", np.split(rows, clients), n_components=P, center=False, tol=0.0, max_rounds=ROUNDS,
            backend=backend, on_round=lambda session: marks.append(mark()),
        )  # fmt: skip
    return marks


def median(marks: list[tuple[float, float]]) -> tuple[float, float]:
    """Seconds of a round, on the wall and by the processors."""
    wall, cpu = np.median(np.diff(np.array(marks), axis=0)[-ROUNDS:], axis=0)
    return float(wall), float(cpu)


if __name__ == "__main__":
    words = sys.argv[1:]
    alone, rows = "--ours" in words, []
    for number in [int(word) for word in words if word.isdigit()] or [100]:
        found = (
            {}
            if alone
            else {"barest": median(barest(number)), "one each": median(ours(number, Ray(clients_per_node=1)))}
        )
        found["stacked"] = median(ours(number, Ray()))
        first = found.get("barest", (float("nan"),) * 2)
        rows += [
            [number, way, f"{wall:.2f}", f"{cpu:.2f}", f"{wall / first[0]:.2f}", f"{cpu / first[1]:.2f}"]
            for way, (wall, cpu) in found.items()
        ]
    print(table(["clients", "answers", "wall s", "processors s", "wall / barest", "processors / barest"], rows))
