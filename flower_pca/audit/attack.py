"""What the blocks that a server has sent, and the answers to them, tell about a client's C = X'X."""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

# how faint, relative to the strongest, directions of blocks may be
CONDITIONS: Final = (1e-12, 1e-6, 1e-3, 1e-1)


class Attack:
    """Phi [Z_1 ... Z_m] = [Y_1 ... Y_m] in the least squares sense, by the solution of least norm: Phi = Y pinv(Z).

    If Y = C Z, then Phi = C P with P the projection on the span of all blocks: C itself once they
    span everything. As C is symmetric, P C is known too, and with it all of C but (I - P) C
    (I - P).

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component
    analysis", 2022, propositions 2 and 5.

    Parameters
    ----------
    d : int
        Columns of the data.
    """

    def __init__(self, d: int) -> None:
        self._blocks = np.empty((0, d))
        self._answers = np.empty((0, d))
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
        limits = (c * min(strength[0], 1.0) for c in conditions)
        for r in dict.fromkeys(int(np.sum(strength > limit)) for limit in limits):
            Q, R = qr(T[:r].T, mode="economic")
            solutions.append((U[:, :r], solve_triangular(R, Q.T @ self._answers[order]).T))
        return solutions


def minimum_norm(U: Array, S: Array) -> Array:
    """Phi, given U and S = Phi U."""
    return np.asarray(S @ U.T)


def symmetric(U: Array, S: Array) -> Array:
    """The symmetric matrix of least norm among those that agree with Phi on span(U)."""
    T = U.T @ S
    # What lies within span(U) is in both halves, and would count twice.
    half = (S - U @ (T + T.T) / 4.0) @ U.T
    return np.asarray(half + half.T)


def numbers(d: int, rank: int) -> int:
    """Independent numbers that C U tells about a symmetric C, for U with `rank` columns."""
    return d * rank - rank * (rank - 1) // 2
