"""The version of this package, which a build reads from this file."""

__version__ = "0.1.0"
