"""FedOAPM: the power method on a noisy sum, for clients that send at the same time over the air.

`linalg.PowerIteration` implements the iteration, and trackers use it, too. This module adds Ritz values, which
follow from an orthonormal block at no cost, and a stopping rule. It raises an error if blocks grow too
large between two QR factorizations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array, PowerIteration
from flower_pca.core.algorithm import Iterative, Progress, mixed_with_other_directions, ritz_step
from flower_pca.core.hidden import RandomTraces
from flower_pca.core.kinds import BLOCK, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

_LARGEST_ENTRY: Final = 1e90  # the largest entry that a sum may have between two QR factorizations


@dataclass(frozen=True)
class FedOAPMState:
    """The state of the server between two rounds of `FedOAPM`.

    Attributes
    ----------
    power : PowerIteration
        The power iteration with its present block.
    k : int
        The number of wanted components.
    progress : Progress
        The number of rounds, and the error.
    value, last : float
        The first and the k-th Ritz value, measured at the latest orthonormal block.
    traces : RandomTraces or None
        Traces of hidden directions with larger eigenvalues, if the first block contains components from other rows,
        for example from an earlier run. Otherwise None.
    """

    power: PowerIteration
    k: int
    progress: Progress
    value: float = 0.0
    last: float = 0.0
    traces: RandomTraces | None = None

    @property
    def columns_used(self) -> int:
        """The number of columns that the result uses. It is at least k.

        The last column is not used, because it serves only to estimate the gap in the spectrum.
        """
        return max(self.k, int(self.power.U.shape[1]) - 1)


@dataclass(frozen=True, kw_only=True)
class FedOAPM(Iterative[FedOAPMState]):
    """Compute the PCA of all rows by power iterations that withstand a noisy channel.

    Each product is U_l = C U_{l-1} + W_l, where C = sum_k C_k is the sum of x x' over all rows and W_l
    is the noise of the channel (see `AirChannel`). The server orthonormalizes the block by a QR
    factorization after every eta = `qr_every` products. Between two QRs, the server sends the noisy sum
    itself back, so that just before a QR the block is U~ = C^eta U + sum_i C^(eta-i) W_i. In this sum,
    the large eigenvalues outweigh the noise.

    Accuracy: let theta be the angle between the computed and the exact subspace, let lambda_{p+1} <<
    lambda_p, and let sigma be the standard deviation of the noise, in the units of C. After convergence,
    sin(theta) is about sigma sqrt(sum_{i<eta} sum_{j>p} lambda_j^(2i)) / lambda_p^eta. With a QR after
    every product, this error is sigma sqrt(d - p) / lambda_p. Each further product between two QRs
    divides the error by lambda_p / max(1, lambda_{p+1}). With `oversample` above 0, the closing message
    selects the components by one noisy product, which leaves an error of about sigma / lambda_p. The
    condition number of the block is (lambda_1 / lambda_p)^eta, which limits eta. The largest Ritz value
    of the symmetric part of U'(CU + W) estimates lambda_1.

    Without noise, FedOAPM is SSI with a QR but without the rotation to Ritz vectors. If clients are
    missing, the sum is not scaled up, because over a channel the server cannot know which clients have
    sent. The closing message uses only the clients that are present. The paper does not center the
    rows. To do the same, pass center=False.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from
    incomplete and corrupted data", 2022, Algorithms 2 and 7; Hardt and Price 2014.
    Cost per round: 4 n_i d p flops on a client, and p columns of d floats each way. Every `qr_every`
    rounds, the server needs 2 d p^2 flops.
    Prefer it: if clients send over a channel that adds noise to their sum, most of all with
    `qr_every` above 1. On a channel without noise, use `Krylov`.

    Parameters
    ----------
    qr_every : int, default=1
        eta, the number of products between two QRs. The estimate is precise, and is therefore read, only just before
        a QR.
    oversample : int, default=0
        Columns that the algorithm iterates beyond `n_components`.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=500
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds. Noise keeps the residual above tol,
        so a run on a noisy channel ends by `patience` or `max_rounds`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import FedOAPM, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(FedOAPM(qr_every=1, max_rounds=30), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "fed_oapm"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"U": BLOCK}
    over_air: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    by_power: ClassVar[bool] = True

    qr_every: int = 1
    max_rounds: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("qr_every of fed_oapm", self.qr_every, least=1)

    def width(self, n_components: int | float) -> int:
        """Return the width of the block, with one additional column that estimates the gap in the spectrum.

        In a QR, later columns do not change earlier columns, so the additional column does not affect the others.
        """
        return super().width(n_components) + 1

    def start(self, model: Model) -> FedOAPMState:
        k = model.n_components
        if not isinstance(k, int):
            k = model.columns.shape[1]
            if k < model.d:  # The last column serves only to estimate the gap in the spectrum.
                k -= 1
        U, product, traces = model.columns, model.product, None
        if model.may_miss_directions and k < U.shape[1]:
            traces = RandomTraces.begin(U, k)
        elif model.may_miss_directions:
            U, product = mixed_with_other_directions(U, model, self.tol), None
        progress = replace(Progress.begin(self.tol, model), sure=traces is None)
        state = FedOAPMState(PowerIteration.start_from(U), k, progress, traces=traces)
        if product is None:
            return state
        return self._state_after_product(state, product, rounds=0)

    def broadcast(self, state: FedOAPMState) -> Arrays:
        return {"U": state.power.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["U"].shape, Kind.PRODUCT)}

    def bounds(self, state: FedOAPMState, model: Model) -> Mapping[str, Array | float]:
        # Between two QRs, columns are longer than 1, so the bound allows for any block.
        return {"Y": MARGIN * (model.trace or float(model.n))}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["U"])}, memory

    def server(self, state: FedOAPMState, total: Arrays, answered: frozenset[int]) -> FedOAPMState:
        return self._state_after_product(state, total["Y"], rounds=1)

    def unsent(self, state: FedOAPMState) -> Array:
        # Between two QRs, the block is not orthonormal.
        return linalg.orth(state.power.block)

    def rounding_allowed(self, state: FedOAPMState) -> float:
        # Between two QRs, columns become nearly parallel. Their small differences leave no room for rounding errors.
        return self.rounding_of_power(state.progress) if self.qr_every == 1 else 0.0

    def metrics(self, state: FedOAPMState) -> dict[str, float]:
        return {**super().metrics(state), "lambda_1": state.value}

    def finish(self, state: FedOAPMState, model: Model) -> Model:
        U, product, p = state.power.U, state.power.product, state.columns_used
        leading = U[:, :p]
        others = U[:, p:]
        model = replace(model, basis=leading, product=None, beside=others, beside_product=None)
        if product is None:
            return model
        if state.progress.rounds > model.rounds:
            model = replace(model, opening_errors=None)
        return replace(model, product=product[:, :p], beside_product=product[:, p:])

    def _state_after_product(self, state: FedOAPMState, Y: Array, *, rounds: int) -> FedOAPMState:
        power, progress, traces = state.power, state.progress, state.traces
        value, last = state.value, state.last
        # If the block is orthonormal, its product yields Ritz values and residuals.
        if power.inside == 0:
            if traces is not None:
                # A QR keeps the order of the columns, so a large direction in the last column would never be
                # among the components. A Rayleigh-Ritz step moves this direction forward.
                _, Z, Y, _ = linalg.rayleigh_ritz(power.block, Y)
                traces = traces.in_ritz_coordinates(power.block.T @ Z, state.k)
                power = replace(power, block=Z)
            p = state.columns_used
            block = power.block[:, :p]
            product = Y[:, :p]
            values, _, _, progress = ritz_step(block, product, state.k, progress, rounds=rounds)
            power = replace(power, U=power.block)
            value, last = float(values[0]), float(values[state.k - 1])
        else:
            # Between two QRs the error is unknown, and `Progress.step` would count the round as one without
            # progress.
            progress = replace(progress, rounds=progress.rounds + rounds)
        if float(np.abs(Y).max()) > _LARGEST_ENTRY:
            raise ConfigError(
                f"With qr_every={self.qr_every}, the sums of fed_oapm grow above {_LARGEST_ENTRY:g}, too large for "
                "eigenvalues. Scale the data, or lower qr_every.",
                setting="qr_every",
                value=self.qr_every,
            )
        after = power.step(Y, self.qr_every)
        if traces is not None and after.inside == 0:
            # The eigenvalue is raised to the number of products since the last orthonormal block.
            traces = traces.after_product(after.block.T @ Y, last**self.qr_every)
            progress = replace(progress, sure=not traces.may_hide_direction)
        return FedOAPMState(after, state.k, progress, value, last, traces)
