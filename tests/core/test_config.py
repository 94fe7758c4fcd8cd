"""Test PCAConfig: what it refuses, its short form, and its round trip through plain values."""

import inspect
import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from builders import three_clients
from cases import every

from flower_pca import (
    DP,
    AirChannel,
    Krylov,
    MaskedSums,
    PCAConfig,
    PCAResult,
    TrackingResult,
    assembly,
    make,
    simulate,
    track,
)
from flower_pca.assembly import ScalingOptions, TrackingOptions
from flower_pca.base.settings import SETTINGS
from flower_pca.core.config import SimulationOptions
from flower_pca.settings.variants import Variants
from flower_pca.strategies import PCAStrategy

SHARDS = three_clients(0).shards

QUESTIONS = {
    "plain": ("krylov", {}),
    "with parameters": ("faps(inner_steps=5)", {"max_rounds": 7, "tol": 1e-3, "fraction": 0.5, "seed": 3}),
    "of a frame": (
        "ssi",
        {"scale": "std", "center": True, "missing": "mean", "reconstruction_error": True, "min_nodes": 2},
    ),
    "of a fraction": ("krylov", {"n_components": 0.9}),
    "masked": ("krylov", {"mask": "masks(neighbors=20, threshold=0.6)"}),
    "with a budget": ("ssi(max_rounds=5)", {"dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)", "mask": True}),
    "over the air": ("fed_oapm", {"channel": "air(noise_std=0.1, gain=(1.0, 2.0, 1.0))"}),
}


@every("case", QUESTIONS)
def test_plain_values_ask_the_same_again(case):
    algorithm, asked = QUESTIONS[case]
    config = assembly.config(algorithm, **{"n_components": 2, **asked})
    kept = json.loads(json.dumps(config.plain_settings()))
    assert assembly.config(**kept) == config
    assert assembly.config(config) is config


def test_the_short_form_says_what_a_question_says():
    long = PCAConfig(
        make("ssi", max_rounds=4), n_components=2, mask=MaskedSums(), dp=DP(epsilon=1.0, delta=1e-6, clip=10.0)
    )
    short = {"mask": True, "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"}
    assert assembly.config("ssi", n_components=2, max_rounds=4, **short) == long
    assert PCAStrategy("ssi(max_rounds=4)", n_components=2, **short).config == replace(long, min_nodes=2)
    assert assembly.config("ssi", n_components=2, channel="air(noise_std=0.5)").channel == AirChannel(noise_std=0.5)


def test_a_question_is_answered_like_its_short_form_and_the_result_keeps_it(tmp_path):
    config = PCAConfig(Krylov(tol=1e-9), n_components=3, scale="std", seed=np.int64(2))
    result, short = (
        simulate(config, SHARDS),
        simulate("krylov", SHARDS, n_components=3, scale="std", seed=2, tol=1e-9),
    )
    np.testing.assert_array_equal(result.components_, short.components_)
    assert result.config == short.config == config.plain_settings()
    assert result.config["algorithm"] == "krylov(tol=1e-09)"
    loaded = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert assembly.config(**loaded.config) == config


def test_what_could_take_noise_off_is_not_kept():
    dp = DP(epsilon=1.0, delta=1e-6, clip=10.0, noise_seed=7)
    asked = simulate("covariance", SHARDS, n_components=2, dp=dp).config
    assert "noise_seed=None" in asked["dp"]


def test_a_question_does_not_change():
    config = PCAConfig(make("krylov"), n_components=2)
    with pytest.raises(FrozenInstanceError):
        config.seed = 1


def test_a_setting_is_a_keyword_of_the_short_form_by_the_same_name():
    """Type checkers read the keywords from these TypedDicts, so they have to name all settings and no others."""
    own = {"tol", "min_rounds", "max_rounds", "patience"}  # parameters of every iterative algorithm
    assert set(SimulationOptions.__annotations__) == {f.name for f in fields(PCAConfig)[1:]} | own
    usual = {f.name: f.default for f in fields(PCAConfig)} | {"mask": False}  # the values of the short form
    assert {name: setting.default for name, setting in SETTINGS.items()}.items() <= usual.items()
    for asked, function in ((TrackingOptions, assembly.tracking), (ScalingOptions, assembly.standardizing)):
        keywords = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
        assert set(asked.__annotations__) == keywords - {"min_nodes"}


NUMPY_NUMBERS = {
    "dp": lambda kind: DP(epsilon=kind(50.0), delta=kind(0.0009765625), clip=kind(9.0)),
    "mask": lambda kind: MaskedSums(bound=kind(1e6), threshold=kind(0.75)),
    "channel": lambda kind: AirChannel(noise_std=kind(0.5), gain=(kind(1.0), kind(2.0))),
    "variants": lambda kind: Variants(maf=kind(0.0625)),
    "center": lambda kind: True if kind is float else np.bool_(True),
}


@every("setting", NUMPY_NUMBERS)
def test_numpy_numbers_are_stored_as_python_numbers(setting):
    given = NUMPY_NUMBERS[setting]
    plain = [
        PCAConfig(algorithm=make("krylov"), n_components=2, **{setting: given(kind)}).plain_settings()
        for kind in (float, np.float64, np.float32)
    ]
    assert json.dumps(plain[0]) == json.dumps(plain[1]) == json.dumps(plain[2])


def test_the_bounds_of_a_private_run_follow_from_numpy_numbers_too():
    X = np.random.default_rng(0).standard_normal((90, 5)) * [5.0, 4.0, 1.0, 1.0, 1.0]
    plain, other = (
        simulate(
            "covariance",
            np.array_split(X, 3),
            n_components=2,
            dp=DP(epsilon=50.0, delta=1e-6, clip=kind(9.0), noise_seed=1),
        )
        for kind in (float, np.float64)
    )
    assert str(plain.certainty) == str(other.certainty)


def test_a_stream_of_a_numpy_number_of_steps_is_saved(tmp_path):
    result = track("st_miss", [iter(SHARDS)], n_components=2, steps=np.int64(2))
    assert json.dumps(TrackingResult.load(result.save(tmp_path / "r.npz")).config["steps"]) == "2"
