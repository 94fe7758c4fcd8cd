"""Account: what a node has told over all runs, by its ledger, and what it has left to tell under its rules.

A message is counted before it is looked at; an answer is weighed before it leaves the node, with all that was told of
these rows before. What was counted stays so, whether or not the answer arrives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import Context

from flower_pca import wire
from flower_pca.answering import Veil
from flower_pca.base.bits import system_bits
from flower_pca.base.linalg import Array
from flower_pca.clients.books import kept, ledger, told
from flower_pca.clients.books.ledger import ANONYMOUS, Ledger
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.policy.rules import Rules
from flower_pca.core import kinds as parts
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, noise
from flower_pca.masking import messages
from flower_pca.masking.demands import Demands
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical.rows import TurnedData

_ROUNDING: Final = 1e-9  # of budgets that are added up
_OPERATOR: Final = "Ask the node's operator."


class Account:
    """What a node tells, counted over all runs, and held to its rules.

    Args:
        rules: The node's rules.
        context: Its Flower context.
        fixed: Gives the statistics of its rows that it answers from; None where answers come from rows.
    """

    def __init__(
        self, rules: Rules, *, context: Context | None = None, fixed: Callable[[LocalData], FixedData] | None = None
    ) -> None:
        self._rules, self._context, self._fixed = rules, context, fixed
        self._bare: Arrays = {}  # the answer to the message at hand, before masks
        self._group = ""  # in which the sum that a message belongs to is taken; "" without masks

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
                self._group = asked.admit(present, most=rules.group_limits)

        admits = admit if named else None
        return Demands(rules.identity, rules.min_peers, rules.max_colluders, admits, run=request.run)

    def lose(self, data: LocalData | Stream) -> None:
        """Count a masked sum that the node's rows allow no answer to: to say so tells of this node alone."""
        if self._rules.counts_groups:
            with ledger.opened(self._path(data)) as book:
                book.beyond += 1

    def fail(self, request: wire.Request, data: LocalData | Stream) -> None:
        """Count a refusal of numbers that rows and message make together: it compares them, as an answer does.

        It counts even where nothing more may be told; from then on nothing is.
        """
        if self._rules.max_rank is not None and isinstance(data, LocalData):
            group = self._group_of(request, data)
            with ledger.opened(self._path(data)) as book:
                book.told[group] = book.told_in(group, data.origin.d).with_one_more()

    def veil(self, request: wire.Request, data: LocalData | Stream) -> Veil | None:
        """Noise on products that hides what `max_rank` does not count; None where there is no such rule."""
        if self._rules.max_rank is None or not isinstance(data, LocalData):
            return None
        size, scale = self._sizes(data), request.frame.scale
        self._bare = {}

        def laid(stage: str, arrays: Arrays, up: Arrays) -> Arrays:
            self._bare = up
            kinds, veiled = told.kinds(stage, arrays, data.d), dict(up)
            with np.errstate(all="ignore"):
                for name, a in up.items():
                    if kinds[name].kind in told.VEILED:
                        veiled[name] = told.veil(a, kinds[name], arrays, size, scale, system_bits)
            parts.require_finite(veiled)
            return veiled

        return laid

    def weigh(self, request: wire.Request, data: LocalData | Stream, up: Arrays) -> None:
        """Refuse an answer that would tell more, with all that was told of these rows before, than the node allows."""
        if not self._rules.keeps_ledger:
            return
        with ledger.opened(self._path(data)) as book:
            masked = request.stage == messages.STAGE
            stage = messages.inner_stage(request.arrays) if masked else request.stage
            if stage is not None:  # a set-up of masks and an unmasking tell nothing of these
                self._weigh_noise(book, request)
                if isinstance(data, LocalData):
                    self._weigh_rank(book, stage, request, data, up, masked=masked)

    def _weigh_noise(self, book: Ledger, request: wire.Request) -> None:
        most = self._rules.budget
        if most is None:
            return
        book.spent += noise.cost(request.layers.get(NOISE, {}))
        if book.spent > most * (1.0 + _ROUNDING):
            rule = f"at most {self._rules.max_epsilon:g} at {self._rules.max_delta:g}: that is its max_epsilon"
            got = "more with this message"
            raise RefusalError("The epsilon that this node spends on its rows", must=rule, got=got, then=_OPERATOR)

    def _weigh_rank(
        self, book: Ledger, stage: str, request: wire.Request, data: LocalData, up: Arrays, *, masked: bool
    ) -> None:
        if (most := self._rules.max_rank) is None:
            return
        group, d = self._group_of(request, data), data.origin.d
        size = self._sizes(data.origin)
        columns = told.asked(stage, request, data.d)
        if data.places is not None:  # of the columns that the run leaves out, nothing is told
            chosen, columns = columns, np.zeros((d, columns.shape[1]))
            columns[data.places] = chosen
        known = book.told_in(group, d).with_products(columns, size)
        for mark, count in told.own(stage, request, data.d, self._bare if masked else up):
            known = known.with_own(mark, count)
        if (rank := known.rank + book.otherwise(group)) > most:
            rule = f"at most {most}: that is its max_rank"
            remedy = _OPERATOR if masked else "Run the strategy with mask=True, or ask the node's operator."
            what = "The rank of all blocks that this node has answered"
            raise RefusalError(what, must=rule, got=f"{rank} with this message", then=remedy)
        book.told[group] = known

    def _group_of(self, request: wire.Request, data: LocalData) -> str:
        return told.key((self._group or ANONYMOUS) if request.stage == messages.STAGE else "", data)

    def _sizes(self, data: LocalData) -> Array:
        """The roots of the columns' sums of squares about their means; from the statistics that answers come from."""
        if isinstance(data, TurnedData):  # of which products are asked as they are
            return np.asarray(np.sqrt(data.squares))
        return np.sqrt((data if self._fixed is None else self._fixed(data)).moments().m2)

    def _path(self, data: LocalData | Stream) -> Path:
        """The ledger of these rows; of a stream, whose rows change, that of the node."""
        if isinstance(data, LocalData):
            mark = data.mark
        else:
            mark = "stream" if self._context is None else f"stream-{kept.key_of(self._context)}"
        return kept.ledger_file(self._rules.memory_dir, mark)
