"""FAPS and LocalPower with all clients of a problem in one, whose products are one batched call.

A client of 128 with a few hundred leading columns spends most of its time between products, and a run of FAPS has
thousands of messages. The rows of all clients, condensed to as many as there are columns each, lie in one shard here
(`joined`); the server's half is the package's own, and so is the opening. `tests/test_sims.py` holds both against runs
of as many clients as there are: their errors agree to rounding.

Every client's blocks are kept in the eigenvectors of its own X'X, where a product is one by each eigenvalue: the many
of a round cost next to nothing beside the two that turn its block into every client's eigenvectors and back. Blocks
are stacks, one for each client; a block of d x p lies as its p columns in rows, which is how products are fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

import numpy as np

from flower_pca import FAPS, LocalPower, make, registry
from flower_pca.algorithms.faps import PaperRule
from flower_pca.base import linalg
from flower_pca.core.stage import Arrays
from sims.common import problems
from sims.common.problems import Array

_CACHED: Final = 2**18  # bytes of the blocks of clients that are iterated at a time
_MANY: Final = 1000  # products that a run makes of all rows: their X'X pays


def joined(problem: problems.Problem) -> problems.Problem:
    """The same problem with the rows of all clients in one shard; each has as many as there are columns."""
    (n,) = {len(X) for X in problem.shards}
    if n > problem.d:
        raise ValueError("only condensed rows can be joined")
    rest = np.zeros((problem.d - n, problem.d))
    return replace(problem, shards=[np.vstack([part for X in problem.shards for part in (X, rest)])])


@contextmanager
def known(algorithm: str) -> Iterator[FAPS | LocalPower]:
    """The algorithm for joined problems, which clients know meanwhile."""
    given = make(algorithm)
    kind = {"faps": BatchedFAPS, "local_power": BatchedLocalPower}[given.name]
    registry.STAGES[kind.name] = kind
    try:
        yield kind(**vars(given))
    finally:
        del registry.STAGES[kind.name]


@dataclass(frozen=True, kw_only=True)
class BatchedLocalPower(LocalPower):
    """LocalPower, whose one client answers with the aligned sum."""

    name: ClassVar[str] = "batched_local_power"

    @staticmethod
    def client(arrays: Arrays, data: problems.Rows, memory: Arrays) -> tuple[Arrays, Arrays]:
        """The sum of all clients' answers, aligned with the first one's."""
        if not arrays["aligned"]:
            assert arrays["steps"] == 1
            return {"Y": data.matmat(arrays["Z"], reuse=_MANY), "n": np.array(data.n)}, memory
        own = Eigen.of(data, memory)
        X = own.turned(arrays["Z"])
        for _ in range(int(arrays["steps"]) - 1):
            X = _orth(X * own.values)
        plain = own.each_back(X)
        base = plain[0]
        U, _, Vt = np.linalg.svd(plain @ base.T)
        turns = _turned(U @ Vt)
        return {"Y": own.back(turns @ (X * own.values)).T, "n": np.array(data.n), "X": base.T}, own.kept


@dataclass(frozen=True, kw_only=True)
class BatchedFAPS(FAPS):
    """FAPS, whose one client keeps the blocks of all, and answers with their sum."""

    name: ClassVar[str] = "batched_faps"

    @staticmethod
    def client(arrays: Arrays, data: problems.Rows, memory: Arrays) -> tuple[Arrays, Arrays]:
        """The sum of all clients' answers; their blocks and penalties are the memory."""
        own, steps = Eigen.of(data, memory), int(arrays["inner_steps"])
        Z = own.turned(arrays["Z"])
        assert not arrays["inner_tol"]
        assert not arrays.get("guard", 0.0)
        if "guard" in arrays:
            return _measured(Z, own, memory, steps)
        return _paper(Z, own, memory, steps, PaperRule.from_message(arrays))


@dataclass(frozen=True)
class Eigen:
    """Every client's X'X: its eigenvalues, and its eigenvectors in rows."""

    values: Array  # (clients, 1, d)
    vectors: Array  # (clients, d, d)

    @classmethod
    def of(cls, data: problems.Rows, memory: Arrays) -> Eigen:
        """Kept, or found."""
        if "vectors" in memory:
            return cls(memory["values"], memory["vectors"])
        X = np.concatenate(list(data.rows())).reshape(-1, data.d, data.d)
        values, vectors = np.empty((len(X), 1, data.d)), np.empty(X.shape)
        for i, part in enumerate(X):
            values[i, 0], Q = np.linalg.eigh(part.T @ part)
            vectors[i] = Q.T
        return cls(values, vectors)

    @property
    def kept(self) -> Arrays:
        """As a client's memory."""
        return {"values": self.values, "vectors": self.vectors}

    def turned(self, Z: Array) -> Array:
        """One block in every client's eigenvectors."""
        m, d, _ = self.vectors.shape
        return np.ascontiguousarray((Z.T @ self.vectors.reshape(m * d, d).T).reshape(-1, m, d).swapaxes(0, 1))

    def back(self, V: Array) -> Array:
        """The sum of blocks that are in clients' eigenvectors, as one block of columns in rows."""
        m, d, _ = self.vectors.shape
        return np.asarray(V.swapaxes(0, 1).reshape(-1, m * d) @ self.vectors.reshape(m * d, d))

    def each_back(self, V: Array) -> Array:
        """Every client's block by itself."""
        return np.asarray(V @ self.vectors)

    def largest(self) -> list[float]:
        """Every client's largest eigenvalue, as roughly as a client of its own tells it."""
        pairs = [(values.T, vectors) for values, vectors in zip(self.values, self.vectors, strict=True)]
        return [linalg.largest_eigenvalue(partial(_times, *pair), self.values.shape[2], 10) for pair in pairs]


def _paper(Z: Array, own: Eigen, memory: Arrays, steps: int, rule: PaperRule) -> tuple[Arrays, Arrays]:
    """A round by the paper's penalties."""
    X = memory.get("X", Z)
    W = memory.get("W")
    if W is None:
        W = _outside(Z, Z * own.values)[0]
    beta = memory.get("beta")
    if beta is None:
        beta = rule.beta_0 * np.array(own.largest())
    apart = np.sqrt(2.0) * np.linalg.norm(X - (X @ _turned(Z)) @ Z, axis=(1, 2))
    distances = np.column_stack([memory.get("distances", np.empty((len(beta), 0))), apart])
    if distances.shape[1] > 5:  # `PaperRule.next_penalty`, of all
        beta = np.where(distances[:, -1] > distances[:, 0] / (1.0 + rule.mu), (1.0 + rule.theta) * beta, beta)
        distances = distances[:, -1:]
    B = beta[:, None, None]
    V = _inner(X, W, Z, B * np.eye(Z.shape[1]), own.values, steps)
    W, _ = _outside(V, V * own.values)
    along = Z @ _turned(V)  # Z'V
    Y = B * (along @ V) - (Z @ _turned(W)) @ V - along @ W
    return {"Y": own.back(Y).T}, {**own.kept, "X": V, "W": W, "beta": beta, "distances": distances}


def _measured(Z: Array, own: Eigen, memory: Arrays, steps: int) -> tuple[Arrays, Arrays]:
    """A round by measured penalties, as at the head of `flower_pca.algorithms.faps`."""
    X, W, v = (memory.get(name) for name in ("X", "W", "v"))
    if X is None:
        p, d = Z.shape[1:]
        X, (W, _) = Z, _outside(Z, Z * own.values)
        v = own.turned(linalg.random_basis(d, min(4, d - p), seed=0))
    v = _orth(_beside(v, Z))
    for _ in range(2):
        v = _orth(_beside(_beside(v, Z) * own.values, Z))
    v = _beside(v, Z)
    image = _beside(v * own.values, Z)
    values, ritz = np.linalg.eigh(_symmetric(image @ _turned(v)))
    d_outside = np.maximum(values[:, -1], 0.0)[:, None]
    v = _orth(_turned(ritz) @ image)
    a, Q = np.linalg.eigh(_symmetric((Z * own.values) @ _turned(Z)))
    a = np.maximum(a, 0.0)
    unlike = np.maximum(0.0, 1.0 - a[:, :1] / d_outside)
    t = 0.15 + 0.6 * unlike
    hold = np.maximum(t * a, (2.0 + 2.0 * unlike) * (d_outside - a))
    B = (Q * hold[:, None]) @ _turned(Q)
    V = _inner(X, W, Z, B, own.values, steps)
    W, A = _outside(V, V * own.values)
    along = Z @ _turned(V)
    Y = t[:, :, None] * ((along @ A) @ V) - (Z @ _turned(W)) @ V - along @ W
    return {"Y": own.back(Y).T}, {**own.kept, "X": V, "W": W, "v": v}


def _inner(X: Array, W: Array, Z: Array, B: Array, values: Array, steps: int) -> Array:
    """The inner problem: orth(C V + X W'V + W X'V + Z B Z'V), so many times from X.

    A few clients take all of their steps before the next ones, so that their blocks stay in the processor's cache. With
    128 clients of 1,000 columns, this takes less than half of the time.
    """
    found = np.empty_like(X)
    few = max(_CACHED // X[0].nbytes, 1)
    for i in range(0, len(X), few):
        s = slice(i, i + few)
        found[s] = _inner_of_few(X[s], W[s], Z[s], B[s], values[s], steps)
    return found


def _inner_of_few(X: Array, W: Array, Z: Array, B: Array, values: Array, steps: int) -> Array:
    V, p = X, X.shape[1]
    spanned = np.concatenate([X, W, Z], axis=1)
    for _ in range(steps):
        x, w, z = np.split(V @ _turned(spanned), [p, 2 * p], axis=2)
        V = _orth(V * values + np.concatenate([w, x, z @ B], axis=2) @ spanned)
    return V


def _outside(V: Array, CV: Array) -> tuple[Array, Array]:
    """-(I - VV')CV, and V'CV."""
    A = CV @ _turned(V)
    return A @ V - CV, A


def _beside(V: Array, Z: Array) -> Array:
    V = V - (V @ _turned(Z)) @ Z
    return np.asarray(V - (V @ _turned(Z)) @ Z)


def _orth(H: Array) -> Array:
    """Orthonormal bases, by Cholesky: these blocks are products with orthonormal ones, and far from dependent."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(H @ _turned(H))) @ H)


def _turned(V: Array) -> Array:
    return V.transpose(0, 2, 1)


def _symmetric(H: Array) -> Array:
    return 0.5 * (H + _turned(H))


def _times(values: Array, vectors: Array, Z: Array) -> Array:
    return np.asarray(vectors.T @ (values * (vectors @ Z)))
