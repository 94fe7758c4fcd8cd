"""client_app() and register(): PCA in a ClientApp of Flower's message API, alone or next to the app's own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_pca import wire
from flower_pca.base import large
from flower_pca.base.cache import Cache
from flower_pca.base.linalg import Array
from flower_pca.clients.base import PCAClient, log_hints, node_rows
from flower_pca.clients.mods import require_mods_that_only_read
from flower_pca.clients.policy.refusals import RefusalError, refusal_reply, words_for_server
from flower_pca.clients.policy.rules import Rules
from flower_pca.wire.records import Content, put_values, values_in

Load: TypeAlias = Callable[[Context], Any]
Given: TypeAlias = Rules | Callable[[Context], Rules] | None
Hosts: TypeAlias = Callable[[Context], Sequence[int]]
Returned: TypeAlias = tuple[Any, int, wire.Config]  # what a client's fit or evaluate returns

# The name of the record in a node's state which shows that the hints about its rows were logged
_HINTS: Final = "flower-pca.hints"
_CACHED: Final = 8  # the maximum number of nodes whose clients a process keeps


def client_app(
    load: Load, *, rules: Given = None, hosts: Hosts | None = None, mods: Sequence[Any] = (), **keywords: Any
) -> ClientApp:
    """Make a ClientApp that serves PCA.

    Parameters
    ----------
    load : Load
        A function that returns the rows of a node from the node's context: an array, a scipy sparse array, a
        memory-mapped array, or for trackers a `Stream` of rows with missing values. It is called once for each run,
        node and process.
    rules : Given, default=None
        The rules of a node, or a function that returns them from the node's context. If no rule is given here or as a
        keyword, the rules in the node's node-config apply.
    hosts : Hosts or None, default=None
        For simulations, a function that returns the numbers of a virtual node's clients: see `register`.
    mods : sequence, default=()
        Flower mods to apply to the app's PCA functions: see `register`.
    **keywords
        Individual rules, which replace the same rules in `rules`. See `Rules`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import clients
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> app = clients.client_app(lambda context: rows, min_rows=50)
    """
    app = ClientApp()
    # Flower sends train and evaluate messages without an action to the action "default".
    register(app, load, action="default", rules=rules, hosts=hosts, mods=mods, **keywords)
    return app


def register(
    app: ClientApp,
    load: Load,
    *,
    action: str = "pca",
    rules: Given = None,
    hosts: Hosts | None = None,
    mods: Sequence[Any] = (),
    **keywords: Any,
) -> None:
    """Add the PCA actions "train.pca", "evaluate.pca" and "query.pca" to a ClientApp with functions of its own.

    The strategy must be given the same `action`.

    Parameters
    ----------
    app : ClientApp
        An app that uses Flower's message API, and therefore has no client_fn.
    load : Load
        A function that returns the rows of a node from the node's context. It is called once for each run, node and
        process. A process keeps the rows of the last eight nodes that it served.
    action : str, default="pca"
        The name of the action in Flower.
    rules : Given, default=None
        The rules of a node, or a function that returns them from the node's context. If no rule is given here or as a
        keyword, the rules in the node's node-config apply.
    hosts : Hosts or None, default=None
        For simulations, a function that returns from a virtual node's context the numbers of the node's clients, or an
        empty sequence if the node is itself a client. Each client has its own context for `load` and `rules`, with its
        number as partition-id. The strategy must have hosted="stacked".
    mods : sequence, default=()
        Flower mods to apply to the app's PCA functions, in addition to the mods of the whole app. They must leave
        answers unchanged, as `message_size_mod` does.
    **keywords
        Individual rules, which replace the same rules in `rules`. See `Rules`.

    Raises
    ------
    ConfigError
        If a mod is known to change answers.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr.clientapp import ClientApp
    >>> from flower_pca import clients
    >>> app = ClientApp()  # your app, with its own @app.train()
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> clients.register(app, lambda context: rows, action="pca")
    """
    around = require_mods_that_only_read(app, mods)
    handler = _MessageHandler(NodeClients(load, rules, keywords), hosts)

    @app.train(action, mods=around)
    def train(message: Message, context: Context) -> Message:
        return handler.answer(message, context, "train")

    @app.evaluate(action, mods=around)
    def evaluate(message: Message, context: Context) -> Message:
        return handler.answer(message, context, wire.EVALUATE)

    @app.query(action, mods=around)
    def query(message: Message, context: Context) -> Message:
        return handler.introduce(message, context)

    _list_action(app, action)


# The PCA actions of each app. A server that has asked for a missing action can request this list.
_ACTIONS: Final[WeakKeyDictionary[ClientApp, list[str]]] = WeakKeyDictionary()


def _list_action(app: ClientApp, action: str) -> None:
    """Let servers ask the app for its PCA actions, because Flower's error names only the action that is missing."""
    if app in _ACTIONS:
        _ACTIONS[app].append(action)
        return
    actions = _ACTIONS[app] = [action]

    @app.query(wire.DIRECTORY)
    def directory(message: Message, context: Context) -> Message:
        return Message(wire.write_actions(actions), reply_to=message)


class _MessageHandler:
    """A handler that passes a node's messages to the node's own client, or to the clients that the node hosts.

    After an error, the server gets only texts written by this package. Flower would send the text of an uncaught
    exception unchanged, and this text may contain data.

    Parameters
    ----------
    clients : NodeClients
        The clients of the process.
    hosts : Hosts or None
        A function that returns, from a node's context, the numbers of the clients that the node hosts.
    """

    def __init__(self, clients: NodeClients, hosts: Hosts | None) -> None:
        self._clients, self._hosts = clients, hosts or (lambda context: ())

    def answer(self, message: Message, context: Context, kind: str) -> Message:
        """Return the answer to a message of this kind."""
        clients, config = self._clients, wire.Config(number=0)
        layout = wire.layout_of_request(message.content, kind) or wire.MESSAGE_API
        try:
            hosted = self._hosts(context)
            if hosted:
                return Message(self._host(message.content, kind, context, hosted), reply_to=message)
            parameters, config = wire.open_request(message.content, kind)
            returned = clients.answer(kind, parameters, config, context)
        except RefusalError:
            # A node that hosts clients could not answer for any of them, so there is no answer to put the refusal in.
            # Flower sends the text of this exception, which is already written for the server.
            raise
        except Exception as error:
            returned = clients.refusal_of(error, kind, config, context)
        content = wire.write_reply(kind, *returned, layout=layout)
        if wire.records.size_of(content) > large.BYTES:
            large.release_memory()
        return Message(content, reply_to=message)

    def introduce(self, message: Message, context: Context) -> Message:
        """Return the reply with the properties that the server requests from the node before a run."""
        try:
            if hosted := self._hosts(context):
                from flower_pca.hosting import messages

                return Message(messages.write_properties(hosted), reply_to=message)
            properties = self._clients.client(context).get_properties({})
        except Exception as error:
            raise RefusalError(self._clients.words_for_server(error, context)) from None
        return Message(wire.write_properties(properties), reply_to=message)

    def _host(self, content: Content, kind: str, context: Context, hosted: Sequence[int]) -> Content:
        """Return the content of the reply, with the answers from all clients that the node hosts."""
        from flower_pca.hosting import node  # Imported here because no other node needs it.

        try:
            return node.serve(content, kind, context, hosted, self._clients.answer)
        except Exception as error:
            raise RefusalError(self._clients.words_for_server(error, context)) from None


class NodeClients:
    """The clients of the nodes that a process serves.

    Parameters
    ----------
    load : Load
        A function that returns the rows of a node from the node's context.
    rules : Given
        The rules of a node, or a function that returns them from the node's context.
    keywords : mapping
        Individual rules, which replace the same rules in `rules`.
    """

    def __init__(self, load: Load, rules: Given, keywords: Mapping[str, Any]) -> None:
        if rules is None and not keywords:
            rules = _rules_of_operator
        self._load, self._rules, self._keywords = load, rules, keywords
        # Rules that are the same for all nodes are checked here, so that their files are read only once.
        self._shared: Rules | None = None
        if not callable(rules):
            self._shared = Rules.with_changes(rules, keywords)
        self._clients = Cache(_CACHED)

    def client(self, context: Context) -> PCAClient:
        """Return the node's client. It is created when the node's first message reaches this process."""
        # Clients of one virtual node share a node id, but have different partition-ids.
        key = (context.run_id, context.node_id, context.node_config.get("partition-id"))
        known: PCAClient = self._clients.get(key, lambda: self._create_client(context))
        return known.in_context(context)

    def _create_client(self, context: Context) -> PCAClient:
        own = self._rules_of(context)
        loaded = self._load(context)
        data = node_rows(loaded, own)
        # In a simulation, the result contains these hints. Elsewhere, Flower may start a process for every message, so
        # the node's state remembers that the hints were logged.
        if own.answers != "rows" and not values_in(context.state, _HINTS):
            log_hints(data, loaded)
            put_values(context.state, _HINTS, {"logged": True})
        return PCAClient(data, context=context, rules=own)

    def answer(self, kind: str, parameters: list[Array], config: wire.Config, context: Context) -> Returned:
        """Return the answer of the node's client to a message."""
        try:
            served = self.client(context)
        except Exception as error:  # The refusal tells the server which node failed, for example for unusable rows.
            return self.refusal_of(error, kind, config, context)
        if kind == wire.EVALUATE:
            return served.evaluate(parameters, config)
        return served.fit(parameters, config)

    def words_for_server(self, error: Exception, context: Context) -> str:
        """Return a description of an error that is safe to show to the server."""
        return words_for_server(error, hides_reasons=self._hides_reasons(context))

    def refusal_of(self, error: Exception, kind: str, config: wire.Config, context: Context) -> Returned:
        """Return a refusal because of this error, in the form that the client's fit or evaluate returns."""
        first: Any = []
        if kind == wire.EVALUATE:
            first = 0.0
        return first, 0, refusal_reply(error, config, _node_key(context), hides_reasons=self._hides_reasons(context))

    def _rules_of(self, context: Context) -> Rules:
        given = self._rules
        return self._shared or Rules.with_changes(given(context) if callable(given) else None, self._keywords)

    def _hides_reasons(self, context: Context) -> bool:
        try:
            return self._rules_of(context).hides_reasons
        except Exception:  # If the rules cannot be read, the refusal of the first error reveals as little as possible.
            return True


def _rules_of_operator(context: Context) -> Rules:
    return Rules.of_node_config(context.node_config)


def _node_key(context: Context) -> int:
    given = context.node_config.get("partition-id", wire.NO_KEY)
    if isinstance(given, int):
        return given
    return wire.NO_KEY
