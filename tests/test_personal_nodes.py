"""Personalized PCA under Flower: the same bits as in process, and what nodes send of their own only if they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array
from fake_grid import FakeGrid, app_of, in_a_run

from flower_pca import NotEnoughNodes, PersonalResult, ProtocolError, simulate
from flower_pca.clients.base import own_file
from flower_pca.groups import distances
from flower_pca.strategies import ExactPerPCA, PCAStrategy
from sims.personal_problems import Setting, halves

SETTING = Setting(d=9, r1=2, r2=2, clients=6)
SHARDS: list[Array] = SETTING.draw(halves(6, 120), seed=21)[0].shards
EXACT = "exact_per_pca(local_components=2)"


def same(a: Any, b: Any) -> None:
    for name in ("components_", "explained_variance_", "collected_", "error_", "theta_estimate_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert (a.rounds, a.status, a.algorithm) == (b.rounds, b.status, b.algorithm)


def collected(grid: FakeGrid, **settings: Any) -> PersonalResult:
    result = PCAStrategy(n_components=2, seed=5, **settings).fit(grid)
    assert isinstance(result, PersonalResult)
    return result


@pytest.mark.parametrize("algorithm", [EXACT, "per_pca(local_components=2, max_rounds=25)"])
def test_flower_gives_the_bits_of_a_run_in_process(algorithm: str, tmp_path: Path) -> None:
    reference = simulate(algorithm, SHARDS, n_components=2, seed=5)
    with in_a_run():
        result = collected(FakeGrid(app_of(SHARDS, output_dir=tmp_path), 6), algorithm=algorithm)
    same(result, reference)
    assert result.own == {}
    for i in range(6):
        with np.load(own_file(tmp_path, i)) as file:
            for name, expected in reference.own[i].items():
                np.testing.assert_array_equal(file[name], expected, strict=True)
            scores = result.transform(SHARDS[i], client=file["components"])
        np.testing.assert_array_equal(scores, reference.transform(SHARDS[i], client=i))  # type: ignore[call-arg]


def test_a_named_strategy_takes_the_parameters_of_both() -> None:
    with in_a_run():
        strategy = ExactPerPCA(n_components=2, seed=5, local_components=2, min_nodes=6)
        same(strategy.fit(FakeGrid(app_of(SHARDS), 6)), simulate(EXACT, SHARDS, n_components=2, seed=5))


def test_own_components_come_up_only_from_nodes_that_agree() -> None:
    algorithm = f"{EXACT[:-1]}, collect=True)"
    reference = simulate(algorithm, SHARDS, n_components=2, seed=5)
    assert isinstance(reference, PersonalResult)
    with in_a_run():
        open_ = collected(FakeGrid(app_of(SHARDS, share_own=True), 6), algorithm=algorithm)
        closed = collected(FakeGrid(app_of(SHARDS), 6), algorithm=algorithm)
    same(open_, reference)
    for i in range(6):
        np.testing.assert_array_equal(open_.collected_[i], reference.own_components(i))
    np.testing.assert_allclose(
        distances(list(open_.collected_)), distances([reference.own_components(i) for i in range(6)]), atol=1e-12
    )
    np.testing.assert_array_equal(closed.collected_, np.zeros((6, 2, 9)))
    np.testing.assert_array_equal(closed.components_, reference.components_)


def test_uploads_to_start_from_come_only_from_nodes_that_agree() -> None:
    algorithm = f"{EXACT[:-1]}, init='upload')"
    with in_a_run():
        same(
            collected(FakeGrid(app_of(SHARDS, share_own=True), 6), algorithm=algorithm),
            simulate(algorithm, SHARDS, n_components=2, seed=5),
        )
        with pytest.raises((ProtocolError, NotEnoughNodes), match="must be sent by at least one node"):
            collected(FakeGrid(app_of(SHARDS), 6), algorithm=algorithm)
