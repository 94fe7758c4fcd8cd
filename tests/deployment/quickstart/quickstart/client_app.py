"""The client: Flower's message API, a mod around all functions, and PCA as an action beside them."""

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_pca import Projection, clients
from quickstart.task import accuracy, load_data, train


def tracking_mod(message, context, call_next):
    """What mods for TensorBoard and for Weights & Biases do: the metrics of the reply, by the round of the server."""
    reply = call_next(message, context)
    line = {"round": message.content["config"]["server-round"], "kind": message.metadata.message_type}
    line |= dict(reply.content["metrics"])
    if place := context.node_config.get("tracked"):
        with Path(place).open("a") as file:
            file.write(json.dumps(line) + "\n")
    return reply


app = ClientApp(mods=[tracking_mod])
clients.register(app, lambda context: load_data(context)[0], action="pca")


def scores_of(message, context):
    """The scores of this node's rows along the common components, and their labels."""
    X, y = load_data(context)
    return Projection.from_record(message.content["config"]).transform(X), y


@app.train()
def train_locally(message, context):
    X, y = scores_of(message, context)
    weights = train(message.content["arrays"]["weights"].numpy(), X, y, context.run_config["lr"])
    metrics = MetricRecord({"num-examples": len(X), "train-accuracy": accuracy(weights, X, y)})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate_locally(message, context):
    X, y = scores_of(message, context)
    figures = {"num-examples": len(X), "accuracy": accuracy(message.content["arrays"]["weights"].numpy(), X, y)}
    return Message(RecordDict({"metrics": MetricRecord(figures)}), reply_to=message)
