"""Test local_components="auto": every client chooses its number from held-out rows, over every transport."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array, gone_on, sine
from cases import every
from results import own_counts
from scipy import sparse
from test_personal_numbers import SHARDS, SHARED, TRUE, D, found_by_nodes, unequal_problem
from test_personal_span import shards_of_all_ranks as degenerate

from benchmarks import own_numbers
from flower_pca import ExactPerPCA, PCAResult, PersonalResult, ProtocolError, registry, simulate
from flower_pca.algorithms.personal import held_out
from flower_pca.rows import fixed, folds
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.measured import Measured
from flower_pca.rows.statistics import Statistics

AUTO = "exact_per_pca(local_components='auto')"
SAID = "Local components: chosen by each client from held-out parts of its rows"
CHOSEN = f"{SAID}: 0 at 2 clients, 1 at 2 clients, 3 at 2 clients"
UNTOLD = f"{SAID}; the numbers are reported only with share_local at the nodes, or with masks"


def run_chosen(algorithm: Any = AUTO, shards: Any = SHARDS, **settings: Any) -> PersonalResult:
    result = simulate(algorithm, shards, **{"n_components": 2, "seed": 7, "center": False, **settings})
    assert isinstance(result, PersonalResult)
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "answers"),
    [
        (AUTO, "rows"),
        (AUTO, "fixed"),
        ("exact_per_pca(local_components='auto', init='upload')", "rows"),
        ("exact_per_pca(local_components='auto', init='qu', local_steps=2)", "fixed"),
        ("per_pca(local_components='auto', tol=1e-5)", "rows"),
    ],
)
def test_the_planted_numbers_are_found(algorithm: str, answers: str) -> None:
    result = run_chosen(algorithm, answers=answers)
    assert own_counts(result) == list(TRUE)
    assert sine(result.components_, SHARED.T) <= 0.05
    assert result.decisions[-1] == CHOSEN
    assert result.local_components == 3


@pytest.mark.slow
@pytest.mark.parametrize(("n", "seed"), [(60, 1), (1000, 2), (60, 3)])
def test_planted_numbers_are_found_in_other_draws(seed: int, n: int) -> None:
    shards, shared, _ = unequal_problem(seed, n)
    result = run_chosen(AUTO, shards)
    assert own_counts(result) == list(TRUE)
    assert sine(result.components_, shared.T) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5])
def test_noise_that_differs_by_column_is_no_direction(seed: int) -> None:
    shards, _, _ = unequal_problem(seed, 400)
    noise = np.random.default_rng(seed)
    uneven = [X + noise.standard_normal(X.shape) * np.linspace(0.2, 0.4, D) for X in shards]
    assert own_counts(run_chosen(AUTO, uneven)) == list(TRUE)


def deviations(kind: str, d: int) -> Array:
    """Of noise in d columns: of ratio 20 and of 100 between the variances of two."""
    kinds = {"alike": np.full(d, 0.2), "evenly": np.linspace(0.12, 0.54, d), "by ratios": np.geomspace(0.05, 0.5, d)}
    return np.asarray(kinds[kind])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n", "d"), [("alike", 60, 60), ("evenly", 200, 30), ("by ratios", 200, 30), ("by ratios", 60, 60)]
)
def test_each_column_is_judged_by_its_own_noise(kind: str, n: int, d: int) -> None:
    """With rows enough to regress columns on each other, and with fewer."""
    shards, shared = own_numbers.problem(deviations(kind, d), n, seed=1)
    result = run_chosen(AUTO, shards)
    assert own_counts(result) == list(own_numbers.TRUE)
    assert sine(result.components_, shared.T) <= 0.15
    assert len(result.history) <= 30


@pytest.mark.parametrize("n", [300, 36])
def test_the_noise_of_columns_is_found_beside_what_they_share(n: int) -> None:
    rng, s = np.random.default_rng(17), deviations("by ratios", 30)
    rows = 3.0 * rng.standard_normal((n, 4)) @ np.linalg.qr(rng.standard_normal((30, 4)))[0].T
    data = LocalData(rows + s * rng.standard_normal((n, 30)))
    ratios = held_out.noise_by_column(fixed.fixed_parts(data), 12) / s**2
    assert 0.5 <= np.median(ratios) <= 1.5
    assert ratios.min() >= 0.2
    assert ratios.max() <= 5.0


def test_columns_of_zeros_and_those_that_are_sums_of_others_have_no_noise() -> None:
    X = np.random.default_rng(18).standard_normal((200, 6))
    rows = np.hstack([X, X[:, :1] + X[:, 1:2], np.zeros((200, 2))])
    found = held_out.noise_by_column(fixed.fixed_parts(LocalData(rows)), 4)
    assert np.isfinite(found).all()
    assert found[[0, 1, 6, 7, 8]].max() <= 1e-6
    np.testing.assert_allclose(found[2:6], 1.0, atol=0.4)


@pytest.mark.slow
def test_a_poor_start_is_put_right() -> None:
    """U moves on from where it began, and what a client sees of it is looked at again."""
    given = np.linalg.qr(SHARED + 0.4 * np.random.default_rng(13).standard_normal(SHARED.shape))[0]
    result = run_chosen(ExactPerPCA(local_components="auto", given=given))
    assert own_counts(result) == list(TRUE)
    assert sine(result.components_, SHARED.T) <= 0.05


@pytest.mark.slow
def test_a_client_that_does_not_see_what_is_shared_takes_all_that_it_has() -> None:
    X = SHARDS[1] - SHARDS[1] @ SHARED @ SHARED.T
    assert own_counts(run_chosen(AUTO, [*SHARDS, X])) == [*TRUE, 1]


@pytest.mark.slow
def test_masks_choose_the_same_and_tell_how_many() -> None:
    plain, masked = run_chosen(answers="fixed"), run_chosen(answers="fixed", mask=True)
    assert own_counts(masked) == own_counts(plain) == list(TRUE)
    assert masked.decisions[-1] == CHOSEN
    assert sine(plain.components_, masked.components_) <= 1e-8


@pytest.mark.parametrize("frame", [Frame(), Frame(np.linspace(-1.0, 1.0, D), np.linspace(0.5, 2.0, D))])
@pytest.mark.parametrize("n", [20, 41, 300])
def test_held_out_residuals_are_those_of_numpy(n: int, frame: Frame) -> None:
    X = unequal_problem(6, n)[0][2]
    data = LocalData(X).in_frame(frame)
    columns = np.linspace(0.5, 1.5, D)
    directions = held_out.directions_of_other_parts(fixed.fixed_parts(data), 6)
    (along, left), below = held_out.mean_squares_by_direction(directions), held_out.noise_along(directions, columns)
    rows = X if frame.mean is None or frame.scale is None else (X - frame.mean) / frame.scale
    order = np.random.default_rng(20221122).permutation(n)
    U = np.linalg.qr(np.random.default_rng(8).standard_normal((D, 2)))[0]
    beside = []
    for i in range(5):
        held, seen = rows[order[i::5]], rows[np.setdiff1d(np.arange(n), order[i::5])]
        V = np.linalg.svd(seen, full_matrices=False)[2]
        for r in range(6):
            rest = held - held @ V[: r + 1].T @ V[: r + 1]
            assert along[i, r] == pytest.approx(np.mean((held @ V[r]) ** 2), rel=1e-8)
            assert left[i, r] == pytest.approx(np.mean(np.sum(rest**2, axis=1)) / (D - 1 - r), rel=1e-8)
            assert below[i, r] == pytest.approx(np.sum(columns * V[r] ** 2), rel=1e-6)
        beside.append(np.mean((held @ U @ np.linalg.svd(seen @ U)[2].T) ** 2, axis=0))

    def clear(margin: Array) -> Array:
        return np.asarray(margin.mean(axis=0) > margin.std(axis=0, ddof=1) / np.sqrt(5.0))

    found, beside_them = held_out.count_directions(data, 6)
    assert found == np.flatnonzero(clear(along - 2.0 * left))[-1] + 1
    np.testing.assert_allclose(beside_them["noise"], left[:, found - 1], rtol=1e-12)
    assert (
        held_out.count_clear_directions(data, U, beside_them)
        == clear(np.array(beside) - 2.0 * left[:, [found - 1]]).sum()
    )


@pytest.mark.slow
def test_a_client_with_too_few_rows_takes_one_and_the_result_says_so() -> None:
    shards = [*SHARDS, SHARDS[2][:19], SHARDS[0][:20]]
    result = run_chosen(AUTO, shards)
    assert own_counts(result) == [*TRUE, 1, 0]
    assert result.decisions[-1] == (
        f"{SAID}: 0 at 3 clients, 1 at 2 clients, 3 at 2 clients, 1 at 1 client that has fewer than 20 rows, too few "
        "to hold any out"
    )
    for X in (SHARDS[2][:19], SHARDS[3][:5]):
        few = run_chosen(AUTO, [*SHARDS, X], mask=True)
        assert few.decisions[-1] == result.decisions[-1].replace("0 at 3", "0 at 2")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [AUTO, "per_pca(local_components='auto', max_rounds=40)"])
@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
def test_no_client_takes_more_than_its_rows_span(algorithm: str) -> None:
    """Of full rank, of three rows, of one, of rank one, of shared directions only, of zeros."""
    result = run_chosen(algorithm, degenerate(), seed=3)
    U = result.components_.T
    for i, X in enumerate(degenerate()):
        own = result.local_components_of(i)
        s = np.linalg.svd(X - X @ U @ U.T, compute_uv=False)
        assert len(own) <= np.sum(s > 1e-7 * max(np.linalg.norm(X), 1e-300))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
def test_no_more_are_taken_than_there_are_columns_beside_the_shared_ones() -> None:
    narrow = [X[:, :3] for X in SHARDS]
    assert max(own_counts(run_chosen(AUTO, narrow))) <= 1
    assert own_counts(run_chosen(AUTO, narrow, n_components=3)) == [0] * 6
    assert own_counts(run_chosen(AUTO, [X[:, :1] for X in SHARDS], n_components=1)) == [0] * 6


def test_rows_without_noise_give_their_rank() -> None:
    rng = np.random.default_rng(30)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0].T
    shards = [
        rng.standard_normal((60, 2)) @ Q[:2] + 2.0 * rng.standard_normal((60, r)) @ Q[2 + 3 * i : 2 + 3 * i + r]
        for i, r in enumerate((0, 1, 3))
    ]
    assert own_counts(run_chosen(AUTO, shards)) == [0, 1, 3]


def gapped(seed: int) -> list[Array]:
    holes = np.random.default_rng(seed)
    return [np.where(holes.random(X.shape) < 0.02, np.nan, X) for X in SHARDS]


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "answers"), [("local_mean", "rows"), ("mean", "fixed")])
def test_gaps_are_filled_in_the_parts_as_well(missing: str, answers: str) -> None:
    assert own_counts(run_chosen(AUTO, gapped(9), missing=missing, answers=answers)) == list(TRUE)


@pytest.mark.slow
def test_sparse_and_memory_mapped_rows_choose_as_dense_ones(tmp_path: Path) -> None:
    dense = run_chosen(AUTO)
    mapped = []
    for i, X in enumerate(SHARDS):
        np.save(tmp_path / f"{i}.npy", X)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
    for shards in ([sparse.csr_array(X) for X in SHARDS], mapped):
        assert own_counts(run_chosen(AUTO, shards)) == own_counts(dense)


@pytest.mark.slow
def test_columns_that_are_asked_for_by_name_are_those_held_out() -> None:
    pandas = pytest.importorskip("pandas")
    rng, names = np.random.default_rng(10), [f"c{j}" for j in range(D)]
    order = rng.permutation(D + 2)
    frames = []
    for X in SHARDS:
        wide = np.hstack([X, 50.0 * rng.standard_normal((len(X), 2))])
        frames.append(pandas.DataFrame(wide, columns=[*names, "far", "off"]).iloc[:, order])
    for answers in ("rows", "fixed"):
        assert own_counts(run_chosen(AUTO, frames, columns=names, answers=answers)) == list(TRUE)


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint_with_the_numbers_it_had(tmp_path: Path) -> None:
    resumed, whole = gone_on(run_chosen, path=tmp_path / "run.npz", stop=[6]), run_chosen()
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert (resumed.decisions, own_counts(resumed)) == (whole.decisions, own_counts(whole))


@pytest.mark.slow
def test_a_saved_result_says_what_was_chosen(tmp_path: Path) -> None:
    run_chosen().save(tmp_path / "result.npz")
    read = PCAResult.load(tmp_path / "result.npz")
    assert isinstance(read, PersonalResult)
    assert (read.local_components, read.decisions[-1]) == (3, CHOSEN)


@pytest.mark.slow
def test_the_log_has_the_chosen_numbers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="flower_pca"):
        run_chosen()
    assert CHOSEN in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agrees", "algorithm"), [(True, AUTO), (False, "per_pca(local_components='auto', max_rounds=9)")]
)
def test_under_flower_nodes_choose_the_same_and_tell_it_only_if_they_agree(
    agrees: bool, algorithm: str, tmp_path: Path
) -> None:
    result = found_by_nodes(algorithm, run_chosen(algorithm), tmp_path, share_local=agrees)
    assert isinstance(result, PersonalResult)
    assert result.decisions[-1] == (CHOSEN if agrees else UNTOLD)
    assert result.local_components == (3 if agrees else 10)


@pytest.mark.slow
def test_the_choice_is_a_function_of_statistics_that_were_there_before() -> None:
    """Rows of which the parts have the same statistics choose alike, whatever U; and no message reads a row."""
    X = SHARDS[2]
    turned = X.copy()
    for rows in folds.positions_of_parts(len(X)):
        part = X[rows] - X[rows].mean(axis=0)
        ones = np.ones((len(rows), 1)) / np.sqrt(len(rows))
        Q = np.linalg.qr(np.random.default_rng(11).standard_normal((len(rows), len(rows))))[0]
        kept = np.eye(len(rows)) - ones @ ones.T
        whole = np.linalg.qr(np.hstack([ones, kept @ Q[:, 1:]]))[0]
        basis = whole[:, 1:]
        turn = basis @ np.linalg.qr(np.random.default_rng(12).standard_normal((basis.shape[1],) * 2))[0] @ basis.T
        turned[rows] = X[rows].mean(axis=0) + turn @ part
    assert np.abs(turned - X).max() > 1.0
    a, b = LocalData(X), LocalData(turned)
    gone = LocalData(X)
    fixed.fixed_parts(gone)
    gone.__dict__["_X"] = None
    for seed in range(5):
        U = np.linalg.qr(np.random.default_rng(seed).standard_normal((D, 2)))[0]
        arrays = {"U": U, "own": np.array(held_out.MOST), "auto": np.array(True)}
        assert len({held_out.choose_number(arrays, data, {})[0] for data in (a, b, gone)}) == 1


@pytest.mark.slow
def test_parts_are_measured_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    measured: Any = functools.partial(Measured.rows_at)
    monkeypatch.setattr(Measured, "rows_at", lambda data, rows: (asked.append(len(rows)), measured(data, rows))[1])
    run_chosen("exact_per_pca(local_components=2, max_rounds=3)")
    assert not asked
    run_chosen("exact_per_pca(local_components='auto', max_rounds=3)")
    assert asked == [40] * 30  # five parts at six clients, once each
    assert isinstance(fixed.fixed_parts(LocalData(SHARDS[0]))[0]._stored, Statistics)


@every("own", [10**12, 10, 4, 0, -3])
def test_no_message_makes_a_client_take_or_send_more(own: int) -> None:
    closing = registry.STAGES["personal"]
    U = np.linalg.qr(np.random.default_rng(14).standard_normal((D, 2)))[0]
    arrays = {"U": U, "b": U[:, :1], "own": np.array(own), "auto": np.array(True)}
    arrays |= {"exact": np.array(True), "steps": np.array(0), "collect": np.array(False), "samples": np.array(False)}
    if own != held_out.MOST:  # With fewer columns no client chooses, because sums would reveal who has more.
        with pytest.raises(
            ProtocolError, match=rf"limits this client to {own} local components, but the limit must be 10\."
        ):
            closing.client(arrays, LocalData(SHARDS[2]), {})
        return
    up, memory = closing.client(arrays, LocalData(SHARDS[2]), {})
    assert up["chosen"].shape == closing.parts(arrays, D)["chosen"].shape == (12,)
    assert up["chosen"].sum() == 1.0
    assert memory["V"].shape[1] <= 6
