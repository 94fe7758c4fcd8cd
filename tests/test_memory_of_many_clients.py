"""Test that a simulation keeps little memory for each of many small clients, and that this does not change results."""

import itertools

import numpy as np
import pytest
from builders import peak_memory

from flower_pca import simulate
from flower_pca.algorithms.local_power import _AlignedAnswers
from flower_pca.base import linalg
from flower_pca.stages import weighing
from flower_pca.stages.opening import LARGEST_SITE, _largest_so_far

BYTES = 5_000  # the most that a run may take for each client beside its rows
ROWS, COLUMNS, K = 20, 100, 3


def peak_of_run(algorithm, clients):
    """Return the most memory that a run takes, beside the rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS * clients, COLUMNS)) / np.sqrt(np.arange(1, COLUMNS + 1)) + 1.0
    shards = [X[i : i + ROWS] for i in range(0, len(X), ROWS)]
    with peak_memory() as peak:
        simulate(algorithm, shards, n_components=K)
    return peak()


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["auto", "krylov", "covariance", "local_power(max_rounds=2)", "ssi(max_rounds=2)", "uda"]
)
def test_each_of_many_small_clients_takes_at_most_five_kilobytes(algorithm):
    simulate(algorithm, [np.random.default_rng(1).standard_normal((ROWS, COLUMNS))] * 2, n_components=K)
    few, many = 400, 800
    assert (peak_of_run(algorithm, many) - peak_of_run(algorithm, few)) / (many - few) < BYTES


@pytest.mark.parametrize("align", ["procrustes", "sign"])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_aligned_answers_have_the_same_sum_whether_the_largest_client_is_known_or_not(align, place):
    rng = np.random.default_rng(place)
    replies = {
        i: {
            "X": linalg.orth(rng.standard_normal((9, 3))),
            "Y": rng.standard_normal((9, 3)),
            "n": np.array(50 if i == place else 40),
        }
        for i in range(8)
    }
    sums = []
    for expected in (None, place, 99):
        answers = _AlignedAnswers(align, expected)
        for client, reply in replies.items():
            answers.add(client, reply)
        assert bool(answers.waiting) == (expected != place)
        sums.append(answers.sum())
        assert not answers.waiting
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])
    base = replies[place]["X"]
    turns = [
        linalg.procrustes(reply["X"], base)
        if align == "procrustes"
        else np.diag(np.sign(np.sum(reply["X"] * base, axis=0)))
        for reply in replies.values()
    ]
    parts = [reply["Y"] @ turn for reply, turn in zip(replies.values(), turns, strict=True)]
    np.testing.assert_allclose(sums[0], sum(parts), atol=1e-13)


@pytest.mark.parametrize("align", ["procrustes", "sign"])
@pytest.mark.parametrize("expected", [None, 1, 2, 99])
def test_the_sum_of_aligned_answers_does_not_depend_on_their_order(align, expected):
    rng = np.random.default_rng(3)
    # Clients 1 and 2 have equally many rows, and client 0 now claims more rows than in the opening.
    replies = {
        i: {"X": linalg.orth(rng.standard_normal((9, 3))), "Y": rng.standard_normal((9, 3)), "n": np.array(n)}
        for i, n in enumerate((60 if expected in (1, 2) else 10, 50, 50))
    }
    sums = []
    for order in itertools.permutations(replies):
        answers = _AlignedAnswers(align, expected)
        for client in order:
            answers.add(client, replies[client])
        sums.append(answers.sum())
    np.testing.assert_allclose(sums, np.broadcast_to(sums[0], np.shape(sums)), atol=1e-13)


def test_the_client_with_the_most_rows_does_not_depend_on_the_order_of_answers():
    total = None
    for client, n in ((7, 50), (2, 50), (4, 10)):
        total = _largest_so_far(total, client, {"n": np.array(n)})
    assert int(total[LARGEST_SITE]) == 2


@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("share", [None, 0.4])
def test_medians_of_a_few_columns_at_a_time_are_those_of_all_columns(missing, share, monkeypatch):
    rng = np.random.default_rng(5)
    shards = [rng.standard_normal((n, 7)) * np.linspace(3.0, 1.0, 7) + i for i, n in enumerate((30, 41, 52, 38, 30))]
    if missing == "mean":
        for rows in shards:
            rows[rng.random(rows.shape) < 0.1] = np.nan
        shards[1][:, 2] = np.nan

    def run():
        return simulate("median_pca", shards, n_components=2, scale="std", missing=missing, max_share=share)

    whole = run()
    monkeypatch.setattr(weighing, "_AT_ONCE", 1)
    by_columns = run()
    for name in ("components_", "explained_variance_", "mean_"):
        np.testing.assert_array_equal(getattr(by_columns, name), getattr(whole, name))


@pytest.mark.parametrize("shape", [(40, 7), (5, 5), (300, 40)])
def test_orth_in_place_returns_the_bits_of_orth(shape):
    Y = np.random.default_rng(6).standard_normal(shape)
    np.testing.assert_array_equal(linalg.orth_in_place(np.asfortranarray(Y)), linalg.orth(Y))


@pytest.mark.parametrize("count", [3, 30])
def test_the_median_of_spans_does_not_depend_on_what_is_computed_at_a_time(count, monkeypatch):
    rng = np.random.default_rng(7)
    bases = [linalg.orth(rng.standard_normal((20, 2))) for _ in range(count)]
    weights = rng.uniform(1.0, 2.0, count)
    whole = linalg.median_of_spans(bases, weights)
    monkeypatch.setattr(linalg, "_AT_A_TIME", 1)
    stack = np.hstack(bases)
    np.testing.assert_allclose(linalg.median_of_spans(bases, weights, stack), whole, atol=1e-12)


def test_a_large_even_block_is_orthonormal_without_another_step(monkeypatch):
    rng = np.random.default_rng(8)
    Q = linalg.orth(rng.standard_normal((500, 20)))
    S = linalg.complement(rng.standard_normal((500, 6)), Q) + 1e-12 * (Q @ rng.standard_normal((20, 6)))
    monkeypatch.setattr(linalg, "_ENTRIES", 1)
    monkeypatch.setattr(linalg, "newton_orthonormalized_qr", None)  # A step would raise an error.
    block, inside, along = linalg.next_block(S, Q, 1.0)
    np.testing.assert_allclose(block.T @ block, np.eye(6), atol=1e-14)
    np.testing.assert_allclose(Q.T @ block, 0.0, atol=1e-14)
    np.testing.assert_allclose(Q @ inside + block @ along, S, atol=1e-13)
