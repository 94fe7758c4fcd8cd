"""Test that formulas of other federated PCAs give wrong answers on rows for which ours are right.

Each peer's formula is first shown to be right where its assumption holds, so that what fails is the assumption.
"""

import numpy as np
import pytest
from builders import equal_clients, evenly, pooled, separated, shifted_clients, sign_flipped, sine, three_clients
from cases import every

from flower_pca import simulate

OURS = ["krylov", "ssi", "local_power"]


def stacked_factors(shards, k):
    """Every client subtracts its own mean and sends S V'; the server takes the SVD of the stack (FL4Health)."""
    factors = []
    for X in shards:
        _, s, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        factors.append(s[:, None] * Vt)
    return np.linalg.svd(np.vstack(factors), full_matrices=False)[2][:k]


def weighted_scatter(shards, k):
    """Globally centered, but unnormalized scatter matrices are weighted by n_i / n once more (SubstraFL)."""
    n, mean = sum(map(len, shards)), np.vstack(shards).mean(axis=0)
    C = sum(len(X) / n * (X - mean).T @ (X - mean) for X in shards)
    return np.linalg.eigh(C)[1][:, ::-1][:, :k].T


def averaged_components(shards, k, signs):
    """The clients' components, averaged entry by entry and made orthonormal (FLEX).

    `signs` are those that the second client's solver happens to give its components: they are free.
    """
    first, second = (np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k] for X in shards)
    second = second * np.sign(np.sum(first * second, axis=1))[:, None]
    return np.linalg.qr((first + np.array(signs)[:, None] * second).T)[0].T


def sine_to_pooled(answer, shards, k=3):
    return sine(answer, pooled(shards).components[:k])


def our_error(name, shards, k=3):
    result = simulate(name, shards, n_components=k, tol=1e-12)
    assert result.status.ok, result.status
    return sine_to_pooled(result.components_, shards, k)


@pytest.mark.slow
@every("name", OURS)
def test_means_that_are_shifted(name):
    assert sine_to_pooled(stacked_factors(equal_clients(0).shards, 3), equal_clients(0).shards) <= 1e-7
    shards = shifted_clients(0).shards
    assert sine_to_pooled(stacked_factors(shards, 3), shards) > 0.5
    assert our_error(name, shards) <= 1e-7


@pytest.mark.parametrize("name", OURS)
def test_sizes_that_are_unequal(name):
    equal = evenly(np.vstack(separated(0).shards), 4)
    assert sine_to_pooled(weighted_scatter(equal, 3), equal) <= 1e-7
    shards = three_clients(0).shards
    assert sine_to_pooled(weighted_scatter(shards, 3), shards) > 1e-2
    assert our_error(name, shards) <= 1e-7


@pytest.mark.slow
@every("name", OURS)
@every("case", ["flipped", "halves"])
def test_components_that_are_not_aligned(case, name):
    shards = sign_flipped(0).shards if case == "flipped" else evenly(np.vstack(separated(0).shards), 2)
    X = shards[0]
    assert sine_to_pooled(averaged_components([X, X], 3, [1, 1, 1]), [X]) <= 1e-7
    assert sine_to_pooled(averaged_components(shards, 3, [1, -1, 1]), shards) > 0.5
    assert our_error(name, shards) <= 1e-7
