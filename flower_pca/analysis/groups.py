"""Compare clients after a personalized run: how similar they are, their groups, and the parts of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.personal.closing import OWN
from flower_pca.base import checks, errors
from flower_pca.base.linalg import Array, eigh_descending
from flower_pca.base.shown import brief
from flower_pca.results.personal import PersonalResult

_REPEATS: Final = 20  # starts of k-means


def distances(own: Sequence[Array]) -> Array:
    """Return rho_ij = ||P_i - P_j||_F / sqrt(r_i + r_j), from 0 to 1. P_i projects onto client i's own components.

    Parameters
    ----------
    own : sequence of ndarray
        The own components of each client as orthonormal rows (r_i, d), such as `result.local_components_of` gives them.

    Returns
    -------
    ndarray
        The matrix of all pairs, (N, N).
    """
    own = [np.atleast_2d(np.asarray(rows, dtype=np.float64)) for rows in own]
    if not own or len({rows.shape[1] for rows in own}) != 1:
        widths = sorted({rows.shape[1] for rows in own})
        wrong = "There are no own components"
        if own:
            wrong = (
                f"The own components of clients have different numbers of features, {' and '.join(map(str, widths))}"
            )
        raise errors.DataError(f"{wrong}. Give the local components of the clients of one run.")
    ranks = np.array([len(rows) for rows in own])
    ends = np.repeat(np.arange(len(own)), ranks)
    belongs = (ends[:, None] == np.arange(len(own))).astype(np.float64)
    stack = np.vstack(own)
    common = belongs.T @ (stack @ stack.T) ** 2 @ belongs
    both = ranks[:, None] + ranks[None, :]
    # Two clients without own components are at distance 0.
    squares = (both - 2.0 * common) / np.maximum(both, 1)
    # Rounding makes the diagonal nonzero and the matrix unsymmetric.
    squares = (squares + squares.T) / 2.0
    np.fill_diagonal(squares, 0.0)
    return np.asarray(np.sqrt(np.clip(squares, 0.0, 1.0)))


def embed(rho: Array, *, dimensions: int = 2) -> Array:
    """Return points, (N, dimensions), whose distances approximate rho: classical multidimensional scaling.

    They are the leading eigenvectors of -J rho^2 J / 2, J = I - 11'/N, scaled by the roots of their eigenvalues.
    """
    rho = _square(rho)
    checks.integer("dimensions", dimensions, least=1, most=len(rho))
    B = rho**2
    B = B - B.mean(axis=0) - B.mean(axis=1)[:, None] + B.mean()
    values, vectors = eigh_descending(-B / 2.0)
    # If no points have these distances, some eigenvalues are negative.
    return np.asarray(vectors[:, :dimensions] * np.sqrt(np.maximum(values[:dimensions], 0.0)))


def clusters(rho: Array, n_clusters: int, *, seed: int = 0) -> Array:
    """Return the group of each client, (N,), by spectral clustering. Needs scikit-learn.

    The affinity is (1 - rho^2)^2 without its diagonal, normalized on both sides. k-means groups the rows of its leading
    eigenvectors after scaling them to length 1 (Ng, Jordan, Weiss 2002).
    """
    rho = _square(rho)
    checks.integer("n_clusters", n_clusters, least=1, most=len(rho))
    with errors.requires("scikit-learn", "to cluster"):
        from sklearn.cluster import KMeans
    A = (1.0 - rho**2) ** 2
    np.fill_diagonal(A, 0.0)
    degrees = A.sum(axis=1)
    # A client that has nothing in common with any other client has degree 0.
    root = np.sqrt(np.maximum(degrees, np.finfo(float).tiny))
    rows = eigh_descending(A / np.outer(root, root))[1][:, :n_clusters]
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(KMeans(n_clusters, n_init=_REPEATS, random_state=seed).fit(rows).labels_)


def _square(rho: Array) -> Array:
    rho = np.asarray(rho, dtype=np.float64)
    if rho.ndim != 2 or rho.shape[0] != rho.shape[1] or not np.allclose(rho, rho.T, atol=1e-12):
        raise errors.ConfigError(
            f"rho, of shape {rho.shape}, is not a symmetric matrix. Pass what `distances` returns."
        )
    return rho


@dataclass(frozen=True)
class Shares:
    """The mean squares of clients' rows in the frame, split into shared + own + rest, each (N,).

    Attributes
    ----------
    clients : list of int
        The keys of the clients whose own components are known.
    shared, own, rest : ndarray
        Along the shared components, along the client's own ones, and along neither.
    """

    clients: list[int]
    shared: Array
    own: Array
    rest: Array

    __repr__ = brief

    @property
    def without(self) -> Array:
        """The reconstruction error with the shared components alone."""
        return np.asarray(self.own + self.rest)


def clients_at_hand(result: PersonalResult, shards: Sequence[Any] | None) -> list[int]:
    """Return the clients whose rows and own components are at hand."""
    return [i for i in sorted(result.local) if OWN in result.local[i] and shards is not None and i < len(shards)]


def shares(result: PersonalResult, shards: Sequence[Any] | None) -> Shares | None:
    """Return the parts of the clients' rows if rows and own components are at hand, else None."""
    clients = clients_at_hand(result, shards)
    if shards is None or not clients:
        return None
    shared = np.array([np.mean(np.sum(result.transform(shards[i]) ** 2, axis=1)) for i in clients])
    without = np.array([result.reconstruction_error(shards[i]) for i in clients])
    rest = np.array([result.reconstruction_error(shards[i], client=i) for i in clients])
    return Shares(clients, shared, np.maximum(without - rest, 0.0), rest)


def spaces(result: PersonalResult) -> tuple[Sequence[str | int], list[Array]]:
    """Return the clients with known own components, and these components.

    Clients are named by key. If nodes have sent their own components, they come in the order of the nodes without keys,
    and are named "node 1" and so on.
    """
    if result.local:
        return sorted(result.local), [result.local_components_of(i) for i in sorted(result.local)]
    sent = [rows[np.abs(rows).max(axis=1) > 0.0] for rows in result.collected_]
    numbered = enumerate(sent)
    known = {f"node {j + 1}": rows for j, rows in numbered if len(rows)}
    return list(known), list(known.values())
