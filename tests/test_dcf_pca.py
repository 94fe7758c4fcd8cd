"""Test DCF-PCA: its formulas, and the numbers of the paper's figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spoilt import ROWS, SMALL, err, pose, rel, sv_error

from flower_pca import make, simulate
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.rows.local import LocalData

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]


def round_message(
    U: Array, lam: float, rho: float, *, eta: float, steps: int = 1, n: int, **more: Any
) -> dict[str, Array]:
    numbers = {"lam": lam, "rho": rho, "rho_row": rho / n, "eta": eta, "scaled": False, "steps": steps,
               "inner_steps": 400, "seed": 0, **more}  # fmt: skip
    return {"U": U, **{name: np.array(value) for name, value in numbers.items()}}


def least(X: Array, U: Array, lam: float, rho: float, share: float) -> float:
    """g_i(U): the client's objective, minimized over V and S."""
    V = Regression(U, lam, rho).take_steps(X, np.zeros((len(X), U.shape[1])), 3000)[0]
    R = np.abs(X - V @ U.T)
    huber = np.sum(np.where(lam >= R, R**2 / 2, lam * R - lam**2 / 2))
    return float(huber + rho / 2 * np.sum(V**2) + rho * share / 2 * np.sum(U**2))


def test_a_local_step_is_along_the_gradient_of_what_the_client_minimizes() -> None:
    rng, X = np.random.default_rng(0), ROWS[:9, :12]
    U, lam, rho, eta = rng.standard_normal((12, 3)), 1.0, 2.0, 1e-3
    up, _ = make("dcf_pca").client(round_message(U, lam, rho, eta=eta, n=36), LocalData(X), {})
    gradient, h = (U - up["U"]) / eta, 1e-5
    for i, j in ((0, 0), (5, 1), (11, 2)):
        E = np.zeros_like(U)
        E[i, j] = h
        difference = (least(X, U + E, lam, rho, 9 / 36) - least(X, U - E, lam, rho, 9 / 36)) / (2 * h)
        assert gradient[i, j] == pytest.approx(difference, rel=1e-4)


def test_one_local_step_is_a_global_step_of_a_clients_share() -> None:
    """K = 1: E clients with eta do what one client does with eta / E, whatever their sizes."""
    L, S = SMALL
    shards = np.split(L + S, [3, 10, 60])
    common = {"local_steps": 1, "inner_steps": 300, "threshold": 2.0, "tol": 0.0, "max_rounds": 6, "sigma": 2.0}
    many = simulate(make("dcf_pca", eta=0.02, **common), shards, n_components=5, seed=2)
    one = simulate(make("dcf_pca", eta=0.02 / 4, **common), [L + S], n_components=5, seed=2)
    assert rel(many, one.local[0]["L"]) <= 1e-10


def test_scaled_steps_weigh_clients_by_their_curvature() -> None:
    X, U = ROWS[:30], np.random.default_rng(1).standard_normal((80, 4))
    up, memory = make("dcf_pca").client(round_message(U, 1.0, 3.0, eta=1.0, n=90, scaled=True), LocalData(X), {})
    weight = np.linalg.norm(memory["V"], 2) ** 2 + 3.0 * 30 / 90
    assert float(up["weight"]) == pytest.approx(weight, rel=1e-12)
    C = np.clip(X - memory["V"] @ U.T, -1.0, 1.0)
    step = U - (-C.T @ memory["V"] + 1.0 * U) / weight
    np.testing.assert_allclose(up["U"] / weight, step, rtol=1e-9, atol=1e-12)


def test_the_end_solves_v_for_the_last_u() -> None:
    """What the paper omits: at the end V is the minimizer for the U that is returned."""
    L, S = SMALL
    shards = np.split(L + S, [40, 80])
    result = simulate("dcf_pca(max_rounds=3)", shards, n_components=5, seed=2)
    V, low = result.local[1]["V"], result.local[1]["L"]
    U = np.linalg.lstsq(V, low, rcond=None)[0].T
    C = np.clip(shards[1] - low, -result.threshold_, result.threshold_)
    rho = 0.1 * result.threshold_ * np.sqrt(120)
    np.testing.assert_allclose(C @ U, rho * V, atol=1e-5 * np.abs(rho * V).max())


@pytest.mark.parametrize(("rounds", "bound", "seed"), [(15, 1e-4, 0), (20, 1e-5, 1)])
def test_figure_1_of_the_paper(rounds: int, bound: float, seed: int) -> None:
    L, S = pose(500, 25, 0.05, seed)
    algorithm = make("dcf_pca", tol=0.0, max_rounds=rounds)
    assert err(simulate(algorithm, np.array_split(L + S, 10), n_components=25, seed=seed), L, S) < bound


def test_figure_1_ends_on_its_floor() -> None:
    L, S = pose(500, 25, 0.05, seed=0)
    result = simulate("dcf_pca(tol=0.0)", np.array_split(L + S, 10), n_components=25, seed=0)
    assert err(result, L, S) <= 1e-5
    assert 0.01 <= rel(result, L) <= 0.03  # A fixed lambda leaves this error.


def test_figure_2_has_its_edge() -> None:
    found, n = {}, 240
    for r, s in ((0.15, 0.15), (0.15, 0.3)):
        L, S = pose(n, round(n * r), s, seed=5)
        found[r, s] = rel(simulate("dcf_pca(tol=0.0)", np.array_split(L + S, 10), n_components=round(n * r), seed=5), L)
    assert found[0.15, 0.15] <= 0.16
    assert found[0.15, 0.3] >= 1.0


@pytest.mark.parametrize(("threshold", "low", "high"), [(0.3, 0.85 * 0.0286, 1.15 * 0.0286), (0.2, 0.0, 0.026)])
def test_table_1_at_twice_the_rank(threshold: float, low: float, high: float) -> None:
    L, S = pose(200, 10, 0.05, seed=0)
    algorithm = make("dcf_pca", threshold=threshold, tol=0.0)
    result = simulate(algorithm, np.array_split(L + S, 10), n_components=20)
    assert low <= sv_error(result, L, 10) <= high


def test_figure_4_more_local_steps_take_fewer_rounds_to_a_higher_floor() -> None:
    L, S = pose(400, 20, 0.05, seed=1)

    def after(rounds: int, steps: int) -> float:
        algorithm = make("dcf_pca", local_steps=steps, eta=0.01, anneal=False, tol=0.0, max_rounds=rounds)
        return err(simulate(algorithm, np.array_split(L + S, 10), n_components=20, seed=1), L, S)

    assert after(8, 10) <= 1e-4 < after(39, 1)
    floors = [after(45, 2), after(30, 10)]
    assert 1.1 < floors[1] / floors[0] < 1.5


@pytest.mark.parametrize("step", ["paper", "scaled"])
def test_only_the_scaled_step_bears_other_units(step: str) -> None:
    L, S = SMALL
    shards = np.split(1e-4 * (L + S), [40, 80])
    result = simulate(make("dcf_pca", step=step, max_rounds=100), shards, n_components=5)
    if step == "scaled":
        assert rel(result, 1e-4 * L) <= 0.1
    else:
        assert not result.status.ok  # Standing still does not count as convergence.
        assert rel(result, 1e-4 * L) >= 0.5


@pytest.mark.parametrize("init", ["random", "opening"])
def test_either_start_reaches_the_floor(init: str) -> None:
    L, S = SMALL
    algorithm = make("dcf_pca", init=init, step="scaled", max_rounds=200)
    result = simulate(algorithm, np.split(L + S, [40, 80]), n_components=5, fraction=0.7)
    assert rel(result, L) <= 0.06
