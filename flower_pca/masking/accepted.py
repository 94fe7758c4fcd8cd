"""What the server accepts as an answer to a message of the protocol: names, shapes, kinds, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from flower_pca.base.errors import NotEnoughNodes, ProtocolError
from flower_pca.base.history import Round
from flower_pca.core.parts import Part, Shape
from flower_pca.core.replies import UnawaitedError, check_arrays
from flower_pca.core.replies import check as check_reply
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum
from flower_pca.masking.group import Group, outvoted
from flower_pca.masking.messages import SIGNATURE, Phase, raw
from flower_pca.masking.primitives import KEY

_KINDS: Final = {"mask.y": np.uint64, "mask.d": np.int64}  # all else are bytes


@dataclass
class Accepted:
    """The answers that are as they should be, why others are not, what all of them take, and the columns voted for."""

    answers: dict[int, Arrays] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    nbytes: int = 0
    columns: int = 0

    def explained(self, error: NotEnoughNodes) -> NotEnoughNodes:
        """The error that too few answers have led to, with the first that is missing."""
        why = next((f"{client}: {failure.reason}" for client, failure in self.failures.items()), "")
        return NotEnoughNodes(f"{error} The first that is missing, {why}" if why else str(error))

    def record(self, sent: Broadcast, stage: str, *, seconds: float, metrics: dict[str, float]) -> Round:
        """The entry of the history."""
        return Round(
            number=sent.number,
            stage=stage,
            asked=len(sent.to),
            answered=len(self.answers),
            failures={str(client): failure.reason for client, failure in self.failures.items()},
            bytes_down=sent.nbytes,
            bytes_up=self.nbytes,
            seconds=seconds,
            metrics=metrics,
        )


def accepted(
    sent: Broadcast,
    replies: Iterable[Reply | Sum | Failure],
    *,
    group: Group | None,
    phase: Phase,
    length: int,
    columns: int,
) -> Accepted:
    """Tell good answers from others.

    Args:
        sent: The message.
        replies: The answers.
        group: The set-up; None if these are the answers that it begins with.
        phase: What was asked for.
        length: The numbers of an upload.
        columns: The columns of the run, where they are known.
    """
    got = Accepted()
    for reply in replies:
        if isinstance(reply, Failure):
            got.failures[reply.client] = reply
        elif isinstance(reply, Reply):
            got.nbytes += sum(a.nbytes for a in reply.arrays.values())
            try:
                _check(reply, sent, got.answers, group, phase, length)
                got.answers[reply.client] = reply.arrays
            except UnawaitedError as error:
                got.failures.setdefault(reply.client, Failure(reply.client, str(error)))
            except ProtocolError as error:
                got.failures[reply.client] = Failure(reply.client, str(error), lasting=True)
    if group is None and got.answers:
        got.columns, odd = outvoted(got.answers, columns)
        for client, reason in odd.items():
            del got.answers[client]
            got.failures[client] = Failure(client, reason, lasting=True)
    return got


def _check(
    reply: Reply, sent: Broadcast, answers: Mapping[int, Arrays], group: Group | None, phase: Phase, length: int
) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    if reply.number == sent.number and "mask.lost" in reply.arrays:
        got = "lost, or of an older set-up"
        raise UnawaitedError(f"The secrets of client {reply.client}", must="there", got=got, then="Wait.")
    width = SIGNATURE if reply.arrays.get("mask.signature", raw(b"")).size else 0  # who does not sign sends none
    shapes: Mapping[str, Shape] = {"mask.exchange": (KEY,), "mask.key": (KEY,), "mask.d": ()}
    shapes = {**shapes, "mask.signature": (width,)}
    if group is not None and reply.client in sent.asked:
        shapes = group.expected(phase, reply.client, length)
    check_reply(reply, sent, answers)
    check_arrays(reply, {name: Part(shape) for name, shape in shapes.items()})
    for name, a in reply.arrays.items():
        kind = np.dtype(_KINDS.get(name, np.uint8))
        if a.dtype != kind:
            remedy = "Install the same flower_pca everywhere."
            raise ProtocolError(f"{name} of client {reply.client}", must=f"{kind}", got=a.dtype, then=remedy)
