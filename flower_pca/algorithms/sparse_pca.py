"""Sparse PCA by the truncated power method. Each component uses only a few columns, so it is easy to interpret."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Iterative, Progress
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, AsksForProduct

# A deflated product that is shorter than this share of the first variance is only rounding error.
_NOTHING = 1e-12


@dataclass(frozen=True)
class SparseState:
    """The state of the server: the block to send next, and the latest vectors Z with their product Y = C Z.

    A round keeps `most` columns of each component, if this is more than requested. `most` is halved in
    every round. Y is None if the product of Z is not known yet.
    """

    block: Array
    Z: Array
    Y: Array | None
    most: int
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class SparsePCA(AsksForProduct, Iterative[SparseState]):
    """Compute components that use only a few columns each.

    In each round, the server deflates each component by the earlier components, and keeps the largest
    entries of C x, for all components at once.

    Component j is a local maximum of x'P C P x over unit vectors x with at most `cardinality` nonzero
    entries. P removes the span of the earlier components. With this orthogonalized projection deflation,
    no variance becomes negative although components are not orthogonal (Mackey 2008). P x lies in the
    span of the block, so the products of one message are enough for all deflations. The first round
    keeps all columns, and each further round keeps half as many as the round before, down to
    `cardinality`. This leads to a better choice of columns.

    `explained_variance_` of a component is the variance that it adds to the span of the earlier components.

    Reference: Yuan and Zhang 2013, Truncated power method for sparse eigenvalue problems; Mackey
    2008, Deflation methods for sparse PCA; Shen and Huang 2008 on variances of components that are
    not orthogonal.
    Cost per round: 4 n_i d k flops on a client, k columns of d floats each way, and 2 d k^2 flops on
    the server.
    Prefer it: if each component should consist of a few columns, so that it is easy to interpret,
    and may explain a little less variance.

    Parameters
    ----------
    cardinality : int or tuple of int, default=10
        Maximum number of columns that a component may use: one number, or a number for each component.
    oversample : int, default=2
        Number of additional columns in the first message, beyond `n_components`. They lead to a better first block.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds. The error is a component's residual
        in its own columns.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import SparsePCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(SparsePCA(cardinality=2), sites, n_components=2)
    >>> print((result.components_ != 0).sum(axis=1))
    [2 2]
    """

    name: ClassVar[str] = "sparse_pca"
    fixed_set: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    orthonormal: ClassVar[bool] = False
    quantity: ClassVar[str] = "largest residual in a component's own columns relative to the first variance"

    cardinality: int | tuple[int, ...] = 10
    oversample: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.cardinality
        if not isinstance(sizes, tuple):
            sizes = (sizes,)
        for number in sizes:
            checks.integer(f"cardinality of {self.name}", number, least=1)

    def width(self, n_components: int | float) -> int:
        if not isinstance(n_components, int):
            raise ConfigError(
                f"{option('n_components')} of {self.name} is {shown(n_components)}, but it must be a whole number. "
                "Give a number of components.",
                setting="n_components",
                value=n_components,
            )
        if isinstance(self.cardinality, tuple) and len(self.cardinality) != n_components:
            raise ConfigError(
                f"cardinality of {self.name} has {len(self.cardinality)} numbers, but n_components is {n_components}. "
                "Give one number, or a number for each component.",
                setting="cardinality",
                value=self.cardinality,
            )
        return super().width(n_components)

    def restart(self, model: Model) -> Array:
        """Return a block of the present components and random columns.

        The components stay unchanged, so that a run that ends early is no worse.
        """
        Z = model.columns[:, : model.k]
        noise = linalg.random_block(len(Z), self.oversample, model.seed + model.restarts + 1)
        return np.hstack([Z, noise / np.sqrt(len(Z))])

    def start(self, model: Model) -> SparseState:
        Z, most = model.columns, model.d
        if model.warm:
            # In a warm start, the components already use few columns, so the first round need not keep all columns.
            most = 0
        wanted = Z[:, : model.k]
        begun = SparseState(wanted, wanted, None, most, Progress.begin(self.tol, model))
        if model.product is None:
            return begun
        _, Z, Y, _ = linalg.rayleigh_ritz(Z, model.product)
        started = replace(begun, block=Z[:, : model.k])
        return self._state_after_product(started, Y[:, : model.k], rounds=0)

    def broadcast(self, state: SparseState) -> Arrays:
        return {"Z": state.block}

    def server(self, state: SparseState, total: Arrays, answered: frozenset[int]) -> SparseState:
        return self._state_after_product(state, total["Y"], rounds=1)

    def finish(self, state: SparseState, model: Model) -> Model:
        Z, Y = state.Z, state.Y
        # If the run has ended early, components may still have more columns than requested.
        if Y is None or (np.count_nonzero(Z, axis=0) > self._column_counts(Z)).any():
            Z, Y = keep_largest(state.block, self._column_counts(Z)), None
            Z = Z / linalg.column_norms(Z)
        return replace(model, basis=Z, product=Y)

    def _column_counts(self, Z: Array) -> Array:
        each = np.broadcast_to(self.cardinality, Z.shape[1])
        return np.asarray(np.minimum(each, len(Z)))

    def _state_after_product(self, state: SparseState, Y: Array, *, rounds: int) -> SparseState:
        """Return the state after the product of C and the block has arrived."""
        X = state.block
        sizes = np.maximum(self._column_counts(Y), state.most)
        G, variances = deflate(X, Y)
        step = keep_largest(G, sizes)
        first = max(float(variances[0]), np.finfo(float).tiny)
        error = np.inf
        if state.most <= self._column_counts(Y).max():
            # In earlier rounds, components have more columns than requested, so their residuals are not residuals of
            # the requested components.
            error = float(linalg.column_norms(step - X * variances).max()) / first
        lengths = linalg.column_norms(step)
        # A component is gone if the earlier components leave no variance for it.
        gone = lengths <= _NOTHING * first
        # np.where evaluates both branches, so neither may divide by 0.
        block = np.where(gone, keep_largest(X, sizes), step / np.where(gone, 1.0, lengths))
        # The columns from `keep_largest` are shorter than 1, so they are scaled again.
        block = block / linalg.column_norms(block)
        progress = state.progress.step(error, rounds=rounds)
        return replace(state, block=block, Z=X, Y=Y, most=state.most // 2, progress=progress)


def deflate(X: Array, Y: Array) -> tuple[Array, Array]:
    """Return the deflated products P_j C P_j x_j of the columns x_j of X, and the variances x_j'P_j C P_j x_j.

    P_j removes the span of the columns before x_j, and Y is C X.
    """
    G, variances = np.empty_like(Y), np.empty(X.shape[1])
    for j in range(X.shape[1]):
        before = X[:, :j]
        # The earlier components are not orthogonal, and may be linearly dependent.
        inverse = np.linalg.pinv(before)
        product = Y[:, j] - Y[:, :j] @ (inverse @ X[:, j])
        G[:, j] = product - before @ (inverse @ product)
        variances[j] = X[:, j] @ G[:, j]
    return G, variances


def keep_largest(G: Array, sizes: Array) -> Array:
    """Return G with all entries set to 0, except the largest `sizes[j]` entries of each column j.

    If several entries have the same absolute value, the first of them are kept.
    """
    sparse = np.zeros_like(G)
    for j, size in enumerate(sizes):
        entries = np.abs(G[:, j])
        places = np.argsort(-entries, kind="stable")[:size]
        sparse[places, j] = G[places, j]
    return sparse
