"""Run: what the owner of a transport drives, whatever its messages compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from flower_pca.base.history import History, Round
from flower_pca.base.linalg import Array
from flower_pca.core.model import Model
from flower_pca.core.stage import Broadcast, Failure, Reply, Stage, Sum


class Run(ABC):
    """A run as a state machine without I/O: `Session` and `TrackingSession`, and what is laid over either.

    Send the message of `pending`, hand the answers to `advance`, until there is none; then `result` is ready.
    """

    summed: ClassVar[bool] = False  # whether answers come as sums, and whom they came from cannot be told apart

    _model: Model
    _state: Any  # of the stage under way
    _fraction: float = 1.0  # of the clients present that a message of the algorithm goes to
    _history: History
    _banned: frozenset[int]

    @property
    def history(self) -> History:
        """The rounds so far."""
        return self._history

    @property
    def banned(self) -> frozenset[int]:
        """Clients that are not asked any more, for what they answered."""
        return self._banned

    @property
    @abstractmethod
    def algorithm(self) -> Stage[Any]:
        """The algorithm's stage."""

    @property
    @abstractmethod
    def _stage(self) -> Stage[Any]:
        """The stage under way."""

    # Not abstract, for what is laid over a run calls them as those of the class behind it.

    def pending(self, present: Iterable[int]) -> Broadcast | None:
        """The message to send to clients among `present`, those that can be reached now; None at the end."""
        raise NotImplementedError

    def advance(self, replies: Iterable[Reply | Sum | Failure]) -> Round:
        """Take the answers to the pending message, in the order in which they shall be summed, and move on."""
        raise NotImplementedError

    def result(self) -> Any:
        """The result of a finished run."""
        raise NotImplementedError

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that a new run of the same arguments needs to go on: a JSON header, and arrays."""
        raise NotImplementedError

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Go on where `checkpoint` was taken."""
        raise NotImplementedError
