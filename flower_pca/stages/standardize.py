"""A run of an opening alone: means and deviations of the columns of all rows together, for whoever needs no more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from flower_pca.base.history import Outcome, Status
from flower_pca.core.algorithm import Silent
from flower_pca.core.model import Model


@dataclass(frozen=True)
class StandardizeState:
    """Nothing: all is known before."""


@dataclass(frozen=True, kw_only=True)
class Standardize(Silent[StandardizeState]):
    """What a run is named after that asks for the opening and for nothing else: it is done before its first message.

    Cost: that of the opening without a block, some passes over the rows and two to four columns up; one message, or two
    under masks.
    """

    name: ClassVar[str] = "standardize"

    def start(self, model: Model) -> StandardizeState:
        return StandardizeState()

    def status(self, state: StandardizeState) -> Status:
        return Status(Outcome.ONE_SHOT, "means and deviations are those of all rows together")

    def finish(self, state: StandardizeState, model: Model) -> Model:
        return replace(model, status=self.status(state))
