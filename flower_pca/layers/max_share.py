"""MaxShare: a limit on the share that one client may contribute to the sum of squares of all rows.

Only the server applies this layer. The opening determines the weights of the clients (`stages.weighing`).
The server multiplies every later answer by the client's weight, including the number of rows, as if each
row of the client had this weight. If a client joins after the opening, the server has no report about its
rows. The weight of such a client is so small that even the largest answer that the server accepts,
`MARGIN` times all rows, contributes no more than the share.
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
    """A layer that limits the influence of each client: it multiplies each answer by the weight of its client.

    Attributes
    ----------
    share : float
        The maximum share of the sum of squares, and of the number of rows, that one client may contribute.
    """

    name: ClassVar[str] = "max_share"

    share: float

    @property
    def mark(self) -> str:
        return repr(self)

    def weigh_answer(self, arrays: Arrays, client: int, model: Model) -> Arrays:
        if model.counted is None or not model.counted.weights:
            return arrays
        weight = model.counted.weights.get(client, self.share / MARGIN)
        return {name: weight * a for name, a in arrays.items()}

    def finish_closing(self, model: Model) -> Model:
        """Return the model with the clients that were scaled down, and a bound on the influence of one client."""
        status, counted = model.status, model.counted
        if status is None or counted is None:
            return model
        decided = model.with_decision(self.name, self._sentence_on_clients(counted))
        return replace(decided, status=status.with_notes([self._sentence_on_angle(counted, model)]))

    def _sentence_on_clients(self, counted: Weights) -> str:
        """Return a sentence that lists the clients with reduced weights."""
        weights = sorted(counted.weights.items())
        largest = max(counted.weights.values(), default=1.0)
        less = [f"each row of client {i} counts {w / largest:.2g} times" for i, w in weights if w < largest]
        return f"max_share={self.share:g}: {', '.join(less) or 'all clients count in full'}."

    def _sentence_on_angle(self, counted: Weights, model: Model) -> str:
        """Return a text about the angle by which one client can have turned the components.

        The sine of the angle is at most the client's part of the trace divided by the gap (Davis and Kahan
        1970).
        """
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
            "than the gap between eigenvalues"
        )
