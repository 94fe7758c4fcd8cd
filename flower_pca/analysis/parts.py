"""After a personalized run: how much of each client's rows is shared, its own, and neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flower_pca.algorithms.personal.closing import OWN
from flower_pca.base.linalg import Array
from flower_pca.results.personal import PersonalResult


@dataclass(frozen=True)
class Shares:
    """The mean square of a client's rows in the frame, taken apart: shared + own + rest, each (N,).

    Attributes:
        clients: The keys of the clients whose own components are known.
        shared, own, rest: Along the shared components, along the client's own ones, and along neither.
    """

    clients: list[int]
    shared: Array
    own: Array
    rest: Array

    @property
    def without(self) -> Array:
        """The error of the shared components alone."""
        return np.asarray(self.own + self.rest)


def known(result: PersonalResult, shards: Sequence[Any] | None) -> list[int]:
    """The clients whose rows and own components are at hand."""
    return [i for i in sorted(result.own) if OWN in result.own[i] and shards is not None and i < len(shards)]


def shares(result: PersonalResult, shards: Sequence[Any] | None) -> Shares | None:
    """What the rows of the clients consist of, where rows and own components are at hand; else None."""
    clients = known(result, shards)
    if shards is None or not clients:
        return None
    shared = np.array([np.mean(np.sum(result.transform(shards[i]) ** 2, axis=1)) for i in clients])
    without = np.array([result.reconstruction_error(shards[i]) for i in clients])
    rest = np.array([result.reconstruction_error(shards[i], client=i) for i in clients])
    return Shares(clients, shared, np.maximum(without - rest, 0.0), rest)


def spaces(result: PersonalResult) -> tuple[Sequence[str | int], list[Array]]:
    """Clients whose own components are known, and these: of a simulation by key, else those that nodes have sent.

    Those that nodes have sent come in the order of the nodes, and without their keys: they are counted, as "node 1".
    """
    if result.own:
        return sorted(result.own), [result.own_components(i) for i in sorted(result.own)]
    sent = [rows[np.abs(rows).max(axis=1) > 0.0] for rows in result.collected_]
    known = [(f"node {j + 1}", rows) for j, rows in enumerate(sent) if len(rows)]
    return [name for name, _ in known], [rows for _, rows in known]
