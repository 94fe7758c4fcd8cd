"""Sums and sums of squares of each gene over the cells of all sites, for choosing the genes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Stage, status_when


@dataclass(frozen=True)
class GeneSumsState:
    """The sums over all sites, and whether the sites apply expm1 to their entries before they sum them."""

    of_counts: bool
    total: dict[str, Array] | None = None


@dataclass(frozen=True, kw_only=True)
class GeneSums(Stage[GeneSumsState]):
    """A stage in which each client sends n_i and, for each gene, the sums of y and y^2, with y = expm1(x) or x.

    expm1 is not linear, so the sums do not follow from fixed statistics. Nodes therefore serve this stage
    only if their rules name it. With the sums S1 of y and S2 of y^2, the variance is (S2 - S1^2 / n) / (n - 1).
    This formula is inaccurate if the mean of a column is much larger than its deviation, which does not occur
    for counts of genes.

    Cost: a client needs one pass over the rows, and sends two columns of d floats.
    """

    name: ClassVar[str] = "gene_sums"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"expm1": FLAG}
    by_row: ClassVar[bool] = True

    of_counts: bool = True

    def start(self, model: Model) -> GeneSumsState:
        return GeneSumsState(self.of_counts)

    def broadcast(self, state: GeneSumsState) -> Arrays:
        return {"expm1": np.array(state.of_counts)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        columns = Part((d,), Kind.COLUMNS)
        return {"n": ROWS, "sums": columns, "squares": columns}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        data.require_complete_rows()
        sums, squares = data.gene_sums(undone=bool(arrays["expm1"]))
        return {"n": np.array(data.n), "sums": sums, "squares": squares}, {}

    def bounds(self, state: GeneSumsState, model: Model) -> Mapping[str, Array | float]:
        return {"n": MOST_ROWS, "sums": 0.0, "squares": 0.0}

    def server(self, state: GeneSumsState, total: Arrays, answered: frozenset[int]) -> GeneSumsState:
        return replace(state, total=dict(total))

    def status(self, state: GeneSumsState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: GeneSumsState, model: Model) -> Model:
        assert state.total is not None
        n = round(float(state.total["n"]))
        mean = state.total["sums"] / max(n, 1)
        variance = np.maximum(state.total["squares"] - n * mean**2, 0.0) / max(n - 1, 1)
        return replace(model, n=n, d=len(mean), left={**model.left, "mean": mean, "variance": variance})
