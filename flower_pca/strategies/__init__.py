"""Flower's server side: PCAStrategy, TrackingStrategy, and a Strategy for each algorithm.

Those of the package stand in `named`, which is imported when one of them is first asked for. An
algorithm that was registered elsewhere gets its Strategy then.
"""

import importlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flower_pca import registry
from flower_pca.strategies.base import arrays_of
from flower_pca.strategies.pca import PCAStrategy, Standardize, TrackingStrategy

if TYPE_CHECKING:
    from flower_pca.strategies.named import *  # noqa: F403

__all__ = ["PCAStrategy", "Standardize", "TrackingStrategy", "arrays_of"]
__all__ += sorted(registry.public())


def __getattr__(name: str) -> Any:
    if name not in registry.public():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    named = importlib.import_module("flower_pca.strategies.named")
    globals()[name] = found = getattr(named, name, None) or _strategy(name)
    return found


def _strategy(name: str) -> type[PCAStrategy]:
    """The Strategy of an algorithm that was registered elsewhere: its parameters, and those of every strategy."""
    stage: Any = registry.public()[name]
    own = [field.name for field in fields(stage)]

    def start(self: PCAStrategy, **keywords: Any) -> None:
        parameters = {key: keywords.pop(key) for key in own if key in keywords}
        PCAStrategy.__init__(self, registry.make(stage.name, **parameters), **keywords)

    return type(
        name, (PCAStrategy,), {"name": stage.name, "__doc__": stage.__doc__, "__module__": __name__, "__init__": start}
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
