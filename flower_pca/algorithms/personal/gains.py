"""The rule that ends a run by its objective: no more to be had, and no saddle.

An objective that hardly rises may be that of a saddle, from which it rises again: there the curvature along the last
steps is above 0, or on its way there. At a maximum it is below, and stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

_ROUNDS: Final = 10  # in which the objective is to have hardly risen
_LATEST: Final = 4  # curvatures that are to agree
_AGREED: Final = 0.1  # of the newest one


@dataclass(frozen=True)
class Gains:
    """The objective after each of the last rounds, and the curvatures that were seen in them.

    Attributes:
        promise: By how much the next step is to raise the objective.
        sine: Of the largest angle by which that step turns the subspace.
    """

    objectives: tuple[float, ...] = ()
    curvatures: tuple[float, ...] = ()
    promise: float = np.inf
    sine: float = np.inf

    def add(self, objective: float, curvature: float, promise: float, sine: float) -> Gains:
        """After a round."""
        curvatures = (*self.curvatures, curvature)[-_LATEST:]
        return Gains((*self.objectives, objective)[-_ROUNDS - 1 :], curvatures, promise, sine)

    def without(self) -> Gains:
        """After a round whose step was given up."""
        return Gains(
            (*self.objectives, *self.objectives[-1:])[-_ROUNDS - 1 :], self.curvatures, self.promise, self.sine
        )

    def ended(self, tol: float) -> str:
        """Why there is no more to be had than this share of the objective; empty while there is."""
        if len(self.objectives) <= _ROUNDS or len(self.curvatures) < _LATEST:
            return ""
        best, largest = self.objectives[-1], max(self.curvatures)
        gained = best - self.objectives[0]
        agreed = largest - min(self.curvatures) <= _AGREED * abs(self.curvatures[-1])
        if max(gained, self.promise) > tol * abs(best) or largest >= 0.0 or not agreed:
            return ""
        rise = f"{gained / abs(best):.2g} of itself in {_ROUNDS} rounds, at most gain_tol={tol:.2g}"
        left = f"the next step would turn the shared components by a sine of {self.sine:.2g}"
        return f"the objective has gained {rise}, and bends down along all steps in them; {left}"
