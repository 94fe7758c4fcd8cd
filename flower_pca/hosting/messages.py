"""The messages and answers of several clients in one, for virtual nodes that host many: the layout of their records.

A message holds what `wire` writes for one client, once, and beside it which clients it is for and what single ones get.
In an answer those of all clients that are made alike are stacked, name by name; what else each says lies beside them.
Whatever is in there is read by `wire`, as if it had come from the single clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from flower_pca import wire
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Broadcast, Sum
from flower_pca.names.columns import Heading

_HOSTED: Final = "hosted"  # the record that says which clients a message is for, or an answer of
_PLAYED: Final = "clients"  # the numbers of the clients that a virtual node hosts, among its properties
_NAMES, _ARRAYS, _SUMMED = "names", "arrays", "summed"
_FAILURES, _SITES = "failures", "sites"


@dataclass(frozen=True)
class Answered:
    """What a client's fit or evaluate has returned."""

    client: int
    first: Any  # a list of arrays, or the loss
    num_examples: int
    metrics: wire.Config


@dataclass(frozen=True)
class Added:
    """The sum of the answers of a node's clients, and why some of them are not in it.

    Attributes:
        sum: The sum; None if no client has answered.
        failures: Why there is no answer, and whether there will be none in this run, by client.
        sites: What clients are called, of those that say so.
    """

    sum: Sum | None
    failures: Mapping[int, tuple[str, bool]]
    sites: Mapping[int, str]


class Writer:
    """Writes one message of the server for the clients of one virtual node after another; what is common, once.

    Args:
        message: The message.
        summed: Whether their answers shall come as a sum.
        **settings: As of `wire.write_request`.
    """

    def __init__(self, message: Broadcast, *, summed: bool = False, **settings: Any) -> None:
        self._own, self._summed = message.personal, summed
        self._common = wire.write_request(replace(message, personal={}), message.to[0], **settings)

    def request(self, clients: Sequence[int]) -> RecordDict:
        """The records of a message for these clients."""
        content = RecordDict(dict(self._common.items()))
        names = {}
        for client in clients:
            if own := self._own.get(client):
                content.array_records[f"{_HOSTED}.{client}"] = ArrayRecord([np.asarray(a) for a in own.values()])
                names[client] = list(own)
        told: dict[str, Any] = {_PLAYED: list(clients), _NAMES: json.dumps(names), _SUMMED: self._summed}
        content.config_records[_HOSTED] = ConfigRecord(told)
        return content


def asks_sum(content: RecordDict) -> bool:
    """Whether the answers to a message shall come as a sum."""
    told: Mapping[str, Any] = content.config_records.get(_HOSTED, {})
    return bool(told.get(_SUMMED, False))


def asked_of(content: RecordDict) -> Sequence[object]:
    """The clients that a message names, as it does; none if it names no clients."""
    told: Mapping[str, Any] = content.config_records.get(_HOSTED, {})
    named = told.get(_PLAYED, ())
    return named if isinstance(named, list | tuple) else (named,)


def read_request(content: RecordDict, kind: str) -> Iterator[tuple[int, list[Array], wire.Config]]:
    """For each client that a message is for: the parameters and the config of its own message."""
    parameters, config = wire.open_request(content, kind)
    if _HOSTED not in content.config_records:
        remedy = 'Use a strategy with hosted="stacked".'
        raise ProtocolError("A message", must="one for the clients that this node hosts", got="another", then=remedy)
    hosted: Mapping[str, Any] = content.config_records[_HOSTED]
    names = json.loads(hosted[_NAMES])
    for client in hosted[_PLAYED]:
        if str(client) not in names:
            yield client, parameters, config
            continue
        arrays = dict(zip(str(config.get("names", "")).split(","), parameters, strict=True))
        own = wire.read_arrays(content.array_records[f"{_HOSTED}.{client}"])
        arrays |= zip(names[str(client)], own, strict=True)
        yield client, list(arrays.values()), {**config, "names": ",".join(arrays)}


def write_reply(kind: str, answers: Iterable[Answered]) -> RecordDict:
    """The records of the answers of a node's clients."""
    alike: dict[Any, list[Answered]] = {}
    for answer in answers:
        arrays = [] if kind == wire.EVALUATE else answer.first
        look = tuple((a.shape, a.dtype.str, _by_columns(a)) for a in arrays)
        alike.setdefault((look, answer.metrics.get("names", "")), []).append(answer)
    content = RecordDict()
    for number, ((look, _), group) in enumerate(alike.items()):
        content.config_records[f"{_HOSTED}.{number}"] = ConfigRecord(
            {
                _PLAYED: [answer.client for answer in group],
                "num_examples": [answer.num_examples for answer in group],
                "metrics": json.dumps([answer.metrics for answer in group]),
                "by_columns": [by_columns for _, _, by_columns in look],
            }
        )
        stacks = [_stacked([answer.first[i] for answer in group], look[i][2]) for i in range(len(look))]
        content.array_records[f"{_HOSTED}.{number}.{_ARRAYS}"] = ArrayRecord(stacks)
    return content


def read_reply(content: RecordDict, kind: str) -> dict[int, wire.Answer | ProtocolError]:
    """The answers in the records of a node's reply, by client; or what is wrong with them."""
    found: dict[int, wire.Answer | ProtocolError] = {}
    for name, group in content.config_records.items():
        stacks = wire.read_arrays(content.array_records[f"{name}.{_ARRAYS}"])
        parts: Mapping[str, Any] = group
        beside = zip(parts[_PLAYED], parts["num_examples"], json.loads(parts["metrics"]), strict=True)
        for i, (client, num_examples, metrics) in enumerate(beside):
            arrays = [_single(a, i, by) for a, by in zip(stacks, parts["by_columns"], strict=True)]
            try:
                found[client] = wire.read_answer(kind, metrics, num_examples, lambda arrays=arrays: arrays)  # type: ignore[misc]
            except ProtocolError as error:
                found[client] = error
    return found


def write_sum(added: Added) -> RecordDict:
    """The records of the sum of the answers of a node's clients."""
    content = RecordDict()
    told: dict[str, Any] = {_FAILURES: json.dumps(added.failures), _SITES: json.dumps(added.sites)}
    if (total := added.sum) is not None:
        told |= {_PLAYED: list(total.clients), "number": total.number, "nbytes": total.nbytes}
        told |= {_NAMES: list(total.arrays), "declined": total.declined}
        told |= {} if total.heading is None else total.heading.plain()
        content.array_records[_ARRAYS] = ArrayRecord([np.asarray(a) for a in total.arrays.values()])
    content.config_records[_SUMMED] = ConfigRecord(wire.told(told))
    return content


def read_sum(content: RecordDict) -> Added:
    """The sum in the records of a node's reply."""
    told: Mapping[str, Any] = content.config_records[_SUMMED]
    failures = {int(i): (why, lasting) for i, (why, lasting) in json.loads(told[_FAILURES]).items()}
    sites = {int(i): text for i, text in json.loads(told[_SITES]).items()}
    if _PLAYED not in told:
        return Added(None, failures, sites)
    arrays = dict(zip(told[_NAMES], wire.read_arrays(content.array_records[_ARRAYS]), strict=True))
    beside = {"declined": told.get("declined", ""), "heading": Heading.of(told), "nbytes": told["nbytes"]}
    return Added(Sum(tuple(told[_PLAYED]), told["number"], arrays, **beside), failures, sites)


def write_properties(clients: Sequence[int]) -> RecordDict:
    """What a virtual node says of itself before a run."""
    return RecordDict({"getpropertiesres.properties": ConfigRecord({**wire.SPOKEN, _PLAYED: list(clients)})})


def read_properties(content: RecordDict) -> tuple[int, ...]:
    """The clients that a node hosts; none if it is no such node."""
    found: Mapping[str, Any] = content.config_records.get("getpropertiesres.properties", {})
    return tuple(found.get(_PLAYED, ()))


def write_query() -> RecordDict:
    """What a node is asked for its properties."""
    return RecordDict({"getpropertiesins.config": ConfigRecord()})


def _by_columns(a: Array) -> bool:
    """Whether an array lies in memory column by column: a stack of such keeps that, as products depend on it."""
    return bool(a.ndim == 2 and a.flags.f_contiguous and not a.flags.c_contiguous)


def _stacked(arrays: Sequence[Array], by_columns: bool) -> Array:
    return np.stack([a.T for a in arrays] if by_columns else arrays)


def _single(stack: Array, i: int, by_columns: bool) -> Array:
    a = stack[i]
    return a.T if by_columns else np.asarray(a)
