"""What the server does in the tests' federations: a strategy of ours, or the barest power iteration."""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from flower_pca import strategies

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    orders = json.loads((folder / "orders.json").read_text())
    _hand_over(folder / "pid", str(os.getpid()))
    try:
        (plain_rounds if orders["strategy"] is None else our_strategy)(grid, folder, **orders)
    except Exception as error:
        _hand_over(folder / "error", f"{type(error).__name__}: {error}")
        raise


def our_strategy(grid, folder, strategy, hold, parameters, **of_nodes):
    def after(session):
        if len(session.history) == hold:
            (folder / "held").touch()
            until = time.monotonic() + 600
            while not (folder / "go").exists() and time.monotonic() < until:
                time.sleep(0.05)

    strategy = getattr(strategies, strategy)(**parameters)
    strategy.fit(grid, on_round=after).save(folder / "result.npz")


def plain_rounds(grid, folder, strategy, hold, parameters, **of_nodes):
    nodes = list(grid.get_node_ids())
    Z = np.random.default_rng(0).standard_normal(parameters["shape"])
    seconds = []
    for number in range(parameters["rounds"]):
        began = time.perf_counter()
        content = RecordDict({"arrays": ArrayRecord([Z])})
        messages = [Message(content, node, "train.plain", group_id=str(number)) for node in nodes]
        replies = list(grid.send_and_receive(messages))
        Z, _ = np.linalg.qr(sum(reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies))
        seconds.append(time.perf_counter() - began)
    _hand_over(folder / "seconds.json", json.dumps(seconds))


def _hand_over(path, text):
    """The file is there with its whole text or not at all: the test reads it as soon as it is there."""
    unready = path.with_suffix(".unready")
    unready.write_text(text)
    unready.replace(path)
