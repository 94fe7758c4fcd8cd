"""Median PCA: the geometric median of the clients' subspaces, which a minority of bad clients cannot move far.

No step sums over clients. The opening computes medians of centers and scales (`stages.weighing`), the
algorithm computes the geometric median of projections, and the closing stage computes medians of variances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from flower_pca.algorithms.one_shot import Average, OneShotState
from flower_pca.base import linalg
from flower_pca.base.history import ANSWERED, Outcome, Status
from flower_pca.base.linalg import Array, median_of_points, median_of_spans, weighted_median
from flower_pca.core.kinds import BLOCK, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model, Weights
from flower_pca.core.stage import Arrays, Merge, Stack, Stage, stack_answer
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class MedianState(OneShotState):
    """The state of the server: the fields of `OneShotState`, the clients' weights and their median angle.

    Attributes
    ----------
    counted : Weights
        The weight of each client, by its key.
    spread : float
        The weighted median over clients of the largest principal angle between a client's subspace and the result.
    """

    counted: Weights = field(default_factory=Weights)
    spread: float = np.inf


@dataclass(frozen=True, kw_only=True)
class MedianPCA(Average):
    """Compute components that most clients agree on, even if a few clients are wrong or dishonest.

    Each client i sends its own top k eigenvectors V_i. The server computes the geometric median of the
    projections, M = argmin_M sum_i ||V_i V_i' - M||, by Weiszfeld's algorithm. M is a weighted mean
    sum_i a_i V_i V_i'. Each step of Weiszfeld's algorithm needs only the inner products ||V_i'V_j||_F^2
    of the clients, or M itself if d is smaller than the number of clients.

    If all bad clients send the same direction, M contains a part of it, although most clients do not
    have this direction. Therefore the server computes the 2 k leading eigenvectors u of M, and selects
    the k eigenvectors with the largest median of ||V_i'u||^2. All clients have the same weight. With the
    option `max_share` of a run, a client's weight is its share of the rows, but at most `max_share`.

    Reference: Singh and Vaswani, "Byzantine-resilient federated PCA and low rank column-wise
    sensing", IEEE Trans. Inf. Theory 2024 (the subspace median); Weiszfeld 1937; Minsker,
    "Geometric median and robust estimation in Banach spaces", Bernoulli 2015.
    Cost: one local eigenproblem. Each of N clients sends p columns of d floats. The server keeps all
    answers, and needs O(d^2 N p) flops for each step of Weiszfeld's algorithm, or O(d N^2 p^2) flops
    once if there are at most d clients.
    Prefer it: if up to two fifths of the clients may be wrong or dishonest, and every client has
    enough rows to find the components alone.

    Parameters
    ----------
    oversample : int, default=0
        Columns that clients send beyond the number of components.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import MedianPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((200, 4)) * [6, 1, 1, 1] for _ in range(5)]
    >>> sites[4] *= [1, 1, 1, 90]  # a site with a broken column
    >>> result = simulate(MedianPCA(), sites, n_components=1)
    >>> print(np.abs(result.components_).argmax())
    0
    """

    name: ClassVar[str] = "median_pca"
    by_medians: ClassVar[bool] = True
    pooled: ClassVar[bool] = False
    State: ClassVar[type] = MedianState

    def start(self, model: Model) -> MedianState:
        width = model.columns.shape[1]
        return MedianState(width, width, counted=model.counted or Weights())

    def merging(self, state: OneShotState) -> Merge:
        return stack_answer

    def server(self, state: OneShotState, total: Stack, answered: frozenset[int]) -> MedianState:
        assert isinstance(state, MedianState)
        weights = state.counted.weights_of(total)
        stack, bases = _side_by_side(total)
        a = median_of_spans(bases, weights, stack)
        # M is the product of this matrix and its transpose.
        weighted = stack * np.repeat(np.sqrt(a), [V.shape[1] for V in bases])
        U = linalg.leading_left_vectors(weighted, min(2 * state.width, len(stack)), overwrite=True)
        inside = np.stack([((V.T @ U) ** 2).sum(axis=0) for V in bases])
        # A stable sort keeps ties in the order of the eigenvalues of M.
        order = np.argsort(-weighted_median(inside, weights), kind="stable")
        # The closing stage computes the gap in the spectrum from one additional direction.
        Z = np.ascontiguousarray(U[:, order[: state.width + 1]])
        found = Z[:, : state.width]
        # If the rows of a client do not vary, the client sends no column, and its angle counts as 0.
        angles = [linalg.principal_angles(found, V).max(initial=0.0) for V in bases]
        return replace(state, Z=Z, spread=float(weighted_median(np.array(angles), weights)))

    def status(self, state: OneShotState) -> Status | None:
        if state.Z is None:
            return None
        assert isinstance(state, MedianState)
        return Status(
            Outcome.DONE,
            "done in one round: the components of half of the clients lie within "
            f"{np.rad2deg(state.spread):.2g} degrees of the result",
        )


def _side_by_side(answers: Stack) -> tuple[Array, list[Array]]:
    """Return one matrix with the bases of all clients side by side, and its parts. The answers are removed one by one.

    So the bases are in memory only once.
    """
    widths = [reply["V"].shape[1] for reply in answers.values()]
    first = next(iter(answers.values()))["V"]
    kinds = {reply["V"].dtype for reply in answers.values()}
    stack: Array = np.empty((len(first), sum(widths)), dtype=np.result_type(*kinds))
    del first
    parts = np.split(stack, np.cumsum(widths)[:-1], axis=1)
    for client, part in zip(list(answers), parts, strict=True):
        part[:] = answers.pop(client)["V"]
    return stack, parts


@dataclass(frozen=True)
class MedianVariancesState:
    """The state of the closing stage.

    Attributes
    ----------
    Z : ndarray
        The basis, with one additional column if the algorithm has found one.
    width : int
        The number of columns of the basis.
    counted : Weights
        The weight of each client, by its key.
    weights : ndarray or None
        The weights of the clients that answered, or None before the answers.
    moments : ndarray or None
        Z'C_iZ / n_i of each client, or None before the answers.
    Y : ndarray or None
        The geometric median of C_iZ / n_i, or None before the answers.
    """

    Z: Array
    width: int
    counted: Weights
    weights: Array | None = None
    moments: Array | None = None
    Y: Array | None = None


@dataclass(frozen=True, kw_only=True)
class MedianVariances(Stage[MedianVariancesState]):
    """Order the components by the median of the clients' variances along each component, and report this median.

    The components are rotated within their span to the Ritz vectors that follow from the geometric median
    of C_i Z / n_i. The residuals show how far the span is from an eigenspace of this median.
    The total variance is the sum of the medians of columns, or the sum of the medians along the components if
    that is larger.

    Cost: 4 n_i d (p + 1) flops on a client, and p + 1 columns of d floats each way, once. The server
    keeps all answers.
    """

    name: ClassVar[str] = "medians"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK}
    fixed_set: ClassVar[bool] = True
    products_only: ClassVar[bool] = True

    def start(self, model: Model) -> MedianVariancesState:
        known = [model.columns]
        if model.beside is not None:
            known.append(model.beside)
        weights = model.counted or Weights()
        return MedianVariancesState(np.hstack(known), model.columns.shape[1], weights)

    def broadcast(self, state: MedianVariancesState) -> Arrays:
        return {"Z": state.Z}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"n": ROWS, "Y": Part(arrays["Z"].shape, Kind.PRODUCT)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"n": np.array(data.n), "Y": data.matmat(arrays["Z"])}, memory

    def merging(self, state: MedianVariancesState) -> Merge:
        return stack_answer

    def server(self, state: MedianVariancesState, total: Stack, answered: frozenset[int]) -> MedianVariancesState:
        weights = state.counted.weights_of(total)
        kinds = {reply["Y"].dtype for reply in total.values()}
        images: Array = np.empty((len(total), *state.Z.shape), dtype=np.result_type(*kinds))
        for client, image in zip(list(total), images, strict=True):
            reply = total.pop(client)  # So the answers are in memory only once.
            image[:] = reply["Y"] / float(reply["n"])
        flat = images.reshape(len(images), -1)
        Y = np.tensordot(median_of_points(flat, weights), images, axes=1)
        return replace(state, weights=weights, moments=state.Z.T @ images, Y=Y)

    def status(self, state: MedianVariancesState) -> Status | None:
        if state.Y is None:
            return None
        return ANSWERED

    def finish(self, state: MedianVariancesState, model: Model) -> Model:
        assert state.Y is not None
        assert state.moments is not None
        assert state.weights is not None
        p, n = state.width, model.n
        span = state.Z[:, :p]
        image = state.Y[:, :p]
        _, Z, Y, residuals = linalg.rayleigh_ritz(span, image)
        turn = span.T @ Z
        # Each row of `own` contains the variances of one client along Z.
        own = np.einsum("ji,njk,ki->ni", turn, state.moments[:, :p, :p], turn)
        # Rounding may make a variance of 0 negative.
        values = np.maximum(weighted_median(own, state.weights), 0.0)
        order = np.argsort(-values, kind="stable")
        # The medians belong to means over a client's rows, but a model holds sums over all rows.
        Z, Y = (np.ascontiguousarray(a[:, order]) for a in (Z, n * Y))
        values = n * values[order]
        residuals = n * residuals[order]
        known = replace(model, basis=Z, product=Y, values=values, residuals=residuals)
        # Medians along components may add up to more than the medians of columns.
        known = replace(known, trace=max(model.trace, float(values[: known.k].sum())))
        following: float | None = None
        if known.k < p:
            following = float(values[known.k])
        elif state.Z.shape[1] > p:
            following = float(n * weighted_median(state.moments[:, p, p], state.weights))
        return replace(known, next_value=following)
