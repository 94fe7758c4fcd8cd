"""Algorithms for federated PCA. Each file contains the client's and the server's part of one algorithm."""
