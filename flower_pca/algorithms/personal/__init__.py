"""Personalized PCA: shared components of all clients, and own components of each client."""
