"""The basis that krylov's server keeps: it knows exactly what C makes of it, and it stays small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flower_pca import simulate
from flower_pca.algorithms import krylov
from flower_pca.algorithms.krylov import Basis, Krylov
from flower_pca.core.model import Model


def covariance_of(d: int, n: int) -> Any:
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d)) * np.linspace(3.0, 0.5, d)
    return X.T @ X


def states_of(C: Any, rounds: int, *, n_components: Any = 3, **given: Any) -> Any:
    """The states of a server after each of so many exact answers, and the algorithm."""
    made = Krylov(**{"tol": 0.0, **given})
    p = made.width(n_components)
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((len(C), p)))[0]
    trace = float(np.trace(C))
    model = Model(n_components=n_components, center=False, scale=None, seed=0, d=len(C), n=99, basis=Z, trace=trace)
    states = [made.start(model)]
    for _ in range(rounds):
        if not states[-1].block.shape[1]:
            break
        states.append(made.server(states[-1], {"S": C @ states[-1].block}, frozenset()))
    return states[1:], made


@pytest.mark.parametrize("max_basis", [4, 40])
@pytest.mark.parametrize("n", [12, 400])
def test_the_small_matrix_says_what_c_makes_of_the_basis_through_restarts_and_to_the_end(
    n: int, max_basis: int
) -> None:
    C = covariance_of(60, n)
    size = np.linalg.norm(C, 2)
    states, _ = states_of(C, 14, max_basis=max_basis)
    for state in states:
        Q, B = state.Q.columns, state.block
        both = np.hstack([Q, B])
        assert np.abs(both.T @ both - np.eye(both.shape[1])).max() <= 1e-13
        assert np.linalg.norm(both @ state.H - C @ Q, 2) <= 1e-13 * size
        assert np.linalg.norm(state.T - Q.T @ C @ Q, 2) <= 1e-13 * size
        values, W = np.linalg.eigh(state.T)
        residuals = np.linalg.norm(C @ Q @ W - Q @ W * values, axis=0)
        assert np.abs(state.residuals(values, W) - residuals).max() <= 1e-12 * size
        assert np.linalg.norm(state.product(W) - C @ Q @ W, 2) <= 1e-12 * size


def test_a_basis_that_is_orthonormal_as_far_as_tol_needs_gives_exact_components() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 90)) * np.where(np.arange(90) < 2, 1e4, np.linspace(3.0, 0.5, 90))
    C = X.T @ X
    size = np.linalg.norm(C, 2)
    states, made = states_of(C, 8, tol=1e-3)
    for state in states:
        Q, B = state.Q.columns, state.block
        both = np.hstack([Q, B])
        assert np.abs(both.T @ both - np.eye(both.shape[1])).max() <= 1e-7
        assert np.linalg.norm(both @ state.H - C @ Q, 2) <= 1e-13 * size
        values, W = np.linalg.eigh(state.T)
        residuals = np.linalg.norm(C @ Q @ W - Q @ W * values, axis=0)
        assert np.abs(state.residuals(values, W) - residuals).max() <= 1e-7 * size
    # Otherwise nothing was left in the blocks.
    assert np.abs(both.T @ both - np.eye(both.shape[1])).max() > 1e-12
    model = made.finish(states[-1], Model(n_components=3, center=False, scale=None, seed=0, d=90, n=40))
    Z = model.columns
    assert np.abs(Z.T @ Z - np.eye(5)).max() <= 1e-14
    assert model.product is not None
    assert np.linalg.norm(model.product - C @ Z, 2) <= 1e-13 * size
    exact = np.linalg.eigvalsh(C)[::-1][:2]
    np.testing.assert_allclose(np.linalg.eigvalsh(Z.T @ model.product)[::-1][:2], exact, rtol=1e-13)


def test_residuals_count_the_columns_that_were_dropped_as_rounding() -> None:
    C = covariance_of(60, 9)
    (*_, state), _ = states_of(C, 14)
    assert state.block.shape[1] == 0  # The space is invariant, so no block is left.
    values, W = np.linalg.eigh(state.T)
    assert 0.0 < state.residuals(values, W).max() <= 1e-12 * values[-1]


@pytest.mark.parametrize(("n_components", "found"), [(3, 3), (0.5, None)])
def test_a_basis_of_very_many_columns_has_eight_blocks_and_finds_the_same(
    n_components: Any, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    d = 400
    rows = rng.standard_normal((300, d)) * np.arange(1, d + 1) ** -0.4
    rows -= rows.mean(axis=0)
    s, Vt = np.linalg.svd(rows, full_matrices=False)[1:]
    monkeypatch.setattr(krylov, "_BYTES", 0)
    sizes: list[int] = []
    added = Basis.add

    def add(basis: Basis, block: Any, most: int) -> Basis:
        longer = added(basis, block, most)
        sizes.append(longer.columns.shape[1])
        return longer

    monkeypatch.setattr(Basis, "add", add)
    result = simulate("krylov", np.array_split(rows, 3), n_components=n_components, tol=1e-10)
    k = len(result.components_)
    if found is None:
        share = np.cumsum(s**2) / np.sum(s**2)
        assert k == int(np.sum(share <= n_components)) + 1
        assert max(sizes) <= 2 * k + 5 * 12
    else:
        assert max(sizes) <= 8 * (found + 2)
    assert result.status.ok
    np.testing.assert_allclose(result.explained_variance_, s[:k] ** 2 / 299, rtol=1e-12)
    C = result.components_
    assert np.linalg.norm(Vt[:k] - Vt[:k] @ C.T @ C, 2) <= 1e-6


def test_a_state_stays_as_it_was_if_two_messages_are_answered_from_it() -> None:
    C = covariance_of(60, 400)
    (*_, state), made = states_of(C, 3)
    kept = state.Q.columns.copy()
    one = made.server(state, {"S": C @ state.block}, frozenset())
    first = one.Q.columns.copy()
    two = made.server(state, {"S": C @ (C @ state.block)}, frozenset())
    assert np.array_equal(state.Q.columns, kept)
    assert np.array_equal(one.Q.columns, first)
    assert not np.array_equal(one.block, two.block)
    # From here on both go on by themselves.
    made.server(two, {"S": C @ two.block}, frozenset())
    made.server(one, {"S": C @ one.block}, frozenset())
    assert np.array_equal(one.Q.columns, first)


def test_adding_a_block_copies_the_basis_a_few_times_only() -> None:
    basis, moved = Basis(np.empty((50, 0))), 0
    for _ in range(100):
        longer = basis.add(np.ones((50, 3)), 600)
        moved += not np.shares_memory(longer.columns, basis.columns)
        basis = longer
    assert basis.columns.shape == (50, 300)
    assert basis.columns.flags.f_contiguous
    assert moved <= 9


@pytest.mark.parametrize(
    "settings", [{}, {"min_rounds": 9}, {"tol": 1e-3}, {"mask": True}, {"wire": "float32", "tol": 1e-6}]
)
@pytest.mark.parametrize("spectrum", [np.linspace(3.0, 0.5, 40), 0.7 ** np.arange(40)])
def test_a_run_whose_last_block_is_left_as_it_is_gives_the_same_result(spectrum, settings, monkeypatch):
    rows = np.random.default_rng(8).standard_normal((400, 40)) * spectrum + 2.0
    shards = np.array_split(rows, 4)
    found = []
    for large in (10**9, 1):
        monkeypatch.setattr(krylov, "_LARGE", large)
        found.append(simulate("krylov(max_basis=4)", shards, n_components=3, **settings))
    whole, shorter = found
    assert len(shorter.history) == len(whole.history)
    assert np.abs(shorter.components_ - whole.components_).max() < 1e-9
    np.testing.assert_allclose(shorter.explained_variance_, whole.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(shorter.residuals_, whole.residuals_, rtol=1e-3, atol=1e-14)
