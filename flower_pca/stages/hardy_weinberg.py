"""Counts of the sites at which a variant is not in Hardy-Weinberg equilibrium. Each site tests its own people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import ROWS, ArrayRule, Kind, Part, number_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when


@dataclass(frozen=True)
class HardyWeinbergState:
    """The smallest acceptable p-value, and for each variant the number of sites with a smaller p-value."""

    least: float
    failed: Array | None = None


@dataclass(frozen=True, kw_only=True)
class HardyWeinberg(Stage[HardyWeinbergState]):
    """A stage that counts the sites at which each variant fails the exact test of Hardy-Weinberg equilibrium.

    A client sends 1 for a variant whose p-value among its own people is below the limit, and 0 for all
    other variants. A test of all people together would be wrong, because a mixture of populations is not in
    equilibrium. Answers for many limits would reveal the counts of genotypes, so nodes serve this stage only
    if their rules name it.

    Cost: a client needs one pass over the rows and a test for each variant, and sends a column of d whole
    numbers.
    """

    name: ClassVar[str] = "hardy_weinberg"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"least": number_rule(0.0, 1.0)}
    by_row: ClassVar[bool] = True

    least: float = 1e-6

    def start(self, model: Model) -> HardyWeinbergState:
        return HardyWeinbergState(self.least)

    def broadcast(self, state: HardyWeinbergState) -> Arrays:
        return {"least": np.array(state.least)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"n": ROWS, "failed": Part((d,), Kind.COUNT)}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"n": np.array(data.n), "failed": data.outside_equilibrium(float(arrays["least"]))}, {}

    def bounds(self, state: HardyWeinbergState, model: Model) -> Mapping[str, Array | float]:
        return {"n": MOST_ROWS, "failed": 1.0}

    def server(self, state: HardyWeinbergState, total: Arrays, answered: frozenset[int]) -> HardyWeinbergState:
        return replace(state, failed=np.rint(total["failed"]))

    def status(self, state: HardyWeinbergState) -> Status | None:
        return status_when(state.failed is not None)

    def finish(self, state: HardyWeinbergState, model: Model) -> Model:
        assert state.failed is not None
        return replace(model, left={**model.left, "failed": state.failed})
