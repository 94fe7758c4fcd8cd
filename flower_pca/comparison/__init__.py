"""Runs of several algorithms, or of several numbers of components, on the same rows, and what tells them apart."""

from flower_pca.comparison.algorithms import Comparison, compare, slow

__all__ = ["Comparison", "compare", "slow"]
