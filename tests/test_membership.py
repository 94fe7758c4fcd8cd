"""Clients that die for good, join late, or flap: the answer is that of those who are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, combinations

import numpy as np
import pytest
from builders import disjoint, mixed, pooled, sine
from cases import every, in_turn, paired
from checks import PLAIN, SLOW, averages, exact, is_of, openings, orthonormal, promise

from flower_pca import Outcome, make, simulate
from flower_pca.core.algorithm import Iterative
from flower_pca.core.drive import Driven
from flower_pca.registry import ALGORITHMS


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "gone"), in_turn(PLAIN, [1, 2, 3], [0, 2]))
def test_a_client_that_dies_for_good(name: str, number: int, gone: int) -> None:
    seed = number
    problem = mixed(seed)
    left = [i for i in range(3) if i != gone]
    result = simulate(
        exact(name), problem.shards, n_components=3, seed=seed,
        fraction=lambda m: range(3) if m < number else left,
    )  # fmt: skip
    if openings(result) == 1:  # The node died after its last answer.
        assert len(result.history) <= number
        left = [0, 1, 2]
    is_of(result, name, [problem.shards[i] for i in left], 3, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), paired(PLAIN, [1, 2]))
def test_a_client_that_joins_late(name: str, number: int) -> None:
    seed = number
    problem = mixed(seed)
    result = simulate(
        exact(name), problem.shards, n_components=3, seed=seed,
        fraction=lambda m: (1, 2) if m < number else (0, 1, 2),
    )  # fmt: skip
    assert openings(result) == 2
    is_of(result, name, problem.shards, 3, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "scale", "center"),
    in_turn([(n, i % 2 or int(n in SLOW)) for i, n in enumerate(PLAIN)], [None, "max_abs"], [True, False]),
)
def test_disjoint_features_change_hands(named: tuple[str, int], scale: str | None, center: bool) -> None:
    """The newcomer's features are orthogonal to all that is known, and matter most."""
    name, seed = named
    problem = disjoint(seed)
    left = problem.shards[1:]
    result = simulate(
        exact(name), problem.shards, n_components=2, center=center, scale=scale, seed=seed,
        fraction=lambda m: (0, 1) if m < 2 else (1, 2),
    )  # fmt: skip
    if scale is None:
        is_of(result, name, left, 2, seed, center)
        return
    reference = pooled([X[:, 4:] for X in left], center=center, scale=scale)  # the first four columns are zero now
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
    if not averages(name):
        bound = promise(exact(name), reference, 2)
        assert result.status.ok, result.status
        assert sine(result.components_[:, 4:], reference.components[:2]) <= bound
        assert np.abs(result.components_[:, :4]).max() <= bound


@pytest.mark.slow
@every("seed", range(20))
def test_a_warm_start_never_looks_invariant(seed: int) -> None:
    """Krylov, many times over: the leading direction is one that the block it restarts with can hardly see."""
    problem = disjoint(seed)
    result = simulate(
        "krylov", problem.shards, n_components=1, center=False, seed=seed,
        fraction=lambda m: (0, 1) if m < 2 else (1, 2),
    )  # fmt: skip
    is_of(result, "krylov", problem.shards[1:], 1, seed, center=False)


FLAPPING: dict[str, Callable[[int], Iterable[int]]] = {
    "every message": lambda m: (0, 1) if m % 2 else (0, 1, 2),
    "in turns": lambda m: (m % 3, (m + 1) % 3),
    "one at a time": lambda m: (m % 3,),
    "every third": lambda m: (0, 1) if m % 3 == 0 else (0, 1, 2),
    "at random": lambda m: [i for i in range(3) if np.random.default_rng([m, i]).random() < 0.6] or [0],
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "schedule"), paired(PLAIN, FLAPPING))
def test_a_flapping_set_comes_to_an_end(name: str, schedule: str) -> None:
    """A status that says so, or the right answer for one set of clients; and soon."""

    def present(number: int) -> Iterable[int]:
        assert number < 1500, "the run does not end"
        return FLAPPING[schedule](number)

    shards = mixed(0).shards
    algorithm = make(name, max_rounds=200) if issubclass(ALGORITHMS[name], Iterative) else make(name)
    result = simulate(algorithm, shards, n_components=3, fraction=present)
    orthonormal(result)
    sets = chain.from_iterable(combinations(shards, size) for size in (1, 2, 3))
    (members,) = (list(s) for s in sets if sum(map(len, s)) == result.n_samples_)
    reference = pooled(members)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
    assert (result.explained_variance_ <= reference.variances[:3] * (1.0 + 1e-12)).all()
    if result.status.outcome is Outcome.CONVERGED:
        assert sine(result.components_, reference.components[:3]) <= promise(algorithm, reference, 3)


CUT = ["faps(max_rounds=40)", "ssi(max_rounds=4)", "ssi(max_rounds=12)", "fed_oapm(max_rounds=8)"]


@pytest.mark.slow
@every("mask", [False, True])
@every("here", [(1, 2, 3, 4, 5), (0, 1, 2, 3)])
@every("name", [*CUT, "local_power(max_rounds=12)"])
def test_a_run_that_its_limit_of_rounds_cuts_ends_no_worse_than_it_was(
    name: str, here: tuple[int, ...], mask: bool
) -> None:
    """Of six clients some go, or come, after the opening: components stay as they are when the run opens again."""
    if mask and name.startswith("local_power"):
        return
    shards = [half for shard in mixed(1).shards for half in np.array_split(shard, 2)]
    V = pooled([shards[i] for i in here]).components[:3]
    at = 6 if mask else 2
    before: list[float] = []

    def watch(driven: Driven) -> None:
        if driven.history[-1].stage == make(name).name and (Z := driven.estimate()) is not None:
            before.append(sine(V, Z.T))

    result = simulate(
        name, shards, n_components=3, seed=1, tol=1e-15, on_round=watch, mask=mask,
        fraction=lambda m: (0, 1, 2, 3, 5) if m < at else here,
    )  # fmt: skip
    assert result.n_samples_ == sum(len(shards[i]) for i in here)
    assert sine(V, result.components_) <= max(1.1 * before[-1], 1e-13)


@pytest.mark.slow
@every("name", ["ssi(max_rounds=12)", "fed_oapm(max_rounds=12)"])
def test_rounds_after_a_client_has_gone_are_spent_on_the_rows_that_are_left(name: str) -> None:
    """A run that kept the mean of all clients to its last round would end .002 off."""
    problem = mixed(1)
    result = simulate(
        name, problem.shards, n_components=3, seed=1, tol=1e-15, fraction=lambda m: range(3) if m < 2 else (1, 2)
    )
    assert openings(result) == 2
    assert sine(result.components_, pooled(problem.shards[1:]).components[:3]) < 1e-6


@pytest.mark.slow
def test_a_masked_run_that_had_to_begin_anew_says_so() -> None:
    shards = [half for shard in mixed(1).shards for half in np.array_split(shard, 2)]
    result = simulate(
        "krylov(max_rounds=2)", shards, n_components=3, tol=1e-15, mask=True,
        fraction=lambda m: range(6) if m < 8 else range(5),
    )  # fmt: skip
    assert not result.status.ok
    assert "a masked run starts again when clients change" in result.status.words
