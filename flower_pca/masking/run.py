"""Masked: a run whose every message becomes an upload and its unmasking, after a set-up of two messages."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base.errors import ConfigError, NotEnoughNodes, ProtocolError
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.parts import Part, Shape, closed
from flower_pca.core.replies import UnawaitedError, check_arrays
from flower_pca.core.replies import check as check_reply
from flower_pca.core.run import Run
from flower_pca.core.session import Session
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Stage, Sum, add
from flower_pca.dp.noise import sharing
from flower_pca.dp.opening import PrivateOpeningState
from flower_pca.masking import fixed, messages, shared_noise
from flower_pca.masking.group import Group, identity, outvoted
from flower_pca.masking.messages import SIGNATURE, Phase, raw
from flower_pca.masking.primitives import KEY
from flower_pca.masking.settings import MaskedSums
from flower_pca.rows.frame import Frame
from flower_pca.stages.summed_opening import SummedOpening

LABELS: Final = {Phase.KEYS: "mask.keys", Phase.SHARES: "mask.shares", Phase.UNMASK: "mask.sum"}  # in the history


class Masked(Run):
    """A run in which the server sees sums and no answer of a single client. To be mixed into a run, before its class.

    To its driver it is that run; a message of it is a message of the protocol. A set-up lasts as long as those that a
    sum is asked of have taken part in the sum before; a client that comes back, or is new, makes it begin afresh.

    Args:
        given: What the run behind is made of: its stages, or its tracker, which must suit the masks.
        masks: The settings of the masks.
        **settings: Those of the run.
    """

    summed: ClassVar[bool] = True

    def __init__(self, given: Any, *, masks: MaskedSums, **settings: Any) -> None:
        super().__init__(given, **settings)  # type: ignore[call-arg]  # of the run behind
        self._masks = masks
        self._messages = History()
        self._group: Group | None = None  # None until the first message of a set-up is answered
        self._setup: Array = identity()
        self._step = Phase.KEYS
        self._under: Broadcast | None = None  # the message of the run that is on its way
        self._out: Broadcast | None = None  # the message of the protocol that is
        self._alive: tuple[int, ...] = ()  # clients that have kept up since it began
        self._bounds: dict[str, Array] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._fallen: dict[int, Failure] = {}
        self._clients = self._d = 0
        self._since = 0.0

    @property
    def history(self) -> History:
        """All messages so far, those of the protocol included."""
        return self._messages

    def result(self) -> Any:
        """The result of a finished run."""
        return replace(super().result(), history=self._messages)

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message of the protocol to send; None at the end. See Session."""
        here = list(present)
        if self._under is None:
            self._under = super().pending(here)
            if self._under is None:
                return None
            self._begin(self._under)
        reached = set(here)
        to = tuple(client for client in self._alive if client in reached)
        common, personal = self._compose(to)
        common = {"mask.step": np.array(int(self._step)), "mask.setup": self._setup, **common}
        frame = self._under.frame if self._step == Phase.UPLOAD else Frame()
        self._out = Broadcast(messages.STAGE, len(self._messages), common, frame, to, personal)
        self._since = time.perf_counter()
        return self._out

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to the message of the protocol, and move on."""
        if self._out is None or self._under is None:
            raise RuntimeError("advance() takes the answers to a message of pending()")
        sent, label = self._out, LABELS.get(self._step, self._under.stage)
        answers, failures, nbytes = self._sorted(sent, replies)
        for client in self._alive:
            if client not in answers:
                self._fallen[client] = failures.setdefault(client, Failure(client, "it was not there"))
        self._alive = tuple(client for client in self._alive if client in answers)
        try:
            metrics = self._move(answers)
        except NotEnoughNodes as error:
            why = next((f"{client}: {failure.reason}" for client, failure in failures.items()), "")
            raise NotEnoughNodes(f"{error} The first that is missing, {why}" if why else str(error)) from error
        self._out = None
        record = Round(
            number=sent.number,
            stage=label,
            asked=len(sent.to),
            answered=len(answers),
            failures={str(client): failure.reason for client, failure in failures.items()},
            bytes_down=sent.nbytes,
            bytes_up=nbytes,
            seconds=time.perf_counter() - self._since,
            metrics=metrics,
        )
        self._messages = self._messages.add(record)
        return record

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The state between two sums; a sum that is on its way is asked for again, after a new set-up."""
        header, arrays = super().checkpoint()
        return {**header, "messages": self._messages.to_json()}, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken."""
        super().restore(header, arrays)
        self._messages = History.from_json(header["messages"])
        self._under = self._out = self._group = None

    @property
    @abstractmethod
    def _columns(self) -> int:
        """The number of columns, where the run knows it; else 0."""

    @abstractmethod
    def _limits(self, group: Group) -> Mapping[str, Array | float]:
        """How large the entries of a client's answer can be, by name; 0 if that is not known."""

    def _beside(self) -> Arrays:
        """What an upload's message says beside the stage's own arrays and the protocol's."""
        return {}

    def _spoilt(self, why: str) -> None:
        """What follows from a sum that could not be had although clients have answered."""

    def _begin(self, message: Broadcast) -> None:
        """A sum: with the keys that are there, if they are those of all that are asked."""
        if self._stage.merging(self._state) is not add or message.personal:
            remedy = "Choose settings of it that need sums only, or leave the masks out."
            rule = "a sum, at every message" + (", and the same of all clients" if message.personal else "")
            got = "one of its own for each" if message.personal else "one that the server must have from each client"
            raise ConfigError(f"What {self.algorithm.spec} asks for", must=rule, got=got, then=remedy)
        if len(message.to) > fixed.MOST_CLIENTS:
            rule = f"at most {fixed.MOST_CLIENTS}"
            raise ConfigError("The clients under masks", must=rule, got=len(message.to), then="Ask fewer.")
        self._alive, self._fallen = message.to, {}
        group, sampled = self._group, self._fraction < 1.0  # then few are no sign that others have dropped out
        if group is not None and set(message.to) <= group.ready and not (sampled and group.lacks(message.to)):
            self._ask(group)
        else:
            self._group, self._setup, self._step = None, identity(), Phase.KEYS

    def _ask(self, group: Group) -> None:
        group.begin(self._alive)
        self._step, self._clients = Phase.UPLOAD, len(self._alive)
        assert self._under is not None
        self._shapes = closed(self._stage.parts(self._under.arrays, self._d))
        limits = self._limits(group)
        self._bounds = {name: np.array(limits[name], dtype=np.float64) for name in self._shapes}

    def _compose(self, to: tuple[int, ...]) -> tuple[Arrays, dict[int, Arrays]]:
        """What all clients get, and what single ones do."""
        group, under = self._group, self._under
        assert under is not None
        if group is None:
            return {"mask.single": np.array(not self._masks.self_masks)}, {}
        if self._step == Phase.SHARES:
            return {}, {client: group.shares_message(client) for client in to}
        number = {"mask.number": np.array(group.number)}
        if self._step == Phase.UNMASK:
            return number, {client: group.unmask_message(client) for client in to}
        bounds = {f"{messages.BOUND}{name}": bound for name, bound in self._bounds.items()}
        about = {"mask.stage": raw(under.stage.encode()), "mask.clients": np.array(self._clients), **number}
        own = {client: group.upload_message(client) for client in to}
        return {**under.arrays, **about, **bounds, **self._beside()}, own

    def _sorted(
        self, sent: Broadcast, replies: Iterable[Reply | Sum | Failure]
    ) -> tuple[dict[int, Arrays], dict[int, Failure], int]:
        """The answers that are as they should be, why others are not, and what all of them take."""
        answers: dict[int, Arrays] = {}
        failures: dict[int, Failure] = {}
        nbytes = 0
        for reply in replies:
            if isinstance(reply, Failure):
                failures[reply.client] = reply
            elif isinstance(reply, Reply):
                nbytes += sum(a.nbytes for a in reply.arrays.values())
                try:
                    self._check(reply, sent, frozenset(answers))
                    answers[reply.client] = reply.arrays
                except UnawaitedError as error:
                    failures.setdefault(reply.client, Failure(reply.client, str(error)))
                except ProtocolError as error:
                    failures[reply.client] = Failure(reply.client, str(error), lasting=True)
        if self._group is None and answers:
            self._d, odd = outvoted(answers, self._columns)
            for client, reason in odd.items():
                del answers[client]
                failures[client] = Failure(client, reason, lasting=True)
        return answers, failures, nbytes

    def _check(self, reply: Reply, sent: Broadcast, answered: frozenset[int]) -> None:
        if reply.number == sent.number and "mask.lost" in reply.arrays:
            got = "lost, or of an older set-up"
            raise UnawaitedError(f"The secrets of client {reply.client}", must="there", got=got, then="Wait.")
        width = SIGNATURE if reply.arrays.get("mask.signature", raw(b"")).size else 0  # who does not sign sends none
        shapes: Mapping[str, Shape] = {"mask.exchange": (KEY,), "mask.key": (KEY,), "mask.d": ()}
        shapes = {**shapes, "mask.signature": (width,)}
        if self._group is not None and reply.client in sent.to:
            shapes = self._group.expected(self._step, reply.client, fixed.size(self._shapes, self._bounds))
        check_reply(reply, sent, answered)
        check_arrays(reply, {name: Part(shape) for name, shape in shapes.items()})
        for name, a in reply.arrays.items():
            kind = np.dtype({"mask.y": np.uint64, "mask.d": np.int64}.get(name, np.uint8))
            if a.dtype != kind:
                remedy = "Install the same flower_pca everywhere."
                raise ProtocolError(f"{name} of client {reply.client}", must=f"{kind}", got=a.dtype, then=remedy)

    def _move(self, answers: dict[int, Arrays]) -> dict[str, float]:
        """Move the protocol on; at the end of a sum, the run."""
        if self._group is None:
            asked = len(self._under.to) if self._under is not None else 0
            self._group = Group(self._masks, self._setup.tobytes(), asked, answers)
            self._step = Phase.SHARES
        elif self._step == Phase.SHARES:
            self._group.take_shares(answers)
            self._ask(self._group)
        elif self._step == Phase.UPLOAD:
            assert self._out is not None
            self._group.take_uploads(answers, messages.said(self._out.arrays, self._out.frame))
            if self._group.settled:
                return self._deliver(self._group, {})
            self._step = Phase.UNMASK
        else:
            return self._deliver(self._group, answers)
        return {}

    def _deliver(self, group: Group, answers: dict[int, Arrays]) -> dict[str, float]:
        """Hand the sum to the run, and say who is not in it."""
        assert self._under is not None
        came: list[Sum | Failure] = []
        try:
            total = fixed.decode(group.total(answers), self._shapes, self._bounds, self._clients)
            came.append(Sum(group.uploaded, self._under.number, total))
        except ProtocolError as error:
            self._fallen |= {client: Failure(client, str(error)) for client in group.uploaded}
            self._group = None
            self._spoilt(str(error))
        group.end()
        record = super().advance([*came, *self._fallen.values()])
        self._under = None
        return record.metrics


class MaskedSession(Masked, Session):
    """A Session under masks. See `Masked`."""

    def __init__(self, stages: Sequence[Stage[Any]], *, masks: MaskedSums, **settings: Any) -> None:
        algorithm = stages[1]
        assert isinstance(algorithm, Algorithm)
        super().__init__(stages, masks=masks, **settings)
        if self._fraction < 1.0 and algorithm.caches:
            rule = "1.0, as the last answers of the others cannot be had"
            remedy = "Leave it out, or the masks."
            what = f"The fraction of clients for {algorithm.name} under masks"
            raise ConfigError(what, must=rule, got=self._fraction, then=remedy)
        self._wasted: list[str] = []  # stages of answers with noise that gave no sum
        self._among = 0  # clients that share the noise

    @property
    def _columns(self) -> int:
        return self._model.d

    @property
    def _told(self) -> list[str]:
        return [*super()._told, *self._wasted]

    def _limits(self, group: Group) -> Mapping[str, Array | float]:
        if self._plan is not None:
            self._among, opening = shared_noise.sharers(self._plan, group.needed), False
            if isinstance(self._state, PrivateOpeningState):
                self._state, opening = replace(self._state, among=self._among), True
            sizes = {"among": self._among, "clients": self._clients}
            return shared_noise.bounds(self._plan, self._shapes, opening=opening, **sizes)
        given = self._masks.bound if not isinstance(self._stage, SummedOpening) else None
        bounds = self._stage.bounds(self._state, self._model)
        return {name: bound if given is None or name == "n" else given for name, bound in bounds.items()}

    def _beside(self) -> Arrays:
        return {} if self._plan is None else sharing(self._among)

    def _spoilt(self, why: str) -> None:
        if self._plan is not None and self._under is not None:
            self._wasted.append(self._under.stage)
            shorter = shared_noise.shortened(self._plan, self._algorithm, self._wasted, why)
            self._stages = tuple(shorter if part is self._algorithm else part for part in self._stages)
            self._algorithm = shorter
