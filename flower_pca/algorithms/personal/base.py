"""The base of personalized algorithms: parameters, weights of clients, and ways to start.

A run has two phases. As long as `state.start` is not None, the messages compute a first U. In the second
phase, three methods of the algorithm define a round: `extra_broadcast` returns the arrays that the server sends in
addition to U and the probe vector, `extra_bounds` returns bounds on the answers, and `state_after_answers` updates the
state from the mean answers. Every round also contains the probe of the local components.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np

from flower_pca.algorithms.personal import held_out
from flower_pca.base import checks, linalg
from flower_pca.base.errors import OTHER_SERVER, ConfigError, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Iterative, Progress
from flower_pca.core.kinds import BLOCK, FLAG, NUMBER, ROW_WIDTH, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays, Merge, add_answer, stack_answer
from flower_pca.layers import single as apart
from flower_pca.rows.local import LocalData

# A client's mean square is assumed to be below this many times the sum of squares of all clients.
_SQUARES_FACTOR: Final = 4.0
# The start ends if the residuals of the wanted eigenvectors of the mean projector are at most this.
_START_RESIDUAL: Final = 1e-3
# A Rayleigh-Ritz step of the probe uses this many products, because older products belong to local components
# that have changed.
_PROBE_LENGTH: Final = 4
_VANISHED: Final = 1e-8  # a vector whose length is at most this counts as zero


@dataclass(frozen=True)
class BlockLanczos:
    """Block Lanczos on a mean of projectors P: the blocks Q sent so far, their products PQ, and the next block."""

    Q: Array
    PQ: Array
    block: Array
    rounds: int = 0

    def step(self, image: Array) -> tuple[Self, Array, Array, Array]:
        """Add the product of P and the block.

        Returns
        -------
        following : BlockLanczos
            The iteration with the next block to send.
        values, ritz, residuals : ndarray
            The Ritz values, the Ritz vectors and their residuals.
        """
        Q = np.hstack([self.Q, self.block])
        PQ = np.hstack([self.PQ, image])
        values, ritz, _, residuals = linalg.rayleigh_ritz(Q, PQ)
        block = linalg.independent_columns(linalg.complement(linalg.complement(image, Q), Q), 1e-8)
        following = replace(self, Q=Q, PQ=PQ, block=block, rounds=self.rounds + 1)
        return following, values, ritz, residuals


class StartIteration(BlockLanczos):
    """The iteration that finds a first U from the span of the clients' own top components."""

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        """Return the shapes and kinds of the arrays in a client's answer to a message with these arrays."""
        if "B" not in arrays:
            # If the rank of the rows is lower than the requested number of columns, the answer has fewer columns.
            return {"E": Part((d, None), Kind.COMPONENTS, own=True)}
        return {"w": NUMBER, "P": Part(arrays["B"].shape, Kind.ESTIMATE)}

    @staticmethod
    def answer(
        arrays: Arrays, data: LocalData, memory: Arrays, *, send_projector: bool = True
    ) -> tuple[Arrays, Arrays]:
        """Return a client's answer in the first phase, and its memory.

        The answer is the client's top components, or the projection of B onto them. If `send_projector` is False, the
        client has weight 0.
        """
        w = client_weight(arrays, data) if send_projector else 0.0
        if "B" not in arrays:
            V, values = data.leading_eigenpairs(held_out.directions_to_send(arrays, data))
            E = V.astype(np.float64)
            if arrays["scaled"]:
                E = E * np.sqrt(values / data.n)
            return {"E": np.sqrt(w) * E}, memory
        # `deflation.span_of_rows` recognizes rows of a lower rank by the width of "E", so "E" must hold all k
        # directions.
        name = "top" if held_out.AUTO in arrays else "E"
        E = memory.get(name, np.empty((0, 0)))
        if len(E) != data.d:  # This is the first message, or the node has lost its memory.
            E = data.leading_eigenpairs(held_out.directions_to_send(arrays, data))[0].astype(np.float64)
        image = w * (E @ (E.T @ arrays["B"]))
        return {"w": np.array(w), "P": image}, {name: E}


@dataclass(frozen=True)
class ThetaProbe:
    """Lanczos for the largest eigenvalue lambda_max of P = mean_i V_iV_i', where V_i are local components.

    The server sends a vector b and receives P b = mean_i V_i(V_i'b). The local components change from round
    to round, so the iteration restarts every few rounds from its best vector. The mean is over the clients
    that answer. A round without answers only increases the number of steps.

    Attributes
    ----------
    b : ndarray
        The vector to send, d x 1.
    best : ndarray
        The best vector so far.
    Q, PQ : ndarray
        The vectors sent since the last restart, and their products with P.
    steps : int
        The number of rounds so far.
    """

    BOUNDS: ClassVar[Mapping[str, float]] = {"Vb": 2.0, "probed": 1.0}

    b: Array
    best: Array
    Q: Array
    PQ: Array
    steps: int = 0

    @staticmethod
    def parts(arrays: Arrays) -> dict[str, Part]:
        """Return the shapes and kinds of the arrays that `answer` returns for a message with these arrays."""
        best = Part(arrays["b"].shape, Kind.ESTIMATE, own=True)
        return {"Vb": best, "probed": Part(kind=Kind.COUNT, own=True)}

    @staticmethod
    def answer(V: Array, b: Array) -> Arrays:
        """Return a client's answer: V(V'b), and 1 to count the client. If a node withholds both, they count as 0.

        The answer is in the span of V, so a few answers reveal V. A message with several vectors is refused,
        because the answer would reveal V faster.
        """
        if b.shape != (len(V), 1):
            raise ProtocolError(
                f"The probe of local components has shape {b.shape}, but this node needs one vector of {len(V)} "
                f"numbers. {OTHER_SERVER}"
            )
        return {"Vb": V @ (V.T @ b), "probed": np.array(1.0)}

    @classmethod
    def random(cls, d: int, seed: int) -> ThetaProbe:
        """Return a probe that begins with a random vector."""
        b = linalg.random_basis(d, 1, seed)
        none = np.empty((d, 0))
        return cls(b, b, none, none)

    def step(self, Pb: Array) -> tuple[ThetaProbe, float]:
        """Return the probe after a step, and an estimate of lambda_max.

        If the local components do not change, the estimate never exceeds the true value.
        """
        Q = np.hstack([self.Q, self.b])
        PQ = np.hstack([self.PQ, Pb])
        values, ritz, images, _ = linalg.rayleigh_ritz(Q, PQ)
        best = linalg.orth(ritz[:, :1])
        rest = linalg.complement(images[:, :1], Q)
        length = float(np.linalg.norm(rest))
        if Q.shape[1] >= _PROBE_LENGTH or length <= _VANISHED:
            none = Q[:, :0]
            following = ThetaProbe(best, best, none, none, self.steps + 1)
        else:
            following = ThetaProbe(rest / length, best, Q, PQ, self.steps + 1)
        return following, float(values[0])


@dataclass(frozen=True)
class PersonalState:
    """The state of the server between two rounds of a `Personalized` algorithm.

    Attributes
    ----------
    U : ndarray
        The shared components, as columns.
    start : Start or None
        The iteration of the first phase, or None in the second phase.
    probe : ThetaProbe
        The probe of the local components.
    theta : float
        The estimate of theta (see `Personalized`), or NaN until a client has answered the probe.
    progress : Progress
        The number of rounds, and the error.
    """

    U: Array
    start: StartIteration | None
    probe: ThetaProbe
    theta: float
    progress: Progress

    @property
    def asks_all_clients(self) -> bool:
        """Whether the message goes to all clients even if the run samples clients. Only the first phase needs this."""
        return self.start is not None


S = TypeVar("S", bound=PersonalState)


@dataclass(frozen=True, kw_only=True)
class Personalized(Iterative[S]):
    """Compute components U that all clients share, and local components V_i of each client, orthogonal to U.

    A run maximizes sum_i w_i [tr(U'S_iU) + tr(V_i'S_iV_i)] with U'U = I, V_i'V_i = I, U'V_i = 0 and S_i
    = X_i'X_i / n_i. The server finds U, with `n_components` columns. V_i stays at client i. Shared and
    local components can be separated if theta = 1 - lambda_max(mean_i V_iV_i') is above 0. Every round
    improves an estimate of theta: the server sends a vector b and receives sum V_i(V_i'b). Under masks,
    all clients answer. Without masks, only clients whose nodes agree answer, because the answer from a
    client is in the span of its V_i.

    Let E_i be the top `n_components + local_components` eigenvectors of S_i. `init` selects the first U:
      "projection"  the leading eigenvectors of sum w_i E_iE_i', by block Lanczos in at most `start_rounds`
                    rounds. The server needs only sums. The answer from a client is in the span of E_i.
      "upload"      the same eigenvectors, computed in one round from uploaded E_i, which show the server
                    each client's local components.
      "qu"          like "upload", but each column of E_i is multiplied by the square root of its
                    eigenvalue (Qu, Ostrouchov, Samatova, Geist 2002).
      "random"      a random block.
    If `given` is not None, it replaces this first U. For example, pass the transposed components of an
    earlier run.
    """

    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "U": BLOCK,
        "b": BLOCK,
        "B": BLOCK,
        "k": ROW_WIDTH.by_client,
        **held_out.ASKS,
        "samples": FLAG,
        "scaled": FLAG,
    }
    quantity: ClassVar[str] = "first-order residual of the shared components"
    measured: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    tolerant: ClassVar[bool] = False
    # With n_components="shared", a run counts the shared components first: see `algorithms.personal.shared`.
    shares: ClassVar[bool] = True

    local_components: int | apart.NumbersByClient | str = 1
    weights: str = "equal"
    # The default is not "qu", because its U is near a saddle if local variances are much larger than shared ones.
    init: str = "projection"
    start_rounds: int = 6
    collect: bool = False
    given: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.local_components, str):
            self._check_auto(self.local_components)
        elif not isinstance(self.local_components, int | np.integer):
            object.__setattr__(
                self,
                "local_components",
                apart.number_for_clients(f"local_components of {self.name}", self.local_components),
            )
        else:
            checks.integer(f"local_components of {self.name}", self.local_components)
        checks.choice(f"weights of {self.name}", self.weights, ("equal", "samples"))
        checks.choice(f"init of {self.name}", self.init, ("projection", "upload", "qu", "random"))
        checks.integer(f"start_rounds of {self.name}", self.start_rounds, least=1)
        checks.choice(f"collect of {self.name}", self.collect, (True, False))
        if self.given is not None:
            rows = np.atleast_2d(np.asarray(self.given, dtype=np.float64))
            object.__setattr__(self, "given", tuple(map(tuple, rows.tolist())))

    def width(self, n_components: int | float) -> int:
        if not isinstance(n_components, int):
            raise ConfigError(
                f"{option('n_components')} of {self.name} is {shown(n_components)}, but it must be a whole number. "
                "Give a number: `flower_pca.comparison.ranks.rank_table` helps to choose it.",
                setting="n_components",
                value=n_components,
            )
        return super().width(n_components)

    @abstractmethod
    def first_state(self, common: PersonalState, model: Model) -> S:
        """Return the state before the first round."""

    @abstractmethod
    def extra_broadcast(self, state: S) -> Arrays:
        """Return the arrays that the algorithm sends in a round, in addition to the arrays of the base class."""

    @abstractmethod
    def extra_bounds(self, model: Model) -> Mapping[str, Array | float]:
        """Return bounds on the arrays of an answer to `extra_broadcast`."""

    @abstractmethod
    def state_after_answers(self, state: S, mean: Arrays, share: float) -> S:
        """Return the state after a round, given the weighted mean answers and the share of all rows that they cover."""

    def start(self, model: Model) -> S:
        d, r = model.d, model.k
        way = None
        if model.restarts:
            U = linalg.orth(model.columns[:, :r])
        elif self.given is not None:
            U = np.array(self.given)
            if U.shape != (d, r) or not np.isfinite(U).all():
                wrong = f"has shape {U.shape}" if U.shape != (d, r) else "has entries that are not finite"
                raise ConfigError(
                    f"`given` {wrong}, but {self.name} needs a {d} x {r} array of finite numbers. Pass the components "
                    "of a result, transposed.",
                    setting="given",
                )
            U = linalg.orth(U)
        elif self.init == "projection" and held_out.SHARED in model.left:
            U = model.left[held_out.SHARED]
        else:
            width = min(r + self.oversample, d)
            block = linalg.random_basis(d, width, seed=model.seed + 1)
            U = block[:, :r]
            if self.init != "random":
                none = np.empty((d, 0))
                way = StartIteration(none, none, block if self.init == "projection" else none)
        common = PersonalState(
            U, way, ThetaProbe.random(d, model.seed + 2), theta=np.nan, progress=Progress.begin(self.tol, model)
        )
        return self.first_state(common, model)

    def broadcast(self, state: S) -> Arrays:
        samples = {"samples": np.array(self.weights == "samples")}
        if state.start is None:
            rest = {**self._number_for_each_client("own"), **samples, **self.extra_broadcast(state)}
            return {"U": state.U, "b": state.probe.b, **rest}
        k = self._number_for_each_client("k", extra=state.U.shape[1], most=len(state.U))
        if self.init == "projection":
            return {**k, "B": state.start.block, **samples}
        return {**k, "scaled": np.array(self.init == "qu"), **samples}

    def merging(self, state: S) -> Merge:
        if state.start is None or self.init == "projection":
            return add_answer
        return stack_answer

    @property
    def additive(self) -> bool:
        # With `collect`, "upload" or "qu", each client sends its local components. If clients have different numbers of
        # components, the sum could reveal a client whose number differs from all others.
        summed = self.given is not None or self.init in ("projection", "random")
        return summed and not self.collect and self.numbers_by_client is None

    def bounds(self, state: S, model: Model) -> Mapping[str, Array | float]:
        w, _ = self.largest_weights(model)
        if state.start is not None:
            return {"w": w, "P": w}
        return {"w": w, **ThetaProbe.BOUNDS, **self.extra_bounds(model)}

    def largest_weights(self, model: Model) -> tuple[float, float]:
        """Return upper bounds on w_i and w_i ||S_i||.

        With weights="samples", w_i is n_i. The bounds have a margin, because a client that joins later may have
        more rows.
        """
        if self.weights == "samples":
            return MARGIN * model.n, MARGIN * model.trace
        return 1.0, _SQUARES_FACTOR * model.trace

    def server(self, state: S, total: Any, answered: frozenset[int]) -> S:
        if state.start is not None:
            return self._after_start_message(state, state.start, total)
        return self.state_after_sums(state, total, 1.0)

    def state_after_sums(self, state: S, total: Arrays, share: float) -> S:
        """Return the state after a round of the second phase, given the sums and the share of all rows they cover."""
        weight = float(total["w"])
        mean = {name: np.asarray(a / weight) for name, a in total.items()}
        probed = float(total["probed"])
        if probed > 0.0:
            probe, overlap = state.probe.step(total["Vb"] / probed)
            return self.state_after_answers(replace(state, probe=probe, theta=1.0 - overlap), mean, share)
        probe = replace(state.probe, steps=state.probe.steps + 1)
        return self.state_after_answers(replace(state, probe=probe), mean, share)

    def status(self, state: S) -> Status | None:
        status = super().status(state)
        # The run must not end before the estimate of theta has had enough rounds.
        early = np.any(self._number_for_each_client("own")["own"]) and state.probe.steps < _PROBE_LENGTH
        if status is not None and status.outcome is Outcome.CONVERGED and early:
            return None
        return status

    def metrics(self, state: S) -> dict[str, float]:
        metrics = super().metrics(state)
        if np.isfinite(state.theta):
            metrics["theta"] = state.theta
        return metrics

    def closing_arrays(self, state: S, *, exact: bool, steps: int) -> Arrays:
        """Return the arrays that the closing stage needs."""
        return {
            "b": state.probe.best,
            **self._number_for_each_client("own"),
            "exact": np.array(exact),
            "steps": np.array(steps),
            "collect": np.array(self.collect),
        }

    @property
    def numbers_by_client(self) -> Mapping[int | str, int] | None:
        if isinstance(self.local_components, Mapping):
            return self.local_components
        return None

    def restart(self, model: Model) -> Array:
        return model.columns

    def verify(self, model: Model) -> Status | None:
        # The status does not depend on residuals, because shared components are not eigenvectors.
        return model.status

    def _number_for_each_client(self, name: str, *, extra: int = 0, most: int | None = None) -> Arrays:
        """Return the arrays of a message that give each client its number of local components plus `extra`.

        `name` is the key of this number, or of the table of numbers by client. No number exceeds `most`. If
        clients choose the numbers themselves, the arrays contain the maximum, which is sent under two keys.
        """
        own = self.local_components
        if isinstance(own, str):
            most = min(extra + held_out.MOST, most or extra + held_out.MOST)
            numbers = {name: np.array(most), "own": np.array(most - extra)}
            return {held_out.AUTO: np.array(True), **numbers}
        if not isinstance(own, Mapping):
            return {name: np.array(min(extra + own, most or extra + own))}
        widths = {client: min(extra + r, most or extra + r) for client, r in own.items()}
        return apart.table_arrays(name, widths)

    def _check_auto(self, word: str) -> None:
        if word != held_out.AUTO:
            raise ConfigError(
                f"local_components of {self.name} cannot be {shown(word)}. Give a whole number of at least 0, "
                f"'{held_out.AUTO}', or a mapping from clients to such numbers.",
                setting="local_components",
                value=word,
            )
        if self.init == "random" and self.given is None:
            raise ConfigError(
                f'local_components of {self.name} cannot be {shown(word)} with init="random", because a random first '
                'block does not depend on the rows. Use init="projection".',
                setting="local_components",
                value=word,
            )

    def _after_start_message(self, state: S, way: StartIteration, total: Any) -> S:
        """Return the state after one round of the first phase."""
        r = state.U.shape[1]
        progress = replace(state.progress, rounds=state.progress.rounds + 1)
        if self.init != "projection":
            every = np.hstack([reply["E"] for reply in total.values()])
            if not every.shape[1]:
                raise ProtocolError(
                    f'No node has sent components for init={self.init!r}. Use init="projection", or let nodes permit '
                    "it with share_local=True."
                )
            return replace(state, U=linalg.leading_left_vectors(every, r), start=None, progress=progress)
        image = total["P"] / float(total["w"])
        following, _, ritz, residuals = way.step(image)
        U = linalg.orth(ritz[:, :r])
        state = replace(state, U=U, start=following, progress=progress)
        tried = following.rounds >= self.start_rounds
        if tried or residuals[:r].max() <= _START_RESIDUAL or following.block.shape[1] == 0:
            return replace(state, start=None)
        return state


def client_weight(arrays: Arrays, data: LocalData) -> float:
    """Return w_i: n_i if the message weighs clients by samples, or else 1."""
    if arrays["samples"]:
        return float(data.n)
    return 1.0
