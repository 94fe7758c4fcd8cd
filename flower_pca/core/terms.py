"""Terms: what a budget allows a run to ask, and what it adds to the messages. Without a budget they are NoTerms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from flower_pca.base.status import Status
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.model import Model
from flower_pca.core.spent import Spent
from flower_pca.core.stage import Arrays


@dataclass(frozen=True)
class NoTerms:
    """The terms of a run without a budget: it asks as often as it needs to, and nobody adds noise.

    A budget's terms override all of this; see `dp.plan`. Terms are frozen: what happens gives new ones.
    """

    binding: ClassVar[bool] = False  # whether a message beyond those dealt out is out of the question

    def arrays(self, *, opening: bool) -> Arrays:
        """What a message says beside the stage's own arrays."""
        return {}

    def share(self, *, opening: bool) -> float:
        """The deviation of the noise that each client adds to its answer."""
        return 0.0

    def shared(self, needed: int) -> Self:
        """The terms of a sum under masks, which cannot do without so many clients: these share the noise."""
        return self

    def informed(self, state: Any) -> Any:
        """The state of a stage that has to know of the noise in its sums."""
        return state

    def wasted(self, stage: str, algorithm: Algorithm[Any], why: str) -> tuple[Self, Algorithm[Any]]:
        """After answers to this stage that gave no sum: the terms, and the algorithm that they still allow."""
        return self, algorithm

    def reopen(self) -> None:
        """Refuse to hold the opening again, where that is beyond the budget."""

    def status(self, status: Status, rounds: int) -> Status:
        """Why an algorithm of so many rounds has ended, in the light of the budget."""
        return status

    def blur(self, model: Model) -> float:
        """A bound on the norm of the noise that lies on the newest product of a whole sum."""
        return 0.0

    def verify(self, model: Model) -> Status | None:
        """The run's status after the closing message, where the budget says it rather than the algorithm."""
        return model.status

    def spent(self, told: Sequence[str], *, shared: bool) -> Spent | None:
        """What answers of these stages have cost."""
        return None
