"""Test one bad node among twenty, within all bounds on answers: what shifts the result, names the node, or stops it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from builders import Array, leading
from cases import slow_if
from fake_grid import grid_of
from scipy.linalg import subspace_angles

from flower_pca import PCAResult, simulate
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")
D, NODES, K, DRAWS = 20, 20, 3, 10
LAST = np.eye(D)[-1]


def drawn_nodes(draw: int, sizes: Array, n: int = 100) -> tuple[np.random.Generator, list[Array]]:
    rng = np.random.default_rng([draw, 30])
    return rng, [rng.standard_normal((n, D)) * sizes for _ in range(NODES)]


FALLING = 3.0 * 0.85 ** np.arange(D)
CLEAR = np.array([6.0, 5.5, 5.0, *0.4 * 0.95 ** np.arange(D - K)])


def direction(rng: np.random.Generator) -> Array:
    u = rng.standard_normal(D)
    return u / np.linalg.norm(u)


BAD = {
    "along one column": lambda rng, X: X + 100.0 * rng.standard_normal((len(X), 1)) * LAST,
    "by far along one column": lambda rng, X: X + 1e6 * rng.standard_normal((len(X), 1)) * LAST,
    "along a dense direction": lambda rng, X: X + 100.0 * rng.standard_normal((len(X), 1)) * direction(rng),
    "somewhere else": lambda rng, X: X + 1e3 * direction(rng),
    "in three rows": lambda rng, X: np.vstack([X[3:], 300.0 * np.outer([1.0, -1.0, 1.0], direction(rng))]),
}
CLAIM = {
    "with many rows": lambda rng, X: 3.2 * np.sign(rng.standard_normal((20_000, 1))) * LAST,
    "with many rows in one place": lambda rng, X: 1e4 * LAST + 1e-3 * rng.standard_normal((20_000, D)),
}


def turn(A: Array, B: Array) -> float:
    return float(np.rad2deg(subspace_angles(A.T, B.T).max()))


@pytest.mark.parametrize("how", [*BAD, *CLAIM])
def test_without_a_limit_one_node_turns_the_result(how):
    rng, shards = drawn_nodes(0, FALLING)
    bad = {**BAD, **CLAIM}[how](rng, shards[0])
    assert turn(simulate("krylov", [bad, *shards[1:]], n_components=K).components_, leading(shards[1:], K)) > 30.0


def hints_that_name(result: PCAResult) -> list[str]:
    """The hints that name a client as far from the others; the last also says how many more there are."""
    return [hint for hint in result.hints if re.search(r"most other sites|far from most sites|are the same", hint)]


@pytest.mark.slow
@pytest.mark.parametrize("how", [*BAD, *CLAIM])
@pytest.mark.parametrize("bad", [1, 8])
def test_hints_name_bad_nodes_and_nobody_else(how, bad):
    """Eight of twenty that are of one mind do not hide each other, as each is compared with a median over nodes."""
    for draw in range(DRAWS):
        shards = drawn_nodes(draw, FALLING)[1]
        shards[:bad] = [{**BAD, **CLAIM}[how](np.random.default_rng(draw), X) for X in shards[:bad]]
        hints = hints_that_name(simulate("krylov", shards, n_components=K))
        clients = {int(client) for hint in hints for client in re.findall(r"client (\d+)", hint)}
        more = sum(int(number) for hint in hints for number in re.findall(r"(\d+) more site", hint))
        assert clients <= set(range(bad))
        assert len(clients) + more == bad


@pytest.mark.slow
def test_hints_name_nobody_where_all_are_honest():
    for draw in range(DRAWS):
        assert hints_that_name(simulate("krylov", drawn_nodes(draw, FALLING)[1], n_components=K)) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", slow_if([*BAD, *CLAIM], *list(BAD)[1:], *CLAIM))
def test_max_share_keeps_the_turn_below_what_the_status_states(how):
    for draw in range(DRAWS):
        rng, shards = drawn_nodes(draw, CLEAR)
        bad = {**BAD, **CLAIM}[how](rng, shards[0])
        result = simulate("krylov", [bad, *shards[1:]], n_components=K, max_share=0.06)
        words = result.status.words
        assert "any single client turns the components by at most" in words
        stated = float(words.rpartition("by at most ")[2].partition(" degrees")[0])
        assert stated < 30.0
        assert turn(result.components_, leading(shards[1:], K)) <= stated + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("how", [*BAD, *CLAIM])
def test_the_median_of_subspaces_stays_within_twice_what_one_node_is_off_by(how):
    within = 0
    for draw in range(DRAWS):
        shards = drawn_nodes(draw, FALLING)[1]
        good = shards[8:]
        truth = leading(good, K)
        off = np.median([turn(leading([X], K), truth) for X in good])
        bad = [{**BAD, **CLAIM}[how](np.random.default_rng(draw), X) for X in shards[:8]]  # of one mind
        result = simulate("median_pca", [*bad, *good], n_components=K)
        within += turn(result.components_, truth) <= 2.0 * off
    assert within == DRAWS


@pytest.mark.slow
def test_over_flower_and_with_names_the_status_calls_a_node_as_readers_do():
    rng, shards = drawn_nodes(1, FALLING)
    bad = BAD["along one column"](rng, shards[0])
    columns = [f"c{j:02}" for j in range(D)]
    tables = {f"site{i:02}": pd.DataFrame(X, columns=columns) for i, X in enumerate([bad, *shards[1:]])}
    for asked, words in (({}, "at site00 is "), ({"max_share": 0.1}, "site00 counts")):
        here = simulate("krylov", tables, n_components=K, **asked)
        assert words in " ".join([here.status.words, *here.decisions, *here.hints])
        over = PCAStrategy("krylov", n_components=K, **asked).fit(grid_of([bad, *shards[1:]]))
        assert words.replace("site00", "client 0") in " ".join([over.status.words, *over.decisions, *over.hints])
