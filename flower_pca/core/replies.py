"""What the server accepts as an answer: the right message, names, shapes, and finite numbers; and what it adds up.

`collect` takes the answers to one message as they come. Each is checked (whose it is, what its parts say, how large it
is beside what its client has said of its rows, what the stage itself can tell), and merged at once, so that memory does
not grow with the clients, but for two columns of each in the opening. A wrong answer becomes a failure with a reason,
never an exception: the others go on. The reduction and the failures make a `Collected`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.history import Round
from flower_pca.core.claims import Judge
from flower_pca.core.kinds import Part, fault
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Stage, Sum
from flower_pca.layers import precision
from flower_pca.layers.air import AirChannel
from flower_pca.names.columns import Heading

_DATA = "Check the client's data."


class UnawaitedError(ProtocolError):
    """An answer that nobody waits for: discarded, and not held against its client."""


@dataclass(frozen=True)
class Collected:
    """The answers to one message: their reduction, who gave them, and who failed, why, and for good."""

    total: Any
    answered: frozenset[int]
    count: int
    bytes_up: int
    failures: dict[str, str]
    banned: frozenset[int]
    heading: Heading | None = None
    declined: str = ""

    @property
    def why(self) -> str:
        """The first failure."""
        return next(iter(self.failures.values()), "")

    def record(self, sent: Broadcast, *, seconds: float, metrics: dict[str, float]) -> Round:
        """The entry of the history."""
        return Round(
            number=sent.number,
            stage=sent.stage,
            asked=len(sent.to),
            answered=self.count,
            failures=self.failures,
            bytes_down=sent.nbytes,
            bytes_up=self.bytes_up,
            seconds=seconds,
            metrics=metrics,
        )


def collect(
    stage: Stage[Any],
    state: Any,
    sent: Broadcast,
    replies: Iterable[Reply | Sum | Failure],
    *,
    d: int | None,
    total: Any,
    answered: frozenset[int],
    channel: AirChannel | None,
    judge: Judge,
    heading: Heading | None = None,
) -> Collected:
    """Check the answers, reduce the good ones in their order onto `total`, and hear the result through the channel.

    Where nobody has said yet how many columns the rows have (`d` is None), each answer says so by its moments, one for
    each column, and by its heading what they are called. Answers come together apart for each kind of columns then;
    that of most clients counts, of the first one if equally many have another, and the others are left out for good.
    Once the `heading` of the run is known, others are left out at once. The `judge` holds an answer against what its
    client has said of its rows.
    """
    failures: dict[str, str] = {}
    banned: set[int] = set()
    bytes_up, merge, heard = 0, stage.merging(state), set(answered)
    common = stage.parts(sent.arrays, d) if not sent.personal else {}
    telling, declined, bits = _telling(common), "", precision.asked(sent.arrays)
    groups: dict[tuple[int, str], _Group] = {}
    if total is not None:
        groups[_columns(telling, total, d), ""] = _Group(total, list(answered))
    for position, reply in enumerate(replies):
        if isinstance(reply, Sum):
            kind = _columns(telling, reply.arrays, d), ""
            group = groups.setdefault(kind, _Group())
            summed = reply.arrays if group.total is None else merge(group.total, reply.clients[0], reply.arrays)
            group.take(summed, reply.clients)
            bytes_up += reply.nbytes
            heading = heading or reply.heading
            heard.update(reply.clients)
            declined = declined or reply.declined
            continue
        if isinstance(reply, Reply):
            bytes_up += precision.nbytes(reply.arrays, bits)
            try:
                check(reply, sent, heard)
                if heading is not None and reply.heading is not None and not reply.heading.like(heading):
                    raise reply.heading.mismatch(name_of(reply), heading).error(ProtocolError)
                columns = _columns(telling, reply.arrays, d)
                same = not sent.personal and columns == (d or 0)
                parts = common if same else stage.parts(sent.arrays_for(reply.client), columns or None)
                check_arrays(reply, parts)
                judge.check(reply.client, reply.arrays, parts, sent.arrays_for(reply.client))
                stage.inspect(state, reply.arrays)
                arrays = reply.arrays
                if channel is not None:
                    arrays = channel.faded(arrays, number=sent.number, position=position)
                voted = d is None and columns > 0 and heading is None  # else the first one says what columns there are
                kind = columns, reply.heading.digest if voted and reply.heading is not None else ""
                group = groups.get(kind) or _Group()
                group.take(merge(group.total, reply.client, arrays), (reply.client,))
                group.hear(reply)
            except ProtocolError as error:
                reply = Failure(reply.client, str(error), lasting=not isinstance(error, UnawaitedError))
            else:
                groups[kind] = group
                heading = heading if voted else heading or reply.heading
                heard.add(reply.client)
                declined = declined or declined_by(reply)
                continue
        failures[str(reply.client)] = reply.reason
        if reply.lasting:
            banned.add(reply.client)
    most = max(groups, key=lambda kind: len(groups[kind].clients), default=(0, ""))
    best = groups.get(most, _Group())
    for kind, group in groups.items():
        for client in group.clients if kind != most else ():
            failures[str(client)] = str(group.said(kind).mismatch(group.name(client), best.said(most)))
            banned.add(client)
    total, count = best.total, len(heard - banned - answered)
    if channel is not None and count:
        total = channel.received(total, number=sent.number)
    heading = heading or best.heading
    return Collected(total, frozenset(heard - banned), count, bytes_up, failures, frozenset(banned), heading, declined)


@dataclass
class _Group:
    """What the answers that speak of the same columns have come together to, and whose they are."""

    total: Any = None
    clients: list[int] = field(default_factory=list)
    heading: Heading | None = None
    sites: dict[int, str] = field(default_factory=dict)

    def hear(self, reply: Reply) -> None:
        self.heading = reply.heading if self.heading is None else self.heading.fuller(reply.heading)
        if reply.site:
            self.sites[reply.client] = reply.site

    def name(self, client: int) -> str:
        return _named(client, self.sites.get(client, ""))

    def said(self, kind: tuple[int, str]) -> Heading:
        return self.heading or Heading(kind[0])

    def take(self, total: Any, clients: Iterable[int]) -> None:
        self.total = total
        self.clients.extend(clients)


def name_of(reply: Reply) -> str:
    """A client, by its own name too if it has one."""
    return _named(reply.client, reply.site)


def declined_by(reply: Reply) -> str:
    """That a client declines what the run may go on with instead, and why."""
    return f"{name_of(reply)}: {reply.declines}" if reply.declines else ""


def _named(client: int, site: str) -> str:
    return f"client {client} ({site})" if site else f"client {client}"


def _telling(parts: Mapping[str, Part]) -> list[str]:
    """The parts of an answer whose length is its number of columns, where the run does not know that yet."""
    return [name for name, part in parts.items() if part.kind.by_column and part.open]


def _columns(telling: Iterable[str], arrays: Arrays, d: int | None) -> int:
    """How many columns an answer speaks of; 0 where neither it nor the run says so."""
    for name in telling:
        if np.ndim(arrays.get(name, 0.0)) == 1:
            return len(arrays[name])
    return d or 0


def unusable(error: np.linalg.LinAlgError) -> DataError:
    """What to say of sums of which LAPACK cannot make anything."""
    got = f"ones on which LAPACK fails ({error})"
    return DataError("The sums of a round", must="of usual size", got=got, then="Scale the data.")


def check(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    if reply.client not in sent.asked:
        rule, got, remedy = "asked for", "one of a client not asked", "It was not counted."
    elif reply.number != sent.number:
        rule, got, remedy = f"one to message {sent.number}", f"one to message {reply.number}", "It came late."
    elif reply.client in answered:
        rule, got, remedy = "a single one", "another one", "It was not counted."
    else:
        return
    raise UnawaitedError(f"The answer of client {reply.client}", must=rule, got=got, then=remedy)


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, naming the client, unless its answer is made of these parts, in finite numbers."""
    if reply.arrays.keys() != expected.keys():
        rule = f"made of {', '.join(sorted(expected))}"
        got, remedy = ", ".join(sorted(reply.arrays)) or "nothing", "Install the same flower_pca everywhere."
        raise ProtocolError(f"The answer of client {reply.client}", must=rule, got=got, then=remedy)
    for name, part in expected.items():
        if wrong := fault(reply.arrays[name], part):
            rule, got = wrong
            raise ProtocolError(f"The answer of client {reply.client}, {name},", must=rule, got=got, then=_DATA)
