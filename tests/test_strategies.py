"""Test named strategies as Flower's strategies: their signatures, their logs, and simulate()'s bits."""

import gc
import inspect
import re
import typing
import weakref
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from builders import pooled, unequal
from cases import every, slow_if
from fake_grid import FakeGrid, config_of, grid_of, is_pca_of
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result, Strategy
from questions import NAMED, SHORT
from results import assert_same_bits

from flower_pca import clients, registry, simulate, strategies, wire
from flower_pca.base import large, linalg
from flower_pca.core import tally
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.strategies import PCAStrategy, TrackingStrategy, arrays_of, memory, pca
from flower_pca.strategies.exchange import exchange
from flower_pca.strategies.nodes import Nodes

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("lines")

CLIENTS = {c.algorithms[0]: c for c in (getattr(clients, n) for n in clients.__all__) if getattr(c, "algorithms", ())}
SHARDS = unequal()
WINDOW = 8  # the number of messages in flight, if a test sets it
each = pytest.mark.parametrize("name", registry.ALGORITHMS)
# algorithms with different ways to merge answers
WAYS = ["krylov", "median_pca", "uda", "consensus_rpca", "exact_per_pca"]


def test_each_algorithm_has_a_strategy_and_a_client():
    assert set(NAMED) == set(CLIENTS) == {*registry.ALGORITHMS, *registry.TRACKERS}


@each
def test_signature_and_docstring(name):
    cls = NAMED[name]
    assert issubclass(cls, Strategy)
    assert issubclass(cls, PCAStrategy)
    assert cls.__doc__
    shown = inspect.signature(cls).parameters
    own = {f.name: f.default for f in fields(registry.ALGORITHMS[name])}
    common = dict(inspect.signature(PCAStrategy).parameters)
    common.pop("algorithm")
    common = {n: p for n, p in common.items() if n not in own}  # some have an init of their own kind
    assert set(shown) == set(own) | set(common)
    assert all(shown[n].default == default for n, default in own.items())
    assert all(shown[n].default == p.default for n, p in common.items())
    assert all(p.kind is p.KEYWORD_ONLY for p in shown.values())


@each
def test_parameters_have_names(name):
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        NAMED[name](5)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_client_fn_with_a_named_client_gives_the_same(name):
    given = SHORT.get(name, {})
    app = ClientApp(client_fn=lambda c: CLIENTS[name](SHARDS[c.node_config["partition-id"]], context=c).to_client())
    result = NAMED[name](n_components=2, reconstruction_error=True, **given).fit(FakeGrid(app, 5))
    settings = {"n_components": 2, "reconstruction_error": True, "answers": "fixed"}
    assert_same_bits(result, simulate(registry.make(name, **given), SHARDS, **settings))


def test_nodes_without_a_partition_id_give_the_same_to_rounding():
    app = clients.client_app(lambda c: SHARDS[c.node_config["which"]])
    result = strategies.Krylov(n_components=3).fit(FakeGrid(app, 5, partitions=False))
    assert is_pca_of(result, SHARDS)


@pytest.mark.parametrize("name", ["krylov", "uda"])
@pytest.mark.slow
def test_more_nodes_than_the_window(name, monkeypatch):
    """Also that the server never holds more replies than the window, but those of the opening, which bring the keys."""
    monkeypatch.setitem(exchange.__kwdefaults__, "window", WINDOW)
    shards = unequal(WINDOW + 9)
    grid, read, peaks = grid_of(shards), [], {}
    original = Nodes.read_answer

    def watch():
        stage = config_of(grid.sent[-1])["stage"]
        held = len(grid.held) + sum(answer() is not None for answer in read)
        peaks[stage] = max(peaks.get(stage, 0), held)

    def keep(self, *given, **release):
        answer = original(self, *given, **release)
        read.append(weakref.ref(answer))
        watch()
        return answer

    monkeypatch.setattr(Nodes, "read_answer", keep)
    grid.on_push = lambda message: watch()
    grid.delay = lambda message: 40 * (message.metadata.dst_node_id == grid.node(0))  # The first client answers last.
    given = {"local_steps": 1, "max_rounds": 4} if name == "local_power" else SHORT.get(name, {})
    gc.collect()
    result = NAMED[name](n_components=2, **given).fit(grid)
    assert_same_bits(result, simulate(registry.make(name, **given), shards, n_components=2))
    assert peaks["opening"] > WINDOW
    if name == "uda":  # The server of uda needs all answers together.
        assert peaks["uda"] > WINDOW
    else:
        assert WINDOW - 2 <= peaks[name] <= WINDOW + 2


def test_the_server_holds_no_block_that_is_sent_and_no_reply_that_is_read(monkeypatch):
    """Large blocks fill its memory: the bytes of a request, of a reply, and an answer that has been merged."""
    grid, requests, read, held, products, left = grid_of(SHARDS), [], [], [], [], set()
    original, merge = Nodes.read_answer, tally.AnswerCollector._process_reply

    def keep(self, *given, **release):
        answer = original(self, *given, **release)
        read.extend(map(weakref.ref, answer.arrays.values()))
        products.extend(weakref.ref(answer.arrays[name]) for name in ("Y",) if name in answer.arrays)
        return answer

    def alive(references, *but):
        """How many of these objects are in memory, but for some."""
        found = [reference() for reference in references]
        return sum(each is not None and not any(each is other for other in but) for each in found)

    def look(self, reply, position):
        if self._sent.stage == "ssi":
            held.append((alive(requests), len(grid.held), alive(read, *reply.arrays.values())))
        merge(self, reply, position)

    def pull():
        left.add(alive(products))
        if grid.sent and config_of(grid.sent[-1])["stage"] == "ssi" and len(grid.sent) % len(SHARDS) == 0:
            requests.extend(weakref.ref(message.content) for message in grid.sent)
            grid.sent.clear()

    monkeypatch.setattr(Nodes, "read_answer", keep)
    monkeypatch.setattr(tally.AnswerCollector, "_process_reply", look)
    monkeypatch.setattr(large, "BYTES", 0)
    grid.on_pull = pull
    grid.delay = lambda message: 20 * [grid.node(i) for i in range(len(SHARDS))].index(message.metadata.dst_node_id)
    gc.collect()
    strategies.SSI(n_components=2, max_rounds=3).fit(grid)
    assert len(held) >= 2 * len(SHARDS)
    assert set(held) == {(0, 0, 0)}
    assert len(products) >= 2 * len(SHARDS)
    assert left == {0}  # While the next reply is fetched, no answer that has been merged is in memory.


def test_replies_to_large_messages_are_fetched_one_at_a_time(monkeypatch):
    """So the replies of other nodes do not fill the server's memory while one is merged."""
    grid, held, merge = grid_of(SHARDS), [], tally.AnswerCollector._process_reply

    def look(self, reply, position):
        if self._sent.stage == "ssi":
            held.append(len(grid._ready))
        merge(self, reply, position)

    monkeypatch.setattr(tally.AnswerCollector, "_process_reply", look)
    monkeypatch.setattr(large, "BYTES", 0)
    result = strategies.SSI(n_components=2, max_rounds=3).fit(grid)
    assert held == [4, 3, 2, 1, 0] * (len(held) // 5)
    assert_same_bits(result, strategies.SSI(n_components=2, max_rounds=3).fit(grid_of(SHARDS)))


def test_a_silent_node_does_not_keep_replies_to_large_messages_from_being_fetched(monkeypatch):
    grid = grid_of(SHARDS)
    monkeypatch.setattr(large, "BYTES", 0)
    grid.delay = lambda message: 10**6 if message.metadata.dst_node_id == grid.node(0) else 0
    result = strategies.SSI(n_components=2, max_rounds=3, round_timeout=0.5).fit(grid)
    assert {r.answered for r in result.history if r.stage == "ssi"} == {4}


def test_no_block_of_an_earlier_message_stays_at_the_server(monkeypatch):
    """Neither the block of the message before, nor the one that was drawn for the opening."""
    grid, blocks, known = grid_of(SHARDS), [], []
    ask = Nodes.ask

    def look(self, message):
        gc.collect()
        known.append(sum(block() is not None for block in blocks))
        if message.stage == "ssi":
            blocks.append(weakref.ref(message))
            assert linalg._large_block.cache_info().currsize == 0
        return ask(self, message)

    monkeypatch.setattr(Nodes, "ask", look)
    monkeypatch.setattr(linalg, "_DRAWN", 1)
    strategies.SSI(n_components=2, max_rounds=5).fit(grid)
    assert len(blocks) >= 4
    assert set(known) == {0}


@pytest.mark.parametrize("kilobytes", [10, 10**9])
def test_the_memory_for_large_messages_is_said_once_before_the_first(kilobytes, lines, monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text(f"MemTotal: 7 kB\nMemAvailable: {kilobytes} kB\n")
    monkeypatch.setattr(large, "BYTES", 2)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    grid, known = grid_of(SHARDS), []
    grid.on_push = lambda message: known.append(sum("For messages to 5 sites" in line for line in lines))
    strategies.SSI(n_components=2, max_rounds=3).fit(grid)
    assert set(known) == {1}
    assert any("more than half of the 0 MB of free memory" in line for line in lines) == (kilobytes == 10)


@pytest.mark.slow
def test_a_node_that_only_fails_does_not_make_the_server_hold_more(monkeypatch):
    """It has never answered, and so has no key; the others' answers must not wait for it."""
    monkeypatch.setitem(exchange.__kwdefaults__, "window", WINDOW)
    shards, read, peak = unequal(WINDOW + 9), [], []
    grid, original = grid_of(shards), Nodes.read_answer
    node = grid.node(5)

    def keep(self, *arguments, **release):
        answer = original(self, *arguments, **release)
        read.append(weakref.ref(answer))
        if config_of(grid.sent[-1])["stage"] == "ssi":
            peak.append(sum(answer() is not None for answer in read))
        return answer

    monkeypatch.setattr(Nodes, "read_answer", keep)
    failure = Error(code=2, reason="boom")
    grid.tamper = lambda m, r: Message(failure, reply_to=m) if m.metadata.dst_node_id == node else r
    strategies.SSI(n_components=2, max_rounds=4).fit(grid)
    assert 0 < max(peak) <= WINDOW + 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["krylov", "ssi", "dr_svd"])
def test_start_ends_on_convergence(name):
    strategy = NAMED[name](n_components=2, reconstruction_error=True)
    reference = simulate(name, SHARDS, n_components=2, reconstruction_error=True)
    seen = []
    grid = grid_of(SHARDS)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(),
        num_rounds=1000 if name != "dr_svd" else 0,
        train_config=ConfigRecord({"lr": 0.5}),
        evaluate_config=ConfigRecord({"batch": 3}),
        evaluate_fn=lambda number, arrays: seen.append((number, arrays)) or MetricRecord({"twice": 2 * number}),
    )
    assert isinstance(result, Result)
    arrays = {n: a.numpy() for n, a in result.arrays.items()}
    assert np.array_equal(arrays["components"], reference.components_)
    assert np.array_equal(arrays["explained_variance"], reference.explained_variance_)
    assert np.array_equal(arrays["mean"], reference.mean_)
    assert max(grid.counts.values()) == len(reference.history)
    numbers = [number for number, _ in seen]
    assert numbers == list(range(1, len(reference.history) + 1))
    assert seen[-1][1]["components"].numpy().shape == (2, 10)
    assert {n: m["twice"] for n, m in result.evaluate_metrics_serverapp.items()} == {n: 2 * n for n in numbers}
    errors = {r.number + 1: r.metrics["error"] for r in reference.history.of(name) if "error" in r.metrics}
    assert {n: m["error"] for n, m in result.train_metrics_clientapp.items() if "error" in m} == errors
    assert all("in_order" in m for m in result.train_metrics_clientapp.values())
    assert [m["mse"] for m in result.evaluate_metrics_clientapp.values()] == [reference.mse_]
    assert all(config_of(m)["lr"] == 0.5 for m in grid.sent if m.metadata.message_type == "train")
    assert all(config_of(m)["batch"] == 3 for m in grid.sent if m.metadata.message_type == "evaluate")


@pytest.mark.slow
def test_evaluate_fn_gets_components_with_the_signs_of_the_result():
    seen = []
    result = strategies.SSI(n_components=3).start(
        grid_of(SHARDS), evaluate_fn=lambda n, a: seen.append(a["components"])
    )
    assert np.allclose(seen[-1].numpy(), result.arrays["components"].numpy(), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_num_rounds_caps_this_start_only():
    strategy = strategies.SSI(n_components=2)
    capped = strategy.start(grid := grid_of(SHARDS), num_rounds=4)
    reference = simulate("ssi", SHARDS, n_components=2, max_rounds=3)  # after the opening, which is round 1
    assert np.array_equal(capped.arrays["components"].numpy(), reference.components_)
    assert max(grid.counts.values()) == len(reference.history)
    assert_same_bits(strategy.fit(grid_of(SHARDS)), simulate("ssi", SHARDS, n_components=2))


@pytest.mark.slow
def test_the_configuration_of_a_start_does_not_outlive_it():
    strategy = strategies.Krylov(n_components=2)
    strategy.start(grid_of(SHARDS), train_config=ConfigRecord({"lr": 0.5}))
    strategy.fit(grid := grid_of(SHARDS))
    assert all("lr" not in config_of(m) for m in grid.sent)


@pytest.mark.slow
def test_a_strategy_fits_again():
    strategy = strategies.FAPS(n_components=2, **SHORT["faps"])
    grid = grid_of(SHARDS)
    assert_same_bits(strategy.fit(grid), strategy.fit(grid))


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_flowers_own_loop_gives_the_same_components(name):
    given = SHORT.get(name, {})
    reference = simulate(registry.make(name, **given), SHARDS, n_components=2, reconstruction_error=True)
    strategy, grid = NAMED[name](n_components=2, reconstruction_error=True, **given), grid_of(SHARDS)
    told = {}
    result = Strategy.start(
        strategy,
        grid,
        ArrayRecord(),
        num_rounds=len(reference.history) + 2,  # Additional rounds ask nothing.
        train_config=ConfigRecord({"lr": 0.5}),
        evaluate_fn=lambda number, arrays: told.update({number: len(arrays)}),
    )
    assert max(grid.counts.values()) == len(reference.history)
    components = result.arrays["components"].numpy()
    assert np.linalg.norm(components.T @ components - reference.components_.T @ reference.components_, 2) < 1e-12
    assert np.allclose(np.abs(np.sum(components * reference.components_, axis=1)), 1.0, rtol=0, atol=1e-12)
    assert [m["mse"] for m in result.evaluate_metrics_clientapp.values()] == [reference.mse_]
    assert len(told) == len(reference.history) + 3
    assert all(config_of(m)["lr"] == 0.5 for m in grid.sent if m.metadata.message_type == "train")


@pytest.mark.slow
@every("name", [name for name in registry.ALGORITHMS if registry.TABLE[name].closing is RayleighRitz])
def test_flowers_own_loop_stopped_early_says_whether_components_are_in_order(name):
    strategy = NAMED[name](n_components=3, **SHORT.get(name, {}))
    result = Strategy.start(strategy, grid_of(SHARDS), ArrayRecord(), num_rounds=2)
    ritz = np.cov(np.vstack(SHARDS) @ result.arrays["components"].numpy().T, rowvar=False)
    values = np.diag(ritz)
    ordered = np.abs(ritz - np.diag(values)).max() < 1e-9 * values[0] and np.all(np.diff(values) <= 0)
    assert [m["in_order"] for m in result.train_metrics_clientapp.values()][-1] <= ordered


def test_flowers_own_loop_gives_the_arrays_of_the_result():
    reference = simulate("krylov", SHARDS, n_components=3)
    result = Strategy.start(strategies.Krylov(n_components=3), grid_of(SHARDS), ArrayRecord(), num_rounds=9)
    assert np.allclose(result.arrays["components"].numpy(), reference.components_, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_an_action_beside_the_users_own_functions():
    app, trained = ClientApp(), []

    @app.train()
    def train(message, context):
        trained.append(context.node_id)
        return Message(RecordDict({"arrays": ArrayRecord([np.ones(2)])}), reply_to=message)

    clients.register(app, lambda c: SHARDS[c.node_config["partition-id"]], action="pca")
    grid = FakeGrid(app, 5)
    strategy = strategies.Krylov(n_components=2, reconstruction_error=True, action="pca")
    assert_same_bits(
        strategy.fit(grid), simulate("krylov", SHARDS, n_components=2, reconstruction_error=True, answers="fixed")
    )
    assert not trained
    assert {m.metadata.message_type for m in grid.sent} == {"train.pca", "evaluate.pca"}
    list(grid.send_and_receive([Message(RecordDict(), n, "train") for n in grid.nodes]))
    assert sorted(trained) == sorted(grid.nodes)
    asked = [Message(RecordDict(), n, "query.pca") for n in grid.nodes]
    answers = [dict(reply.content["getpropertiesres.properties"]) for reply in grid.send_and_receive(asked)]
    served = ",".join(sorted(name for name, algorithm in registry.ALGORITHMS.items() if not algorithm.by_row))
    assert all(a == {"n_features": 10, "algorithms": served, **wire.SPOKEN} for a in answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_if(["ssi", "local_power", "faps"], "local_power", "faps"))
def test_a_fraction_samples_nodes_by_the_seed(name):
    shards = unequal(8)

    def run(seed, grid_seed):
        grid = grid_of(shards, seed=grid_seed)
        strategy = NAMED[name](n_components=2, fraction=0.5, seed=seed, max_rounds=6)
        result = strategy.fit(grid)
        asked = {}
        for m in grid.sent:
            if config_of(m)["stage"] == name:
                partition = grid.nodes[m.metadata.dst_node_id].node_config["partition-id"]
                asked.setdefault(config_of(m)["number"], set()).add(partition)
        return result, list(asked.values())

    (first, asked), (again, likewise), (_, others) = run(0, 0), run(0, 1), run(5, 0)
    assert all(len(a) == 4 for a in asked)
    assert len(set().union(*asked)) > 4
    assert asked == likewise != others
    assert_same_bits(first, again)
    reference = simulate(name, shards, n_components=2, fraction=0.5, max_rounds=6)
    assert_same_bits(first, reference)


def test_what_is_logged(lines):
    result = strategies.Krylov(n_components=2, reconstruction_error=True).fit(grid_of(SHARDS))
    rounds = [line for line in lines if re.match("\t└──> (opening|krylov|evaluate): ", line)]
    assert rounds == [f"\t└──> {r.stage}: {r.words}" for r in result.history]
    assert rounds[1].startswith("\t└──> krylov: 5/5 clients, error ")
    assert all(re.search(r", [\d.]+ k?B down, [\d.]+ k?B up$", line) for line in rounds)
    assert lines[0] == "Starting Krylov strategy:"
    assert str(result.status) in lines
    assert [line.strip() for line in lines[-3:]] == [line.strip() for line in result.table().splitlines()]


def test_a_failure_is_logged_once_with_node_and_reason(lines):
    grid = grid_of(SHARDS)
    bad = grid.node(2)
    grid.on_push = lambda message: bad in grid.nodes and config_of(message)["number"] == 1 and grid.kill(bad)
    strategies.Krylov(n_components=2).fit(grid)
    failed = [line for line in lines if f"node {bad} " in line]
    assert failed == [f"\tnode {bad} (partition-id 2) was left out: error 5: Node Unavailable"]
    assert any(line.startswith("\t└──> krylov: 4/5 clients, 1 failed") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_messages_per_node(name):
    """A centered Krylov run takes one message per product; others at most two more than they have rounds."""
    grid = grid_of(SHARDS)
    result = NAMED[name](n_components=2, **SHORT.get(name, {})).fit(grid)
    counts = set(grid.counts.values())
    assert counts == {len(result.history)}
    if name == "krylov":
        assert counts == {result.rounds + 1}  # the opening makes the first product
        assert not result.history.of("ritz")
    else:
        asked = 1 if name in ("dcf_pca", "consensus_rpca") else 0  # One more message asks for the size of an entry.
        assert counts <= {result.rounds + 1 + asked, result.rounds + 2 + asked}


def test_arrays_of_a_result():
    result = simulate("krylov", SHARDS, n_components=2, scale="std")
    arrays = {n: a.numpy() for n, a in arrays_of(result).items()}
    assert sorted(arrays) == ["components", "explained_variance", "mean", "scale"]
    assert np.array_equal(arrays["scale"], np.vstack(SHARDS).std(axis=0)) or np.allclose(
        arrays["scale"], np.vstack(SHARDS).std(axis=0), rtol=1e-12
    )
    assert np.allclose(arrays["components"], result.components_, rtol=0, atol=0)
    assert np.allclose(arrays["mean"], pooled(SHARDS).mean, rtol=0, atol=1e-12)


@pytest.mark.slow
@every("name", [*registry.ALGORITHMS, *registry.TRACKERS])
def test_an_editor_finds_each_class_in_source(name):
    for cls in (NAMED[name], CLIENTS[name]):
        assert f"class {cls.__name__}(" in inspect.getsource(cls)
    assert inspect.getdoc(registry.STAGES[name]) in NAMED[name].__doc__


@every("name", [*registry.ALGORITHMS, *registry.TRACKERS])
def test_type_checkers_are_told_the_parameters_that_an_algorithm_has(name):
    cls = NAMED[name]
    (keywords,) = typing.get_args(typing.get_type_hints(cls.__init__)["keywords"])
    base = pca.StepKeywords if issubclass(cls, TrackingStrategy) else pca.PCAKeywords
    own = {
        field: kind.__forward_arg__
        for field, kind in keywords.__annotations__.items()
        if field not in base.__annotations__
    }
    wanted = {field.name: field.type.replace("apart.", "") for field in fields(registry.STAGES[name])}
    assert own.keys() == wanted.keys() - base.__annotations__.keys()  # some have an init of their own kind
    assert all(wanted[field] in (kind, "Any") for field, kind in own.items())


@pytest.mark.slow
def test_a_type_checker_takes_parameters_and_keywords_and_refuses_a_misspelt_one(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api", reason="it reads the types")
    calls = {
        "strategies.Krylov(n_components=3, oversample=4)": "",
        'strategies.Krylov(oversample="auto", mask=True, min_nodes=3).config': "",
        "strategies.STMiss(n_components=3, reuse=1, interval=2.0)": "",
        "strategies.Krylov(n_components=3, oversampel=4)": 'Unexpected keyword argument "oversampel" for "Krylov"',
        "strategies.UDA(max_rounds=3)": 'Unexpected keyword argument "max_rounds" for "UDA"',
        "strategies.STMiss(fraction=0.5)": 'Unexpected keyword argument "fraction" for "STMiss"',
        "strategies.LocalPower(align=3)": 'Argument "align" to "LocalPower" has incompatible type "int"',
    }
    snippet = tmp_path / "snippet.py"
    snippet.write_text("\n".join(["from flower_pca import strategies", *calls]), encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    told, trouble, _ = api.run([*settings, str(snippet)])
    assert trouble == ""
    lines = dict(re.findall(r"^.*snippet\.py:(\d+): error: (.*)$", told, re.MULTILINE))
    wrong = {str(number): words for number, words in enumerate(calls.values(), start=2) if words}
    assert lines.keys() == wrong.keys()
    assert all(lines[number].startswith(words) for number, words in wrong.items())
