"""The promises of every algorithm about its halves: messages, states, files, and reproducible bits. See checks.py."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from builders import SPECTRUM, Array, Problem, StopError, deal, mixed, rows, sine, stop_after, three_clients
from checks import Check, beside, brief, other_values

from flower_pca import PCAResult, make, simulate
from flower_pca.base import files
from flower_pca.blocks import source
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.kinds import Kind
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage
from flower_pca.registry import closing_of, entry_of
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages.opening import Opening

Answer = Callable[[Stage[Any], Arrays, Frame, Array, Arrays], tuple[Arrays, Arrays]]


def same_bits(a: PCAResult, b: PCAResult) -> None:
    for key in ("components_", "explained_variance_", "residuals_", "mean_"):
        np.testing.assert_array_equal(getattr(a, key), getattr(b, key), strict=True)
    assert (a.total_variance_, a.mse_, a.rounds, a.status) == (b.total_variance_, b.mse_, b.rounds, b.status)
    steps = ([(r.number, r.stage, r.answered, r.bytes_up, r.metrics) for r in x.history] for x in (a, b))
    assert next(steps) == next(steps)


def repeatable(name: str, seed: int, folder: Path) -> None:
    problem = mixed(seed)
    a, b = (simulate(brief(name, 4), problem.shards, n_components=3, seed=seed) for _ in range(2))
    same_bits(a, b)


def storage_does_not_matter(name: str, seed: int, folder: Path) -> None:
    d = 12
    for n, block in ((90, 2**20), (4500, 2**20), (4500, 2**14)):  # framed again, kept, and in more than one block
        X = rows(n, SPECTRUM[:d], seed=seed) + 1.0
        X[np.abs(X) < 1.0] = 0.0
        shards, mapped = deal(X, (n - n // 3, n // 3)), []
        for i, S in enumerate(shards):
            np.save(folder / f"{n}.{i}.npy", S)
            mapped.append(np.load(folder / f"{n}.{i}.npy", mmap_mode="r"))
        thin = [scipy.sparse.csr_array(S) for S in shards]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "_BLOCK", block)
            plain, again, sparse = (
                simulate(brief(name, 2), held, n_components=3, seed=seed) for held in (shards, mapped, thin)
            )
        same_bits(again, plain)
        assert sine(sparse.components_, plain.components_) <= 1e-10
        np.testing.assert_allclose(sparse.explained_variance_, plain.explained_variance_, rtol=1e-10)


def spec_round_trips(name: str, seed: int, folder: Path) -> None:
    values = other_values(name)
    assert values
    for algorithm in (make(name), *(make(name, **{**beside(name, key), key: value}) for key, value in values.items())):
        assert make(algorithm.spec) == algorithm
    assert make(name).spec == name


def resumes_exactly(name: str, seed: int, folder: Path) -> None:
    """Interrupted after every message in turn, the run ends on the same bits."""
    shards, algorithm = [X[:200] for X in three_clients(seed).shards], brief(name, 4)

    def run(stop: int | None = None) -> PCAResult:
        path = folder / "run.npz"
        return simulate(
            algorithm,
            shards,
            n_components=3,
            seed=seed,
            reconstruction_error=True,
            checkpoint=path,
            on_round=stop_after(stop),
        )

    whole = run()
    assert len(whole.history) >= 3
    for stop in range(1, len(whole.history) + 1):
        try:
            run(stop)
        except StopError:
            same_bits(run(), whole)
        else:
            raise AssertionError(f"the run was not stopped at message {stop}")


def walk(algorithm: Algorithm[Any], problem: Problem, seed: int, answer: Answer) -> Iterator[tuple[Any, Any, Model]]:
    """A run in ten lines, with every client answering through `answer`; yields stage, state and model."""
    model = Model(n_components=problem.k, center=True, scale=None, seed=seed)
    memories: list[Arrays] = [{} for _ in problem.shards]
    first = entry_of(type(algorithm)).opening(width=algorithm.width(problem.k))
    for stage in (first, algorithm, closing_of(algorithm)()):
        state = stage.start(model)
        yield stage, state, model
        while stage.status(state) is None:
            total, merge = None, stage.merging(state)
            for i, X in enumerate(problem.shards):
                arrays = {**stage.broadcast(state), **stage.personal(state).get(i, {})}
                up, memories[i] = answer(stage, arrays, model.frame, X, memories[i])
                total = merge(total, i, up)
            state = stage.server(state, total, frozenset(range(len(problem.shards))))
            yield stage, state, model
        model = stage.finish(state, model)
    yield None, None, model


def _plain(stage: Stage[Any], arrays: Arrays, frame: Frame, X: Array, memory: Arrays) -> tuple[Arrays, Arrays]:
    return stage.client(arrays, LocalData(X).in_frame(frame), memory)


def state_saves_and_loads(name: str, seed: int, folder: Path) -> None:
    for stage, state, model in walk(brief(name, 7), mixed(seed), seed, _plain):
        for value, kind in ((state, type(state) if stage is None else stage.State), (model, Model)):
            arrays: dict[str, Array] = {}
            text = json.dumps(files.pack_value(value, arrays, "x"))
            again = files.unpack_value(kind, json.loads(text), {key: a.copy() for key, a in arrays.items()})
            repacked: dict[str, Array] = {}
            assert json.dumps(files.pack_value(again, repacked, "x")) == text
            assert type(again) is type(value)
            assert repacked.keys() == arrays.keys()
            for key, a in arrays.items():
                np.testing.assert_array_equal(repacked[key], a, strict=True)
            for f in fields(value) if value is not None else ():
                assert type(getattr(again, f.name)) is type(getattr(value, f.name)), f.name


def _bytes(arrays: Arrays) -> Arrays:
    """What a message carries: no object is shared, and nothing can be written to."""
    return {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in arrays.items()}


def _wary(stage: Stage[Any], arrays: Arrays, frame: Frame, X: Array, memory: Arrays) -> tuple[Arrays, Arrays]:
    assert isinstance(inspect.getattr_static(type(stage), "client"), staticmethod)
    data, kept = LocalData(_bytes({"X": X})["X"]).in_frame(frame), _bytes(memory)
    first, again = (type(stage).client(_bytes(arrays), data, kept) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], strict=True)
    return first


def client_reads_only_its_message(name: str, seed: int, folder: Path) -> None:
    """The static half, given read-only copies of bytes, twice: the same bits, and the bits of the ordinary run."""
    problem, algorithm = mixed(seed), brief(name, 7)
    *_, (_, _, model) = walk(algorithm, problem, seed, _wary)
    result = simulate(algorithm, problem.shards, n_components=3, center=True, seed=seed)
    np.testing.assert_array_equal(np.abs(model.columns[:, :3].T), np.abs(result.components_))


def answers_are_what_the_parts_say(name: str, seed: int, folder: Path) -> None:
    """Names, shapes, and n; products are products; where sums do, no side is open; messages are what they ask."""
    problem, algorithm = mixed(seed), brief(name, 7)

    def answer(stage: Stage[Any], arrays: Arrays, frame: Frame, X: Array, memory: Arrays) -> tuple[Arrays, Arrays]:
        data = LocalData(X).in_frame(frame)
        assert arrays.keys() <= stage.asks.keys()
        for key, a in arrays.items():
            ask = stage.asks[key]
            assert ask.fault(np.asarray(a)) is None, key
            assert not ask.by_column or len(a) == data.d, key
        up, kept = stage.client(arrays, data, memory)
        parts = stage.parts(arrays, data.d)
        assert up.keys() == parts.keys()
        for key, part in parts.items():
            assert all(side in (None, is_) for side, is_ in zip(part.shape, up[key].shape, strict=True)), key
            assert (part.kind is Kind.ROWS) == (key == "n")
            if part.kind is Kind.ROWS:
                assert up[key] == data.n
            if part.kind is Kind.PRODUCT:
                others = [up[beside] for beside, p in parts.items() if p.kind is Kind.BLOCK]
                block = [*others, *(a for a in arrays.values() if a.shape == up[key].shape)][0]
                true = data.matmat(block)
                np.testing.assert_allclose(up[key], true, rtol=0.0, atol=1e-9 * np.abs(true).max())
        if stage.bounded:
            assert sum(part.kind is not Kind.ROWS for part in parts.values()) == 1
        return up, kept

    for stage, state, model in walk(algorithm, problem, seed, answer):
        if stage is None or stage.name == Opening.name or not algorithm.additive or stage.status(state) is not None:
            continue
        parts = stage.parts(stage.broadcast(state), model.d)
        assert not any(part.open for part in parts.values())
        assert stage.bounds(state, model).keys() == parts.keys()


FOR_ALL: tuple[Check, ...] = (
    repeatable, storage_does_not_matter, resumes_exactly, state_saves_and_loads, client_reads_only_its_message,
    answers_are_what_the_parts_say, spec_round_trips,
)  # fmt: skip
