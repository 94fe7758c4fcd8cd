"""Packages that are optional: which extra brings each, and the one sentence about one that is not there."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flower_pca.base.errors import ConfigError

# A package by its name for people: the module that it is imported as, and the extra that brings it.
EXTRAS: Final = {
    "matplotlib": ("matplotlib", "plot"),
    "scikit-learn": ("sklearn", "sklearn"),
    "pyarrow": ("pyarrow", "parquet"),
    "flwr-datasets": ("flwr_datasets", "datasets"),
    "Ray": ("ray", "simulation"),
}


def there(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(EXTRAS[package][0]) is not None


def lacking(package: str, to: str) -> ConfigError:
    """The error about a package that is not installed, and what it is needed for."""
    remedy = f'Run: pip install "flower-pca[{EXTRAS[package][1]}]"'
    return ConfigError(package, must=f"installed {to}", got="no such package", then=remedy)


@contextmanager
def needing(package: str, to: str) -> Iterator[None]:
    """Imports of an optional package; without it an error says how to install it."""
    try:
        yield
    except ImportError as error:
        raise lacking(package, to) from error
