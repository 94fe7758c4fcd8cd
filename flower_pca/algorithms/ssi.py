"""SSI: simultaneous subspace iteration, also called distributed power iteration.

`Averaging` is for runs in which different clients answer in each round. Because clients differ, a sum
of products C_i Z over some clients, scaled up to all rows, differs from the sum over all clients, C Z. An
iteration with such sums fluctuates and does not converge, but the average over rounds converges. Sums
and numbers of rows are averaged separately, because the mean of ratios is not the ratio of means. The
weight of a round falls with the number of rounds. The blocks still depend a little on the clients that
answered last, so the result is the average of the blocks. The server does not average as long as errors
fall, all clients answer, or the same clients answer in several rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Iterative, Progress, mixed_with_other_directions, ritz_step
from flower_pca.core.hidden import RandomTraces
from flower_pca.core.kinds import BLOCK, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

# The weight of the latest round is the smaller of _FIRST_WEIGHT and _LATER_WEIGHT / rounds.
_FIRST_WEIGHT, _LATER_WEIGHT = 0.5, 6.0
# If the error has not fallen for this many rounds, differences between clients are assumed to be the cause.
_STALE_ROUNDS = 3
# If the same clients have answered this many further rounds, no other clients are expected.
_SAME_ROUNDS = 2


@dataclass(frozen=True)
class Averaging:
    """The average of the clients' sums over rounds.

    Attributes
    ----------
    who : tuple of int
        The clients that answered in the last round.
    again : int
        The number of rounds in a row, before the last round, in which the same clients answered.
    rounds : int
        The number of rounds in the average.
    rows : float
        The mean number of rows of the answering clients.
    block : ndarray or None
        The average of the blocks, or None before the first block.
    """

    who: tuple[int, ...] = ()
    again: int = 0
    rounds: int = 0
    rows: float = 0.0
    block: Array | None = None

    def after_round(
        self, total: Arrays, answered: frozenset[int], *, known_product: Callable[[], Array] | None, n: int, stale: int
    ) -> tuple[Averaging, Array]:
        """Return the average after one more round, and the best estimate of C Z over all n rows.

        `known_product` returns an estimate of C Z from earlier rounds. It is a function, because the estimate takes as
        much memory as a block. `stale` is the number of rounds since the error last fell. Averaging begins when
        `stale` reaches a limit.
        """
        rows, who = float(total["n"]), tuple(sorted(answered))
        if who == self.who:
            again = self.again + 1
        else:
            again = 0
        if known_product is None or rows >= n or again >= _SAME_ROUNDS or not (self.rounds or stale >= _STALE_ROUNDS):
            Y = total["Y"]
            return Averaging(who, again), Y if rows == n else np.asarray(Y * (n / rows))
        now = replace(self, who=who, again=again, rounds=self.rounds + 1)
        before = self.rows or float(n)
        # `known_product` is scaled to all n rows, but the average contains unscaled sums, over `before` rows on
        # average.
        past = (1.0 - now.latest_weight) * known_product() * (before / n)
        Y = past + now.latest_weight * total["Y"]
        rows = (1.0 - now.latest_weight) * before + now.latest_weight * rows
        return replace(now, rows=rows), np.asarray(Y * (n / rows))

    def with_block(self, block: Array) -> Averaging:
        """Return the average over rounds that includes the next block, or this object if averaging has not begun."""
        if not self.rounds:
            return self
        if self.block is None:
            return replace(self, block=block)
        # Two bases of the same span may differ by a rotation, and could cancel each other in the average.
        turned = self.block @ linalg.procrustes(self.block, block)
        mixed = (1.0 - self.latest_weight) * turned + self.latest_weight * block
        return replace(self, block=linalg.orth(mixed))

    @property
    def latest_weight(self) -> float:
        """The weight of the latest round in the average."""
        return min(_FIRST_WEIGHT, _LATER_WEIGHT / self.rounds)


@dataclass(frozen=True)
class SSIState:
    """The state of the server: the next block, the latest Z with its product Y = C Z, and the average over rounds.

    If the run started from the components of other rows, `traces` shows whether the block may still miss a
    leading direction of the present rows: see `core.hidden`.
    """

    block: Array
    Z: Array
    Y: Array | None
    k: int
    n: int
    progress: Progress
    averaged: Averaging = field(default_factory=Averaging)
    traces: RandomTraces | None = None

    def known_product(self) -> Array:
        """Return an estimate of the product of C and the block, from the known product of C and Z.

        The estimate is the product of C and the projection of the block onto the span of Z.
        """
        assert self.Y is not None
        return np.asarray(self.Y @ (self.Z.T @ self.block))


@dataclass(frozen=True, kw_only=True)
class SSI(Iterative[SSIState]):
    """Compute the exact PCA of all rows by subspace iteration.

    In each round, Z <- orth(sum C_i Z).

    The server computes the Ritz values of Z and the residual C Z - Z (Z'CZ) from the sum, without another
    message. The error is multiplied by lambda_{p+1} / lambda_k in each round, where lambda_j is the j-th
    eigenvalue, p is the number of columns of Z, and k is the number of components. If different clients
    answer in each round, for example because `fraction` is below 1, sums are averaged over rounds, and the
    error falls with the number of rounds.

    Known weakness: if the server sees individual answers, it can compute C_i exactly from the pairs
    (Z, C_i Z) after about d / p rounds. Under masks, the server sees only sums, and cannot compute C_i.

    Reference: Bauer 1957; as a distributed method, Li, Wang, Chen, Zhang 2021, section 2.
    Cost per round: 4 n_i d p flops on a client, p columns of d floats each way, and 2 d p^2 flops on
    the server.
    Prefer it: if answers are noisy, or different clients answer in each round. Otherwise, `Krylov` needs
    far fewer rounds.

    Parameters
    ----------
    oversample : int, default=1
        Columns that the algorithm iterates beyond `n_components`. At least one is needed to measure the gap.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import SSI, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(SSI(max_rounds=100), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "ssi"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK}
    over_air: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    by_power: ClassVar[bool] = True
    keeps_product: ClassVar[bool] = True

    oversample: int = 1

    def start(self, model: Model) -> SSIState:
        Z, k = model.columns, model.n_components
        if not isinstance(k, int):
            k = Z.shape[1]
        product, traces = model.product, None
        if model.may_miss_directions and k < Z.shape[1]:
            traces = RandomTraces.begin(Z, k)
        elif model.may_miss_directions:
            Z, product = mixed_with_other_directions(Z, model, self.tol), None
        progress = replace(Progress.begin(self.tol, model), sure=traces is None)
        state = SSIState(Z, Z, None, k, model.number_of_units, progress, traces=traces)
        if product is None:
            return state
        return state_after_product(state, product, rounds=0)

    def broadcast(self, state: SSIState) -> Arrays:
        return {"Z": state.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["Z"].shape, Kind.PRODUCT), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["Z"]), "n": np.array(data.n)}, memory

    def without_past(self, state: SSIState, total: Arrays) -> SSIState:
        if float(total["n"]) < state.n:  # The answers of the others may be estimated from Z and its product.
            return state
        return replace(state, Z=state.block, Y=None)

    def server(self, state: SSIState, total: Arrays, answered: frozenset[int]) -> SSIState:
        known, stale = None if state.Y is None else state.known_product, state.progress.stale
        averaged, Y = state.averaged.after_round(total, answered, known_product=known, n=state.n, stale=stale)
        # The sum belongs to the server alone, so the next block can take its memory.
        state = state_after_product(state, Y, rounds=1, out=Y if Y is total["Y"] else None)
        return replace(state, averaged=averaged.with_block(state.block))

    def unsent(self, state: SSIState) -> Array:
        return state.block

    def rounding_allowed(self, state: SSIState) -> float:
        return self.rounding_of_power(state.progress)

    def finish(self, state: SSIState, model: Model) -> Model:
        Z = state.averaged.block
        if state.progress.rounds > model.rounds:
            model = replace(model, opening_errors=None)
        if Z is None or state.Y is None:
            return replace(model, basis=state.Z, product=state.Y)
        return replace(model, basis=Z, product=state.Y @ (state.Z.T @ Z))


def state_after_product(state: SSIState, Y: Array, *, rounds: int, out: Array | None = None) -> SSIState:
    """Return the state with the Ritz vectors, the error and the next block, given the product Y of C and the block.

    The next block may take the memory of `out`.
    """
    values, Z, CZ, progress = ritz_step(state.block, Y, state.k, state.progress, rounds=rounds)
    block, traces = linalg.orth(CZ, out=out), state.traces
    if traces is not None:
        traces = traces.in_ritz_coordinates(state.block.T @ Z, state.k).after_product(
            block.T @ CZ, float(values[state.k - 1])
        )
        progress = replace(progress, sure=not traces.may_hide_direction)
    return replace(state, block=block, Z=Z, Y=CZ, progress=progress, traces=traces)
