"""Tally: a collector that merges the answers to one message as they arrive.

Each answer is checked and merged at once. The checks concern the client, the arrays of the answer, their
size relative to the client's rows, and the values that the stage expects. Memory does not grow with the
number of clients, except for two columns of each client in the opening. A wrong answer is recorded as a
failure with a reason and raises no exception, and the run continues with the other clients. The result
is a `MergedAnswers`, which holds the sum and the failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flower_pca.base.errors import ProtocolError
from flower_pca.base.history import Round
from flower_pca.core.claims import AnswerChecker
from flower_pca.core.kinds import Part
from flower_pca.core.layer import Layer
from flower_pca.core.model import Model
from flower_pca.core.replies import (
    UnawaitedError,
    check_arrays,
    check_first_reply,
    client_title,
    columns_of,
    declined_by,
    name_of,
    names_showing_columns,
)
from flower_pca.core.stage import Broadcast, Failure, Reply, Stage, Sum, TrafficMeter
from flower_pca.names.columns import Heading


@dataclass(frozen=True)
class MergedAnswers:
    """The merged answers to one message, and the clients that answered, failed or were not asked.

    Attributes
    ----------
    total
        The merged answers.
    answered : frozenset of int
        The clients that have answered, including answers to an earlier copy of the message.
    count : int
        The number of clients that have answered this copy of the message.
    meter : TrafficMeter
        The counter of bytes.
    failures : dict
        The reason for each client without a usable answer.
    banned : frozenset of int
        The clients that must be excluded.
    heading : Heading or None
        The columns of the clients, if they are known.
    declined : str
        The first client that declines the alternative algorithm, and its reason, or "".
    notes : dict
        Notes on clients that answered, for example that a client has lost its state.
    unasked : frozenset of int
        The clients that the caller chose not to ask.
    """

    total: Any
    answered: frozenset[int]
    count: int
    meter: TrafficMeter
    failures: dict[str, str]
    banned: frozenset[int]
    heading: Heading | None = None
    declined: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    unasked: frozenset[int] = frozenset()

    @property
    def why(self) -> str:
        """The reason of the first failure, or ""."""
        return next(iter(self.failures.values()), "")

    def for_sample(self) -> MergedAnswers:
        """Return the reduction for a round that may leave clients out, so that unasked clients are not failures."""
        failures = {client: why for client, why in self.failures.items() if int(client) not in self.unasked}
        return replace(self, failures=failures)

    def record(self, sent: Broadcast, *, seconds: float, metrics: dict[str, float]) -> Round:
        """Return the entry about this message for the history."""
        down, up = self.meter.read(sent)
        return Round(
            number=sent.number,
            stage=sent.stage,
            asked=len(sent.to) - len(self.unasked),
            answered=self.count,
            failures=self.failures,
            bytes_down=down,
            bytes_up=up,
            seconds=seconds,
            metrics=metrics,
            notes=self.notes,
        )


class AnswerCollector:
    """A collector of the answers to one message. It checks each answer, passes it through the layers, and merges it.

    As long as the columns of the run are unknown, the moments in each answer show the number of columns, and
    the heading shows their names. Answers with different columns are merged separately. The run uses the
    columns that most clients have, or in a tie the columns of the client that answered first, and excludes
    clients with other columns for good. Once the heading of the run is known, clients with other columns are
    excluded at once. All answers are compared with the reports of their clients about their rows.

    Parameters
    ----------
    stage : Stage
        The stage that sent the message.
    state
        The state of this stage.
    sent : Broadcast
        The message.
    model : Model
        The model before the message.
    layers : sequence of Layer, default=()
        The layers of the answers.
    """

    def __init__(
        self, stage: Stage[Any], state: Any, sent: Broadcast, model: Model, *, layers: Sequence[Layer] = ()
    ) -> None:
        self._stage = stage
        self._state = state
        self._sent = sent
        self._layers = layers
        self._model = model
        self._d, self._heading = model.d or None, model.heading
        # The model has no claims if answers are noisy or summed, or if all clients are trusted.
        self._judge: AnswerChecker | None = None
        if model.claims:
            self._judge = AnswerChecker(stage, state, model)
        self._merge = stage.merging(state)
        self._common: Mapping[str, Part] = {}
        # As long as the run does not know its number of columns, this dictionary holds the parts of an answer for each
        # number of columns.
        self._parts: dict[int, Mapping[str, Part]] = {}
        if not sent.personal:
            self._common = stage.parts(sent.arrays, self._d)
        self._telling: list[str] = []
        if self._d is None:
            self._telling = names_showing_columns(self._common)
        self._groups: dict[tuple[int, str], _AnswersWithSameColumns] = {}
        # If the message is repeated, these clients have already answered it.
        self._before: frozenset[int] = frozenset()
        self._answered: set[int] = set()
        self._summed: set[int] = set()  # the clients whose answers are in a sum, from which they cannot be removed
        self._failures: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._banned: set[int] = set()
        self._unasked: set[int] = set()
        self._meter, self._declined = TrafficMeter(), ""

    def resume(self, total: Any, answered: frozenset[int]) -> None:
        """Continue with the merged answers of clients that have answered an earlier copy of the message."""
        self._before, self._answered = answered, set(answered)
        if total is not None:
            columns = columns_of(self._telling, total, self._d)
            self._groups[columns, ""] = _AnswersWithSameColumns(total, list(answered))

    def collect(self, replies: Iterable[Reply | Sum | Failure]) -> MergedAnswers:
        """Process the answers in order, and return the merged answers and the clients without a usable answer."""
        position = 0
        for reply in replies:
            if isinstance(reply, Sum):
                self._add_sum(reply)
            elif isinstance(reply, Reply):
                self._process_reply(reply, position)
            else:
                self._meter.count(reply, 0)
                self._record_failure(reply)
            position += 1  # noqa: SIM113 (enumerate would keep each answer in memory until the next one has arrived)
            del reply  # The answer is merged, so it must not stay in memory until the next answer arrives.
        best = self._majority_answers()
        total = best.total
        answered = (self._answered - self._banned) | self._summed
        count = len(answered - self._before)
        if count:
            for layer in self._layers:
                total = layer.open_answer(total, number=self._sent.number, position=None)
        return MergedAnswers(
            total,
            frozenset(answered),
            count,
            self._meter,
            self._failures,
            frozenset(self._banned),
            self._heading or best.heading,
            self._declined,
            self._notes,
            frozenset(self._unasked),
        )

    def _add_sum(self, reply: Sum) -> None:
        """Add a sum of answers. The code that made the sum has already checked its arrays."""
        columns = columns_of(self._telling, reply.arrays, self._d)
        group = self._groups.setdefault((columns, ""), _AnswersWithSameColumns())
        group.total = self._merge(group.total, reply.clients[0], reply.arrays)
        group.clients.extend(reply.clients)
        self._meter.count(reply, 0)
        self._answered.update(reply.clients)
        self._summed.update(reply.clients)
        self._declined = self._declined or reply.declined

    def _process_reply(self, reply: Reply, position: int) -> None:
        """Process one client's answer. If the answer is wrong, record it as a failure, and raise no error."""
        # Refused answers also count as traffic.
        self._meter.count(reply, self._sent.size(reply.arrays))
        try:
            self._accept(reply, position)
        except ProtocolError as error:
            self._record_failure(Failure(reply.client, str(error), lasting=not isinstance(error, UnawaitedError)))
            return
        self._answered.add(reply.client)
        if reply.declines and not self._declined:
            self._declined = declined_by(reply)
        if reply.forgot:
            self._notes[str(reply.client)] = (
                f"{name_of(reply)} has lost its state of this run and begins again. Check whether the client was "
                "restarted, and whether its memory-dir is a permanent folder."
            )

    def _accept(self, reply: Reply, position: int) -> None:
        check_first_reply(reply, self._sent, self._answered)
        known = self._heading
        # Headings are compared before shapes, because an error about headings names the column that differs.
        if known is not None and reply.heading is not None and not reply.heading.has_same_columns(known):
            raise reply.heading.mismatch(name_of(reply), known).error(ProtocolError)
        columns = columns_of(self._telling, reply.arrays, self._d) if self._telling else self._d or 0
        message, parts = self._sent.arrays, self._common
        if self._sent.personal:
            message = self._sent.arrays_for(reply.client)
            parts = self._stage.parts(message, columns or None)
        elif columns != (self._d or 0):
            if columns not in self._parts:
                self._parts[columns] = self._stage.parts(message, columns)
            parts = self._parts[columns]
        check_arrays(reply, parts)
        # The judge checks the answer before layers scale it, because claims refer to unscaled rows.
        if self._judge is not None:
            self._judge.check(reply.client, reply.arrays, parts, message)
        self._stage.inspect(self._state, reply.arrays)
        arrays = reply.arrays
        for layer in self._layers:
            arrays = layer.open_answer(arrays, number=self._sent.number, position=position)
            arrays = layer.weigh_answer(arrays, reply.client, self._model)
        # As long as the columns are unknown, the clients vote on them. If only the number of columns is known, the run
        # takes the names from the first client that has names.
        voted = self._d is None and columns > 0 and known is None
        digest = reply.heading.digest if voted and reply.heading is not None else ""
        group = self._groups.get((columns, digest)) or _AnswersWithSameColumns()
        group.add_reply(self._merge(group.total, reply.client, arrays), reply)
        # The group is stored after the merge, because an answer that cannot be added must not leave an empty group.
        self._groups[columns, digest] = group
        if not voted:
            self._heading = known or reply.heading

    def _record_failure(self, failure: Failure) -> None:
        self._failures[str(failure.client)] = failure.reason
        if failure.lasting:
            self._banned.add(failure.client)
        if failure.unasked:
            self._unasked.add(failure.client)

    def _majority_answers(self) -> _AnswersWithSameColumns:
        """Return the answers with the columns of most clients, and exclude the other clients for good."""
        if not self._groups:
            return _AnswersWithSameColumns()
        if len(self._groups) == 1:
            return self._groups.popitem()[1]
        most = max(self._groups, key=lambda kind: len(self._groups[kind].clients))
        best = self._groups.pop(most)
        for kind, group in self._groups.items():
            for client in group.clients:
                who = client_title(client, group.sites.get(client, ""))
                odd = group.header(kind).mismatch(who, best.header(most))
                self._failures[str(client)] = str(odd)
                self._banned.add(client)
        return best


@dataclass
class _AnswersWithSameColumns:
    """The merged answers from clients with the same columns, and these clients."""

    total: Any = None
    clients: list[int] = field(default_factory=list)
    heading: Heading | None = None
    sites: dict[int, str] = field(default_factory=dict)

    def add_reply(self, total: Any, reply: Reply) -> None:
        self.total = total
        self.clients.append(reply.client)
        self.heading = reply.heading if self.heading is None else self.heading.with_names_from(reply.heading)
        if reply.site:
            self.sites[reply.client] = reply.site

    def header(self, kind: tuple[int, str]) -> Heading:
        return self.heading or Heading(kind[0])
