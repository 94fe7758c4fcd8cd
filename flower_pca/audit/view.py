"""What an honest but curious server sees of one client: pairs of a block Z and an answer Y that stand for Y = C_i Z.

What an answer tells follows from the kinds of its parts, as the stage itself says them (`core.parts`). An answer of
other kinds is taken as the attack on C_i Z would: for the product with a block of its shape that the client was sent.
That counts as a claim.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flower_pca import registry
from flower_pca.algorithms.covariance import unpacked
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Kind
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.stages.opening import block_of


@dataclass(frozen=True)
class Pair:
    """A block and an answer; `exact` if the answer is C_i Z by the algorithm's own formula, else only taken for it."""

    Z: Array
    Y: Array
    exact: bool


@dataclass
class View:
    """One client as the server sees it; it gathers what later messages need to be read."""

    frame: Frame
    d: int
    opening: Pair | None = None
    factor: Array | None = None

    def read(self, message: Broadcast, client: int, up: Arrays) -> Pair | None:
        """The pair in the answer to a message; None if there is none."""
        sent = message.arrays_for(client)
        parts = registry.STAGES[message.stage].parts(sent, self.d)
        told = {part.kind: up[name] for name, part in parts.items()}
        if Kind.LOCAL_PRODUCT in told:
            self.opening = opened(block_of(sent, self.d), up, self.frame)
            return self.opening
        for name, part in parts.items():
            if part.kind is Kind.PRODUCT:
                return Pair(up[part.of] if part.of in up else part.block(sent), up[name], exact=True)
        if Kind.EIGENVECTORS in told:
            return self._eigenpairs(told[Kind.EIGENVECTORS])
        if Kind.FACTOR in told:
            self.factor = told[Kind.FACTOR]
            return None
        if Kind.LIFTED in told:
            return self._lifted(sent, told[Kind.LIFTED])
        if Kind.GRAM in told:
            C = unpacked(told[Kind.GRAM])
            return Pair(np.eye(len(C)), C, exact=True)
        return _alike(sent, up)

    def _eigenpairs(self, V: Array) -> Pair | None:
        """Eigenvectors come with their eigenvalues, sent or not: v'(C B) = lambda v'B, and the opening has told C B."""
        assert self.opening is not None
        ours, theirs = V.T @ self.opening.Z, V.T @ self.opening.Y
        size = np.sum(ours**2, axis=1)
        return Pair(V, V * (np.sum(ours * theirs, axis=1) / np.where(size > 0.0, size, 1.0)), exact=True)

    def _lifted(self, sent: Arrays, B: Array) -> Pair:
        """B = X'Q part and X block = Q R, so that C block = B part^-1 R."""
        assert self.factor is not None
        Y = B @ np.linalg.lstsq(sent["part"], self.factor, rcond=None)[0]
        return Pair(sent["block"], Y, exact=True)


def opened(B: Array, up: Arrays, frame: Frame) -> Pair:
    """A client's product in its own local frame, as one in the frame of all: C_i (D B), with D the scale."""
    shift = up["mean"] if frame.mean is None else up["mean"] - frame.mean
    Y = up["product"].astype(np.float64) + float(up["n"]) * np.outer(shift, shift @ B)
    D = np.ones((len(B), 1)) if frame.scale is None else frame.scale[:, None]
    return Pair(B * D, Y / D, exact=True)


def together(pairs: list[Pair | None]) -> Pair | None:
    """What is seen of the clients' sum: nothing of answers that do not belong to one and the same block."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs) or not all(np.array_equal(pair.Z, known[0].Z) for pair in known):
        return None
    return Pair(known[0].Z, np.sum([pair.Y for pair in known], axis=0), all(pair.exact for pair in known))


def _alike(sent: Arrays, up: Arrays) -> Pair | None:
    for Z in sent.values():
        for Y in up.values():
            if Z.ndim == 2 and Z.shape == Y.shape:
                return Pair(Z, Y, exact=False)
    return None
