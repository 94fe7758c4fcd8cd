"""Test algorithm="auto": krylov, or covariance if it is expected to cost less, over every transport."""

import re

import numpy as np
import pytest
from builders import gone_on, pooled, turned_shards
from cases import every
from fake_grid import FakeGrid, app_of, grid_of
from results import assert_close, assert_same_bits
from test_auto_reconsidered import CLOSE

from flower_pca import AirChannel, PCAResult, assembly, make, simulate
from flower_pca.algorithms.covariance import Auto, Covariance
from flower_pca.algorithms.krylov import Krylov
from flower_pca.clients import Rules, client_app
from flower_pca.strategies import PCAStrategy

FEW, MORE, MANY = (
    turned_shards((60, 35, 50), 20, 0.9),
    turned_shards((60, 35, 50), 60, 0.9),
    turned_shards((60, 35, 50), 160, 0.9),
)


@pytest.mark.slow
@every(
    ("d", "k", "tol", "taken"),
    [
        (8, 1, 1e-8, "covariance"),
        (8, 6, 1e-8, "krylov"),  # the opening already has all columns
        (14, 5, 1e-8, "krylov"),  # one message of krylov
        (20, 2, 1e-8, "covariance"),
        (95, 1, 1e-8, "covariance"),
        (96, 1, 1e-8, "krylov"),
        (127, 2, 1e-8, "covariance"),
        (128, 2, 1e-8, "krylov"),
        (223, 5, 1e-8, "covariance"),
        (224, 5, 1e-8, "krylov"),
        (100, 2, 1e-6, "krylov"),
        (40, 2, 1e-3, "covariance"),
        (60, 2, 1e-3, "krylov"),
        (60, 2, 0.0, "covariance"),
        (40, 2, 1.0, "krylov"),  # one round is expected
    ],
)
def test_the_choice_follows_from_columns_components_and_tolerance(d, k, tol, taken):
    found = simulate(f"auto(tol={tol})", [np.random.default_rng(0).standard_normal((12, d))] * 2, n_components=k)
    assert found.algorithm.split("(")[0] == taken
    assert found.decisions[0].startswith(f"auto chose {taken}, because ")
    if "would not save a message" not in found.decisions[0]:
        numbers = rf"covariance .* one (more )?message with {d * (d + 1) // 2:,} numbers \({d} columns\)"
        assert re.search(numbers, found.decisions[0])


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("data", [FEW, MANY], ids=["few", "many"])
def test_auto_gives_the_bits_of_the_chosen_algorithm(data, mask):
    found = simulate("auto", data, n_components=2, mask=mask)
    named = simulate(found.algorithm, data, n_components=2, mask=mask)
    assert_same_bits(found, named)
    assert found.algorithm == ("covariance(oversample=2)" if data is FEW else "krylov")
    assert found.config["algorithm"] == "auto"
    assert found.angle_to(pooled(data).components[:2]) < 1e-6
    assert (found.decisions, named.decisions) == (found.decisions, ())
    assert len(found.decisions) == 1


WORDS = [
    (20, 2, "covariance, because it takes fewer messages: after the opening, covariance takes one message with 210 "
        "numbers (20 columns), and krylov is expected to take 4 messages with 640 numbers in total for tol=1e-08"),
    (8, 6, "krylov, because the first message, which all algorithms share, is expected to be enough; covariance "
           "would take one more message with 36 numbers (8 columns)"),
    (14, 5, "krylov, because covariance would not save a message"),
    (160, 2, "krylov, because it sends fewer numbers: after the opening, covariance takes one message with 12,880 "
        "numbers (160 columns), and krylov is expected to take 8 messages with 10,240 numbers in total for tol=1e-08"),
]  # fmt: skip


@every(("d", "k", "words"), WORDS)
def test_words_say_what_was_taken_and_why(d, k, words):
    assert simulate("auto", turned_shards((60, 35, 50), d, 0.9), n_components=k).decisions == (f"auto chose {words}",)


def test_parameters_of_krylov_are_handed_on():
    found = simulate("auto(oversample=4)", MANY, n_components=2, tol=1e-5, max_rounds=40)
    assert found.algorithm == "krylov(oversample=4, tol=1e-05, max_rounds=40)"
    assert assembly.config(**found.config).algorithm == Auto(oversample=4, tol=1e-5, max_rounds=40)
    assert make("auto").spec == "auto"


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("data", [FEW, MANY, CLOSE], ids=["few", "many", "close"])
def test_a_grid_takes_what_the_run_in_process_takes(data):
    there = PCAStrategy("auto", n_components=2).fit(grid_of(data))
    here = simulate("auto", data, n_components=2)
    assert_same_bits(there, here)
    assert there.decisions == here.decisions


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_auto_gives_the_bits_of_the_chosen_algorithm_over_a_masked_grid():
    there = PCAStrategy(n_components=2, mask=True).fit(grid_of(FEW))
    assert there.algorithm == "covariance(oversample=2)"
    assert_close(there, simulate("covariance", FEW, n_components=2))


DECLINED = [({"allow": ("krylov", "ssi")}, "it serves krylov, ssi"), ({"max_columns": 59}, "its max_columns is 59")]


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(("rules", "why"), DECLINED)
def test_where_nodes_decline_it_is_krylov_and_nobody_is_left_out(rules, why, mask, tmp_path):
    grid = grid_of(MORE, memory_dir=tmp_path, **rules)
    found = PCAStrategy(n_components=2, mask=mask, min_nodes=3).fit(grid)
    assert found.algorithm == "krylov"
    assert found.n_samples_ == sum(map(len, MORE))
    assert found.decisions[0].startswith("auto chose krylov, because a client declines covariance. client ")
    assert found.decisions[0].endswith(why)
    assert found.angle_to(pooled(MORE).components[:2]) < 1e-6
    assert not any(record.failures for record in found.history)


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_one_that_declines_is_enough_and_a_count_with_room_is_not_in_the_way(tmp_path):
    def rules(context):
        return Rules(allow=["krylov"] if context.node_config["partition-id"] == 1 else ["krylov", "covariance"])

    app = client_app(lambda context: FEW[context.node_config["partition-id"]], rules=rules)
    assert PCAStrategy(n_components=2).fit(FakeGrid(app, 3)).algorithm == "krylov"
    app = app_of(FEW, max_columns=30, memory_dir=tmp_path)
    assert PCAStrategy(n_components=2).fit(FakeGrid(app, 3)).algorithm == "covariance(oversample=2)"


def test_with_dp_and_over_the_air_it_is_krylov():
    private = simulate("auto(max_rounds=3)", FEW, n_components=2, dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)")
    assert private.algorithm == "krylov(min_rounds=3, max_rounds=3)"
    assert private.decisions == (
        "auto chose krylov, as always with dp, because the budget is divided before columns are known",
    )
    air = simulate("auto(max_rounds=3)", FEW, n_components=2, channel=AirChannel(noise_std=1e-6, seed=0))
    assert air.decisions == ("auto chose krylov, as always over a channel",)


@pytest.mark.parametrize("messages", [1, 2])
def test_a_run_goes_on_from_a_checkpoint_with_what_was_taken(messages, tmp_path):
    asked = {"n_components": 2, "reconstruction_error": True}
    whole = simulate("auto", FEW, **asked)
    found = gone_on(simulate, "auto", FEW, path=tmp_path / "run.ckpt", stop=[messages], **asked)
    assert_same_bits(found, whole)
    assert (found.algorithm, found.decisions) == (whole.algorithm, whole.decisions)


def test_choices_are_saved_with_the_result(tmp_path):
    found = simulate("auto", FEW, n_components=2)
    assert PCAResult.load(found.save(tmp_path / "r.npz")).decisions == found.decisions
    assert found.decisions[0] in found._repr_html_()


def test_krylov_and_covariance_agree():
    one, other = (simulate(name, MANY, n_components=3, reconstruction_error=True) for name in (Covariance(), Krylov()))
    assert one.angle_to(other) < 1e-6
    assert abs(one.mse_ - other.mse_) < 1e-9
