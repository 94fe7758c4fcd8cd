"""client_app() and register(): PCA in a ClientApp of Flower's message API, alone or beside the user's own functions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias, Unpack

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from flower_pca import wire
from flower_pca.base.errors import ConfigError, FlowerPCAError
from flower_pca.clients.base import PCAClient
from flower_pca.clients.columns import node_rows
from flower_pca.clients.keywords import RuleKeywords
from flower_pca.clients.refusals import refusal
from flower_pca.clients.rules import Rules

Load: TypeAlias = Callable[[Context], Any]
Given: TypeAlias = Rules | Callable[[Context], Rules] | None

DEFAULT: Final = "default"  # Flower's name of the functions that plain train and evaluate messages go to
_CACHED: Final = 8  # nodes of one process that are kept ready


def client_app(load: Load, *, rules: Given = None, **keywords: Unpack[RuleKeywords]) -> ClientApp:
    """A ClientApp that serves PCA.

    Args:
        load: From the node's context to its rows: an array, a scipy sparse array, a memory-mapped one, or a `Stream`
            of rows with gaps for trackers. Called once per run, node and process.
        rules: What a node allows, or a function from its context to that.
        **keywords: The same, rule by rule: in place of those in `rules`, if both are given. See `Rules`.
    """
    app = ClientApp()
    register(app, load, action=DEFAULT, rules=rules, **keywords)
    return app


def register(
    app: ClientApp, load: Load, *, action: str = "pca", rules: Given = None, **keywords: Unpack[RuleKeywords]
) -> None:
    """Add PCA to a ClientApp, as actions beside its own: "train.pca", "evaluate.pca", "query.pca".

    The strategy takes the same `action`.

    Args:
        app: The ClientApp, of the message API (without client_fn).
        load: From the node's context to its rows. Called once per run, node and process, which keeps the
            rows of the eight nodes that it served last.
        action: Flower's name of the functions.
        rules: What a node allows, or a function from its context to that.
        **keywords: The same, rule by rule: in place of those in `rules`, if both are given. See `Rules`.
    """
    # Rules that are the same for all nodes are checked here, and the files they name are read once.
    shared = None if callable(rules) else Rules.of(rules, keywords)
    ready: OrderedDict[object, PCAClient] = OrderedDict()

    def rules_of(context: Context) -> Rules:
        return shared or Rules.of(rules(context) if callable(rules) else None, keywords)

    def client(context: Context) -> PCAClient:
        """The node's client, made with its first message in this process."""
        key = (context.run_id, context.node_id, context.node_config.get("partition-id"))
        if key not in ready:
            own = rules_of(context)
            ready[key] = PCAClient(node_rows(load(context), own), context=context, rules=own)
            if len(ready) > _CACHED:
                ready.popitem(last=False)
        ready.move_to_end(key)
        return ready[key].within(context)

    def discreet(context: Context) -> bool:
        try:
            return rules_of(context).discreet
        except ConfigError:
            return True

    def serve(message: Message, context: Context, kind: str) -> Message:
        first: Any = 0.0 if kind == wire.EVALUATE else []
        config: wire.Config = {"number": 0}
        try:
            parameters, config = wire.open_request(message.content, kind)
            served = client(context)
        except FlowerPCAError as error:  # the rows cannot be used: the server is told which node, and why
            n, metrics = 0, refusal(error, config, _key(context), discreet=discreet(context))
        else:
            first, n, metrics = (served.evaluate if kind == wire.EVALUATE else served.fit)(parameters, config)
        return Message(wire.write_reply(kind, first, n, metrics), reply_to=message)

    @app.train(action)
    def train(message: Message, context: Context) -> Message:
        return serve(message, context, "train")

    @app.evaluate(action)
    def evaluate(message: Message, context: Context) -> Message:
        return serve(message, context, wire.EVALUATE)

    @app.query(action)
    def query(message: Message, context: Context) -> Message:
        properties = ConfigRecord(dict(client(context).get_properties({})))
        return Message(RecordDict({"getpropertiesres.properties": properties}), reply_to=message)


def _key(context: Context) -> int:
    return int(context.node_config.get("partition-id", wire.NO_KEY))
