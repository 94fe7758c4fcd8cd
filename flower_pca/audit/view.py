"""What an honest but curious server sees of one client: pairs of a block Z and an answer Y that stand for Y = C_i Z.

What an answer tells follows from the kinds of its parts, as the stage itself says them, and from
how such a kind is read: see `core.kinds`. An answer of other kinds is taken as the attack on C_i Z
would: for the product with a block of its shape that the client was sent. That counts as a claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import registry
from flower_pca.algorithms.covariance import unpack
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import AttackReading, Part
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.stages.opening import block_of


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What the server knows of one client after a message. Errors are relative to ||C_i||_F; 1 is knowing nothing.

    Attributes
    ----------
    message : int
        Number of the message, from 1.
    stage : str
        What it belonged to.
    client : int
        Position of the client.
    numbers : int
        Independent numbers told about C_i, by answers that are C_i times a block and by the variances of the opening.
    unknowns : int
        d (d + 1) / 2.
    minimum_norm : float
        Error of the solution of least norm, Y pinv(Z), with every answer taken for C_i Z.
    symmetric : float
        Error of the symmetric solution of least norm, likewise.
    exact : float
        The same from those answers only that are C_i Z by the algorithm's own formula.
    angle : float
        Largest angle in radians between the leading k-spaces of the symmetric solution and of C_i.
    outside : float or None
        Error of the newest answer outside the span of its block, against C_i Z there; None if masked.
    guess : float
        Error of C / N: what knowing the sum exactly tells of one of N clients.
    """

    message: int
    stage: str
    client: int
    numbers: int
    unknowns: int
    minimum_norm: float
    symmetric: float
    exact: float
    angle: float
    outside: float | None
    guess: float

    @property
    def error(self) -> float:
        """The least error that any of the attacks comes to."""
        return min(self.minimum_norm, self.symmetric, self.exact)


@dataclass(frozen=True)
class Convergence:
    """Where the components stood after a message: their sine, and ||(I - ZZ')CZ||_F / ||CZ||_F."""

    message: int
    sine: float
    kkt: float


@dataclass(frozen=True)
class Pair:
    """A block and an answer; `exact` if the answer is C_i Z by the algorithm's own formula, else only taken for it."""

    Z: Array
    Y: Array
    exact: bool


@dataclass
class ServerView:
    """One client as the server sees it; it gathers what later messages need to be read."""

    frame: Frame
    d: int
    opening: Pair | None = None
    factor: Array | None = None

    def read(self, message: Broadcast, client: int, up: Arrays) -> Pair | None:
        """The pair in the answer to a message; None if there is none."""
        sent = message.arrays_for(client)
        parts = registry.STAGES[message.stage].parts(sent, self.d)
        for reading, read in _READERS.items():
            for name, part in parts.items():
                if part.kind.reading is reading:
                    return read(self, sent, up, name, part)
        return _alike(sent, up)

    def read_opening(self, sent: Arrays, up: Arrays, name: str, part: Part) -> Pair:
        """The answer to an opening, on which later ones are built.

        It is a product in the client's local frame, and becomes one in the frame of all: C_i (D B), D the scale.
        """
        B = block_of(sent, self.d)
        shift, D = up["mean"], np.ones((len(B), 1))
        if self.frame.mean is not None:
            shift = shift - self.frame.mean
        if self.frame.scale is not None:
            D = self.frame.scale[:, None]
        Y = up["product"].astype(np.float64) + float(up["n"]) * np.outer(shift, shift @ B)
        self.opening = Pair(B * D, Y / D, exact=True)
        return self.opening

    def read_product(self, sent: Arrays, up: Arrays, name: str, part: Part) -> Pair:
        """A product with a block of the message, or with one that the client has chosen."""
        if part.of in up:
            block = up[part.of]
        else:
            block = part.block(sent)
        return Pair(block, up[name], exact=True)

    def read_eigenvectors(self, sent: Arrays, up: Arrays, name: str, part: Part) -> Pair:
        """Eigenvectors come with their eigenvalues, sent or not: v'(C B) = lambda v'B, and the opening has told C B."""
        assert self.opening is not None
        V = up[name]
        ours = V.T @ self.opening.Z
        theirs = V.T @ self.opening.Y
        size = np.sum(ours**2, axis=1)
        quotients = np.sum(ours * theirs, axis=1) / np.where(size > 0.0, size, 1.0)
        return Pair(V, V * quotients, exact=True)

    def keep_factor(self, sent: Arrays, up: Arrays, name: str, part: Part) -> None:
        """R of X block = Q R, which tells nothing of C that a later answer does not."""
        self.factor = up[name]

    def read_lifted(self, sent: Arrays, up: Arrays, name: str, part: Part) -> Pair:
        """B = X'Q part and X block = Q R, so that C block = B part^-1 R."""
        assert self.factor is not None
        Y = up[name] @ np.linalg.lstsq(sent["part"], self.factor, rcond=None)[0]
        return Pair(sent["block"], Y, exact=True)

    def read_whole(self, sent: Arrays, up: Arrays, name: str, part: Part) -> Pair:
        """C itself."""
        C = unpack(up[name])
        return Pair(np.eye(len(C)), C, exact=True)


# Of an answer with several of them the first counts: the opening also sends what later answers are
# read by.
_READERS: Final[dict[AttackReading, Callable[[ServerView, Arrays, Arrays, str, Part], Pair | None]]] = {
    AttackReading.CENTERED: ServerView.read_opening,
    AttackReading.PRODUCT: ServerView.read_product,
    AttackReading.EIGENVECTORS: ServerView.read_eigenvectors,
    AttackReading.FACTOR: ServerView.keep_factor,
    AttackReading.LIFTED: ServerView.read_lifted,
    AttackReading.WHOLE: ServerView.read_whole,
}


def together(pairs: list[Pair | None]) -> Pair | None:
    """What is seen of the clients' sum: nothing of answers that belong to different blocks."""
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
