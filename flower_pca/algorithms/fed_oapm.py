"""FedOAPM: the power method over a noisy sum, for clients that send at once over the air.

The iteration itself is `linalg.Power`, which trackers share. Here are the Ritz values that an
orthonormal block gives away, the stopping rule, and the refusal of blocks that have grown beyond
all numbers between two QRs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array, Power
from flower_pca.core.algorithm import Iterative, Progress, ritz_round, stirred
from flower_pca.core.hidden import Traces
from flower_pca.core.kinds import BLOCK, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

_LARGEST: Final = 1e90  # what a block may grow to between two QRs


@dataclass(frozen=True)
class FedOAPMState:
    """The iteration, how many components are wanted, and where it stands.

    If the block began with components of other rows, `traces` tell what may hide from them.
    """

    power: Power
    k: int
    progress: Progress
    value: float = 0.0
    last: float = 0.0
    traces: Traces | None = None

    @property
    def number(self) -> int:
        """The columns that the result is found in: all but the last, which is for the gap, where there are so many."""
        return max(self.k, int(self.power.U.shape[1]) - 1)


@dataclass(frozen=True, kw_only=True)
class FedOAPM(Iterative[FedOAPMState]):
    """Compute the PCA of all rows by power iterations that withstand a noisy channel.

    U_l = qr(sum_k C_k U_{l-1} + W_l), with W_l the noise of the channel (`AirChannel`).

    A QR every qr_every = eta products; between two, the noisy sum itself is sent back: U~ = C^eta U
    + sum_i C^(eta-i) W_i, of which the large eigenvalues outgrow the noise. Once converged, with
    lambda_{p+1} << lambda_p and noise of standard deviation sigma, sin(theta) is about sigma
    sqrt(sum_{i<eta} sum_{j>p} lambda_j^(2i)) / lambda_p^eta: sigma sqrt(d - p) / lambda_p with a QR
    after every product. A further product divides it by lambda_p / max(1, lambda_{p+1}). The block
    is conditioned like (lambda_1 / lambda_p)^eta, which bounds eta. The largest Ritz value of U'(CU
    + W), made symmetric, estimates lambda_1. C is the sum of x x', not divided by the number of
    rows, and sigma is relative to that.

    Without noise it is SSI that orthonormalises, but does not rotate. Nothing is scaled where
    clients are missing, as a channel cannot tell: the closing message measures those present. The
    paper does not centre: center=False.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from
    incomplete and corrupted data", 2022, Algorithms 2 and 7; Hardt and Price 2014.
    Cost per round: 4 n_i d p flops on a client, and p columns of d floats each way. Every `qr_every`
    rounds, the server needs 2 d p^2 flops.
    Prefer it: if clients send over a channel that adds noise to their sum, most of all with
    `qr_every` above 1. On a channel without noise, use `Krylov`.

    Parameters
    ----------
    qr_every : int, default=1
        eta, the products between two QRs. The estimate is good only just before a QR, and is read only there.
    oversample : int, default=0
        Columns iterated beyond the number of components.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        The fewest rounds before the run may end.
    max_rounds : int, default=500
        The most rounds that the run may take.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for so many rounds. Noise keeps the residual from falling
        to tol: such a run ends after patience or max_rounds.

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
    asks: ClassVar[Mapping[str, Ask]] = {"U": BLOCK}
    over_air: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    by_power: ClassVar[bool] = True

    qr_every: int = 1
    max_rounds: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("qr_every of fed_oapm", self.qr_every, least=1)

    def width(self, n_components: int | float) -> int:
        """Return one more column for the gap. In a QR, later columns do not change earlier ones."""
        return super().width(n_components) + 1

    def start(self, model: Model) -> FedOAPMState:
        k = model.n_components
        if not isinstance(k, int):
            k = model.columns.shape[1] - 1
        U, product, traces = model.columns, model.product, None
        if model.unproven and k < U.shape[1]:
            traces = Traces.begin(U, k)
        elif model.unproven:
            U, product = stirred(U, model, self.tol), None
        progress = replace(Progress.begin(self.tol, model), sure=traces is None)
        state = FedOAPMState(Power.of(U), k, progress, traces=traces)
        if product is None:
            return state
        return self._measure(state, product, rounds=0)

    def broadcast(self, state: FedOAPMState) -> Arrays:
        return {"U": state.power.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"Y": Part(arrays["U"].shape, Kind.PRODUCT)}

    def bounds(self, state: FedOAPMState, model: Model) -> Mapping[str, Array | float]:
        # between two QRs blocks are longer than 1
        return {"Y": MARGIN * max(model.trace, float(model.n))}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"Y": data.matmat(arrays["U"])}, memory

    def server(self, state: FedOAPMState, total: Arrays, answered: frozenset[int]) -> FedOAPMState:
        return self._measure(state, total["Y"], rounds=1)

    def unsent(self, state: FedOAPMState) -> Array:
        # Between two QRs the block is longer than 1.
        return linalg.orth(state.power.block)

    def metrics(self, state: FedOAPMState) -> dict[str, float]:
        return {**super().metrics(state), "lambda_1": state.value}

    def finish(self, state: FedOAPMState, model: Model) -> Model:
        U, product, p = state.power.U, state.power.product, state.number
        leading = U[:, :p]
        others = U[:, p:]
        model = replace(model, basis=leading, product=None, beside=others, beside_product=None)
        if product is None:
            return model
        return replace(model, product=product[:, :p], beside_product=product[:, p:])

    def _measure(self, state: FedOAPMState, Y: Array, *, rounds: int) -> FedOAPMState:
        power, progress, traces = state.power, state.progress, state.traces
        value, last = state.value, state.last
        # the block is orthonormal, so its product tells Ritz values and residuals
        if power.inside == 0:
            if traces is not None:
                # A QR keeps the order of the columns: what the last one finds would stay behind the components.
                _, Z, Y, _ = linalg.rayleigh_ritz(power.block, Y)
                traces = traces.along(power.block.T @ Z, state.k)
                power = replace(power, block=Z)
            p = state.number
            block = power.block[:, :p]
            product = Y[:, :p]
            values, _, _, progress = ritz_round(block, product, state.k, progress, rounds=rounds)
            power = replace(power, U=power.block)
            value, last = float(values[0]), float(values[state.k - 1])
        else:
            # Between two QRs no error is known: `Progress.step` would count this as a round without
            # gain.
            progress = replace(progress, rounds=progress.rounds + rounds)
        if float(np.abs(Y).max()) > _LARGEST:
            raise ConfigError(
                f"With qr_every={self.qr_every}, the sums of fed_oapm grow above {_LARGEST:g}, too large for "
                "eigenvalues. Scale the data, or lower qr_every.",
                setting="qr_every",
                value=self.qr_every,
            )
        after = power.step(Y, self.qr_every)
        if traces is not None and after.inside == 0:
            # So many products lie between the newest orthonormal block and the one before.
            traces = traces.times(after.block.T @ Y, last**self.qr_every)
            progress = replace(progress, sure=not traces.hide)
        return FedOAPMState(after, state.k, progress, value, last, traces)
