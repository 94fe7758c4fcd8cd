"""Compare clients after a personalized run: distances between components, groups, and the parts of their rows.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.analysis import groups
>>> rng = np.random.default_rng(0)
>>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 4, 0.1]]  # all share the first direction
>>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
>>> result = simulate("exact_per_pca(local_components=1)", sites, n_components=1)
>>> keys, own = groups.local_bases(result)
>>> groups.clusters(groups.distances(own), 2).tolist()  # the last two clients are alike
[1, 0, 0]
"""

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

_REPEATS: Final = 20  # number of random starts of k-means


def distances(own: Sequence[Array]) -> Array:
    """Return rho_ij = ||P_i - P_j||_F / sqrt(r_i + r_j), from 0 to 1, where P_i projects onto client i's components.

    Parameters
    ----------
    own : sequence of ndarray
        The local components of each client as orthonormal rows, (r_i, d), as `result.local_components_of` returns them.

    Returns
    -------
    ndarray
        The matrix of the distances between all clients, (N, N).
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
    # The maximum avoids a division by 0: two clients without local components have distance 0.
    squares = (both - 2.0 * common) / np.maximum(both, 1)
    # Rounding errors make the diagonal nonzero and the matrix asymmetric.
    squares = (squares + squares.T) / 2.0
    np.fill_diagonal(squares, 0.0)
    return np.asarray(np.sqrt(np.clip(squares, 0.0, 1.0)))


def embed(rho: Array, *, dimensions: int = 2) -> Array:
    """Return points, (N, dimensions), whose distances approximate rho: classical multidimensional scaling.

    The coordinates are the leading eigenvectors of -J rho^2 J / 2 with J = I - 11'/N, scaled by the square roots of
    their eigenvalues.
    """
    rho = _checked_distances(rho)
    checks.integer("dimensions", dimensions, least=1, most=len(rho))
    B = rho**2
    B = B - B.mean(axis=0) - B.mean(axis=1)[:, None] + B.mean()
    values, vectors = eigh_descending(-B / 2.0)
    # If no points have exactly these distances, some eigenvalues are negative.
    return np.asarray(vectors[:, :dimensions] * np.sqrt(np.maximum(values[:dimensions], 0.0)))


def clusters(rho: Array, n_clusters: int, *, seed: int = 0) -> Array:
    """Return the group of each client, (N,), by spectral clustering. Needs scikit-learn.

    The affinity matrix is (1 - rho^2)^2 with zeros on the diagonal, normalized on both sides. The leading eigenvectors
    of this matrix are the columns of another matrix, whose rows are scaled to length 1 and then grouped by k-means (Ng,
    Jordan, Weiss 2002).
    """
    rho = _checked_distances(rho)
    checks.integer("n_clusters", n_clusters, least=1, most=len(rho))
    with errors.requiring("scikit-learn", "to cluster"):
        from sklearn.cluster import KMeans
    A = (1.0 - rho**2) ** 2
    np.fill_diagonal(A, 0.0)
    degrees = A.sum(axis=1)
    # If a client's components are orthogonal to the components of all other clients, its degree is 0.
    root = np.sqrt(np.maximum(degrees, np.finfo(float).tiny))
    rows = eigh_descending(A / np.outer(root, root))[1][:, :n_clusters]
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(KMeans(n_clusters, n_init=_REPEATS, random_state=seed).fit(rows).labels_)


def _checked_distances(rho: Array) -> Array:
    rho = np.asarray(rho, dtype=np.float64)
    if rho.ndim != 2 or rho.shape[0] != rho.shape[1] or not np.allclose(rho, rho.T, atol=1e-12):
        raise errors.ConfigError(
            f"rho, of shape {rho.shape}, is not a symmetric matrix. Pass what `distances` returns."
        )
    return rho


@dataclass(frozen=True)
class Shares:
    """The mean squares of clients' rows in the frame, split into shared + own + rest.

    Attributes
    ----------
    clients : list of int
        The keys of the clients whose rows and local components are known.
    shared, own, rest : ndarray of shape (N,)
        The mean squares along the shared components, along the client's local components, and outside both.
    """

    clients: list[int]
    shared: Array
    own: Array
    rest: Array

    __repr__ = brief

    @property
    def without(self) -> Array:
        """The mean squared reconstruction error of each client's rows from the shared components only, (N,)."""
        return np.asarray(self.own + self.rest)


def clients_with_rows(result: PersonalResult, shards: Sequence[Any] | None) -> list[int]:
    """Return the keys of the clients whose rows and local components are known."""
    return [i for i in sorted(result.local) if OWN in result.local[i] and shards is not None and i < len(shards)]


def shares(result: PersonalResult, shards: Sequence[Any] | None) -> Shares | None:
    """Return the mean squares of the parts of clients' rows, or None if no client has known rows and components."""
    clients = clients_with_rows(result, shards)
    if shards is None or not clients:
        return None
    shared = np.array([np.mean(np.sum(result.transform(shards[i]) ** 2, axis=1)) for i in clients])
    without = np.array([result.reconstruction_error(shards[i]) for i in clients])
    rest = np.array([result.reconstruction_error(shards[i], client=i) for i in clients])
    return Shares(clients, shared, np.maximum(without - rest, 0.0), rest)


def local_bases(result: PersonalResult) -> tuple[Sequence[str | int], list[Array]]:
    """Return the clients whose local components are known, and these components.

    Clients are given by key if their local components are in `local`. Otherwise the components that nodes have sent are
    used, and the nodes are called "node 1" and so on, because their keys are not known.
    """
    if result.local:
        return sorted(result.local), [result.local_components_of(i) for i in sorted(result.local)]
    sent = [rows[np.abs(rows).max(axis=1) > 0.0] for rows in result.collected_]
    known = {f"node {number}": rows for number, rows in enumerate(sent, 1) if len(rows)}
    return list(known), list(known.values())
