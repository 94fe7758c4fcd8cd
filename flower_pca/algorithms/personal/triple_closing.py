"""The closing message of triple_pca: as of personalized PCA, on rows less what is far, which the client keeps apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.algorithms.personal.closing import ClosingState, PersonalClosing
from flower_pca.algorithms.personal.far import Rows
from flower_pca.algorithms.personal.triple_pca import INNER, memory_of, recall, settle
from flower_pca.base.linalg import Array
from flower_pca.core.asks import Ask
from flower_pca.core.kinds import NUMBER, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData


@dataclass(frozen=True, kw_only=True)
class TripleClosing(PersonalClosing):
    """U goes out for the last time, and every client keeps own components, its low-rank part L and its sparse part S.

    Beside what `PersonalClosing` asks for come up, of each column, how many entries were taken out and the square of
    the noise; and the sum of squares of all else.

    Cost: as a round of the algorithm; 2 d more numbers up.
    """

    name: ClassVar[str] = "triple"
    asks: ClassVar[Mapping[str, Ask]] = {**PersonalClosing.asks, **INNER}
    by_row: ClassVar[bool] = True

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        wide = len(arrays["U"])
        common = PersonalClosing.parts(arrays, d)
        # of rows that nobody has made a claim on
        Y = Part(arrays["U"].shape, Kind.ESTIMATE)
        columns = {"taken": Part((wide,), Kind.COUNT), "noise": Part((wide,), Kind.MEAN_SQUARES)}
        return {**common, "Y": Y, **columns, "squares": NUMBER}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        rows = Rows.of(data)
        fit = settle(arrays, rows, memory)
        clean, U = rows.less(fit), arrays["U"]
        up, found = PersonalClosing.client(arrays, clean, {"V": fit.W[:, U.shape[1] :]})
        W = np.hstack([U, found["V"]])
        cut = float(arrays["cut"])
        T = clean.scores(W)
        noise = rows.noise(W, T)
        # in the end the threshold is the only rule
        fit = rows.judge(W, T, np.zeros_like(fit.far), cut * noise)
        up |= {"taken": fit.far.sum(axis=0), "noise": noise**2}
        up["squares"] = np.array(clean.squared_error(W[:, :0]))
        return up, {**found, **memory_of(fit)}

    @staticmethod
    def own_results(memory: Arrays, data: LocalData) -> Arrays:
        found = PersonalClosing.own_results(memory, data)
        rows = Rows.of(data)
        fit = recall(rows, memory)
        if not found or fit is None:
            return {}
        S = np.where(fit.far, rows.X - fit.L, 0.0)
        L: Array = fit.L
        if data.frame.scale is not None:
            L, S = L * data.frame.scale, S * data.frame.scale
        if data.frame.mean is not None:
            L = L + data.frame.mean
        return {**found, "L": L, "S": S}

    def bounds(self, state: ClosingState, model: Model) -> Mapping[str, Array | float]:
        columns = {"taken": 0.0, "noise": 0.0}
        return {**super().bounds(state, model), **columns, "squares": MARGIN * model.trace}

    def finish(self, state: ClosingState, model: Model) -> Model:
        assert state.total is not None
        total, done = state.total, super().finish(state, model)
        left = {**done.left, "taken": total["taken"] / model.n}
        left["noise"] = np.sqrt(total["noise"] / float(total["clients"]))
        return replace(done, left=left, trace=float(total["squares"]))
