"""The worked example of CONTRIBUTING.md is an algorithm like any other, under Flower too."""

import importlib.util
import sys
import warnings

import numpy as np
import pytest
from builders import leading, rows
from fake_grid import FakeGrid, in_a_run
from pages import blocks

from flower_pca import registry, simulate
from flower_pca.clients import named as clients_named
from flower_pca.strategies import named as strategies_named

with warnings.catch_warnings():  # what Flower's own imports warn of is not ours to mend
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.clientapp import ClientApp

PAGE = "CONTRIBUTING.md"
BLOCKS = blocks(PAGE, "python")


@pytest.fixture
def algorithm(tmp_path, monkeypatch):
    """The class of the guide's first block, from a module as it would be one, listed for the time of a test."""
    monkeypatch.setattr(registry, "STAGES", dict(registry.STAGES))
    monkeypatch.setattr(registry, "ALGORITHMS", dict(registry.ALGORITHMS))
    path = tmp_path / "guide_example.py"
    path.write_text(BLOCKS[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("guide_example", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "guide_example", module)
    spec.loader.exec_module(module)
    registry.STAGES["momentum"] = registry.ALGORITHMS["momentum"] = module.Momentum
    return module.Momentum


ROWS = rows(150, 0.75 ** np.arange(14), seed=0) + 1.0


def test_the_guide_tries_what_it_has_written(algorithm):
    namespace = dict(vars(sys.modules[algorithm.__module__]))
    exec(compile(BLOCKS[1], PAGE, "exec"), namespace)
    assert len(BLOCKS) == 4


def test_its_strategy_and_its_client_find_what_simulate_finds(algorithm):
    strategies, nodes = dict(vars(strategies_named)), dict(vars(clients_named))
    exec(compile(BLOCKS[2], PAGE, "exec"), strategies)
    exec(compile(BLOCKS[3], PAGE, "exec"), nodes)
    shards = np.split(ROWS, [40, 90])

    def client_fn(context):
        return nodes["MomentumClient"](shards[context.node_config["partition-id"]], context=context).to_client()

    with in_a_run():
        result = strategies["Momentum"](n_components=3, oversample=4).fit(FakeGrid(ClientApp(client_fn=client_fn), 3))
    expected = simulate("momentum(oversample=4)", shards, n_components=3)
    assert result.algorithm == expected.algorithm
    assert result.components_.tobytes() == expected.components_.tobytes()


@pytest.mark.parametrize("cuts", [[], [75], [5, 10], [1, 2, 100]])
@pytest.mark.parametrize("k", [1, 3, 14])
def test_it_finds_the_pooled_components_however_the_rows_are_cut(algorithm, cuts, k):
    X = ROWS
    result = simulate("momentum(tol=1e-10)", np.split(X, cuts), n_components=k)
    assert result.status.ok, result.status
    assert result.angle_to(leading([X], k)) < 1e-7
    assert np.allclose(result.components_ @ result.components_.T, np.eye(k), atol=1e-12)


def test_it_resumes_bit_for_bit(algorithm, tmp_path):
    shards, path = np.split(ROWS, [40]), tmp_path / "run.ckpt"
    whole = simulate("momentum(oversample=3)", shards, n_components=3)

    class InterruptionError(Exception):
        pass

    def interrupt(session):
        if len(session.history) == 4:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        simulate("momentum(oversample=3)", shards, n_components=3, checkpoint=path, on_round=interrupt)
    resumed = simulate("momentum(oversample=3)", shards, n_components=3, checkpoint=path)
    assert len(whole.history) > 4
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.explained_variance_.tobytes() == whole.explained_variance_.tobytes()


def test_it_opens_again_when_a_client_leaves(algorithm):
    shards = np.split(ROWS, [50, 100])
    result = simulate(
        "momentum", shards, n_components=2, participation=lambda message: [0, 1, 2] if message < 3 else [0, 1]
    )
    assert result.n_samples_ == 100
    assert result.angle_to(leading(shards[:2])) < 1e-4


def test_its_spec_reads_back(algorithm):
    assert registry.make(algorithm(oversample=4, tol=1e-9).spec) == algorithm(oversample=4, tol=1e-9)
