"""What the blocks that a server has sent, and the answers to them, tell about a client's C = X'X."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

# how faint, relative to the strongest, directions of blocks may be
CONDITIONS: Final = (1e-12, 1e-6, 1e-3, 1e-1)


class Attack:
    """Phi [Z_1 ... Z_m] = [Y_1 ... Y_m] in the least squares sense, by the solution of least norm: Phi = Y pinv(Z).

    If Y = C Z, then Phi = C P with P the projection on the span of all blocks: C itself once they span everything.
    As C is symmetric, P C is known too, and with it all of C but (I - P) C (I - P).

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022,
    propositions 2 and 5.

    Args:
        d: Columns of the data.
    """

    def __init__(self, d: int) -> None:
        self._blocks, self._answers = np.empty((0, d)), np.empty((0, d))
        self.size = 0  # columns asked

    def learn(self, Z: Array, Y: Array) -> None:
        """Take a block and the answer to it, both d x p."""
        size = np.linalg.norm(Z, axis=0)
        used = size > 0.0
        self.size += int(used.sum())
        # A Gaussian block then weighs no more than an orthonormal one.
        self._blocks = np.vstack([self._blocks, (Z[:, used] / size[used]).T])
        self._answers = np.vstack([self._answers, (Y[:, used] / size[used]).T])
        # the triangular factor says the same in d rows
        if len(self._blocks) > 2 * len(Z):
            Q, R = np.linalg.qr(self._blocks)
            self._blocks, self._answers = np.asarray(R), np.asarray(Q.T @ self._answers)

    def solve(self, conditions: tuple[float, ...] = CONDITIONS[:1]) -> list[tuple[Array, Array]]:
        """For each condition an orthonormal basis U of the span of all blocks, without the directions that are fainter
        than that; and Phi U.
        """
        from scipy.linalg import qr, solve_triangular

        if not len(self._blocks):
            return [(self._blocks.T, self._answers.T)]
        U, T, order = qr(self._blocks.T, mode="economic", pivoting=True)
        strength = np.abs(np.diagonal(T))
        solutions = []
        for r in dict.fromkeys(int(np.sum(strength > c * min(strength[0], 1.0))) for c in conditions):
            Q, R = qr(T[:r].T, mode="economic")
            solutions.append((U[:, :r], solve_triangular(R, Q.T @ self._answers[order]).T))
        return solutions


def minimum_norm(U: Array, S: Array) -> Array:
    """Phi, given U and S = Phi U."""
    return np.asarray(S @ U.T)


def symmetric(U: Array, S: Array) -> Array:
    """The symmetric matrix of least norm among those that agree with Phi on span(U)."""
    T = U.T @ S
    half = (S - U @ (T + T.T) / 4.0) @ U.T
    return np.asarray(half + half.T)


def numbers(d: int, rank: int) -> int:
    """Independent numbers that C U tells about a symmetric C, for U with `rank` columns: d r - r (r - 1) / 2."""
    return d * rank - rank * (rank - 1) // 2


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What the server knows of one client after a message. Errors are relative to ||C_i||_F; 1 is knowing nothing.

    Attributes:
        message: Number of the message, from 1.
        stage: What it belonged to.
        client: Position of the client.
        numbers: Independent numbers told about C_i, by answers that are C_i times a block and by the variances of the
            opening.
        unknowns: d (d + 1) / 2.
        minimum_norm: Error of the solution of least norm, Y pinv(Z), with every answer taken for C_i Z.
        symmetric: Error of the symmetric solution of least norm, likewise.
        exact: The same from those answers only that are C_i Z by the algorithm's own formula.
        angle: Largest angle in radians between the leading k-spaces of the symmetric solution and of C_i.
        outside: Error of the newest answer outside the span of its block, against C_i Z there; None if masked.
        guess: Error of C / N: what knowing the sum exactly tells of one of N clients.
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
    """Where the components stood after a message: the sine to the true ones, and ||(I - ZZ')CZ||_F / ||CZ||_F."""

    message: int
    sine: float
    kkt: float
