"""Test Flower's engine by `flwr run`: the bits of a run in process, clean errors, no process left."""

import types

import numpy as np
import pytest
from builders import shards
from results import assert_same_bits

from flower_pca import ConfigError, DataError, Ray, Stream, simulate, track

pytest.importorskip("ray", reason="the extra `simulation` is not installed")
from flower_pca.simulation import by_command
from flower_pca.simulation import ray as engine_of

pytestmark = [pytest.mark.filterwarnings("ignore")]  # Ray and Flower warn about their own files and processes.

SHARDS = shards((40, 31, 25), [4.0, 3.0, 0.5, 0.3, 0.2, 0.1], seed=2)


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_flwr_run_gives_the_bits_of_a_run_in_process_and_raises_the_servers_error(cluster, monkeypatch):
    started = []
    popen = by_command.subprocess.Popen
    monkeypatch.setattr(by_command.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    engine = Ray(address=cluster, entry="flwr_run")
    assert_same_bits(
        simulate("krylov", SHARDS, n_components=2, backend=engine), simulate("krylov", SHARDS, n_components=2)
    )
    with pytest.raises(DataError, match=r'All rows have the same value in columns 0, 1, 2, so scale="std"'):
        simulate("krylov", [np.ones((5, 3)), np.ones((4, 3))], n_components=1, scale="std", backend=engine)
    assert all(process.poll() is not None for process in started)


def test_flwr_run_is_used_if_flower_has_no_run_simulation(monkeypatch):
    import flwr.simulation

    assert not engine_of._runs_by_command(Ray())
    monkeypatch.delattr(flwr.simulation, "run_simulation")
    assert engine_of._runs_by_command(Ray())
    assert not engine_of._runs_by_command(Ray(entry="run_simulation"))


def test_what_another_process_cannot_do_is_refused():
    engine = Ray(entry="flwr_run")
    for call in (
        lambda: simulate("krylov", SHARDS, n_components=2, backend=engine, on_round=print),
        lambda: track("st_miss", [Stream(X, batch=5) for X in SHARDS], n_components=2, backend=engine, on_round=print),
    ):
        with pytest.raises(ConfigError, match=r"on_round is not called with entry='flwr_run'"):
            call()
    apart = types.SimpleNamespace(shared=None)
    with pytest.raises(ConfigError, match="do not share the folder for temporary files"):
        engine_of._run_by_command(None, 1, apart, engine, None)


def test_a_superlink_that_does_not_begin_and_a_command_that_fails_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(by_command, "_path_of_command", lambda name: "false")
    with (
        pytest.raises(RuntimeError, match="Flower's SuperLink did not start"),
        by_command._superlink(tmp_path, "127.0.0.1:1"),
    ):
        pass
    with pytest.raises(RuntimeError, match="`flwr run` has failed"):
        by_command._run_flwr(["run"], {})
