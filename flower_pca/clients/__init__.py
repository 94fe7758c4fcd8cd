"""The client side in Flower: PCAClient, the rules of a node, ready ClientApps, and a client for each algorithm.

The module `named` defines the clients of the package's own algorithms. The client of any other registered
algorithm is created when it is first requested.
"""

from typing import TYPE_CHECKING, Any

from flower_pca import registry
from flower_pca.clients import named
from flower_pca.clients.app import client_app, register
from flower_pca.clients.base import PCAClient
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.with_pca import WithPCA

if TYPE_CHECKING:
    from flower_pca.clients.named import *  # noqa: F403

_SUFFIX = "Client"
__all__ = ["PCAClient", "Rules", "WithPCA", "client_app", "register"]
__all__ += sorted(f"{name}{_SUFFIX}" for name in registry.public_classes())


def __getattr__(name: str) -> Any:
    stage = registry.public_classes().get(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
    if stage is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: Any = getattr(named, name, None)
    if found is None:  # `named` has no class for this algorithm, so another package has registered it.
        about = f"A client that answers only messages of {stage.name}. `PCAClient` documents the parameters."
        found = type(name, (PCAClient,), {"algorithms": (stage.name,), "__doc__": about, "__module__": __name__})
    found.__doc__ += (
        "\n\nExamples\n--------\n>>> import numpy as np\n>>> from flower_pca import clients\n"
        f">>> client = clients.{name}(np.eye(60, 6))\n"
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
