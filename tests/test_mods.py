"""Flower's mods around a node's functions: which go with a run, which are refused, and the records that they see."""

from __future__ import annotations

import numpy as np
import pytest
from fake_grid import LIKE_SIMULATED, FakeGrid
from results import assert_same_bits

from flower_pca import simulate
from flower_pca.clients import client_app, register
from flower_pca.strategies import PCAStrategy

pytest.importorskip("flwr")
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, message_size_mod

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
    assert_same_bits(fitted_app(app), simulate("krylov", SHARDS, n_components=2))
    assert any("bytes" in line for line in lines)


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
        config = message.content.config_records["fitins.config"]
        names = str(config["names"]).split(",")
        sent = message.content.array_records["fitins.parameters"]
        answer = reply.content.array_records["fitres.parameters"]
        metrics = reply.content.config_records["fitres.metrics"]
        told = str(metrics["names"]).split(",")
        seen.append((config["stage"], dict(zip(names, sent.to_numpy_ndarrays(), strict=True)), told, len(answer)))
        return reply

    fitted_app(client_app(rows_of_node, mods=[watching], **LIKE_SIMULATED))
    stages = [stage for stage, *_ in seen]
    assert stages == ["opening"] * 3 + ["krylov"] * 3
    blocks = [arrays["B"] for stage, arrays, *_ in seen if stage == "krylov"]
    assert all(block.shape[0] == 5 for block in blocks)
    assert all(len(told) == count for *_, told, count in seen)
