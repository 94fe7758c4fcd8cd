"""The entries that a robust run has removed from rows, by client and column, and the sizes of both parts.

Examples
--------
>>> import numpy as np
>>> from flower_pca import simulate
>>> from flower_pca.analysis.outliers import taken_out
>>> rng = np.random.default_rng(0)
>>> mixing = rng.standard_normal((2, 6))
>>> sites = [rng.standard_normal((60, 2)) @ mixing for _ in range(3)]
>>> sites[0][3, 4] = 100.0  # a typing error
>>> taken = taken_out(simulate("consensus_rpca(gamma=0.7)", sites, n_components=2))
>>> print(taken.by_column.argmax(), taken.by_client.argmax())  # the column and the client of the error
4 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.results.robust import RobustResult


@dataclass(frozen=True)
class TakenOut:
    """The shares of removed entries, and the sizes of the low-rank and the sparse part, for each client.

    Attributes
    ----------
    clients : list of int
        The keys of the clients.
    rows : ndarray of shape (N,)
        The number of rows of each client.
    share : ndarray of shape (N, d)
        The share of each column's entries that were removed, and so are not 0 in the sparse part.
    low_rank, sparse : ndarray of shape (N,)
        The root mean square of the entries of the low-rank part and of the sparse part, in the frame.
    """

    clients: list[int]
    rows: Array
    share: Array
    low_rank: Array
    sparse: Array

    __repr__ = brief

    @property
    def by_column(self) -> Array:
        """The share of removed entries in each column, over all these clients, (d,)."""
        return np.asarray(np.average(self.share, axis=0, weights=self.rows))

    @property
    def by_client(self) -> Array:
        """The share of removed entries at each client, (N,)."""
        return np.asarray(self.share.mean(axis=1))


def with_parts(result: RobustResult, shards: Sequence[Any]) -> RobustResult:
    """Return the result with low-rank and sparse parts of these clients' rows, if it does not have them.

    The parts are computed from the components, as for new rows. See `RobustResult.transform`.
    """
    missing = {i: X for i, X in enumerate(shards) if i not in result.local}
    if not missing:
        return result
    found = {i: {"L": result.low_rank_part(X), "S": result.sparse_part(X)} for i, X in missing.items()}
    return replace(result, local={**result.local, **found})


def taken_out(result: RobustResult, shards: Sequence[Any] | None = None) -> TakenOut | None:
    """Return the shares of removed entries and the sizes of both parts, from local results or from the given rows.

    Return None if there are neither local results nor rows.
    """
    if shards is not None:
        result = with_parts(result, shards)
    if not result.local:
        return None
    scale = 1.0 if result.scale_ is None else result.scale_
    clients = sorted(result.local)
    sparse = [result.local[i]["S"] / scale for i in clients]
    low = [(result.local[i]["L"] - result.mean_) / scale for i in clients]
    return TakenOut(
        clients=clients,
        rows=np.array([len(S) for S in sparse]),
        share=np.stack([np.mean(S != 0.0, axis=0) for S in sparse]),
        low_rank=np.array([np.sqrt(np.mean(L**2)) for L in low]),
        sparse=np.array([np.sqrt(np.mean(S**2)) for S in sparse]),
    )
