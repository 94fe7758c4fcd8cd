"""Flower's client side: PCAClient, the rules of a node, ready ClientApps, and one named client for each algorithm."""

from flower_pca.clients.app import client_app, register
from flower_pca.clients.base import PCAClient
from flower_pca.clients.named import named, names
from flower_pca.clients.policy.rules import Rules
from flower_pca.clients.training import WithPCA

# A type checker takes every name that ends in Client for a PCAClient, as `__getattr__` says.
__all__ = ["PCAClient", "Rules", "WithPCA", "client_app", "register"]
__all__ += names()


def __getattr__(name: str) -> type[PCAClient]:
    found = named(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
