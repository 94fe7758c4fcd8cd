"""Test that rounding attacks read single rows from products of rows, and nothing from our nodes.

Every attack is mounted twice: on a frozen copy of the product that nodes once answered with, where it succeeds, and on
a real node by real messages, plainly and under masks, where nothing that it recovers is near any row.
"""

import itertools

import numpy as np
import pytest
from cases import every
from dishonest import Node, RefusedError, Sums
from rounding import (
    COUNT,
    HUGE,
    OUT,
    QUERIES,
    STEP,
    A,
    D,
    K,
    L,
    by_block,
    by_frame,
    drawn_rows,
    nearest,
    old,
    old_product,
)

from flower_pca.rows.frame import Frame


def plain_products(tmp_path, X, **rules):
    node = Node(0, X, min_rows=20, memory_dir=tmp_path, **rules)
    return lambda frame, Z: node.ask("ssi", {"Z": Z}, frame)["Y"]


def masked_products(parts, bound):
    nodes = [Node(i, X, masked_only=True, min_rows=20) for i, X in enumerate(parts)]
    shapes, bounds, runs = {"Y": (D, 1), "n": ()}, {"Y": bound, "n": 2.0**32}, itertools.count()

    def ask(frame, Z):
        run = Sums(nodes, run=f"attack {next(runs)}")  # A client that gets a wrong request ends its set-up.
        return run.sum("ssi", {"Z": Z}, shapes, bounds, frame=frame)["Y"]

    return ask


@every("query", QUERIES)
def test_a_product_of_rows_reveals_a_single_row(query):
    X = drawn_rows(120, 0)
    assert nearest(lambda frame, Z: old([X], frame, Z), X, query) <= 1e-2


@pytest.mark.parametrize("query", QUERIES)
def test_products_of_a_node_reveal_no_row(query, tmp_path):
    X = drawn_rows(120, 0)
    assert nearest(plain_products(tmp_path, X), X, query) > 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [D - 4, 3000])
def test_products_of_a_node_reveal_no_row_at_other_sizes_and_types(n, dtype, tmp_path):
    X = drawn_rows(n, 1).astype(dtype)
    assert nearest(plain_products(tmp_path, X), X.astype(np.float64), by_frame) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_masked_sums_reveal_no_row(query):
    parts = [drawn_rows(60, i) for i in range(3)]
    X = np.vstack(parts)
    assert nearest(lambda frame, Z: old(parts, frame, Z), X, query, messages=30) <= 1e-2
    bound = np.full((D, 1), 1e5 * STEP)
    bound[COUNT], bound[[K, A, L]] = 1e7 * 1e3 * STEP, 1e60
    assert nearest(masked_products(parts, bound), X, query, messages=30) > 0.5
    assert nearest(masked_products(parts, np.array(0.0)), X, query, messages=6) > 0.5


@pytest.mark.parametrize("query", QUERIES)
def test_noise_of_zero_does_not_reveal_rows(query):
    X, node = drawn_rows(120, 0), Node(0, drawn_rows(120, 0))

    def ask(frame, Z, budget=1e140, std=1e-100):
        dp = {"dp.clip": np.array(1e60), "dp.noise": np.array(std), "dp.budget": np.array(budget)}
        return node.ask("ssi", {"Z": Z / np.linalg.norm(Z), **dp}, frame)["Y"]

    with pytest.raises(
        RefusedError, match=r"The run's noise is too small for this node: .* but this node allows at most 256"
    ):
        ask(*query(1.0)[:2])
    with pytest.raises(RefusedError, match="With this message, the client would spend"):
        ask(*query(1.0)[:2], budget=256.0)
    loud = lambda frame, Z: ask(frame, Z, 256.0, 1e120) * np.linalg.norm(Z)  # noqa: E731
    assert nearest(loud, X, query) > 0.5


def test_twin_columns_and_a_block_of_norm_below_one():
    """Centered at the node's own mean, with an orthonormal block: large twins cancel, small entries are rounded."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, D))
    X[:, L] = X[:, K] = 2.0**52 * rng.integers(1, 8, 200)
    X -= X.mean(axis=0)
    Z = np.zeros((D, 1))
    Z[[K, A, L], 0] = 0.6, 0.01, -0.6
    exact = X.T @ (X[:, [A]] * 0.01)
    told = old_product(X, Frame(), Z)
    assert np.linalg.norm((told - exact)[OUT]) > 0.5 * np.linalg.norm(
        exact[OUT]
    )  # The answer is not C Z: it is a comparison.
    X[:, [K, L]] *= 2.0**20 / np.abs(X[:, K]).max()  # The rounding of the sums over twins is then far below C Z.
    up = Node(0, X).ask("ssi", {"Z": Z}, Frame())["Y"]
    rounding = np.finfo(float).eps * np.linalg.norm(X[:, K]) * np.linalg.norm(X[:, OUT])
    assert rounding <= 1e-6 * np.linalg.norm(exact[OUT])
    assert np.linalg.norm((up - exact)[OUT]) <= 10.0 * rounding


def twinned(n, seed):
    """Rows whose columns K and L are alike and huge, with a mean of 0; column A has a long tail."""
    X = drawn_rows(n, seed)
    X[:, A] = np.random.default_rng([seed, 1]).exponential(3.0, n)
    X[:, K] = X[:, L] = HUGE * np.where(np.arange(n) % 2, 1.0, -1.0)
    return X


def swept(ask, X, thresholds):
    """How far the best guess of a row is from any, where a block lets single precision steps be the threshold."""
    found, about = np.inf, (X - X.mean(axis=0))[:, OUT]
    for tau in thresholds:
        Z = np.zeros((D, 1))
        Z[[K, L], 0], Z[A, 0] = (1.0, -1.0), STEP / (2.0 * tau)
        guess = np.asarray(ask(Z)[:, 0], dtype=np.float64)[OUT] / STEP
        found = min(found, float((np.linalg.norm(guess - about, axis=1) / np.linalg.norm(about, axis=1)).min()))
    return found


def product_about_own_mean(X, Z):
    """The product of an opening as it was computed from rows, about their own mean."""
    return old_product(X, Frame(mean=X.mean(axis=0)), Z)


@pytest.mark.parametrize("n", [120, D - 4])
def test_the_block_of_an_opening_is_no_comparison(n):
    """It may hold any numbers, and no frame stands between it and the rows."""
    X, node = twinned(n, 4), Node(0, twinned(n, 4))
    about = np.sort(X[:, A] - X[:, A].mean())[::-1]
    thresholds = (about[:-1] + about[1:])[:6] / 2.0
    assert swept(lambda Z: product_about_own_mean(X, Z), X, thresholds) <= 1e-2

    def told(stage, **beside):
        asked = {"peaks": np.array(False), **beside}
        return lambda Z: node.ask(stage, {**asked, "block": Z}, algorithm="ssi")["product"]

    assert swept(told("opening"), X, thresholds) > 0.5
    assert swept(told("summed_opening", reference=X.mean(axis=0)), X, thresholds) > 0.5


@pytest.mark.parametrize("query", [by_frame, by_block])
@pytest.mark.parametrize("masked_too", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_reference_of_a_summed_opening_is_no_comparison(query, masked_too):
    parts = [drawn_rows(60, i) for i in range(3)]
    X = np.vstack(parts)
    shapes = {"product": (D, 1), "n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,)}
    nodes = [Node(i, part, masked_only=True) for i, part in enumerate(parts)]
    node, answered = Node(0, X), []
    bound = np.full((D, 1), 1e5 * STEP)
    bound[COUNT], bound[[K, A, L]] = 1e7 * 1e3 * STEP, 1e60
    bounds = {"product": bound, "n": 2.0**32, "single": 1.0, "rows": 1.0, "sums": 1e40, "squares": 1e70}

    def ask(frame, Z):
        asked = {"peaks": np.array(False), "reference": frame.mean, "block": Z}
        if masked_too:
            product = Sums(nodes).sum("summed_opening", asked, shapes, bounds)["product"]
        else:
            product = node.ask("summed_opening", asked, algorithm="ssi")["product"]
        answered.append(product)
        return product

    assert nearest(lambda frame, Z: old([X], frame, Z), X, query) <= 1e-2
    assert nearest(ask, X, query, messages=24) > 0.5
    assert len(answered) > 3
