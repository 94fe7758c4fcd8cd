"""Reconstruct a client's C = X'X from the blocks that a server has sent and the answers to them."""

from __future__ import annotations

from typing import Final

import numpy as np

from flower_pca.base.linalg import Array

# The thresholds that an attack tries. It leaves out directions of the blocks that are weaker than the threshold,
# relative to the strongest direction.
CONDITIONS: Final = (1e-12, 1e-6, 1e-3, 1e-1)


class Attack:
    """An attack that solves Phi [Z_1 ... Z_m] = [Y_1 ... Y_m] by least squares, with the least norm: Phi = Y pinv(Z).

    Z_i are the blocks, and Y_i are the answers to them. If Y = C Z, then Phi = C P, where P is the projection onto the
    span of all blocks. Once the blocks span the whole space, Phi is C itself. Because C is symmetric, the attacker also
    knows P C, and therefore all of C except (I - P) C (I - P).

    Reference: Wang, Liu, Zhang, "Seeking consensus on subspaces in federated principal component analysis", 2022,
    propositions 2 and 5.

    Parameters
    ----------
    d : int
        The number of columns of the data.
    """

    def __init__(self, d: int) -> None:
        self._blocks = np.empty((0, d))
        self._answers = np.empty((0, d))
        self.size = 0  # the number of nonzero columns in all blocks

    def learn(self, Z: Array, Y: Array) -> None:
        """Add a block and the answer to it, which are both d x p."""
        size = np.linalg.norm(Z, axis=0)
        used = size > 0.0
        self.size += int(used.sum())
        # With columns of length 1, a Gaussian block has no more weight than an orthonormal one.
        self._blocks = np.vstack([self._blocks, (Z[:, used] / size[used]).T])
        self._answers = np.vstack([self._answers, (Y[:, used] / size[used]).T])
        # The triangular factor contains the same equations in at most d rows.
        if len(self._blocks) > 2 * len(Z):
            Q, R = np.linalg.qr(self._blocks)
            self._blocks, self._answers = np.asarray(R), np.asarray(Q.T @ self._answers)

    def solve(self, conditions: tuple[float, ...] = CONDITIONS[:1]) -> list[tuple[Array, Array]]:
        """Return, for each condition, an orthonormal basis U of the span of all blocks, and Phi U.

        Directions that are weaker than the condition, relative to the strongest one, are left out.
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
    """Return Phi, the solution of least norm, from a pair (U, Phi U) of `Attack.solve`."""
    return np.asarray(S @ U.T)


def symmetric_minimum_norm(U: Array, S: Array) -> Array:
    """Return the symmetric matrix of least norm that agrees with Phi on span(U), where S = Phi U."""
    T = U.T @ S
    # The part within span(U) is in both halves, and would otherwise count twice.
    half = (S - U @ (T + T.T) / 4.0) @ U.T
    return np.asarray(half + half.T)


def independent_numbers(d: int, rank: int) -> int:
    """Return the number of independent numbers about a symmetric C that follow from C U, if U has `rank` columns."""
    return d * rank - rank * (rank - 1) // 2
