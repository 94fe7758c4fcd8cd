"""Refusals of strategies and nodes, and of the app that runs over them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from builders import three_lead, two_lead
from fake_grid import Context, FakeGrid, grid_of, hosts_of
from flwr.app import RecordDict

from flower_pca import NotEnoughNodes, strategies
from flower_pca.app import client_app, server_app
from flower_pca.strategies import PCAStrategy, Standardize
from refused import Refused
from refused.runs import BUDGET, SEEDED


def made_strategy(algorithm: Any = "krylov", **options: Any) -> None:
    PCAStrategy(algorithm, n_components=2, **options)


def over_hosts(**options: Any) -> None:
    PCAStrategy("krylov", n_components=2, **options).fit(hosts_of(two_lead(4), each=2))


def over_nodes(**options: Any) -> None:
    PCAStrategy("krylov", n_components=2, **options).fit(grid_of(two_lead(3)))


def strategy_by_name(name: str, **options: Any) -> None:
    getattr(strategies, name)(**options)


def insisting(rules: dict[str, Any], dp: Any, **asked: Any) -> None:
    """A run over nodes that have bounds of their own on noise."""
    asked = {"node_timeout": 0.1, "n_components": 2, "dp": dp, **asked}
    PCAStrategy("ssi(max_rounds=2)", **asked).fit(grid_of(three_lead(4), **rules))


def flwr_run(**config: Any) -> None:
    """The app of a simulation with these values in its run-config."""
    grid = FakeGrid(client_app, 2)
    for i, context in enumerate(grid.nodes.values()):
        context.node_config = {"partition-id": i, "num-partitions": 2}
    with tempfile.TemporaryDirectory() as folder:
        given = {"data": "synthetic(n=200, d=6, clients=2)", "n-components": 2, "output": folder, **config}
        server_app(grid, Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=given))


STRATEGY = [
    Refused({"algorithm": "uda", "mask": True}, "does not support mask. Use krylov, ssi or faps."),
    *[
        Refused({"algorithm": "ssi", **wrong}, "must be .*, not ")
        for wrong in ({"node_timeout": -1}, {"round_timeout": 0}, {"min_nodes": 0}, {"fraction": 0.0})
    ],
    Refused({"algorithm": "ssi", "action": "a b"}, "action is 'a b', which is not a Python identifier. Use"),
    Refused(
        {"algorithm": "covariance", "dp": SEEDED},
        "noise_seed of dp is 3, but nodes draw their noise from their operating system",
    ),
    *[Refused({"hosted": way}, "hosted must be None or 'stacked'") for way in ("summed", 3, True)],
]
STRATEGIES = [
    Refused({"name": "STMiss", "reus": 1}, "^STMiss has no parameter 'reus'. Did you mean 'reuse'"),
    Refused({"name": "STMiss", "interval": -1.0}, "interval must be"),
]
STANDARDIZE = [Refused({"missing": "median"}, "missing must be 'error', 'local_mean' or 'mean'")]
HOSTS = [
    Refused(
        {},
        "The message is for a single client, but this node hosts several clients. Use a strategy with "
        'hosted="stacked".',
        Exception,
    )
]
NODES = [
    Refused(
        {"hosted": "stacked"}, "is a single client, but hosted='stacked' needs nodes that host several clients. Leave"
    )
]
NOISE_AT_NODES = [
    Refused({"rules": rules, "dp": dp, **asked}, sentence, NotEnoughNodes)
    for asked in ({}, {"mask": True})
    for rules, dp, sentence in (
        ({"min_noise": 5.0}, None, "This node answers only with noise, but the message does not ask for noise."),
        ({"min_noise": 1e9}, BUDGET, "This node answers only with noise of at least 1e+09 clip^2, but the message has"),
        ({"max_clip": 2.0}, BUDGET, "This node clips rows at 2 or below, but the message asks for 3."),
    )
]
FLWR_RUN = [
    *[
        Refused({"clients-per-node": each}, "clients-per-node must be a whole number of at least 1")
        for each in (0, -2, 1.5, "many")
    ],
    *[
        Refused(
            {"algorithm": "st_miss", "batch": 20, key: value},
            f"A tracker has no setting {key.replace('-', '_')}, but the run-config sets it to {value!r}. Leave it out.",
        )
        for key, value in (
            ("dp", "dp(epsilon=1.0, delta=1e-6, clip=2.0)"),
            ("missing", "mean"),
            ("reconstruction-error", True),
        )
    ],
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "strategy": (made_strategy, STRATEGY),
    "strategies by name": (strategy_by_name, STRATEGIES),
    "standardize": (Standardize, STANDARDIZE),
    "nodes that host clients": (over_hosts, HOSTS),
    "nodes that are clients": (over_nodes, NODES),
    "nodes that ask for noise": (insisting, NOISE_AT_NODES),
    "flwr run": (flwr_run, FLWR_RUN),
}
