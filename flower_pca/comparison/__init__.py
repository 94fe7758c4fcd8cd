"""Runs of several algorithms, or with several numbers of components, on the same rows, and their differences."""

from flower_pca.comparison.algorithms import Comparison, compare, slow

__all__ = ["Comparison", "compare", "slow"]
