"""Flower's mods around a node's functions: which go with a run, which are refused, and the records that they see."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from fake_grid import LIKE_SIMULATED, FakeGrid
from results import assert_same_bits

from flower_pca import ConfigError, simulate
from flower_pca.clients import client_app, register
from flower_pca.strategies import PCAStrategy

pytest.importorskip("flwr")
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, fixedclipping_mod, message_size_mod

pytestmark = pytest.mark.usefixtures("lines")
SHARDS = [np.random.default_rng(i).standard_normal((30 + i, 5)) * np.arange(5, 0, -1) for i in range(3)]
NOISE = LocalDpMod(1.0, 1.0, 1.0, 1e-5)


def rows_of_node(context):
    return SHARDS[context.node_config["partition-id"]]


def fitted_app(app):
    return PCAStrategy("krylov", n_components=2, min_nodes=3).fit(FakeGrid(app, 3))


@pytest.mark.parametrize("mod", [message_size_mod, arrays_size_mod], ids=lambda mod: mod.__name__)
@pytest.mark.parametrize("around", ["the app", "our functions"])
def test_mods_that_look_at_messages_change_nothing(mod, around, lines):
    if around == "the app":
        app = ClientApp(mods=[mod])
        register(app, rows_of_node, action="default", **LIKE_SIMULATED)
    else:
        app = client_app(rows_of_node, mods=[mod], **LIKE_SIMULATED)
    result = fitted_app(app)
    assert_same_bits(result, simulate("krylov", SHARDS, n_components=2))
    assert any("bytes" in line for line in lines)
    for way, counted in (("Incoming", result.history.bytes_down), ("Outgoing", result.history.bytes_up)):
        seen = [int(size) for line in lines for size in re.findall(f"{way} message size: (\\d+) bytes", line)]
        assert mod is not message_size_mod or sum(seen) == counted


class Quiet(LocalDpMod):
    """A subclass of the user's own."""


@functools.wraps(fixedclipping_mod)
def decorated(message, context, call_next):
    return fixedclipping_mod(message, context, call_next)


@pytest.mark.parametrize(
    ("mod", "named"),
    [
        (NOISE, "LocalDpMod"),
        (Quiet(1.0, 1.0, 1.0, 1e-5), "LocalDpMod"),
        (NOISE.__call__, "LocalDpMod"),
        (functools.partial(NOISE), "LocalDpMod"),
        (functools.partial(functools.partial(fixedclipping_mod)), "fixedclipping_mod"),
        (decorated, "fixedclipping_mod"),
        (functools.partial(decorated), "fixedclipping_mod"),
    ],
)
def test_mods_that_change_answers_are_refused_in_whatever_they_are_wrapped(mod, named):
    with pytest.raises(ConfigError, match=rf"^{named} changes answers"):
        client_app(rows_of_node, mods=[mod])
    with pytest.raises(ConfigError, match=rf"^{named} changes answers"):
        register(ClientApp(mods=[mod]), rows_of_node)


def test_a_partial_of_a_mod_that_looks_on_is_taken(lines):
    client_app(rows_of_node, mods=[functools.partial(message_size_mod)])


def test_noise_on_a_function_of_ones_own_leaves_ours_alone():
    app = ClientApp()

    @app.train(mods=[NOISE])
    def train(message, context):
        raise AssertionError("nobody asks for it")

    register(app, rows_of_node, action="pca", **LIKE_SIMULATED)
    result = PCAStrategy("krylov", n_components=2, min_nodes=3, action="pca").fit(FakeGrid(app, 3))
    assert_same_bits(result, simulate("krylov", SHARDS, n_components=2))


def test_a_mod_of_ones_own_sees_the_records_that_the_page_tells():
    seen = []

    def watching(message, context, call_next):
        reply = call_next(message, context)
        config, arrays = message.content["config"], message.content["arrays"]
        answer, metrics = reply.content["arrays"], reply.content["metrics"]
        seen.append((config["stage"], config["server-round"], arrays, sorted(answer), metrics["num-examples"]))
        return reply

    fitted_app(client_app(rows_of_node, mods=[watching], **LIKE_SIMULATED))
    stages = [stage for stage, *_ in seen]
    assert stages == ["opening"] * 3 + ["krylov"] * 3
    assert [number for _, number, *_ in seen] == [1] * 3 + [2] * 3
    blocks = [arrays["B"].numpy() for stage, _, arrays, *_ in seen if stage == "krylov"]
    assert all(block.shape[0] == 5 for block in blocks)
    assert {tuple(names) for stage, *_, names, _ in seen if stage == "krylov"} == {("S",)}
    assert {rows for *_, rows in seen} == set(map(len, SHARDS))
