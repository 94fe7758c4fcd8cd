"""Test false records about clients in the answers of virtual nodes."""

import numpy as np
import pytest
from builders import unequal
from cases import every
from fake_grid import config_of, hosts_of
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from flower_pca import ConfigError, NotEnoughNodes
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()[:4]
OTHERS = sum(len(X) for X in SHARDS[2:])  # the rows of the honest node
PROPERTIES = "getpropertiesres.properties"


def found_with_change(change, stage=None):
    """The result of two nodes of two clients each; the first has its answers (to one stage only, if named) changed."""
    grid = hosts_of(SHARDS, each=2)
    bad = grid.node(0)

    def tamper(message, reply):
        if message.metadata.dst_node_id != bad or reply.has_error():
            return reply
        if stage and (PROPERTIES in reply.content or config_of(message)["stage"] != stage):
            return reply
        content = change(RecordDict(dict(reply.content.items())))
        return Message(content, reply_to=message)

    grid.tamper = tamper
    return PCAStrategy("krylov", n_components=2, min_nodes=2, hosted="stacked").fit(grid)


def config(key, value):
    """A change of one value, wherever it stands, but not of what a node says before a run."""

    def change(content):
        for name, record in content.config_records.items():
            if key in record and name != PROPERTIES:
                content.config_records[name] = ConfigRecord({**record, key: value})
        return content

    return change


def hosting(clients):
    """A change of what a node says before a run: that it hosts these clients."""

    def change(content):
        if PROPERTIES in content:
            content[PROPERTIES] = ConfigRecord({**content[PROPERTIES], "clients": clients})
        return content

    return change


def arrays(function):
    """A change of all arrays."""

    def change(content):
        for name, record in content.array_records.items():
            content.array_records[name] = ArrayRecord([np.asarray(function(a.numpy())) for a in record.values()])
        return content

    return change


def without_arrays(content):
    return RecordDict({name: r for name, r in content.items() if name not in content.array_records})


def nothing(content):
    return content if PROPERTIES in content else RecordDict()


DEEP = "[" * 100_000
UNREADABLE = {
    **{f"metrics {text[:9]}": config("metrics", text) for text in ("{", "[]", "[1, 2]", '[{"a": {}}, {}]', DEEP)},
    "clients that are text": config("clients", ["0", "1"]),
    "a client twice": config("clients", [0, 0]),
    "others": config("clients", [2, 3]),
    "more rows than clients": config("num_examples", [1, 2, 3]),
    "columns": config("by_columns", [1.5]),
    "numbers": arrays(lambda a: a.reshape(-1)[0]),
    "texts": arrays(lambda a: a.astype("S3")),
    "no arrays": without_arrays,
    "nothing": nothing,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_a_failure_of_its_clients_only(what):
    result = found_with_change(UNREADABLE[what])
    assert result.n_samples_ <= OTHERS + len(SHARDS[0])
    assert set(result.history[0].failures) <= {"0", "1"}
    assert result.history[0].failures


@pytest.mark.parametrize("stage", ["opening", "krylov"])
def test_an_answer_that_no_rows_of_its_clients_have_is_left_out(stage):
    result = found_with_change(arrays(lambda a: a[..., ::-1, :] * 1e3 if a.ndim == 3 else a), stage)
    assert result.n_samples_ == OTHERS
    whole = PCAStrategy("krylov", n_components=2, min_nodes=2, hosted="stacked").fit(hosts_of(SHARDS[2:], each=2))
    assert result.angle_to(whole) < 1e-7


def test_one_client_of_a_stack_that_tells_what_its_rows_cannot_is_left_out_alone():
    def change(a):
        changed = np.array(a)
        if a.ndim == 3 and len(a) == 2:  # both clients are in the message
            changed[1] *= 1e3
        return changed

    result = found_with_change(arrays(change), "krylov")
    assert result.n_samples_ == OTHERS + len(SHARDS[0])
    assert "larger than its own rows allow" in " ".join(r.failures.get("1", "") for r in result.history)


@every("clients", [[0, 1, 2, 3], [2, 3], [0, 1, 3]])
def test_a_client_is_hosted_by_one_node(clients):
    with pytest.raises(ConfigError, match=r"Client [23] is hosted by two nodes, "):
        found_with_change(hosting(clients))


@pytest.mark.parametrize("clients", [["0"], [0, 0], [-1, 0], [0.0], [False]])
def test_clients_are_numbers_each_once(clients, lines):
    result = found_with_change(hosting(clients))
    assert result.n_samples_ == OTHERS
    assert any("was left out: " in line and "Look at the log of that node." in line for line in lines)
    assert "whose clients are unknown, was left out: " in " ".join(result.hints)


@pytest.mark.slow
def test_a_node_that_never_says_which_clients_it_hosts_is_waited_for_twice():
    grid, asked = hosts_of(SHARDS, each=2), 0
    bad = grid.node(0)

    def lose(message, reply):
        nonlocal asked
        if message.metadata.dst_node_id != bad:
            return reply
        asked += 1
        return None

    grid.tamper = lose
    result = PCAStrategy("ssi", n_components=2, min_nodes=2, hosted="stacked", round_timeout=0.5).fit(grid)
    assert result.n_samples_ == OTHERS
    assert len(result.history) > 2
    assert asked == 2
    assert f"Node {bad}, whose clients are unknown, was left out: " in " ".join(result.hints)


def test_a_node_alone_that_says_nothing_leaves_too_few():
    grid = hosts_of(SHARDS[:2], each=2)
    grid.tamper = lambda message, reply: Message(nothing(reply.content), reply_to=message)
    with pytest.raises(NotEnoughNodes, match="does not contain the answer of one of its clients"):
        PCAStrategy("krylov", n_components=2, min_nodes=2, hosted="stacked").fit(grid)
