"""Test what Flower's users expect of a Strategy: hooks, rounds, parameters, logs."""

from __future__ import annotations

import functools
import inspect
import re

import numpy as np
import pytest
from builders import pooled, unequal
from fake_grid import LIKE_SIMULATED, FakeGrid, config_of, grid_of, hosts_of, logged_by_flower
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Result,
    Strategy,
)
from flwr.supercore.constant import SUPERNODE_UVICORN_DEFAULT_PORT, UVICORN_DEFAULT_HOST
from pages import text

from flower_pca import ConfigError, NotEnoughNodes, registry, simulate, strategies
from flower_pca.clients import PCAClient, Rules, register
from flower_pca.strategies import Krylov, PCAStrategy, Standardize, arrays_of

pytestmark = pytest.mark.usefixtures("lines")
SHARDS = unequal()
FIXED = (DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyServerSideFixedClipping)
ADAPTIVE = (DifferentialPrivacyClientSideAdaptiveClipping, DifferentialPrivacyServerSideAdaptiveClipping)


def named_arrays(arrays):
    return {name: a.numpy() for name, a in arrays.items()}


def assert_arrays_equal(a, b):
    a, b = named_arrays(a), named_arrays(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


class Loud(Krylov):
    """Overrides all hooks, as Flower's users do."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.calls = []

    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = 1.0 / server_round
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.calls.append(("configure_train", server_round, len(messages), sorted(arrays)))
        return messages

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.calls.append(("aggregate_train", server_round, len(replies), sorted(arrays or ())))
        return arrays, metrics if metrics is None else MetricRecord({**metrics, "loud": 1})

    def configure_evaluate(self, server_round, arrays, config, grid):
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        self.calls.append(("configure_evaluate", server_round, len(messages), sorted(arrays)))
        return messages

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        self.calls.append(("aggregate_evaluate", server_round, len(replies), sorted(metrics or ())))
        return metrics


@pytest.mark.slow
def test_start_calls_the_hooks_of_a_subclass_as_flowers_own_loop_does():
    strategy, grid = Loud(n_components=2, reconstruction_error=True), grid_of(SHARDS)
    result = strategy.start(grid, evaluate_config=ConfigRecord({"batch": 3}))
    plain = Krylov(n_components=2, reconstruction_error=True).start(grid_of(SHARDS))
    assert_arrays_equal(result.arrays, plain.arrays)
    known, rounds = ["components", "mean"], max(plain.train_metrics_clientapp)
    assert rounds > 1
    trained = [
        [
            ("configure_train", n, 5, known if n > 1 else []),
            ("aggregate_train", n, 5, known),
            ("configure_evaluate", n, 0, known),
            ("aggregate_evaluate", n, 0, []),
        ]
        for n in range(1, rounds + 1)
    ]
    assert strategy.calls == [
        *(call for calls in trained for call in calls),
        ("configure_train", rounds + 1, 0, known),
        ("aggregate_train", rounds + 1, 0, []),
        ("configure_evaluate", rounds + 1, 5, known),
        ("aggregate_evaluate", rounds + 1, 5, ["mse"]),
    ]
    told = {(c["stage"], c.get("lr"), c.get("batch")) for c in map(config_of, grid.sent)}
    rates = {("krylov", 1.0 / n, None) for n in range(2, rounds + 1)}
    assert told == {("opening", 1.0, None), *rates, ("evaluate", None, 3)}
    assert {n: m["loud"] for n, m in result.train_metrics_clientapp.items()} == dict.fromkeys(range(1, rounds + 1), 1)
    assert result.train_metrics_clientapp[rounds]["error"] == plain.train_metrics_clientapp[rounds]["error"]
    assert [m["mse"] for m in result.evaluate_metrics_clientapp.values()] == [
        m["mse"] for m in plain.evaluate_metrics_clientapp.values()
    ]


@pytest.mark.slow
def test_flowers_own_loop_counts_rounds_as_start_does():
    strategy = Loud(n_components=2, reconstruction_error=True)
    result = Strategy.start(strategy, grid_of(SHARDS), ArrayRecord(), num_rounds=4)
    other = Loud(n_components=2, reconstruction_error=True)
    ours = other.start(grid_of(SHARDS))
    assert [call[:3] for call in strategy.calls[: len(other.calls)]] == [call[:3] for call in other.calls]
    assert result.train_metrics_clientapp.keys() == ours.train_metrics_clientapp.keys()
    assert result.evaluate_metrics_clientapp == ours.evaluate_metrics_clientapp
    mean = pooled(SHARDS).mean
    np.testing.assert_allclose(result.arrays["mean"].numpy(), mean, rtol=0, atol=1e-12)


def test_flowers_own_loop_begins_with_initial_arrays_and_may_run_once_more():
    earlier = arrays_of(simulate("ssi", SHARDS, n_components=2))
    strategy = strategies.SSI(n_components=2)
    cold = Strategy.start(strategy, grid_of(SHARDS), ArrayRecord(), num_rounds=40)
    warm = Strategy.start(strategies.SSI(n_components=2), grid_of(SHARDS), earlier, num_rounds=40)
    ours = strategies.SSI(n_components=2).start(grid_of(SHARDS), earlier)
    assert max(warm.train_metrics_clientapp) < max(cold.train_metrics_clientapp) / 2
    assert warm.train_metrics_clientapp == ours.train_metrics_clientapp
    again = Strategy.start(strategy, grid_of(SHARDS), ArrayRecord(), num_rounds=40)
    assert again.train_metrics_clientapp == cold.train_metrics_clientapp
    assert_arrays_equal(again.arrays, cold.arrays)
    with pytest.raises(ConfigError, match=r"^The run starts from components of 5 columns, but the rows have 10\."):
        Strategy.start(strategies.SSI(n_components=2), grid_of(SHARDS), SHORT_START, num_rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"mask": True}, {"scale": "std", "fraction": 1.0}])
def test_fit_calls_the_hooks_too_and_gives_the_same_bits(given, tmp_path):
    strategy = Loud(n_components=2, checkpoint=tmp_path / "run.ckpt", **given)
    result = strategy.fit(grid_of(SHARDS))
    plain = Krylov(n_components=2, **given).fit(grid_of(SHARDS))
    assert [name for name, *_ in strategy.calls].count("aggregate_train") == len(result.history)
    if not given.get("mask"):  # Fixed point under masks depends on keys, which are drawn again for each run.
        np.testing.assert_array_equal(result.components_, plain.components_)
    np.testing.assert_allclose(result.components_, plain.components_, rtol=0, atol=1e-7)
    assert not (tmp_path / "run.ckpt").exists()


@pytest.mark.slow
def test_a_strategy_of_steps_calls_hooks():
    from flower_pca import Stream

    class Heard(strategies.STMiss):
        heard = 0

        def aggregate_train(self, server_round, replies):
            self.heard += 1
            return super().aggregate_train(server_round, replies)

    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((40, 4)) * [3.0, 2.0, 0.1, 0.1] for _ in range(2)]
    grid = lambda: grid_of([Stream(X, batch=10) for X in rows])  # noqa: E731
    heard = Heard(n_components=2, steps=3)
    result = heard.fit(grid())
    assert heard.heard == len(result.history)
    plain = strategies.STMiss(n_components=2, steps=3).fit(grid())
    np.testing.assert_array_equal(result.components_, plain.components_)


def test_a_subclass_chooses_the_nodes_that_count():
    class Without(Krylov):
        refused = None

        def configure_train(self, server_round, arrays, config, grid):
            messages = super().configure_train(server_round, arrays, config, grid)
            return [m for m in messages if m.metadata.dst_node_id != self.refused]

    grid = grid_of(SHARDS)
    strategy = Without(n_components=2)
    strategy.refused = grid.node(1)
    result = strategy.fit(grid)
    others = [X for i, X in enumerate(SHARDS) if i != 1]
    assert result.n_samples_ == sum(map(len, others))
    np.testing.assert_allclose(result.components_, simulate("krylov", others, n_components=2).components_, atol=1e-10)
    assert grid.counts[strategy.refused] == 0
    why = {r.failures[str(strategy.refused)] for r in result.history if str(strategy.refused) in r.failures}
    assert why == {"the strategy's own configure_train did not ask it"}
    assert [out.why for out in result.left_out.values()] == list(why)


def test_a_subclass_drops_a_reply():
    class Dropping(Krylov):
        dropped = None

        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, [r for r in replies if r.metadata.src_node_id != self.dropped])

    grid = grid_of(SHARDS)
    strategy = Dropping(n_components=2)
    strategy.dropped = grid.node(0)
    assert strategy.fit(grid).n_samples_ == sum(map(len, SHARDS[1:]))


class Logging(Strategy):
    """A wrapper of the user's own, which hands everything on."""

    def __init__(self, strategy):
        self.strategy, self.calls = strategy, []

    def configure_train(self, *given):
        self.calls.append(given[0])
        return self.strategy.configure_train(*given)

    def aggregate_train(self, *given):
        return self.strategy.aggregate_train(*given)

    def configure_evaluate(self, *given):
        return self.strategy.configure_evaluate(*given)

    def aggregate_evaluate(self, *given):
        return self.strategy.aggregate_evaluate(*given)

    def summary(self):
        self.strategy.summary()


def sampling(kind, size):
    """The strategy with a hook that takes so many of the messages of each round at random, as Flower's users do."""

    def configure_train(self, server_round, arrays, config, grid):
        messages = list(kind.configure_train(self, server_round, arrays, config, grid))
        rng = np.random.default_rng(server_round)
        return [messages[i] for i in sorted(rng.permutation(len(messages))[:size])]

    return type("Sampling", (kind,), {"configure_train": configure_train})


# The rounds of these algorithms may go to some nodes only.
SAMPLING = ("ConsensusRPCA", "DCFPCA", "ExactPerPCA", "FAPS", "FedOAPM", "LocalPower", "PerPCA", "SSI", "TriplePCA")
TRACKERS = ("RobustTracking", "STMiss")


@pytest.mark.parametrize("name", sorted(set(registry.public_classes()) - set(TRACKERS)))
@pytest.mark.parametrize("size", [2, 4])
def test_nodes_that_a_hook_samples_out_are_asked_in_the_next_round_if_all_are_needed(name, size):
    kind, given = getattr(strategies, name), {"n_components": 2}
    if name in SAMPLING:
        given["max_rounds"] = 3
    result = sampling(kind, size)(**given).fit(grid_of(SHARDS))
    plain = kind(**given).fit(grid_of(SHARDS))
    assert (result.left_out, result.n_samples_) == ({}, sum(map(len, SHARDS)))
    np.testing.assert_allclose(result.mean_, plain.mean_, rtol=0, atol=1e-12)
    if name not in SAMPLING:
        assert result.angle_to(plain.components_) < 1e-7
        assert result.status.outcome == plain.status.outcome


@pytest.mark.parametrize("name", ["SSI", "LocalPower", "FAPS"])
def test_an_algorithm_of_many_rounds_goes_on_with_the_nodes_that_a_hook_samples(name):
    kind = getattr(strategies, name)
    grid = grid_of(SHARDS)
    result = sampling(kind, 3)(n_components=2, max_rounds=12).fit(grid)
    plain = kind(n_components=2, max_rounds=12, fraction=0.6).fit(grid_of(SHARDS))
    assert (result.left_out, result.n_samples_) == ({}, sum(map(len, SHARDS)))
    np.testing.assert_allclose(result.mean_, pooled(SHARDS).mean, rtol=0, atol=1e-12)
    assert result.angle_to(pooled(SHARDS).signed(2)) < 2 * plain.angle_to(pooled(SHARDS).signed(2))
    rounds = [record for record in result.history if record.stage == kind.name]
    assert {(record.asked, record.answered, len(record.failures)) for record in rounds} == {(3, 3, 0)}
    assert min(grid.counts.values()) > 2


def test_a_hook_that_leaves_a_node_out_of_all_rounds_but_the_opening_gives_the_pca_of_the_others():
    class Later(strategies.SSI):
        refused = None

        def configure_train(self, server_round, arrays, config, grid):
            messages = super().configure_train(server_round, arrays, config, grid)
            return [m for m in messages if not arrays or m.metadata.dst_node_id != self.refused]

    grid = grid_of(SHARDS)
    strategy = Later(n_components=2)
    strategy.refused = grid.node(1)
    result = strategy.fit(grid)
    others = [X for i, X in enumerate(SHARDS) if i != 1]
    assert result.n_samples_ == sum(map(len, others))
    assert result.angle_to(pooled(others).signed(2)) < 1e-5
    assert [out.why for out in result.left_out.values()] == ["the strategy's own configure_train did not ask it"]


class Sampled(Logging):
    """A wrapper of the user's own that samples: Flower's loop has no replies of the nodes that it leaves out."""

    def configure_train(self, server_round, *given):
        messages = list(super().configure_train(server_round, *given))
        rng = np.random.default_rng(server_round)
        return [messages[i] for i in sorted(rng.permutation(len(messages))[:3])]


@pytest.mark.parametrize("name", ["Krylov", "SSI"])
def test_nodes_that_a_wrapper_samples_out_are_not_taken_for_silent_ones(name):
    strategy = getattr(strategies, name)(n_components=2)
    result = Sampled(strategy).start(grid_of(SHARDS), ArrayRecord(), num_rounds=30)
    np.testing.assert_allclose(result.arrays["mean"].numpy(), pooled(SHARDS).mean, rtol=0, atol=1e-12)
    components = result.arrays["components"].numpy()
    assert np.linalg.svd(components @ pooled(SHARDS).signed(2).T, compute_uv=False)[-1] > 0.99


def test_a_hook_that_asks_nobody_is_named():
    class Idle(Krylov):
        def configure_train(self, server_round, arrays, config, grid):
            return []

    with pytest.raises(NotEnoughNodes, match=r"the first because: the strategy's own configure_train did not ask it"):
        Idle(n_components=2).start(grid_of(SHARDS))


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(
    ("hook", "returned", "why"),
    [
        ("configure_evaluate", [], "configure_evaluate did not request it"),
        ("aggregate_evaluate", None, "aggregate_evaluate did not pass the replies"),
        ("aggregate_evaluate", MetricRecord({"mine": 1.0}), "aggregate_evaluate did not pass the replies"),
    ],
)
def test_a_hook_that_skips_the_closing_evaluation_leaves_its_figure_out(hook, returned, why, mask):
    kind = type("Skips", (Krylov,), {hook: lambda self, *given: returned})
    grid = grid_of(SHARDS)
    strategy = kind(n_components=2, reconstruction_error=True, mask=mask)
    result = strategy.fit(grid)
    plain = Krylov(n_components=2).fit(grid_of(SHARDS))
    np.testing.assert_allclose(result.components_, plain.components_, rtol=0, atol=1e-7)
    assert result.mse_ is None
    assert [hint for hint in result.hints if hint.startswith(f"The reconstruction error was not measured: Skips.{why}")]
    assert "mse" not in {name for m in strategy.start(grid).evaluate_metrics_clientapp.values() for name in m}


@pytest.mark.parametrize("size", [2, 4])
def test_a_hook_that_samples_nodes_for_the_closing_evaluation_gets_the_figure_of_all(size):
    def configure_evaluate(self, *given):
        return list(Krylov.configure_evaluate(self, *given))[:size]

    kind = type("Few", (Krylov,), {"configure_evaluate": configure_evaluate})
    result = kind(n_components=2, reconstruction_error=True).fit(grid_of(SHARDS))
    plain = Krylov(n_components=2, reconstruction_error=True).fit(grid_of(SHARDS))
    assert result.mse_ == pytest.approx(plain.mse_, rel=1e-12)


def test_a_hook_that_leaves_a_node_out_of_the_closing_evaluation_gets_the_figure_of_the_others():
    class Without(Krylov):
        refused = None

        def configure_evaluate(self, *given):
            return [m for m in super().configure_evaluate(*given) if m.metadata.dst_node_id != self.refused]

    grid = grid_of(SHARDS)
    strategy = Without(n_components=2, reconstruction_error=True)
    strategy.refused = grid.node(1)
    result = strategy.fit(grid)
    others = np.vstack([X for i, X in enumerate(SHARDS) if i != 1]) - result.mean_
    rest = others - others @ result.components_.T @ result.components_
    assert result.mse_ == pytest.approx(np.sum(rest**2) / len(rest))
    assert result.n_samples_ == sum(map(len, SHARDS))
    outside = result.total_variance_ - result.explained_variance_.sum()
    assert result.left_out_variance_ == pytest.approx(outside)  # of all rows


def test_an_evaluation_skipped_in_the_midst_of_others_leaves_theirs():
    class Skips(Krylov):
        def configure_evaluate(self, server_round, arrays, config, grid):
            return []

    given = {"n_components": 2, "reconstruction_error": True, "standard_errors": True, "checkpoint": None}
    result = Skips(**given).fit(grid_of(SHARDS))
    plain = Krylov(**given).fit(grid_of(SHARDS))
    assert result.mse_ is None
    np.testing.assert_array_equal(result.components_, plain.components_)
    assert result.history.count == plain.history.count - 1


def test_an_evaluation_under_masks_is_one_for_hooks_configurations_and_figures():
    strategy, grid = Loud(n_components=2, reconstruction_error=True, mask=True), grid_of(SHARDS)
    given = {"train_config": ConfigRecord({"fast": 1}), "evaluate_config": ConfigRecord({"batch": 3})}
    result = strategy.start(grid, **given)
    last = max(result.train_metrics_clientapp)
    trained = {number for name, number, count, _ in strategy.calls if name == "configure_train" and count}
    evaluated = {number for name, number, count, _ in strategy.calls if name == "configure_evaluate" and count}
    assert (trained, evaluated) == (set(range(1, last + 1)), {last + 1, last + 2})
    told = {(c["server-round"] > last, c.get("fast"), c.get("batch")) for c in map(config_of, grid.sent)}
    assert told == {(False, 1, None), (True, None, 3)}
    plain = Krylov(n_components=2, reconstruction_error=True, mask=True).start(grid_of(SHARDS), **given)
    reference = simulate("krylov", SHARDS, n_components=2, reconstruction_error=True).mse_
    for found in (result, plain):
        assert list(found.evaluate_metrics_clientapp) == [last + 2]
        assert found.evaluate_metrics_clientapp[last + 2]["mse"] == pytest.approx(reference, rel=1e-9)
        assert not any("mse" in figures for figures in found.train_metrics_clientapp.values())


def test_messages_of_ones_own_beside_those_of_training_may_go_to_the_same_nodes():
    class Both(Krylov):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            own = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": server_round})})
            return messages + [Message(own, m.metadata.dst_node_id, "train.mine") for m in messages]

    app = ClientApp()
    register(app, lambda context: SHARDS[context.node_config["partition-id"]], action="default", **LIKE_SIMULATED)

    @app.train("mine")
    def mine(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"load": 0.5})}), reply_to=message)

    result = Both(n_components=2).fit(FakeGrid(app, len(SHARDS)))
    plain = Krylov(n_components=2).fit(grid_of(SHARDS))
    np.testing.assert_array_equal(result.components_, plain.components_)


def test_arrays_that_a_hook_returns_are_those_of_the_result():
    class Flipped(Krylov):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return ArrayRecord({"flipped": Array(-arrays["components"].numpy())}), metrics

    result = Flipped(n_components=2).start(grid_of(SHARDS))
    plain = Krylov(n_components=2).start(grid_of(SHARDS))
    np.testing.assert_allclose(result.arrays["flipped"].numpy(), -plain.arrays["components"].numpy(), atol=1e-12)


def test_a_hook_that_hands_nothing_on_is_named():
    class Deaf(Krylov):
        def aggregate_train(self, server_round, replies):
            return None, None

    with pytest.raises(ConfigError, match=r"^Deaf.aggregate_train did not pass on the replies.* Call super\(\)"):
        Deaf(n_components=2).fit(grid_of(SHARDS))


def test_a_hook_that_sends_messages_of_its_own_alone_is_named_before_any_is_sent():
    class Own(Krylov):
        def configure_train(self, server_round, arrays, config, grid):
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
            return [Message(content, node, "train") for node in grid.get_node_ids()]

    grid = grid_of(SHARDS)
    with pytest.raises(ConfigError, match=r"^Own.configure_train has returned only its own messages.* Call super\(\)"):
        Own(n_components=2).fit(grid)
    assert grid.sent == []


def test_an_evaluation_of_ones_own_goes_with_every_round():
    class Evaluated(Krylov):
        def configure_evaluate(self, server_round, arrays, config, grid):
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": server_round})})
            return [Message(content, node, "evaluate.mine") for node in grid.get_node_ids()]

        def aggregate_evaluate(self, server_round, replies):
            explained = [reply.content["metrics"]["explained"] for reply in replies]
            return MetricRecord({"explained": sum(explained), "nodes": len(explained)})

    app = ClientApp()
    register(app, lambda context: SHARDS[context.node_config["partition-id"]], action="default", **LIKE_SIMULATED)

    @app.evaluate("mine")
    def measure(message, context):
        Z, X = message.content["arrays"]["components"].numpy(), SHARDS[context.node_config["partition-id"]]
        explained = float(np.sum(((X - pooled(SHARDS).mean) @ Z.T) ** 2))
        return Message(RecordDict({"metrics": MetricRecord({"explained": explained})}), reply_to=message)

    result = Evaluated(n_components=2).start(FakeGrid(app, len(SHARDS)))
    last = result.evaluate_metrics_clientapp[max(result.evaluate_metrics_clientapp)]
    reference = pooled(SHARDS)
    np.testing.assert_allclose(last["explained"], reference.variances[:2].sum() * (reference.n - 1), rtol=1e-10)
    assert result.evaluate_metrics_clientapp.keys() == result.train_metrics_clientapp.keys()


def test_a_hook_may_be_a_generator_skip_a_round_and_hand_on_an_iterator():
    class Lazy(Krylov):
        def configure_train(self, server_round, arrays, config, grid):
            messages = super().configure_train(server_round, arrays, config, grid)
            if server_round != 2:
                yield from messages

        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, (reply for reply in replies if not reply.has_error()))

    result = Lazy(n_components=2).start(grid_of(SHARDS))
    plain = Krylov(n_components=2).start(grid_of(SHARDS))
    assert_arrays_equal(result.arrays, plain.arrays)
    assert max(result.train_metrics_clientapp) == max(plain.train_metrics_clientapp) + 1


def test_the_figures_of_rounds_are_the_same_with_and_without_hooks():
    class Hooked(Krylov):
        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies)

    hooked = Hooked(n_components=2, reconstruction_error=True).start(grid_of(SHARDS))
    plain = Krylov(n_components=2, reconstruction_error=True).start(grid_of(SHARDS))
    assert hooked.train_metrics_clientapp == plain.train_metrics_clientapp
    assert hooked.evaluate_metrics_clientapp == plain.evaluate_metrics_clientapp


@pytest.mark.parametrize("hook", ["configure_train", "aggregate_train", "configure_evaluate"])
def test_a_hook_that_forgets_to_return_is_named(hook):
    def forgetful(self, *given):
        getattr(Krylov, hook)(self, *given)

    kind = type("Forgetful", (Krylov,), {hook: forgetful})
    with pytest.raises(
        ConfigError, match=rf"^Forgetful\.{hook} has returned nothing\. At its end, return what super\(\)"
    ):
        kind(n_components=2).start(grid_of(SHARDS))


def test_a_hook_that_returns_one_thing_instead_of_two_is_named():
    class Single(Krylov):
        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies)[0]

    with pytest.raises(
        ConfigError, match=r"^Single\.aggregate_train has returned an ArrayRecord instead of two things"
    ):
        Single(n_components=2).start(grid_of(SHARDS))


@pytest.mark.parametrize(
    ("hook", "returned", "sentence"),
    [
        ("configure_train", lambda own: (own, 1), "configure_train has returned a list .* as a message"),
        ("configure_train", lambda own: 3, "configure_train has returned 3 as a message"),
        ("configure_evaluate", lambda own: [None], "configure_evaluate has returned None as a message"),
        (
            "aggregate_train",
            lambda own: ([np.eye(2)], own[1]),
            "aggregate_train has returned a list .* is not a record",
        ),
        ("aggregate_train", lambda own: (own[0], 0.5), r"aggregate_train has returned 0\.5, which is not a record"),
    ],
)
def test_a_hook_that_returns_things_of_another_kind_is_named(hook, returned, sentence):
    def odd(self, *given):
        return returned(getattr(Krylov, hook)(self, *given))

    with pytest.raises(ConfigError, match=rf"^Odd\.{sentence}"):
        type("Odd", (Krylov,), {hook: odd})(n_components=2).start(grid_of(SHARDS))


def test_functions_of_the_caller_are_looked_at_before_the_first_message():
    class Stop:
        def __call__(self, server_round, result, *, patience=3):
            return server_round == patience

    class Records(dict):
        def stop(self, number, result):
            return number == 3

    for stop in (Stop(), Records().stop, functools.partial(Stop(), patience=3), lambda *given: given[0] == 3):
        result = strategies.SSI(n_components=2).start(grid_of(SHARDS), should_stop=stop)
        assert max(result.train_metrics_clientapp) == 3
    for name, wrong in (
        ("should_stop", lambda server_round: True),
        ("should_stop", lambda *, server_round, result: True),
        ("evaluate_fn", lambda arrays: None),
    ):
        grid = grid_of(SHARDS)
        with pytest.raises(ConfigError, match=rf"^{name} cannot be called as {name}\(server_round, "):
            Krylov(n_components=2).start(grid, **{name: wrong})
        assert grid.sent == []


class MyPrivacy(DifferentialPrivacyServerSideFixedClipping):
    """A subclass of the user's own."""


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        *((kind, {"clipping_norm": 1.0}) for kind in FIXED),
        *((kind, {}) for kind in ADAPTIVE),
        (MyPrivacy, {"clipping_norm": 1.0}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_flowers_wrappers_for_differential_privacy_are_refused_before_the_first_message(kind, keywords):
    grid = grid_of(SHARDS)
    wrapper = kind(Krylov(n_components=2), noise_multiplier=0.1, num_sampled_clients=5, **keywords)
    with pytest.raises(
        ConfigError, match=r"^DifferentialPrivacy\w+ clips .* Start the inner strategy directly\..* dp="
    ):
        wrapper.start(grid, ArrayRecord(), num_rounds=3)
    assert grid.sent == []


def test_a_wrapper_of_ones_own_that_hands_everything_on_works():
    wrapper = Logging(Krylov(n_components=2, reconstruction_error=True))
    result = wrapper.start(grid_of(SHARDS), ArrayRecord(), num_rounds=6)
    plain = Krylov(n_components=2, reconstruction_error=True).start(grid_of(SHARDS))
    np.testing.assert_array_equal(result.arrays["components"].numpy(), plain.arrays["components"].numpy())
    assert result.evaluate_metrics_clientapp == plain.evaluate_metrics_clientapp
    assert wrapper.calls == [1, 2, 3, 4, 5, 6]


def test_what_start_gets_in_a_wrong_kind_is_named():
    for given, sentence in (
        ({"timeout": "10"}, "timeout must be a finite number"),
        ({"train_config": 3}, "train_config is 3, which is not a ConfigRecord of Flower"),
        ({"evaluate_config": ["batch"]}, "evaluate_config is a list .*, which is not a ConfigRecord of Flower"),
        ({"num_rounds": "3"}, "num_rounds must be a whole number"),
        ({"num_rounds": -1}, "num_rounds must be a whole number"),
        ({"should_stop": True}, "should_stop is True, which is not a function"),
        ({"evaluate_fn": 3}, "evaluate_fn is 3, which is not a function"),
        ({"initial_arrays": [np.eye(2, 10)]}, "initial_arrays is not an ArrayRecord of Flower but has the type list"),
    ):
        with pytest.raises(ConfigError, match=f"^{sentence}"):
            Krylov(n_components=2).start(grid_of(SHARDS), **given)


def test_a_parameter_of_another_strategy_of_flowers_is_refused_without_a_list_of_all():
    class Mine(Krylov):
        pass

    for name in ("proximal_mu", "server_learning_rate", "inplace"):
        with pytest.raises(
            ConfigError, match=rf"^Mine has no parameter '{name}'\. See help\(flower_pca\.strategies\.Krylov"
        ):
            Mine(**{name: 0.1})
    with pytest.raises(ConfigError, match=r"^Mine has no parameter 'n_component'\. Did you mean 'n_components'\?$"):
        Mine(n_component=2)


def test_hooks_of_a_strategy_whose_nodes_host_clients():
    strategy = Loud(n_components=2, hosted="stacked")
    result = strategy.fit(hosts_of(SHARDS, each=2))
    np.testing.assert_array_equal(
        result.components_, Krylov(n_components=2, hosted="stacked").fit(hosts_of(SHARDS, each=2)).components_
    )
    assert strategy.calls[0][2] == 3


@pytest.mark.slow
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_should_stop_ends_the_run_after_that_round(after, hooked, lines):
    asked = []

    def should_stop(server_round, result):
        asked.append((server_round, sorted(result.arrays), sorted(result.train_metrics_clientapp)))
        return server_round == after

    kind = type("Hooked", (strategies.SSI,), {"summary": strategies.SSI.summary})
    if hooked:
        kind.aggregate_train = lambda self, number, replies: strategies.SSI.aggregate_train(self, number, replies)
    grid = grid_of(SHARDS)
    result = kind(n_components=2).start(grid, should_stop=should_stop)
    assert [number for number, *_ in asked] == list(range(1, after + 1))
    assert set(grid.counts.values()) == {after}
    assert isinstance(result, Result)
    found = named_arrays(result.arrays)
    np.testing.assert_allclose(found["mean"], pooled(SHARDS).mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["components"] @ found["components"].T, np.eye(2), atol=1e-12)
    assert f"should_stop has ended the run after round {after}." in lines
    # Flower's own loop, stopped there, has the same
    own = Strategy.start(kind(n_components=2), grid_of(SHARDS), ArrayRecord(), num_rounds=after)
    assert_arrays_equal(own.arrays, result.arrays)


@pytest.mark.slow
def test_should_stop_after_the_last_round_leaves_a_whole_result():
    plain = Krylov(n_components=2).start(grid_of(SHARDS))
    last = max(plain.train_metrics_clientapp)
    result = Krylov(n_components=2).start(grid_of(SHARDS), should_stop=lambda number, result: number == last)
    assert_arrays_equal(result.arrays, plain.arrays)
    assert "explained_variance" in result.arrays


class Newer(Strategy):
    """Flower's Strategy from 1.43 on, by its documentation: `start` takes should_stop, and asks it after each round."""

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
        should_stop=None,
    ):
        result = Result()
        for number in range(1, num_rounds + 1):
            sent = self.configure_train(number, initial_arrays, ConfigRecord(), grid)
            arrays, metrics = self.aggregate_train(number, grid.send_and_receive(sent, timeout=timeout))
            result.arrays = result.arrays if arrays is None else arrays
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
            sent = self.configure_evaluate(number, initial_arrays, ConfigRecord(), grid)
            self.aggregate_evaluate(number, grid.send_and_receive(sent, timeout=timeout))
            if should_stop is not None and should_stop(number, result):
                break
        return result


def test_start_has_the_parameters_of_flowers_start_old_and_new():
    ours = inspect.signature(PCAStrategy.start).parameters
    for theirs in (Strategy.start, Newer.start):
        names = list(inspect.signature(theirs).parameters)
        assert list(ours)[: len(names)] == names
    assert list(ours) == list(inspect.signature(Newer.start).parameters)


@pytest.mark.slow
def test_the_loop_of_a_newer_flower_stops_where_start_does():
    stop = lambda number, result: number == 2  # noqa: E731
    theirs = Newer.start(strategies.SSI(n_components=2), grid_of(SHARDS), ArrayRecord(), 9, should_stop=stop)
    ours = strategies.SSI(n_components=2).start(grid_of(SHARDS), num_rounds=9, should_stop=stop)
    assert_arrays_equal(theirs.arrays, ours.arrays)


@pytest.mark.parametrize("num_rounds", [1, 2, 4])
def test_num_rounds_counts_the_opening(num_rounds):
    grid = grid_of(SHARDS)
    result = strategies.LocalPower(n_components=2, tol=1e-14).start(grid, num_rounds=num_rounds)
    stages = [config_of(m)["stage"] for m in grid.sent[:: len(SHARDS)]]
    assert stages == ["opening", *["local_power"] * max(num_rounds - 1, 1), "ritz"]
    assert "explained_variance" in result.arrays


def test_initial_arrays_are_evaluated_before_the_first_round():
    earlier = simulate("krylov", SHARDS, n_components=2)
    seen = []
    result = Krylov(n_components=2).start(
        grid_of(SHARDS), arrays_of(earlier), evaluate_fn=lambda n, arrays: seen.append(n) or MetricRecord({"n": n})
    )
    assert seen == list(range(len(seen)))
    assert result.evaluate_metrics_serverapp[0]["n"] == 0


def test_the_log_has_flowers_own_lines(lines):
    result = strategies.LocalPower(n_components=2, tol=1e-14).start(grid_of(SHARDS), num_rounds=3)
    own = ["[ROUND 1/3]", "[ROUND 2/3]", "[ROUND 3/3]", "[ROUND 4]"]
    assert [line for line in lines if line.startswith("[ROUND")] == own
    for kind in ("configure_train: Sampled 5 nodes (out of 5)", "aggregate_train: Received 5 results and 0 failures"):
        assert lines.count(kind) == 4
    assert any(re.fullmatch(r"Strategy execution finished in \d+\.\d\ds", line) for line in lines)
    whole = lines[lines.index("Final results:") + 2 : -1]
    assert [line.strip() for line in whole] == [line.strip() for line in str(result).splitlines()]


def test_an_error_that_ends_a_serverapp_of_ones_own_is_printed_as_its_sentence_alone():
    for wrong in (lambda: Krylov(n_component=2), lambda: Krylov(n_components=20).start(grid_of(SHARDS))):
        with pytest.raises((ConfigError, NotEnoughNodes)) as caught:
            wrong()
        assert logged_by_flower(caught.value) == [str(caught.value)]
    with pytest.raises(KeyError) as caught:
        {}["of somebody else's"]
    assert "Traceback" in logged_by_flower(caught.value)[0]


NATURAL = {
    "fraction_train": 1.0,
    "fraction_evaluate": 1.0,
    "min_train_nodes": 2,
    "min_evaluate_nodes": 2,
    "min_available_nodes": 2,
    "weighted_by_key": "num-examples",
    "arrayrecord_key": "arrays",
    "configrecord_key": "config",
    "train_metrics_aggr_fn": None,
    "evaluate_metrics_aggr_fn": None,
}


def test_every_parameter_of_fedavg_is_taken_with_the_value_that_it_has_there():
    assert set(NATURAL) >= set(inspect.signature(FedAvg).parameters)
    assert Krylov(**NATURAL).config == Krylov().config
    for kind in (strategies.STMiss, Standardize):
        kind(**{name: value for name, value in NATURAL.items() if name != "fraction_train"})


def test_no_evaluation_is_what_flower_calls_a_fraction_of_none():
    assert Krylov(fraction_evaluate=0.0).config == Krylov().config
    with pytest.raises(
        ConfigError, match=r"fraction_evaluate can only be 1.0. .* leave out reconstruction_error=True\.$"
    ):
        Krylov(fraction_evaluate=0.0, reconstruction_error=True)


def test_a_number_of_nodes_is_refused_under_the_name_that_was_written():
    assert Krylov(min_train_nodes=3, min_evaluate_nodes=0).config.min_nodes == 3
    assert Krylov(fraction_evaluate=0.0, min_evaluate_nodes=0).config == Krylov().config
    for name, value in (("min_train_nodes", 0), ("min_available_nodes", 2.5), ("min_evaluate_nodes", -1)):
        with pytest.raises(ConfigError, match=rf"^{name} must be a whole number of at least 1, not {value}\."):
            Krylov(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fraction_evaluate", 0.5),
        ("weighted_by_key", "loss"),
        ("arrayrecord_key", "model"),
        ("configrecord_key", "settings"),
        ("train_metrics_aggr_fn", print),
        ("evaluate_metrics_aggr_fn", print),
    ],
)
def test_a_parameter_of_flowers_that_pca_cannot_keep_to_is_refused_in_a_sentence(name, value):
    with pytest.raises(ConfigError) as caught:
        Krylov(**{name: value})
    assert name in str(caught.value)
    assert len(str(caught.value)) < 300


SHORT_START = ArrayRecord({"components": Array(np.eye(2, 5))})
TWELVE = [np.random.default_rng(i).standard_normal((30, 12)) for i in range(3)]


@pytest.mark.parametrize("mask", [False, True])
def test_a_start_of_other_columns_is_named_and_not_the_rows_alone(mask):
    grid = grid_of(TWELVE)
    with pytest.raises(ConfigError) as caught:
        Krylov(n_components=2, mask=mask).start(grid, SHORT_START)
    assert str(caught.value) == (
        "The run starts from components of 5 columns, but the rows have 12. If 12 is right, start from a result of 12 "
        "columns, or leave the start out."
    )
    assert set(grid.counts.values()) == {5 if mask else 1}  # Before that, masks are set up and columns are counted.


def test_a_start_that_one_node_does_not_fit_leaves_that_node_out():
    result = Krylov(n_components=2).fit(grid_of([*TWELVE, TWELVE[0][:, :5]]))
    start = arrays_of(result)
    again = Krylov(n_components=2).start(grid_of([*TWELVE, TWELVE[0][:, :5]]), start)
    np.testing.assert_allclose(again.arrays["mean"].numpy(), pooled(TWELVE).mean, rtol=0, atol=1e-12)


def test_an_action_that_no_app_has_is_named_with_what_to_write():
    load = lambda c: TWELVE[c.node_config["partition-id"]]  # noqa: E731

    def app_with(*actions, mods=()):
        app = ClientApp(mods=list(mods))
        for action in actions:
            register(app, load, action=action)

        @app.train("mine")
        def train(message, context):
            raise AssertionError("nobody asks for it")

        return app

    def logging_round(message, context, call_next):
        assert message.content["config"]["server-round"] > 0
        reply = call_next(message, context)
        assert reply.content["metrics"]["num-examples"] == 0
        return reply

    nothing = r"has no function of flower_pca\. Call clients\.register\(app, load, action="
    for actions, action, sentence in (
        (["pca"], "pcaa", r"has PCA under the action 'pca', not 'pcaa'\. Give the strategy action='pca'\."),
        (["pca"], None, r"has PCA under the action 'pca'\. Give the strategy action='pca'\."),
        (["wide", "pca"], "a", r"has PCA under the actions 'wide' and 'pca', not 'a'\. .* action='wide'\."),
        (["default"], "pca", r"has PCA without an action\. Leave action='pca' out of the strategy\."),
        ([], "pca", rf"{nothing}'pca'\) in this app, and give the strategy action='pca'\."),
        ([], None, rf"{nothing}'pca'\) in this app, and give the strategy action='pca'\."),
    ):
        grid = FakeGrid(app_with(*actions, mods=[logging_round]), 3)
        with pytest.raises(
            ConfigError,
            match=rf"^3 of 3 nodes have no function for this run, the first because its ClientApp {sentence}$",
        ):
            Krylov(n_components=2, action=action).fit(grid)
        assert sorted(grid.counts.values()) == [1, 1, 2]  # One node is asked for its actions, and no node twice.
    grid = FakeGrid(app_with("pca"), 3)
    grid.tamper = lambda message, reply: None if message.metadata.message_type.startswith("query") else reply
    with pytest.raises(ConfigError, match=r"has no function 'train\.a'\. Check the call of clients\.register in"):
        Krylov(n_components=2, action="a", round_timeout=0.2).fit(grid)
    with pytest.raises(ConfigError, match=r"^3 of 3 nodes have no function .* has PCA without an action\."):
        Krylov(n_components=2, action="pca", hosted="stacked").fit(hosts_of(SHARDS, each=2))
    older = ClientApp(client_fn=lambda c: PCAClient(TWELVE[c.node_config["partition-id"]]).to_client())
    with pytest.raises(ConfigError, match=r"has a client_fn, so it has no actions\. Leave action='pca' out"):
        Krylov(n_components=2, action="pca").fit(FakeGrid(older, 3))


@pytest.mark.parametrize("seconds", [np.float32(5.0), np.int64(5)])
def test_seconds_may_be_numbers_of_numpy(seconds):
    result = Krylov(n_components=2, round_timeout=seconds).start(grid_of(SHARDS), timeout=seconds)
    assert {"components", "mean"} <= set(result.arrays)


def test_a_strategy_with_hooks_refuses_a_second_run_while_one_is_under_way():
    refused = []

    class Nested(Krylov):
        def aggregate_train(self, server_round, replies):
            if not refused:
                with pytest.raises(ConfigError, match=r"^Nested is in the middle of another run") as error:
                    self.fit(grid_of(SHARDS))
                refused.append(error)
            return super().aggregate_train(server_round, replies)

    strategy = Nested(n_components=2)
    expected = Krylov(n_components=2).fit(grid_of(SHARDS))
    assert strategy.fit(grid_of(SHARDS)).components_.tobytes() == expected.components_.tobytes()
    # The strategy can be used again.
    assert strategy.fit(grid_of(SHARDS)).components_.tobytes() == expected.components_.tobytes()


def test_an_app_of_ones_own_keeps_to_the_rules_in_a_node_config_unless_it_gives_its_own():
    def grid_with(**rules):
        app = ClientApp()
        register(app, lambda context: SHARDS[int(context.node_config["partition-id"])], **rules)
        grid = FakeGrid(app, len(SHARDS))
        grid.nodes[grid.node(0)].node_config["min-rows"] = 10_000
        return grid

    result = Krylov(n_components=2, action="pca").fit(grid_with())
    assert "fewer rows than its min_rows, 10000" in result.left_out[0].why
    assert result.n_samples_ == sum(map(len, SHARDS[1:]))
    for own in ({"min_rows": 5}, {"rules": Rules()}, {"rules": lambda context: Rules()}):
        assert Krylov(n_components=2, action="pca").fit(grid_with(**own)).n_samples_ == sum(map(len, SHARDS))


def test_an_app_of_ones_own_names_a_misspelt_rule(lines):
    app = ClientApp()
    register(app, lambda context: SHARDS[int(context.node_config["partition-id"])])
    grid = FakeGrid(app, len(SHARDS))
    grid.nodes[grid.node(0)].node_config["min-row"] = 10_000
    result = Krylov(n_components=2, action="pca").fit(grid)
    assert list(result.left_out) == [0]
    assert any("The node-config has min-row, which is not a rule. Did you mean min-rows?" in line for line in lines)


def test_a_supernode_listens_to_its_own_machine_only_as_the_page_for_administrators_says():
    assert UVICORN_DEFAULT_HOST == "127.0.0.1"
    assert f"only, at {UVICORN_DEFAULT_HOST}, port {SUPERNODE_UVICORN_DEFAULT_PORT}." in text("docs/administrator.md")
