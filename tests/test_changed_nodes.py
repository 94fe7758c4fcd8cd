"""Test every algorithm over Flower while a node leaves, is replaced, or refuses.

The rows of all nodes have the same leading directions, so the answer is known whoever is there, and a run that is cut
short can be held against the same run before the change. The nodes have different numbers of rows, whose sum says whose
rows are in a result.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from builders import pooled, sine
from cases import every
from checks import PLAIN, agrees, averages, exact, promise
from fake_grid import app_of, grid_of
from spoilt import pose

from flower_pca import make, strategies
from flower_pca.core.algorithm import Iterative
from flower_pca.registry import ALGORITHMS
from flower_pca.strategies import base

pytestmark = [pytest.mark.usefixtures("lines"), pytest.mark.slow]

SIZES = (60, 67, 81, 75, 93)  # rows of the nodes; the last one replaces the second
VICTIM = 1
THERE = {"gone": (0, 2, 3), "swapped": (0, 2, 3, 4), "refused": (0, 2, 3)}
D = 24


@functools.cache
def same_directions():
    """Centered rows with the same eigenvectors at all nodes, and other eigenvalues, of which two stand out."""
    V = np.linalg.qr(np.random.default_rng(7).standard_normal((D, D)))[0]
    rows = []
    for i, n in enumerate(SIZES):
        rng = np.random.default_rng([i, 1])
        U = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, D))]))[0][:, 1:]
        deviations = 0.93 ** np.arange(D) * rng.uniform(0.8, 1.25, D)
        deviations[:2] = (1.8, 1.6)
        rows.append(np.sqrt(n) * (U * deviations) @ V.T)
    return rows, V[:, :2].T


@functools.cache
def with_far_entries():
    """Rows of rank 5 with entries that are far off."""
    L, S = pose(sum(SIZES), 5, 0.05, seed=4, d=60)
    return np.split(L + S, np.cumsum(SIZES)[:-1]), np.linalg.svd(L)[2][:5]


@functools.cache
def apart():
    """Rows with two directions that all nodes have, and two that each has alone."""
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    rows = []
    for n in SIZES:
        own = rng.standard_normal((D, 2))
        own = np.linalg.qr(own - U @ (U.T @ own))[0]
        parts = (3.0 * rng.standard_normal((n, 2)) @ U.T, 2.0 * rng.standard_normal((n, 2)) @ own.T)
        rows.append(sum(parts) + 0.1 * rng.standard_normal((n, D)))
    return rows, U.T


KINDS = {
    **dict.fromkeys(PLAIN, (same_directions, {})),
    "median_pca": (same_directions, {}),
    "sparse_pca": (same_directions, {"cardinality": D}),
    "dcf_pca": (with_far_entries, {"step": "scaled", "max_rounds": 400}),
    "consensus_rpca": (with_far_entries, {"gamma": 0.7}),
    **dict.fromkeys(("per_pca", "exact_per_pca", "triple_pca"), (apart, {"local_components": 2})),
}
ROUNDS = 8  # rounds of a run that is cut short


def stage_of_changed(name, cut):
    _, settings = KINDS[name]
    if cut and issubclass(ALGORITHMS[name], Iterative):
        return make(name, **{**settings, "tol": 0.0, "max_rounds": ROUNDS - 1})
    if name in PLAIN:
        return exact(name)
    return make(name, **settings)


def run_over(grid, name, *, cut, rounds=ROUNDS, mask=False):
    _, reference = KINDS[name][0]()
    strategy = strategies.PCAStrategy(
        stage_of_changed(name, cut), n_components=len(reference), min_nodes=2, mask=mask, seed=1
    )
    if cut:  # by `start`, whose Result has no more than the arrays: this is what it makes of num_rounds
        nodes = base._transport_of_grid(grid, strategy._run_to_drive(num_rounds=rounds), strategy._node_settings)
        return strategy._run(nodes, base.OnRound(None), base.GrowingResult())
    return strategy.fit(grid)


@functools.cache
def undisturbed(name, there, *, cut, rounds=ROUNDS, mask=False):
    rows, _ = KINDS[name][0]()
    return run_over(grid_of([rows[i] for i in there]), name, cut=cut, rounds=rounds, mask=mask)


def disturbed(name, kind, at, *, cut, mask=False):
    """The result of a run in which the second node is gone, swapped or refuses from message `at` on."""
    rows, _ = KINDS[name][0]()
    grid = grid_of(rows, 4)
    victim, answer = grid.node(VICTIM), grid._answer
    others = app_of(rows, allow="krylov" if name == "ssi" else "ssi")

    def change(message):
        if int(message.metadata.group_id) < at or victim not in grid.nodes:
            return
        if kind == "refused":  # Its operator has since allowed other algorithms.
            grid._answer = lambda m: others(m, grid.nodes[victim]) if m.metadata.dst_node_id == victim else answer(m)
            return
        grid.kill(victim)
        if kind == "swapped":
            grid.add()

    grid.on_push = change
    return run_over(grid, name, cut=cut, mask=mask)


def error_of_changed(result, name):
    return sine(result.components_, KINDS[name][0]()[1])


def assert_rows_of(result, name, kind):
    rows, _ = KINDS[name][0]()
    together = np.vstack([rows[i] for i in THERE[kind]])
    assert result.n_samples_ == len(together)
    if ALGORITHMS[name].centers:
        np.testing.assert_allclose(result.mean_, together.mean(axis=0), rtol=1e-10, atol=1e-10)


def middle_of(result):
    """The number of a message in the middle of a run, which is not the opening."""
    return max(1, len(result.history) // 2)


EVERY_KIND = every("kind", THERE)
# Algorithms that go with masks: of several products, of one message, and with a memory at the nodes.
MASKED = ("krylov", "covariance", "exact_per_pca")


def assert_as_undisturbed(result, alone, name, kind):
    assert result.status.outcome is alone.status.outcome, result.status
    assert_rows_of(result, name, kind)
    if name in PLAIN and not averages(name):
        rows, _ = KINDS[name][0]()
        reference = pooled([rows[i] for i in THERE[kind]])
        agrees(result, reference, 2, promise(exact(name), reference, 2))
    else:
        tol = getattr(stage_of_changed(name, False), "tol", 0.0)
        assert sine(result.components_, alone.components_) <= max(50.0 * tol, 1e-10)


@pytest.mark.parametrize("name", KINDS)
@EVERY_KIND
def test_a_run_to_its_end_has_the_answer_of_the_nodes_that_are_there(name, kind):
    at = middle_of(undisturbed(name, THERE[kind], cut=False))
    assert_as_undisturbed(disturbed(name, kind, at, cut=False), undisturbed(name, THERE[kind], cut=False), name, kind)


@pytest.mark.parametrize("name", MASKED)
@EVERY_KIND
def test_a_masked_run_to_its_end_has_the_answer_of_the_nodes_that_are_there(name, kind):
    alone = undisturbed(name, THERE[kind], cut=False, mask=True)
    result = disturbed(name, kind, middle_of(alone), cut=False, mask=True)
    assert_as_undisturbed(result, alone, name, kind)


@pytest.mark.parametrize("name", KINDS)
@EVERY_KIND
def test_a_run_that_is_cut_short_is_no_worse_than_before_the_change(name, kind):
    """Or than one that had never known the other nodes."""
    alone = undisturbed(name, THERE[kind], cut=True)
    for at in (ROUNDS // 2, ROUNDS - 1):
        last = min(at, len(alone.history) - 1)
        before = undisturbed(name, (0, 1, 2, 3), cut=True, rounds=last)
        result = disturbed(name, kind, last, cut=True)
        if result.n_samples_ != before.n_samples_ or kind == "swapped":
            assert_rows_of(result, name, kind)
        assert error_of_changed(result, name) <= max(
            error_of_changed(before, name), error_of_changed(alone, name), 1e-14
        )


@EVERY_KIND
def test_a_masked_run_that_is_cut_short_ends_with_what_it_knew_of_the_former_nodes(kind):
    """No column that these were sent may be sent to others, so that a new start would have to begin with noise."""
    whole = undisturbed("krylov", (0, 1, 2, 3), cut=True, mask=True)
    for at in (len(whole.history) - 3, len(whole.history) - 1):
        result = disturbed("krylov", kind, at, cut=True, mask=True)
        assert error_of_changed(result, "krylov") < 1e-4, (at, str(result.status))
        if not result.status.ok:
            assert result.n_samples_ == sum(SIZES[:4])
            assert "are from the rows before the change" in str(result.status)
