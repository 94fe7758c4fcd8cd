"""One-shot averages of local subspaces: UDA, WDA and DistPCA.

In all three algorithms, each client sends local eigenvectors once, and the server computes the leading
singular vectors of their stack. The closing stage then applies Rayleigh-Ritz. `Average` is the common
base class. Its subclasses define how many vectors a client sends, and how the vectors are weighted. The
server checks that the columns of an answer are orthonormal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_CLIENT, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array, SideBySide
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.kinds import FLAG, ROW_WIDTH, ArrayRule, Kind, Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge
from flower_pca.rows.local import LocalData

# The columns of an answer may deviate from orthonormality by this much, because they may have single precision.
_MOST_SKEW: Final = 1e-3


@dataclass(frozen=True)
class OneShotState:
    """The state of the server in a subclass of `Average`.

    Attributes
    ----------
    width : int
        The number of columns that the basis needs.
    rank : int
        The number of eigenvectors that each client is asked for.
    Z : ndarray or None
        The basis and possibly one additional column, or None before the answers.
    """

    width: int
    rank: int
    Z: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Average(Algorithm[OneShotState]):
    """The base class of averages: clients send local eigenpairs, and the server computes the SVD of their stack."""

    asks: ClassVar[Mapping[str, ArrayRule]] = {"rank": ROW_WIDTH, "weighted": FLAG}
    weighted: ClassVar[bool] = False  # whether eigenvectors are weighted by the local eigenvalues

    def start(self, model: Model) -> OneShotState:
        width = model.columns.shape[1]
        return OneShotState(width, width)

    def broadcast(self, state: OneShotState) -> Arrays:
        return {"rank": np.array(state.rank), "weighted": np.array(self.weighted)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        # A client with few rows sends fewer columns than requested.
        V = Part((d, None), Kind.EIGENVECTORS)
        if not arrays["weighted"]:
            return {"V": V}
        return {"V": V, "S": Part((None,), Kind.EIGENVALUES)}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        V, values = data.leading_eigenpairs(int(arrays["rank"]))
        if not arrays["weighted"]:
            return {"V": V}, memory
        return {"V": V, "S": values / data.n}, memory

    def inspect(self, state: OneShotState, reply: Arrays) -> None:
        columns = reply["V"].shape[1]
        if columns > state.rank:
            raise ProtocolError(
                f"The array V of an answer has {columns} columns, but the server asked for at most {state.rank}. "
                f"{OTHER_CLIENT}"
            )
        if columns and np.abs(reply["V"].T @ reply["V"] - np.eye(columns)).max() > _MOST_SKEW:
            raise ProtocolError(f"The columns of V of an answer are not orthonormal. {OTHER_CLIENT}")
        if self.weighted and (len(reply["S"]) != columns or (reply["S"] < 0.0).any()):
            negative = int((reply["S"] < 0.0).sum())
            raise ProtocolError(
                f"An answer must have one non-negative weight S for each column of V, but it has {len(reply['S'])} "
                f"weights ({negative} negative) for {labels.count(columns, 'column')}. {OTHER_CLIENT}"
            )

    def merging(self, state: OneShotState) -> Merge:
        return self._stack_with

    def _stack_with(self, total: SideBySide | None, client: int, reply: Arrays) -> SideBySide:
        """Return the stack of columns extended by one answer. The server thus keeps no separate answers."""
        total = total or SideBySide()
        total.add(reply["V"] * np.sqrt(reply["S"]) if self.weighted else reply["V"])
        return total

    def server(self, state: OneShotState, total: Any, answered: frozenset[int]) -> OneShotState:
        stack = total.matrix()
        # One additional column shows the gap in the spectrum. If the stack has too few columns, `leading` would add
        # an arbitrary column, which would not show the gap.
        beside = stack.shape[1] > state.width and len(stack) > state.width
        return replace(state, Z=linalg.leading_left_vectors(stack, state.width + beside))

    def status(self, state: OneShotState) -> Status | None:
        if state.Z is None:
            return None
        return Status(Outcome.DONE, "done in one round; approximate (see residuals_)")

    def finish(self, state: OneShotState, model: Model) -> Model:
        return model if state.Z is None else model.with_leading(state.Z, state.width)

    def rounds(self, state: OneShotState) -> int:
        return int(state.Z is not None)


@dataclass(frozen=True, kw_only=True)
class UDA(Average):
    """Average the subspaces that the clients find alone, in one round.

    The components are the leading eigenvectors of (1/N) sum V_i V_i', where V_i holds the top components of client i.

    Reference: Fan, Wang, Wang, Zhu, "Distributed estimation of principal eigenspaces", 2019.
    Cost: one local eigenproblem. Each client sends p columns of d floats. The server computes the SVD
    of a d x Np matrix.
    Prefer it: if there is time for only one round, and the clients have similar data and many rows.

    Parameters
    ----------
    oversample : int, default=0
        Columns that are averaged beyond `n_components`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import UDA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(UDA(), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "uda"
    basic: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class WDA(Average):
    """Average the subspaces that the clients find alone, weighted by their variances, in one round.

    WDA works like UDA with V_i S_i V_i' in place of V_i V_i', where S_i holds the leading eigenvalues of C_i / n_i.

    Reference: Bhaskara and Wijewardena, "On distributed averaging for stochastic k-PCA", NeurIPS
    2019.
    Cost: the same as UDA, and p more floats from each client.
    Prefer it: to `UDA` if the clients' eigenvalues decrease slowly, or differ from client to client.

    Parameters
    ----------
    oversample : int, default=0
        Columns that are averaged beyond `n_components`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import WDA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(WDA(), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "wda"
    basic: ClassVar[bool] = True
    weighted: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class DistPCA(Average):
    """Combine the components that the clients find alone, in one round. Clients may send additional components.

    The components of the result are the leading left singular vectors of the stack of all clients' components.

    Without `local_components`, this is UDA. With more local components, every client sends a larger
    subspace, and the directions that all subspaces share stand out. A good choice is the sum of the
    numbers of shared and local components.

    Reference: Fan, Wang, Wang, Zhu, "Distributed estimation of principal eigenspaces", 2019.
    Cost: one local eigenproblem. Each client sends `local_components` columns of d floats. The server
    computes the SVD of the stacked columns.
    Prefer it: to `UDA` if clients share a few directions, and each client also has directions of its own.

    Parameters
    ----------
    local_components : int or None, default=None
        The number of components that every client sends, at least `n_components`.
    oversample : int, default=0
        Columns that are averaged beyond `n_components`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import DistPCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(DistPCA(local_components=3), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "dist_pca"
    basic: ClassVar[bool] = True

    local_components: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_components is not None:
            checks.integer("local_components of dist_pca", self.local_components, least=1)

    def start(self, model: Model) -> OneShotState:
        state = super().start(model)
        return replace(state, rank=min(max(self.local_components or 0, state.width), model.d))
