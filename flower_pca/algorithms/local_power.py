"""LocalPower: several local power steps between two messages.

In rounds with several steps, the server aligns all answers with the answer from the client that has the
most rows, and sums the aligned answers (`_AlignedAnswers`). A round with one step equals a round of SSI. `q`
returns the number of local steps in the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import (
    Iterative,
    Progress,
    SubspaceMovement,
    mixed_with_other_directions,
    ritz_step,
    scale_up_to_all_rows,
)
from flower_pca.core.kinds import BLOCK, FLAG, ROWS, STEPS, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stack, add_answer
from flower_pca.rows.local import LocalData
from flower_pca.stages.opening import LARGEST_SITE


@dataclass(frozen=True)
class LocalPowerState:
    """The state of the server: the block to send next, the latest Z, and Y = C Z after a round with one local step.

    If the run starts from components of the same rows (`again`), all rounds have one local step. `largest` is the
    client that had the most rows in the opening, or None if it is unknown.
    """

    block: Array
    Z: Array
    Y: Array | None
    k: int
    n: int
    movement: SubspaceMovement
    progress: Progress
    again: bool = False
    largest: int | None = None


@dataclass
class _AlignedAnswers:
    """The answers of a round in which blocks are aligned with the block of the client that has the most rows.

    Earlier answers wait in memory until this client has answered. All later answers are added on arrival, and not kept.

    Parameters
    ----------
    align : str
        How blocks are aligned.
    expected : int or None
        The client that had the most rows in the opening. If it is unknown or does not answer, all answers wait, and
        they are aligned with the client that has the most rows among them.
    """

    align: str
    expected: int | None
    waiting: Stack = field(default_factory=dict)
    base: Array | None = None
    total: Array | None = None

    def add(self, client: int, reply: Arrays) -> None:
        """Add an answer."""
        if self.base is not None:
            self._add_aligned(reply)
            return
        self.waiting[client] = reply
        if client == self.expected:
            self._align_with(client)

    def sum(self) -> Array:
        """Return sum C_i X_i O_i, in which O_i aligns X_i with the block of the client that has the most rows."""
        if self.base is None:
            # Among clients with equally many rows, the order of arrival must not decide.
            self._align_with(max(self.waiting, key=lambda client: (int(self.waiting[client]["n"]), -client)))
        assert self.total is not None
        return self.total

    def _align_with(self, largest: int) -> None:
        """Add the waiting answers, aligned with the block of this client."""
        self.base = self.waiting[largest]["X"].astype(np.float64)
        # C_i is not divided by the number of rows, so it already includes the paper's weights n_i / n.
        self.total = np.zeros(self.base.shape)
        # Answers are added in the order of arrival.
        for client in list(self.waiting):
            self._add_aligned(self.waiting.pop(client))

    def _add_aligned(self, reply: Arrays) -> None:
        assert self.base is not None
        if self.align == "procrustes":
            self.total += reply["Y"] @ linalg.procrustes(reply["X"], self.base)
        else:
            along = np.sum(reply["X"] * self.base, axis=0)
            # `np.sign` would be 0 for orthogonal columns, and would remove them from the sum.
            self.total += reply["Y"] * np.where(along < 0, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class LocalPower(Iterative[LocalPowerState]):
    """Compute a rough PCA in two or three rounds, with several power steps at each client per round.

    A round has q local power steps. Starting from X_i = Z, each client computes X_i <- orth(C_i X_i) q - 1
    times, and sends C_i X_i. The server computes Z <- orth(sum C_i X_i O_i).

    O_i aligns X_i with X_b, the block of the client that has the most rows in the opening. If this
    client does not answer, b is the client with the most rows among the answers. With
    align="procrustes", O_i is the orthogonal factor of X_i'X_b. With "sign", O_i is the diagonal matrix
    of the signs of <X_i[:, j], X_b[:, j]>. With "none", O_i is the identity. If q = 1, no alignment is
    needed, and the round equals a round of SSI. With `decay`, q is halved every `halve_every` rounds
    until q = 1. Without `decay`, the error stops falling at a level that grows with q and with the
    differences between clients.

    Reference: Li, Wang, Chen, Zhang, "Communication-efficient distributed SVD via local power
    iterations", ICML 2021.
    Cost per round: 4 q n_i d p flops on a client, and p columns of d floats each way. While q > 1
    and blocks are aligned, the clients send twice as much, and the server needs O(N d p^2) flops.
    Prefer it: for a rough answer after two or three rounds.

    Parameters
    ----------
    local_steps : int, default=8
        q in the first round.
    align : {"procrustes", "sign", "none"}, default="procrustes"
        How O_i aligns the blocks (see above).
    decay : bool, default=True
        Whether q falls to 1.
    halve_every : int, default=3
        The number of rounds after which q is halved.
    oversample : int, default=1
        Columns that the algorithm iterates beyond `n_components`.
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
    >>> from flower_pca import LocalPower, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(LocalPower(local_steps=2), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "local_power"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"Z": BLOCK, "steps": STEPS, "aligned": FLAG}
    basic: ClassVar[bool] = True
    products_only: ClassVar[bool] = True
    by_power: ClassVar[bool] = True
    quantity: ClassVar[str] = "error (residual, or estimated angle to the result)"

    oversample: int = 1
    local_steps: int = 8
    align: str = "procrustes"
    decay: bool = True
    halve_every: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("local_steps of local_power", self.local_steps, least=1)
        checks.choice("align of local_power", self.align, ("procrustes", "sign", "none"))
        checks.choice("decay of local_power", self.decay, (True, False))
        checks.integer("halve_every of local_power", self.halve_every, least=1)

    def q(self, state: LocalPowerState) -> int:
        """Return the number of local steps in the next round."""
        if not self.decay:
            return self.local_steps
        if state.again:
            return 1
        return max(1, self.local_steps >> (state.progress.rounds // self.halve_every))

    def start(self, model: Model) -> LocalPowerState:
        Z, k = mixed_with_other_directions(model.power_start(), model, self.tol), model.n_components
        if not isinstance(k, int):
            k = Z.shape[1]
        largest = int(model.sites[LARGEST_SITE]) if LARGEST_SITE in model.sites else None
        progress = Progress.begin(self.tol, model)
        state = LocalPowerState(Z, Z, None, k, model.number_of_units, SubspaceMovement(), progress, largest=largest)
        if model.is_repetition and model.product is not None and self.decay:
            known = replace(state, block=model.columns, Z=model.columns, again=True)
            return self._state_after_product(known, model.product, rounds=0)
        return state

    def broadcast(self, state: LocalPowerState) -> Arrays:
        steps = np.array(self.q(state))
        return {"Z": state.block, "steps": steps, "aligned": np.array(self._needs_single_answers(state))}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        shape = arrays["Z"].shape
        if arrays["aligned"]:
            return {"Y": Part(shape, Kind.PRODUCT, of="X"), "n": ROWS, "X": Part(shape, Kind.BLOCK)}
        if arrays["steps"] > 1:  # orth(Y) is the block X that one more local step would start from.
            return {"Y": Part(shape, Kind.IMAGE), "n": ROWS}
        return {"Y": Part(shape, Kind.PRODUCT), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        X, q = arrays["Z"], int(arrays["steps"])
        for _ in range(q - 1):
            X = linalg.orth(data.matmat(X, reuse=4 * q))
        up = {"Y": data.matmat(X, reuse=4 * q), "n": np.array(data.n)}
        if arrays["aligned"]:
            up["X"] = X
        return up, memory

    def merging(self, state: LocalPowerState) -> Merge:
        if not self._needs_single_answers(state):
            return add_answer

        def merge(total: _AlignedAnswers | None, client: int, reply: Arrays) -> _AlignedAnswers:
            answers = total or _AlignedAnswers(self.align, state.largest)
            answers.add(client, reply)
            return answers

        return merge

    def server(self, state: LocalPowerState, total: Any, answered: frozenset[int]) -> LocalPowerState:
        if self.q(state) == 1:
            return self._state_after_product(state, scale_up_to_all_rows(total, "Y", state.n), rounds=1)
        if self._needs_single_answers(state):
            Y = total.sum()
        else:
            # The sum is not scaled to all rows, because only its span is used.
            Y = total["Y"]
        Z = linalg.orth(Y)
        # If Y lacks rank, `orth` fills Z up with arbitrary columns, which do not count as movement.
        moved = state.movement.add(state.block, linalg.spanning_basis(Y))
        progress = state.progress.step(moved.remaining, moved.newest)
        # While q > 1, neither a small error nor a lack of progress ends the run, because q will still fall.
        if self.decay:
            progress = replace(progress, error=np.inf, stale=0, best=np.inf)
        return replace(state, block=Z, Z=Z, Y=None, movement=moved, progress=progress)

    @staticmethod
    def _state_after_product(state: LocalPowerState, Y: Array, *, rounds: int) -> LocalPowerState:
        """Return the state after the product Y of C and the block has arrived."""
        _, Z, CZ, progress = ritz_step(state.block, Y, state.k, state.progress, rounds=rounds)
        return replace(state, block=linalg.orth(CZ), Z=Z, Y=CZ, progress=progress)

    def finish(self, state: LocalPowerState, model: Model) -> Model:
        return replace(model, basis=state.Z, product=state.Y)

    def _needs_single_answers(self, state: LocalPowerState) -> bool:
        return self.q(state) > 1 and self.align != "none"
