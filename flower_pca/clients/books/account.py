"""Account: what a node has told over all runs, by its ledger, and what it has left to tell under its rules.

A message is counted before it is looked at; an answer is weighed before it leaves the node, with all that was told of
these rows before. What was counted stays so, whether or not the answer arrives.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Final

from flwr.app import Context

from flower_pca import registry, wire
from flower_pca.clients.books import kept, ledger
from flower_pca.clients.books.ledger import Ledger
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, noise
from flower_pca.masking import messages
from flower_pca.masking.demands import Demands
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

_ROUNDING: Final = 1e-9  # of budgets that are added up
_OPERATOR: Final = "Ask the node's operator."


class Account:
    """What a node tells, counted over all runs, and held to its rules.

    Args:
        rules: The node's rules.
        context: Its Flower context.
    """

    def __init__(self, rules: Rules, *, context: Context | None = None) -> None:
        self._rules, self._context = rules, context

    def count(self, data: LocalData | Stream) -> None:
        """Count a message over all runs, likewise: a refusal may tell something too."""
        most = self._rules.max_messages_ever
        if most is None:
            return
        with ledger.opened(self._path(data)) as book:
            if book.answered >= most:
                rule = f"at most {most}: that is its max_messages_ever"
                raise RefusalError("The messages to this node", must=rule, got="one more", then=_OPERATOR)
            book.answered += 1

    def demands(self, request: wire.Request, data: LocalData | Stream) -> Demands:
        """What the node asks of those that it is summed with."""
        rules = self._rules
        named = rules.trusted_keys is not None and rules.keeps_ledger

        def admit(present: frozenset[bytes], /, *, told: bool) -> None:
            with ledger.opened(self._path(data)) as book:
                asked = book if told else copy.deepcopy(book)  # a sum that is not told yet is only asked about
                asked.admit(present, most=rules.group_limits)

        admits = admit if named else None
        return Demands(rules.identity, rules.min_peers, rules.max_colluders, admits, run=request.run)

    def lose(self, data: LocalData | Stream) -> None:
        """Count a masked sum that the node's rows allow no answer to: to say so tells of this node alone."""
        if self._rules.counts_groups:
            with ledger.opened(self._path(data)) as book:
                book.beyond += 1

    def weigh(self, request: wire.Request, data: LocalData | Stream, up: Arrays) -> None:
        """Refuse an answer that would tell more, with all that was told of these rows before, than the node allows."""
        if not self._rules.keeps_ledger:
            return
        with ledger.opened(self._path(data)) as book:
            masked = request.stage == messages.STAGE
            stage = messages.inner_stage(request.arrays) if masked else request.stage
            if stage is not None:  # a set-up of masks and an unmasking tell nothing of these
                self._weigh_noise(book, request)
                self._weigh_columns(book, stage, request, data, up)

    def _weigh_noise(self, book: Ledger, request: wire.Request) -> None:
        most = self._rules.budget
        if most is None:
            return
        book.spent += noise.cost(request.layers.get(NOISE, {}))
        if book.spent > most * (1.0 + _ROUNDING):
            rule = f"at most {self._rules.max_epsilon:g} at {self._rules.max_delta:g}: that is its max_epsilon"
            got = "more with this message"
            raise RefusalError("The epsilon that this node spends on its rows", must=rule, got=got, then=_OPERATOR)

    def _weigh_columns(
        self, book: Ledger, stage: str, request: wire.Request, data: LocalData | Stream, up: Arrays
    ) -> None:
        """Count the floating-point numbers of an answer as columns of d; under masks, those that the sum shows."""
        if (most := self._rules.max_columns) is None:
            return
        d = data.d or 1  # of a stream that has not begun
        parts = registry.STAGES[stage].parts(messages.plain(request.arrays), d)
        real = {name: part.shape for name, part in parts.items() if not part.kind.whole}
        if request.stage == messages.STAGE:
            numbers = sum(math.prod(side or 0 for side in shape) for shape in real.values())
        else:
            numbers = sum(up[name].size for name in real)
        book.columns += -(-numbers // d)
        if book.columns > most:
            rule, got = f"at most {most}: that is its max_columns", f"{book.columns} with this message"
            raise RefusalError("The columns of numbers that leave this node", must=rule, got=got, then=_OPERATOR)

    def _path(self, data: LocalData | Stream) -> Path:
        """The ledger of these rows; of a stream, whose rows change, that of the node."""
        if isinstance(data, LocalData):
            mark = data.mark
        else:
            mark = "stream" if self._context is None else f"stream-{kept.key_of(self._context)}"
        return kept.ledger_file(self._rules.memory_dir, mark)
