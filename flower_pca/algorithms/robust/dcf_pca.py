"""DCFPCA: robust PCA by local gradient steps on a common factor, averaged (Chu's Algorithm 1).

Unless sigma is given, clients first count their entries by size. Then the server sends U in every round,
and each client takes gradient steps from U. The client keeps its V from round to round. The
server computes the weighted mean of the answers. By default, `step` and `init` follow the paper. Their
other values are additions of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.robust.base import (
    COUNTING,
    COUNTS,
    Robust,
    counts_message,
    counts_reply,
    ordinary_size,
    root_mean_square,
    row_blocks_with,
    scale_start,
    start_block,
)
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Progress
from flower_pca.core.kinds import BLOCK, FLAG, NUMBER, POSITIVE, ROUNDS, SEED, STEPS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

_MOST_GROWTH: Final = 1e4  # factor of the length of U above which a step counts as divergent
_MOST_OUTLIERS: Final = 0.5  # share of outlying entries above which a run reports that it found no low-rank part
_DEFAULT_ETA: Final = {"paper": 0.05, "scaled": 1.0}  # the default of `eta` for each value of `step`


@dataclass(frozen=True)
class DCFState:
    """The state of the server in `DCFPCA`.

    Attributes
    ----------
    U : ndarray
        The common factor.
    sigma : float or None
        The size of an ordinary entry, or None until it is known.
    n : int
        The total number of rows.
    rms : float
        The root mean square of all entries.
    seed : int
        The seed of the run.
    progress : Progress
        The number of rounds, and the error.
    """

    U: Array
    sigma: float | None
    n: int
    rms: float
    seed: int
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class DCFPCA(Robust[DCFState]):
    """Compute the PCA of rows in which individual values are outliers, by the gradient steps of the paper.

    Each client's rows are V_i U' + S_i, with a common U and a sparse S_i. Every client takes gradient
    steps from the common U to its local U_i, and the server averages the U_i.

    The algorithm minimizes, over U, V_i and S_i, sum 1/2 ||V_i U' + S_i - X_i||^2 + rho/2 ||V_i||^2 +
    lambda ||S_i||_1, plus rho/2 ||U||^2. In each round t
      each client starts from U_i = U, and repeats `local_steps` times: compute (V_i, S_i) by `inner_steps` steps
        of the inner problem, then U_i <- U_i - eta_t (-C_i'V_i + rho n_i/n U_i), C_i = clip(X_i - V_i U_i', lambda);
      the server computes U <- the mean of the U_i that arrived.

    eta_t is eta / sqrt(t + 1), or eta without `anneal`. lambda is threshold * sigma, with sigma = 1.4826
    median |x|, and rho = ridge lambda sqrt(max(n, d)). At the end, clients compute V_i for the last U.
    The paper omits this step.

    step="paper" uses eta without scaling. The right value of eta then depends on the scale of the data
    and on n_i, and requires a first U with N(0, 1) entries. step="scaled" divides eta by l_i =
    ||V_i||_2^2 + rho n_i/n and weights the mean by l_i. lambda stays constant, so the error of the
    low-rank part remains proportional to lambda: about 2 % with the defaults.

    Reference: Chu, "Distributed robust principal component analysis", Algorithm 1.
    Cost per round: 4 local_steps (inner_steps + 1) n_i d p flops on a client, and p d floats each way.
    Prefer it: to reproduce the paper. `ConsensusRPCA` is exact, and needs fewer rounds and no step size.

    Parameters
    ----------
    local_steps : int, default=2
        The number of gradient steps of a client in a round (K in the paper).
    eta : float or None, default=None
        The step size. The default is 0.05, or 1.0 with step="scaled".
    step : {"paper", "scaled"}, default="paper"
        Whether eta is used without scaling, or divided by l_i.
    anneal : bool or None, default=None
        Whether the step size falls as 1 / sqrt(t + 1). By default it does, except with step="scaled".
    init : {"random", "opening"}, default="random"
        The first U: with "random", N(0, 1) entries, and with "opening", the leading directions that the first message
        of the run has found, scaled to the same length.
    threshold : float, default=0.2
        The threshold lambda, divided by sigma.
    ridge : float, default=0.1
        The ridge rho, divided by lambda sqrt(max(n, d)).
    inner_steps : int, default=5
        The number of steps for the inner problem.
    sigma : float or None, default=None
        The size of an ordinary entry, if it is known. If sigma is given, clients do not count their entries.
    oversample : int, default=0
        Columns that the algorithm iterates beyond `n_components`.
    tol : float, default=1e-3
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=50
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import DCFPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(DCFPCA(step="scaled", max_rounds=5), sites, n_components=2)
    >>> print(result.rounds)
    5
    """

    name: ClassVar[str] = "dcf_pca"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **COUNTING,
        "U": BLOCK,
        "lam": POSITIVE,
        "rho": POSITIVE,
        "rho_row": POSITIVE,
        "eta": POSITIVE,
        "scaled": FLAG,
        "steps": ROUNDS,
        "inner_steps": STEPS,
        "seed": SEED,
    }

    local_steps: int = 2
    eta: float | None = None
    step: str = "paper"
    anneal: bool | None = None
    init: str = "random"
    threshold: float = 0.2
    ridge: float = 0.1
    inner_steps: int = 5
    tol: float = 1e-3
    max_rounds: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("local_steps of dcf_pca", self.local_steps, least=1)
        checks.choice("step of dcf_pca", self.step, tuple(_DEFAULT_ETA))
        checks.choice("init of dcf_pca", self.init, ("random", "opening"))
        checks.choice("anneal of dcf_pca", self.anneal, (True, False, None))
        checks.number("threshold of dcf_pca", self.threshold, least=1e-12)
        checks.number("ridge of dcf_pca", self.ridge, least=1e-12)
        if self.eta is not None:
            checks.number("eta of dcf_pca", self.eta, least=1e-12)

    def start(self, model: Model) -> DCFState:
        U = start_block(model) if self.init == "random" else model.power_start() * np.sqrt(model.d)
        if self.step == "scaled" and self.sigma is not None:
            U = scale_start(U, self.sigma)
        rms, progress = root_mean_square(model), Progress.begin(self.tol, model)
        return DCFState(U, self.sigma, model.n, rms, model.seed, progress)

    def broadcast(self, state: DCFState) -> Arrays:
        if state.sigma is None:
            return counts_message(state.rms)
        lam, rho = self._weights(state)
        eta = self.eta or _DEFAULT_ETA[self.step]
        if self.anneal or (self.anneal is None and self.step == "paper"):
            eta = eta / np.sqrt(state.progress.rounds + 1)
        numbers = {
            "lam": lam, "rho": rho, "rho_row": rho / state.n, "eta": eta, "scaled": self.step == "scaled",
            "steps": self.local_steps, "inner_steps": self.inner_steps, "seed": state.seed,
        }  # fmt: skip
        return {"U": state.U, **{name: np.array(value) for name, value in numbers.items()}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "top" in arrays:
            return COUNTS
        return {"U": Part(arrays["U"].shape, Kind.ESTIMATE), "weight": NUMBER, "reach": NUMBER}

    def bounds(self, state: DCFState, model: Model) -> Mapping[str, Array | float]:
        if state.sigma is None:
            return super().bounds(state, model)
        # No bound would be useful, because an almost unstable step may make U ten thousand times longer.
        return {"U": 0.0, "weight": 0.0, "reach": 0.0}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "top" in arrays:
            return counts_reply(arrays, data), memory
        U, V, weight = arrays["U"], memory.get("V"), 1.0
        # As in the paper, the first V is random. The first stored row selects a different random stream at each
        # node. The centered and scaled row would not be reproducible, because its rounding errors depend on the order
        # of sums over clients.
        if V is None or V.shape != (data.n, U.shape[1]):
            V = linalg.random_block(data.n, U.shape[1], int(arrays["seed"]) + data.measured.first_row_checksum())
        lam, rho, eta = (float(arrays[name]) for name in ("lam", "rho", "eta"))
        own = float(arrays["rho_row"]) * data.n
        for _ in range(int(arrays["steps"])):
            regression, gradient, parts = Regression(U, lam, rho), own * U, []
            for X, known in row_blocks_with(V, data, U.shape[1]):
                assert known is not None
                part, R = regression.take_steps(X, known, int(arrays["inner_steps"]))
                gradient -= regression.clip_in_place(R).T @ part.astype(X.dtype, copy=False)
                parts.append(part)
            V = np.concatenate(parts)
            steep = linalg.norm2(V) ** 2 + own
            if arrays["scaled"]:
                weight = steep
            before, U = U, U - eta / weight * gradient
            size = float(np.linalg.norm(before))
            grown = float(np.linalg.norm(U))
            # A step that is much longer than U diverges. The condition is written so that it also refuses NaN.
            if not grown <= _MOST_GROWTH * size:
                raise DataError(
                    f"A step of dcf_pca with eta={eta:g} makes the factor {grown / size:.0e} times longer, so the run "
                    'diverges. Use step="scaled".'
                )
        up = {"U": weight * U, "weight": np.array(weight), "reach": np.array(eta * steep)}
        return up, {"V": V}

    def server(self, state: DCFState, total: Arrays, answered: frozenset[int]) -> DCFState:
        if state.sigma is None:
            sigma = ordinary_size(total["counts"], state.rms)
            U, progress = state.U, state.progress
            if sigma == 0.0:  # All entries are 0.
                progress = progress.step(0.0)
            # The first U of the paper has N(0, 1) entries and is not scaled.
            if self.step == "scaled":
                U = scale_start(U, sigma)
            return replace(state, U=U, sigma=sigma, progress=progress)
        U = total["U"] / float(total["weight"])
        step = np.linalg.norm(U - state.U)
        size = np.linalg.norm(U)
        moved = float(step) / (float(size) or 1.0)
        # `reach` is the length of a step as a share of the distance to the minimum.
        reach = float(total["reach"] / total["weight"])
        error = moved / min(1.0, reach) if reach > 0.0 else np.inf
        return replace(state, U=U, progress=state.progress.step(error))

    def status(self, state: DCFState) -> Status | None:
        if state.sigma is None:
            return None
        return super().status(state)

    def finish(self, state: DCFState, model: Model) -> Model:
        lam, rho = self._weights(state)
        sigma = np.array(state.sigma or 0.0)
        left = {"U": state.U, "lam": np.array(lam), "rho": np.array(rho), "sigma": sigma}
        return replace(model, basis=linalg.orth(state.U), product=None, left=left)

    def verify(self, model: Model) -> Status | None:
        status, outliers = super().verify(model), float(model.left["outliers"])
        if outliers <= _MOST_OUTLIERS or status is None or not status.ok:
            return status
        return Status(
            Outcome.STALLED,
            f"the run settled, but {outliers:.0%} of all entries are outliers, so no low-rank part was found. "
            "Use consensus_rpca, or ask for fewer components",
        )

    def _weights(self, state: DCFState) -> tuple[float, float]:
        lam = self.threshold * (state.sigma or 0.0)
        longer = float(np.sqrt(max(state.n, len(state.U))))
        return lam, self.ridge * lam * longer
