"""A masked run: its messages become uploads that are then unmasked, after a set-up of two messages.

Theory of operation: the inner run produces a message for some clients. Instead, the masked run sends messages of the
protocol, one per phase. A phase ends when the clients that were reached have answered:

| phase  | what it asks of each client                       | what follows                                         |
| ------ | ------------------------------------------------- | ---------------------------------------------------- |
| KEYS   | fresh public keys, and how many columns it has    | SHARES, for those that have answered                 |
| SHARES | shares of its secrets, sealed for its peers       | UPLOAD                                               |
| UPLOAD | the run's message, answered under masks; new keys | UNMASK, or the sum at once if no mask is left on it  |
| UNMASK | the shares that remove the masks from the sum     | the sum                                              |

The inner run gets the sum as the answer of all clients in it. A client that has dropped out counts as a failure. The
next message begins with UPLOAD if all of its clients were in the sum before. Otherwise, and after a lost sum, it begins
with KEYS.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from flower_pca.base.errors import NotEnoughNodes, ProtocolError
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.drive import WrappedRun
from flower_pca.core.layer import Layer
from flower_pca.core.position import Role, in_brief
from flower_pca.core.run import Run
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum
from flower_pca.masking import messages
from flower_pca.masking.answers import Acceptance, Layout, accept, require_sum
from flower_pca.masking.group import MaskingGroup, identity
from flower_pca.masking.messages import NOTHING, Phase
from flower_pca.names.columns import Heading
from flower_pca.settings.masks import MaskedSums

# The names of the phases in the history.
_LABELS: Final = {Phase.KEYS: "mask.keys", Phase.SHARES: "mask.shares", Phase.UNMASK: "mask.sum"}


@final
class Masked(WrappedRun):
    """A run in which the server sees sums but no single answer. Its driver sees an ordinary run.

    Parameters
    ----------
    run : Run
        The run whose messages are masked. It must have been told that it sees sums: see `assembly`.
    masks : MaskedSums
        The settings of the masks.
    """

    def __init__(self, run: Run, masks: MaskedSums) -> None:
        self._run, self._masks = run, masks
        self._history, self._began = History(limit=run.history.limit), 0.0
        # The set-up, or None until its first message is answered.
        self._group: MaskingGroup | None = None
        self._setup, self._phase = identity(), Phase.KEYS
        # The message of the inner run whose sum is being formed.
        self._carried: Broadcast | None = None
        self._sent: Broadcast | None = None  # the protocol message that was sent
        # Clients that have answered all phases of this sum so far.
        self._taking_part: tuple[int, ...] = ()
        self._dropped: dict[int, Failure] = {}  # clients that have not answered
        # Clients in the previous sum of the same set-up.
        self._heard: frozenset[int] = frozenset()
        self._heading = Heading(0)  # the columns of the clients that take part
        self._layout = Layout()  # the layout of uploads
        # Clients that keep something for the current algorithm.
        self._keepers: frozenset[int] = frozenset()
        # Clients that have answered a message of the algorithm.
        self._begun: frozenset[int] = frozenset()
        # The course of what clients keep after the newest sum that counts, or None before the first one.
        self._course: bytes | None = None
        # The first client that declines what the run could continue with, and why.
        self._declined = ""

    @property
    def within(self) -> Run:
        """The run whose messages are masked."""
        return self._run

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers over the run's messages and answers."""
        return self._run.layers

    @property
    def group(self) -> MaskingGroup | None:
        """The current set-up."""
        return self._group

    @property
    def message(self) -> Broadcast | None:
        """The run's message whose sum is being formed."""
        return self._carried

    @property
    def layout(self) -> Layout:
        """The contents of the uploads of this sum."""
        return self._layout

    @property
    def history(self) -> History:
        """All messages so far, including those of the protocol."""
        return self._history

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """Return the message of the protocol to send, or None at the end. See Run."""
        here = list(present)
        if self._carried is None:
            self._carried = self._run.pending(here)
            if self._carried is None:
                return None
            self._begin(self._carried)
        reached, carried = set(here), self._carried
        to = tuple([client for client in self._taking_part if client in reached])
        common, personal = self._compose(carried, to)
        common = {"mask.step": np.array(int(self._phase)), "mask.setup": self._setup, **common}
        message = Broadcast(messages.STAGE, self._history.count, common, carried.frame.bare, to, personal)
        message = replace(message, serves=carried.stage)
        if self._phase == Phase.UPLOAD:
            # Set-ups and unmaskings ask for no answer from rows, so they need no noise.
            message = replace(message, frame=carried.frame, layers=carried.layers, size=carried.size)
        self._sent, self._began = message, time.perf_counter()
        return message

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take all answers to the protocol's message at once, and move on."""
        if self._sent is None or self._carried is None:
            raise RuntimeError("Call pending() before advance(): no message is open.")
        sent, label = self._sent, _LABELS.get(self._phase, self._carried.stage)
        known = self._run.position.model.heading or Heading(self._run.position.columns)
        length = self._layout.size if self._phase == Phase.UPLOAD else 0
        got = accept(
            sent, replies, group=self._group, phase=self._phase, length=length, heading=known, course=self._course
        )
        self._declined = self._declined or got.declined
        self._watch(got)
        if self._group is None and got.answers:
            self._heading = got.heading
        for client in [client for client in self._taking_part if client not in got.answers]:
            self._dropped[client] = got.failures.setdefault(client, Failure(client, "it was not there"))
        self._taking_part = tuple([client for client in self._taking_part if client in got.answers])
        try:
            metrics = self._next(sent, got.answers)
        except NotEnoughNodes as error:
            raise got.explain(error) from error
        record = got.record(sent, label, seconds=time.perf_counter() - self._began, metrics=metrics)
        self._history, self._sent = self._history.add(record), None
        return record

    def skip(self) -> None:
        """Skip the pending message of a stage after the closing. A half-finished sum is given up."""
        self._run.skip()
        self._carried = self._sent = self._group = None

    def _watch(self, got: Acceptance) -> None:
        """Mark the run if a client has lost its memory. A client that missed a sum still has its memory."""
        position = self._run.position
        if self._phase == Phase.UPLOAD:
            begun, came = self._begun, frozenset(got.answers)
            self._begun = came | begun if position.role is Role.ALGORITHM else frozenset()
            # After an algorithm's first message, which may be about counts, clients need not keep anything.
            self._keepers = (self._keepers | (begun & came)) & self._begun
        if not got.notes:
            return
        pasts = {client: said["mask.past"].tobytes() for client, said in got.answers.items()}
        # If all have strayed, they are ahead of a server that was interrupted, or have lost their memory.
        if len(got.notes) == len(got.answers) or any(pasts.get(client) == NOTHING for client in self._keepers):
            self._run.mark_loss()
        self._begun = self._keepers = frozenset()  # All clients begin anew.

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the state between two sums. An unfinished sum is asked for again after a new set-up."""
        header, arrays = self._run.checkpoint(steps=steps)
        header |= {"messages": in_brief(self._history), "mask_keepers": sorted(self._keepers)}
        header["mask_course"] = None if self._course is None else self._course.hex()
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint`."""
        self._run.restore(header, arrays)
        self._history = replace(History.from_json(header["messages"]), limit=self._run.history.limit)
        self._begun = self._keepers = frozenset(header["mask_keepers"])
        course = header["mask_course"]
        self._course = None if course is None else bytes.fromhex(course)
        self._carried = self._sent = self._group = None

    def _begin(self, message: Broadcast) -> None:
        """Begin a sum, with the existing keys if they belong to all clients that are asked."""
        require_sum(self._run, message)
        self._taking_part, self._dropped = message.to, {}
        # In a sample, a small number of clients is no sign of drop-outs.
        group, sampled = self._group, self.roll.fraction < 1.0
        if group is not None and group.ready.issuperset(message.to) and not (sampled and group.lacks(message.to)):
            self._ask(group)
        else:
            self._group, self._heard = None, frozenset()
            self._setup, self._phase = identity(), Phase.KEYS

    def _ask(self, group: MaskingGroup) -> None:
        """Begin the upload, after everything about the sum that can be known before it is settled."""
        group.begin(self._taking_part)
        self._phase = Phase.UPLOAD
        self._carried = self._run.settle(heading=self._heading, needed=group.needed)
        clients, heard = len(self._taking_part), self._heard.issuperset(self._taking_part)
        self._layout = Layout.of(self._run, self._masks, self._carried, self._heading.count, clients, heard=heard)

    def _compose(self, carried: Broadcast, to: tuple[int, ...]) -> tuple[Arrays, dict[int, Arrays]]:
        """Return what all clients get, and what single clients get."""
        group = self._group
        if group is None:
            return self._invitation(), {}
        if self._phase == Phase.SHARES:
            return {}, {client: group.shares_message(client) for client in to}
        number = {"mask.number": np.array(group.number)}
        if self._phase == Phase.UNMASK:
            return number, {client: group.unmask_message(client) for client in to}
        stage = messages.raw(carried.stage.encode())
        clients = np.array(self._layout.clients)
        about = {"mask.stage": stage, "mask.clients": clients, **number, **self._layout.limits()}
        return {**carried.arrays, **about}, {client: group.upload_message(client) for client in to}

    def _invitation(self) -> Arrays:
        """Return the first message of a set-up. It tells streams without rows how many columns the others have."""
        position = self._run.position
        invitation = {"mask.single": np.array(not self._masks.self_masks)}
        if not position.opens and position.columns:
            invitation["mask.d"] = np.array(position.columns)
        return invitation

    def _next(self, sent: Broadcast, answers: dict[int, Arrays]) -> dict[str, float]:
        """Move the protocol on, and at the end of a sum also the run."""
        group = self._group
        if group is None:
            assert self._carried is not None
            audience, self._phase = len(self._carried.to), Phase.SHARES
            self._group = MaskingGroup(self._masks, self._setup.tobytes(), audience, answers, self._course)
        elif self._phase == Phase.SHARES:
            group.take_shares(answers)
            self._ask(group)
        elif self._phase == Phase.UPLOAD:
            group.take_uploads(answers)
            if group.adds_up:
                return self._deliver(group, {})
            self._phase = Phase.UNMASK
        else:
            return self._deliver(group, answers)
        return {}

    def _deliver(self, group: MaskingGroup, answers: dict[int, Arrays]) -> dict[str, float]:
        """Pass the sum to the run, with the clients that are not in it."""
        assert self._carried is not None
        came, uploaded = list[Sum | Failure](), group.uploads
        self._heard = frozenset(uploaded)
        try:
            sums = self._layout.sums(group.total(answers))
            self._run.count_mask_noise(self._layout.noise)
            came.append(Sum(uploaded, self._carried.number, sums, self._declined))
            self._course = group.kept
        except ProtocolError as error:
            # Nobody can tell who has spoilt the sum, so the run asks all clients again, with new keys.
            self._dropped |= {client: Failure(client, str(error)) for client in uploaded}
            self._group = None
            self._run.write_off(str(error))
        group.end()
        record = self._run.advance([*came, *self._dropped.values()])
        self._carried = None
        return record.metrics
