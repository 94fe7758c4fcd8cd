"""The history of a run: its rounds, and the status with which it ended."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flower_pca.base import files, labels
from flower_pca.base.options import Sentence, marks_of
from flower_pca.base.shown import brief


@dataclass(frozen=True)
class Round:
    """One message to the clients, and the figures of its answers.

    Attributes
    ----------
    number : int
        The number of the message in the run.
    stage : str
        The stage of the run that sent the message, such as "opening".
    asked, answered : int
        The number of clients that were asked, and the number of clients that answered.
    failures : dict
        The reason for each client without a usable answer, by client.
    bytes_down, bytes_up : int
        The total number of bytes sent to all clients, and the total number of bytes that the clients sent.
    seconds : float
        The time from sending the message until all answers were processed.
    metrics : dict
        The figures that the stage reports, such as the error, by name.
    notes : dict
        The notes on clients that answered, for example that a client has lost its state, by client.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> first = simulate("krylov", sites, n_components=2).history[0]
    >>> first.stage, first.asked, first.answered
    ('opening', 3, 3)
    """

    number: int
    stage: str
    asked: int
    answered: int
    failures: dict[str, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    __repr__ = brief

    def __str__(self) -> str:
        return f"round {self.number} ({self.stage}): {self.words}"

    @property
    def words(self) -> str:
        """A text with the numbers of clients that answered and failed, the stage's figures and the traffic."""
        numbers = "".join(f", {name} {_number_as_text(value)}" for name, value in self.metrics.items())
        failed = f", {len(self.failures)} failed" if self.failures else ""
        traffic = f"{labels.bytes_in_words(self.bytes_down)} down, {labels.bytes_in_words(self.bytes_up)} up"
        clients = f"{self.answered}/{labels.count(self.asked, 'client')}"
        return f"{clients}{failed}{numbers}, {traffic}"


@dataclass(frozen=True)
class Earlier:
    """The totals of rounds that are no longer kept: their number, bytes and seconds."""

    rounds: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class History:
    """The rounds of a run in order. For an endless run, these are the latest rounds, and totals of earlier rounds.

    Attributes
    ----------
    rounds : tuple of Round
        The rounds that are kept.
    gone : Earlier
        The totals of earlier rounds, which are no longer kept.
    limit : int or None
        The maximum number of rounds that are kept, or None for all rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> history = simulate("krylov", sites, n_components=2).history
    >>> [message.stage for message in history]
    ['opening', 'krylov']
    """

    rounds: tuple[Round, ...] = ()
    gone: Earlier = field(default_factory=Earlier)
    limit: int | None = None

    def __len__(self) -> int:
        return len(self.rounds)

    def __repr__(self) -> str:
        traffic = f"{labels.bytes_in_words(self.bytes_down)} down, {labels.bytes_in_words(self.bytes_up)} up"
        return f"History({labels.count(self.count, 'round')}, {traffic}, {self.seconds:.3g} s)"

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)

    def __getitem__(self, index: int) -> Round:
        return self.rounds[index]

    def add(self, record: Round) -> History:
        """Return the history with one more round."""
        longer = History((*self.rounds, record), self.gone, self.limit)
        if self.limit is None:
            return longer
        return longer.newest(self.limit)

    def newest(self, most: int | None) -> History:
        """Return the history with at most the latest `most` rounds, and the totals of earlier rounds.

        If `most` is None, the history is returned unchanged.
        """
        over = 0 if most is None else max(len(self.rounds) - most, 0)
        if not over:
            return self
        gone, old = self.gone, self.rounds[:over]
        earlier = Earlier(
            gone.rounds + over,
            gone.bytes_down + sum(r.bytes_down for r in old),
            gone.bytes_up + sum(r.bytes_up for r in old),
            gone.seconds + sum(r.seconds for r in old),
        )
        return replace(self, rounds=self.rounds[over:], gone=earlier)

    @property
    def count(self) -> int:
        """The number of rounds, including rounds that are no longer kept."""
        return self.gone.rounds + len(self.rounds)

    @property
    def seconds(self) -> float:
        """The total duration of all rounds, in seconds."""
        return self.gone.seconds + sum(r.seconds for r in self.rounds)

    def of(self, stage: str) -> tuple[Round, ...]:
        """Return the rounds of one stage."""
        return tuple(r for r in self.rounds if r.stage == stage)

    @property
    def bytes_up(self) -> int:
        """The total number of bytes that the clients sent."""
        return self.gone.bytes_up + sum(r.bytes_up for r in self.rounds)

    @property
    def bytes_down(self) -> int:
        """The total number of bytes that were sent to all clients."""
        return self.gone.bytes_down + sum(r.bytes_down for r in self.rounds)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rounds as plain dictionaries. If earlier rounds are no longer kept, their totals come first."""
        gone = [{"gone": dict(vars(self.gone))}] if self.gone.rounds else []
        return [*gone, *(dict(vars(r)) for r in self.rounds)]

    @classmethod
    def from_json(cls, rows: list[dict[str, Any]]) -> History:
        """Return the history from the dictionaries that `to_json` has made."""
        gone, rest = Earlier(), rows
        if rows and "gone" in rows[0]:
            gone = files.unpack_value(Earlier, rows[0]["gone"], {})
            rest = rows[1:]
        return cls(tuple(files.unpack_value(Round, row, {}) for row in rest), gone)


def _number_as_text(value: float) -> str:
    """Return the text of a number: whole numbers with all digits, other numbers with three digits."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.2e}"


class Outcome(enum.StrEnum):
    """The ways in which a run can end.

    Examples
    --------
    >>> from flower_pca import Outcome
    >>> Outcome("converged") is Outcome.CONVERGED
    True
    """

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ROUNDS = "max_rounds"
    DONE = "done"
    CLIENTS_CHANGED = "clients_changed"
    BUDGET_SPENT = "budget_spent"
    SETTLED = "settled"


@dataclass(frozen=True)
class Status:
    """The status with which a run ended: an outcome, and a sentence that explains it.

    Attributes
    ----------
    outcome : Outcome
        The way in which the run ended.
    words : str
        The sentence that explains the outcome.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> status = simulate("krylov", sites, n_components=2).status
    >>> status.ok, status.outcome.value
    (True, 'converged')
    """

    outcome: Outcome
    words: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", Sentence(self.words))

    @property
    def ok(self) -> bool:
        """Whether the run reached its goal."""
        return self.outcome in (Outcome.CONVERGED, Outcome.DONE, Outcome.BUDGET_SPENT, Outcome.SETTLED)

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.words}"

    def followed_by(self, words: str, outcome: Outcome | None = None) -> Status:
        """Return the status with more words after its own, and with this outcome if one is given.

        Settings stay marked in all words.
        """
        return Status(outcome or self.outcome, marks_of(self.words) + marks_of(words))

    def with_notes(self, notes: Iterable[str]) -> Status:
        """Return the status with these notes after its words, each after a semicolon."""
        return self.followed_by("".join(f"; {marks_of(note)}" for note in notes))


# Stages with a fixed number of messages end with this status.
ANSWERED: Final = Status(Outcome.DONE, "all messages were answered")
