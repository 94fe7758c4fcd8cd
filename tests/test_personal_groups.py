"""Test groups of clients, advice on ranks, comparisons and pictures of a personalized result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import rotation
from sklearn import manifold
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from flower_pca import ConfigError, PersonalResult, simulate
from flower_pca.analysis.groups import clusters, distances, embed, shares
from flower_pca.comparison.ranks import alternatives, rank_table
from flower_pca.plots.personal import client_map, pictures
from sims.personal import methods, problems
from sims.personal.problems import Setting

PNG = b"\x89PNG"


def personal(setting: Setting, n: int, seed: int, **settings: Any) -> tuple[problems.Split, PersonalResult]:
    split = setting.draw([n] * setting.clients, seed)[0]
    algorithm = f"exact_per_pca(local_components={setting.r2})"
    result = simulate(algorithm, split.shards, n_components=setting.r1, seed=910, **{"center": False, **settings})
    assert isinstance(result, PersonalResult)
    return split, result


def test_shares_of_rows_are_mean_squares_along_shared_and_own_components_and_outside_both() -> None:
    split, result = personal(Setting(d=9, r1=2, r2=1, clients=3), 40, 5)
    found = shares(result, split.shards)
    assert found is not None
    P = result.components_.T @ result.components_
    for i, X in enumerate(split.shards):
        own = result.local_components_of(i)
        parts = [X @ P, X @ own.T @ own, X - X @ P - X @ own.T @ own]
        squares = [np.mean(np.sum(part**2, axis=1)) for part in parts]
        np.testing.assert_allclose([found.shared[i], found.own[i], found.rest[i]], squares, rtol=1e-6)


def test_rows_are_the_sum_of_their_parts_and_come_back_from_their_scores() -> None:
    split, r = personal(Setting(d=9, r1=2, r2=1, clients=3), 40, 5, center=True, scale="std")
    X, V = split.shards[1], r.local_components_of(1)
    F, parts = (X - r.mean_) / r.scale_, r.split(X, client=1)
    np.testing.assert_allclose(parts.shared, F @ r.components_.T @ r.components_ * r.scale_, atol=1e-12)
    np.testing.assert_allclose(parts.own, F @ V.T @ V * r.scale_, atol=1e-12)
    np.testing.assert_allclose(sum(parts), X - r.mean_, atol=1e-12)
    back = r.inverse_transform(r.transform(X, client=1), client=1)
    np.testing.assert_allclose(back, r.mean_ + parts.shared + parts.own, atol=1e-12)


def test_distances_are_those_of_projections() -> None:
    rng = np.random.default_rng(1)
    own = [np.linalg.qr(rng.standard_normal((9, r)))[0].T for r in (3, 3, 2, 4, 3)]
    own.append(rotation(3, 2) @ own[0])  # the same space in another basis
    rho = distances(own)
    P = [V.T @ V for V in own]
    for i in range(6):
        for j in range(6):
            expected = np.linalg.norm(P[i] - P[j]) / np.sqrt(len(own[i]) + len(own[j]))
            assert abs(rho[i, j] - expected) <= 1e-7
    np.testing.assert_array_equal(rho, rho.T)
    assert rho[0, 5] <= 1e-7
    assert distances([np.eye(4)[:2], np.eye(4)[2:], np.zeros((0, 4))])[0, 1] == 1.0


def test_scaling_finds_points_that_are_in_a_plane() -> None:
    points = np.random.default_rng(2).standard_normal((20, 2)) / 6.0
    rho = np.linalg.norm(points[:, None] - points[None], axis=2)
    found = embed(rho)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found[None], axis=2), rho, atol=1e-12)
    if not hasattr(manifold, "ClassicalMDS"):
        pytest.skip("scikit-learn has it from 1.8 on")
    reference = manifold.ClassicalMDS(n_components=2, metric="precomputed").fit_transform(rho)
    np.testing.assert_allclose(np.abs(found), np.abs(reference), atol=1e-10)


@pytest.mark.slow
def test_ten_groups_are_found_after_one_round() -> None:
    """As in the paper's Fig. 9, with exact own components; the reference is scikit-learn's own clustering."""
    setting, true = Setting(r2=3, axes=10), np.arange(100) % 10
    for seed in (0, 1):
        _, result = personal(setting, 100, seed, max_rounds=7)  # Six rounds are for the start.
        assert len(result.history.of("exact_per_pca")) == 7
        rho = distances([result.local_components_of(i) for i in range(100)])
        assert adjusted_rand_score(true, clusters(rho, 10, seed=3)) >= 0.99
        reference = SpectralClustering(10, affinity="precomputed", random_state=3).fit_predict((1 - rho**2) ** 2)
        assert adjusted_rand_score(true, reference) >= 0.99


def test_clustering_without_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(ConfigError, match=r'scikit-learn is needed to cluster.*"flower-pca\[sklearn\]"'):
        clusters(np.zeros((3, 3)), 2)


@pytest.mark.slow
def test_the_table_of_ranks_shows_the_true_ones() -> None:
    """The error falls to the noise at (2, 3), and theta falls beyond it."""
    setting = Setting(d=12, r1=2, r2=3, clients=15, noise=0.01)
    split, test = setting.draw(200, seed=3, test=100)
    table = {
        (r.shared, r.own): r
        for r in rank_table(split.shards, [(1, 3), (2, 2), (2, 3), (2, 5)], test=test, center=False)
    }
    noise = 0.01 * (12 - 5)
    assert abs(table[2, 3].error / noise - 1.0) <= 0.05
    assert min(table[1, 3].error, table[2, 2].error) > 10.0 * noise
    assert table[2, 5].error > 0.7 * noise
    assert table[2, 5].theta < table[2, 3].theta - 0.1
    assert abs(table[2, 3].theta - split.theta) <= 0.02
    seen = rank_table(split.shards, [(2, 3)], seed=4, center=False)[0]
    bases = methods.joined(split.U, split.V)
    assert seen.error <= methods.rebuilt(split.shards, bases).mean()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize("center", [False, True])
def test_the_comparison_is_that_of_plain_numpy(center: bool, scale: str | None) -> None:
    split, result = personal(Setting(d=10, r1=2, r2=2, clients=6), 80, 5, center=center, scale=scale)
    framed = [(X - result.mean_) / (1.0 if result.scale_ is None else result.scale_) for X in split.shards]
    S = methods.covariances(framed)
    expected = {
        "personalized": methods.joined(result.components_.T, [result.local_components_of(i).T for i in range(6)]),
        "indivPCA": methods.indiv_pca(S, 4),
        "CPCA": methods.cpca(S, [80] * 6, 4),
        "distPCA": methods.joined(*methods.dist_pca(S, 2, 2, 4)),
    }
    found = alternatives(result, split.shards)
    assert list(found) == list(expected)
    for name, bases in expected.items():
        np.testing.assert_allclose(found[name], methods.rebuilt(framed, bases), rtol=1e-6)
    assert found["indivPCA"].mean() < found["personalized"].mean() < found["CPCA"].mean()


@pytest.mark.slow
def test_pictures_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    split, result = personal(Setting(d=12, r1=1, r2=2, clients=5), 30, 6)
    rho = distances([result.local_components_of(i) for i in range(5)])
    for settings in ({}, {"labels": [0, 1, 0, 1, 0]}, {"names": list("abcde")}):
        assert client_map(rho, tmp_path / "map.png", **settings).read_bytes()[:4] == PNG
    parts = [result.split(split.shards[i][:1], client=i) for i in range(3)]
    assert pictures(parts, tmp_path / "parts.png", shape=(3, 4)).read_bytes()[:4] == PNG
    with pytest.raises(ConfigError, match=r"^labels has .* entries, but there are 5 clients"):
        client_map(rho, tmp_path / "no.png", labels=[1])
    for bad, why in (([], "There are no images to draw"), (parts, "Images of 3 x 3 pixels have 9 values")):
        with pytest.raises(ConfigError, match=why):
            pictures(bad, tmp_path / "no.png", shape=(3, 3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["map.png", "parts.png"]
