"""Test robust PCA: exact recovery, whichever clients hold the rows, and a warning if there is none."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from builders import gone_on
from cases import paired
from fake_grid import grid_of, in_a_run
from spoilt import ROWS, SMALL, Array, own, pose, rel

from flower_pca import Outcome, PCAResult, RobustResult, make, plots, simulate
from flower_pca.algorithms.robust.base import unseen_entries
from flower_pca.rows.local import LocalData
from flower_pca.strategies import ConsensusRPCA

pytestmark = pytest.mark.slow

CUTS = (3, 10, 40, 41, 90)  # six clients of 3, 7, 30, 1, 49 and 30 rows


@functools.cache
def small(**settings: Any) -> RobustResult:
    """The rows of six clients, once for all that is asked of them."""
    result = simulate("consensus_rpca(gamma=0.7)", np.split(ROWS, CUTS), n_components=5, **settings)
    assert isinstance(result, RobustResult)
    return result


@pytest.mark.parametrize(("gamma", "rounds", "seed"), [(0.7, 40, 0), (0.9, 125, 1)])
def test_exact_recovery_within_the_rounds_it_should_take(gamma: float, rounds: int, seed: int) -> None:
    L, S = pose(250, 12, 0.05, seed)
    algorithm = make("consensus_rpca", gamma=gamma, max_rounds=rounds)
    result = simulate(algorithm, np.array_split(L + S, 2), n_components=12, seed=seed)
    assert rel(result, L) < 1e-6
    assert result.rounds <= rounds


@pytest.mark.parametrize(("r", "s"), [(0.15, 0.15), (0.1, 0.2), (0.2, 0.1)])
def test_the_corners_of_what_can_be_recovered(r: float, s: float) -> None:
    n = 160
    L, S = pose(n, round(n * r), s, seed=11)
    result = simulate("consensus_rpca(max_rounds=150)", np.array_split(L + S, 2), n_components=round(n * r), seed=1)
    assert rel(result, L) <= 1e-5
    assert result.status.ok, result.status
    assert abs(result.outlier_share_ - s) <= 1e-4  # the failure test's measure is the true share of far entries


@pytest.mark.parametrize(("times", "noise"), paired([1.2, 2, 3], [0.0, 0.05]))
def test_the_rank_is_found_where_it_is_only_bounded(noise: float, times: float) -> None:
    L, S = pose(100, 5, 0.05, seed=2)
    X = L + S + noise * np.random.default_rng(3).standard_normal(L.shape)
    result = simulate("consensus_rpca", np.array_split(X, 2), n_components=round(times * 5), seed=5)
    assert result.status.ok, result.status
    assert isinstance(result, RobustResult)
    assert result.rank_ == result.n_components_ == 5
    assert rel(result, L) <= (0.02 if noise else 1e-6)
    np.testing.assert_allclose(
        result.singular_values_, np.linalg.svd(L, compute_uv=False)[:5], rtol=2e-2 if noise else 1e-6
    )


def test_too_few_components_are_told_and_how_many_there_are() -> None:
    """Beside dense noise, too."""
    L, S = pose(100, 5, 0.05, seed=2)
    X = L + S + 0.05 * np.random.default_rng(3).standard_normal(L.shape)
    result = simulate("consensus_rpca", np.array_split(X, 2), n_components=4, seed=5)
    assert result.status.outcome is Outcome.STALLED
    assert result.status.words == "a low-rank part of rank 5 was found: ask for n_components=5"
    assert isinstance(result, RobustResult)
    assert (result.rank_, result.n_components_, result.attempts_) == (5, 4, 3)
    assert rel(result, L) <= 0.02


def test_the_result_does_not_depend_on_who_holds_the_rows() -> None:
    L, S = pose(200, 8, 0.08, seed=3, d=90)
    runs = [
        simulate("consensus_rpca(sigma=2.0, gamma=0.7)", np.array_split(L + S, clients), n_components=8, seed=6)
        for clients in (1, 20)
    ]
    uneven = np.split(L + S, [1, 4, 120])
    runs.append(simulate("consensus_rpca(sigma=2.0, gamma=0.7)", uneven, n_components=8, seed=6))
    for other in runs[1:]:
        assert rel(other, own(runs[0], "L")) <= 1e-12
        np.testing.assert_allclose(other.components_, runs[0].components_, atol=1e-12)
        np.testing.assert_allclose(other.explained_variance_, runs[0].explained_variance_, rtol=1e-12)


def test_components_are_those_of_the_low_rank_part() -> None:
    L, _ = SMALL
    result = simulate("consensus_rpca", np.array_split(ROWS, 2), n_components=5, reconstruction_error=True)
    _, s, Vt = np.linalg.svd(L, full_matrices=False)
    assert isinstance(result, RobustResult)
    assert result.angle_to(Vt[:5]) <= 1e-6
    np.testing.assert_allclose(result.singular_values_, s[:5], rtol=1e-6)
    np.testing.assert_allclose(result.explained_variance_ratio_.sum(), 1.0, rtol=1e-12)
    fewer = simulate("consensus_rpca(oversample=3)", np.array_split(ROWS, 2), n_components=2)
    assert fewer.angle_to(Vt[:2]) <= 1e-6
    assert rel(fewer, L) <= 1e-6  # Clients keep the rows for all five components.


@pytest.mark.parametrize("fraction", [0.5, 0.2])
def test_sampled_clients_still_recover_exactly(fraction: Any) -> None:
    """Six clients of 1 to 49 rows; a share of the rows makes lambda fall by as much less."""
    L, _ = SMALL
    result = simulate("consensus_rpca(gamma=0.8)", np.split(ROWS, CUTS), n_components=5, fraction=fraction)
    assert rel(result, L) <= 1e-6
    assert result.status.ok
    assert result.n_samples_ == 120
    assert sorted(result.local) == list(range(6))


def test_a_round_without_an_answer_keeps_basis_and_threshold() -> None:
    algorithm = make("consensus_rpca", sigma=2.0)
    with in_a_run():
        grid, seen = grid_of(np.split(ROWS, CUTS)), []
        grid.tamper = lambda message, reply: None if 4 <= int(message.metadata.group_id) < 6 else reply
        strategy = ConsensusRPCA(n_components=5, sigma=2.0, round_timeout=0.2, max_rounds=9)

        def look(session: Any) -> None:
            header, arrays = session.checkpoint()
            if session.history[-1].stage == algorithm.name:
                seen.append((arrays["state.attempt.U"].copy(), header["state"]["attempt"]["lam"]))

        with pytest.raises(Exception, match="has excluded 6"):  # Nodes that do not answer twice are not asked again.
            strategy.fit(grid, on_round=look)
    (before, lam), (after, same) = seen[2], seen[3]
    np.testing.assert_array_equal(before, after)
    assert lam == same


@pytest.mark.parametrize("number", [5, 43])
def test_a_node_that_loses_its_memory_finds_back(number: int, tmp_path: Any) -> None:
    """Message 43 is the closing one, in which the node starts from nothing."""
    shards, (L, _) = np.split(ROWS, CUTS), SMALL
    with in_a_run():
        grid = grid_of(shards, output_dir=tmp_path)
        lost = grid.node(4)
        grid.on_push = lambda message: (
            grid.forget(lost)
            if message.metadata.dst_node_id == lost and message.metadata.group_id == str(number)
            else None
        )
        result = ConsensusRPCA(n_components=5, gamma=0.7).fit(grid)
    assert len(result.history) == 44
    assert result.status.ok == (number == 43)  # A disturbed run is not called converged, although this one is right.
    with np.load(tmp_path / "flower_pca-local-4.npz") as file:
        np.testing.assert_allclose(file["L"], L[41:90], atol=1e-4)
    np.testing.assert_allclose(result.singular_values_, np.linalg.svd(L, compute_uv=False)[:5], rtol=1e-5)


def test_a_sampled_run_is_resumed_to_the_bit(tmp_path: Any) -> None:
    """With the answers that the server holds, and with what the clients keep."""
    stop = 60
    whole = small(fraction=0.5, reconstruction_error=True)
    asked = {"fraction": 0.5, "reconstruction_error": True}
    resumed = gone_on(small.__wrapped__, path=tmp_path / "run", stop=[stop], **asked)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    for name in ("V", "L", "S"):
        np.testing.assert_array_equal(own(resumed, name), own(whole, name))


def test_a_client_that_leaves_for_good_is_out_of_the_answer() -> None:
    shards, (L, _) = np.split(ROWS, CUTS), SMALL
    result = simulate(
        "consensus_rpca(gamma=0.7)", shards, n_components=5, fraction=lambda m: range(6) if m < 20 else range(5)
    )
    assert result.n_samples_ == 90
    assert sorted(result.local) == list(range(5))
    assert rel(result, L[:90]) <= 1e-6
    np.testing.assert_allclose(result.singular_values_, np.linalg.svd(L[:90], compute_uv=False)[:5], rtol=1e-6)


def test_the_joint_objective_of_a_threshold_never_rises() -> None:
    """With some answers missing too, once everybody has answered: block coordinate descent."""
    lam, shards = 2.0, [LocalData(X) for X in np.split(ROWS, CUTS)]
    algorithm = make("consensus_rpca", sigma=lam, noise=lam / 2, gamma=0.5)  # Lambda therefore ends at twice the noise.
    rng = np.random.default_rng(0)
    from flower_pca.core.model import Model

    model = Model(n_components=5, center=False, scale=None, seed=1, n=120, d=80, trace=1.0, basis=np.eye(80)[:, :5])
    state, values = algorithm.start(model), []
    memories: list[dict[str, Array]] = [{} for _ in shards]
    for number in range(60):
        arrays, total = algorithm.broadcast(state), None
        if arrays["proof"]:
            break
        here = [0, 2, 5] if number == 4 else range(6) if number < 7 else sorted(rng.choice(6, 2, replace=False))
        for i in here:
            up, memories[i] = algorithm.client(arrays, shards[i], memories[i])
            total = algorithm.merging(state)(total, i, up)
        state = algorithm.server(state, total, frozenset(here))
        if number >= 7:
            assert state.attempt is not None
            U, rho, cut = state.attempt.U, float(arrays["rho"]), float(arrays["cut"])
            R = np.abs(ROWS - np.vstack([m["V"] for m in memories]) @ U.T)
            V2 = sum(np.sum(m["V"] ** 2) for m in memories)
            for i, X in enumerate(shards):
                first = (0, *CUTS)[i] * 80
                R.reshape(-1)[first + unseen_entries(X, seed=1, share=float(arrays["share"])).hidden] = 0.0
            R = np.minimum(R, cut * lam)
            huber = np.sum(np.where(lam >= R, R**2 / 2, lam * R - lam**2 / 2))
            values.append(huber + rho / 2 * (V2 + np.sum(U**2)))
            assert state.attempt.lam == lam
    assert len(values) >= 8
    assert values[-1] < 0.999 * values[0]
    assert (np.diff(values) <= 1e-12 * values[0]).all()


@pytest.mark.parametrize(("ratio", "collapses"), [(0.97, False), (1.03, True)])
def test_the_ridge_at_which_everything_collapses_is_the_norm_of_the_clipped_rows(ratio: float, collapses: bool) -> None:
    lam = 1.0
    clipped = np.where(np.abs(ROWS) > 10.0 * lam, 0.0, np.clip(ROWS, -lam, lam))
    rho = ratio * np.linalg.norm(clipped, 2)
    algorithm = make("consensus_rpca", sigma=lam, gamma=0.999, ridge=rho / (lam * np.sqrt(120)), max_rounds=400)
    result = simulate(algorithm, np.array_split(ROWS, 2), n_components=5)
    assert (result.singular_values_[0] < 1e-3) == collapses
    assert ("has collapsed to zero" in result.status.words) == collapses
    assert not (collapses and result.status.ok)


def test_new_rows_are_seen_through_far_entries() -> None:
    L, S = pose(150, 5, 0.05, seed=4, d=80)  # The factors have another shape, so all rows are drawn again.
    result = simulate("consensus_rpca", np.array_split((L + S)[:120], 2), n_components=5)
    new = (L + S)[120:]
    np.testing.assert_allclose(result.low_rank_part(new), L[120:], atol=1e-4)
    np.testing.assert_allclose(result.sparse_part(new), S[120:], atol=1e-4)
    scores = result.transform(new)
    np.testing.assert_allclose(scores, L[120:] @ result.components_.T, atol=1e-4)
    assert np.abs(new @ result.components_.T - scores).max() > 10.0
    np.testing.assert_allclose(result.transform(scipy.sparse.csr_array(new)), scores, atol=1e-9)


@pytest.mark.parametrize(("center", "scale"), [(False, "max_abs"), (True, None)])
def test_own_parts_add_up_to_the_rows_in_their_own_units(center: bool, scale: str | None) -> None:
    shards = np.split(ROWS + 3.0 * np.arange(80), CUTS)
    result = simulate("consensus_rpca(gamma=0.7)", shards, n_components=6, center=center, scale=scale, hide_local=[1])
    assert sorted(result.local) == [0, 2, 3, 4, 5]
    for i, parts in result.local.items():
        unit = 1.0 if result.scale_ is None else result.scale_
        assert np.abs((parts["L"] + parts["S"] - shards[i]) / unit).max() <= result.threshold_ + 1e-12
        assert parts["V"].shape == (len(shards[i]), 6)


def test_dense_noise_is_left_in_neither_part() -> None:
    L, S = SMALL
    noise = 0.05 * np.random.default_rng(8).standard_normal(L.shape)
    result = simulate("consensus_rpca(noise=0.05, tol=1e-4)", np.array_split(ROWS + noise, 2), n_components=5)
    oracle = np.linalg.svd(L + noise, full_matrices=False)
    best = np.linalg.norm((oracle[0][:, :5] * oracle[1][:5]) @ oracle[2][:5] - L)
    assert np.linalg.norm(own(result, "L") - L) <= 2.0 * best
    assert np.mean((np.abs(own(result, "S")) > 1.0) == (S != 0.0)) == 1.0


def test_saved_and_loaded_with_its_class(tmp_path: Any) -> None:
    result = small()
    back = PCAResult.load(result.save(tmp_path / "robust.npz"))
    assert isinstance(back, RobustResult)
    found = ("threshold_", "spread_", "outlier_share_", "noise_", "rank_", "cut_", "hidden_error_", "attempts_")
    for name in (*found, "status", "rounds", "centered"):
        assert getattr(back, name) == getattr(result, name)
    np.testing.assert_array_equal(back.transform(ROWS[:3]), result.transform(ROWS[:3]))
    np.testing.assert_array_equal(back.outlier_share_by_column_, result.outlier_share_by_column_)
    assert not back.local


def test_a_table_of_what_was_made_of_noise_says_what_its_shares_are_of() -> None:
    noise = np.random.default_rng(0).standard_normal((180, 12))
    result = simulate("consensus_rpca", np.split(noise, 3), n_components=2)
    assert result.status.outcome is Outcome.STALLED
    assert result.summary().components.heads[2] == "share of low-rank part"
    assert plots.figure(result, "scree").axes[0].get_ylabel() == "share of the variance of the low-rank part"


@pytest.mark.parametrize("mask", [False, True])
def test_the_shares_of_far_entries_of_columns_are_those_of_the_rows(mask: bool) -> None:
    brief = "consensus_rpca(gamma=0.7, max_rounds=12)"
    result = simulate(brief, np.split(ROWS, CUTS), n_components=5, mask=True) if mask else small()
    L = np.concatenate([part["L"] for part in result.local.values()])
    np.testing.assert_allclose(
        result.outlier_share_by_column_, np.mean(np.abs(ROWS - L) > 10.0 * result.threshold_, axis=0), rtol=1e-12
    )
    assert result.outlier_share_by_column_.mean() == pytest.approx(result.outlier_share_, rel=1e-12)


def test_flower_gives_the_bits_of_the_loop_in_process(tmp_path: Any) -> None:
    shards, brief = np.split(ROWS, CUTS), {"gamma": 0.7, "max_rounds": 12}
    here = simulate(make("consensus_rpca", **brief), shards, n_components=5, fraction=0.5, reconstruction_error=True)
    with in_a_run():
        grid = grid_of(shards, output_dir=tmp_path)
        there = ConsensusRPCA(**brief, n_components=5, reconstruction_error=True, fraction=0.5).fit(grid)
    names = ("components_", "explained_variance_", "mean_", "residuals_", "outlier_share_by_column_", "removed_share_")
    for name in (*names, "clients_", "client_keys_"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    assert (there.mse_, there.threshold_, there.outlier_share_) == (here.mse_, here.threshold_, here.outlier_share_)
    for i, parts in here.local.items():
        with np.load(tmp_path / f"flower_pca-local-{i}.npz") as file:
            for name in ("V", "L", "S"):
                np.testing.assert_array_equal(file[name], parts[name])


def finite(result: PCAResult) -> bool:
    arrays = [a for parts in result.local.values() for a in parts.values()]
    return all(np.isfinite(a).all() for a in (*arrays, result.components_, result.explained_variance_))


@functools.cache
def run_with_constant(name: str) -> tuple[PCAResult, np.ndarray]:
    """Rows with a column that is the same everywhere, which adds to the rank; and their low-rank part."""
    L, S = (A.copy() for A in SMALL)
    L[:, 7], S[:, 7] = 5.0, 0.0
    return simulate(name, np.array_split(L + S, 2), n_components=6), L


@pytest.mark.parametrize("name", ["consensus_rpca", "dcf_pca"])
def test_awkward_rows_end_in_a_finite_answer(name: str) -> None:
    L, _ = SMALL
    many = L + pose(120, 1, 0.7, seed=9, d=80)[1]
    lost = simulate(name, np.array_split(many, 2), n_components=5)
    assert finite(lost)
    assert not lost.status.ok
    assert finite(run_with_constant(name)[0])
    wrecked = simulate(make(name, ridge=40.0), np.array_split(ROWS, 2), n_components=5)
    assert finite(wrecked)
    assert wrecked.status.outcome is Outcome.STALLED
    assert "Use a smaller ridge" in wrecked.status.words


def test_too_many_outlying_entries_are_reported() -> None:
    L, _ = SMALL
    many = L + pose(120, 1, 0.6, seed=9, d=80)[1]
    result = simulate("consensus_rpca", np.array_split(many, 2), n_components=5)
    assert result.status.outcome is Outcome.STALLED
    assert "no low-rank part of rank up to 5 predicts hidden entries (the error is 0." in result.status.words
    assert "the noise exceeds 0.4 of an ordinary entry, or there are too many outliers" in result.status.words


def test_constant_column_and_single_rows_are_recovered() -> None:
    result, L = run_with_constant("consensus_rpca")
    assert rel(result, L) <= 1e-6


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_the_scale_of_the_rows_does_not_matter(factor: float) -> None:
    shards = [factor * X for X in np.split(ROWS, CUTS)]
    a, b = small(), simulate("consensus_rpca(gamma=0.7)", shards, n_components=5)
    assert a.rounds == b.rounds
    assert rel(b, factor * own(a, "L")) <= 1e-6
    assert b.angle_to(a) <= 1e-6


def test_what_was_taken_out_is_counted_by_column_and_by_client(tmp_path: Any) -> None:
    rng = np.random.default_rng(5)
    rows = [rng.standard_normal((n, 2)) @ rng.standard_normal((2, 12)) for n in (40, 30, 50)]
    rows = [X + np.where(rng.random(X.shape) < 0.05, 30.0, 0.0) + 0.01 * rng.standard_normal(X.shape) for X in rows]
    result = simulate("dcf_pca(max_rounds=15)", rows, n_components=2)
    taken = [result.local[i]["S"] != 0.0 for i in range(3)]
    np.testing.assert_allclose(result.removed_share_, np.vstack(taken).mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(result.client_keys_, range(3))
    np.testing.assert_array_equal(result.clients_[:, 0], (40, 30, 50))
    np.testing.assert_allclose(result.clients_[:, 1], [part.mean() for part in taken], rtol=1e-12)
    assert np.average(result.clients_[:, 2], weights=(40, 30, 50)) == pytest.approx(result.outlier_share_, rel=1e-12)
    back = type(result).load(result.save(tmp_path / "r.npz"))
    np.testing.assert_array_equal(back.clients_, result.clients_)
    masked = simulate("dcf_pca(max_rounds=15)", rows, n_components=2, mask=True)
    assert masked.clients_ is None
    assert type(result).load(masked.save(tmp_path / "m.npz")).clients_ is None


@pytest.mark.parametrize("name", ["dcf_pca", "per_pca"])
def test_a_start_does_not_hang_on_the_last_digit_of_a_mean(name: str) -> None:
    """A mean changes in its last digit with the order in which clients are summed; the start of a client must not."""
    parts = np.split(np.random.default_rng(2).standard_normal((60, 6)) + 3.0, [20, 27, 41])
    algorithm = make(name, max_rounds=2)
    there, back = (simulate(algorithm, order, n_components=2, center=True) for order in (parts, parts[::-1]))
    assert (there.mean_ != back.mean_).any()
    np.testing.assert_allclose(there.components_, back.components_, atol=1e-9)
