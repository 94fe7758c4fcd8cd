"""The client: an ordinary ClientApp, to which one line adds PCA."""

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_pca import Projection, clients
from pipeline import task

app = ClientApp()


def rows_and_labels(context):
    return task.load(context.node_config["partition-id"])


clients.register(app, lambda context: rows_and_labels(context)[0], action="pca")


def projected(message, context):
    """This client's rows along the components that the server has sent, and the labels."""
    X, y = rows_and_labels(context)
    return Projection.from_record(message.content["config"]).transform(X), y


@app.train()
def train(message, context):
    X, y = projected(message, context)
    weights = task.train(message.content["arrays"]["weights"].numpy(), X, y)
    metrics = MetricRecord({"accuracy": task.accuracy(weights, X, y), "num-examples": len(X)})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message, context):
    X, y = projected(message, context)
    weights = message.content["arrays"]["weights"].numpy()
    metrics = MetricRecord({"accuracy": task.accuracy(weights, X, y), "num-examples": len(X)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
