"""Naming: the message before a run of columns that are made of words, by which it learns what there is to be made.

Nodes that code columns of words say in the heading of every answer what their columns are called,
those made of words (`ward=surgery`) among them, if they share names at all. So the message asks for
no array: its answer is the heading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flower_pca.base.history import ANSWERED, Status
from flower_pca.core.algorithm import Silent
from flower_pca.core.model import Model


@dataclass(frozen=True)
class NamingState:
    """Whether it has been answered."""

    answered: bool = False


@dataclass(frozen=True, kw_only=True)
class Naming(Silent[NamingState]):
    """One message that asks for nothing but the names of columns.

    Cost: the names, up; once.
    """

    name: ClassVar[str] = "names"

    def start(self, model: Model) -> NamingState:
        return NamingState()

    def server(self, state: NamingState, total: Any, answered: frozenset[int]) -> NamingState:
        return NamingState(answered=True)

    def status(self, state: NamingState) -> Status | None:
        if state.answered:
            return ANSWERED
        return None
