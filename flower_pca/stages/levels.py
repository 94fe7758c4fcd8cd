"""Levels: the message before a run of columns of words, by which it learns what levels there are.

Nodes that code columns of words say in the heading of every answer what their columns are called, those of levels
(`ward=surgery`) among them, if they share names at all. So the message asks for no array: its answer is the heading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from flower_pca.base.errors import ProtocolError
from flower_pca.base.status import Status
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.kinds import Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays


@dataclass(frozen=True)
class LevelsState:
    """Whether it has been answered."""

    answered: bool = False


@dataclass(frozen=True, kw_only=True)
class Levels(Algorithm[LevelsState]):
    """One message that asks for nothing but the names of columns.

    Cost: the names, up; once.
    """

    name: ClassVar[str] = "levels"

    def start(self, model: Model) -> LevelsState:
        return LevelsState()

    def broadcast(self, state: LevelsState) -> Arrays:
        return {}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        if arrays:
            rule, remedy = "empty, as it asks for names alone", "Check the sender."
            raise ProtocolError("A message of levels", must=rule, got=", ".join(arrays)[:100], then=remedy)
        return {}, memory

    def server(self, state: LevelsState, total: Any, answered: frozenset[int]) -> LevelsState:
        return LevelsState(answered=True)

    def status(self, state: LevelsState) -> Status | None:
        if state.answered:
            return Status.done()
        return None

    def rounds(self, state: LevelsState) -> int:
        return 0

    def finish(self, state: LevelsState, model: Model) -> Model:
        return model
