"""A virtual node that hosts many clients: each a PCAClient with its own context, memory and key.

A node of a simulation hands every client its own message, and gathers what they return: stacked, or
added up once each answer has been checked as a server checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from flwr.app import Context

from flower_pca import registry, wire
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.replies import check_arrays, declined_by, name_of
from flower_pca.core.stage import Reply, Sum, add
from flower_pca.hosting import messages as hosted
from flower_pca.hosting.messages import Delivery, NodeSum
from flower_pca.masking import messages as masks
from flower_pca.names.columns import Heading
from flower_pca.stages import opening
from flower_pca.wire.records import Content

_OF: Final = "/"  # between the number of a client and the name of a record of its state

# A client's fit or evaluate: of the kind of a message, its parameters and config, in the client's
# context.
Answer: TypeAlias = Callable[[str, list[Array], wire.Config, Context], tuple[Any, int, wire.Config]]


def serve(content: Content, kind: str, context: Context, clients: Sequence[int], answer: Answer) -> Content:
    """What these clients, which a node hosts, answer to a message for some of them."""
    answers = _answers(content, kind, context, frozenset(clients), answer)
    if hosted.asks_sum(content):
        request = wire.read_request(*wire.open_request(content, kind))
        if request.stage == masks.STAGE:
            raise ProtocolError(
                "A message for the clients that a node hosts",
                must="one without masks, where a sum is asked for",
                got="one with",
                then='Use a strategy with hosted="stacked".',
            )
        return hosted.write_sum(add_up(request, kind, answers))
    return hosted.write_reply(kind, list(answers))


def _answers(
    content: Content, kind: str, context: Context, clients: frozenset[int], answer: Answer
) -> Iterator[Delivery]:
    _check(hosted.clients_of(content), clients)
    states = _states(context)
    for client, parameters, config in hosted.read_request(content, kind):
        node = {**context.node_config, "partition-id": client}
        state = states.get(client, Content())
        own = Context(context.run_id, context.node_id, node, state, context.run_config)
        yield Delivery(client, *answer(kind, parameters, config, own))
        context.state.update({f"{client}{_OF}{name}": record for name, record in own.state.items()})


def _check(named: Sequence[object], clients: frozenset[int]) -> None:
    """Refuse a message before anybody answers it: named twice, a client would answer twice from what it kept before."""
    seen: set[object] = set()
    for client in named:
        if type(client) is not int or client not in clients or client in seen:
            raise ProtocolError(
                "Every client of a message",
                must=f"one of the {len(clients)} that this node hosts, named once",
                got=repr(client)[:50],
                then="Check the strategy.",
            )
        seen.add(client)


def _states(context: Context) -> dict[int, Content]:
    """The state of each client, which lies in that of the node."""
    states: dict[int, Content] = {}
    for name, record in context.state.items():
        client, _, part = name.partition(_OF)
        states.setdefault(int(client), Content())[part] = record
    return states


def add_up(request: wire.Request, kind: str, answers: Iterable[Delivery]) -> NodeSum:
    """What answers to a message come to; one at a time, so that memory does not grow."""
    total: Any = None
    heading: Heading | None = None
    clients: list[int] = []
    nbytes, declined = 0, ""
    failures: dict[int, tuple[str, bool]] = {}
    sites: dict[int, str] = {}
    for returned in answers:
        client = returned.client
        try:
            answer = _read(kind, returned)
            if answer.site:
                sites[client] = answer.site
            if answer.refusal is not None:
                failures[client] = answer.refusal, answer.lasting
                continue
            if total is None:  # a client has taken the message for one that it can work on
                parts = registry.STAGES[request.stage].parts(request.arrays, None)
                merge = opening.adding(request.arrays) if request.stage == opening.Opening.name else add
            reply = Reply(client, answer.number, answer.arrays, answer.heading, answer.site, answer.declines)
            check_arrays(reply, parts)
            if heading is not None and reply.heading is not None and not reply.heading.like(heading):
                raise reply.heading.mismatch(name_of(reply), heading).error(ProtocolError)
            total = merge(total, client, reply.arrays)
        except ProtocolError as error:
            failures[client] = str(error), True
            continue
        heading = reply.heading if heading is None else heading.fuller(reply.heading)
        clients.append(client)
        nbytes += sum(a.nbytes for a in reply.arrays.values())
        declined = declined or declined_by(reply)
    if total is None:
        return NodeSum(None, failures, sites)
    return NodeSum(Sum(tuple(clients), request.number, total, declined, heading, nbytes), failures, sites)


def _read(kind: str, returned: Delivery) -> wire.Answer:
    return wire.read_answer(kind, returned.metrics, returned.num_examples, lambda: returned.first)
