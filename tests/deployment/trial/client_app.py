"""What the nodes do in the tests' federations: ours, and the barest product as `train.plain`."""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from flower_pca import Stream, registry
from flower_pca.clients import Rules, client_app
from flower_pca.data import sources


def load(context):
    stall = Path(context.node_config["stall"])
    dies = stall.with_suffix(".dies")
    if dies.exists():
        if (left := int(dies.read_text())) == 0:
            os._exit(137)  # killed without a message, as if memory ran out
        dies.write_text(str(left - 1))
    if stall.exists():  # Wait until the test has acted while the message is in progress.
        stall.with_suffix(".reached").touch()
        until = time.monotonic() + 600
        while stall.exists() and time.monotonic() < until:
            time.sleep(0.05)
    if (table := stall.with_suffix(".csv")).exists():
        return sources.make(str(table), words=WORDS)
    rows = np.load(context.node_config["data"])
    batch = json.loads((Path(context.run_config["folder"]) / "orders.json").read_text())["batch"]
    if batch is None:
        return rows
    return Stream(rows, batch=batch)


WORDS = ("ward", "sex")  # text columns, which turn the rows into a table


def rules(context):
    memory = Path(context.node_config["stall"]).with_suffix(".memory")
    if memory.with_suffix(".csv").exists():
        own = memory.with_suffix(".own")
        return Rules(categorical=WORDS, covariates=("age", *WORDS), output_dir=own if own.is_dir() else None)
    if memory.is_dir():
        return Rules(memory_dir=memory)
    return Rules()


SEED = 3  # the seed of runs that are compared with simulations, so that the noise under masks is the same
app = client_app(load, rules=rules, allow=[*registry.ALGORITHMS, *registry.TRACKERS], missing="mean", noise_seed=SEED)


@app.train("plain")
def plain(message, context):
    X = np.load(context.node_config["data"])
    (Z,) = message.content["arrays"].to_numpy_ndarrays()
    return Message(RecordDict({"arrays": ArrayRecord([X.T @ (X @ Z)])}), reply_to=message)
