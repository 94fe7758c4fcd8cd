"""The version of this package, in the one place that a build reads it from too."""

__version__ = "0.1.0"
