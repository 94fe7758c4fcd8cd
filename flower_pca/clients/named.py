"""One client per algorithm: PCAClient restricted to it, so that a node's operator decides what the node serves.

They are made of the registry when they are first asked for: `from flower_pca.clients import KrylovClient`.
"""

from __future__ import annotations

from flower_pca import registry
from flower_pca.clients.base import PCAClient

_SUFFIX = "Client"


def names() -> list[str]:
    """The names of all of them."""
    return sorted(f"{name}{_SUFFIX}" for name in registry.shown())


def named(class_name: str) -> type[PCAClient] | None:
    """The client with this name; None if there is none."""
    stage = registry.shown().get(class_name.removesuffix(_SUFFIX)) if class_name.endswith(_SUFFIX) else None
    if stage is None:
        return None
    words = f"Serves {stage.name} only{', from a `Stream`' if stage.name in registry.TRACKERS else ''}."
    return type(class_name, (PCAClient,), {"algorithms": (stage.name,), "__doc__": words, "__module__": __package__})
