"""What happened in each round of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from flower_pca.base import labels


@dataclass(frozen=True)
class Round:
    """One message to the clients and what came of it; `notes` are of clients whose answers count all the same."""

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

    def __str__(self) -> str:
        numbers = "".join(f", {name} {value:.2e}" for name, value in self.metrics.items())
        failed = f", {len(self.failures)} failed" if self.failures else ""
        traffic = f"{self.bytes_down / 1e6:.2f} MB down, {self.bytes_up / 1e6:.2f} MB up"
        clients = f"{self.answered}/{labels.count(self.asked, 'client')}"
        return f"round {self.number} ({self.stage}): {clients}{failed}{numbers}, {traffic}"


@dataclass(frozen=True)
class History:
    """All rounds of a run, in order."""

    rounds: tuple[Round, ...] = ()

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)

    def __getitem__(self, index: int) -> Round:
        return self.rounds[index]

    def add(self, record: Round) -> History:
        """The history with one round more."""
        return History((*self.rounds, record))

    def of(self, stage: str) -> tuple[Round, ...]:
        """The rounds of one stage."""
        return tuple(r for r in self.rounds if r.stage == stage)

    @property
    def bytes_up(self) -> int:
        """What all clients sent together."""
        return sum(r.bytes_up for r in self.rounds)

    @property
    def bytes_down(self) -> int:
        """What was sent to all clients together."""
        return sum(r.bytes_down for r in self.rounds)

    def to_json(self) -> list[dict[str, Any]]:
        """The rounds as plain dictionaries."""
        return [asdict(r) for r in self.rounds]

    @classmethod
    def from_json(cls, rows: list[dict[str, Any]]) -> History:
        """The history that `to_json` wrote."""
        return cls(tuple(Round(**row) for row in rows))
