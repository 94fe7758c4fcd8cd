"""Runs with text columns. Their first message asks the sites for the levels of these columns.

The columns of the run are the union of the levels in the answers to the first message:

| message | what it asks for         | what follows                                                            |
| ------- | ------------------------ | ----------------------------------------------------------------------- |
| first   | the names of the columns | a run of the same configuration, with all columns by name               |
| later   | the messages of that run | its result, with the first message in the history                       |

If nodes share names, the heading of each answer has the names of all columns, including those made from
text columns (`ward=surgery`). The first message, `Naming`, therefore requests no arrays. Its answer
consists of the heading alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, final

from flower_pca.base.history import Round, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import EmptyStage
from flower_pca.core.drive import ContinuedRun, Driven
from flower_pca.core.model import Model
from flower_pca.core.run import Run
from flower_pca.core.stage import Failure, Reply, Sum, status_when
from flower_pca.names.columns import Heading, majority_heading
from flower_pca.names.levels import Coding, source_of

Columns: TypeAlias = tuple[str, ...]
Then: TypeAlias = Callable[[Columns, Coding], Driven]  # a function that creates the run with these columns


@dataclass(frozen=True)
class NamingState:
    """The state of `Naming`, which records only whether the message has been answered."""

    answered: bool = False


@dataclass(frozen=True, kw_only=True)
class Naming(EmptyStage[NamingState]):
    """A stage whose only message asks for the names of columns.

    Cost: each client sends the names once.
    """

    name: ClassVar[str] = "names"

    def start(self, model: Model) -> NamingState:
        return NamingState()

    def server(self, state: NamingState, total: Any, answered: frozenset[int]) -> NamingState:
        return NamingState(answered=True)

    def status(self, state: NamingState) -> Status | None:
        return status_when(state.answered)


@final
class RunOnAgreedColumns(ContinuedRun):
    """A run whose first message asks for the levels of text columns. A driver can treat it like any other run.

    Parameters
    ----------
    first : Run
        The run of the first message.
    coding : Coding
        The requested coding of text columns.
    columns : Columns or None
        The columns that the caller names, or None for all columns.
    make_run : Then
        A function that creates the run from the column names and the agreed coding.
    """

    def __init__(self, first: Run, *, coding: Coding, columns: Columns | None, make_run: Then) -> None:
        super().__init__(first)
        self._coding = coding
        self._columns = columns
        self._then = make_run
        self._names: dict[int, Columns] = {}

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Process the answers to the pending message."""
        if self._run is not None:
            return super().advance(replies)
        record = super().advance(self._without_headings(replies))
        # The second run is created immediately, because a checkpoint stores the agreed columns but not the names
        # that the sites have sent.
        if self._first.is_finished:
            self._second_run()
        return record

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint`, with the columns that had been agreed on by then."""
        run, config = None, header["config"]
        if header["settled"]:
            run = self._then(tuple(config["columns"]), self._coding.with_plain_values(config[self._coding.field]))
        self._restore(run, header, arrays)

    def _without_headings(self, replies: Iterable[Reply | Sum | Failure]) -> Iterator[Reply | Sum | Failure]:
        """Store the column names of each answer and remove its heading, because headings differ between sites.

        A node that does not send names is excluded from the run.
        """
        field = self._coding.field
        for reply in replies:
            if not isinstance(reply, Reply):
                yield reply
            elif reply.heading is None or reply.heading.names is None:
                why = f"This node does not send the names of its columns, which {field} needs. Run without {field}."
                yield Failure(reply.client, why, lasting=True)
            else:
                self._names[reply.client] = reply.heading.names
                yield replace(reply, heading=None)

    def _second_run(self) -> Driven:
        """Return the run with the agreed columns, and create it if the first message has just been answered."""
        if self._run is None:
            values = [self._coding.levels_among(names) for names in self._names.values()]
            found = self._coding.with_levels_of_sites(values)
            self._run = self._then(found.with_indicators(self._columns or self._other_columns()), found)
        return self._run

    def _other_columns(self) -> Columns:
        """Return the names of the numeric columns that most clients have."""
        words, every = self._coding.words, self._names.values()
        rest = [tuple(n for n in names if source_of(n) not in words) for names in every]
        return majority_heading(Heading.of_names(names, 0) for names in rest).names or ()
