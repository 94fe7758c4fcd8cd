"""Test that a run of per_pca that is cut by its limit of rounds is no worse than its start.

The reference is the solution that `exact_per_pca` finds for the same rows.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from builders import Array, sine

from flower_pca import PerPCA, PersonalResult, make, simulate
from flower_pca.rows.local import LocalData
from sims.common import stepwise

SEEDS = range(8)
ROUNDS = (1, 2, 3, 5)  # after the start
ROUNDING = 1e-9
INITS = ("random", "projection")
CHOICES = ("", ", eta=0.05", ", step=0.5", ", retraction='qr'", ", choice=2", ", init='upload'", ", weights='samples'")


@functools.cache
def clients_of_seed(seed: int) -> tuple[list[Array], int, int]:
    """Rows with shared and local components, of which sizes and numbers are drawn, too; and the two numbers."""
    rng = np.random.default_rng([53, seed])
    clients, d, r1, r2 = (int(rng.integers(*limits)) for limits in ((3, 11), (18, 40), (1, 4), (1, 4)))
    shared, own, noise = np.exp(rng.uniform(np.log(0.4), np.log(4.5), 3))
    U = np.linalg.qr(rng.standard_normal((d, r1)))[0]
    shards = []
    for _ in range(clients):
        V = rng.standard_normal((d, r2))
        V = np.linalg.qr(V - U @ (U.T @ V))[0]
        n = int(rng.integers(r1 + r2 + 2, 150))
        parts = (shared * rng.standard_normal((n, r1)) @ U.T, own * rng.standard_normal((n, r2)) @ V.T)
        shards.append(sum(parts) + noise / 3.0 * rng.standard_normal((n, d)))
    return shards, r1, r2


def fitted_to_seed(algorithm: str, seed: int, *, fraction: Any = 1.0, **settings: Any) -> PersonalResult:
    shards, r1, r2 = clients_of_seed(seed)
    made = make(f"{algorithm[:-1]}, local_components={r2})", **{"tol": 0.0, "patience": 10**6, **settings})
    result = simulate(made, shards, n_components=r1, seed=seed, center=False, fraction=fraction)
    assert isinstance(result, PersonalResult)
    return result


@functools.cache
def exact_solution(seed: int, weights: str) -> Array:
    return fitted_to_seed(f"exact_per_pca(weights={weights!r})", seed, tol=1e-10, max_rounds=3000).components_


@functools.cache
def first_messages(algorithm: str, seed: int) -> int:
    """The number of messages before the first round."""
    history = fitted_to_seed(algorithm, seed, max_rounds=40).history.of("per_pca")
    return sum("objective" not in message.metrics for message in history)


def objective_of_result(result: PersonalResult, seed: int) -> float:
    """The mean of tr U'SU and of the largest eigenvalues of (I - UU')S(I - UU'), by LAPACK."""
    shards, _, r2 = clients_of_seed(seed)
    U = result.components_.T
    P = np.eye(len(U)) - U @ U.T
    covariances = [X.T @ X / len(X) for X in shards]
    return float(np.mean([np.trace(U.T @ S @ U) + np.linalg.eigvalsh(P @ S @ P)[-r2:].sum() for S in covariances]))


def error(result: PersonalResult, algorithm: str, seed: int) -> float:
    return sine(result.components_, exact_solution(seed, "samples" if "samples" in algorithm else "equal"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_few_rounds_leave_the_shared_components_no_worse_than_the_start(choice: str, seed: int) -> None:
    algorithm = f"per_pca(start_rounds=6{choice})"
    first = first_messages(algorithm, seed)
    start = error(fitted_to_seed(algorithm, seed, max_rounds=first), algorithm, seed)
    for rounds in ROUNDS:
        assert error(fitted_to_seed(algorithm, seed, max_rounds=first + rounds), algorithm, seed) <= start + ROUNDING, (
            rounds
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_few_rounds_from_a_start_near_a_saddle_do_not_lower_the_objective(seed: int) -> None:
    """This start may be orthogonal to the solution, from where the angle to it says nothing."""
    algorithm = "per_pca(init='qu')"
    first = first_messages(algorithm, seed)
    start = objective_of_result(fitted_to_seed(algorithm, seed, max_rounds=first), seed)
    for rounds in ROUNDS:
        assert objective_of_result(fitted_to_seed(algorithm, seed, max_rounds=first + rounds), seed) >= start * (
            1.0 - ROUNDING
        ), rounds


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("choice", ["", ", eta=0.05", ", retraction='qr'"])
def test_a_client_that_is_missing_in_the_last_round_does_not_make_it_worse_than_the_start(
    choice: str, seed: int
) -> None:
    algorithm = f"per_pca(start_rounds=6{choice})"
    first, clients = first_messages(algorithm, seed), len(clients_of_seed(seed)[0])
    start = error(fitted_to_seed(algorithm, seed, max_rounds=first), algorithm, seed)
    for rounds in ROUNDS:
        last = first + rounds  # message 0 is the opening

        def there(message: int, last: int = last) -> range:
            return range(clients - (message == last))

        result = fitted_to_seed(algorithm, seed, max_rounds=first + rounds, fraction=there)
        assert [r.answered for r in result.history.of("per_pca")][-1] == clients - 1
        assert error(result, algorithm, seed) <= start + ROUNDING, rounds


def message_of_a_round(U: Array, own: int, **more: Any) -> dict[str, Array]:
    """A message of a round whose step is almost 0, so that the local components stay as they begin."""
    arrays = {"U": U, "b": np.eye(len(U))[:, :1], "own": own, "samples": False, "eta": 1e-300, "choice": 1}
    return {name: np.asarray(a) for name, a in {**arrays, "polar": True, **more}.items()}


@pytest.mark.parametrize("n", [4, 10, 60])
@pytest.mark.parametrize("own", [0, 1, 3, 5, 9])
def test_a_client_begins_with_the_leading_directions_of_its_rows_beside_the_shared_components(n: int, own: int) -> None:
    """With fewer rows than components, it has only those directions that its rows have."""
    rng = np.random.default_rng([n, own])
    X, U = rng.standard_normal((n, 9)) * 0.8 ** np.arange(9), np.linalg.qr(rng.standard_normal((9, 2)))[0]
    _, memory = PerPCA.client(message_of_a_round(U, own), LocalData(X), {})
    D = X - X @ U @ U.T
    leading = np.linalg.svd(D)[2][: min(own, n, 7)]
    assert memory["V"].shape == (9, len(leading))
    if own:
        assert sine(memory["V"].T, leading) <= 1e-10


def test_a_client_begins_at_random_where_the_message_has_a_seed() -> None:
    X, U = np.random.default_rng(1).standard_normal((30, 9)), np.eye(9)[:, :2]
    first, same, other = (PerPCA.client(message_of_a_round(U, 3, seed=s), LocalData(X), {})[1]["V"] for s in (4, 4, 5))
    np.testing.assert_array_equal(first, same)
    assert sine(first.T, other.T) > 0.1
    assert sine(first.T, PerPCA.client(message_of_a_round(U, 3), LocalData(X), {})[1]["V"].T) > 0.1


@pytest.mark.parametrize(
    ("algorithm", "random"),
    [
        ("per_pca", False),
        ("per_pca(init='qu')", False),
        ("per_pca(init='random')", True),
        ("per_pca(init='qu', local_init='random')", True),
    ],
)
def test_only_runs_that_begin_at_random_send_a_seed(algorithm: str, random: bool) -> None:
    stage = make(algorithm)
    steps = itertools.islice(stepwise.steps(stage, clients_of_seed(0)[0], n_components=1, seed=3), 12)
    rounds = [step.message.arrays for step in steps if "eta" in step.message.arrays]
    assert rounds
    assert all(("seed" in arrays) == random for arrays in rounds)


def test_a_given_start_replaces_also_random_local_components() -> None:
    r1 = clients_of_seed(3)[1]
    given = np.eye(clients_of_seed(3)[0][0].shape[1])[:, :r1]
    random, projection = (fitted_to_seed(f"per_pca(init={init!r})", 3, max_rounds=4, given=given) for init in INITS)
    np.testing.assert_array_equal(random.components_, projection.components_)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_loses_its_memory_before_the_last_round_does_not_make_it_worse_than_the_start(seed: int) -> None:
    shards, r1, r2 = clients_of_seed(seed)
    stage = make("per_pca", local_components=r2, tol=0.0, patience=10**6)
    start, rounds = np.inf, 0
    for step in stepwise.steps(stage, shards, n_components=r1, seed=seed):
        U = step.run.estimate()
        error = np.inf if U is None else sine(U.T, exact_solution(seed, "equal"))
        if "eta" not in step.message.arrays:
            start = error
            continue
        rounds += 1
        assert error <= start + ROUNDING
        if rounds == 5:
            break
        step.memories[rounds % len(shards)] = {}
