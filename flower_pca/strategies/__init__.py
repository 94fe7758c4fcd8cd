"""Flower strategies for the server: PCAStrategy, TrackingStrategy, and a Strategy for each algorithm.

The strategies of the package's algorithms are in `named`, which is imported when one of them is first
used. If another package has registered an algorithm, its Strategy is created when it is first used.
"""

import importlib
import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flower_pca import registry
from flower_pca.core.stage import Stage
from flower_pca.strategies.base import arrays_of
from flower_pca.strategies.pca import PCAStrategy, Standardize, TrackingStrategy

if TYPE_CHECKING:
    from flower_pca.strategies.named import *  # noqa: F403

__all__ = ["PCAStrategy", "Standardize", "TrackingStrategy", "arrays_of"]
__all__ += sorted(registry.public_classes())


def __getattr__(name: str) -> Any:
    if name not in registry.public_classes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    stage = registry.public_classes()[name]
    named = importlib.import_module("flower_pca.strategies.named")
    found = getattr(named, name, None)
    if found is None:  # Another package has registered the algorithm.
        found = _strategy(name, stage.name, named.AlgorithmStrategy)
    _describe(found, stage)
    globals()[name] = found
    return found


def _strategy(name: str, stage: str, base: type[PCAStrategy]) -> type[PCAStrategy]:
    """Create the Strategy of an algorithm, in the same form as the classes in `named`."""

    def start(self: PCAStrategy, **keywords: Any) -> None:
        base.__init__(self, **keywords)

    members = {"name": stage, "__doc__": "PCA by an algorithm that another package has registered."}
    return type(name, (base,), {**members, "__module__": __name__, "__init__": start})


def _describe(strategy: Any, stage: type[Stage[Any]]) -> None:
    """Set the signature and the docstring of a Strategy from its algorithm, so that `help` shows them."""
    base = TrackingStrategy if stage.name in registry.TRACKERS else PCAStrategy
    _, *common = inspect.signature(base).parameters.values()
    own = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(stage)
    ]
    # An algorithm that cannot start from given components may have its own parameter called `init`.
    common = [parameter for parameter in common if parameter.name not in {mine.name for mine in own}]
    signature = inspect.signature(strategy.__init__)
    this = signature.parameters["self"]
    strategy.__init__.__signature__ = signature.replace(parameters=[this, *own, *common])
    strategy.__doc__ = (
        f"{strategy.__doc__}\n\nThe keywords of `{base.__name__}` can be given as well. "
        f"The algorithm:\n\n{inspect.getdoc(stage)}\n\n"
        f"To use it as a strategy, call `strategy.fit(grid)` in your ServerApp:\n\n"
        f">>> from flower_pca import strategies\n"
        f">>> strategy = strategies.{strategy.__name__}(n_components=2)"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
