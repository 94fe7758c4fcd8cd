"""Subspace tracking: follow a moving subspace over a stream, despite missing values and outliers."""
