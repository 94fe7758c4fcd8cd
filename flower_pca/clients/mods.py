"""Refuse Flower mods that would change a node's answers. The check is made when the app is created.

Mods that read or count messages work with any run. Mods that add noise to a client's answer, or clip the answer,
expect the weights of a model under the names from the server's message. The answers of this package have a
different form.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from flwr.clientapp import ClientApp

from flower_pca.base.errors import ConfigError

_CLIPS: Final = "Run with dp=..., which clips rows. To clip only your training, give the mod to your own function"
_SPOIL: Final = {
    "LocalDpMod": 'Run with dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)", or give the mod only to your own function',
    "fixedclipping_mod": _CLIPS,
    "adaptiveclipping_mod": _CLIPS,
    "secagg_mod": "Run with mask=True, or give the mod only to your own function",
    "secaggplus_mod": "Run with mask=True, or give the mod only to your own function",
}


def require_mods_that_only_read(app: ClientApp, mods: Sequence[Any]) -> list[Any]:
    """Return `mods` after checking that neither they nor the app's own mods change answers.

    Raises
    ------
    ConfigError
        If a mod is known to change answers.
    """
    # Flower has no public name for the mods of a whole app.
    for mod in (*getattr(app, "_mods", ()), *mods):
        for name in _names_of(mod):
            if name in _SPOIL:
                raise ConfigError(
                    f"{name} changes answers, but mods around PCA must leave answers unchanged. {_SPOIL[name]}: "
                    "@app.train(mods=[...])."
                )
    return list(mods)


def _names_of(mod: Any) -> Iterator[str]:
    """Yield the name of a mod's function, and the names of the mod's class and base classes."""
    while isinstance(mod, functools.partial):
        mod = mod.func
    function = getattr(inspect.unwrap(mod), "__func__", inspect.unwrap(mod))  # The mod may be a bound method.
    yield getattr(function, "__name__", "")
    owner = getattr(mod, "__self__", mod)
    yield from (kind.__name__ for kind in type(owner).__mro__)
