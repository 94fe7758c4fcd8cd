"""Flower's mods around a node's functions: those that would spoil every answer are refused when the app is made.

Mods that look at messages, or count them, go with any run. Those that add noise to what a client
returns, or clip it, expect the weights of a model, under the names that the server has sent them
by: no answer of ours is one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from flwr.clientapp import ClientApp

from flower_pca.base.errors import ConfigError

_SPOIL: Final = {
    "LocalDpMod": 'Run with dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)", or give it to your own function alone',
    "fixedclipping_mod": "Run with dp=..., whose rows are clipped, or give it to your own function alone",
    "adaptiveclipping_mod": "Run with dp=..., whose rows are clipped, or give it to your own function alone",
    "secagg_mod": "Run with mask=True, or give it to your own function alone",
    "secaggplus_mod": "Run with mask=True, or give it to your own function alone",
}


def require_honest(app: ClientApp, mods: Sequence[Any]) -> list[Any]:
    """The mods of our functions, if they and those of the whole app leave answers as they are.

    Raises
    ------
    ConfigError
        If one is known to change them.
    """
    # Flower has no public name for the mods of a whole app.
    for mod in (*getattr(app, "_mods", ()), *mods):
        for name in _names_of(mod):
            if name in _SPOIL:
                raise ConfigError(
                    f"{name} changes answers, which the mods around PCA have to leave as they are. {_SPOIL[name]}: "
                    "@app.train(mods=[...])."
                )
    return list(mods)


def _names_of(mod: Any) -> Iterator[str]:
    """The names of a mod: its own, those of its base classes, and those of what a partial or a decorator wraps."""
    while isinstance(mod, functools.partial):
        mod = mod.func
    function = getattr(inspect.unwrap(mod), "__func__", inspect.unwrap(mod))  # The mod may be a bound method.
    yield getattr(function, "__name__", "")
    owner = getattr(mod, "__self__", mod)
    yield from (kind.__name__ for kind in type(owner).__mro__)
