"""Comparisons of several algorithms, or of several numbers of components, on the same rows."""

from flower_pca.comparison.algorithms import Comparison, compare, slow

__all__ = ["Comparison", "compare", "slow"]
