"""Federated PCA as a Flower app: all it does is in the package flower_pca."""
