"""Test personalized PCA over Flower: the same bits as in process, and own components sent only with consent."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array
from fake_grid import FakeGrid, app_of, arrays_in, in_a_run
from flwr.clientapp import ClientApp

from flower_pca import NotEnoughNodes, PCAResult, PersonalResult, ProtocolError, simulate
from flower_pca.analysis.groups import distances
from flower_pca.clients import PCAClient
from flower_pca.clients.storage.folders import local_file
from flower_pca.strategies import ExactPerPCA, PCAStrategy
from sims.personal.problems import Setting, halves

pytestmark = pytest.mark.slow

SETTING = Setting(d=9, r1=2, r2=2, clients=6)
SHARDS: list[Array] = SETTING.draw(halves(6, 120), seed=21)[0].shards
EXACT, SHORT = "exact_per_pca(local_components=2)", "exact_per_pca(local_components=2, max_rounds=6)"
UNMEASURED = "theta not measured, because fewer than two nodes agreed (share_local); run with mask=True to measure it"


def same_personal(a: Any, b: Any) -> None:
    for name in ("components_", "explained_variance_", "collected_", "error_", "theta_estimate_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert (a.rounds, a.status, a.algorithm) == (b.rounds, b.status, b.algorithm)


@functools.cache
def in_process(algorithm: str) -> PersonalResult:
    """The same run in process, where clients keep nothing to themselves."""
    result = simulate(algorithm, SHARDS, n_components=2, seed=5)
    assert isinstance(result, PersonalResult)
    return result


def collected(grid: FakeGrid, **settings: Any) -> PersonalResult:
    result = PCAStrategy(n_components=2, seed=5, **settings).fit(grid)
    assert isinstance(result, PersonalResult)
    return result


@pytest.mark.parametrize("algorithm", [EXACT, "per_pca(local_components=2, max_rounds=9)"])
def test_flower_gives_the_bits_of_a_run_in_process(algorithm: str, tmp_path: Path) -> None:
    reference = in_process(algorithm)
    with in_a_run():
        result = collected(FakeGrid(app_of(SHARDS, output_dir=tmp_path, share_local=True), 6), algorithm=algorithm)
    same_personal(result, reference)
    assert result.local == {}
    for i in range(6):
        with np.load(local_file(tmp_path, i)) as file:
            for name, expected in reference.local[i].items():
                np.testing.assert_array_equal(file[name], expected, strict=True)
            scores = result.transform(SHARDS[i], client=file["components"])
        np.testing.assert_array_equal(scores, reference.transform(SHARDS[i], client=i))  # type: ignore[call-arg]


def test_a_named_strategy_takes_the_parameters_of_both() -> None:
    with in_a_run():
        strategy = ExactPerPCA(n_components=2, seed=5, local_components=2, min_nodes=6)
        result = strategy.fit(FakeGrid(app_of(SHARDS, share_local=True), 6))
    same_personal(result, in_process(EXACT))


def test_own_components_come_up_only_from_nodes_that_agree() -> None:
    algorithm = f"{EXACT[:-1]}, collect=True)"
    reference = simulate(algorithm, SHARDS, n_components=2, seed=5)
    assert isinstance(reference, PersonalResult)
    with in_a_run():
        open_ = collected(FakeGrid(app_of(SHARDS, share_local=True), 6), algorithm=algorithm)
        closed = collected(FakeGrid(app_of(SHARDS), 6), algorithm=algorithm)
    same_personal(open_, reference)
    for i in range(6):
        np.testing.assert_array_equal(open_.collected_[i], reference.local_components_of(i))
    np.testing.assert_allclose(
        distances(list(open_.collected_)), distances([reference.local_components_of(i) for i in range(6)]), atol=1e-12
    )
    np.testing.assert_array_equal(closed.collected_, np.zeros((6, 2, 9)))
    np.testing.assert_array_equal(closed.components_, reference.components_)


def test_uploads_to_start_from_come_only_from_nodes_that_agree() -> None:
    algorithm = f"{EXACT[:-1]}, init='upload')"
    with in_a_run():
        same_personal(
            collected(FakeGrid(app_of(SHARDS, share_local=True), 6), algorithm=algorithm),
            simulate(algorithm, SHARDS, n_components=2, seed=5),
        )
        with pytest.raises((ProtocolError, NotEnoughNodes), match="No node has sent components for init="):
            collected(FakeGrid(app_of(SHARDS), 6), algorithm=algorithm)


def listened(grid: FakeGrid) -> list[tuple[int, dict[str, Array]]]:
    """What the server will have got: a list that fills up with the node and the arrays of every answer."""
    heard: list[tuple[int, dict[str, Array]]] = []

    def tamper(message: Any, reply: Any) -> Any:
        i = int(grid.nodes[message.metadata.dst_node_id].node_config["partition-id"])
        heard.append((i, arrays_in(reply)))
        return reply

    grid.tamper = tamper
    return heard


def partly(agreeing: Collection[int]) -> ClientApp:
    """Nodes of which these agree to share what is their own."""

    def client_fn(context: Any) -> Any:
        i = int(context.node_config["partition-id"])
        return PCAClient(SHARDS[i], context=context, share_local=i in agreeing).to_client()

    return ClientApp(client_fn=client_fn)


def overlap(own: Sequence[Array]) -> float:
    """lambda_max of the mean of V_iV_i', rows of `own` being the columns of V_i."""
    return float(np.linalg.eigvalsh(np.mean([rows.T @ rows for rows in own], axis=0))[-1])


@pytest.mark.parametrize("algorithm", [EXACT, "per_pca(max_rounds=9)"])
def test_without_consent_the_probe_is_answered_by_zeros_and_nothing_else_changes(
    algorithm: str, tmp_path: Path
) -> None:
    reference = in_process(algorithm)
    with in_a_run() as lines:
        grid = FakeGrid(app_of(SHARDS, output_dir=tmp_path), 6)
        heard = listened(grid)
        result = collected(grid, algorithm=algorithm)
    answers = [arrays for _, arrays in heard if "Vb" in arrays]
    assert {"Y", "error"} < set(answers[-1])  # The closing stage is asked for as well.
    assert all(not a["Vb"].any() and not a["probed"].any() for a in answers)
    np.testing.assert_array_equal(result.components_, reference.components_)
    np.testing.assert_array_equal(result.explained_variance_, reference.explained_variance_)
    assert (result.rounds, result.status, result.error_) == (reference.rounds, reference.status, reference.error_)
    for i in range(6):
        with np.load(local_file(tmp_path, i)) as file:
            np.testing.assert_array_equal(file["components"], reference.local_components_of(i))
    assert np.isnan(result.theta_)
    assert np.isnan(result.theta_estimate_)
    assert all("theta" not in record.metrics for record in result.history)
    assert result.table().splitlines()[-1] == UNMEASURED
    assert lines[-1].strip() == UNMEASURED
    back = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert isinstance(back, PersonalResult)
    assert np.isnan(back.theta_)
    assert back.table() == result.table()


@pytest.mark.parametrize("algorithm", [SHORT, "per_pca(local_components=2, eta=0.05, max_rounds=5)"])
def test_theta_is_that_of_all_with_consent_and_under_masks(algorithm: str) -> None:
    reference = simulate(algorithm, SHARDS, n_components=2, seed=5, hide_local=range(6))
    assert isinstance(reference, PersonalResult)
    with in_a_run():
        shared = collected(FakeGrid(app_of(SHARDS, share_local=True), 6), algorithm=algorithm)
        masked = collected(FakeGrid(app_of(SHARDS), 6), algorithm=algorithm, mask=True)
    assert shared.theta_ == reference.theta_
    assert abs(masked.theta_ - reference.theta_) <= 1e-8
    assert reference.table().splitlines()[-1] == f"theta {reference.theta_:.2g}"


@pytest.mark.parametrize("weights", ["equal", "samples"])
def test_theta_is_that_of_the_nodes_that_agree(weights: str) -> None:
    """Each counts the same. So long a run finds the eigenvalue itself, of the own components beside its own U."""
    algorithm = f"{EXACT[:-1]}, weights={weights!r}, tol=0.0, max_rounds=200)"
    agreeing = (0, 2, 5)
    with in_a_run():
        result = collected(FakeGrid(partly(agreeing), 6), algorithm=algorithm, center=False)
    U, own = result.components_.T, []
    for i in agreeing:
        rest = SHARDS[i] - SHARDS[i] @ U @ U.T
        own.append(np.linalg.svd(rest, full_matrices=False)[2][:2])
    last = result.history.of("exact_per_pca")[-1].metrics["theta"]
    assert abs(last - (1.0 - overlap(own))) <= 1e-6
    assert abs(result.theta_ - (1.0 - overlap(own))) <= 1e-6


def test_theta_of_one_node_among_several_is_none() -> None:
    """lambda_max of one projection is 1, whatever the others are."""
    with in_a_run():
        assert np.isnan(collected(FakeGrid(partly((3,)), 6), algorithm=EXACT).theta_)
        pair = collected(FakeGrid(partly((1, 3)), 6), algorithm=EXACT)
    assert 0.0 < pair.theta_ < 0.5


@pytest.mark.parametrize("algorithm", [EXACT, "per_pca(local_components=2)"])
def test_who_agrees_makes_no_difference_where_half_of_the_nodes_are_asked(algorithm: str) -> None:
    """The last answers that stand for those not asked have the count along; a round may well have nobody who agrees."""
    found = []
    with in_a_run():
        for agreeing in ((), (1, 3), range(6)):
            grid = FakeGrid(partly(agreeing), 6)
            found.append(collected(grid, algorithm=f"{algorithm[:-1]}, tol=0.0, max_rounds=15)", fraction=0.5))
    for result in found:
        np.testing.assert_array_equal(result.components_, found[0].components_)
    thetas = [[r.metrics.get("theta", np.nan) for r in result.history] for result in found]
    assert np.isnan(thetas[0]).all()
    assert thetas[1][-2] <= 0.5  # lambda_max of two is 1/2 at least; divided by all six, theta would be above 2/3


@pytest.mark.parametrize("init", ["projection", "random"])
def test_what_a_server_that_computes_still_finds_of_own_components(init: str) -> None:
    """The page on privacy says so: C_iU of the closing less n_i Z_i of the last round lies in the space of V_i."""
    with in_a_run():
        grid = FakeGrid(app_of(SHARDS), 6)
        heard = listened(grid)
        result = collected(grid, algorithm=f"{EXACT[:-1]}, init={init!r})", center=False)
    n, U = len(SHARDS[0]), result.components_.T
    *_, last, closing = [arrays for i, arrays in heard if i == 0]
    found = np.linalg.svd(closing["Y"] / n - last["Z"])[0][:, :2]
    own = np.linalg.svd(SHARDS[0] - SHARDS[0] @ U @ U.T)[2][:2]
    assert np.linalg.norm(found - own.T @ own @ found, 2) <= 1e-4
