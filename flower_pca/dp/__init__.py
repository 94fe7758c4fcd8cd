"""Differential privacy of single rows: the noise that a budget requires, and what stays visible under it."""
