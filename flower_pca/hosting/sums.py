"""The sum of the answers of a virtual node's clients, each of which is checked as a server checks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flower_pca import registry, wire
from flower_pca.base.errors import ProtocolError
from flower_pca.core.replies import check_arrays, declined_by, name_of
from flower_pca.core.stage import Merge, Reply, Sum, add
from flower_pca.hosting.messages import Added, Answered
from flower_pca.names.columns import Heading
from flower_pca.stages import opening
from flower_pca.wire import Request


def added(request: Request, kind: str, answers: Iterable[Answered]) -> Added:
    """What answers to a message come to; one at a time, so that memory does not grow with the clients."""
    parts = registry.STAGES[request.stage].parts(request.arrays, None)
    merge: Merge = opening.adding(request.arrays) if request.stage == opening.Opening.name else add
    total: Any = None
    heading: Heading | None = None
    clients, nbytes, declined = [], 0, ""
    failures, sites = {}, {}
    for answered in answers:
        client, first = answered.client, answered.first
        try:
            answer = wire.read_answer(kind, answered.metrics, answered.num_examples, lambda first=first: first)  # type: ignore[misc]
            if answer.site:
                sites[client] = answer.site
            if answer.refusal is not None:
                failures[client] = answer.refusal, answer.lasting
                continue
            reply = Reply(client, answer.number, answer.arrays, answer.heading, answer.site, answer.declines)
            check_arrays(reply, parts)
            if heading is not None and reply.heading is not None and not reply.heading.like(heading):
                raise ProtocolError(reply.heading.outvoted(name_of(reply), heading))
            total = merge(total, client, reply.arrays)
        except ProtocolError as error:
            failures[client] = str(error), True
            continue
        heading = reply.heading if heading is None else heading.fuller(reply.heading)
        clients.append(client)
        nbytes += sum(a.nbytes for a in reply.arrays.values())
        declined = declined or declined_by(reply)
    if total is None:
        return Added(None, failures, sites)
    return Added(Sum(tuple(clients), request.number, total, declined, heading, nbytes), failures, sites)
