"""What an honest but curious server sees of one client: pairs of a block Z and an answer Y that stand for Y = C_i Z.

Every stage has its own way of telling C_i Z. Of a stage that is not listed here the attack takes the block it was sent
and the answer of the same shape, as the attack on C_i Z would, and counts them as a claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flower_pca.algorithms.covariance import unpacked
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.rows.frame import Frame

_PRODUCTS = {"ssi": ("Z", "Y"), "krylov": ("B", "S"), "fed_oapm": ("U", "Y"), "ritz": ("Z", "Y")}
_AVERAGES = ("uda", "wda", "dist_pca")


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
    opening: Pair | None = None
    factor: Array | None = None
    seen: list[Pair] = field(default_factory=list)

    def read(self, message: Broadcast, block: Array | None, client: int, up: Arrays) -> Pair | None:
        """The pair in the answer to a message; None if there is none. `block` is the opening's."""
        sent, stage = message.arrays_for(client), message.stage
        if stage == "opening":
            assert block is not None
            self.opening = opened(block, up, self.frame)
            return self.opening
        if stage in _PRODUCTS:
            ours, theirs = _PRODUCTS[stage]
            return Pair(sent[ours], up[theirs], exact=True)
        if stage == "local_power":
            return Pair(up.get("X", sent["Z"]), up["Y"], exact="X" in up or int(sent["steps"]) == 1)
        if stage in _AVERAGES:
            return self._eigenpairs(up["V"])
        if stage == "dr_svd":
            return self._randomised(sent, up)
        if stage == "noisy_covariance":
            C = unpacked(up["C"])
            return Pair(np.eye(len(C)), C, exact=True)
        return _alike(sent, up)

    def _eigenpairs(self, V: Array) -> Pair | None:
        """Eigenvectors come with their eigenvalues, sent or not: v'(C B) = lambda v'B, and the opening has told C B."""
        assert self.opening is not None
        ours, theirs = V.T @ self.opening.Z, V.T @ self.opening.Y
        size = np.sum(ours**2, axis=1)
        return Pair(V, V * (np.sum(ours * theirs, axis=1) / np.where(size > 0.0, size, 1.0)), exact=True)

    def _randomised(self, sent: Arrays, up: Arrays) -> Pair | None:
        if "G" in up:
            return Pair(sent["block"], up["G"], exact=True)
        if "R" in up:
            self.factor = up["R"]
            return None
        assert self.factor is not None
        # B = X'Q part and X block = Q R, so that C block = B part^-1 R.
        Y = up["B"] @ np.linalg.lstsq(sent["part"], self.factor, rcond=None)[0]
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
