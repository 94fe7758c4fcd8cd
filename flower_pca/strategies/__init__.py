"""Flower's server side: PCAStrategy and TrackingStrategy, and one named Strategy for each algorithm of the registry."""

from typing import Any

from flower_pca import registry
from flower_pca.strategies.base import arrays_of
from flower_pca.strategies.named import NamedStrategy, NamedTracking, named
from flower_pca.strategies.pca import PCAStrategy
from flower_pca.strategies.standardize import Standardize
from flower_pca.strategies.tracking import TrackingStrategy

# A type checker takes every other name for a NamedStrategy, as `__getattr__` says.
STMiss: type[NamedTracking]
RobustTracking: type[NamedTracking]

__all__ = ["PCAStrategy", "Standardize", "TrackingStrategy", "arrays_of"]
__all__ += sorted(registry.shown())


def __getattr__(name: str) -> type[NamedStrategy]:
    found: Any = named(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
