"""Test Huber regression against a general minimizer, and against exact rows with outlying entries."""

import numpy as np
import pytest
from cases import every
from scipy.optimize import minimize

from flower_pca.algorithms.robust.huber import Regression, recover, sparse_part


def huber_problem(seed, n=6, d=25, p=3, far=0.1):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((d, p)), rng.standard_normal((n, p))
    S = np.where(rng.random((n, d)) < far, 40.0 * rng.choice([-1.0, 1.0], (n, d)), 0.0)
    return U, V, S


def huber_objective(X, U, V, lam, rho):
    r = np.abs(X - V @ U.T)
    return rho / 2 * np.sum(V**2) + np.sum(np.where(r <= lam, r**2 / 2, lam * r - lam**2 / 2))


@pytest.mark.slow
@every("seed", [0, 1, 2])
@every(("lam", "rho"), [(0.5, 2.0), (5.0, 0.1)])
def test_huber_regression_equals_a_general_minimizer(lam, rho, seed):
    U, V, S = huber_problem(seed, n=2)
    X = V @ U.T + S + np.random.default_rng([seed, 1]).standard_normal(S.shape)
    ours = Regression(U, lam, rho).minimize(X, np.zeros_like(V))
    theirs = minimize(
        lambda v: huber_objective(X, U, v.reshape(V.shape), lam, rho),
        np.zeros(V.size),
        method="BFGS",
        options={"gtol": 1e-9},
    ).x.reshape(V.shape)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert huber_objective(X, U, ours, lam, rho) <= huber_objective(X, U, theirs, lam, rho) * (1 + 1e-12)


def test_the_objective_never_rises_and_the_gradient_vanishes():
    U, V, S = huber_problem(3)
    X, lam, rho = V @ U.T + S, 1.5, 0.7
    regression, V, values = Regression(U, lam, rho), np.zeros_like(V), []
    for _ in range(60):
        values.append(huber_objective(X, U, V, lam, rho))
        V, R = regression.take_steps(X, V, 1)
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    np.testing.assert_array_equal(regression.clip_in_place(R), np.clip(X - V @ U.T, -lam, lam))
    V = regression.minimize(X, V)
    gradient = rho * V - np.clip(X - V @ U.T, -lam, lam) @ U
    assert np.abs(gradient).max() <= 1e-6 * np.abs(rho * V).max()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_recovered_from_nothing_under_far_entries(dtype):
    U, V, S = huber_problem(5, n=200, d=60)
    X = (V @ U.T + S).astype(dtype)
    found = recover(X, U, start=1.5, lam=1e-6, rho=0.0)
    np.testing.assert_allclose(found, V, atol=1e-5)
    plain = np.linalg.lstsq(U, X.T, rcond=None)[0].T
    assert np.abs(plain - V).max() > 1.0


def test_soft_leaves_what_is_beyond():
    np.testing.assert_array_equal(sparse_part(np.array([-3.0, -1.0, 0.5, 2.5]), 1.0), [-2.0, 0.0, 0.0, 1.5])


def test_single_precision_comes_to_rest_as_soon_as_double(monkeypatch):
    U, V, S = huber_problem(6, n=200, d=500)
    X = V @ U.T + S + np.random.default_rng(7).standard_normal(S.shape)
    steps, step = [], Regression._step
    monkeypatch.setattr(Regression, "_step", lambda self, X, *rest: steps.append(X.dtype) or step(self, X, *rest))
    double = Regression(U, 1.5, 0.7).minimize(X, np.zeros_like(V))
    single = Regression(U, 1.5, 0.7).minimize(X.astype(np.float32), np.zeros_like(V))
    assert steps.count(np.float32) <= steps.count(np.float64)
    np.testing.assert_allclose(single, double, rtol=0.0, atol=1e-5 * np.abs(double).max())
