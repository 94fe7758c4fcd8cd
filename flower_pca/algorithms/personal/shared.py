"""The number of shared components: directions that most clients have in common, among those that stand out from noise.

Each client counts the directions along which held-out rows contain more than noise, in the same way as
it chooses the number of its local components (`algorithms.personal.held_out`). E_i are these directions
of all its rows. A direction that all clients share is in the span of every E_i, so it belongs to an
eigenvalue of P = mean_i E_iE_i' near 1. A local direction of one client is in the span of another E_i
only by chance. Eigenvalues above `CUT` count as shared, which corresponds to three clients of four.

P is known by products, from block Lanczos. Ritz values never exceed eigenvalues, so no direction is
counted that is not shared. The algorithm starts from the leading directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import held_out
from flower_pca.algorithms.personal.base import BlockLanczos
from flower_pca.base import labels, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.history import ANSWERED, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.kinds import BLOCK, COUNT, Ask, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage
from flower_pca.rows import folds
from flower_pca.rows.local import LocalData

SHARED: Final = "shared"  # the value of n_components that requests this stage
CUT: Final = 0.75
MOST: Final = 10  # the most shared components that can be found
FEWEST: Final = 3  # fewer clients have too much in common by chance
_ROUNDS: Final = 6
_KEPT: Final = "clear"  # the key of a client's E in its memory
_SETTLED: Final = 0.1  # the largest residual of the Ritz values that count, and of the next one


@dataclass(frozen=True)
class SharedState(BlockLanczos):
    """The iteration on P, and its result once the number of shared components is known.

    Attributes
    ----------
    clients : int
        How many clients have told.
    values : ndarray or None
        Ritz values of P, largest first.
    basis : ndarray or None
        Their vectors.
    found : bool
        Whether the number is known.
    """

    clients: int = 0
    values: Array | None = None
    basis: Array | None = None
    found: bool = False

    @property
    def everyone(self) -> bool:
        """Whether the message goes to all clients, although rounds sample a fraction of them: it does."""
        return True


@dataclass(frozen=True, kw_only=True)
class Shared(Stage[SharedState]):
    """Count the directions that clients share, from sums of products of each client's projector with a block.

    Cost: once, a client chooses its own number of components, for which it computes the leading
    directions of four fifths of its rows five times. `MOST + 2` columns of d floats travel each way,
    in one to `_ROUNDS` messages.
    """

    name: ClassVar[str] = SHARED
    asks: ClassVar[Mapping[str, Ask]] = {"B": BLOCK}
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> SharedState:
        none = np.empty((model.d, 0))
        width = min(MOST + 2, model.d)
        block = linalg.random_basis(model.d, width, seed=model.seed + 1)
        return SharedState(none, none, block, found=held_out.SHARED in model.left)

    def broadcast(self, state: SharedState) -> Arrays:
        return {"B": state.block}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"P": Part(arrays["B"].shape, Kind.ESTIMATE), "clients": COUNT}

    def bounds(self, state: SharedState, model: Model) -> Mapping[str, Array | float]:
        return {"P": 1.0, "clients": 1.0}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        B = arrays["B"]
        if data.n < folds.FEWEST:
            return {"P": np.zeros(B.shape), "clients": np.array(0.0)}, memory
        E = memory.get(_KEPT, np.empty((0, 0)))
        if len(E) != data.d:  # the first message, or a node that has lost its memory
            most = min(MOST + held_out.MOST, data.d)
            count, _ = held_out.count(data, most)
            E = data.top(count)[0].astype(np.float64)
        up = {"P": E @ (E.T @ B), "clients": np.array(1.0)}
        return up, {**memory, _KEPT: E}

    def server(self, state: SharedState, total: Arrays, answered: frozenset[int]) -> SharedState:
        clients = round(float(total["clients"]))
        if clients < FEWEST:
            raise DataError(
                f"{option('n_components', 'shared')} needs at least {FEWEST} clients with {folds.FEWEST} rows or more "
                f"each, but this run has {clients}. Give a number of components instead, because few clients have "
                "much in common by chance.",
                setting="n_components",
            )
        state, values, basis, residuals = state.step(total["P"] / clients)
        first = slice(int(np.sum(values > CUT)) + 1)
        # A Ritz value may still cross the cut if it is nearer to it than its residual.
        allowed = np.minimum(_SETTLED, np.abs(values[first] - CUT))
        settled = bool(np.all(residuals[first] <= allowed))
        found = settled or not state.block.shape[1] or state.rounds >= _ROUNDS
        return replace(state, clients=clients, values=values, basis=basis, found=found)

    def status(self, state: SharedState) -> Status | None:
        if state.found:
            return ANSWERED
        return None

    def finish(self, state: SharedState, model: Model) -> Model:
        values, basis = state.values, state.basis
        # The number was found before the set of clients changed.
        if values is None or basis is None:
            return model
        above = int(np.sum(values > CUT))
        r = min(above, MOST, model.d - 1)
        if not r:
            raise DataError(
                f"No component is shared by {CUT:.0%} of the clients (the most common one by {values[0]:.0%}). Give a "
                f"number, for example {option('n_components', 2)}.",
                setting="n_components",
            )
        left = {**model.left, held_out.SHARED: linalg.orth(basis[:, :r])}
        decisions = {**model.decisions, "components": _words_of(values, r, state.clients)}
        return replace(model, n_components=r, left=left, decisions=decisions)


def _words_of(values: Array, r: int, clients: int) -> str:
    """Describe how many components are shared, and how far the next direction is from being shared."""
    found, of = labels.count(r, "shared component"), labels.count(clients, "client")
    counted = f"{found}: {values[r - 1]:.0%} of {of} have component {r}"
    if r < len(values):
        following = max(float(values[r]), 0.0)
        return f"{counted}, {following:.0%} have component {r + 1} ({CUT:.0%} required)"
    return counted
