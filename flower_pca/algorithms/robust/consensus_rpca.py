"""ConsensusRPCA: robust PCA by the normal equations of all clients, with a threshold that falls.

A run has up to three phases: a message that counts entries by size, unless sigma is given; where the rank is unknown,
rounds that look for it, until `_settled_rank` reads it off the widest gap; and rounds in which the threshold falls to
the noise, or to rounding. A client keeps V from round to round; the server keeps U, and sums for clients that miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.cached import CachedSums
from flower_pca.algorithms.robust import huber
from flower_pca.algorithms.robust.base import (
    Robust,
    asked_counts,
    counts_bounds,
    counts_parts,
    counts_reply,
    moments,
    root_mean_square,
    rows_with,
    sized,
    spread,
    start_block,
)
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.base import checks, linalg
from flower_pca.base.linalg import Array
from flower_pca.base.status import Status
from flower_pca.core.algorithm import Progress
from flower_pca.core.model import Model
from flower_pca.core.parts import ROWS, Kind, Part
from flower_pca.core.stage import MARGIN, MOST_ROWS, Arrays, Merge, add
from flower_pca.rows.local import LocalData

RANKS: Final = ("exact", "bound", "unknown")
_GAMMA: Final = {"exact": 0.9, "bound": 0.85, "unknown": 0.9}
_RIDGE: Final = {"exact": 0.3, "bound": 1.0, "unknown": 0.3}
_FIRST: Final = (0.85, 1.0, 40)  # gamma, ridge and rounds of the phase that finds an unknown rank
_FLOOR: Final = 1e-6  # of sigma: where the threshold ends if there is no noise
_EPS: Final = 32.0  # multiples of the data's eps below which no residual can be told from rounding
_TINY: Final = float(np.finfo(np.float64).tiny)
_GAP: Final = 10.0  # ratio of successive singular values that no full spectrum shows


@dataclass(frozen=True)
class ConsensusState:
    """The basis U, the threshold, the last sum of V'V, the sums held, and whether the rank is still looked for.

    `sigma` is the size of an ordinary entry, None while it is asked for; `rms` that of any.
    """

    U: Array
    lam: float
    floor: float
    sigma: float | None
    size: float
    rms: float
    looking: bool
    cache: CachedSums
    progress: Progress
    G: Array | None = None


@dataclass(frozen=True, kw_only=True)
class ConsensusRPCA(Robust[ConsensusState]):
    """Rows = V_i U' + S_i, U common, S_i sparse, with exact recovery: sums only, no step size.

    min over U, V_i, S_i of sum 1/2 ||V_i U' + S_i - X_i||^2 + rho/2 ||V_i||^2 + lambda ||S_i||_1, plus rho/2 ||U||^2.
    The first message asks how many |x| there are of each size: sigma = 1.4826 times their median, to 2 % or better, and
    lambda = sigma at first. A round:
      a client, `inner_steps` times: S = soft(X - VU', lambda), V = (X - S)U (U'U + rho I)^-1;
      it sends B_i = (X_i - S_i)'V_i and G_i = V_i'V_i;
      the server: U <- (sum B_i)(sum G_i + rho I)^-1; lambda <- max(gamma lambda, noise, 1e-6 sigma).
    rho = ridge lambda sqrt(max(n, d)). The joint objective of a lambda never rises; the falling lambda removes its
    bias. The result is the same however the rows are dealt out.

    A client that misses a round counts with its last answer, lambda then falls by gamma to the share of the rows that
    answered. The closing message asks everybody. Under masks there is no last answer of a single client: those that
    answered count for all rows then, and a run whose last round missed somebody goes back to the opening.

    Reference: this package's own. The problem is that of Chu, "DCF-PCA", see `DCFPCA`.
    Cost per round: 4 (inner_steps + 1) n_i d p flops on a client; p d numbers down, p d + p^2 up; 2 d p^2 flops at the
    server. It takes about ln(1e-6) / ln(gamma) rounds: 132 for gamma=0.9, 39 for 0.7.
    Prefer it: as the robust algorithm. A client of a single row sends its clean part up to scale.

    Args:
        rank: What n_components + oversample says of the low-rank part: its "exact" rank; a "bound" on it; or a bound
            on an "unknown" rank, which a first phase of 40 rounds looks for: the result then has as many components.
        gamma: By which lambda falls in a round: 0.7 does for easy problems. 0.9 if left out, 0.85 for a "bound".
        ridge: rho / (lambda sqrt(max(n, d))). 0.3 if left out, 1.0 for a "bound".
        noise: Deviation of dense noise, in the frame: lambda ends there.
        inner_steps: Steps of the inner problem.
        sigma: The size of an ordinary entry, if it is known: clients do not count their entries then.
        oversample, tol, min_rounds, max_rounds, patience: See `Iterative`.
    """

    name: ClassVar[str] = "consensus_rpca"

    rank: str = "exact"
    gamma: float | None = None
    ridge: float | None = None
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("rank of consensus_rpca", self.rank, RANKS)
        checks.number("noise of consensus_rpca", self.noise, least=0.0)
        if self.gamma is not None:
            checks.number("gamma of consensus_rpca", self.gamma, least=0.01, most=0.999, remedy="Try 0.9.")
        if self.ridge is not None:
            checks.number("ridge of consensus_rpca", self.ridge, least=1e-6, remedy="Try 0.3.")

    @property
    def remedy(self) -> str:  # type: ignore[override]
        """What to do about a run that has found no low-rank part."""
        slower = np.sqrt(_GAMMA[self.rank] if self.gamma is None else self.gamma)
        return f"Repeat it with gamma={slower:.3g}, or ask for fewer components."

    def start(self, model: Model) -> ConsensusState:
        return ConsensusState(
            U=start_block(model) if self.sigma is None else sized(start_block(model), self.sigma),
            lam=self.sigma or 0.0,
            floor=max(_FLOOR, _EPS * model.eps),
            sigma=self.sigma,
            size=float(np.sqrt(max(model.n, model.d))),
            rms=root_mean_square(model),
            looking=self.rank == "unknown",
            cache=CachedSums(model.n, summed=model.summed),
            progress=Progress.begin(self.tol, model),
        )

    def broadcast(self, state: ConsensusState) -> Arrays:
        if state.sigma is None:
            return asked_counts(state.rms)
        rho = self._rho(state)
        numbers = {"lam": state.lam, "rho": rho, "sigma": state.sigma, "inner_steps": self.inner_steps}
        return {"U": state.U, **{name: np.array(value) for name, value in numbers.items()}}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "top" in arrays:
            return counts_parts()
        shape = arrays["U"].shape
        return {"n": ROWS, "B": Part(shape, Kind.ESTIMATE), "G": Part((shape[1], shape[1]), Kind.SCORES)}

    def merging(self, state: ConsensusState) -> Merge:
        return add if state.sigma is None else state.cache.merging

    @property
    def sums_remedy(self) -> str:
        return ""  # single answers are held where they can be had, to count for those that miss a round

    def bounds(self, state: ConsensusState, model: Model) -> Mapping[str, Array | float]:
        if state.sigma is None:
            return counts_bounds(model)
        # A step takes V to (VU' + C)U(U'U + rho I)^-1 with |C| <= lambda: V grows by |C| times that inverse at most.
        s = np.linalg.svd(state.U, compute_uv=False)
        inverse = float(np.max(s / np.maximum(s**2 + self._rho(state), _TINY)))
        C = state.lam * float(np.sqrt(model.n * model.d))
        V = float(s @ s if state.G is None else np.trace(state.G)) ** 0.5 + self.inner_steps * C * inverse
        return {"n": MOST_ROWS, "G": MARGIN * V**2, "B": MARGIN * V * (V * float(s[0]) + C)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "top" in arrays:
            return counts_reply(arrays, data), memory
        U, steps = arrays["U"], int(arrays["inner_steps"])
        lam, rho, sigma = (float(arrays[name]) for name in ("lam", "rho", "sigma"))
        regression, parts, rest = Regression(U, lam, rho), [], np.zeros(U.shape)
        for X, before in rows_with(memory.get("V"), data, U.shape[1]):
            if before is None:  # at the start of a phase, or late: then the threshold's fall is made up for
                first = np.zeros((len(X), U.shape[1]))
                before = first if lam >= sigma else huber.recover(X, U, start=sigma, lam=lam, rho=rho)
            V, C = regression.steps(X, before, steps)
            rest += C.T @ V.astype(X.dtype, copy=False)
            parts.append(V)
        V = np.concatenate(parts)
        G = V.T @ V
        return {"n": np.array(data.n), "B": U @ G + rest, "G": G}, {"V": V}  # X - S = VU' + C

    def server(self, state: ConsensusState, total: Any, answered: frozenset[int]) -> ConsensusState:
        if state.sigma is None:
            sigma = spread(total["counts"], state.rms)
            progress = state.progress if sigma > 0.0 else state.progress.step(0.0)  # nothing but zeros
            return replace(state, U=sized(state.U, sigma), sigma=sigma, lam=sigma, progress=progress)
        sigma = state.sigma
        cache, sums, share = state.cache.add(total)
        G = sums["G"] + max(self._rho(state), _TINY) * np.eye(len(sums["G"]))
        U = np.linalg.solve(G, sums["B"].T).T
        moved = float(np.linalg.norm(U - state.U)) / (float(np.linalg.norm(U)) or 1.0)
        least = self._least(state)
        error = moved / share if state.lam <= least else np.inf
        lam = max(least, state.lam * self._gamma(state) ** share)
        state = replace(state, U=U, lam=lam, G=sums["G"], cache=cache, progress=state.progress.step(error))
        found = state.looking and lam <= float(_FIRST[0] ** _FIRST[2]) * sigma
        return self._settled_rank(state) if found else state

    def status(self, state: ConsensusState) -> Status | None:
        return None if state.sigma is None else super().status(state)

    def metrics(self, state: ConsensusState) -> dict[str, float]:
        return {**super().metrics(state), **({} if state.sigma is None else {"lambda": state.lam})}

    def finish(self, state: ConsensusState, model: Model) -> Model:
        Z = linalg.orth(state.U)
        if state.G is not None and state.G.shape[1] == state.U.shape[1]:
            Z = linalg.rayleigh_ritz(*moments(state.U, state.G))[1]
        numbers = {"lam": state.lam, "rho": self._rho(state), "sigma": state.sigma or 0.0}
        left = {"U": state.U, **{name: np.array(value) for name, value in numbers.items()}}
        return replace(model, basis=Z, product=None, n_components=min(model.k, Z.shape[1]), left=left)

    def _settled_rank(self, state: ConsensusState) -> ConsensusState:
        """The second phase: the rank at the widest gap of the singular values of VU', and lambda back at sigma."""
        assert state.G is not None
        assert state.sigma is not None
        values, Z, *_ = linalg.rayleigh_ritz(*moments(state.U, state.G))
        s = np.sqrt(np.maximum(values, 0.0))
        s = np.maximum(s, _FLOOR * s[0])
        ratios = s[:-1] / s[1:]
        r = int(np.argmax(ratios)) + 1 if len(ratios) and ratios.max() >= _GAP else len(s)
        cache = replace(state.cache, last=None)
        return replace(state, U=Z[:, :r] * np.sqrt(s[:r]), lam=state.sigma, looking=False, cache=cache, G=None)

    def _rho(self, state: ConsensusState) -> float:
        given = _RIDGE[self.rank] if self.ridge is None else self.ridge
        return (_FIRST[1] if state.looking else given) * state.lam * state.size

    def _gamma(self, state: ConsensusState) -> float:
        given = _GAMMA[self.rank] if self.gamma is None else self.gamma
        return _FIRST[0] if state.looking else given

    def _least(self, state: ConsensusState) -> float:
        assert state.sigma is not None
        return max(self.noise, state.floor * state.sigma)
