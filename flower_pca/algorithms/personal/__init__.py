"""Personalized PCA: components that all clients share, beside those of each."""
