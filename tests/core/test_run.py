"""Test a run driven by hand: the order of messages, and which answers count."""

import numpy as np
import pytest
from by_hand import SHARDS, X, assert_pca_of, drive, honest, local_clients, rows_without, session, step
from cases import every

from flower_pca.core.stage import Reply

EXACT = "krylov(tol=1e-12)"


def replace_arrays(client, **arrays):
    """A change of the honest replies: some arrays of one client are replaced, or left out if None."""

    def change(replies):
        for r in replies:
            new = {**r.arrays, **arrays} if r.client == client else r.arrays
            yield Reply(r.client, r.number, {name: a for name, a in new.items() if a is not None})

    return change


def test_a_masked_run_needs_a_message_before_answers():
    with pytest.raises(RuntimeError, match=r"Call pending\(\) before advance\(\)"):
        session(EXACT, mask=True).advance([])


def test_messages_go_opening_then_algorithm_then_end_and_result_needs_the_end():
    run, nodes = session(EXACT), local_clients(SHARDS)
    with pytest.raises(RuntimeError, match=r"Call pending\(\) before advance\(\)"):
        run.advance([])
    with pytest.raises(RuntimeError, match=r"The run is not finished. Send messages until pending\(\) returns None."):
        run.result()
    assert run.estimate() is None
    opening = step(run, nodes)
    assert (opening.stage, opening.number, opening.to) == ("opening", 0, (0, 1, 2, 3))
    assert opening.frame.mean is None
    assert run.estimate() is None or run.estimate().shape == (10, 2)
    second = step(run, nodes)
    assert (second.stage, second.number) == ("krylov", 1)
    np.testing.assert_allclose(second.frame.mean, X.mean(axis=0), rtol=1e-14)
    assert run.estimate().shape == (10, 2)
    result = drive(run, nodes)
    assert run.is_finished
    assert run.pending([0]) is None
    assert {r.stage for r in run.history} == {"opening", "krylov"}
    assert_pca_of(result, X)
    np.testing.assert_allclose(np.abs(run.estimate().T @ result.components_.T), np.eye(2), atol=1e-14)


@pytest.mark.parametrize("align", ["procrustes", "sign"])
def test_an_estimate_has_all_columns_of_a_span_until_a_product_orders_them(align):
    # Clients that differ: with several local steps the first two of seven columns hold less of the plane than all do.
    shards = [shard * np.linspace(1.0, 3.0, 10) ** sign for shard, sign in zip(SHARDS, (1, -1, 0.5, 0), strict=True)]
    pooled = np.concatenate(shards) - np.mean(np.concatenate(shards), axis=0)
    truth = np.linalg.svd(pooled, full_matrices=False)[2][:2].T
    run = session(f"local_power(oversample=5, local_steps=4, decay=False, min_rounds=20, align={align!r})")
    nodes = local_clients(shards)
    for _ in range(8):
        step(run, nodes)
    Z = run.estimate()
    far = [np.linalg.norm(truth - B @ (B.T @ truth), 2) for B in (Z, Z[:, :2])]
    assert Z.shape == (10, 7)
    assert far[0] < 0.5 * far[1]
    ordered = session("local_power(oversample=5, local_steps=1, min_rounds=20)")
    for _ in range(8):
        step(ordered, nodes)
    assert ordered.estimate().shape == (10, 2)


def test_a_message_is_asked_again_unchanged_until_it_is_answered():
    run, nodes = session("ssi"), local_clients(SHARDS)
    step(run, nodes)
    first, again = run.pending(range(4)), run.pending(range(4))
    assert (first.stage, first.number, first.to) == (again.stage, again.number, again.to)
    np.testing.assert_array_equal(first.arrays["Z"], again.arrays["Z"])


def test_a_late_answer_is_discarded_and_named_but_its_client_stays():
    run, nodes = session("ssi(tol=1e-12)"), local_clients(SHARDS)
    late = []
    step(run, nodes)
    step(run, nodes, change=lambda replies: late.append(replies[1]) or [replies[0], *replies[2:]])
    untouched, disturbed = session("ssi(tol=1e-12)"), run
    message = disturbed.pending(range(4))
    record = disturbed.advance([late[0], *(honest(message, i, nodes[i]) for i in message.to)])
    assert 1 in message.to
    assert (record.asked, record.answered) == (4, 4)
    assert record.failures == {
        "1": "Client 1 answered message 1 while the run was waiting for answers to message 2. This late answer was not "
        "counted."
    }
    assert 1 in disturbed.pending(range(4)).to
    step(untouched, nodes)
    step(untouched, nodes, change=lambda replies: [replies[0], *replies[2:]])
    step(untouched, nodes)
    np.testing.assert_array_equal(untouched.estimate(), disturbed.estimate())


def test_an_answer_of_a_client_that_was_not_asked_is_discarded():
    run, nodes = session("ssi"), local_clients(SHARDS)
    message = run.pending([0, 1])
    stranger = honest(message, 3, nodes[3])
    record = run.advance([*(honest(message, i, nodes[i]) for i in (0, 1)), stranger])
    assert set(record.failures) == {"3"}
    assert record.answered == 2


def test_a_client_that_answers_twice_counts_once():
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes, change=lambda replies: [*replies, replies[2]])
    assert_pca_of(drive(run, nodes), X)


SPOILED = {
    "absent": ({"S": None}, "The answer of client 2 has nothing, but should have S. Install the same version"),
    "renamed": (
        {"S": None, "Q": np.zeros((10, 4))},
        "The answer of client 2 has Q, but should have S. Install the same version of flower_pca everywhere.",
    ),
    "surplus": ({"n": np.array(3)}, "The answer of client 2 has S, n, but should have S. Install the same"),
    "shape": (
        {"S": np.zeros((10, 3))},
        "S in the answer of client 2 must be a real array of shape (10, 4), but has shape (10, 3) and dtype float64. "
        "Check",
    ),
    "dimensions": (
        {"S": np.zeros(10)},
        "S in the answer of client 2 must be a real array of shape (10, 4), but has shape (10,) and dtype float64. "
        "Check",
    ),
    "complex": (
        {"S": np.zeros((10, 4), complex)},
        "S in the answer of client 2 must be a real array of shape (10, 4), but has shape (10, 4) and dtype "
        "complex128.",
    ),
    "text": (
        {"S": np.full((10, 4), "x")},
        "S in the answer of client 2 must be a real array of shape (10, 4), but has shape (10, 4) and dtype <U1.",
    ),
    "nan": (
        {"S": np.where(np.eye(10, 4), np.nan, 0.0)},
        "S in the answer of client 2 must be finite, but has 4 NaN or infinite entries. Check the client's data.",
    ),
    "infinite, in another order": (
        {"S": np.asfortranarray(np.where(np.eye(10, 4), -np.inf, 0.0))},
        "S in the answer of client 2 must be finite, but has 4 NaN or infinite entries. Check the client's data.",
    ),
    "squares that overflow": (
        {"S": np.where(np.eye(10, 4), -1e200, 1.0)},
        "S in the answer of client 2 must be at most 1e+140 in size, but reaches 1e+200. Check the client's data.",
    ),
    "squares that do not": (
        {"S": np.where(np.eye(10, 4), 1e141, 1.0)},
        "S in the answer of client 2 must be at most 1e+140 in size, but reaches 1e+141. Check the client's data.",
    ),
    "strided, with a NaN": (
        {"S": np.full((20, 8), np.nan)[::2, ::2]},
        "S in the answer of client 2 must be finite, but has 40 NaN or infinite entries. Check the client's data.",
    ),
}


@pytest.mark.slow
@every("how", SPOILED)
def test_a_bad_answer_is_named_left_out_and_its_client_never_asked_again(how):
    arrays, reason = SPOILED[how]
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes, change=replace_arrays(2, **arrays))
    record = run.history[1]
    assert record.failures["2"].startswith(reason)
    assert (record.asked, record.answered) == (4, 3)
    result = drive(run, nodes)
    assert [r.stage for r in run.history][:3] == ["opening", "krylov", "opening"]
    assert all(r.asked == 3 for r in run.history.rounds[2:])
    assert_pca_of(result, rows_without(2))


OPENING_SPOILED = {
    "mean and m2 short": {"mean": np.zeros(9), "m2": np.zeros(9)},
    "product short": {"product": np.zeros((9, 4))},
    "product narrow": {"product": np.zeros((10, 3))},
    "infinite": {"m2": np.full(10, np.inf)},
    "no rows": {"n": np.array(0)},
    "fewer than no rows": {"n": np.array(-3)},
    "negative squares": {"m2": np.full(10, -1.0)},
}


@pytest.mark.slow
@every("client", [0, 1, 3])
@every("how", OPENING_SPOILED)
def test_a_bad_answer_to_the_opening_is_left_out(how, client):
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes, change=replace_arrays(client, **OPENING_SPOILED[how]))
    assert set(run.history[0].failures) == {str(client)}
    result = drive(run, nodes)
    assert all(r.asked == 3 for r in run.history.rounds[1:])
    assert_pca_of(result, rows_without(client))


@pytest.mark.parametrize("odd", [0, 2])
def test_most_clients_decide_how_many_columns_there_are(odd):
    run, nodes = session(EXACT), local_clients(SHARDS)
    short = {"mean": np.zeros(9), "m2": np.zeros(9), "product": np.zeros((9, 4))}
    step(run, nodes, change=replace_arrays(odd, **short))
    assert run.history[0].failures == {
        str(
            odd
        ): f"The columns of client {odd} do not fit: there are 9 instead of the 10 of the run. Give all clients the "
        "same columns."
    }
    assert_pca_of(drive(run, nodes), rows_without(odd))


def test_a_stage_that_cannot_start_raises_the_same_error_at_every_call(monkeypatch):
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes)
    full = MemoryError("no memory for the block")

    def start(stage, model):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(type(run.algorithm), "start", start)
        for _ in range(2):
            with pytest.raises(MemoryError, match="no memory for the block"):
                run.pending(range(len(nodes)))
    assert_pca_of(drive(run, nodes), X)
