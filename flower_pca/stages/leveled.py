"""Leveled: a run of columns of words, which first asks what levels there are.

Theory of operation. The union of what the answers to the first message say makes the columns of the run:

| message | what it asks                      | then                                                              |
| ------- | --------------------------------- | ----------------------------------------------------------------- |
| first   | the names of the columns          | a run of the same question, with all columns and levels by name   |
| later   | whatever that run asks            | its result, with the first message in the history                 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, final

from flower_pca.base.errors import sentence
from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.drive import Driven
from flower_pca.core.roll import Roll
from flower_pca.core.run import Run
from flower_pca.core.stage import Broadcast, Failure, Reply, Sum
from flower_pca.core.standing import Standing
from flower_pca.names import levels
from flower_pca.names.columns import Heading, majority

Columns: TypeAlias = tuple[str, ...]
Then: TypeAlias = Callable[[Columns, levels.Levels], Driven]  # the run of these columns and levels


@final
class Leveled:
    """A run whose first message asks what levels there are. To its driver it is a run like any other.

    Args:
        first: The run of that message.
        asked: The columns of words, each with its levels or None.
        columns: The columns that the caller names; None for all.
        then: From all columns and levels to the run of these.
    """

    def __init__(self, first: Run, *, asked: levels.Levels, columns: Columns | None, then: Then) -> None:
        self._first, self._asked, self._columns, self._then = first, asked, columns, then
        self._names: dict[int, Columns] = {}
        self._run: Driven | None = None
        self._earlier: History | None = None  # the first message, of a run that goes on from a checkpoint

    @property
    def _now(self) -> Driven:
        return self._run or self._first

    @property
    def algorithm(self) -> Any:
        """The stage that the run is named after."""
        return self._now.algorithm

    @property
    def standing(self) -> Standing:
        """The stage under way, and its state."""
        return self._now.standing

    @property
    def roll(self) -> Roll:
        """Who counts."""
        return self._now.roll

    @property
    def history(self) -> History:
        """All messages so far."""
        return self._with_first(History(limit=None) if self._run is None else self._run.history)

    @property
    def is_finished(self) -> bool:
        """Whether the result is ready."""
        return self._run is not None and self._run.is_finished

    def estimate(self) -> Array | None:
        """The basis that the run would return if it ended now."""
        if self._run is None:
            return None
        return self._run.estimate()

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message to send; None at the end."""
        here = list(present)
        if self._run is None and (message := self._first.pending(here)) is not None:
            return message
        return self._settled().pending(here)

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to it."""
        if self._run is not None:
            self._run.advance(replies)
            return self.history[-1]
        record = self._first.advance(self._heard(replies))
        if self._first.is_finished:
            self._settled()
        return record

    def readmit(self, clients: Iterable[int]) -> None:
        """Ask these again although they were left out: they have been started anew."""
        self._now.readmit(clients)

    def result(self) -> Any:
        """The result of a finished run."""
        found = self._settled().result()
        return replace(found, history=self._with_first(found.history))

    def result_so_far(self) -> Any:
        """Of a run of steps, the result of those that are over: there is none here."""
        return self._now.result_so_far()

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new run of the same arguments needs to go on."""
        header, arrays = self._now.checkpoint(steps=steps)
        return {**header, "first": self._first.history.to_json(), "settled": self._run is not None}, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken: the levels are those that had been told by then."""
        if not header["settled"]:
            self._first.restore(header, arrays)
            return
        asked = header["asked"]
        found = levels.read_levels(asked["levels"])
        assert found is not None
        self._run = self._then(tuple(asked["columns"]), found)
        self._run.restore(header, arrays)
        self._earlier = History.from_json(header["first"])

    def _heard(self, replies: Iterable[Reply | Sum | Failure]) -> Iterator[Reply | Sum | Failure]:
        """The answers without their headings, which differ, and count here; who keeps names back is left out."""
        for reply in replies:
            if not isinstance(reply, Reply):
                yield reply
            elif reply.heading is None or reply.heading.names is None:
                why = sentence("The names of its columns", "told, for their levels", "none", "Run without levels.")
                yield Failure(reply.client, why, lasting=True)
            else:
                self._names[reply.client] = reply.heading.names
                yield replace(reply, heading=None)

    def _settled(self) -> Driven:
        """The run of all columns by name, made once the first message has been answered."""
        if self._run is None:
            words = [column for column, _ in self._asked]
            sites = [_levels_in(names, words) for names in self._names.values()]
            found = levels.union(self._asked, sites)
            columns = self._columns or self._others(words)
            self._run = self._then(levels.spread(columns, found), found)
        return self._run

    def _others(self, words: list[str]) -> Columns:
        """The columns beside those of words that most have."""
        rest = [tuple(n for n in names if levels.column_of(n) not in words) for names in self._names.values()]
        return majority(Heading.of_names(names, 0) for names in rest).names or ()

    def _with_first(self, history: History) -> History:
        """The history with the first message before all others."""
        whole = self._earlier or self._first.history
        before = whole.count
        for record in history:
            whole = whole.add(replace(record, number=record.number + before))
        return whole


def _levels_in(names: Iterable[str], words: Iterable[str]) -> dict[str, list[str]]:
    """The levels of each column of words among names of columns."""
    there = list(names)
    return {word: list(map(levels.level_of, levels.indicators(there, word))) for word in words}
