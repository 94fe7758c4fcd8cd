"""How a run ended, in words."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """The kinds of end a run can come to."""

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ROUNDS = "max_rounds"
    ONE_SHOT = "one_shot"
    CLIENTS_CHANGED = "clients_changed"
    BUDGET_SPENT = "budget_spent"
    SETTLED = "settled"


@dataclass(frozen=True)
class Status:
    """An outcome and the sentence that explains it."""

    outcome: Outcome
    words: str

    @property
    def ok(self) -> bool:
        """Whether the run reached what it was asked for."""
        return self.outcome in (Outcome.CONVERGED, Outcome.ONE_SHOT, Outcome.BUDGET_SPENT, Outcome.SETTLED)

    @classmethod
    def done(cls) -> Status:
        """The end of a stage that takes as many messages as it takes."""
        return cls(Outcome.ONE_SHOT, "all messages were answered")

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.words}"
