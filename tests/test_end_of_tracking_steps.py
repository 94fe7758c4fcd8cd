"""When a step of tracking has asked enough: never before it is as good as tol says, and without a message too many."""

import numpy as np
import pytest
from builders import sine

from flower_pca import STMiss, Stream, track
from flower_pca.tracking.solver import SubspaceSolver, orthogonal_columns
from sims.over_air import moving

D = 60


def rows_near(rng, *, n, r, angle, noise):
    """Rows of r components of very different sizes and noise, and a basis that is off by about such an angle."""
    U = np.linalg.qr(rng.standard_normal((D, r)))[0]
    L = rng.standard_normal((n, r)) * np.logspace(0, -rng.uniform(0, 2), r) @ U.T
    L += noise * rng.standard_normal((n, D))
    P = np.linalg.svd(L, full_matrices=False)[2][:r].T
    return L, np.linalg.qr(P + angle * rng.standard_normal((D, r)) / np.sqrt(D))[0]


def krylov_solved(L, P, *, tol, seed):
    """The basis and the values at which a Krylov space stops, and its messages."""
    C, r = L.T @ L, P.shape[1]
    misfit = float(np.sum((L - (L @ P) @ P.T) ** 2))
    solver = SubspaceSolver.by_krylov(np.hstack([P, orthogonal_columns(P, 2, seed)]), r=r)
    for k in range(1, 100):
        solver = solver.after_product(C @ solver.block, 1)
        if found := solver.accurate_estimate(tol=tol, products=100, squares=misfit + solver.squares_inside):
            return *found, k
        solver = solver.with_next_block()
    raise AssertionError("no end")


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("n", [6, 9, 40])
def test_a_step_does_not_end_before_its_basis_agrees_with_lapack(n, noise):
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        r = int(rng.integers(1, 6))
        L, P = rows_near(rng, n=n, r=r, angle=10.0 ** rng.uniform(-9, 0), noise=noise)
        s, Vt = np.linalg.svd(L, full_matrices=False)[1:]
        for tol in (1e-4, 1e-8):
            basis, values, _ = krylov_solved(L, P, tol=tol, seed=seed)
            assert sine(basis.T, Vt[:r]) < 2 * tol, f"seed {seed}, tol {tol}"
            np.testing.assert_allclose(values, s[:r] ** 2, rtol=2 * tol, err_msg=f"seed {seed}, tol {tol}")


@pytest.mark.slow
def test_what_the_ritz_values_leave_of_the_trace_bounds_all_other_eigenvalues():
    for seed in range(100):
        rng = np.random.default_rng([seed, 1])
        L, P = rows_near(rng, n=40, r=4, angle=0.3, noise=10.0 ** rng.uniform(-4, 0))
        C = L.T @ L
        first = SubspaceSolver.by_krylov(np.hstack([P, orthogonal_columns(P, 2, seed)]), r=4)
        solver = first.after_product(C @ first.block, 1)
        squares = float(np.sum((L - (L @ P) @ P.T) ** 2)) + solver.squares_inside
        assert squares == pytest.approx(np.trace(C), rel=1e-12)
        assert squares - solver.values[:4].sum() >= np.linalg.eigvalsh(C)[-5] * (1 - 1e-12)


def test_a_space_as_large_as_the_rows_are_many_needs_no_message_more():
    """Ten rows, and two messages of six columns: the sum is known then, however slowly a Krylov space would end."""
    for seed in range(20):
        rng = np.random.default_rng([seed, 2])
        L, P = rng.standard_normal((10, D)), np.linalg.qr(rng.standard_normal((D, 4)))[0]
        basis, values, messages = krylov_solved(L, P, tol=1e-8, seed=seed)
        s, Vt = np.linalg.svd(L, full_matrices=False)[1:]
        assert messages == 2
        assert sine(basis.T, Vt[:4]) < 1e-10
        np.testing.assert_allclose(values, s[:4] ** 2, rtol=1e-10)


def test_an_uneven_sum_is_not_taken_for_all_there_is():
    """With noise in the products the traces agree by chance only, and the answer stays that of the Ritz vectors."""
    rng = np.random.default_rng(3)
    L, P = rng.standard_normal((10, D)), np.linalg.qr(rng.standard_normal((D, 4)))[0]
    solver = SubspaceSolver.by_krylov(np.hstack([P, orthogonal_columns(P, 2, 0)]), r=4)
    for _ in range(2):
        solver = solver.after_product(L.T @ (L @ solver.block) + 1e-4 * rng.standard_normal(solver.block.shape), 1)
        assert solver.accurate_estimate(tol=1e-8, products=100, squares=float(np.sum(L**2))) is None
        solver = solver.with_next_block()


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(("r", "most"), [(4, 38), (18, 24)])
def test_a_run_ends_every_step_in_time_and_with_fewer_messages(r, most, mask):
    """The bound by the misfit alone has asked 42 and 40 messages of these runs, and twice as many under masks."""
    problem = moving.piecewise(n=100, r=r, d=400, change=200, rho=0.1, seed=0)
    streams = [Stream(problem.Y[k::2], batch=10, keep=True) for k in range(2)]
    result = track(STMiss(), streams, n_components=r, mask=mask, seed=0)
    for j, V in enumerate(result.components_):
        rows = np.vstack([stream.completed[j].rows for stream in streams])
        s, Vt = np.linalg.svd(rows, full_matrices=False)[1:]
        assert moving.se(V.T, Vt[:r].T) < 3e-8
        np.testing.assert_allclose(result.values_[j], s[:r] ** 2, rtol=1e-8)
    assert len(result.history) <= (2 * most + 2 if mask else most)
