"""The number of shared components: directions that stand out from noise at three of four clients or more.

Each client counts the directions along which held-out rows contain more than noise, as in the choice of
the number of local components (`algorithms.personal.held_out`). E_i holds this number of leading
directions of all rows of client i. A direction that all clients share is in the span of every E_i, so it
belongs to an eigenvalue of P = mean_i E_iE_i' near 1. A local direction of one client is in the span of
another client's E_i only by chance. Directions with eigenvalues above `CUT` count as shared, which
corresponds to three of four clients.

Block Lanczos needs only products with P. Ritz values never exceed eigenvalues, so a direction with an
eigenvalue below `CUT` never counts as shared. The personalized algorithm then starts from the leading
directions.
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
from flower_pca.core.kinds import BLOCK, COUNT, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage
from flower_pca.rows import folds
from flower_pca.rows.local import LocalData

SHARED: Final = "shared"  # the value of n_components that requests this stage
CUT: Final = 0.75  # the eigenvalue of P above which a direction counts as shared
MOST: Final = 10  # maximum number of shared components that can be found
FEWEST: Final = 3  # minimum number of clients, because fewer clients have too much in common by chance
_ROUNDS: Final = 6  # maximum number of messages
_MEMORY_KEY: Final = "clear"  # the key of a client's E_i in its memory
_MOST_RESIDUAL: Final = 0.1  # maximum residual of the Ritz values that count, and of the next Ritz value


@dataclass(frozen=True)
class SharedState(BlockLanczos):
    """The iteration on P, and its result once the number of shared components is known.

    Attributes
    ----------
    clients : int
        The number of clients that have answered.
    values : ndarray or None
        The Ritz values of P, largest first.
    basis : ndarray or None
        The Ritz vectors of P.
    found : bool
        Whether the number of shared components is known.
    """

    clients: int = 0
    values: Array | None = None
    basis: Array | None = None
    found: bool = False

    @property
    def asks_all_clients(self) -> bool:
        """True: the message goes to all clients even if the run samples clients."""
        return True


@dataclass(frozen=True, kw_only=True)
class Shared(Stage[SharedState]):
    """Count the directions that clients share, from sums of products of each client's projector with a block.

    Cost: once in a run, each client counts its directions. For this, it computes the leading directions of
    four fifths of its rows five times. `MOST + 2` columns of d floats are sent each way, in one to
    `_ROUNDS` messages.
    """

    name: ClassVar[str] = SHARED
    asks: ClassVar[Mapping[str, ArrayRule]] = {"B": BLOCK}
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
        E = memory.get(_MEMORY_KEY, np.empty((0, 0)))
        if len(E) != data.d:  # This is the first message, or the node has lost its memory.
            most = min(MOST + held_out.MOST, data.d)
            count, _ = held_out.count_directions(data, most)
            E = data.leading_eigenpairs(count)[0].astype(np.float64)
        up = {"P": E @ (E.T @ B), "clients": np.array(1.0)}
        return up, {**memory, _MEMORY_KEY: E}

    def server(self, state: SharedState, total: Arrays, answered: frozenset[int]) -> SharedState:
        clients = round(float(total["clients"]))
        if clients < FEWEST:
            raise DataError(
                f"{option('n_components', 'shared')} needs at least {FEWEST} clients with {folds.FEWEST} rows or more "
                f"each, but this run has {clients}. Fewer clients have too much in common by chance. Give a number of "
                f"components instead, for example {option('n_components', 2)}.",
                setting="n_components",
            )
        state, values, basis, residuals = state.step(total["P"] / clients)
        first = slice(int(np.sum(values > CUT)) + 1)
        # If the distance of a Ritz value from the cut is below its residual, the eigenvalue may be on the other side.
        allowed = np.minimum(_MOST_RESIDUAL, np.abs(values[first] - CUT))
        settled = bool(np.all(residuals[first] <= allowed))
        found = settled or not state.block.shape[1] or state.rounds >= _ROUNDS
        return replace(state, clients=clients, values=values, basis=basis, found=found)

    def status(self, state: SharedState) -> Status | None:
        if state.found:
            return ANSWERED
        return None

    def finish(self, state: SharedState, model: Model) -> Model:
        values, basis = state.values, state.basis
        # If the stage has computed nothing, the number was already found before the set of clients changed.
        if values is None or basis is None:
            return model
        above = int(np.sum(values > CUT))
        r = min(above, MOST, model.d - 1)
        if not r:
            raise DataError(
                f"No component is shared by {CUT:.0%} of the clients (at most by {values[0]:.0%}). Give a number of "
                f"components, for example {option('n_components', 2)}.",
                setting="n_components",
            )
        left = {**model.left, held_out.SHARED: linalg.orth(basis[:, :r])}
        decided = model.with_decision("components", _sentence_on_shared(values, r, state.clients))
        return replace(decided, n_components=r, left=left)


def _sentence_on_shared(values: Array, r: int, clients: int) -> str:
    """Return a sentence about the number of shared components, and about the next direction, if there is one."""
    found, of = labels.count(r, "shared component"), labels.count(clients, "client")
    counted = f"{found}: {values[r - 1]:.0%} of {of} have component {r}"
    if r < len(values):
        following = max(float(values[r]), 0.0)
        return f"{counted}, {following:.0%} have component {r + 1} ({CUT:.0%} required)"
    return counted
