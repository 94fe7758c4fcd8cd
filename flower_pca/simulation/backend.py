"""Where a simulation runs, in this process or on Flower's Ray engine with settings of its own; and how."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.core.drive import Driven
from flower_pca.results.start import Start

# of each worker in a round, so that none waits long for the last of the others
_TURNS: Final = 4
# clients of a node; stacked, their answers are in memory together
_MOST: Final = {"stacked": 64, "summed": 2048}


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Flower's simulation engine; "ray" stands for the defaults.

    Args:
        clients_per_node: How many clients a virtual node hosts. The engine handles every message on its own, so that
            one for many clients costs little more than one for one: all of a node's get one message, and their answers
            come back together. 1 for a message per client, as in a deployment; "auto" for several nodes for each core.
        answers: "stacked": the server gets every client's answer, and checks it. "summed": nodes check and add them up,
            so that those of 100,000 clients never meet in memory; the result differs in its last bits. Not for masks,
            channels, trackers, and algorithms with messages or answers that are a client's own.
        num_cpus_per_client: The cores that one client at work takes.
        address: The cluster to use. If left out, that of this process, or a new one on this machine. Rows go through
            Ray's object store where its machines do not share the folder for temporary files; those that are
            memory-mapped from files which all machines see stay where they are.
    """

    clients_per_node: int | str = "auto"
    answers: str = "stacked"
    num_cpus_per_client: float = 1.0
    address: str | None = None

    def __post_init__(self) -> None:
        if self.clients_per_node != "auto":
            remedy = 'Use "auto", or 1 for a message per client.'
            checks.integer("clients_per_node", self.clients_per_node, least=1, remedy=remedy)
        checks.choice("answers of Ray", self.answers, ("stacked", "summed"))
        if self.clients_per_node == 1 and self.answers != "stacked":
            rule, remedy = "stacked where each client is a node", "Leave clients_per_node out."
            raise ConfigError("answers of Ray", must=rule, got=self.answers, then=remedy)
        checks.number("num_cpus_per_client", self.num_cpus_per_client, least=0.01, remedy="Use 1.")

    def each(self, clients: int, actors: int) -> int:
        """How many of so many clients a node hosts, if so many can be at work at the same time."""
        if isinstance(self.clients_per_node, int):
            return self.clients_per_node
        return min(max(1, -(-clients // (_TURNS * actors))), _MOST[self.answers])

    @property
    def hosted(self) -> str | None:
        """How clients answer for a strategy: None where each of them is a node."""
        if self.clients_per_node == 1:
            return None
        return self.answers

    @classmethod
    def of(cls, backend: str | Ray) -> Ray | None:
        """The settings that `backend` stands for; None for "in_process", a plain loop without Flower."""
        if isinstance(backend, cls):
            return backend
        if not isinstance(backend, str):
            rule, remedy = "'in_process', 'ray' or a Ray(...)", "Use Ray(num_cpus_per_client=2) for settings."
            raise ConfigError("backend", must=rule, got=repr(backend), then=remedy)
        checks.choice("backend", backend, ("in_process", "ray"))
        if backend == "ray":
            return cls()
        return None


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a simulation is carried out, whatever is asked: see `simulate`.

    Args:
        engine: Flower's engine, with its settings; None for a loop in this process.
        answers: What clients answer from: "rows" or "fixed".
        start: Components to begin with.
        checkpoint: The file to keep the state of the run in.
        on_round: The caller's own function.
    """

    engine: Ray | None
    answers: str
    start: Start | None
    checkpoint: str | os.PathLike[str] | None
    on_round: Callable[[Driven], None] | None

    def __post_init__(self) -> None:
        checks.choice("answers", self.answers, ("rows", "fixed"))
