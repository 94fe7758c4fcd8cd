"""What a robust run has taken out of the rows: by client and by column, and how large the two parts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flower_pca.algorithms.robust.result import RobustResult
from flower_pca.base.linalg import Array


@dataclass(frozen=True)
class TakenOut:
    """What is known of the sparse parts of clients.

    Attributes:
        clients: Their keys.
        rows: How many rows each has, (N,).
        share: The share of entries taken out, (N, d): those that are not 0 in the sparse part.
        low_rank, sparse: The root mean square of an entry of the low-rank and of the sparse part, in the frame, (N,).
    """

    clients: list[int]
    rows: Array
    share: Array
    low_rank: Array
    sparse: Array

    @property
    def by_column(self) -> Array:
        """The share of entries of each column, of all these clients together, (d,)."""
        return np.asarray(np.average(self.share, axis=0, weights=self.rows))

    @property
    def by_client(self) -> Array:
        """The share of entries of each client, (N,)."""
        return np.asarray(self.share.mean(axis=1))


def taken_out(result: RobustResult, shards: Sequence[Any] | None = None) -> TakenOut | None:
    """What the run has taken out of the rows of each client: by `own`, else by the components of rows that are given.

    None if neither is there.
    """
    clients = sorted({*result.own, *range(0 if shards is None else len(shards))})
    if not clients:
        return None
    parts = []
    for i in clients:
        assert shards is not None or i in result.own
        low, sparse = _own(result, i) if i in result.own else _given(result, shards[i])  # type: ignore[index]
        parts.append((len(sparse), np.mean(sparse != 0.0, axis=0), low, np.sqrt(np.mean(sparse**2))))
    rows, share, low_rank, size = (np.array(part) for part in zip(*parts, strict=True))
    return TakenOut(clients, rows, share, low_rank, size)


def _own(result: RobustResult, client: int) -> tuple[float, Array]:
    L, S = result.own[client]["L"], result.own[client]["S"]
    scale = 1.0 if result.scale_ is None else result.scale_
    return float(np.sqrt(np.mean(((L - result.mean_) / scale) ** 2))), S / scale


def _given(result: RobustResult, X: Any) -> tuple[float, Array]:
    scores, S = result.transform(X), result.sparse_part(X)
    scale = 1.0 if result.scale_ is None else result.scale_
    return float(np.sqrt(np.sum(scores**2) / S.size)), S / scale
