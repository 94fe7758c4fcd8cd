"""The view that an honest but curious server has of one client: pairs of a block Z and an answer Y = C_i Z.

What an answer reveals follows from the kinds of its parts, which the stage declares, and from how each kind is
read: see `core.kinds`. If an answer has only other kinds, the attack assumes that it is the product of C_i with a
block of the same shape that was sent to the client. Such a pair does not count as exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca import registry
from flower_pca.algorithms.covariance import unpack_triangle
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import AttackReading, Part
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.stages.opening import block_of_message


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What the server can know about one client after a message.

    All errors are relative to ||C_i||_F. An error of 1 means that the server knows nothing.

    Attributes
    ----------
    message : int
        The number of the message, counted from 1.
    stage : str
        The stage of the message.
    client : int
        The position of the client.
    numbers : int
        The number of independent numbers about C_i that are known, from answers that are C_i times a block and from the
        variances of the opening.
    unknowns : int
        The number of independent entries of C_i: d (d + 1) / 2.
    minimum_norm : float
        The error of the solution of least norm, Y pinv(Z), if every answer is assumed to be C_i Z.
    symmetric : float
        The error of the symmetric solution of least norm, with the same assumption.
    exact : float
        The error of the symmetric solution, from only those answers that are C_i Z by the algorithm's own formula.
    angle : float
        The largest angle, in radians, between the spaces of the k leading eigenvectors of the symmetric solution and of
        C_i.
    outside : float or None
        The error of the newest answer outside the span of its block, relative to C_i Z there. It is None under masks,
        or if there is no such part.
    guess : float
        The error of C / N as a guess of C_i, which needs only the exact sum over all N clients.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.audit import audit
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> leak = audit("krylov", sites, n_components=2).leaks[0]
    >>> leak.stage, leak.client, leak.unknowns
    ('opening', 0, 21)
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
        """The smallest error of all attacks."""
        return min(self.minimum_norm, self.symmetric, self.exact)


@dataclass(frozen=True)
class Convergence:
    """The convergence of the components after a message.

    Attributes
    ----------
    message : int
        The number of the message, counted from 1.
    sine : float
        The sine of the largest angle between the components and the leading eigenvectors of C.
    kkt : float
        The violation of optimality, ||(I - ZZ')CZ||_F / ||CZ||_F, where Z is an orthonormal basis of the components'
        span.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.audit import audit
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> last = audit("krylov", sites, n_components=2).convergence[-1]
    >>> last.sine < 1e-6
    True
    """

    message: int
    sine: float
    kkt: float


@dataclass(frozen=True)
class Pair:
    """A block and an answer that are used as Y = C_i Z.

    `exact` states whether the answer is C_i Z by the algorithm's own formula. If not, this is only an assumption.
    """

    Z: Array
    Y: Array
    exact: bool


@dataclass
class ServerView:
    """The server's view of one client. It stores what is needed to interpret later answers."""

    frame: Frame
    d: int
    opening: Pair | None = None
    factor: Array | None = None

    def read(self, message: Broadcast, client: int, answer: Arrays) -> Pair | None:
        """Return the pair of block and answer that a client's answer to a message contains, or None."""
        sent = message.arrays_for(client)
        parts = registry.STAGES[message.stage].parts(sent, self.d)
        for reading, read in _READERS.items():
            for name, part in parts.items():
                if part.kind.reading is reading:
                    return read(self, sent, answer, name, part)
        return _assumed_pair(sent, answer)

    def read_opening(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> Pair:
        """Return the pair in the answer to an opening, and store it for later answers.

        The answer is the product with the block B in the client's local frame. It is converted to a product in the
        run's frame, C_i (D B), where D is the diagonal matrix of the scale.
        """
        B = block_of_message(sent, self.d)
        shift, D = answer["mean"], np.ones((len(B), 1))
        if self.frame.mean is not None:
            shift = shift - self.frame.mean
        if self.frame.scale is not None:
            D = self.frame.scale[:, None]
        Y = answer["product"].astype(np.float64) + float(answer["n"]) * np.outer(shift, shift @ B)
        self.opening = Pair(B * D, Y / D, exact=True)
        return self.opening

    def read_product(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> Pair:
        """Return the pair of a product and its block. The block is in the message, or in the answer itself."""
        block = answer[part.of] if part.of in answer else part.block(sent)
        return Pair(block, answer[name], exact=True)

    def read_eigenvectors(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> Pair:
        """Return the pair of eigenvectors V and C V.

        The eigenvalues need not be sent. The opening has revealed C B for a block B, and every eigenvector v with the
        eigenvalue lambda satisfies v'(C B) = lambda v'B.
        """
        assert self.opening is not None
        V = answer[name]
        ours = V.T @ self.opening.Z
        theirs = V.T @ self.opening.Y
        size = np.sum(ours**2, axis=1)
        quotients = np.sum(ours * theirs, axis=1) / np.where(size > 0.0, size, 1.0)
        return Pair(V, V * quotients, exact=True)

    def keep_factor(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> None:
        """Store the factor R of X block = Q R, where X are the client's rows.

        R alone reveals nothing about C that a later answer does not reveal.
        """
        self.factor = answer[name]

    def read_lifted(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> Pair:
        """Return the pair for an answer B = X'Q part, where `part` and `block` are arrays of the message.

        `keep_factor` has stored R. Because X block = Q R, C block = B part^-1 R.
        """
        assert self.factor is not None
        Y = answer[name] @ np.linalg.lstsq(sent["part"], self.factor, rcond=None)[0]
        return Pair(sent["block"], Y, exact=True)

    def read_whole(self, sent: Arrays, answer: Arrays, name: str, part: Part) -> Pair:
        """Return the pair for an answer that is C itself, with the identity as its block."""
        C = unpack_triangle(answer[name])
        return Pair(np.eye(len(C)), C, exact=True)


# If an answer has parts with several readings, the first reading in this table counts.
_READERS: Final[dict[AttackReading, Callable[[ServerView, Arrays, Arrays, str, Part], Pair | None]]] = {
    AttackReading.CENTERED: ServerView.read_opening,
    AttackReading.PRODUCT: ServerView.read_product,
    AttackReading.EIGENVECTORS: ServerView.read_eigenvectors,
    AttackReading.FACTOR: ServerView.keep_factor,
    AttackReading.LIFTED: ServerView.read_lifted,
    AttackReading.WHOLE: ServerView.read_whole,
}


def pair_of_sums(pairs: list[Pair | None]) -> Pair | None:
    """Return the pair that the server sees in the sum over all clients, or None if their blocks differ."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs) or not all(np.array_equal(pair.Z, known[0].Z) for pair in known):
        return None
    return Pair(known[0].Z, np.sum([pair.Y for pair in known], axis=0), all(pair.exact for pair in known))


def _assumed_pair(sent: Arrays, answer: Arrays) -> Pair | None:
    for Z in sent.values():
        for Y in answer.values():
            if Z.ndim == 2 and Z.shape == Y.shape:
                return Pair(Z, Y, exact=False)
    return None
