"""Test the example of docs/adding-an-algorithm.md: an algorithm registered from its own module."""

import importlib.util
import json
import sys
import warnings

import checks
import numpy as np
import protocol_checks
import pytest
from fake_grid import FakeGrid, in_a_run
from pages import blocks

import flower_pca
from flower_pca import ConfigError, clients, registry, simulate, strategies
from flower_pca.cli import main

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.clientapp import ClientApp

PAGE = "docs/adding-an-algorithm.md"
BLOCKS = blocks(PAGE, "python")


@pytest.fixture
def guide_module(tmp_path, monkeypatch):
    """The guide's first block, as a module of its own."""
    path = tmp_path / "guide_example.py"
    path.write_text(BLOCKS[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("guide_example", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "guide_example", module)
    spec.loader.exec_module(module)
    for table in (registry.TABLE, registry.ALGORITHMS, registry.STAGES):  # Restore them after the test.
        monkeypatch.setitem(table, "momentum", None)
        del table["momentum"]
    for package, name in ((flower_pca, "Momentum"), (strategies, "Momentum"), (clients, "MomentumClient")):
        monkeypatch.setitem(vars(package), name, None)
        del vars(package)[name]
    return module


@pytest.fixture
def momentum(guide_module):
    """The class of that module, listed for the time of a test."""
    registry.register(guide_module.Momentum)
    return guide_module.Momentum


def falling_rows(seed=0, n=150, d=14):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ np.diag(0.75 ** np.arange(d)) + rng.standard_normal(d)


def truth(X, k):
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]


def test_the_guide_tries_what_it_has_written(guide_module, monkeypatch):
    monkeypatch.setitem(sys.modules, "momentum", guide_module)
    exec(compile(BLOCKS[1], PAGE, "exec"), {"__name__": "page"})
    assert len(BLOCKS) == 2


SHARED = [*checks.FOR_ALL, *checks.FOR_EXACT, *protocol_checks.FOR_ALL]


@pytest.mark.parametrize("check", SHARED, ids=lambda check: check.__name__)
def test_the_example_passes_the_shared_checks(momentum, check, tmp_path):
    check("momentum", 0, tmp_path)


def test_the_example_is_found_by_name_everywhere(momentum):
    assert registry.make("momentum(oversample=4)") == momentum(oversample=4)
    assert flower_pca.Momentum is momentum
    assert {"Momentum"} <= set(flower_pca.__all__) & set(dir(flower_pca))
    assert strategies.Momentum.name == "momentum"
    assert clients.MomentumClient.algorithms == ("momentum",)
    with pytest.raises(ConfigError, match=r"'oversampel'.*Did you mean 'oversample'"):
        strategies.Momentum(oversampel=2)


@pytest.mark.slow
def test_its_strategy_and_client_give_the_bits_of_simulate(momentum):
    shards = np.split(falling_rows(), [40, 90])

    def client_fn(context):
        return clients.MomentumClient(shards[context.node_config["partition-id"]], context=context).to_client()

    with in_a_run():
        result = strategies.Momentum(n_components=3, oversample=4).fit(FakeGrid(ClientApp(client_fn=client_fn), 3))
    expected = simulate("momentum(oversample=4)", shards, n_components=3, answers="fixed")  # as nodes do
    assert result.algorithm == expected.algorithm
    assert result.components_.tobytes() == expected.components_.tobytes()


@pytest.mark.slow
def test_masks_do_not_change_the_example(momentum):
    shards = np.split(falling_rows(), [40, 90])
    plain, masked = (simulate("momentum", shards, n_components=3, mask=mask) for mask in (False, True))
    assert masked.status.ok
    assert masked.angle_to(plain) < 1e-6
    np.testing.assert_allclose(masked.explained_variance_, plain.explained_variance_, rtol=1e-9)


@pytest.mark.parametrize("mask", [False, True])
def test_the_example_spends_its_budget_and_no_more(momentum, mask):
    X = falling_rows(n=3000)
    noise = {"epsilon": 1e4, "delta": 1e-6, "clip": 30.0, "noise_seed": 1}
    spec = f"dp({', '.join(f'{name}={value}' for name, value in noise.items())})"
    result = simulate("momentum(max_rounds=4)", np.split(X, [1000, 2000]), n_components=2, dp=spec, mask=mask)
    assert result.status.outcome.value == "budget_spent"
    assert result.privacy.epsilon <= noise["epsilon"]
    assert result.rounds == 4
    assert result.angle_to(truth(X, 2)) < 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_runs_and_lists_it(momentum, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", falling_rows())
    given = ["--clients", "3", "--components", "3", "--algorithm", "momentum(oversample=4)", "--json"]
    given += ["--out", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "rows.npy"), *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["algorithm"] == "momentum(oversample=4)"
    assert main(["list", "--json"]) == 0
    (listed,) = [one for one in json.loads(capsys.readouterr().out) if one["algorithm"] == "momentum"]
    assert listed["takes"] == ["mask", "dp"]
    assert listed["prefer"].startswith("as an exercise")


@pytest.mark.parametrize("cuts", [[], [75], [5, 10], [1, 2, 100]])
@pytest.mark.parametrize("k", [1, 3, 14])
def test_the_example_finds_the_pooled_components_for_any_partition(momentum, cuts, k):
    X = falling_rows()
    result = simulate("momentum(tol=1e-10)", np.split(X, cuts), n_components=k)
    assert result.status.ok, result.status
    assert result.angle_to(truth(X, k)) < 1e-7
    assert np.allclose(result.components_ @ result.components_.T, np.eye(k), atol=1e-12)


def test_the_example_opens_again_when_a_client_leaves(momentum):
    shards = np.split(falling_rows(), [50, 100])
    result = simulate("momentum", shards, n_components=2, fraction=lambda message: [0, 1, 2] if message < 3 else [0, 1])
    assert result.n_samples_ == 100
    assert result.angle_to(truth(np.vstack(shards[:2]), 2)) < 1e-4
