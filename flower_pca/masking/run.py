"""A masked run. After a set-up with two messages, each message of the inner run is answered by an unmasked sum.

The inner run produces a message for some clients. Instead of this message, the masked run sends the messages of the
protocol, one in each phase. A phase ends when the clients that were reached have answered:

| phase  | what each client sends                            | what follows                                         |
| ------ | ------------------------------------------------- | ---------------------------------------------------- |
| KEYS   | new public keys, and its number of columns        | SHARES, for the clients that have answered           |
| SHARES | shares of its secrets, sealed for its peers       | UPLOAD                                               |
| UPLOAD | its answer under masks, and new keys              | UNMASK, or the sum at once if no mask remains on it  |
| UNMASK | the shares that remove the masks from the sum     | the sum                                              |

The inner run gets the sum as the answer of all clients in the sum. A client that has dropped out counts as a failure.
The next message of the inner run begins with UPLOAD if all of its clients were in the previous sum. Otherwise, and
after a lost sum, it begins with KEYS.
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
from flower_pca.core.position import Role, shortened_history
from flower_pca.core.run import Run
from flower_pca.core.stage import Arrays, Broadcast, Failure, Reply, Sum
from flower_pca.masking import messages
from flower_pca.masking.answers import AcceptedAnswers, UploadLayout, check_phase, require_sum
from flower_pca.masking.group import MaskingGroup, new_setup_id
from flower_pca.masking.messages import NOTHING, Phase
from flower_pca.names.columns import Heading
from flower_pca.settings.masks import MaskedSums

# The names of the phases in the history. An upload has the name of the inner stage.
_LABELS: Final = {Phase.KEYS: "mask.keys", Phase.SHARES: "mask.shares", Phase.UNMASK: "mask.sum"}


@final
class MaskedRun(WrappedRun):
    """A run in which the server sees only sums of answers. A driver uses it like any other run.

    Parameters
    ----------
    run : Run
        The inner run, whose messages are masked. It must be configured to receive sums: see `assembly`.
    masks : MaskedSums
        The settings of the masks.
    """

    def __init__(self, run: Run, masks: MaskedSums) -> None:
        self._run, self._masks = run, masks
        self._history, self._began = History(limit=run.history.limit), 0.0
        # The set-up is None until its first message is answered.
        self._group: MaskingGroup | None = None
        self._setup, self._phase = new_setup_id(), Phase.KEYS
        # A sum is being formed for this message of the inner run.
        self._carried: Broadcast | None = None
        self._sent: Broadcast | None = None  # the message of the protocol that was sent last
        # These clients have answered in all phases of this sum so far.
        self._taking_part: tuple[int, ...] = ()
        self._dropped: dict[int, Failure] = {}  # the clients that have dropped out of this sum
        # These clients were in the previous sum of the same set-up.
        self._heard: frozenset[int] = frozenset()
        self._heading = Heading(0)  # the columns of the clients that take part
        self._layout = UploadLayout()  # the layout of the uploads of this sum
        # These clients must have a memory for the current algorithm.
        self._keepers: frozenset[int] = frozenset()
        # These clients have answered at least one message of the current algorithm.
        self._begun: frozenset[int] = frozenset()
        # The clients' memory has this course after the newest valid sum. It is None before the first valid sum.
        self._course: bytes | None = None
        # The first client that declines the alternative algorithm has given this reason.
        self._declined = ""

    @property
    def inner_run(self) -> Run:
        """The inner run, whose messages are masked."""
        return self._run

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers over the run's messages and answers."""
        return self._run.layers

    @property
    def group(self) -> MaskingGroup | None:
        """The current set-up, or None while there is none."""
        return self._group

    @property
    def message(self) -> Broadcast | None:
        """The message of the inner run for which a sum is being formed."""
        return self._carried

    @property
    def layout(self) -> UploadLayout:
        """The layout of the uploads of this sum."""
        return self._layout

    @property
    def history(self) -> History:
        """The history of all messages so far, including the messages of the protocol."""
        return self._history

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """Return the next message of the protocol to send, or None at the end of the run. See `Run.pending`."""
        here = list(present)
        if self._carried is None:
            self._carried = self._run.pending(here)
            if self._carried is None:
                return None
            self._begin_sum_or_setup(self._carried)
        reached, carried = set(here), self._carried
        to = tuple([client for client in self._taking_part if client in reached])
        common, personal = self._message_arrays(carried, to)
        common = {"mask.step": np.array(int(self._phase)), "mask.setup": self._setup, **common}
        message = Broadcast(
            messages.STAGE, self._history.count, common, carried.frame.without_transformation, to, personal
        )
        message = replace(message, serves=carried.stage)
        if self._phase == Phase.UPLOAD:
            # Only uploads contain answers from rows, so only they need the frame and the layers, such as noise.
            message = replace(message, frame=carried.frame, layers=carried.layers, size=carried.size)
        self._sent, self._began = message, time.perf_counter()
        return message

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Process all replies to the last message of the protocol, and move on to the next phase."""
        if self._sent is None or self._carried is None:
            raise RuntimeError("Call pending() before advance(): no message is open.")
        sent, label = self._sent, _LABELS.get(self._phase, self._carried.stage)
        known = self._run.position.model.heading or Heading(self._run.position.columns)
        length = self._layout.size if self._phase == Phase.UPLOAD else 0
        got = check_phase(
            sent, replies, group=self._group, phase=self._phase, length=length, heading=known, course=self._course
        )
        self._declined = self._declined or got.declined
        self._record_losses(got)
        if self._group is None and got.answers:
            self._heading = got.heading
        for client in [client for client in self._taking_part if client not in got.answers]:
            self._dropped[client] = got.failures.setdefault(client, Failure(client, "The client was not reached."))
        self._taking_part = tuple([client for client in self._taking_part if client in got.answers])
        try:
            metrics = self._next_phase(got.answers)
        except NotEnoughNodes as error:
            raise got.error_of_missing(error) from error
        record = got.record(sent, label, seconds=time.perf_counter() - self._began, metrics=metrics)
        self._history, self._sent = self._history.add(record), None
        return record

    def skip(self) -> None:
        """Skip the pending message of a stage after the closing stage. An unfinished sum is discarded."""
        self._run.skip()
        self._carried = self._sent = self._group = None

    def _record_losses(self, answers: AcceptedAnswers) -> None:
        """Record a loss in the run if a client has lost its memory. If a client only missed a sum, record no loss."""
        position = self._run.position
        if self._phase == Phase.UPLOAD:
            begun, came = self._begun, frozenset(answers.answers)
            self._begun = came | begun if position.role is Role.ALGORITHM else frozenset()
            # Clients are expected to have memory only from the second message of an algorithm on, because the first one
            # may only ask for counts.
            self._keepers = (self._keepers | (begun & came)) & self._begun
        if not answers.notes:
            return
        pasts = {client: said["mask.past"].tobytes() for client, said in answers.answers.items()}
        # If all clients have strayed, they are ahead of a server that was interrupted, or they have lost their memory.
        if len(answers.notes) == len(answers.answers) or any(pasts.get(client) == NOTHING for client in self._keepers):
            self._run.mark_loss()
        self._begun = self._keepers = frozenset()  # All clients begin again without memory.

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the state of the run between two sums. An unfinished sum is repeated later, after a new set-up."""
        header, arrays = self._run.checkpoint(steps=steps)
        header |= {"messages": shortened_history(self._history), "mask_keepers": sorted(self._keepers)}
        header["mask_course"] = None if self._course is None else self._course.hex()
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue the run from the state that `checkpoint` has returned."""
        self._run.restore(header, arrays)
        self._history = replace(History.from_json(header["messages"]), limit=self._run.history.limit)
        self._begun = self._keepers = frozenset(header["mask_keepers"])
        course = header["mask_course"]
        self._course = None if course is None else bytes.fromhex(course)
        self._carried = self._sent = self._group = None

    def _begin_sum_or_setup(self, message: Broadcast) -> None:
        """Begin a sum with the existing keys if all clients of the message have them, or else a new set-up."""
        require_sum(self._run, message)
        self._taking_part, self._dropped = message.to, {}
        # If clients are sampled, a sample may have too few neighbors for the existing keys, although no client has
        # dropped out.
        group, sampled = self._group, self.roll.fraction < 1.0
        if (
            group is not None
            and group.clients_ready.issuperset(message.to)
            and not (sampled and group.has_too_few_neighbors(message.to))
        ):
            self._begin_uploads(group)
        else:
            self._group, self._heard = None, frozenset()
            self._setup, self._phase = new_setup_id(), Phase.KEYS

    def _begin_uploads(self, group: MaskingGroup) -> None:
        """Begin the upload phase: settle the inner run's message, and choose the layout of the uploads."""
        group.begin_sum(self._taking_part)
        self._phase = Phase.UPLOAD
        self._carried = self._run.settled_message(heading=self._heading, needed=group.needed_uploads)
        clients, heard = len(self._taking_part), self._heard.issuperset(self._taking_part)
        self._layout = UploadLayout.for_message(
            self._run, self._masks, self._carried, self._heading.count, clients, heard=heard
        )

    def _message_arrays(self, carried: Broadcast, to: tuple[int, ...]) -> tuple[Arrays, dict[int, Arrays]]:
        """Return the arrays of the message for all clients, and the additional arrays for each client."""
        group = self._group
        if group is None:
            return self._first_setup_message(), {}
        if self._phase == Phase.SHARES:
            return {}, {client: group.shares_message(client) for client in to}
        number = {"mask.number": np.array(group.number)}
        if self._phase == Phase.UNMASK:
            return number, {client: group.unmask_message(client) for client in to}
        stage = messages.bytes_as_array(carried.stage.encode())
        clients = np.array(self._layout.clients)
        about = {"mask.stage": stage, "mask.clients": clients, **number, **self._layout.bound_arrays()}
        return {**carried.arrays, **about}, {client: group.upload_message(client) for client in to}

    def _first_setup_message(self) -> Arrays:
        """Return the arrays of the first message of a set-up.

        In a run without an opening, they include the number of columns, which streams without rows cannot know.
        """
        position = self._run.position
        invitation = {"mask.single": np.array(not self._masks.self_masks)}
        if not position.opens and position.columns:
            invitation["mask.d"] = np.array(position.columns)
        return invitation

    def _next_phase(self, answers: dict[int, Arrays]) -> dict[str, float]:
        """Move on to the next phase. At the end of a sum, advance the inner run and return its metrics."""
        group = self._group
        if group is None:
            assert self._carried is not None
            audience, self._phase = len(self._carried.to), Phase.SHARES
            self._group = MaskingGroup(self._masks, self._setup.tobytes(), audience, answers, self._course)
        elif self._phase == Phase.SHARES:
            group.take_shares(answers)
            self._begin_uploads(group)
        elif self._phase == Phase.UPLOAD:
            group.take_uploads(answers)
            if group.can_sum_directly:
                return self._pass_on_sum(group, {})
            self._phase = Phase.UNMASK
        else:
            return self._pass_on_sum(group, answers)
        return {}

    def _pass_on_sum(self, group: MaskingGroup, answers: dict[int, Arrays]) -> dict[str, float]:
        """Pass the sum to the inner run, with the failures of the clients that dropped out."""
        assert self._carried is not None
        came, uploaded = list[Sum | Failure](), group.uploaded_clients
        self._heard = frozenset(uploaded)
        try:
            sums = self._layout.decode_sums(group.unmasked_sum(answers))
            self._run.count_dither(self._layout.noise)
            came.append(Sum(uploaded, self._carried.number, sums, self._declined))
            self._course = group.kept
        except ProtocolError as error:
            # It is unknown which client has spoiled the sum, so the run asks all clients again, with new keys.
            self._dropped |= {client: Failure(client, str(error)) for client in uploaded}
            self._group = None
            self._run.write_off(str(error))
        group.end_sum()
        record = self._run.advance([*came, *self._dropped.values()])
        self._carried = None
        return record.metrics
