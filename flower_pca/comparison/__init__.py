"""Runs of several algorithms, or of several numbers of components, on the same rows, and what tells them apart."""

from flower_pca.comparison.algorithms import Course, compare, lengthy

__all__ = ["Course", "compare", "lengthy"]
