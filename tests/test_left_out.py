"""Who fails once is asked again; who fails twice in a row, or refuses by a rule, is left out; over every transport."""

import errno

import numpy as np
import pytest
from builders import unequal
from cases import PLAIN_OR_MASKED, every, paired
from fake_grid import FakeGrid, arrays_in, config_of, failed, grid_of, hosts_of, is_pca_of
from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo

from flower_pca import Stream, client_half, wire
from flower_pca.base.errors import NotEnoughNodes
from flower_pca.clients import client_app
from flower_pca.clients.policy.refusals import words_for_server
from flower_pca.clients.storage import folders
from flower_pca.masking import messages
from flower_pca.results.left_out import LeftOut, left_out_in_words
from flower_pca.strategies import PCAStrategy, TrackingStrategy
from flower_pca.strategies.nodes import FailureRecord

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
BAD = 2  # the position of the faulty node
OTHERS = [shard for i, shard in enumerate(SHARDS) if i != BAD]
DIED = "the process of its ClientApp has died, possibly because it lacked memory"


def refusal(lasting):
    def refuse(message):
        said = wire.refusal("The disk is full.", config_of(message)["number"], BAD, lasting=lasting)
        return Message(wire.write_reply("train", [], 0, said), reply_to=message)

    return refuse


FAULTS = {
    "an error": (lambda message: Message(Error(2, "boom"), reply_to=message), "error 2: boom"),
    "a dead process": (lambda message: Message(Error(8, "boom"), reply_to=message), DIED),
    "a refusal": (refusal(lasting=False), "The disk is full."),
}
CASES = [("krylov", False), ("ssi", False), ("local_power", False), ("krylov", True), ("ssi", True)]
FAULTS_BY_CASE = [(fault, *case) for fault, case in paired(FAULTS, CASES)] + [("a dead process", "krylov", True)]


def arrays_of(message):
    """The arrays of a message, by name."""
    return arrays_in(message)


def carried(message):
    """The stage that a message is of; None for the set-up of masks, and for their unmasking."""
    stage = config_of(message)["stage"]
    return messages.inner_stage(arrays_of(message)) if stage == messages.STAGE else stage


def faulty(answer, times=999, **rules):
    """A grid with one node that fails so many messages of the algorithm, and answers all others."""
    grid, left = grid_of(SHARDS, **rules), [times]
    node = grid.node(BAD)

    def tamper(message, reply):
        work = carried(message) not in (None, "opening", "summed_opening", "ritz")
        if message.metadata.dst_node_id == node and work and left[0]:
            left[0] -= 1
            return answer(message)
        return reply

    grid.tamper = tamper
    return grid, str(node)


def patient_strategy(name, mask=False, **given):
    given = {"n_components": 2, "node_timeout": 0.3, "round_timeout": 30.0, **given}
    return PCAStrategy(name, mask=mask or None, **given)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "name", "mask"), FAULTS_BY_CASE)
def test_a_node_that_fails_all_work_is_left_out_and_does_not_end_the_run(fault, name, mask):
    """It answers openings and the set-ups of masks, as a node that is short of memory does."""
    answer, words = FAULTS[fault]
    grid, node = faulty(answer)
    result = patient_strategy(name, mask).fit(grid)
    assert result.status.ok
    assert failed(result, node) == [words] * 2
    assert is_pca_of(result, OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_where_it_cannot_be_spared_the_error_says_what_happened_to_it(fault):
    answer, words = FAULTS[fault]
    grid, _ = faulty(answer)
    with pytest.raises(NotEnoughNodes) as caught:
        patient_strategy("krylov", min_nodes=5).fit(grid)
    because = f"but 4 are present, and the run has excluded 1, the first because: {words.rstrip('.')}. Start more"
    assert because in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "name", "mask"), FAULTS_BY_CASE[:-1])
def test_one_failure_costs_a_message_and_no_more(fault, name, mask):
    answer, words = FAULTS[fault]
    grid, node = faulty(answer, times=1)
    result = patient_strategy(name, mask).fit(grid)
    assert failed(result, node) == [words]
    assert is_pca_of(result, SHARDS)


@pytest.mark.slow
def test_a_set_of_clients_that_keeps_changing_is_said_with_the_first_reason():
    """Nodes fail the work twice in turn, and are started anew."""
    grid = grid_of(SHARDS)
    starts, turn = dict.fromkeys(range(5), 0), {"node": -1, "left": 0}

    def look():
        return [NodeInfo(node_id=n, last_activated_at=str(starts[p])) for p, n in enumerate(grid.nodes)]

    def fail(message, reply):
        """At each new opening it is the next node's turn to fail twice."""
        at = message.metadata.dst_node_id
        if carried(message) == "opening" and turn["left"] == 0:
            turn.update(node=(turn["node"] + 1) % 5, left=2)
            starts[(turn["node"] - 1) % 5] += 1  # The node before it is restarted.
        if carried(message) == "krylov" and at == grid.node(turn["node"]) and turn["left"]:
            turn["left"] -= 1
            return FAULTS["a dead process"][0](message)
        return reply

    grid.get_nodes, grid.tamper = look, fail
    changed = r"The set of clients changed for the 6th time, the first because: "
    with pytest.raises(NotEnoughNodes, match=rf"{changed}{DIED}\. Use ssi"):
        patient_strategy("krylov").fit(grid)


@pytest.mark.slow
def test_a_refusal_by_a_rule_is_lasting_and_one_for_want_of_anything_else_is_not(monkeypatch):
    grid, seen = grid_of(SHARDS, max_messages=1), []
    grid.tamper = lambda message, reply: seen.append(reply) or reply
    with pytest.raises(NotEnoughNodes, match="has excluded 5, the first because: This node answers at most"):
        patient_strategy("krylov").fit(grid)
    answers = [wire.read_reply(reply.content, "train") for reply in seen]
    assert [answer.lasting for answer in answers if answer.refusal] == [True] * 5

    full = OSError(errno.ENOSPC, "No space left on device")
    kept, calls = folders.StateStore.save, []

    def save(self, what):
        calls.append(what)
        if len(calls) == 7:  # the second message to one node
            raise full
        kept(self, what)

    monkeypatch.setattr(folders.StateStore, "save", save)
    grid, seen = grid_of(SHARDS), []
    grid.tamper = lambda message, reply: seen.append(reply) or reply
    result = patient_strategy("faps").fit(grid)
    answers = [wire.read_reply(reply.content, "train") for reply in seen]
    (refused,) = [answer for answer in answers if answer.refusal]
    assert not refused.lasting
    assert refused.refusal == (
        "This node cannot answer because of an error (OSError: No space left on device), which is in its own log. "
        "Ask the node's operator."
    )
    assert is_pca_of(result, SHARDS)


@pytest.mark.slow
def test_a_client_of_a_host_that_fails_is_asked_again_too(monkeypatch):
    kept, calls = client_half.answer, []

    def answer(*given, **more):
        calls.append(given)
        if len(calls) == 7:  # the first message of the algorithm, at one client
            raise OSError(errno.EIO, "Input/output error")
        return kept(*given, **more)

    monkeypatch.setattr(client_half, "answer", answer)
    result = patient_strategy("ssi", hosted="stacked", min_nodes=5).fit(hosts_of(SHARDS, 2))
    (record,) = [r for r in result.history if r.failures]
    assert record.answered == 4
    assert is_pca_of(result, SHARDS)


def grid_of_four_streams():
    """Four nodes with six batches of ten rows each."""
    streams = [np.random.default_rng(i).standard_normal((60, 6)) * [5, 3, 1, 1, 1, 1] for i in range(4)]
    batches = [Stream(rows, batch=10) for rows in streams]
    app = client_app(lambda context: batches[context.node_config["partition-id"]], allow=["st_miss"], noise_seed=0)
    return FakeGrid(app, 4)


def tracked_in_six_steps(grid, mask):
    tracker = "st_miss(products=1, first_products=1)"
    return TrackingStrategy(tracker, n_components=2, steps=6, mask=mask, node_timeout=0.3).fit(grid)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["an error", "a refusal"])
@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
def test_a_tracker_asks_at_every_step_a_node_that_fails_at_once(fault, mask):
    """However many steps it has missed: that costs nobody anything, and then it is back."""
    grid, missed = grid_of_four_streams(), set()
    node = grid.node(BAD)

    def tamper(message, reply):
        step = int(arrays_of(message).get("step", 0))  # The messages of a set-up have no step.
        if message.metadata.dst_node_id == node and 2 <= step < 5:
            missed.add(step)
            return FAULTS[fault][0](message)
        return reply

    grid.tamper = tamper
    result = tracked_in_six_steps(grid, mask)
    assert missed == {2, 3, 4}
    assert result.rows_.tolist() == [40, 40, 30, 30, 30, 40]


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, True])
def test_a_node_that_dies_at_every_step_of_a_tracker_is_waited_for_twice(mask):
    """Under masks it answers every set-up, for which it needs less memory."""
    grid, died = grid_of_four_streams(), []
    node = grid.node(BAD)

    def tamper(message, reply):
        if message.metadata.dst_node_id == node and carried(message):
            died.append(message)
            return FAULTS["a dead process"][0](message)
        return reply

    grid.tamper = tamper
    result = tracked_in_six_steps(grid, mask)
    assert len(died) == 2
    assert result.rows_.tolist() == [30] * 6


def test_two_in_a_row_leave_a_node_out_until_it_has_been_away_or_is_started_anew():
    patience = FailureRecord()
    assert patience.returned_nodes({1: "nine", 2: "nine"}) == frozenset()
    assert not patience.record_failure(1, silent=True, counts=False)
    patience.record_answer(1, counts=False)
    assert not patience.record_failure(1, silent=True, counts=False)
    assert patience.record_failure(1, silent=True, counts=False)
    assert not patience.record_failure(2, silent=False, counts=True)
    patience.record_answer(2, counts=False)  # for example an opening
    assert patience.record_failure(2, silent=False, counts=True)
    assert patience.returned_nodes({1: "nine", 2: "nine"}) == frozenset()
    assert patience.returned_nodes({2: "ten"}) == {2}
    assert patience.returned_nodes({1: "nine", 2: "ten"}) == {1}
    assert not any(patience.record_failure(node, silent=True, counts=True) for node in (1, 2))


def test_an_answer_to_the_work_or_a_failure_that_comes_at_once_ends_a_row():
    patience = FailureRecord()
    assert not patience.record_failure(1, silent=False, counts=True)
    patience.record_answer(1, counts=True)
    assert not patience.record_failure(1, silent=False, counts=True)
    assert not any(
        patience.record_failure(2, silent=silent, counts=False) for silent in (True, False, True, False, False)
    )


@pytest.mark.slow
def test_a_node_that_is_started_anew_between_two_looks_is_asked_again():
    """As where its service is restarted while all others are waited for: it has never been seen to be away."""
    grid, starts = grid_of(SHARDS), {"node": "nine"}
    node = grid.node(BAD)

    def look():
        return [NodeInfo(node_id=n, last_activated_at=starts["node"] if n == node else "") for n in grid.nodes]

    def tamper(message, reply):
        if message.metadata.dst_node_id != node and config_of(message)["number"] == 5:
            starts["node"] = "ten"
        sick = message.metadata.dst_node_id == node and starts["node"] == "nine"
        return FAULTS["a dead process"][0](message) if sick and carried(message) == "ssi" else reply

    grid.get_nodes, grid.tamper = look, tamper
    result = patient_strategy("ssi").fit(grid)
    assert failed(result, str(node)) == [DIED] * 2
    assert is_pca_of(result, SHARDS)


def test_20_sites_are_named_and_the_others_are_counted():
    sites = {i: LeftOut(f"site {i}", "it has no rows") for i in range(23)}
    for count, end in ((20, "and site 19 (it has no rows) are"), (23, "site 19 (it has no rows) and 3 more are")):
        words = left_out_in_words({i: sites[i] for i in range(count)})
        assert words.count("it has no rows") == 20
        assert words.endswith(f"{end} not in this result.")


def test_a_node_that_has_said_nothing_yet_is_called_as_it_was_registered(lines):
    grid = grid_of(SHARDS)
    node = grid.node(BAD)

    def look():
        return [NodeInfo(node_id=n, name="trier\x1b" if n == node else "") for n in grid.nodes]

    grid.get_nodes = look
    grid.tamper = lambda message, reply: (
        FAULTS["a dead process"][0](message) if message.metadata.dst_node_id == node else reply
    )
    assert is_pca_of(patient_strategy("krylov").fit(grid), OTHERS)
    assert any(f"node {node} (trier\\x1b) was left out: {DIED}" in line for line in lines)


@every(
    ("error", "kind"),
    [
        (OSError(errno.EACCES, "/srv/rows.npy is not ours"), "PermissionError: Permission denied"),
        (OSError("/srv/rows.npy"), "OSError"),
        (OSError("/srv", "rows.npy"), "OSError"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_what_the_system_refuses_is_told_in_its_own_words_and_no_path_is(error, kind):
    said = f"This node cannot answer because of an error ({kind}), which is in its own log. Ask the node's operator."
    assert words_for_server(error, hides_reasons=True) == said
