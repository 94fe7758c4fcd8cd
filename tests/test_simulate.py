"""Test simulate(): its arguments, its history, its evaluation, its checkpoint, and its callback."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from builders import StopError, deal, mixed, pooled, rows, sine, stop_after
from cases import every, paired
from checks import PLAIN
from protocol_checks import same_bits

from flower_pca import ConfigError, Outcome, Ray, simulate
from flower_pca.registry import ALGORITHMS
from flower_pca.simulation.cluster import ray_session
from flower_pca.simulation.ray import _InterruptibleGrid

GOOD = rows(20, [3.0, 2.0, 1.0, 0.5, 0.2], seed=0)


def test_huge_entries_are_not_taken_for_infinite() -> None:
    for scale in (None, "max_abs"):
        reference = pooled([GOOD], scale=scale)
        result = simulate("krylov", [GOOD * 1e60], n_components=1, scale=scale)
        assert sine(result.components_, reference.components[:1]) <= 1e-7


KINDS: dict[str, Callable[[Any], Any]] = {
    "list": lambda X: X.tolist(),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "int64": lambda X: X.astype(np.int64),
    "uint8": lambda X: X.astype(np.uint8),
    "bool": lambda X: X.astype(bool),
    "coo": scipy.sparse.coo_matrix,
    "sparse integers": lambda X: scipy.sparse.csc_array(X.astype(int)),
    "by columns": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
}


@every("kind", KINDS)
def test_rows_of_every_kind_are_simulated(kind: str) -> None:
    X = (np.random.default_rng(0).random((300, 5)) < [0.5, 0.25, 0.05, 0.03, 0.02]).astype(float)
    reference = pooled([X])
    result = simulate("krylov", [KINDS[kind](X[:200]), KINDS[kind](X[200:])], n_components=2)
    assert sine(result.components_, reference.components[:2]) <= (1e-4 if "float" in kind else 1e-7)
    assert result.total_variance_ == pytest.approx(reference.total, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "scale", "name"), paired([0, 1], [None, "std", "max_abs"], PLAIN))
def test_evaluation_is_the_reconstruction_error_of_the_pooled_rows(name: str, scale: str | None, seed: int) -> None:
    problem = mixed(seed)
    reference = pooled(problem.shards, scale=scale)
    result = simulate(name, problem.shards, n_components=3, scale=scale, seed=seed, reconstruction_error=True)
    F = (np.vstack(problem.shards) - reference.mean) / (1.0 if reference.scale is None else reference.scale)
    rest = F - (F @ result.components_.T) @ result.components_
    assert result.mse_ == pytest.approx(np.sum(rest**2) / len(F), rel=1e-10)
    assert result.mse_ == pytest.approx(result.reconstruction_error(np.vstack(problem.shards)), rel=1e-10)
    assert result.history[-1].stage == "evaluate"
    assert result.history[-1].metrics == {"mse": result.mse_}
    assert simulate(name, problem.shards, n_components=3, scale=scale, seed=seed).mse_ is None


def test_history_counts_what_was_sent() -> None:
    shards = deal(GOOD, (10, 6, 4))
    result = simulate("ssi", shards, n_components=2, tol=0.0, max_rounds=4, reconstruction_error=True)
    history = result.history
    assert [r.number for r in history] == list(range(6))
    assert [r.stage for r in history] == ["opening", "ssi", "ssi", "ssi", "ssi", "evaluate"]
    assert result.rounds == len(history.of("ssi")) == 4
    assert {(r.asked, r.answered) for r in history} == {(3, 3)}
    assert not any(r.failures for r in history)
    p, d, frame = 3, 5, 5 * 8  # one column more than components, for the gap
    for r in history.of("ssi"):
        assert r.bytes_up == 3 * (p * d + 1) * 8  # Y and n
        assert r.bytes_down == 3 * (p * d * 8 + frame)
        assert 0.0 <= r.metrics["error"] < 1.0
    assert history[-1].bytes_up == 3 * 2 * 8
    assert history.bytes_up == sum(r.bytes_up for r in history)
    assert history.bytes_down == sum(r.bytes_down for r in history)
    assert all(r.seconds >= 0.0 for r in history)
    assert str(history[1]).startswith("round 1 (ssi): 3/3 clients, error ")


def test_on_round_sees_the_session_after_every_message() -> None:
    shards, seen = deal(GOOD, (10, 6, 4)), []
    V = pooled(shards).components[:2]

    def on_round(session: Any) -> None:
        basis = session.estimate()
        assert basis.shape == (5, 2)
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-13)
        seen.append((len(session.history), sine(basis.T, V)))

    result = simulate("ssi", shards, n_components=2, tol=1e-10, on_round=on_round)
    assert [number for number, _ in seen] == list(range(1, len(result.history) + 1))
    sines = [s for _, s in seen]
    assert sines[-1] <= 1e-8 < 1e-3 < sines[0]


def test_stopping_parameters_reach_the_algorithm() -> None:
    shards = deal(rows(60, 0.95 ** np.arange(30), seed=1), (30, 20, 10))
    short = simulate("ssi", shards, n_components=3, max_rounds=3, tol=1e-12)
    assert (short.rounds, short.status.outcome) == (3, Outcome.MAX_ROUNDS)
    assert short.algorithm == "ssi(tol=1e-12, max_rounds=3)"
    assert simulate("ssi", shards, n_components=3, tol=0.9, min_rounds=7).rounds == 7
    assert simulate("ssi(tol=0.9)", shards, n_components=3).rounds <= 1


def stopped_after_three(path: Path, shards: Any) -> None:
    with pytest.raises(StopError):
        simulate("ssi", shards, n_components=2, checkpoint=path, on_round=stop_after(3))


def test_checkpoint_is_left_behind_and_removed(tmp_path: Path) -> None:
    shards, path = deal(GOOD, (10, 6, 4)), tmp_path / "run.npz"
    stopped_after_three(path, shards)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.npz", "run.npz.newest"]
    seen: list[int] = []
    resumed = simulate(
        "ssi", shards, n_components=2, checkpoint=path, on_round=lambda session: seen.append(len(session.history))
    )
    assert seen[0] == 4  # It continued, and did not start again.
    assert not list(tmp_path.iterdir())
    same_bits(resumed, simulate("ssi", shards, n_components=2, checkpoint=path))
    assert not list(tmp_path.iterdir())


CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "scale": {"scale": "std"},
    "center": {"center": False},
    "tol": {"tol": 1e-3},
    "n_components": {"n_components": 3},
    "algorithm": {"algorithm": "krylov"},
    "evaluate": {"reconstruction_error": True},
    "fraction": {"fraction": 0.5},
    "max_share": {"max_share": 0.6},
}


@pytest.mark.parametrize("change", CHANGES)
def test_checkpoint_of_other_arguments_is_refused(change: str, tmp_path: Path) -> None:
    shards, path = deal(GOOD, (10, 6, 4)), tmp_path / "run.npz"
    stopped_after_three(path, shards)
    kept = path.read_bytes()
    with pytest.raises(ConfigError, match=r"The checkpoint belongs to another run, with .*=.*Repeat that"):
        simulate(**{"algorithm": "ssi", "shards": shards, "n_components": 2, "checkpoint": path, **CHANGES[change]})
    assert path.read_bytes() == kept


@every("address", [None, "auto"])
def test_a_cluster_of_ray_is_named_only_if_the_caller_did(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**given: Any) -> None:
        raise ValueError("no room")

    ray = types.SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    error, words = (ValueError, "^no room$") if address is None else (ConfigError, r"reached at auto \(no room\)")
    with pytest.raises(error, match=words), ray_session(Ray(address=address)):
        pass


def test_the_server_of_an_interrupted_simulation_ends_at_its_next_message() -> None:
    stopped = threading.Event()
    grid: Any = _InterruptibleGrid(stopped, types.SimpleNamespace(get_node_ids=lambda: [1]))
    assert grid.get_node_ids() == [1]
    stopped.set()
    with pytest.raises(SystemExit):
        grid.get_node_ids()


@pytest.mark.slow
def test_simulate_is_imported_without_options_that_most_runs_do_not_have() -> None:
    code = "import sys; from flower_pca import simulate; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = ("vertical", "tracking.tracker", "results.steps", "rows.fixed", "stages.harmonized_opening")
    names = [name.removeprefix("flower_pca.") for name in done.stdout.split()]
    assert [name for name in names if name.startswith(rooms)] == []


def test_thousands_of_tiny_clients() -> None:
    X = rows(4_500, [4.0, 3.0, 1.0, 0.5, 0.2, 0.1], seed=5) + 1.0
    shards = deal(X, [1, 2] * 1500)
    reference = pooled(shards)
    result = simulate("krylov", shards, n_components=2)
    assert {r.asked for r in result.history} == {3_000}
    assert sine(result.components_, reference.components[:2]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:2], rtol=1e-9)
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-12)


def test_a_failure_names_client_stage_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(arrays: Any, data: Any, memory: Any) -> Any:
        raise FloatingPointError("broken")

    monkeypatch.setattr(ALGORITHMS["ssi"], "client", staticmethod(broken))
    with pytest.raises(FloatingPointError) as info:
        simulate("ssi", [rows(20, [3.0, 2.0, 1.0, 0.5, 0.2], seed=0)] * 2, n_components=2)
    assert info.value.__notes__ == ["at client 0 (20 x 5), stage ssi, message 1: {'Z': (5, 3)}"]
