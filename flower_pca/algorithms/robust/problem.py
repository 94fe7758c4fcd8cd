"""Problem: what is known before the first attempt at a low-rank part, and what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Problem:
    """What is known before the first attempt, and what was asked for.

    Attributes:
        n, d: Rows of all clients, and columns.
        sigma: The size of an ordinary entry.
        top: Where bins of entries by size end, as a power of two.
        floor: Of sigma: where lam ends without noise.
        tol: At which change of the basis it counts as at rest.
        noise: The deviation of dense noise; None if it is to be estimated.
        ridge: rho / (lam sqrt(max(n, d))).
        patience: Rounds at the end of an attempt, in which the basis should come to rest.
        least_rounds, most_rounds: Of all attempts together.
    """

    n: int
    d: int
    sigma: float
    top: int
    floor: float
    tol: float
    noise: float | None
    ridge: float
    patience: int
    least_rounds: int
    most_rounds: int

    @property
    def edge(self) -> float:
        """sqrt(n) + sqrt(d): the norm of so many independent entries of deviation one."""
        return float(np.sqrt(self.n) + np.sqrt(self.d))
