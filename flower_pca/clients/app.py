"""client_app() and register(): PCA in a ClientApp of Flower's message API, alone or with the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flower_pca import wire
from flower_pca.base.cache import Cache
from flower_pca.base.linalg import Array
from flower_pca.clients.base import PCAClient, node_rows, notice
from flower_pca.clients.mods import require_honest
from flower_pca.clients.policy.refusals import RefusalError, refusal, words_for_server
from flower_pca.clients.policy.rules import Rules
from flower_pca.wire.records import Content, put_values, values_in

Load: TypeAlias = Callable[[Context], Any]
Given: TypeAlias = Rules | Callable[[Context], Rules] | None
Hosts: TypeAlias = Callable[[Context], Sequence[int]]
Returned: TypeAlias = tuple[Any, int, wire.Config]  # What a client's fit or evaluate returns.

# record of a node's state: its log has what there is to say of its rows
_HINTS: Final = "flower-pca.hints"
_CACHED: Final = 8  # nodes of one process that are kept ready


def client_app(
    load: Load, *, rules: Given = None, hosts: Hosts | None = None, mods: Sequence[Any] = (), **keywords: Any
) -> ClientApp:
    """Make a ClientApp that serves PCA.

    Parameters
    ----------
    load : Load
        From the node's context to its rows: an array, a scipy sparse array, a memory-mapped one, or a `Stream` of rows
        with gaps for trackers. Called once per run, node and process.
    rules : Given, default=None
        What a node allows, or a function from its context to that. If no rule is given here or as a keyword, the rules
        in the node's node-config hold.
    hosts : Hosts or None, default=None
        In simulations, from the context of a virtual node to the numbers of the clients that it hosts: see `register`.
    mods : sequence, default=()
        Flower's mods around these functions: see `register`.
    **keywords
        The same, rule by rule: in place of those in `rules`, if both are given. See `Rules`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import clients
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> app = clients.client_app(lambda context: rows, min_rows=50)
    """
    app = ClientApp()
    # Flower's name of the functions that plain train and evaluate messages go to
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
    """Add PCA to a ClientApp as actions next to its own: "train.pca", "evaluate.pca", "query.pca".

    The strategy takes the same `action`.

    Parameters
    ----------
    app : ClientApp
        The ClientApp, of the message API (without client_fn).
    load : Load
        From the node's context to its rows. Called once per run, node and process, which keeps the rows of the eight
        nodes that it served last.
    action : str, default="pca"
        Flower's name of the functions.
    rules : Given, default=None
        What a node allows, or a function from its context to that. If no rule is given here or as a keyword, the rules
        in the node's node-config hold.
    hosts : Hosts or None, default=None
        In simulations, from the context of a virtual node to the numbers of the clients that it hosts, or to none if it
        is one client itself. Each of them has a context of its own for `load` and `rules`, with its number as
        partition-id. The strategy is one with hosted="stacked".
    mods : sequence, default=()
        Flower's mods around these functions, beside those of the whole app. They have to leave answers as they are, as
        `message_size_mod` does.
    **keywords
        The same, rule by rule: in place of those in `rules`, if both are given. See `Rules`.

    Raises
    ------
    ConfigError
        If a mod is one that is known to change answers.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr.clientapp import ClientApp
    >>> from flower_pca import clients
    >>> app = ClientApp()  # your app, with its own @app.train()
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> clients.register(app, lambda context: rows, action="pca")
    """
    around = require_honest(app, mods)
    door = _Door(Ready(load, rules, keywords), hosts)

    @app.train(action, mods=around)
    def train(message: Message, context: Context) -> Message:
        return door.answer(message, context, "train")

    @app.evaluate(action, mods=around)
    def evaluate(message: Message, context: Context) -> Message:
        return door.answer(message, context, wire.EVALUATE)

    @app.query(action, mods=around)
    def query(message: Message, context: Context) -> Message:
        return door.introduce(message, context)

    _list_action(app, action)


# the actions of PCA in each app, for a server that asks for another one
_ACTIONS: Final[WeakKeyDictionary[ClientApp, list[str]]] = WeakKeyDictionary()


def _list_action(app: ClientApp, action: str) -> None:
    """List PCA's action in the app's errors, because Flower only names the action that is missing."""
    if app in _ACTIONS:
        _ACTIONS[app].append(action)
        return
    actions = _ACTIONS[app] = [action]

    @app.query(wire.DIRECTORY)
    def directory(message: Message, context: Context) -> Message:
        return Message(wire.write_actions(actions), reply_to=message)


class _Door:
    """The entry for a node's messages: its own client answers them, or the clients that it hosts.

    After any error, the server gets a text of this package, because Flower would send the text of an uncaught
    exception unchanged.

    Parameters
    ----------
    ready : Ready
        The clients.
    hosts : Hosts or None
        From a node's context to the numbers of the clients that it hosts.
    """

    def __init__(self, ready: Ready, hosts: Hosts | None) -> None:
        self._ready, self._hosts = ready, hosts or (lambda context: ())

    def answer(self, message: Message, context: Context, kind: str) -> Message:
        """Return the answer to a message of this kind."""
        ready, config = self._ready, wire.Config(number=0)
        layout = wire.layout_of_request(message.content, kind) or wire.MESSAGE_API
        try:
            hosted = self._hosts(context)
            if hosted:
                return Message(self._host(message.content, kind, context, hosted), reply_to=message)
            parameters, config = wire.open_request(message.content, kind)
            returned = ready.answer(kind, parameters, config, context)
        except RefusalError:
            # Of a node that hosts clients, which has no client's answer to put a refusal in: Flower
            # sends the words as an error, and they are chosen for the server already.
            raise
        except Exception as error:
            returned = ready.refuse(error, kind, config, context)
        return Message(wire.write_reply(kind, *returned, layout=layout), reply_to=message)

    def introduce(self, message: Message, context: Context) -> Message:
        """Return what the node says of itself before a run."""
        try:
            if hosted := self._hosts(context):
                from flower_pca.hosting import messages

                return Message(messages.write_properties(hosted), reply_to=message)
            properties = self._ready.client(context).get_properties({})
        except Exception as error:
            raise RefusalError(self._ready.words(error, context)) from None
        return Message(wire.write_properties(properties), reply_to=message)

    def _host(self, content: Content, kind: str, context: Context, hosted: Sequence[int]) -> Content:
        """Return the answers of the clients that a node hosts."""
        from flower_pca.hosting import node  # Imported here because no other node needs it.

        try:
            return node.serve(content, kind, context, hosted, self._ready.answer)
        except Exception as error:
            raise RefusalError(self._ready.words(error, context)) from None


class Ready:
    """The clients of the nodes that a process serves, ready for their next messages.

    Parameters
    ----------
    load : Load
        From a node's context to its rows.
    rules : Given
        What a node allows, or a function from its context to that.
    keywords : mapping
        The same, rule by rule.
    """

    def __init__(self, load: Load, rules: Given, keywords: Mapping[str, Any]) -> None:
        if rules is None and not keywords:
            rules = _of_operator
        self._load, self._rules, self._keywords = load, rules, keywords
        # Rules that are the same for all nodes are checked here, and the files they name are read
        # once.
        self._shared: Rules | None = None
        if not callable(rules):
            self._shared = Rules.of(rules, keywords)
        self._clients = Cache(_CACHED)

    def client(self, context: Context) -> PCAClient:
        """Return the node's client, which its first message in this process creates."""
        # Clients of one virtual node have its node id in common: partition-ids tell them apart.
        key = (context.run_id, context.node_id, context.node_config.get("partition-id"))
        known: PCAClient = self._clients.get(key, lambda: self._begin(context))
        return known.within(context)

    def _begin(self, context: Context) -> PCAClient:
        own = self._rules_of(context)
        loaded = self._load(context)
        data = node_rows(loaded, own)
        # Of a simulation's rows the result says so; and a process begins with every message,
        # not a run.
        if own.answers != "rows" and not values_in(context.state, _HINTS):
            notice(data, loaded)
            put_values(context.state, _HINTS, {"logged": True})
        return PCAClient(data, context=context, rules=own)

    def answer(self, kind: str, parameters: list[Array], config: wire.Config, context: Context) -> Returned:
        """Return the answer of the node's client to a message."""
        try:
            served = self.client(context)
        except Exception as error:  # the rows cannot be used: the server is told which node, and why
            return self.refuse(error, kind, config, context)
        if kind == wire.EVALUATE:
            return served.evaluate(parameters, config)
        return served.fit(parameters, config)

    def words(self, error: Exception, context: Context) -> str:
        """Return what the server may learn of an error."""
        return words_for_server(error, discreet=self._discreet(context))

    def refuse(self, error: Exception, kind: str, config: wire.Config, context: Context) -> Returned:
        """Return the refusal of a node that has no client to answer."""
        first: Any = []
        if kind == wire.EVALUATE:
            first = 0.0
        return first, 0, refusal(error, config, _key(context), discreet=self._discreet(context))

    def _rules_of(self, context: Context) -> Rules:
        given = self._rules
        return self._shared or Rules.of(given(context) if callable(given) else None, self._keywords)

    def _discreet(self, context: Context) -> bool:
        try:
            return self._rules_of(context).discreet
        except Exception:  # The refusal is about whatever went wrong.
            return True


def _of_operator(context: Context) -> Rules:
    return Rules.of_node_config(context.node_config)


def _key(context: Context) -> int:
    given = context.node_config.get("partition-id", wire.NO_KEY)
    if isinstance(given, int):
        return given
    return wire.NO_KEY
