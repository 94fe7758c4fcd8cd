"""Test a run with missing, lost, new or too few clients, and when it returns to the opening."""

import numpy as np
import pytest
from builders import deal, falling, framed, svd
from by_hand import SHARDS, X, assert_pca_of, drive, local_clients, rows_without, session, step, without_answer
from cases import every

from flower_pca.base.errors import NotEnoughNodes
from flower_pca.base.history import Outcome
from flower_pca.core.position import MAX_RESTARTS, Role

EXACT = "krylov(tol=1e-12)"


def test_a_missing_member_of_a_fixed_set_is_asked_once_more_and_then_counted():
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes, change=without_answer(1))
    assert run.history[1].failures == {"1": "no answer"}
    assert run.history[1].metrics == {}
    again = step(run, nodes)
    assert (again.stage, again.to) == ("krylov", (1,))
    undisturbed = session(EXACT)
    drive(undisturbed, nodes)
    result = drive(run, nodes)
    assert len(run.history.of("opening")) == 1
    assert result.rounds == undisturbed.result().rounds
    assert_pca_of(result, X)


@pytest.mark.parametrize(
    ("algorithm", "matters"),
    [
        ("per_pca(local_components=1, max_rounds=2)", True),
        ("exact_per_pca(local_components=1, max_rounds=2, local_steps=1)", True),
        ("exact_per_pca(local_components=1, max_rounds=2)", False),
    ],
)
def test_a_lost_state_matters_where_answers_depend_on_it_and_is_told_once(algorithm, matters):
    run, nodes, memories, seen = session(algorithm), local_clients(SHARDS), {}, {}

    def noted(replies):
        seen.setdefault(run.position.role, run.position)
        return replies

    while step(run, nodes, memories=memories, change=noted) is not None:
        pass
    assert seen[Role.ALGORITHM].after_loss().disturbed == matters
    twice = seen[Role.CLOSING].after_loss().after_loss()
    words = "clients had lost their state before the last message"
    assert twice.model.status.words.count(words) == matters
    assert not twice.disturbed


def test_a_member_missing_twice_sends_the_run_back_to_the_opening():
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes, change=without_answer(1))
    step(run, nodes, change=without_answer(1))
    reopened = step(run, nodes, present=[0, 2, 3])
    assert (reopened.stage, reopened.to) == ("opening", (0, 2, 3))
    assert reopened.frame.mean is None
    assert_pca_of(drive(run, nodes, present=[0, 2, 3]), rows_without(1))


@pytest.mark.parametrize("algorithm", [EXACT, "ssi(tol=1e-11)", "dr_svd(rank=10)"])
@every("lasting", [False, True])
def test_when_a_member_is_gone_for_good_the_answer_is_the_pca_of_those_present(algorithm, lasting):
    run, nodes = session(algorithm), local_clients(SHARDS)
    memories = {}
    step(run, nodes, memories=memories)
    step(run, nodes, change=without_answer(2, lasting=lasting), memories=memories)
    result = drive(run, nodes, present=[0, 1, 3], memories=memories)
    assert_pca_of(result, rows_without(2))
    assert len(run.history.of("opening")) == 2


def test_a_client_that_joins_late_is_counted_by_a_new_opening():
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes, present=[0, 1, 3])
    result = drive(run, nodes)
    assert run.history[-1].asked == 4
    assert_pca_of(result, X)


@every("again", [False, True])
def test_a_client_that_failed_the_opening_is_asked_once_more_and_then_not_waited_for(again):
    run, nodes = session(EXACT), local_clients(SHARDS)
    step(run, nodes, change=without_answer(2))
    assert run.pending(range(4)).to == (2,)
    if again:
        step(run, nodes, change=without_answer(2))
    assert_pca_of(drive(run, nodes), rows_without(2) if again else rows_without())
    assert len(run.history.of("opening")) == 2


def until_evaluation(present):
    run, nodes = session(EXACT, reconstruction_error=True), local_clients(SHARDS)
    while run.pending(present).stage != "evaluate":
        step(run, nodes, present)
    return run, nodes


def assert_squares_outside(result, rows, *, measured):
    """What the components leave of these rows, by LAPACK, whether or not clients have measured it."""
    s, _ = svd(framed(rows))
    outside = float(np.sum(s[2:] ** 2))
    np.testing.assert_allclose(result.left_out_variance_, outside / (len(rows) - 1), rtol=1e-9)
    if measured:
        np.testing.assert_allclose(result.mse_, outside / len(rows), rtol=1e-9)
    else:
        assert result.mse_ is None


@every("gone", [False, True])
def test_an_evaluation_that_a_member_misses_is_of_all_members_or_not_reported(gone):
    run, nodes = until_evaluation(range(4))
    step(run, nodes, change=without_answer(2))
    if not gone:
        assert run.pending(range(4)).to == (2,)
    result = drive(run, nodes, present=[0, 1, 3] if gone else None)
    assert_pca_of(result, X)
    assert_squares_outside(result, X, measured=not gone)
    assert ("the message evaluate got no answer from client 2" in result.status.words) == gone


def test_an_evaluation_that_a_member_misses_twice_is_not_reported():
    run, nodes = until_evaluation(range(4))
    step(run, nodes, change=without_answer(2))
    step(run, nodes, change=without_answer(2))
    assert run.pending(range(4)) is None
    result = run.result()
    assert_squares_outside(result, X, measured=False)
    assert not any("mse" in record.metrics for record in run.history)


def test_a_client_that_comes_after_the_closing_is_not_evaluated():
    run, nodes = until_evaluation([0, 1, 3])
    assert run.pending(range(4)).to == (0, 1, 3)
    result = drive(run, nodes)
    assert_pca_of(result, rows_without(2))
    assert_squares_outside(result, rows_without(2), measured=True)


@every(("gone", "fraction"), [(False, 1.0), (True, 1.0), (False, 0.5)])
def test_a_run_with_noise_says_which_members_have_left(gone, fraction):
    """Its opening cannot be repeated, so that means and numbers of rows stay those of all members."""
    private = {"dp": "dp(epsilon=1e6, delta=1e-6, clip=30.0)", "fraction": fraction}
    run, nodes = session("ssi(max_rounds=3)", **private), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes)
    result = drive(run, nodes, present=[0, 1, 3] if gone else None)
    assert abs(result.n_samples_ - len(X)) < 2
    assert ("the last round got no answer from client 2, so the components are mostly" in result.status.words) == gone


def test_a_run_with_noise_says_that_clients_have_joined():
    run, nodes = session("ssi(max_rounds=3)", dp="dp(epsilon=1e6, delta=1e-6, clip=30.0)"), local_clients(SHARDS)
    step(run, nodes, [0, 1, 2])
    result = drive(run, nodes)
    assert abs(result.n_samples_ - len(rows_without(3))) < 2
    assert "answered by clients that joined after the opening, too, so the components" in result.status.words
    assert "got no answer" not in result.status.words


def test_a_set_that_keeps_changing_is_given_up():
    nodes = local_clients(deal(falling(90, 40, seed=1, ratio=1.1), [10] * 9))
    run, here = session(EXACT), list(range(9))

    def shrink():
        while step(run, nodes, present=here) is not None:
            if run.history[-1].stage == "opening":
                here.pop()

    with pytest.raises(NotEnoughNodes) as caught:
        shrink()
    assert len(run.history.of("opening")) == 1 + MAX_RESTARTS
    assert str(caught.value) == (
        "The set of clients changed for the 6th time. "
        "Use ssi, local_power or faps, which continue while clients come and go."
    )


def test_newcomers_at_every_end_stop_the_run_with_a_status():
    nodes = local_clients(deal(falling(90, 40, seed=1, ratio=1.1), [10] * 9))
    run, here = session("uda"), [0, 1]
    while (message := step(run, nodes, present=here)) is not None:
        if message.stage == "uda" and len(here) < 9:
            here.append(len(here))
    result = run.result()
    assert result.status.outcome is Outcome.CLIENTS_CHANGED
    assert result.status.words.startswith("the set of clients kept changing, and 5 restarts did not help")
    assert not result.status.ok


@every("before", [0, 1])
@every("algorithm", ["ssi", "krylov"])
def test_rounds_without_any_answer_end_the_run(algorithm, before):
    run, nodes = session(algorithm), local_clients(SHARDS)
    for _ in range(before):
        step(run, nodes)

    def silence():
        for _ in range(10):
            step(run, nodes, change=lambda replies: [])

    with pytest.raises(NotEnoughNodes) as caught:
        silence()
    assert str(caught.value) == (
        "A message needs 1 usable answer, but got none in 3 successive rounds. Look at the logs of these clients."
    )


def test_a_single_answer_breaks_the_count_of_empty_rounds():
    run, nodes = session("ssi(tol=1e-11)"), local_clients(SHARDS)
    step(run, nodes)
    for _ in range(3):
        for _ in range(2):
            step(run, nodes, change=lambda replies: [])
        step(run, nodes)
    assert_pca_of(drive(run, nodes), X)


@pytest.mark.parametrize("stage", ["opening", "krylov"])
def test_fewer_clients_than_min_clients_end_the_run(stage):
    run, nodes = session(EXACT, min_nodes=3), local_clients(SHARDS)
    if stage == "krylov":
        step(run, nodes)
    with pytest.raises(NotEnoughNodes) as caught:
        run.pending([0, 1])
    assert str(caught.value) == ("The run needs 3 clients, but 2 are present. Start more clients, or lower min_nodes.")
    assert_pca_of(drive(run, nodes), X)


@pytest.mark.slow
def test_where_only_those_are_left_that_failed_the_opening_it_is_held_again():
    run, nodes = session("ssi(max_rounds=12)", fraction=0.5), local_clients(SHARDS)
    for _ in range(2):  # The opening asks a second time.
        step(run, nodes, change=lambda replies: [r for r in replies if r.client == 0])
    assert step(run, nodes).to == (0,)
    again = step(run, nodes, present=[1, 2, 3])
    assert (again.stage, again.to) == ("opening", (1, 2, 3))
    assert drive(run, nodes, present=[1, 2, 3]).n_samples_ == len(rows_without(0))
