"""A run of an opening alone: means and deviations of the columns of all rows together, for whoever needs no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flower_pca.base.errors import ProtocolError
from flower_pca.base.status import Outcome, Status
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.kinds import Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays


@dataclass(frozen=True)
class StandardizeState:
    """Nothing: all is known before."""


@dataclass(frozen=True, kw_only=True)
class Standardize(Algorithm[StandardizeState]):
    """What a run is named after that asks for the opening and for nothing else: it is done before its first message.

    Cost: that of the opening without a block, some passes over the rows and two to four columns up; one message, or two
    under masks.
    """

    name: ClassVar[str] = "standardize"

    def start(self, model: Model) -> StandardizeState:
        return StandardizeState()

    def broadcast(self, state: StandardizeState) -> Arrays:
        return {}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        if arrays:
            rule, remedy = "empty, as it asks for nothing", "Check the sender."
            raise ProtocolError("A message of standardize", must=rule, got=", ".join(arrays)[:100], then=remedy)
        return {}, memory

    def server(self, state: StandardizeState, total: Any, answered: frozenset[int]) -> StandardizeState:
        return state

    def status(self, state: StandardizeState) -> Status:
        return Status(Outcome.ONE_SHOT, "means and deviations are those of all rows together")

    def rounds(self, state: StandardizeState) -> int:
        return 0

    def finish(self, state: StandardizeState, model: Model) -> Model:
        return replace(model, status=self.status(state))
