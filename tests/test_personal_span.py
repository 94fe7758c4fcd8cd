"""Test that no client has more own components than its rows span beside the shared ones."""

from __future__ import annotations

import numpy as np
import pytest
from builders import Array

from flower_pca import PersonalResult, registry, simulate
from flower_pca.algorithms.personal import deflation
from flower_pca.rows.local import LocalData

ALGORITHMS = (
    "exact_per_pca(local_components=4, max_rounds=40)",
    "exact_per_pca(local_components=4, local_steps=2, max_rounds=40)",
    "per_pca(local_components=4, max_rounds=40)",
    "per_pca(local_components=4, choice=2, init='random', max_rounds=40)",
)
D, R1 = 9, 2


def shards_of_all_ranks() -> list[Array]:
    """Clients of full rank, of three rows, of one, of rank one, of shared directions only, and of zeros."""
    rng = np.random.default_rng(20)
    shared = np.linalg.qr(rng.standard_normal((D, R1)))[0].T

    def rows(n: int) -> Array:
        return 3.0 * rng.standard_normal((n, R1)) @ shared + rng.standard_normal((n, D)) * np.linspace(0.5, 1.5, D)

    one = np.outer(rng.standard_normal(50), rng.standard_normal(D))
    return [rows(100), rows(80), rows(3), rows(1), one, 3.0 * rng.standard_normal((40, R1)) @ shared, np.zeros((5, D))]


def spanned(X: Array, U: Array) -> Array:
    """An orthonormal basis, as rows, of what LAPACK says the rows span beside U (d x r1)."""
    _, s, Vt = np.linalg.svd(X - X @ U @ U.T, full_matrices=False)
    return Vt[s > 1e-7 * max(np.linalg.norm(X), 1e-300)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_own_components_lie_in_what_the_rows_span(algorithm: str) -> None:
    X = shards_of_all_ranks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flower_pca.results.personal.SEPARABLE", -1.0)
        result = simulate(algorithm, X, n_components=R1, seed=3, center=False)
    assert isinstance(result, PersonalResult)
    found = [result.local_components_of(i) for i in range(len(X))]
    wanted = [spanned(rows, result.components_.T) for rows in X]
    assert [len(V) for V in found] == [min(4, len(W)) for W in wanted]
    assert [len(result.local[i]["variances"]) for i in range(len(X))] == [len(V) for V in found]
    for V, W in zip(found, wanted, strict=True):
        np.testing.assert_allclose(V - V @ W.T @ W, 0.0, atol=1e-9)
    # The last estimate of the run is of the spaces that are left at the end: nothing else was probed on the way.
    theta = 1.0 - np.linalg.eigvalsh(sum(V.T @ V for V in found) / len(X))[-1]
    assert result.theta_ == pytest.approx(theta, abs=1e-10)
    assert theta - 1e-9 <= result.theta_estimate_ <= theta + 0.05


@pytest.mark.parametrize("name", ["exact_per_pca", "per_pca"])
def test_a_round_sends_nothing_of_directions_that_no_row_has(name: str) -> None:
    """A client without any row but zeros answers a probe with zeros, from the first round on."""
    stage = registry.STAGES[name]
    rng = np.random.default_rng(21)
    U = np.linalg.qr(rng.standard_normal((D, R1)))[0]
    arrays = {"U": U, "b": rng.standard_normal((D, 1)), "own": np.array(4), "samples": np.array(False)}
    asked = {"steps": 2} if name == "exact_per_pca" else {"eta": 0.1, "choice": 1, "polar": True, "seed": 5}
    arrays |= {key: np.array(value) for key, value in asked.items()}
    memory: dict[str, Array] = {}
    for _ in range(3):
        up, memory = stage.client(arrays, LocalData(np.zeros((5, D))), memory)
        np.testing.assert_array_equal(up["Vb"], np.zeros((D, 1)))
        assert memory["V"].shape == (D, 0)


def test_subspace_iteration_leaves_directions_out_that_no_row_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deflation, "_SIDE", 3)
    rng = np.random.default_rng(22)
    U = np.linalg.qr(rng.standard_normal((D, R1)))[0]
    rows = rng.standard_normal((60, 3)) @ rng.standard_normal((3, D))
    found = deflation.local_basis(LocalData(rows), U, 5)
    assert found.shape == (D, 3)
    assert np.linalg.norm(found - spanned(rows, U).T @ (spanned(rows, U) @ found)) <= 1e-7
