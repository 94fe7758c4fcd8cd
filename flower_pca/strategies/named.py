"""One Strategy per algorithm: its hyper-parameters beside the few of the strategy, with a signature to read.

They are made of the registry, one for each of its algorithms and trackers, when they are first asked for by the name of
the algorithm's class: `from flower_pca.strategies import Krylov`.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, ClassVar

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.strategies.pca import PCAStrategy
from flower_pca.strategies.tracking import TrackingStrategy

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class NamedStrategy(PCAStrategy):
    """A PCAStrategy of one algorithm; its signature is put together from both."""

    name: ClassVar[str]

    def __init__(self, **parameters: Any) -> None:
        checks.parameters(type(self).__name__, parameters, inspect.signature(type(self)).parameters)
        own, common = _divided(registry.ALGORITHMS[self.name], parameters)
        super().__init__(registry.make(self.name, **own), **common)


class NamedTracking(TrackingStrategy):
    """A TrackingStrategy of one tracker, likewise."""

    name: ClassVar[str]

    def __init__(self, **parameters: Any) -> None:
        checks.parameters(type(self).__name__, parameters, inspect.signature(type(self)).parameters)
        own, common = _divided(registry.TRACKERS[self.name], parameters)
        super().__init__(registry.tracker(self.name, **own), **common)


def named(class_name: str) -> type[NamedStrategy] | type[NamedTracking] | None:
    """The Strategy of the algorithm or tracker whose class has this name; None if there is none."""
    stage = registry.shown().get(class_name)
    if stage is None:
        return None
    tracks = stage.name in registry.TRACKERS
    base, common = (NamedTracking, TrackingStrategy) if tracks else (NamedStrategy, PCAStrategy)
    words = f"{class_name} as a Strategy: see `flower_pca.{class_name}` and `{common.__name__}` for the parameters."
    own = [inspect.Parameter(f.name, _KEYWORD, default=f.default, annotation=f.type) for f in fields(stage)]
    shared = list(inspect.signature(common).parameters.values())[1:]  # but for the first, the stage
    signature = inspect.Signature([*shared, *own])
    members = {"name": stage.name, "__doc__": words, "__module__": __package__, "__signature__": signature}
    return type(class_name, (base,), members)


def _divided(stage: type[Any], parameters: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of the stage, and those of the strategy."""
    hyper = {f.name for f in fields(stage)}
    own = {name: value for name, value in parameters.items() if name in hyper}
    return own, {name: value for name, value in parameters.items() if name not in hyper}
