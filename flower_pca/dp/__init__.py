"""Differential privacy of individual rows: the noise that a budget requires, and the components that stay visible."""
