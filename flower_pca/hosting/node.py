"""A virtual node that hosts many clients: each is a PCAClient with a context, a memory and a key of its own.

A node of a simulation hands every client its own message, and gathers what they return. It knows nothing of PCA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flwr.app import Context, RecordDict

from flower_pca import wire
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.hosting import messages as hosted
from flower_pca.hosting import sums as summed
from flower_pca.hosting.messages import Answered

_OF: str = "/"  # between the number of a client and the name of a record of its state

# A client's fit or evaluate: of the kind of a message, its parameters and config, in the client's context.
Answer = Callable[[str, list[Array], wire.Config, Context], tuple[Any, int, wire.Config]]


def serve(content: RecordDict, kind: str, context: Context, clients: Sequence[int], answer: Answer) -> RecordDict:
    """What these clients, which a node hosts, answer to a message for some of them."""
    answers = _answers(content, kind, context, frozenset(clients), answer)
    if hosted.asks_sum(content):
        request = wire.read_request(*wire.open_request(content, kind))
        return hosted.write_sum(summed.added(request, kind, answers))
    return hosted.write_reply(kind, list(answers))


def _answers(
    content: RecordDict, kind: str, context: Context, clients: frozenset[int], answer: Answer
) -> Iterator[Answered]:
    _check(hosted.asked_of(content), clients)
    states = _states(context)
    for client, parameters, config in hosted.read_request(content, kind):
        own = _context(context, client, states.get(client, {}))
        yield Answered(client, *answer(kind, parameters, config, own))
        context.state.update({f"{client}{_OF}{name}": record for name, record in own.state.items()})


def _check(named: Sequence[object], clients: frozenset[int]) -> None:
    """Refuse a message before anybody answers it: named twice, a client would answer twice from what it kept before."""
    seen: set[object] = set()
    for client in named:
        if type(client) is not int or client not in clients or client in seen:
            rule, got = f"one of the {len(clients)} that this node hosts, named once", repr(client)[:50]
            raise ProtocolError("Every client of a message", must=rule, got=got, then="Check the strategy.")
        seen.add(client)


def _states(context: Context) -> dict[int, dict[str, Any]]:
    """The state of each client, which lies in that of the node."""
    states: dict[int, dict[str, Any]] = {}
    for name, record in context.state.items():
        client, _, own = name.partition(_OF)
        states.setdefault(int(client), {})[own] = record
    return states


def _context(context: Context, client: int, state: dict[str, Any]) -> Context:
    """The client's own context."""
    config = {**context.node_config, "partition-id": client}
    return Context(context.run_id, context.node_id, config, RecordDict(state), context.run_config)
