"""The app's data and model: two kinds of signals, told apart by logistic regression."""

import numpy as np

FEATURES = 200


def load(partition):
    """This client's rows and labels: 60 rows of 200 features, in which six directions carry nearly everything."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((FEATURES, 6)))[0]
    rng = np.random.default_rng(partition + 1)
    signal = rng.standard_normal((60, 6)) * [5, 4, 3, 3, 2, 2]
    y = (signal @ [1, -1, 1, 1, -1, 1] > 0).astype(float)
    level = 0.1 * rng.standard_normal(FEATURES)  # what this client's instrument adds to every row
    return signal @ basis.T + level + 0.3 * rng.standard_normal((60, FEATURES)), y


def train(weights, X, y, steps=20, rate=0.1):
    """A few steps of gradient descent on the logistic loss; the last weight is the intercept."""
    X = np.column_stack([X, np.ones(len(X))])
    for _ in range(steps):
        weights = weights - rate * X.T @ (_probability(weights, X) - y) / len(X)
    return weights


def accuracy(weights, X, y):
    """The share of rows with the right label."""
    X = np.column_stack([X, np.ones(len(X))])
    return float(np.mean((_probability(weights, X) > 0.5) == y))


def _probability(weights, X):
    return 0.5 + 0.5 * np.tanh(X @ weights / 2)
