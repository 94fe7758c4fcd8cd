"""The layout of messages and answers for virtual nodes that host several clients.

A message contains one copy of the content that `wire` writes for one client, a list of the clients, and additional
arrays for individual clients. In an answer, arrays with the same name and shape from several clients are stacked, and
other values are listed. `wire` reads each client's part like an answer from one client.
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

# The record with this name lists the clients of a message or an answer.
_HOSTED: Final = "hosted"
# The list of clients has this name in the record "hosted" and in the properties of a virtual node.
_CLIENTS: Final = "clients"
_NAMES, _ARRAYS = "names", "arrays"
_ANSWER, _CHECK = "The answer of a virtual node", "Look at the log of that node."
_MESSAGE: Final = "A message for the clients of a virtual node"
LACKING: Final = ProtocolError(f"{_ANSWER} does not contain the answer of one of its clients. {_CHECK}")
TWICE: Final = ProtocolError(f"{_ANSWER} contains two answers from the same client. {_CHECK}")


@dataclass(frozen=True)
class ClientReturn:
    """The number of a client, and the return value of its `fit` or `evaluate`."""

    client: int
    first: Any  # a list of arrays, or the loss
    num_examples: int
    metrics: wire.Config


class HostedMessageWriter:
    """A writer of messages for the clients of virtual nodes. It writes the common part only once.

    Parameters
    ----------
    message : Broadcast
        The message to write.
    **settings
        See `wire.write_request`.
    """

    def __init__(self, message: Broadcast, **settings: Any) -> None:
        self._single = message.personal
        self._common = wire.write_request(replace(message, personal={}), message.to[0], **settings)

    def request(self, clients: Sequence[int]) -> Content:
        """Return the records of a message for these clients."""
        content = records.copy_of_content(self._common)
        names = {}
        for client in clients:
            if single := self._single.get(client):
                records.put_arrays(content, f"{_HOSTED}.{client}", single.values())
                names[client] = list(single)
        beside = {_CLIENTS: list(clients), _NAMES: json.dumps(names)}
        records.put_values(content, _HOSTED, beside)
        return content


def clients_of(content: Content) -> Sequence[object]:
    """Return the list of clients in a message without checking it, or an empty tuple if the message has no list."""
    listed = records.values_in(content, _HOSTED).get(_CLIENTS, ())
    if isinstance(listed, list | tuple):
        return listed
    return (listed,)


def read_request(content: Content, kind: str) -> Iterator[tuple[int, list[Array], wire.Config]]:
    """Yield each client of a message, with the parameters and the config of the client's part of the message."""
    parameters, config = wire.open_request(content, kind)
    hosted = records.values_in(content, _HOSTED)
    if not hosted:
        raise ProtocolError(
            "The message is for a single client, but this node hosts several clients. Use a strategy with "
            'hosted="stacked".'
        )
    clients = _list_of(hosted, _CLIENTS, int, who=_MESSAGE)
    names = _parsed_json(hosted, _NAMES, dict, who=_MESSAGE)
    for client in clients:
        if str(client) not in names:
            yield client, parameters, config
            continue
        arrays = wire.arrays_by_name(_MESSAGE, parameters, config)
        own = names[str(client)]
        listed = ",".join(map(str, own)) if isinstance(own, list) else None
        arrays |= wire.arrays_by_name(_MESSAGE, records.arrays_in(content, f"{_HOSTED}.{client}"), {_NAMES: listed})
        yield client, list(arrays.values()), {**config, "names": ",".join(arrays)}


def write_reply(kind: str, answers: Iterable[ClientReturn]) -> Content:
    """Return the records with the answers from a node's clients."""
    alike: dict[Any, list[ClientReturn]] = {}
    for answer in answers:
        arrays = () if kind == wire.EVALUATE else answer.first
        look = tuple((a.shape, a.dtype.str, _by_columns(a)) for a in arrays)
        alike.setdefault((look, answer.metrics.get("names", "")), []).append(answer)
    content = Content()
    for number, ((look, _), group) in enumerate(alike.items()):
        # The memory layout is sent with the stack, because it affects the rounding of products.
        by_columns = [by for _, _, by in look]
        beside = {
            _CLIENTS: [answer.client for answer in group],
            "num_examples": [answer.num_examples for answer in group],
            "metrics": json.dumps([answer.metrics for answer in group]),
            "by_columns": by_columns,
        }
        records.put_values(content, f"{_HOSTED}.{number}", beside)
        every = ([answer.first[i] for answer in group] for i in range(len(look)))
        stacks = [_stack_arrays(arrays, by) for arrays, by in zip(every, by_columns, strict=True)]
        records.put_arrays(content, f"{_HOSTED}.{number}.{_ARRAYS}", stacks)
    return content


def read_reply(content: Content, kind: str, clients: Sequence[int]) -> dict[int, wire.ClientAnswer | ProtocolError]:
    """Return the answer from each of these clients in a node's reply, or the error if an answer is unusable."""
    if wire.is_reply(content, kind):  # The node itself has replied with the reason for not answering.
        return dict.fromkeys(clients, _read_or_error(lambda: wire.read_reply(content, kind)))
    found: dict[int, wire.ClientAnswer | ProtocolError] = {}
    lacking: ProtocolError = LACKING
    for name in content.config_records:
        try:
            for client, read in _stacked_clients(content, name, kind):
                found[client] = TWICE if client in found else _read_or_error(read)
        except ProtocolError as error:
            lacking = error
    return {client: found.get(client, lacking) for client in clients}


def _stacked_clients(content: Content, name: str, kind: str) -> Iterator[tuple[int, Callable[[], wire.ClientAnswer]]]:
    """Yield each client whose answer is in a record of stacked answers, with a function that reads this answer."""
    group = records.values_in(content, name)
    clients, examples = (_list_of(group, key, int) for key in (_CLIENTS, "num_examples"))
    by_columns, metrics = _list_of(group, "by_columns", bool), _parsed_json(group, "metrics", list)
    stacks = records.arrays_in(content, f"{name}.{_ARRAYS}")
    alike = all(a.ndim > 0 and len(a) == len(clients) for a in stacks)
    if not alike or len(stacks) != len(by_columns) or not len(clients) == len(examples) == len(metrics):
        raise ProtocolError(
            f"{_ANSWER} lists {labels.count(len(clients), 'client')}, but its arrays and metrics belong to a different "
            f"number of clients. {_CHECK}"
        )
    for i, client in enumerate(clients):
        arrays = [_unstack(a, i, by) for a, by in zip(stacks, by_columns, strict=True)]
        yield client, partial(_answer, kind, metrics[i], examples[i], arrays)


def _answer(kind: str, metrics: object, num_examples: int, arrays: list[Array]) -> wire.ClientAnswer:
    return wire.read_answer(kind, wire.as_config(metrics), num_examples, lambda: arrays)


def _read_or_error(read: Callable[[], wire.ClientAnswer]) -> wire.ClientAnswer | ProtocolError:
    try:
        return read()
    except ProtocolError as error:
        return error


def _parsed_json(values: Mapping[str, Any], name: str, kind: type[Any], *, who: str = _ANSWER) -> Any:
    """Return the JSON value under `name` in another machine's message. Raise ProtocolError unless it is a `kind`."""
    try:
        # Another machine may send brackets nested so deeply that Python raises RecursionError.
        found = json.loads(wire.value_of(who, values, name, str))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise ProtocolError(f'{who} has no "{name}" that can be read as JSON. {_remedy(who)}')
    return found


def _list_of(values: Mapping[str, Any], name: str, kind: type[Any], *, who: str = _ANSWER) -> list[Any]:
    """Return a list from another machine. Raise ProtocolError if its items do not have this type."""
    found = values.get(name)
    # The types are compared, because isinstance would accept True as an int.
    if not isinstance(found, list) or any(type(item) is not kind for item in found):
        raise ProtocolError(f'{who} has no list "{name}" with items of type {kind.__name__}. {_remedy(who)}')
    return found


def _remedy(who: str) -> str:
    if who == _MESSAGE:
        return records.SENDER
    return _CHECK


def write_properties(clients: Sequence[int]) -> Content:
    """Return the properties that a virtual node reports before a run."""
    return wire.write_properties({**wire.SPOKEN, _CLIENTS: list(clients)})


def read_properties(content: Content) -> tuple[int, ...]:
    """Return the clients that a node hosts, or an empty tuple if the node is itself a client.

    Raises
    ------
    ProtocolError
        If the listed clients are not distinct numbers of at least 0.
    """
    properties = wire.read_properties(content)
    if _CLIENTS not in properties:
        return ()
    clients = _list_of(properties, _CLIENTS, int)
    if len(set(clients)) != len(clients) or min(clients, default=0) < 0:
        raise ProtocolError(f"A virtual node lists a client twice, or lists a negative number. {_CHECK}")
    return tuple(clients)


def _by_columns(a: Array) -> bool:
    """Return whether an array is stored column by column. The layout is preserved when arrays are stacked."""
    return bool(a.ndim == 2 and a.flags.f_contiguous and not a.flags.c_contiguous)


def _stack_arrays(arrays: Sequence[Array], by_columns: bool) -> Array:
    return np.stack([a.T for a in arrays] if by_columns else arrays)


def _unstack(stack: Array, i: int, by_columns: bool) -> Array:
    a = stack[i]
    return a.T if by_columns else np.asarray(a)
