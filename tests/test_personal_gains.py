"""Test exact_per_pca's acceleration, and its end by the gain of its objective."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from builders import Array
from cases import every
from scipy.linalg import eigh
from sklearn.datasets import load_digits

from flower_pca import ExactPerPCA, PersonalResult, simulate
from flower_pca.algorithms.personal.exact_per_pca import Gains, Secant, Secants
from flower_pca.base.history import Outcome


@functools.cache
def digits(shared: int, own: int, gain_tol: float = 0.0) -> PersonalResult:
    X, y = load_digits(return_X_y=True)
    shards = [X[y == digit] for digit in range(10)]
    result = simulate(ExactPerPCA(local_components=own, gain_tol=gain_tol), shards, n_components=shared)
    assert isinstance(result, PersonalResult)
    return result


def final_objective(result: PersonalResult) -> float:
    return max(r.metrics["objective"] for r in result.history if "objective" in r.metrics)


@pytest.mark.slow
def test_flat_objectives_take_no_hundreds_of_messages() -> None:
    """241 rounds by Anderson's extrapolation from the same rows."""
    result = digits(5, 5)
    assert result.status.outcome is Outcome.CONVERGED
    assert len(result.history) <= 100


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "own"), [(3, 3), (5, 5)])
def test_a_run_ends_by_its_objective_and_not_on_a_saddle(shared: int, own: int) -> None:
    """With three of each the objective gains 3e-6 in ten rounds where it is still 2e-3 below the end."""
    whole, early = digits(shared, own), digits(shared, own, 1e-5)
    assert early.status.outcome is Outcome.SETTLED
    assert early.status.ok
    assert "(gain_tol=1e-05)" in early.status.words
    assert "The next step would turn the shared components by an angle with a sine of" in early.status.words
    assert len(early.history) < len(whole.history)
    assert final_objective(early) >= final_objective(whole) * (1.0 - 1e-6)


@every(("curvatures", "ends"), [
    ([-0.1, -0.1, -0.1, -0.1], True),
    ([-0.1, -0.1, -0.1, 0.01], False),
    ([-0.1, -0.1, 0.01, -0.1], False),
    ([-0.1, -0.08, -0.06, -0.05], False),
])  # fmt: skip
def test_curvatures_have_to_agree(curvatures: list[float], ends: bool) -> None:
    gains = Gains()
    for curvature in [-0.2] * 8 + curvatures:
        gains = gains.after_round(1.0, curvature, 1e-9, 0.1)
    assert bool(gains.reason_to_end(1e-6)) is ends
    assert not gains.after_round(1.1, -0.1, 1e-9, 0.1).reason_to_end(1e-6)
    assert not gains.after_round(1.0, -0.1, 1e-3, 0.1).reason_to_end(1e-6)


def _tangents(d: int, r: int, seed: int) -> tuple[Array, Array, list[Secant], Array]:
    """A point of the Grassmannian, C whose trace over it is the objective, steps there, and the Hessian's matrix."""
    rng = np.random.default_rng(seed)
    C = np.cov(rng.standard_normal((d, 3 * d)))
    U, rest = np.hsplit(np.linalg.qr(rng.standard_normal((d, d)))[0], [r])
    steps = [rest @ A for A in np.eye((d - r) * r).reshape(-1, d - r, r)]
    lost = [-(rest @ (rest.T @ (C @ s)) - s @ (U.T @ C @ U)) for s in steps]
    H = np.array([[-np.sum(s * y) for y in lost] for s in steps])
    return U, C, [Secant(s, y) for s, y in zip(steps, lost, strict=True)], H


def test_the_curvature_is_the_largest_of_the_hessian() -> None:
    """Against that plain steps take, by LAPACK; without shared directions of clients the Hessian is known."""
    U, C, pairs, H = _tangents(5, 2, seed=1)
    M = np.kron(np.eye(3), U.T @ C @ U)
    expected = eigh(H, M, eigvals_only=True)[-1]
    found = Secants.begin(U, C @ U).with_pairs(pairs).curvature(C @ U)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_step_that_is_there_twice_tells_what_it_tells_once() -> None:
    """Some kernels leave 0 of the second one's length, others a rounding."""
    U, C, pairs, _ = _tangents(5, 2, seed=1)
    only = Secant(np.eye(5)[:, :2], np.diag([1.0, 2.0, 3.0, 4.0, 5.0])[:, :2])
    for one in (pairs[0], only):
        once, twice = (Secants.begin(U, C @ U).with_pairs([one] * n).curvature(C @ U) for n in (1, 2))
        np.testing.assert_allclose(twice, once, rtol=1e-12)
