"""The exceptions of this package: a small tree, so that a caller can catch at the level that suits them."""

from __future__ import annotations


class FlowerPCAError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigError(FlowerPCAError, ValueError):
    """A parameter of the run is not valid."""


class DataError(FlowerPCAError, ValueError):
    """The rows of a client, or the rows of all clients together, cannot be used as they are."""


class ProtocolError(FlowerPCAError, RuntimeError):
    """A message or a file does not have the layout that its reader expects."""


class NotEnoughNodes(FlowerPCAError, RuntimeError):  # noqa: N818
    """Fewer clients answered than the run needs."""
