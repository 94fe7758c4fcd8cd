"""PerPCA: personalized PCA by gradient steps on Stiefel manifolds, as in the paper.

If the step depends on the largest ||S_i||, the first message asks each client for this norm. The rounds
of `Personalized` follow. In each round, a client takes one gradient step on its shared and local
components (`_gradient_step`), in one of the paper's two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import Personalized, PersonalState, StartIteration, ThetaProbe, client_weight
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import FLAG, MEAN_SQUARES, NUMBER, POSITIVE, SEED, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge
from flower_pca.rows.local import LocalData

RETRACTIONS: Final[Mapping[str, Callable[[Array], Array]]] = {"polar": linalg.polar, "qr": linalg.orth}
_STEP: Final = 0.5  # the first step size, in multiples of 1 / max_i ||S_i||_2
_LONGEST: Final = 16.0  # maximum step size, in the same units
# The step is multiplied by _LONGER after a round that raised the objective, and by _SHORTER after any other round.
_LONGER, _SHORTER = 2.0, 0.25
# The maximum step size is multiplied by this if the objective falls from a value no higher than before an earlier fall.
_LONGEST_FACTOR: Final = 0.5


@dataclass(frozen=True)
class PerState(PersonalState):
    """The fields of `PersonalState`, and the numbers that determine the step size.

    Attributes
    ----------
    norm : float
        max_i ||S_i||_2, or 0 until it is measured.
    seed : int
        The seed of the first local components, if they are random.
    objective : float
        The objective of the latest round in which no client was missing.
    step : float
        The step size in multiples of 1 / norm.
    longest : float
        The maximum step size that is still allowed.
    peak : float
        The highest value that the objective had before a round in which it fell.
    most : int
        The largest number of clients that have answered in a round.
    """

    norm: float
    seed: int
    objective: float = 0.0
    step: float = _STEP
    longest: float = _LONGEST
    peak: float = 0.0
    most: int = 0


@dataclass(frozen=True, kw_only=True)
class PerPCA(Personalized[PerState]):
    """Compute shared components and each client's local components, by the gradient steps of the paper.

    This is Algorithm 2 of the paper: clients take a gradient step on U and V_i, and the server averages
    the U_i. Here S_i = X_i'X_i / n_i, and the retraction GR(A) is the polar factor of A, or the Q of its
    QR factorization. U has r1 columns, and V_i has r2. In each round

      each client computes V_i <- GR((I - UU')V_i), W = [U, V_i], G = S_iW, and then
        with choice 1:     G <- G - W(W'G + G'W)/2, U_i = U + eta G_U, V_i <- GR(V_i + eta G_V)
        with choice 2:     [U_i, V_i] <- polar(W + eta G)
      the server computes  U <- GR(sum w_i U_i / sum w_i)

    G_U and G_V are the columns of G that belong to U and V_i. Choice 1 is stable if eta ||S_i|| is at
    most about 1, and its fixed points are the true solutions. Choice 2 is stable for any step size, but
    its fixed points have an error that grows with the step size. Choice 2 needs the polar factor, because
    the first columns of a QR do not depend on the later columns.

    By default, the step size is eta = step / max_i ||S_i||_2. For this, each client sends one number in an
    additional message. With `eta`, the step size is absolute, as in the paper (0.1). The client with the
    largest ||S_i|| shortens the steps of all clients, so by default the step size grows as long as the
    objective grows: see `step`.

    Reference: Shi and Kontar, "Personalized PCA: decoupling shared and unique features", JMLR 2024,
    Algorithms 1 and 2.
    Cost per round: 4 n_i d (r1 + r2) flops on a client, and r1 + 1 columns of d floats each way. In its first round, a
    client also computes its local components, as in `ExactPerPCA`.
    Prefer it: to reproduce the paper. `ExactPerPCA` finds the same result in 3 to 90 times fewer rounds.

    Parameters
    ----------
    local_components : int, mapping or "auto", default=1
        r2, the number of local components of each client. A client whose rows have a lower rank has fewer. A mapping
        gives the numbers by client: its keys are positions or names of sites, and "others" for all clients that it
        does not name. With "auto", each client chooses a number of up to 10 from held-out rows; see `held_out`.
    weights : {"equal", "samples"}, default="equal"
        "equal" (every client counts the same) or "samples" (w_i = n_i).
    init, start_rounds, given
        See `Personalized`.
    local_init : {"best", "random"}, default="best"
        The local components with which a client begins: those that are best for the first U, or random ones, as in the
        paper. With init="random", they are random in any case.
    collect : bool, default=False
        Whether to collect the local components at the end. Only nodes that agree send them.
    choice : {1, 2}, default=1
        The way in which a client takes its gradient step (see above).
    retraction : {"polar", "qr"}, default="polar"
        The retraction GR. "qr" requires choice=1.
    step : float or None, default=None
        The step size in multiples of 1 / max_i ||S_i||_2. By default it begins at 0.5. With choice=1, it then doubles
        after every round that raises the objective, up to 16. After any other round, it falls to a quarter, but not
        below 0.5. If the objective falls from a value no higher than before an earlier fall, the maximum is halved,
        because otherwise the objective could rise and fall forever. In a round with fewer answers than an earlier
        round, U takes a step of at most 0.5.
    eta : float or None, default=None
        The absolute step size. If given, it replaces `step`.
    oversample : int, default=0
        Columns beyond the shared components in the Lanczos blocks of init="projection".
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
    >>> from flower_pca import PerPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 0.1, 4]]  # one shared direction, and one of each site
    >>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
    >>> result = simulate(PerPCA(local_components=1), sites, n_components=1)
    >>> print(np.abs(result.components_).round(1))
    [[1. 0. 0. 0.]]
    >>> print([np.abs(result.local[site]["components"]).argmax().item() for site in range(3)])
    [1, 2, 3]
    """

    name: ClassVar[str] = "per_pca"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **Personalized.asks,
        "measure": FLAG,
        "eta": POSITIVE,
        "choice": index_rule(2, least=1),
        "polar": FLAG,
        "seed": SEED,
    }
    remembers: ClassVar[bool] = True
    additive_with: ClassVar[str] = "eta=0.1"
    quantity: ClassVar[str] = "movement of the shared components over the step"

    choice: int = 1
    retraction: str = "polar"
    step: float | None = None
    eta: float | None = None
    local_init: str = "best"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(f"choice of {self.name}", self.choice, least=1, most=2)
        checks.choice(f"retraction of {self.name}", self.retraction, tuple(RETRACTIONS))
        checks.choice(f"local_init of {self.name}", self.local_init, ("best", "random"))
        if self.step is not None:
            checks.number(f"step of {self.name}", self.step, least=1e-12, remedy="Leave it out.")
        if self.eta is not None:
            checks.number(f"eta of {self.name}", self.eta, least=1e-300, remedy="Leave it out for a scale-free step.")
        if self.choice == 2 and self.retraction == "qr":
            raise ConfigError(
                f'choice=2 of {self.name} needs retraction="polar", because the first columns of a QR do not depend on '
                'the later columns. Use retraction="polar".',
                setting="retraction",
                value=self.retraction,
            )

    def first_state(self, common: PersonalState, model: Model) -> PerState:
        first = PerState(**vars(common), norm=0.0, seed=model.seed, step=self.step or _STEP)
        if self.eta is None:
            return first
        return replace(first, norm=1.0)

    def broadcast(self, state: PerState) -> Arrays:
        if state.norm:
            return super().broadcast(state)
        return {"measure": np.array(True)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        if "measure" in arrays:
            return {"norm": Part(kind=Kind.EIGENVALUES)}
        if "k" in arrays:
            return StartIteration.parts(arrays, d)
        M = Part(arrays["U"].shape, Kind.ESTIMATE)
        return {"w": NUMBER, **ThetaProbe.parts(arrays), "M": M, "f": MEAN_SQUARES}

    def merging(self, state: PerState) -> Merge:
        if state.norm:
            return super().merging(state)
        return _merge_largest

    def server(self, state: PerState, total: Any, answered: frozenset[int]) -> PerState:
        if not state.norm:
            progress = replace(state.progress, rounds=state.progress.rounds + 1)
            # If all rows are 0, the norm is 0 as well. It is replaced by 1, because 0 means that it was not measured.
            return replace(state, norm=total or 1.0, progress=progress)
        if state.start is not None:
            return super().server(state, total, answered)
        most = max(state.most, len(answered))
        return self.state_after_sums(replace(state, most=most), total, len(answered) / most)

    def extra_broadcast(self, state: PerState) -> Arrays:
        arrays = {
            "eta": np.array(self.eta or state.step / state.norm),
            "choice": np.array(self.choice),
            "polar": np.array(self.retraction == "polar"),
        }
        if self.local_init == "random" or (self.init == "random" and self.given is None):
            arrays["seed"] = np.array(state.seed)
        return arrays

    def extra_bounds(self, model: Model) -> Mapping[str, Array | float]:
        w, wS = self.largest_weights(model)
        # The answer is U + eta (S U - W (W'SU + U'SW) / 2).
        return {"M": w + 2.0 * (self.eta or 0.0) * wS, "f": 0.0}

    @property
    def additive(self) -> bool:
        # Without `eta`, the step depends on max_i ||S_i||_2, which is not a sum over clients.
        return self.eta is not None and super().additive

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if "measure" in arrays:
            return {"norm": np.array(data.norm2() / data.n)}, memory
        if "k" in arrays:
            return StartIteration.answer(arrays, data, memory)
        U = arrays["U"]
        w = client_weight(arrays, data)
        own, chosen = held_out.choose_number(arrays, data, memory)
        V = memory.get("V", U[:, :0])
        span = deflation.span_of_rows(data, U.shape[1] + own, memory)
        if V.shape != (data.d, min(own, data.d - U.shape[1])):  # This client is new, or its node has lost its memory.
            V = _first_local_components(arrays, data, own)
        beside = deflation.project_into_span(deflation.orthonormal_outside(V, U), U, span)
        W = np.hstack([U, beside])
        G = deflation.covariance_product(data, W)
        U_i, V = _gradient_step(W, G, U.shape[1], arrays)
        explained = np.array(w * np.sum(W * G))
        up = {"w": np.array(w), "M": w * U_i, "f": explained}
        return {**up, **ThetaProbe.answer(V, arrays["b"])}, {**chosen, "V": V, "narrow": span}

    def state_after_answers(self, state: PerState, mean: Arrays, share: float) -> PerState:
        M, f, before = mean["M"], float(mean["f"]), state.progress
        step, all_there = state.step, share >= 1.0
        if not all_there and self.step is None and self.eta is None and step > _STEP:
            # Without a client, the mean gradient is not 0 at the solution either. A long step would lead far from it.
            M, step = state.U + _STEP / step * (M - state.U), _STEP
        U = RETRACTIONS[self.retraction](M)
        turned = float(np.linalg.norm(linalg.complement(M, state.U)))
        error = turned / (self.eta or step) / np.sqrt(max(U.shape[1], 1))
        if not f >= state.objective:  # After a fall, a rise above the lower objective counts as progress.
            before = replace(before, gained=f)
        if all_there:  # The objectives of some clients and of all clients cannot be compared.
            state = replace(self._with_next_step(state, f), objective=f)
        return replace(state, U=U, progress=before.step(error, gain=f))

    def _with_next_step(self, state: PerState, f: float) -> PerState:
        """Return the state with the step of the next round, after a round with objective f."""
        if self.step is not None or self.choice == 2:
            return state
        if f > state.objective:
            return replace(state, step=min(state.step * _LONGER, state.longest))
        longest, peak = state.longest, max(state.peak, state.objective)
        # A fall is harmless if the objective was higher than before all earlier falls. Otherwise the objective may
        # rise and fall forever, so the maximum step size is halved.
        if state.objective <= state.peak:
            longest = max(longest * _LONGEST_FACTOR, _STEP)
        step = min(max(state.step * _SHORTER, _STEP), longest)
        return replace(state, step=step, longest=longest, peak=peak)

    def metrics(self, state: PerState) -> dict[str, float]:
        metrics = super().metrics(state)
        if state.objective:
            metrics["objective"] = state.objective
        return metrics

    def finish(self, state: PerState, model: Model) -> Model:
        return replace(model, basis=state.U, product=None, left=self.closing_arrays(state, exact=False, steps=0))


def _merge_largest(total: float | None, client: int, reply: Arrays) -> float:
    return max(total or 0.0, float(reply["norm"]))


def _first_local_components(arrays: Arrays, data: LocalData, own: int) -> Array:
    """Return the local components with which a client begins: random ones if the message has a seed, or else the best.

    Random local components first turn U away from the shared components, towards directions of single clients.
    """
    if "seed" not in arrays:
        return deflation.local_basis(data, arrays["U"], own)
    # They must differ between clients, because equal ones would look like shared components.
    seed = int(arrays["seed"]) + data.fingerprint()
    return linalg.random_basis(data.d, own, seed=seed)


def _gradient_step(W: Array, G: Array, r: int, arrays: Arrays) -> tuple[Array, Array]:
    eta = float(arrays["eta"])
    if int(arrays["choice"]) == 2:
        W = linalg.polar(W + eta * G)
        return W[:, :r], W[:, r:]
    WG = W.T @ G
    W = W + eta * (G - W @ (WG + WG.T) / 2.0)
    # As in the paper, U_i is sent without a retraction, because the server retracts the mean.
    if arrays["polar"]:
        return W[:, :r], linalg.polar(W[:, r:])
    return W[:, :r], linalg.orth(W[:, r:])
