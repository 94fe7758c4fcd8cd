"""Test FAPS with measured penalties: it converges for clients for which the paper's penalties diverge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import deal, evenly, pooled, rows, sine, three_clients
from fake_grid import grid_of, in_a_run

from flower_pca import Outcome, make, simulate
from flower_pca.algorithms import faps
from flower_pca.strategies import FAPS

MEASURED, PAPER = "faps", "faps(penalty='paper')"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_strongly_unlike_clients_come_to_the_pooled_answer(seed: int) -> None:
    problem = three_clients(seed)
    result = simulate(MEASURED, problem.shards, n_components=3, seed=seed)
    assert result.status.ok, result.status
    assert result.rounds <= 250
    assert sine(result.components_, pooled(problem.shards).components[:3]) <= 1e-4


@pytest.mark.slow
def test_the_papers_penalties_do_not_and_name_what_does() -> None:
    problem = three_clients(1)
    result = simulate(make(PAPER, max_rounds=250), problem.shards, n_components=3, seed=1)
    assert result.status.outcome is not Outcome.CONVERGED
    assert ': use penalty="measured" if clients differ, or krylov' in result.status.words
    short = simulate(make(MEASURED, max_rounds=5), problem.shards, n_components=3)
    assert short.status.words.endswith(": use krylov")


@pytest.mark.slow
def test_alike_clients_take_no_more_rounds() -> None:
    X = np.vstack(three_clients(0).shards)
    shards = evenly(X[np.random.default_rng(0).permutation(len(X))], 4)
    plain, measured = (simulate(spec, shards, n_components=3) for spec in (PAPER, MEASURED))
    assert measured.rounds <= 1.2 * plain.rounds
    assert sine(measured.components_, pooled(shards).components[:3]) <= 1e-4


@pytest.mark.slow
def test_masked_runs_and_clients_that_miss_or_forget_come_to_the_same() -> None:
    problem = three_clients(2)
    reference = pooled(problem.shards).components[:3]
    masked = simulate(MEASURED, problem.shards, n_components=3, mask=True)
    assert masked.status.ok
    assert sine(masked.components_, reference) <= 1e-4
    away = simulate(
        MEASURED, problem.shards, n_components=3, fraction=lambda m: (0, 1) if m in (7, 8, 21) else range(3)
    )
    assert away.status.ok
    assert sine(away.components_, reference) <= 1e-4
    with in_a_run():
        grid = grid_of(problem.shards)
        grid.on_push = lambda message: grid.forget(grid.node(1)) if message.metadata.group_id == "9" else None
        result = FAPS(n_components=3).fit(grid)
    assert result.status.ok
    assert sine(result.components_, reference) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("d", "k"), [(3, 3), (4, 3), (5, 1)])
def test_there_may_be_no_or_few_columns_beside_the_components(d: int, k: int) -> None:
    X = np.random.default_rng(1).standard_normal((60, d)) * np.linspace(3.0, 1.0, d)
    result = simulate(MEASURED, [X[:20], X[20:]], n_components=k)
    assert result.status.ok, result.status
    assert sine(result.components_, pooled([X]).components[:k]) <= 1e-4


def test_the_guard_rises_where_steps_no_longer_fall_and_only_under_masks() -> None:
    falling, still = tuple(0.9**i for i in range(40)), (0.1,) * 40
    assert faps.next_guard(0.0, falling, 40) == 0.0
    assert faps.next_guard(0.0, still, 40) == 0.25
    assert faps.next_guard(0.25, still, 60) == 0.4375
    assert faps.next_guard(0.0, still, 41) == 0.0
    assert faps.next_guard(0.985, still, 80) == pytest.approx(0.98875)
    algorithm, model = make(MEASURED), _six_columns()
    states = [algorithm.start(model), algorithm.start(_six_columns(summed=True))]
    turning = np.random.default_rng(0).standard_normal((40, 6, 2))
    for Y in turning:
        states = [algorithm.server(state, {"Y": Y}, frozenset()) for state in states]
    assert [float(algorithm.broadcast(state)["guard"]) for state in states] == [0.0, 0.25]
    after = algorithm.server(states[0], {"Y": turning[0]}, frozenset())
    assert len(states[0].sines) == len(still)
    assert after.sines == (*states[0].sines[1:], after.movement.newest)


def _six_columns(summed: bool = False) -> Any:
    from flower_pca.core.model import Model

    return Model(n_components=2, center=True, scale=None, seed=0, n=9, d=6, basis=np.eye(6)[:, :2], summed=summed)


def test_with_a_full_guard_an_answer_is_nearly_that_of_ssi() -> None:
    from flower_pca.rows.local import LocalData

    X = three_clients(0).shards[1]
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 3)))[0]
    up, _ = faps.answer(Z, LocalData(X), {}, steps=10, tol=0.0, guard=0.99)
    np.testing.assert_allclose(up["Y"], X.T @ (X @ Z), atol=0.05 * np.linalg.norm(X.T @ (X @ Z)))


@pytest.mark.slow
def test_by_the_papers_penalties_a_run_that_comes_to_nothing_gives_up_and_names_what_does_not() -> None:
    """Means far apart: penalties grow and steps get shorter without end, and with them the bases do not come nearer."""
    spread = np.linspace(1.0, 0.1, 12)
    shards = [np.random.default_rng([0, i]).standard_normal((50, 12)) * spread + 30.0 * np.eye(12)[i] for i in range(4)]
    result = simulate(PAPER, shards, n_components=2)
    assert result.status.outcome is Outcome.STALLED
    assert result.rounds <= 600
    assert "has not fallen for the last 200 of" in result.status.words
    assert ': use penalty="measured" if clients differ, or krylov' in result.status.words
    measured, true = simulate(MEASURED, shards, n_components=2), pooled(shards).components[:2]
    assert measured.status.ok
    assert sine(measured.components_, true) <= 1e-4 < 0.1 <= sine(result.components_, true)


@pytest.mark.slow
def test_where_measured_penalties_come_to_nothing_the_papers_take_their_place() -> None:
    X = rows(9, 8.0 * 0.7 ** np.arange(20), seed=1)
    result = simulate("faps(tol=1e-6)", deal(X, (4, 3, 2)), n_components=2, seed=1)
    assert result.status.ok
    assert result.rounds > 100
    assert sine(result.components_, pooled([X]).components[:2]) <= 1e-5


@pytest.mark.parametrize("mask", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("penalty", ["paper", "measured"])
def test_a_block_wider_than_what_the_rows_span_settles(penalty: str, mask: bool) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        shards = [rng.standard_normal((n, 10)) for n in (3, 2, 1)]  # centered, they span five directions
        algorithm = make("faps", penalty=penalty, oversample=5, max_rounds=150)
        result = simulate(algorithm, shards, n_components=3, mask=mask)
        assert result.status.ok, result.status
        assert sine(result.components_, pooled(shards).components[:3]) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_where_the_papers_penalties_come_to_nothing_the_run_ends_and_says_so(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shards = [rng.standard_normal((n, 12)) for n in (7, 7, 6, 6)]
    result = simulate(make(PAPER, oversample=5, max_rounds=40, tol=1e-12), shards, n_components=3)
    assert result.status.outcome is Outcome.MAX_ROUNDS
    assert (result.rounds, len(result.history)) == (40, 42)
    assert 'after 40 rounds: use penalty="measured" if clients differ, or krylov' in result.status.words
