"""Share: no client counts for more than a stated share of all squares.

The layer lies at the server alone. What a client counts follows from the opening
(`stages.weighing`). Every later answer is scaled by it, the client's number of rows too, as if each
of its rows counted for so much. A client that came after the opening has told nothing. It counts
for so little that the largest answer it may give, `MARGIN` times all rows, is no more than the
share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.core.layer import Layer
from flower_pca.core.model import Model, Weights
from flower_pca.core.stage import MARGIN, Arrays


@dataclass(frozen=True)
class MaxShare(Layer):
    """Scales answers by what their clients count.

    Attributes
    ----------
    share : float
        s, the largest share of one client.
    """

    name: ClassVar[str] = "max_share"

    share: float

    @property
    def mark(self) -> str:
        return repr(self)

    def count(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        if model.counted is None or not model.counted.weights:
            return arrays
        weight = model.counted.weights.get(client, self.share / MARGIN)
        return {name: weight * a for name, a in arrays.items()}

    def measure(self, model: Model) -> Model:
        """With who was scaled down, and how far any client can have turned the components."""
        status, counted = model.status, model.counted
        if status is None or counted is None:
            return model
        decisions = {**model.decisions, self.name: self._scale(counted)}
        words = f"{status.words}; {self._turn(counted, model)}"
        return replace(model, status=replace(status, words=words), decisions=decisions)

    def _scale(self, counted: Weights) -> str:
        """Who counts for less than its rows, in words."""
        weights = sorted(counted.weights.items())
        largest = max(counted.weights.values(), default=1.0)
        less = [f"client {i} counts {w / largest:.2g} times" for i, w in weights if w < largest]
        return f"max_share={self.share:g}: {', '.join(less) or 'all clients count in full'}."

    def _turn(self, counted: Weights, model: Model) -> str:
        """The bound on the turn: the sine is at most what a client is of the trace over the gap (Davis, Kahan 1970)."""
        if model.k >= model.d:
            return "all directions are components, so no client can turn them"
        if counted.most * model.trace < model.gap:
            sine = counted.most * model.trace / model.gap
            degrees = f"{np.rad2deg(np.arcsin(sine)):.2g} degrees"
            alone = f"any single client turns the components by at most {degrees}"
            return f"{alone}, several together by more (max_share={self.share:g})"
        part = f"{counted.most:.2g} of the squares"
        return (
            f"max_share={self.share:g} does not bound the influence of one client: it may have {part}, which is more "
            "than the gap"
        )
