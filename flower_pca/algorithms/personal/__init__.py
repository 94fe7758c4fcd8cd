"""Personalized PCA: algorithms that find shared components of all clients and local components of each client."""
