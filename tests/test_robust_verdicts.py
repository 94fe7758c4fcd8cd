"""Test that consensus_rpca reports convergence only if it is right."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import in_turn
from spoilt import ROWS, SMALL, Array, own, pose, rel

from benchmarks import certain
from benchmarks import robust_problems as problems
from flower_pca import Outcome, RobustResult, make, simulate
from flower_pca.algorithms.robust import attempts, proof
from flower_pca.algorithms.robust.attempt import Attempt
from flower_pca.algorithms.robust.attempts import AttemptLog
from flower_pca.algorithms.robust.verdict import Verdict
from flower_pca.analysis.outliers import TakenOut

CLIENTS = 3  # tests/test_robust.py shows that the answer does not depend on who holds the rows.
SHARES = [(0.05, 0.25), (0.15, 0.15), (0.25, 0.25)]


def run_certain(rows: Array, k: int, seed: int = 0, missing: str = "error", **parameters: Any) -> RobustResult:
    settings: dict[str, Any] = {"seed": seed, "missing": missing}
    result = simulate(make("consensus_rpca", **parameters), np.array_split(rows, CLIENTS), n_components=k, **settings)
    assert isinstance(result, RobustResult)
    return result


def rel_of(found: Array, L: Array) -> float:
    return float(np.linalg.norm(found - L) / np.linalg.norm(L))


def test_shares_of_removed_entries_are_those_of_all_rows_together() -> None:
    taken = [np.random.default_rng(i).random((n, 4)) < 0.3 for i, n in enumerate((30, 10, 20))]
    share, none = np.array([part.mean(axis=0) for part in taken]), np.zeros(3)
    found = TakenOut([0, 1, 2], np.array([30, 10, 20]), share, none, none)
    np.testing.assert_allclose(found.by_column, np.vstack(taken).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.by_client, [part.mean() for part in taken], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "noise", "shares"), in_turn(certain.KINDS, certain.NOISES, SHARES))
def test_what_is_called_converged_is_right_and_what_is_right_is_called_so(
    kind: str, noise: float, shares: tuple[float, float]
) -> None:
    share, far = shares
    case = certain.case(60, share, far, kind, noise, seed=5, clients=CLIENTS)
    assert case.right == case.converged, case
    # Where every fourth entry is far, columns are found anew within an attempt.
    assert case.attempts > 1 or case.messages <= 1.1 * (135 if far < 0.25 else 450)


@pytest.mark.slow
def test_far_entries_are_cut_off() -> None:
    """Rank 12 of 80 with a fifth of the entries far off, which Huber's function alone does not recover."""
    L, X, _ = certain.posed(80, 12, 0.2, "+-80", 0.0, 7)
    result = run_certain(X, 12, seed=7)
    assert rel(result, L) <= 1e-6
    assert result.status.ok
    assert result.cut_ == 10.0


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_dense_noise_is_estimated(noise: float) -> None:
    L, X, far = certain.posed(80, 4, 0.1, "+-80", noise, 3)
    result = run_certain(X, 4)
    assert result.status.ok
    assert result.noise_ == pytest.approx(noise, rel=0.15)
    assert rel(result, L) <= 1.5 * rel_of(problems.oracle(L, X, ~far, 4), L)
    assert f"dense noise of deviation {result.noise_:.2g}" in result.status.words
    assert result.threshold_ == 2.0 * result.noise_


@pytest.mark.slow
def test_noise_that_is_given_is_kept() -> None:
    L, X, _ = certain.posed(80, 4, 0.1, "+-80", 0.05, 3)
    result = simulate("consensus_rpca(noise=0.05)", np.array_split(X, CLIENTS), n_components=4)
    assert isinstance(result, RobustResult)
    assert (result.noise_, result.threshold_) == (0.05, 0.1)
    assert rel(result, L) <= 0.02


@pytest.mark.slow
def test_full_rank_rows_have_no_low_rank_part() -> None:
    result = run_certain(np.random.default_rng(0).standard_normal((60, 30)), 4)
    assert result.status.outcome is Outcome.STALLED
    assert "no low-rank part of rank up to 4 predicts hidden entries" in result.status.words


@pytest.mark.parametrize(
    ("clean", "words"),
    [
        (0.37, "no low-rank part of rank up to 4 is near more than 37% of the entries. There are too many outliers"),
        (0.9, "no low-rank part of rank up to 4 predicts hidden entries (the error is 0.01 of an ordinary entry)"),
    ],
)
def test_a_low_rank_part_that_few_entries_lie_near_is_said_to_be_one(clean: float, words: str) -> None:
    """Where columns have units so unlike that those with large entries, more than half of all, look like outliers."""
    verdict = Verdict(rank=4, error=0.01, clean=clean)
    attempt = Attempt(U=np.eye(6, 4), lam=1.0, start=1.0, gamma=0.9, verdict=verdict)
    status = AttemptLog(k=4, p=4, gamma=0.9, restarts=4, best=attempt).status(100)
    assert status.outcome is Outcome.STALLED
    assert status.words.startswith(words)


@pytest.mark.parametrize(
    ("error", "structure", "converges"), [(0.02, 0.0, True), (0.02, 0.29, True), (0.3, 0.0, False), (0.02, 0.31, False)]
)
def test_attempts_that_agree_are_believed_where_little_is_left(error: float, structure: float, converges: bool) -> None:
    """A block of far entries that is taken for low rank is taken so by every attempt."""
    verdict = Verdict(rank=2, error=error, predicted=True, structured=True, structure=structure)
    status = book_after([verdict, verdict]).status(rounds=10)
    assert status.ok == converges
    assert f"the residuals still have structure ({structure:.1%})" in status.words
    assert status.ok or status.words.endswith("ask for more components")


def test_attempts_that_agree_say_nothing_of_a_better_one() -> None:
    """The best attempt leaves no structure and does not determine five rows: it is not what the other two agree on."""
    agreeing = Verdict(rank=2, error=0.02, predicted=True, structured=True, structure=0.1)
    best = Verdict(rank=2, error=0.02, predicted=True, rows=5, few=False)
    assert book_after([agreeing, agreeing]).status(rounds=10).ok
    assert not book_after([agreeing, agreeing, best]).status(rounds=10).ok


def book_after(verdicts: list[Verdict]) -> AttemptLog:
    """The attempts of a run that have come to these verdicts, all with the same basis."""
    book, attempt = (
        AttemptLog(k=2, p=2, gamma=0.9, restarts=2),
        Attempt(U=np.eye(5)[:, :2], lam=1.0, start=1.0, gamma=0.9),
    )
    for tag, verdict in enumerate(verdicts):
        ended = replace(attempt, G=np.eye(2), tag=tag, verdict=verdict)
        book = replace(book.add(ended), number=book.number + 1)
    return book


@pytest.mark.slow
def test_a_component_missing_from_two_attempts_is_reported() -> None:
    """So few columns that no attempt with more components is made: they agree on three of four."""
    rng = np.random.default_rng(1)
    strong = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 12))
    weak = 0.05 * np.outer(rng.standard_normal(120), rng.standard_normal(12))
    far = np.where(rng.random((120, 12)) < 0.03, 50.0 * rng.choice([-1.0, 1.0], (120, 12)), 0.0)
    rows = strong + weak + far + 0.01 * rng.standard_normal((120, 12))
    result = run_certain(rows, 3)
    assert result.status.outcome is Outcome.STALLED
    assert re.search(
        r"the residuals still have structure \([5-9]\d\.\d%\) .* ask for more components$", result.status.words
    )
    enough = run_certain(rows, 4)
    assert enough.status.ok
    assert rel(enough, strong + weak) <= 0.02


@pytest.mark.slow
def test_blocks_of_one_value_that_are_taken_for_low_rank_are_not_called_converged() -> None:
    """What they leave looks like noise as large as an entry, which everything is within."""
    case = problems.case("blocks", 0.0, 0.0, 51, CLIENTS)
    assert case.rel > 1.0
    assert not case.converged, case


@pytest.mark.slow
def test_components_so_many_that_they_fit_far_entries_too_are_not_called_converged() -> None:
    case = certain.case(80, 0.25, 0.2, "+-8", 1e-3, seed=81124, clients=CLIENTS)
    assert case.right or not case.converged
    rng = np.random.default_rng(410)
    L = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 10))
    where = rng.random(L.shape) < 0.05
    X = L + np.where(where, 80.0 * rng.choice([-1, 1], L.shape), 0.0) + 0.4 * rng.standard_normal(L.shape)
    result = simulate("consensus_rpca", np.array_split(X, CLIENTS), n_components=5)
    held = problems.compare(L, X, ~where, result, rank=5, noise=0.4)
    assert held.rel <= held.limit or result.status.outcome is not Outcome.CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_a_component_of_one_column_alone_that_fits_its_far_entries_is_not_called_converged(seed: int) -> None:
    """Of more components than there are, one goes to a single column, of which it explains every entry."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 50))
    where = rng.random(L.shape) < 0.15
    X = L + 0.2 * rng.standard_normal(L.shape) + np.where(where, 10.0 * rng.choice([-1.0, 1.0], L.shape), 0.0)
    result = run_certain(X, 8)
    assert rel(result, L) > 0.2
    assert result.status.outcome is Outcome.STALLED
    assert "a low-rank part of rank 4 may have fitted outliers" in result.status.words
    assert run_certain(X, 3).status.ok


@pytest.mark.parametrize(("weight", "alone"), [(0.9, False), (0.98, True)])
def test_a_direction_of_one_column_alone_is_seen_in_any_basis(weight: float, alone: bool) -> None:
    """In which it is mixed with two directions of the other twelve columns."""
    rng = np.random.default_rng(0)
    others = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    lone = np.append(np.sqrt(1.0 - weight) * others[:, 2], np.sqrt(weight))
    U = np.column_stack([np.vstack([others[:, :2], np.zeros(2)]), lone]) @ rng.standard_normal((3, 3))
    assert proof.has_lone_column(U) == alone


def test_a_direction_that_is_missing_is_none_of_one_column_alone() -> None:
    """A column that is judged already is 0, and then a direction of it alone is 0, too."""
    U = np.random.default_rng(0).standard_normal((30, 3))
    U[:, 2] = 0.0
    assert not proof.has_lone_column(U)
    assert not proof.has_lone_column(np.zeros((30, 2)))
    assert proof.has_lone_column(U + np.outer(np.eye(30)[4], [0.0, 0.0, 1.0]))


@pytest.mark.slow
def test_beside_much_noise_as_many_components_converge_where_two_attempts_agree() -> None:
    rng = np.random.default_rng(160)
    L = rng.standard_normal((80, 20)) @ rng.standard_normal((20, 80))
    where = rng.random(L.shape) < 0.05
    X = L + np.where(where, 80.0 * rng.choice([-1, 1], L.shape), 0.0) + 0.6 * rng.standard_normal(L.shape)
    result = simulate("consensus_rpca", np.array_split(X, CLIENTS), n_components=20)
    held = problems.compare(L, X, ~where, result, rank=20, noise=0.6)
    assert held.rel <= held.limit
    assert result.status.outcome is Outcome.CONVERGED, result.status
    assert result.attempts_ == 2


@pytest.mark.slow
def test_columns_that_drift_away_are_named_even_if_one_long_row_is_clean_by_chance() -> None:
    rng = np.random.default_rng([531, 0])
    n, d = int(rng.choice([40, 60])), int(rng.choice([30, 45]))
    rank, noise = int(rng.integers(1, 4)), float(rng.choice([0.0, 0.01]))
    L = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    X = L.copy()
    drifting = np.sort(rng.choice(d, d // 6, replace=False))
    X[:, drifting] += np.linspace(0.0, 20.0, n)[:, None]
    X += noise * rng.standard_normal((n, d))
    result = simulate("consensus_rpca", np.array_split(X, 4), n_components=rank)
    assert result.status.ok, result.status
    np.testing.assert_array_equal(result.undetermined_columns_, drifting)


@pytest.mark.slow
def test_a_column_and_a_row_that_nothing_determines_are_named() -> None:
    L, _ = SMALL
    rows = ROWS.copy()
    rng = np.random.default_rng(2)
    rows[:, 11] += np.where(rng.random(120) < 0.98, 500.0 * rng.standard_normal(120), 0.0)
    rows[77] += np.where(rng.random(80) < 0.97, 500.0 * rng.standard_normal(80), 0.0)
    result = run_certain(rows, 5, restarts=1)
    assert result.status.ok, result.status
    assert (
        "; 1 column with too few clean entries (11); 1 row with too few clean entries (1 completely outlying)"
        in result.status.words
    )
    np.testing.assert_array_equal(result.undetermined_columns_, [11])
    for name in ("undetermined", "bad_rows"):
        assert [list(result.local[i][name]) for i in range(CLIENTS)] == [[], [37], []]
    others = np.ix_(np.delete(np.arange(120), 77), np.delete(np.arange(80), 11))
    assert np.linalg.norm((own(result, "L") - L)[others]) <= 1e-5 * np.linalg.norm(L)


@pytest.mark.slow
def test_rows_that_are_bad_as_a_whole_hurt_nobody_else() -> None:
    noise = 0.05
    L, X, clean = problems.posed("bad rows", noise, 0.0, seed=3)
    result = simulate("consensus_rpca", np.array_split(X, CLIENTS), n_components=problems.RANK)
    good, bad = clean.all(axis=1), np.flatnonzero(~clean.all(axis=1))
    assert result.status.ok, result.status
    assert f"{len(bad)} rows with too few clean entries ({len(bad)} completely outlying)" in result.status.words
    starts = np.cumsum([0, *(len(part) for part in np.array_split(X, CLIENTS))])
    np.testing.assert_array_equal(
        np.concatenate([result.local[i]["bad_rows"] + starts[i] for i in range(CLIENTS)]), bad
    )
    assert np.linalg.norm((own(result, "L") - L)[good]) <= 0.02 * np.linalg.norm(L[good])
    variances = np.linalg.svd(L[good], compute_uv=False)[: problems.RANK] ** 2 / good.sum()
    np.testing.assert_allclose(result.explained_variance_, variances, rtol=0.03)


@pytest.mark.slow
def test_a_client_that_is_bad_as_a_whole_is_named() -> None:
    _, X, clean = problems.posed("bad client", 0.05, 0.0, seed=1)
    bad = [i for i, part in enumerate(np.array_split(clean, 8)) if not part.any()]
    result = simulate("consensus_rpca", np.array_split(X, 8), n_components=problems.RANK)
    assert result.status.ok, result.status
    assert result.status.words.endswith(f"; most entries of client {bad[0]} are outlying")


@pytest.mark.slow
def test_rounds_that_do_not_suffice_prove_nothing() -> None:
    result = run_certain(ROWS, 5, max_rounds=20)
    assert result.status.outcome is Outcome.MAX_ROUNDS
    assert result.status.words == "20 rounds were not enough to prove a result. Use more than max_rounds=20"


@pytest.mark.slow
def test_a_basis_that_keeps_moving_is_reported() -> None:
    result = run_certain(certain.posed(80, 4, 0.1, "+-80", 0.05, 3)[1], 4, patience=1)
    assert result.status.outcome is Outcome.MAX_ROUNDS
    assert "not converged: the components still change by" in result.status.words


def test_a_column_without_one_unclean_entry_is_determined() -> None:
    G, x = np.diag([4.0, 2.0, 1.0]), np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    after, weak = proof.power_step(G, x, np.array([[0.0, 0.0, 0.0], [1.98, 0.0, 0.0]]))
    assert weak.tolist() == [False, True]  # All entries of the first are clean, and a hundredth of the second.
    assert np.isfinite(after).all()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_missing_values_count_as_hidden(share: float) -> None:
    """And not as their column's mean, which is no part of a low-rank matrix."""
    L, _ = SMALL
    rows = np.where(np.random.default_rng(3).random(ROWS.shape) < share, np.nan, ROWS)
    result = run_certain(rows, 5, missing="mean")
    assert result.status.ok, result.status
    assert rel(result, L) <= 1e-6
    assert not own(result, "S")[np.isnan(rows)].any()
    np.testing.assert_allclose(result.low_rank_part(rows[:9]), L[:9], atol=1e-4)
    assert not result.sparse_part(rows[:9])[np.isnan(rows[:9])].any()


@pytest.mark.slow
def test_single_precision_is_proven_to_its_own_precision() -> None:
    L, _ = SMALL
    result = run_certain(ROWS.astype(np.float32), 5)
    assert result.status.ok, result.status
    assert rel(result, L) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(300, 30), (30, 300)])
def test_rows_and_columns_may_be_unlike_in_number(n: int, d: int) -> None:
    L, S = pose(n, 3, 0.05, seed=6, d=d)
    result = run_certain(L + S, 3)
    assert result.status.ok, result.status
    assert rel(result, L) <= 1e-6


@pytest.mark.slow
def test_uneven_rows_are_found_but_for_columns_that_are_named() -> None:
    rng = np.random.default_rng(4)
    L = rng.standard_normal((120, 5)) @ rng.standard_normal((5, 80)) * np.exp(2.0 * rng.standard_normal((120, 1)))
    X = np.where(rng.random(L.shape) < 0.1, 80.0 * rng.choice([-1.0, 1.0], L.shape), L)
    result = run_certain(X, 5)
    assert result.status.ok, result.status
    assert len(result.undetermined_columns_) <= 4
    here = np.delete(np.arange(80), result.undetermined_columns_)
    assert rel_of(own(result, "L")[:, here], L[:, here]) <= 1e-5


def waves(seed: int) -> tuple[Array, Array]:
    """A background under moving light, waves before it, and somebody who walks through; and where that one is."""
    rng, frames, (height, width) = np.random.default_rng(seed), 120, (16, 20)
    y, x = (a.ravel() for a in np.mgrid[:height, :width])
    light = 1.0 + 0.05 * np.cumsum(rng.standard_normal(frames)) / np.sqrt(frames)
    rows = light[:, None] * (0.5 + 0.2 * np.sin(x / 5.0) * np.cos(y / 4.0))
    for _ in range(12):
        phase = np.cumsum(rng.uniform(0.2, 1.5) + 0.2 * rng.standard_normal(frames))
        along = rng.normal(0.0, 0.8, 2) @ np.array([x, y])
        rows = rows + rng.uniform(0.01, 0.03) * np.cos(along + phase[:, None]) * (y > height / 3)
    place = np.linspace(1, width - 6, frames)[:, None]
    far = (x >= place) & (x < place + 4) & (y > 4) & (y < 12)
    far[: frames // 3] = False
    rows = rows + 0.01 * rng.standard_normal(rows.shape)
    return np.where(far, 0.1 + 0.1 * rng.random(rows.shape), rows), far


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
def test_residuals_that_are_correlated_are_no_missing_component(k: int) -> None:
    rows, far = waves(seed=1)
    result = run_certain(rows, k)
    assert result.status.ok, result.status
    assert "the residuals still have structure" in result.status.words
    assert (result.attempts_, result.rank_) == (1, 1)
    off = np.abs(own(result, "S"))
    assert off[far].min() > 0.0
    assert np.median(off[~far]) == 0.0


@pytest.mark.slow
def test_noise_that_is_correlated_along_the_columns_is_not_found_as_components() -> None:
    """The attempt with more columns drops all that its spectrum sets apart, and does not take them back."""
    rng = np.random.default_rng(1)
    L, E = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 60)), rng.standard_normal((120, 60))
    for j in range(1, 60):
        E[:, j] = 0.9 * E[:, j - 1] + np.sqrt(1.0 - 0.9**2) * E[:, j]
    far = np.where(rng.random(L.shape) < 0.08, 20.0 * rng.choice([-1.0, 1.0], L.shape), 0.0)
    result = run_certain(L + 0.06 * E + far, 3)
    assert result.status.ok, result.status
    assert result.rank_ == 3
    assert rel(result, L) <= 0.02


@pytest.mark.slow
def test_columns_spoilt_by_outlying_entries_are_found_again() -> None:
    case = problems.case("half columns", 0.001, 0.0, 22, CLIENTS)
    assert case.right, case
    assert case.converged, case
    assert case.attempts == 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "k"), [(7, 2), (8, 1), (12, 2), (17, 1), (28, 2)])
def test_three_columns_of_zeros_and_ones_end_in_a_status(seed: int, k: int) -> None:
    """Rows of V that go to 0 round by round, until their squares underflow."""
    rows = (np.random.default_rng(seed).random((40, 3)) < 0.75).astype(np.float64)
    rows[:, 2] = rows[:, 0] * rows[:, 1]
    algorithm = "consensus_rpca(gamma=0.5, patience=10)"
    result = simulate(algorithm, np.array_split(rows, 2), n_components=k, center=False)
    assert np.all(np.isfinite(result.components_))
    assert result.status.words


@pytest.mark.parametrize("size", [1.0, 1e20])
def test_a_basis_is_found_from_sums_that_are_short_of_rank(size: float) -> None:
    """Of 1e20 the ridge is lost in rounding: LAPACK finds the matrix singular."""
    G, B = size * np.ones((2, 2)), size * np.outer([1.0, 2.0, 3.0], [1.0, 1.0])
    U = attempts.solve_for_basis(B, G, 1e-6)
    np.testing.assert_allclose(U, np.outer([1.0, 2.0, 3.0], [0.5, 0.5]), rtol=1e-5)
