"""What the server accepts as an answer: the right message, names, shapes, and finite numbers; and what it adds up."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flower_pca.base.errors import ConfigError, DataError, ProtocolError
from flower_pca.base.history import Round
from flower_pca.base.linalg import Array
from flower_pca.core.channel import AirChannel
from flower_pca.core.stage import Broadcast, Failure, Reply, Shape, Stage, Sum

_DATA = "Check the client's data."
_LARGEST = 1e140  # beyond which sums of squares overflow
_MOST_ROWS = 10**12


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


def superposable(stage: Stage[Any], channel: AirChannel | None) -> None:
    """Require a stage whose replies a channel can add up, if there is one."""
    if channel is not None and not (stage.summed and stage.bears_noise):
        remedy = "Use fed_oapm, ssi, krylov or faps."
        raise ConfigError("An algorithm over the air", must="one that sums replies", got=stage.name, then=remedy)


def summable(stage: Stage[Any], channel: AirChannel | None) -> None:
    """Require what masks need: a stage of which nothing but sums has to be had, and no channel that adds noise."""
    if not stage.summed:
        rule = "one whose clients send sums and nothing else"
        raise ConfigError("The algorithm under masks", must=rule, got=stage.spec, then=stage.sums_remedy)
    if channel is not None:
        raise ConfigError("channel under masks", must="left out", got=repr(channel), then="Leave one of them out.")


def collect(
    stage: Stage[Any],
    state: Any,
    sent: Broadcast,
    replies: Iterable[Reply | Sum | Failure],
    *,
    total: Any,
    answered: frozenset[int],
    channel: AirChannel | None,
) -> Collected:
    """Check the answers, reduce the good ones in their order onto `total`, and hear the result through the channel."""
    failures: dict[str, str] = {}
    banned: set[int] = set()
    heard = set(answered)
    count = bytes_up = 0
    for position, reply in enumerate(replies):
        if isinstance(reply, Sum):
            total = stage.whole(reply.clients, reply.arrays)
            heard.update(reply.clients)
            count += len(reply.clients)
            continue
        if isinstance(reply, Reply):
            bytes_up += sum(a.nbytes for a in reply.arrays.values())
            try:
                check(reply, sent, stage.expects(state), heard)
                stage.inspect(state, reply.arrays)
                arrays = reply.arrays
                if channel is not None:
                    arrays = channel.faded(arrays, number=sent.number, position=position)
                total = stage.fold(state, total, reply.client, arrays)
            except ProtocolError as error:
                reply = Failure(reply.client, str(error), lasting=not isinstance(error, UnawaitedError))
            else:
                heard.add(reply.client)
                count += 1
                continue
        failures[str(reply.client)] = reply.reason
        if reply.lasting:
            banned.add(reply.client)
    for client, reason in stage.outvoted(state, total).items():
        failures[str(client)], count = reason, count - 1
        heard.discard(client)
        banned.add(client)
    if channel is not None and total is not None and count:
        total = stage.heard(total, lambda arrays: channel.received(arrays, number=sent.number))
    return Collected(total, frozenset(heard), count, bytes_up, failures, frozenset(banned))


def unusable(error: np.linalg.LinAlgError) -> DataError:
    """What to say of sums of which LAPACK cannot make anything."""
    got = f"ones on which LAPACK fails ({error})"
    return DataError("The sums of a round", must="of usual size", got=got, then="Scale the data.")


def check(reply: Reply, sent: Broadcast, expected: Mapping[str, Shape], answered: Container[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    who = f"The answer of client {reply.client}"
    if reply.client not in sent.asked:
        raise UnawaitedError(who, must="asked for", got="one of a client not asked", then="It was not counted.")
    if reply.number != sent.number:
        got = f"one to message {reply.number}"
        raise UnawaitedError(who, must=f"one to message {sent.number}", got=got, then="It came late.")
    if reply.client in answered:
        raise UnawaitedError(who, must="a single one", got="another one", then="It was not counted.")
    if set(reply.arrays) != set(expected):
        rule = f"made of {', '.join(sorted(expected))}"
        got = ", ".join(sorted(reply.arrays)) or "nothing"
        raise ProtocolError(who, must=rule, got=got, then="Install the same flower_pca everywhere.")
    for name, shape in expected.items():
        _check_array(f"{who}, {name},", reply.arrays[name], shape)
    if "n" in expected and (reply.arrays["n"].dtype.kind not in "iu" or not 1 <= reply.arrays["n"] <= _MOST_ROWS):
        rule = f"a whole number between 1 and {_MOST_ROWS:g}"
        raise ProtocolError(f"{who}, n,", must=rule, got=reply.arrays["n"], then=_DATA)


def _check_array(what: str, a: Array, shape: Shape) -> None:
    fits = len(a.shape) == len(shape) and all(s in (None, t) for s, t in zip(shape, a.shape, strict=True))
    if not fits or a.dtype.kind not in "fiu" or a.dtype.itemsize > 8:
        rule = f"a real array of shape {tuple('any' if s is None else s for s in shape)}"
        raise ProtocolError(what, must=rule, got=f"shape {a.shape} and dtype {a.dtype}", then=_DATA)
    if not np.isfinite(a).all():
        bad = int(a.size - np.isfinite(a).sum())
        raise ProtocolError(what, must="finite", got=f"{bad} NaN or infinite entries", then=_DATA)
    largest = float(np.max(np.abs(a), initial=0.0))
    if largest > _LARGEST:
        raise ProtocolError(what, must=f"at most {_LARGEST:g} in size", got=f"{largest:g}", then=_DATA)
