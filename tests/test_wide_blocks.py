"""Test oversample="auto": blocks as wide as a message of a given size allows."""

import numpy as np
import pytest
from builders import gone_on, pooled, turned_shards
from cases import every
from fake_grid import FakeGrid, app_of, grid_of
from results import assert_close, assert_same_bits

from flower_pca import AirChannel, assembly, simulate
from flower_pca.core.drive import drive
from flower_pca.simulation.in_process import Shards
from flower_pca.simulation.sites import clients_of
from flower_pca.strategies import PCAStrategy

WIDE = "krylov(oversample='auto')"
AUTO = "auto(oversample='auto')"


LONG = turned_shards((160, 90, 130), 400, 0.97)
P = 2**19 // (8 * 400)  # 163


@pytest.mark.slow
def test_blocks_are_as_wide_as_a_message_allows_and_the_opening_as_narrow_as_ever():
    config = assembly.config(WIDE, n_components=3)
    run, there = assembly.run(config), Shards(clients_of(LONG, missing=False))
    message = run.pending(there.present())
    assert int(message.arrays["width"]) == 5
    run.advance(there.ask(message))
    block = run.pending(there.present()).arrays["B"]
    assert block.shape == (400, P)
    assert np.abs(block.T @ block - np.eye(P)).max() < 1e-12
    result = drive(run, there)
    assert result.decisions == (f"krylov uses blocks of {P} columns, the widest that fit into a message of 512 kB",)
    assert result.algorithm == WIDE
    assert result.angle_to(pooled(LONG).components[:3]) < 1e-6


@pytest.mark.slow
def test_wide_blocks_take_fewer_messages_and_never_exceed_the_columns():
    narrow, wide = (simulate(name, LONG, n_components=3) for name in ("krylov", WIDE))
    assert len(wide.history) < len(narrow.history) / 2
    few = simulate(WIDE, turned_shards((160, 90, 130), 30, 0.97), n_components=3)
    assert few.decisions == ("krylov uses blocks of 30 columns, the widest that fit into a message of 512 kB",)
    assert [record.stage for record in few.history] == ["opening", "krylov"]
    assert few.angle_to(pooled(turned_shards((160, 90, 130), 30, 0.97)).components[:3]) < 1e-7
    every = simulate(WIDE, turned_shards((160, 90, 130), 30, 0.97), n_components=30)
    assert len(every.history) == 1
    long = [np.random.default_rng(i).standard_normal((6, 40_000)) for i in range(2)]
    assert "blocks of 5 columns" in simulate(WIDE, long, n_components=3, max_rounds=1).decisions[0]


@pytest.mark.slow
@every(("d", "taken"), [(5, "krylov"), (12, "covariance"), (361, "covariance"), (362, "krylov")])
def test_beside_wide_blocks_covariance_is_cheap_up_to_the_size_of_a_message(d, taken):
    found = simulate(AUTO, [np.random.default_rng(0).standard_normal((20, d))] * 2, n_components=3)
    assert found.algorithm.split("(")[0] == taken


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [3, 0.5])
@pytest.mark.parametrize("scale", [None, "std"])
def test_wide_blocks_work_with_fractions_and_scales(n_components, scale):
    found = simulate(WIDE, LONG, n_components=n_components, scale=scale)
    narrow = simulate("krylov", LONG, n_components=n_components, scale=scale)
    assert found.n_components_ == narrow.n_components_
    assert found.angle_to(narrow) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.usefixtures("lines")
def test_strategies_take_it_by_default_with_the_bits_of_the_run_in_process(mask):
    there = PCAStrategy(n_components=1, mask=mask).fit(grid_of(LONG))
    here = simulate(AUTO, LONG, n_components=1, mask=mask)
    (assert_close if mask else assert_same_bits)(there, here)
    assert there.decisions == here.decisions
    assert there.decisions[0].startswith("auto chose krylov, because the message of covariance would be ")
    assert there.decisions[0].endswith(
        f"; krylov uses blocks of {P} columns, the widest that fit into a message of 512 kB"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("algorithm", [WIDE, AUTO])
def test_nodes_that_count_columns_keep_the_narrow_block(algorithm, tmp_path):
    app = app_of(LONG, max_columns=399, memory_dir=tmp_path)
    found = PCAStrategy(algorithm, n_components=1, min_nodes=3).fit(FakeGrid(app, 3))
    assert found.algorithm == "krylov"
    assert "krylov uses blocks of 3 columns, because a client declines wider blocks. client " in found.decisions[0]
    assert found.decisions[0].endswith("its max_columns is 399")
    assert not any(record.failures for record in found.history)
    assert_same_bits(found, simulate("krylov", LONG, n_components=1))


def test_noise_and_a_channel_keep_blocks_narrow():
    dp = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"
    private = simulate("krylov(oversample='auto', max_rounds=2)", LONG, n_components=2, dp=dp)
    assert private.decisions == (
        "krylov uses narrow blocks, as always with dp, because the budget is divided before columns are known",
    )
    assert private.algorithm == "krylov(min_rounds=2, max_rounds=2)"
    air = simulate(f"{WIDE[:-1]}, max_rounds=2)", LONG, n_components=2, channel=AirChannel(noise_std=1e-6, seed=0))
    assert air.decisions == ("krylov uses narrow blocks, as always over a channel",)


@pytest.mark.slow
@pytest.mark.parametrize("messages", [1, 2])
def test_a_run_goes_on_from_a_checkpoint_with_the_same_blocks(messages, tmp_path):
    found = gone_on(simulate, WIDE, LONG, path=tmp_path / "run.ckpt", stop=[messages], n_components=3)
    assert_same_bits(found, simulate(WIDE, LONG, n_components=3))
