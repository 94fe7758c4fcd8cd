"""Test that every transport gives the same bits as the loop in process, for every question.

A question that is listed for a transport is asked over it. Nodes answer over a grid in this process; hosts are virtual
nodes of several clients each; Ray has a cluster. tests/deployment asks over a SuperLink.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from fake_grid import grid_of, hosts_of
from questions import COLUMNS, NAMED, QUESTIONS
from results import assert_same_bits, assert_same_own

from flower_pca import PCAResult, Ray, simulate
from flower_pca.strategies import PCAStrategy


@functools.cache
def here(config: str) -> PCAResult:
    """The answer of the loop in process."""
    asked = QUESTIONS[config]
    return simulate(asked.algorithm, asked.shards, **asked.settings)


def over_nodes_of_a_grid(config: str, cluster: Callable[[], str]) -> PCAResult:
    asked = QUESTIONS[config]
    grid = grid_of(asked.shards, seed=list(QUESTIONS).index(config))
    return NAMED[asked.name](**asked.given, **asked.settings).fit(grid)


def hosts(config: str, cluster: Callable[[], str]) -> PCAResult:
    asked = QUESTIONS[config]
    strategy = PCAStrategy(asked.algorithm, min_nodes=len(asked.shards), hosted="stacked", **asked.settings)
    result = strategy.fit(grid := hosts_of(asked.shards, each=2))
    most = len(grid.nodes) * (1 + len(result.history))  # one message a round to a node, however many clients it hosts
    assert len(grid.sent) <= most if "fraction" in asked.settings else len(grid.sent) == most
    return result


def ray(config: str, cluster: Callable[[], str], each: int = 1) -> PCAResult:
    asked, backend = QUESTIONS[config], Ray(clients_per_node=each, address=cluster())
    result = simulate(asked.algorithm, asked.shards, backend=backend, **asked.settings)
    assert_same_own(result, here(config))
    return result


def ray_of_three(config: str, cluster: Callable[[], str]) -> PCAResult:
    return ray(config, cluster, each=3)


SENT = ["faps, scaled", "consensus_rpca, scaled", "krylov, masked", "krylov, counted by distance"]
TRANSPORTS: dict[Callable[..., PCAResult], list[str]] = {
    over_nodes_of_a_grid: list(QUESTIONS),
    hosts: [*SENT, "ssi, sampled", "dr_svd, plain", "uda, plain", "faps, by the largest"],
    ray: [config for config in SENT if config != "consensus_rpca, scaled"],
    ray_of_three: ["consensus_rpca, scaled"],
}
ON_RAY = (pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore"))  # Ray's own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "config"),
    [
        pytest.param(transport, config, marks=ON_RAY if transport in (ray, ray_of_three) else ())
        for transport, listed in TRANSPORTS.items()
        for config in listed
    ],
)
@pytest.mark.usefixtures("lines")
def test_every_transport_gives_the_bits_of_the_loop_in_process(
    transport: Callable[..., PCAResult], config: str, request: pytest.FixtureRequest
) -> None:
    there, reference = transport(config, lambda: request.getfixturevalue("cluster")), here(config)
    assert_same_bits(there, reference)
    for name in ("histograms_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(there, name), getattr(reference, name), err_msg=name)
    assert there.site_names == reference.site_names
    if transport is hosts and config != "krylov, masked":  # masked nodes tell one another which columns they measured
        assert [r.bytes_up for r in there.history] == [r.bytes_up for r in reference.history]


@pytest.mark.slow
def test_questions_are_what_they_are_named_for() -> None:
    assert len(here("consensus_rpca, scaled").local) == 5
    assert here("faps, scaled").local == here("krylov, masked").local == {}
    assert here("krylov, counted by distance").histograms_ is not None
    for config, columns in (("krylov, by name", sorted(COLUMNS)), ("krylov, some columns", [*COLUMNS[::-1][:5]])):
        assert here(config).feature_names_in_.tolist() == columns
        assert here(config).site_names == {0: "site 0", 1: "site 1", 2: "site 2"}
    assert {r.answered for r in here("ssi, sampled").history} == {2, 5}
