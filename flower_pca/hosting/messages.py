"""The messages and answers of several clients in one, for virtual nodes that host many: the layout of their records.

A message holds what `wire` writes for one client, once, and beside it which clients it is for and
what single ones get. In an answer those of all clients that are made alike are stacked, name by
name; what else each says lies beside them. Whatever is in there is read by `wire`, as if it had
come from the single clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from flower_pca import wire
from flower_pca.base import labels
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Broadcast
from flower_pca.wire import records
from flower_pca.wire.records import Content

# the record that says which clients a message is for, or an answer of
_HOSTED: Final = "hosted"
# the numbers of the clients that a virtual node hosts, among its properties
_PLAYED: Final = "clients"
_NAMES, _ARRAYS = "names", "arrays"
_ANSWER, _CHECK = "The answer of a virtual node", "Look at the log of that node."
_MESSAGE: Final = "A message for the clients of a virtual node"
LACKING: Final = ProtocolError(f"{_ANSWER} has no part for one of its clients. {_CHECK}")
TWICE: Final = ProtocolError(f"{_ANSWER} has two parts for one of its clients. {_CHECK}")


@dataclass(frozen=True)
class Delivery:
    """What a client's fit or evaluate has returned."""

    client: int
    first: Any  # a list of arrays, or the loss
    num_examples: int
    metrics: wire.Config


class Writer:
    """Writes one message for the clients of virtual nodes, one client at a time. The common part is written once.

    Parameters
    ----------
    message : Broadcast
        The message.
    **settings
        See `wire.write_request`.
    """

    def __init__(self, message: Broadcast, **settings: Any) -> None:
        self._single = message.personal
        self._common = wire.write_request(replace(message, personal={}), message.to[0], **settings)

    def request(self, clients: Sequence[int]) -> Content:
        """The records of a message for these clients."""
        content = records.copy_of(self._common)
        names = {}
        for client in clients:
            if single := self._single.get(client):
                records.put_arrays(content, f"{_HOSTED}.{client}", single.values())
                names[client] = list(single)
        beside = {_PLAYED: list(clients), _NAMES: json.dumps(names)}
        records.put_values(content, _HOSTED, beside)
        return content


def clients_of(content: Content) -> Sequence[object]:
    """The clients that a message names, as it does; none if it names no clients."""
    listed = records.values_in(content, _HOSTED).get(_PLAYED, ())
    if isinstance(listed, list | tuple):
        return listed
    return (listed,)


def read_request(content: Content, kind: str) -> Iterator[tuple[int, list[Array], wire.Config]]:
    """For each client that a message is for: the parameters and the config of its own message."""
    parameters, config = wire.open_request(content, kind)
    hosted = records.values_in(content, _HOSTED)
    if not hosted:
        raise ProtocolError(
            'The message is for a single client, but this node hosts several. Use a strategy with hosted="stacked".'
        )
    clients = _list_of(hosted, _PLAYED, int, who=_MESSAGE)
    names = _json(hosted, _NAMES, dict, who=_MESSAGE)
    for client in clients:
        if str(client) not in names:
            yield client, parameters, config
            continue
        arrays = wire.by_name(_MESSAGE, parameters, config)
        own = names[str(client)]
        listed = ",".join(map(str, own)) if isinstance(own, list) else None
        arrays |= wire.by_name(_MESSAGE, records.arrays_in(content, f"{_HOSTED}.{client}"), {_NAMES: listed})
        yield client, list(arrays.values()), {**config, "names": ",".join(arrays)}


def write_reply(kind: str, answers: Iterable[Delivery]) -> Content:
    """The records of the answers of a node's clients."""
    alike: dict[Any, list[Delivery]] = {}
    for answer in answers:
        arrays = () if kind == wire.EVALUATE else answer.first
        look = tuple((a.shape, a.dtype.str, _by_columns(a)) for a in arrays)
        alike.setdefault((look, answer.metrics.get("names", "")), []).append(answer)
    content = Content()
    for number, ((look, _), group) in enumerate(alike.items()):
        # told beside the stack, as products of arrays that lie otherwise in memory round otherwise
        by_columns = [by for _, _, by in look]
        beside = {
            _PLAYED: [answer.client for answer in group],
            "num_examples": [answer.num_examples for answer in group],
            "metrics": json.dumps([answer.metrics for answer in group]),
            "by_columns": by_columns,
        }
        records.put_values(content, f"{_HOSTED}.{number}", beside)
        every = ([answer.first[i] for answer in group] for i in range(len(look)))
        stacks = [_stack(arrays, by) for arrays, by in zip(every, by_columns, strict=True)]
        records.put_arrays(content, f"{_HOSTED}.{number}.{_ARRAYS}", stacks)
    return content


def read_reply(content: Content, kind: str, clients: Sequence[int]) -> dict[int, wire.Answer | ProtocolError]:
    """The answers of these clients in a node's reply, by client; or what is wrong with them."""
    if wire.is_reply(content, kind):  # The reply is from the node itself, and says why there is none.
        return dict.fromkeys(clients, _read(lambda: wire.read_reply(content, kind)))
    found: dict[int, wire.Answer | ProtocolError] = {}
    lacking: ProtocolError = LACKING
    for name in content.config_records:
        try:
            for client, read in _members(content, name, kind):
                found[client] = TWICE if client in found else _read(read)
        except ProtocolError as error:
            lacking = error
    return {client: found.get(client, lacking) for client in clients}


def _members(content: Content, name: str, kind: str) -> Iterator[tuple[int, Callable[[], wire.Answer]]]:
    """The clients whose answers are stacked in a record, each with what reads its own."""
    group = records.values_in(content, name)
    clients, examples = (_list_of(group, key, int) for key in (_PLAYED, "num_examples"))
    by_columns, metrics = _list_of(group, "by_columns", bool), _json(group, "metrics", list)
    stacks = records.arrays_in(content, f"{name}.{_ARRAYS}")
    alike = all(a.ndim > 0 and len(a) == len(clients) for a in stacks)
    if not alike or len(stacks) != len(by_columns) or not len(clients) == len(examples) == len(metrics):
        raise ProtocolError(
            f"{_ANSWER} lists {labels.count(len(clients), 'client')}, but its arrays and metrics are for another "
            f"number of clients. {_CHECK}"
        )
    for i, client in enumerate(clients):
        arrays = [_single(a, i, by) for a, by in zip(stacks, by_columns, strict=True)]
        yield client, partial(_answer, kind, metrics[i], examples[i], arrays)


def _answer(kind: str, metrics: object, num_examples: int, arrays: list[Array]) -> wire.Answer:
    return wire.read_answer(kind, wire.as_config(metrics), num_examples, lambda: arrays)


def _read(read: Callable[[], wire.Answer]) -> wire.Answer | ProtocolError:
    try:
        return read()
    except ProtocolError as error:
        return error


def _json(values: Mapping[str, Any], name: str, kind: type[Any], *, who: str = _ANSWER) -> Any:
    """What a text among the values of another machine holds, if it is of this kind."""
    try:
        # RecursionError is of brackets within brackets, as deep as another machine likes
        found = json.loads(wire.value_of(who, values, name, str))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise ProtocolError(f'{who} has no "{name}" that can be read as JSON. {_remedy(who)}')
    return found


def _list_of(values: Mapping[str, Any], name: str, kind: type[Any], *, who: str = _ANSWER) -> list[Any]:
    """A list among the values of another machine, if all in it are of this kind."""
    found = values.get(name)
    # The types are compared, because isinstance takes True for an int.
    if not isinstance(found, list) or any(type(item) is not kind for item in found):
        raise ProtocolError(f'{who} has no "{name}" that is a list of {kind.__name__}. {_remedy(who)}')
    return found


def _remedy(who: str) -> str:
    if who == _MESSAGE:
        return records.SENDER
    return _CHECK


def write_properties(clients: Sequence[int]) -> Content:
    """What a virtual node says of itself before a run."""
    return wire.write_properties({**wire.SPOKEN, _PLAYED: list(clients)})


def read_properties(content: Content) -> tuple[int, ...]:
    """The clients that a node hosts; none if it is no such node.

    Raises
    ------
    ProtocolError
        If what it lists are no numbers of clients, each once.
    """
    properties = wire.read_properties(content)
    if _PLAYED not in properties:
        return ()
    clients = _list_of(properties, _PLAYED, int)
    if len(set(clients)) != len(clients) or min(clients, default=0) < 0:
        raise ProtocolError(f"A virtual node lists a client twice, or by a negative number. {_CHECK}")
    return tuple(clients)


def _by_columns(a: Array) -> bool:
    """Whether an array lies in memory column by column, which a stack of such keeps."""
    return bool(a.ndim == 2 and a.flags.f_contiguous and not a.flags.c_contiguous)


def _stack(arrays: Sequence[Array], by_columns: bool) -> Array:
    return np.stack([a.T for a in arrays] if by_columns else arrays)


def _single(stack: Array, i: int, by_columns: bool) -> Array:
    a = stack[i]
    return a.T if by_columns else np.asarray(a)
