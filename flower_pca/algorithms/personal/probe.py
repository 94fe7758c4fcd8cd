"""How far the clients' own spaces coincide, measured along the rounds of another iteration by one vector each way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.stage import Arrays

_LENGTH: Final = 4  # products that a Rayleigh-Ritz step looks back on: older ones are of own spaces long given up
_VANISHED: Final = 1e-8
BOUNDS: Final = {"Vb": 2.0, "probed": 1.0}
ANSWER: Final = tuple(BOUNDS)


def parts(arrays: Arrays) -> dict[str, Part]:
    """What `answer` to a message with these arrays is made of."""
    return {"Vb": Part(arrays["b"].shape, Kind.ESTIMATE, own=True), "probed": Part(kind=Kind.COUNT, own=True)}


def answer(V: Array, b: Array) -> Arrays:
    """A client's half: V(V'b), and a one to count it by, which is 0 where a node keeps this to itself.

    It lies in the space of V, so that a few of them tell V; and more columns than one would tell it at once.
    """
    if b.shape != (len(V), 1):
        rule = f"one vector of {len(V)} numbers"
        raise ProtocolError("The probe of own components", must=rule, got=f"shape {b.shape}", then="Check the sender.")
    return {"Vb": V @ (V.T @ b), "probed": np.array(1.0)}


@dataclass(frozen=True)
class Probe:
    """Lanczos for lambda_max of P = mean_i V_iV_i': b is sent, Pb = mean_i V_i(V_i'b) comes back.

    The own spaces still change meanwhile, so that it starts afresh from its best vector every few rounds. The mean is
    over the clients that answer; a round in which none does counts among the rounds, and teaches nothing.

    Attributes:
        b: The vector to send, d x 1.
        best: The best vector known.
        Q, PQ: Vectors sent since the last fresh start, and what came back.
        steps: Rounds so far.
    """

    b: Array
    best: Array
    Q: Array
    PQ: Array
    steps: int = 0

    @property
    def settled(self) -> bool:
        """Whether its estimate has had the rounds that it needs."""
        return self.steps >= _LENGTH

    @classmethod
    def random(cls, d: int, seed: int) -> Probe:
        """At the beginning."""
        b, none = linalg.random_basis(d, 1, seed), np.empty((d, 0))
        return cls(b, b, none, none)

    def skipped(self) -> Probe:
        """After a round in which nobody has answered it."""
        return replace(self, steps=self.steps + 1)

    def step(self, Pb: Array) -> tuple[Probe, float]:
        """After a round, with the estimate of lambda_max; never above it, if the own spaces stay as they are."""
        Q, PQ = np.hstack([self.Q, self.b]), np.hstack([self.PQ, Pb])
        values, ritz, images, _ = linalg.rayleigh_ritz(Q, PQ)
        best = linalg.orth(ritz[:, :1])
        rest = linalg.complement(images[:, :1], Q)
        length = float(np.linalg.norm(rest))
        if Q.shape[1] >= _LENGTH or length <= _VANISHED:
            none = Q[:, :0]
            return Probe(best, best, none, none, self.steps + 1), float(values[0])
        return Probe(rest / length, best, Q, PQ, self.steps + 1), float(values[0])
