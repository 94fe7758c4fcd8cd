"""Problems for personalized PCA: shared and own components that are known, and rows that have them.

y = U phi + V_i psi + eps, with [U, V_i] orthonormal, U shared and V_i client i's own. Rows are samples. Components and
rows come from separate random streams, and neither is a stream that an algorithm starts from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_SPACES, _ROWS, _TEST, _NEAR = 11, 12, 13, 14  # the random streams
NOISE: Final = 0.5  # the variance of the noise in the paper's experiments


@dataclass(frozen=True)
class Split:
    """The rows of each client, the true shared components (d x r1) and each client's true own ones (d x r2)."""

    shards: list[Array]
    U: Array
    V: list[Array]

    @property
    def theta(self) -> float:
        """1 - lambda_max(mean_i V_iV_i')."""
        return theta(self.V)


@dataclass(frozen=True)
class Setting:
    """What rows are drawn from: variances `shared`, `own` along the components, `noise` in all directions."""

    d: int = 15
    r1: int = 2
    r2: int = 10
    clients: int = 100
    shared: float = 1.0
    own: float = 1.0
    noise: float = NOISE
    axes: int | None = None  # own components are coordinate axes, client i's the r2 from the i-th on, of so many

    def draw(self, sizes: int | Sequence[int], seed: int, test: int = 0) -> tuple[Split, list[Array]]:
        """The problem, and `test` further rows of each client."""
        U, V = self._spaces(np.random.default_rng([_SPACES, seed]))
        counts = [sizes] * self.clients if isinstance(sizes, int) else list(sizes)
        rng, fresh = np.random.default_rng([_ROWS, seed]), np.random.default_rng([_TEST, seed])
        shards = [self._rows(rng, n, U, v) for n, v in zip(counts, V, strict=True)]
        return Split(shards, U, V), [self._rows(fresh, test, U, v) for v in V]

    def summaries(self, sizes: Sequence[int], seed: int) -> Split:
        """As `draw`, but d rows a client whose S_i is distributed as that of n_i rows, n_i >= d: Bartlett's Wishart."""
        U, V = self._spaces(np.random.default_rng([_SPACES, seed]))
        rng, shards = np.random.default_rng([_ROWS, seed]), []
        for n, v in zip(sizes, V, strict=True):
            A = np.tril(rng.standard_normal((self.d, self.d)), -1) + np.diag(
                np.sqrt(rng.chisquare(n - np.arange(self.d)))
            )
            root = np.linalg.cholesky(self.shared * U @ U.T + self.own * v @ v.T + self.noise * np.eye(self.d))
            shards.append((root @ A).T * np.sqrt(self.d / n))
        return Split(shards, U, V)

    def _spaces(self, rng: np.random.Generator) -> tuple[Array, list[Array]]:
        if self.axes is not None:
            eye = np.eye(self.d)
            own = [[self.r1 + (i + j) % self.axes for j in range(self.r2)] for i in range(self.clients)]
            return eye[:, : self.r1], [eye[:, columns] for columns in own]
        Q = np.linalg.qr(rng.standard_normal((self.d, self.d)))[0]
        U, rest = Q[:, : self.r1], Q[:, self.r1 :]
        turns = (np.linalg.qr(rng.standard_normal((self.d - self.r1, self.r2)))[0] for _ in range(self.clients))
        return U, [rest @ turn for turn in turns]

    def _rows(self, rng: np.random.Generator, n: int, U: Array, V: Array) -> Array:
        parts = [np.sqrt(self.shared) * rng.standard_normal((n, self.r1)) @ U.T]
        parts.append(np.sqrt(self.own) * rng.standard_normal((n, self.r2)) @ V.T)
        return np.asarray(sum(parts) + np.sqrt(self.noise) * rng.standard_normal((n, self.d)))


def two_planes(theta: float, seed: int, n: int = 1000, shared: float = 1.0, own: float = 4.0) -> Split:
    """The paper's Fig. 3: d = 3, u = e_3, v = (cos a, +-sin a, 0) with sin^2 a = theta; no noise."""
    rng, c, s = np.random.default_rng([_ROWS, seed]), np.sqrt(1.0 - theta), np.sqrt(theta)
    U, V = np.array([[0.0], [0.0], [1.0]]), [np.array([[c], [sign * s], [0.0]]) for sign in (1.0, -1.0)]
    scale = np.sqrt([shared, own])
    return Split([(rng.standard_normal((n, 2)) * scale) @ np.hstack([U, v]).T for v in V], U, V)


def halves(clients: int, n: int) -> list[int]:
    """Half the clients with n rows, half with n // 10."""
    return [n] * (clients // 2) + [max(n // 10, 1)] * (clients - clients // 2)


def theta(V: Sequence[Array]) -> float:
    """1 - lambda_max(mean_i P_i), P_i the projection on the span of V_i: 0 if shared and own cannot be told apart."""
    stack = np.hstack(list(V)) / np.sqrt(len(V))
    return 1.0 - float(np.linalg.norm(stack, 2) ** 2) if stack.shape[1] else 1.0


def error(split: Split, U: Array, V: Sequence[Array]) -> tuple[float, float]:
    """||P_U - P||_F^2 of the shared components, and its mean over clients of the own ones."""
    own = [_distance(v, true) for v, true in zip(V, split.V, strict=True)]
    return _distance(U, split.U), float(np.mean(own))


def _distance(A: Array, B: Array) -> float:
    outside = np.linalg.norm(A - B @ (B.T @ A)) ** 2 + np.linalg.norm(B - A @ (A.T @ B)) ** 2
    return float(outside)
