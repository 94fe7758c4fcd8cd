"""Test nodes that crash, join, lie and forget, late or missing replies, and a server that is killed."""

import functools
import io
import itertools
import threading
import time
import types
from queue import Empty, SimpleQueue
from typing import ClassVar

import numpy as np
import pytest
from builders import sine, stop_after, unequal
from cases import every, in_turn, paired, slow_if
from fake_grid import arrays_in, config_of, failed, grid_of, is_pca_of, metrics_of, with_arrays
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flower_pca import registry, simulate, strategies
from flower_pca.base.errors import DataError, FlowerPCAError, NotEnoughNodes
from flower_pca.strategies import PCAStrategy, nodes
from flower_pca.strategies import exchange as exchanging
from flower_pca.strategies.exchange import exchange

pytestmark = pytest.mark.usefixtures("lines")

SHARDS, THREE = unequal(), unequal(3)
BAD = 2  # the position of the faulty node
OTHERS = [shard for i, shard in enumerate(SHARDS) if i != BAD]
SHORT = {
    "faps": {"max_rounds": 4, "inner_steps": 2},
    "local_power": {"max_rounds": 4},
    "ssi": {"max_rounds": 4},
    "fed_oapm": {"max_rounds": 4},
    "dcf_pca": {"max_rounds": 3, "step": "scaled"},
    "consensus_rpca": {"max_rounds": 3},
    "per_pca": {"max_rounds": 4},
    "exact_per_pca": {"max_rounds": 4},
    "triple_pca": {"max_rounds": 4},
}
EXACT = {"krylov": {}, "ssi": {}, "local_power": {"local_steps": 2, "halve_every": 1}, "faps": {"inner_steps": 3}}
FEWER = {"faps": (2,)}  # It has many rounds, so faults occur at these messages only.
exact = pytest.mark.parametrize("name", slow_if(EXACT, "faps"))


def strategy(name, **parameters):
    return PCAStrategy(registry.make(name, **EXACT.get(name, {})), n_components=2, **parameters)


def number(message):
    return config_of(message)["number"]


def at(grid, rounds, change, position=BAD):
    """Let `change(message, reply)` give the reply of one node in these rounds."""
    node = grid.node(position)
    grid.tamper = lambda m, r: change(m, r) if m.metadata.dst_node_id == node and number(m) in rounds else r
    return str(node)


def flower_error(reason="boom", code=2):
    return lambda message, reply: Message(Error(code=code, reason=reason), reply_to=message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "when"), slow_if([(name, when) for name in EXACT for when in FEWER.get(name, (0, 1, 2))], "faps")
)
def test_a_node_that_dies(name, when):
    grid = grid_of(SHARDS)
    node = grid.node(BAD)
    grid.on_push = lambda message: node in grid.nodes and number(message) == when and grid.kill(node)
    result = strategy(name).fit(grid)
    assert is_pca_of(result, OTHERS)
    assert failed(result, str(node)) == ["error 5: Node Unavailable"] * len(failed(result, str(node)))
    assert failed(result, str(node))


@pytest.mark.slow
def test_nodes_that_die_and_join_in_turn():
    shards = unequal(8)
    grid = grid_of(shards, 5)
    changes = {1: lambda: grid.kill(grid.node(0)), 3: grid.add, 5: lambda: grid.kill(grid.node(3)), 7: grid.add}
    grid.on_push = lambda message: changes.pop(number(message), lambda: None)()
    result = strategies.Krylov(n_components=2).fit(grid)
    assert not changes
    assert is_pca_of(result, [shards[c.node_config["partition-id"]] for c in grid.nodes.values()])


@pytest.mark.slow
@exact
@pytest.mark.parametrize("when", [0, 1])
def test_an_error_reply_is_counted_named_and_survived(name, when):
    grid = grid_of(SHARDS)
    node = at(grid, {when}, flower_error("boom\nthe last line"))
    result = strategy(name).fit(grid)
    assert failed(result, node) == ["error 2: the last line"]
    assert (result.history[when].answered, result.history[when].asked) == (4, 5)
    assert is_pca_of(result, SHARDS) or is_pca_of(result, OTHERS)


@pytest.mark.parametrize("reason", ["", " \n", None])
def test_an_error_without_words(reason):
    grid = grid_of(SHARDS)
    node = at(grid, {1}, flower_error(reason))
    result = strategy("krylov").fit(grid)
    assert [words.split(":")[0] for words in failed(result, node)] == ["error 2"]
    assert is_pca_of(result, SHARDS)


@exact
def test_a_node_that_answers_nothing_but_errors(name):
    grid = grid_of(SHARDS)
    node = at(grid, range(999), flower_error())
    result = strategy(name).fit(grid)
    assert is_pca_of(result, OTHERS)
    assert failed(result, node)


def with_change(change, which=("product", "S", "Y", "V")):
    """A reply with one of its arrays changed."""

    def tamper(message, reply):
        return with_arrays(reply, {n: change(a) if n in which else a for n, a in arrays_in(reply).items()})

    return tamper


def spotted(value):
    def change(a):
        a = np.array(a, dtype=float)
        a.flat[a.size // 2] = value
        return a

    return change


def older(message, reply):
    metrics_of(reply)["number"] -= 1
    return reply


CHANGES = {
    "row_less": lambda a: a[:-1],
    "column_more": lambda a: np.hstack([a, a[:, :1]]),
    "one_column": lambda a: a[:, :1],
    "no_column": lambda a: a[:, :0],
    "transposed": lambda a: a.T,
    "cube": lambda a: a[None],
    "complex": lambda a: a + 1j,
    "bool": lambda a: a > 0,
    "text": lambda a: a.astype(str),
    "nan": spotted(np.nan),
    "inf": spotted(-np.inf),
}
BAD_REPLIES = {
    **{bad: (with_change(change), "must be") for bad, change in CHANGES.items()},
    "nan": (with_change(CHANGES["nan"]), "must be finite, but has 1 NaN or infinite"),
    "renamed": (lambda m, r: with_arrays(r, {f"x{n}": a for n, a in arrays_in(r).items()}), "should have"),
    "nothing": (lambda m, r: with_arrays(r, {}), "should have"),
    "older": (older, "answered message"),
    "foreign": (
        lambda m, r: Message(RecordDict({"x": ConfigRecord({"a": 1})}), reply_to=m),
        "An answer lacks the records",
    ),
}


WHERE = [("krylov", 0), ("krylov", BAD), ("ssi", BAD)]  # the faulty node comes first, or in the middle of the sum


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "where", "when"), in_turn(BAD_REPLIES, WHERE, [0, 1]))
def test_a_bad_reply_is_left_out_and_named(bad, where, when, lines):
    (change, reason), (name, position) = BAD_REPLIES[bad], where
    grid = grid_of(SHARDS)
    node = at(grid, {when}, change, position)
    result = strategy(name).fit(grid)
    assert reason in failed(result, node)[0]
    assert any(f"node {node} " in line and " was left out: " in line and reason in line for line in lines)
    assert all(set(r.failures) <= {node} for r in result.history)
    others = [shard for i, shard in enumerate(SHARDS) if i != position]
    assert is_pca_of(result, others) or (bad == "older" and is_pca_of(result, SHARDS))


DONE = [
    *[("uda", 1, "V", bad) for bad in ("nan", "row_less", "column_more", "transposed", "cube", "complex")],
    *[("wda", 1, "S", bad) for bad in ("nan", "row_less", "negative", "cube")],
    *[("dr_svd", 1, "G", bad) for bad in ("nan", "row_less", "column_more", "one_column")],
    *[("dr_svd", 2, "R", bad) for bad in ("nan", "column_more", "cube")],
    *[("dr_svd", 3, "B", bad) for bad in ("inf", "transposed")],
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "when", "field", "bad"), DONE)
def test_a_bad_reply_to_a_one_shot_algorithm(name, when, field, bad):
    change = {**CHANGES, "negative": lambda a: -a}[bad]
    grid = grid_of(SHARDS)
    node = at(grid, {when}, with_change(change, (field,)))
    result = strategy(name).fit(grid)
    assert failed(result, node)
    assert result.n_samples_ == sum(map(len, OTHERS))
    if name != "dr_svd":  # dr_svd starts from another random block after its return to the opening
        reference = simulate(name, OTHERS, n_components=2)
        assert np.allclose(result.components_, reference.components_, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uda", "wda", "dr_svd", "local_power", "krylov"])
def test_a_wider_float_is_taken_or_named(name):
    """Some nodes' floats have 80 bits; LAPACK knows none of these."""
    grid = grid_of(SHARDS)
    node = at(grid, range(99), with_change(lambda a: a.astype(np.longdouble), ("V", "S", "G", "R", "B", "Y", "X")))
    result = strategy(name).fit(grid)
    reference = simulate(registry.make(name, **EXACT.get(name, {})), SHARDS, n_components=2)
    assert failed(result, node) or np.allclose(result.components_, reference.components_, rtol=0, atol=1e-10)


CANNOT_BE = [
    *[("n", value) for value in (0, -7, 2.5, 10**15)],
    *[("m2", value) for value in (-1.0, 1e308)],
    *[("eps", value) for value in (1e9, 1e-3, -1.0)],
    ("mean", 1e200),
    ("product", 1e308),
]


@pytest.mark.slow
@every(("field", "value"), CANNOT_BE)
def test_figures_that_cannot_be(field, value):
    """A count is a whole number of at least one; squares are not negative; a precision is between 0 and 1."""
    grid = grid_of(SHARDS)
    node = at(grid, {0}, with_change(lambda a: np.full(a.shape, value), (field,)))
    result = strategy("krylov").fit(grid)
    assert failed(result, node)
    assert is_pca_of(result, OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["krylov", "ssi"])
def test_a_product_that_cannot_be_does_not_spoil_the_sum(name):
    grid = grid_of(SHARDS)
    node = at(grid, {1}, with_change(lambda a: np.full(a.shape, -1e250)))
    result = strategy(name).fit(grid)
    assert "at most 1e+140 in size, but reaches 1e+250" in failed(result, node)[0]
    assert is_pca_of(result, OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uda", "wda"])
def test_an_average_takes_no_vectors_that_outweigh_the_others(name):
    grid = grid_of(SHARDS)
    node = at(grid, {1}, with_change(lambda a: 30.0 * a, ("V",)))
    result = strategy(name).fit(grid)
    assert "The columns of V of an answer are not orthonormal." in failed(result, node)[0]
    reference = simulate(name, OTHERS, n_components=2)
    assert np.allclose(result.components_, reference.components_, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["krylov", "ssi", "uda"])
@pytest.mark.slow
def test_a_silent_node_takes_no_time_from_those_behind_it(name, monkeypatch):
    """The first of more nodes than the window never answers: the others are asked, and in time, all the same."""
    monkeypatch.setitem(exchange.__kwdefaults__, "window", 8)
    shards = unequal(12)
    grid = grid_of(shards)
    node = at(grid, range(1, 99), lambda message, reply: None, position=0)
    result = strategy(name, round_timeout=1.0).fit(grid)
    assert set(failed(result, node)) == {"no answer within 1 s"}
    assert all(set(r.failures) <= {str(node)} or set(r.failures) <= {node} for r in result.history)
    if name != "uda":
        assert is_pca_of(result, shards[1:]) or is_pca_of(result, shards)


def test_a_server_that_is_slow_itself_takes_no_answers_for_missing(monkeypatch):
    """Replies come in by and by, and every look at the clock is later than all of them may take."""
    seconds = itertools.count(0.0, 10.0)
    monkeypatch.setattr(exchanging, "time", types.SimpleNamespace(monotonic=lambda: next(seconds), sleep=time.sleep))
    result = strategy("krylov", round_timeout=5.0).fit(grid_of(SHARDS))
    assert not any(r.failures for r in result.history)
    assert is_pca_of(result, SHARDS)


@pytest.mark.slow
def test_a_node_that_is_silent_twice_is_asked_no_more():
    """Every one of its silences costs the whole timeout."""
    grid = grid_of(SHARDS)
    node = at(grid, range(1, 999), lambda message, reply: None)
    result = strategy("faps", round_timeout=0.3).fit(grid)
    assert len(failed(result, node)) == 2
    assert is_pca_of(result, OTHERS) or is_pca_of(result, SHARDS)


def test_where_all_nodes_are_left_out_the_first_reason_is_said():
    grid = grid_of(SHARDS)
    grid.tamper = lambda message, reply: BAD_REPLIES["nan"][0](message, reply)
    with pytest.raises(NotEnoughNodes, match=r"has excluded 5, the first because: .*must be finite"):
        strategy("krylov", min_nodes=2).fit(grid)


@pytest.mark.slow
def test_too_few_nodes_end_the_run_after_node_timeout():
    with pytest.raises(NotEnoughNodes, match=r"Only 5 of at least 6 nodes are connected after 0\.3 s\. Start more"):
        strategy("krylov", min_nodes=6, node_timeout=0.3).fit(grid_of(SHARDS))


def test_no_wait_for_nodes_is_longer_than_what_is_left_of_all(monkeypatch):
    slept = []
    monkeypatch.setattr(nodes.time, "sleep", slept.append)
    with pytest.raises(NotEnoughNodes, match=r"Only 3 of at least 4 nodes are connected after 0.05 s"):
        strategy("krylov", min_nodes=4, node_timeout=0.05).fit(grid_of(THREE))
    assert 0.0 < max(slept) <= 0.05


def test_nodes_that_come_while_the_server_waits(monkeypatch):
    monkeypatch.setattr(nodes, "_POLL", 0.0)
    grid, looks = grid_of(SHARDS, 2), iter(range(99))

    def look():
        if next(looks) % 3 == 2 and len(grid.nodes) < 5:
            grid.add()
        return list(grid.nodes)

    monkeypatch.setattr(grid, "get_node_ids", look)
    assert is_pca_of(strategy("krylov", min_nodes=5).fit(grid), SHARDS)


@pytest.mark.parametrize("when", [0, 1])
@pytest.mark.parametrize("name", ["krylov", "ssi"])
@pytest.mark.slow
def test_a_node_that_falls_silent_does_not_hold_up_the_run(name, when):
    grid = grid_of(SHARDS)
    last = when if name == "ssi" else 99
    node = at(grid, range(when, last + 1), lambda message, reply: None)
    result = strategy(name, round_timeout=0.5).fit(grid)
    assert set(failed(result, node)) == {"no answer within 0.5 s" if when else f"no answer within 0.5 s: {MUTE}"}
    assert is_pca_of(result, OTHERS) or is_pca_of(result, SHARDS)


@pytest.mark.slow
def test_a_silent_federation_ends():
    grid = grid_of(SHARDS)
    grid.tamper = lambda message, reply: None
    with pytest.raises(
        NotEnoughNodes, match=r"has excluded 5, the first because: no answer within 0\.1 s: it has answered no"
    ):
        strategy("ssi", round_timeout=0.1).fit(grid)
    assert set(grid.counts.values()) == {2}


@pytest.mark.parametrize("name", ["krylov", "ssi"])
@pytest.mark.slow
def test_a_late_answer_to_an_old_round_is_not_taken_for_the_new_one(name):
    """The answer to message 1 comes in the place of that to message 2."""
    grid, late = grid_of(SHARDS), []

    def change(message, reply):
        if number(message) == 1:
            late.append(reply)
            return None
        return Message(late[0].content, reply_to=message)

    node = at(grid, {1, 2}, change)
    result = strategy(name, round_timeout=0.5).fit(grid)
    late = "answered message 1 while the run was waiting for answers to message 2. This late answer was not counted"
    assert late in failed(result, node)[1]
    assert is_pca_of(result, SHARDS) or is_pca_of(result, OTHERS)


@pytest.mark.slow
def test_replies_that_come_late_within_a_round_are_waited_for():
    grid = grid_of(SHARDS)
    grid.delay = lambda message: message.metadata.dst_node_id % 7
    reference = simulate("krylov", SHARDS, n_components=2)
    assert np.array_equal(strategies.Krylov(n_components=2).fit(grid).components_, reference.components_)


@pytest.mark.slow
@pytest.mark.parametrize("who", [[BAD], range(5)], ids=["one", "all"])
def test_lost_memory_is_recovered_from(who):
    grid = grid_of(SHARDS)
    grid.on_push = lambda message: [grid.forget(grid.node(i)) for i in who if number(message) in (4, 9)]
    result = strategy("faps").fit(grid)
    assert result.status.ok
    assert is_pca_of(result, SHARDS)


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("mask", [False, True])
def test_a_resumed_run_says_if_its_nodes_have_begun_afresh(mask, folder, tmp_path):
    """The server is killed, and its nodes are restarted: what they keep of a run is lost without a folder for it."""
    grid = grid_of(THREE, **({"memory_dir": tmp_path / "nodes"} if folder else {}))

    with pytest.raises(Killed):
        strategies.FAPS(n_components=2, mask=mask, checkpoint=tmp_path / "run").fit(
            grid, on_round=stop_after(9, error=Killed)
        )
    for node in grid.nodes:
        grid.forget(node)
    result = strategies.FAPS(n_components=2, mask=mask, checkpoint=tmp_path / "run").fit(grid)
    assert is_pca_of(result, THREE)
    assert result.status.ok
    assert ("began again" in result.status.words) != folder
    assert folder or "memory-dir" in result.status.words


def taken_apart(name):
    """Rows that the algorithm is for: with directions of each client, with outlying entries, or with both."""
    rng = np.random.default_rng(6)
    U, shards = np.linalg.qr(rng.standard_normal((12, 2)))[0], []
    for _ in range(3):
        V = np.linalg.qr(np.column_stack([U, rng.standard_normal(12)]))[0][:, 2:]
        X = rng.standard_normal((40, 2)) * [4.0, 3.0] @ U.T + 0.1 * rng.standard_normal((40, 12))
        if "per_pca" in name or "triple" in name:
            X += 2.0 * rng.standard_normal((40, 1)) @ V.T
        if "per_pca" not in name:
            X += (rng.random(X.shape) < 0.05) * rng.choice([-20.0, 20.0], X.shape)
        shards.append(X)
    return shards


def resumed_without_memory(name, stop, path, *, mask):
    """The results of a whole run, and of one whose server is killed and whose nodes lose what they keep."""
    shards = taken_apart(name)

    def fit(grid, **given):
        return PCAStrategy(registry.make(name), n_components=2, mask=mask, checkpoint=path).fit(grid, **given)

    whole = fit(grid_of(shards))
    grid = grid_of(shards)
    at = stop if stop > 0 else len(whole.history) + stop
    with pytest.raises(Killed):
        fit(grid, on_round=stop_after(at, error=Killed))
    for node in grid.nodes:
        grid.forget(node)
    return whole, fit(grid)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("name", "same", "said"),
    [
        ("exact_per_pca", True, False),
        ("exact_per_pca(local_components='auto')", True, False),
        ("exact_per_pca(local_steps=1)", False, True),
        ("per_pca(eta=0.02, max_rounds=60)", False, True),
        ("triple_pca", False, True),
        ("dcf_pca", False, True),
        ("consensus_rpca", False, True),
    ],
)
def test_a_resumed_run_says_if_its_result_depends_on_what_nodes_have_lost(name, same, said, mask, tmp_path):
    whole, found = resumed_without_memory(name, -6, tmp_path / "run", mask=mask)
    assert whole.status.outcome is not None
    assert np.array_equal(whole.components_, found.components_) == same
    assert sine(whole.components_, found.components_) < 0.05
    assert ("differ from an undisturbed run, because clients had lost their state" in found.status.words) == said
    assert ("memory-dir" in found.status.words) == said
    assert found.status.ok == (whole.status.ok and not said)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_a_run_resumed_for_its_last_message_says_that_rows_are_taken_apart_anew(mask, tmp_path):
    whole, found = resumed_without_memory("triple_pca", -2 if mask else -1, tmp_path / "run", mask=mask)
    assert sine(whole.components_, found.components_) < 1e-12
    assert not np.array_equal(whole.removed_share_, found.removed_share_)
    assert found.status.ok
    assert "clients had lost their state before the last message" in found.status.words


def message_to(node):
    return Message(RecordDict(), node, "query", ttl=60.0, group_id="0")


class Killed(BaseException):
    """The server's process ends."""


def killing(grid, how):
    """Kill the server once in every round: after it, or when some or all of the nodes have answered its message."""
    numbers = set()

    def die(answered):
        n = number(grid.sent[-1])
        if n not in numbers and sum(number(m) == n for m in grid.sent) == answered:
            numbers.add(n)
            raise Killed

    if how == "some":
        grid.on_push = lambda message: die(2)
    if how == "all":
        grid.on_pull = lambda: die(3)
    return (lambda session: die(3)) if how == "after" else None


KILLINGS = [("state", "after"), ("files", "some"), ("state", "all"), ("state", "some")]


@functools.cache
def never_killed(name):
    algorithm = registry.make(name, **SHORT.get(name, {}))
    return algorithm, simulate(algorithm, THREE, n_components=2, scale="std", reconstruction_error=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "memory", "how"),
    dict.fromkeys(
        [
            *((name, *way) for name, way in paired(registry.ALGORITHMS, KILLINGS)),
            *((name, "files", "some") for name in SHORT),  # nodes that keep their memory in files
        ]
    ),
)
def test_a_server_killed_in_every_round_goes_on_bit_for_bit(name, memory, how, tmp_path):
    algorithm, reference = never_killed(name)
    grid = grid_of(THREE, **({"memory_dir": tmp_path / "nodes"} if memory == "files" else {}))
    on_round, path, lives = killing(grid, how), tmp_path / "run", 0
    while True:
        lives += 1
        try:
            new = PCAStrategy(algorithm, n_components=2, scale="std", reconstruction_error=True, checkpoint=path)
            result = new.fit(grid, on_round=on_round)
            break
        except Killed:
            if memory == "files":
                for node in grid.nodes:
                    grid.forget(node)
    assert lives == len(reference.history) + 1
    assert np.array_equal(result.components_, reference.components_)
    assert np.array_equal(result.explained_variance_, reference.explained_variance_)
    assert result.mse_ == reference.mse_
    assert [r.number for r in result.history] == [r.number for r in reference.history]
    assert not path.exists()


@pytest.mark.slow
def test_a_resumed_run_samples_the_same_nodes(tmp_path):
    shards = unequal(8)
    grid = grid_of(shards)
    seen = set()

    def on_round(session):
        if len(session.history) not in seen:
            seen.add(len(session.history))
            raise Killed

    while True:
        try:
            new = strategies.SSI(n_components=2, fraction=0.5, max_rounds=6, checkpoint=tmp_path / "run")
            result = new.fit(grid, on_round=on_round)
            break
        except Killed:
            pass
    reference = simulate("ssi", shards, n_components=2, fraction=0.5, max_rounds=6)
    assert np.array_equal(result.components_, reference.components_)


def test_a_checkpoint_of_another_run_or_none_at_all_is_refused(tmp_path):
    path = tmp_path / "run"

    def die(session):
        raise Killed

    with pytest.raises(Killed):
        strategies.SSI(n_components=2, checkpoint=path).fit(grid_of(SHARDS), on_round=die)
    with pytest.raises(FlowerPCAError, match=r"The checkpoint belongs to another run, with .*n_components=2"):
        strategies.SSI(n_components=3, checkpoint=path).fit(grid_of(SHARDS))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="is not a server checkpoint of flower_pca"):
        strategies.SSI(n_components=2, checkpoint=path).fit(grid_of(SHARDS))


def spoiled_reply(rng):
    """A change of a reply that leaves no doubt that it is wrong, or that leaves its meaning alone."""

    def saved(save, a):
        save(file := io.BytesIO(), a)
        return file.getvalue()

    def raw(data):
        def tamper(message, reply):
            record = reply.content["arrays"]
            key = list(record)[int(rng.integers(len(record)))]
            record[key] = Array(dtype="float64", shape=(1,), stype="numpy.ndarray", data=data(record[key].data))
            return reply

        return tamper

    def metric(name, *values):
        def tamper(message, reply):
            metrics_of(reply)[name] = values[int(rng.integers(len(values)))]
            return reply

        return tamper

    def record(change):
        def tamper(message, reply):
            names = list(reply.content)
            change(reply.content, names[int(rng.integers(len(names)))])
            return reply

        return tamper

    def dtype(name):
        return lambda m, r: with_arrays(
            r, {n: a.astype(name) if a.dtype.kind == "f" else a for n, a in arrays_in(r).items()}
        )

    return [
        raw(lambda b: b[: int(rng.integers(len(b)))]),
        raw(lambda b: rng.bytes(int(rng.integers(200)))),
        raw(lambda b: bytes([b[0] ^ 1]) + b[1:]),
        raw(lambda b: b[:10] + rng.bytes(20) + b[30:]),
        raw(lambda b: saved(np.savez, np.eye(2))),
        raw(lambda b: saved(np.save, np.array([{}], dtype=object))),
        metric("names", "", "x", "a,a", 3, [1.0], "mean,mean", ",,,", "S,", "\x00"),
        metric("number", -1, 10**9, -(2**63), "0", 0.0, b"", []),
        metric("key", -5, 2**62, 0, "a", 1.5, []),
        metric("refusal", "No.", "", 3, "a\nb"),
        record(lambda content, name: content.pop(name)),
        record(lambda content, name: content.update({name: ConfigRecord()})),
        record(lambda content, name: content.update({name: MetricRecord({"num_examples": [1.5]})})),
        record(lambda content, name: content.update({f"x{name}": content.pop(name)})),
        record(lambda content, name: content.update({"more": ArrayRecord([np.eye(3)])})),
        *[flower_error(reason) for reason in ("", "a\n\nb", "\t", None)],
        *[dtype(name) for name in ("longdouble", ">f8", "complex64", "M8[s]", "S", "U")],
        *[tamper for tamper, _ in BAD_REPLIES.values()],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(spoiled_reply(None))))
def test_fuzzed_replies_give_no_wrong_answer_and_no_crash(seed):
    rng = np.random.default_rng(seed)
    changes = spoiled_reply(rng)
    name, change = ("krylov", "ssi")[seed % 2], changes[seed]
    grid, position = grid_of(SHARDS, seed=seed), int(rng.integers(5))
    first = int(rng.integers(2))
    at(grid, range(first, first + int(rng.integers(1, 3))), change, position)
    try:
        result = strategy(name).fit(grid)
    except FlowerPCAError:
        return
    others = [shard for i, shard in enumerate(SHARDS) if i != position]
    assert is_pca_of(result, SHARDS) or is_pca_of(result, others)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        # The message expired at the SuperLink.
        (3, "no answer within 0.5 s: the process of its ClientApp may have died"),
        (4, "no answer within 0.5 s: the process of its ClientApp may have died"),
        (5, "error 5: the reason"),
        (8, "the process of its ClientApp has died, possibly because it lacked memory"),
    ],
)
@pytest.mark.slow
def test_a_node_whose_process_dies_at_every_message_is_asked_twice(code, words):
    """Flower answers in its place, late: each such answer has cost the whole timeout."""
    grid = grid_of(SHARDS)
    node = at(grid, range(1, 999), flower_error("the reason", code))
    result = strategy("ssi", round_timeout=0.5).fit(grid)
    assert failed(result, node) == [words, words]
    assert is_pca_of(result, OTHERS) or is_pca_of(result, SHARDS)


MUTE = "it has answered no message of this run; its log shows whether its processes start"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [lambda message, reply: None, flower_error("expired", 4)])
def test_a_node_that_never_began_is_named_as_one(fault):
    grid = grid_of(SHARDS)
    node = at(grid, range(99), fault)
    result = strategy("ssi", round_timeout=0.2).fit(grid)
    assert failed(result, node) == [f"no answer within 0.2 s: {MUTE}"] * 2


@pytest.mark.slow
def test_a_node_that_has_said_anything_has_begun():
    """Though it was but an error."""
    grid = grid_of(SHARDS)
    fail = flower_error()
    node = at(grid, range(99), lambda message, reply: None if number(message) else fail(message, reply))
    result = strategy("ssi", round_timeout=0.2).fit(grid)
    assert failed(result, node)[:2] == ["error 2: boom", "no answer within 0.2 s"]


@pytest.mark.slow
def test_a_run_that_goes_on_knows_who_had_begun(tmp_path):
    def interrupt(run):
        raise KeyboardInterrupt

    grid, checkpoint = grid_of(SHARDS), tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        strategy("ssi", checkpoint=checkpoint).fit(grid, on_round=interrupt)
    node = at(grid, range(99), lambda message, reply: None)
    result = strategy("ssi", checkpoint=checkpoint, round_timeout=0.2).fit(grid)
    assert set(failed(result, node)) == {"no answer within 0.2 s"}


@pytest.mark.slow
def test_a_node_that_was_left_out_for_silence_is_asked_again_once_it_has_been_away():
    grid, asked = grid_of(SHARDS), []
    node = at(grid, {1, 2}, lambda message, reply: None)

    def look():
        asked.append(grid.node(BAD) in {m.metadata.dst_node_id for m in grid.sent[-len(SHARDS) :]})
        gone = len(asked) == 4
        return [n for n in grid.nodes if not (gone and n == grid.node(BAD))]

    grid.get_node_ids = look
    result = strategy("ssi", round_timeout=0.3).fit(grid)
    assert len(failed(result, node)) == 2
    assert not asked[4]
    assert asked[-1]
    assert is_pca_of(result, SHARDS)


@pytest.mark.slow
def test_fewer_answers_than_min_nodes_are_not_taken_for_the_whole():
    """Nineteen of twenty fail at a message: the one that is left is not the answer."""
    grid = grid_of(SHARDS)
    grid.tamper = lambda message, reply: (
        reply
        if number(message) != 1 or message.metadata.dst_node_id == grid.node(0)
        else Message(Error(2, "out of disk"), reply_to=message)
    )
    result = strategy("ssi", min_nodes=4, node_timeout=0.3).fit(grid)
    assert is_pca_of(result, SHARDS)
    assert all(r.answered >= 4 for r in result.history if r.metrics)
    grid = grid_of(SHARDS)
    grid.tamper = lambda message, reply: (
        reply if message.metadata.dst_node_id == grid.node(0) else Message(Error(2, "out of disk"), reply_to=message)
    )
    with pytest.raises(
        NotEnoughNodes, match=r"needs 4 usable answers, but got 1 in 3 .*the first because: error 2: out of disk"
    ):
        strategy("ssi", min_nodes=4, node_timeout=0.3).fit(grid)


@pytest.fixture
def set_least(lines):
    """Sets how many seconds a call to the SuperLink has at least: with fake grids usually more than it can take."""
    with pytest.MonkeyPatch.context() as patch:
        yield functools.partial(patch.setattr, exchanging, "_LEAST")


@pytest.mark.slow
def test_a_superlink_that_does_not_answer_is_named_and_waited_for_no_longer_than_a_round(set_least):
    """Flower tries to reach it for minutes; what has come by then is as good as ever."""
    set_least(0.05)
    silent, back = threading.Event(), threading.Event()
    grid = grid_of(SHARDS)

    def on_pull():
        if len(grid.sent) > 2 * len(SHARDS) and not silent.is_set():
            silent.set()
            back.wait()

    grid.on_pull = on_pull
    strategy_ = strategy("faps", min_nodes=2, round_timeout=1.0)  # more than another call takes on a busy machine
    try:
        result = strategy_.fit(grid, on_round=lambda run: back.set() if silent.is_set() else None)
    finally:
        back.set()
    reasons = {why for record in result.history for why in record.failures.values()}
    assert reasons == {"no answer within 1 s, because the SuperLink did not answer"}
    assert is_pca_of(result, SHARDS)


class Waits(SimpleQueue):
    """A queue that says how long it was waited for in vain."""

    vain: ClassVar[list[float]] = []

    def get(self, block=True, timeout=None):
        try:
            return super().get(block, timeout)
        except Empty:
            self.vain.append(timeout)
            raise


@pytest.mark.slow
@pytest.mark.parametrize("window", [2, 32])
@pytest.mark.parametrize("hangs", ["on_push", "on_pull"])
def test_a_superlink_that_hangs_costs_a_message_one_timeout_however_many_nodes_are_to_be_asked(
    hangs, window, monkeypatch, set_least
):
    """Whether it hangs with the first of their messages or with the first look for answers."""
    monkeypatch.setattr(exchanging, "SimpleQueue", Waits)
    set_least(0.05)
    monkeypatch.setattr(Waits, "vain", [])
    back, grid = threading.Event(), grid_of(SHARDS)
    setattr(grid, hangs, lambda *message: back.wait())
    try:
        came = dict(exchange(grid, sorted(grid.nodes), lambda node: message_to(node), timeout=0.4, window=window))
    finally:
        back.set()
    assert came == dict.fromkeys(grid.nodes, "no answer within 0.4 s, because the SuperLink did not answer")
    assert 0.0 < sum(Waits.vain) <= 0.4 + 2 * 0.05


def test_a_message_that_the_superlink_took_late_is_answered(monkeypatch, set_least):
    """A call that has not returned in time goes on: what it brings counts as long as its node has time left."""
    set_least(0.0)
    seconds = itertools.count(0.0, 2.0)  # The deadline of the first node passes before the second is asked.
    monkeypatch.setattr(exchanging, "time", types.SimpleNamespace(monotonic=lambda: next(seconds), sleep=time.sleep))
    grid = grid_of(SHARDS)
    came = dict(exchange(grid, sorted(grid.nodes), lambda node: message_to(node), timeout=60.0))
    assert not any(isinstance(reply, str) for reply in came.values())


def test_a_node_has_its_time_until_a_look_that_begins_after_it(monkeypatch):
    """Flower's own word that it has run out is there for the next look, where one spans the moment."""
    now = 0.0

    def pull():
        nonlocal now
        now += 40.0

    monkeypatch.setattr(exchanging, "time", types.SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    grid = grid_of(SHARDS[:1])
    grid.on_pull, grid.delay = pull, lambda message: 1
    came = dict(exchange(grid, sorted(grid.nodes), lambda node: message_to(node), timeout=30.0))
    assert not any(isinstance(reply, str) for reply in came.values())


@pytest.mark.slow
def test_a_superlink_that_lists_no_nodes_is_named_and_waited_for_no_longer_than_for_nodes(monkeypatch, set_least):
    set_least(0.05)
    back, grid = threading.Event(), grid_of(SHARDS)
    listed = grid.get_node_ids
    monkeypatch.setattr(grid, "get_node_ids", lambda: listed() if len(grid.sent) < 6 else back.wait())
    words = r"^The SuperLink did not list the connected nodes within 0\.\d+ s\."
    try:
        with pytest.raises(NotEnoughNodes, match=words):
            strategy("ssi", node_timeout=0.2).fit(grid)
    finally:
        back.set()
