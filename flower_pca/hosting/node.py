"""A virtual node that hosts several clients. Each client is a PCAClient with a separate context, memory and key.

The node passes each client the client's part of a message, and collects the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from flwr.app import Context

from flower_pca import wire
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import shown
from flower_pca.hosting import messages as hosted
from flower_pca.hosting.messages import ClientReturn
from flower_pca.wire import records
from flower_pca.wire.records import Content

_SEPARATOR: Final = "/"  # the separator between the number of a client and the name of a record in its state

# The type of a function that calls a client's `fit` or `evaluate` in the client's context. Its arguments are the kind
# of a message, its parameters, its config and the context.
Answer: TypeAlias = Callable[[str, list[Array], wire.Config, Context], tuple[Any, int, wire.Config]]


def serve(content: Content, kind: str, context: Context, clients: Sequence[int], answer: Answer) -> Content:
    """Return one reply with the answers from the clients that a message names.

    `clients` are the numbers of all clients of the node.
    """
    return hosted.write_reply(kind, list(_answers_of_clients(content, kind, context, frozenset(clients), answer)))


def _answers_of_clients(
    content: Content, kind: str, context: Context, clients: frozenset[int], answer: Answer
) -> Iterator[ClientReturn]:
    _require_own_clients(hosted.clients_of(content), clients)
    states = _states_of_clients(context)
    for client, parameters, config in hosted.read_request(content, kind):
        node = {**context.node_config, "partition-id": client}
        state = states.get(client, Content())
        own = Context(context.run_id, context.node_id, node, state, context.run_config)
        yield ClientReturn(client, *answer(kind, parameters, config, own))
        context.state.update({f"{client}{_SEPARATOR}{name}": record for name, record in own.state.items()})


def _require_own_clients(clients_named: Sequence[object], clients: frozenset[int]) -> None:
    """Raise ProtocolError if a message names a client twice, or names a client of another node.

    A client that is named twice would answer twice from the same memory. The check precedes all answers.
    """
    seen: set[object] = set()
    for client in clients_named:
        if type(client) is not int or client not in clients or client in seen:
            raise ProtocolError(
                f"The message names client {shown(client)[:50]} twice, or this client is not among the {len(clients)} "
                f"clients of this virtual node. {records.SENDER}"
            )
        seen.add(client)


def _states_of_clients(context: Context) -> dict[int, Content]:
    """Return the state of each client, taken from the node's state."""
    states: dict[int, Content] = {}
    for name, record in context.state.items():
        client, _, part = name.partition(_SEPARATOR)
        states.setdefault(int(client), Content())[part] = record
    return states
