"""Where a simulation runs: in this process, or on Flower's Ray engine with settings of its own."""

from __future__ import annotations

from dataclasses import dataclass

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Flower's simulation engine; "ray" stands for the defaults.

    Args:
        clients_per_node: How many clients a virtual node hosts. The engine handles every message on its own, so that
            one for many clients costs little more than one for one: all of a node's get one message, and their answers
            come back together. 1 for a message per client, as in a deployment.
        num_cpus_per_client: The cores that one client at work takes.
        address: The cluster to use, whose machines must share the folder for temporary files: rows travel through it.
            If left out, that of this process, or a new one on this machine.
    """

    clients_per_node: int = 1
    num_cpus_per_client: float = 1.0
    address: str | None = None

    def __post_init__(self) -> None:
        checks.integer("clients_per_node", self.clients_per_node, least=1)
        checks.number("num_cpus_per_client", self.num_cpus_per_client, least=0.01, remedy="Use 1.")

    @classmethod
    def of(cls, backend: str | Ray) -> Ray | None:
        """The settings that `backend` stands for; None for "in_process", a plain loop without Flower."""
        if isinstance(backend, cls):
            return backend
        if not isinstance(backend, str):
            rule, remedy = "'in_process', 'ray' or a Ray(...)", "Use Ray(num_cpus_per_client=2) for settings."
            raise ConfigError("backend", must=rule, got=repr(backend), then=remedy)
        checks.choice("backend", backend, ("in_process", "ray"))
        return cls() if backend == "ray" else None
