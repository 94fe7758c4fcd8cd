"""A run message by message, with what clients keep in between: for figures of a client's own state along the way.

The one file here that goes below the package's public face.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flower_pca import assembly
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.drive import Driven, rounds
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards


@dataclass(frozen=True)
class Step:
    """A message, the run after it, and the clients' memories then."""

    message: Broadcast
    run: Driven
    memories: list[Arrays]


def steps(algorithm: Algorithm[Any], shards: Sequence[Any], *, n_components: int, seed: int) -> Iterator[Step]:
    """All messages of a run in process; every client answers each. Rows stay as they are, as in the papers."""
    run = assembly.run(assembly.config(algorithm, n_components=n_components, seed=seed, center=False))
    clients = Shards([LocalData(X) for X in shards])
    for message in rounds(run, clients):
        yield Step(message, run, clients.memories)


def client_of(stage: type[Algorithm[Any]], X: Any) -> Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]:
    """The client's half over these rows: what it answers to arrays with this memory, and what it keeps."""
    return partial(_answer, stage, LocalData(X))


def _answer(stage: type[Algorithm[Any]], data: LocalData, arrays: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
    return stage.client(arrays, data, memory)
