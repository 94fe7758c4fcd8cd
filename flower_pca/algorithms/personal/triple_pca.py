"""TriplePCA: shared, own and sparse components in one model; `ExactPerPCA` on rows less what is far from both.

The server's half is that of `ExactPerPCA`. A client keeps where its rows lie among the components, and which entries
are far; one that has lost that begins once more, and takes more steps in that message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import Probe, Start, weight
from flower_pca.algorithms.personal.exact_per_pca import ExactPerPCA, ExactState
from flower_pca.algorithms.personal.far import Fit, Rows
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.core.asks import STEPS, Ask, number
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

CUT: Final = number(least=1.0, most=1e6)  # multiples of noise
_AFRESH: Final = 10  # times as many steps by a client that begins
INNER: Final[Mapping[str, Ask]] = {"cut": CUT, "inner": STEPS}


@dataclass(frozen=True, kw_only=True)
class TriplePCA(ExactPerPCA):
    """Rows are shared, own and sparse parts and noise: `ExactPerPCA` on rows less what is far from the first two.

    A client:    L_i = T_i[U, V_i]', S_i = X_i - L_i where that is beyond the threshold, else 0; the step of
                 `ExactPerPCA` on X_i - S_i, whose coordinates along [U, V_i] are the next T_i
    The server:  U <- polar(sum w_i Z_i), as there
    The threshold is a multiple of the noise of each column at each client, 1.4826 times the median of |X_i - L_i|. It
    begins at the size of the rows, where L_i has no more than medians, and falls with the residuals: nobody has to know
    the noise. f_i is how much less the clipped residuals are than those from the medians. Uncentred unless asked for:
    far entries would move the mean, which is one shared component more. Gaps count as far.

    Reference: the model is that of Shi, Fattahi and Kontar, "Triple component matrix factorization: untangling global,
    local, and noisy components", JMLR 2024, whose thresholds fall by a schedule; the steps are this project's own.
    Cost per round: at a client `inner_steps` times that of `ExactPerPCA`, each with a median of every column, and some
    four copies of its rows; r1 + 1 columns of d floats each way.
    Prefer it: where clients have directions of their own and single entries of their rows are far off.

    Args:
        local_components: r2, the own components of each client; fewer where its rows have not that rank. Or a mapping
            from clients, by position or name of their site, to such numbers; "others" are all that it does not name.
        threshold: How far off an entry is taken out, in multiples of its column's noise.
        inner_steps: How often a client finds far entries and own components anew for a U; ten times as often where it
            begins.
        weights, init, start_rounds, given, collect: See `ExactPerPCA`.
        acceleration, local_steps, gain_tol, oversample: See there.
        tol, min_rounds, max_rounds, patience: See `Iterative`.
    """

    name: ClassVar[str] = "triple_pca"
    asks: ClassVar[Mapping[str, Ask]] = {
        **{name: ask for name, ask in ExactPerPCA.asks.items() if name != held_out.AUTO},
        **INNER,
    }
    centers: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    shares: ClassVar[bool] = False  # far entries would be held out with the rows

    threshold: float = 4.0
    inner_steps: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(f"threshold of {self.name}", self.threshold, least=CUT.least, most=CUT.most, remedy="Try 4.")
        checks.integer(f"inner_steps of {self.name}", self.inner_steps, least=1)

    def broadcast(self, state: ExactState) -> Arrays:
        return {**super().broadcast(state), **self._inner()}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        rows, cut = Rows.of(data), float(arrays["cut"])
        if "k" in arrays:
            return Start.answer(arrays, rows.less(rows.begin(cut)), memory)
        U, w = arrays["U"], weight(arrays, data)
        fit = settle(arrays, rows, memory)
        clean, V = rows.less(fit), fit.W[:, U.shape[1] :]
        SU = deflation.product(clean, U)
        gain = (rows.loss(rows.begin(cut)) - rows.loss(fit)) / data.n
        up = {"Z": w * (SU - V @ (V.T @ SU)), "f": np.array(w * gain)}
        up |= {"n": np.array(data.n), "w": np.array(w), **Probe.answer(V, arrays["b"])}
        return up, memory_of(fit)

    def leave(self, state: ExactState, *, exact: bool, steps: int) -> Arrays:
        return {**super().leave(state, exact=exact, steps=steps), **self._inner()}

    def _inner(self) -> Arrays:
        return {"cut": np.array(self.threshold), "inner": np.array(self.inner_steps)}

    def _check_auto(self, word: str) -> None:
        what = f"local_components of {self.name}"
        rule = "a whole number of at least 0, or a mapping from clients to such numbers"
        then = "Name a number: far entries would be held out with the rows."
        raise ConfigError(what, must=rule, got=repr(word), then=then)


def settle(arrays: Arrays, rows: Rows, memory: Arrays) -> Fit:
    """What a client knows of its rows, after a message's steps for its U."""
    U, own, steps = arrays["U"], int(arrays["own"]), int(arrays["inner"])
    cut = float(arrays["cut"])
    fit = recall(rows, memory)
    if fit is None:
        fit, steps = rows.begin(cut), _AFRESH * steps
    for _ in range(steps):
        fit = rows.step(fit, U, own, cut, local_steps=int(arrays["steps"]))
    return fit


def memory_of(fit: Fit) -> Arrays:
    """What a client keeps of it."""
    return {"W": fit.W, "T": fit.T, "far": np.flatnonzero(fit.far)}


def recall(rows: Rows, memory: Arrays) -> Fit | None:
    """What it has kept, if that is of these rows."""
    n, d = rows.X.shape
    if "T" not in memory or len(memory["T"]) != n or len(memory["W"]) != d:
        return None
    far = np.zeros((n, d), dtype=bool)
    far.reshape(-1)[memory["far"]] = True
    return Fit(memory["W"], memory["T"], far, np.zeros(d))
