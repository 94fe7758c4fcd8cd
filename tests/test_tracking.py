"""Test trackers against loops over single rows, closed forms, and thresholds."""

import numpy as np
import pytest
from builders import StopError, gone_on, stop_after
from cases import paired

from flower_pca import AirChannel, RobustTracking, STMiss, Stream, TrackingResult, track
from flower_pca.base.errors import ConfigError
from flower_pca.tracking.solver import orthogonal_columns
from flower_pca.tracking.st_miss import modified_cs
from sims.over_air import moving, trackers

pytestmark = pytest.mark.slow

N, R, D, CHANGE, RHO = 200, 5, 1200, 600, 0.1
PAPERS = 7.5961e-4  # the threshold of a change in the paper
SEEDS = range(3)


@pytest.fixture(scope="module")
def problems():
    return [moving.piecewise(n=N, r=R, d=D, change=CHANGE, rho=RHO, seed=seed) for seed in SEEDS]


def run_tracker(problem, tracker="st_miss", clients=1, **settings):
    return track(tracker, problem.batches(clients), n_components=problem.r, **settings)


def test_st_miss_equals_a_loop_over_rows_with_lapacks_svd(problems):
    for problem in problems[:2]:
        reference = trackers.closed_form(problem)
        for clients in (1, 3):
            result = run_tracker(problem, STMiss(tol=1e-12), clients)
            assert max(moving.se(P, V.T) for P, V in zip(reference, result.components_, strict=True)) < 1e-12
            assert np.abs(result.components_ @ result.components_.transpose(0, 2, 1) - np.eye(R)).max() < 1e-12
    values = np.linalg.svd(np.nan_to_num(problem.Y[:60]), compute_uv=False)[:R] ** 2
    # These values are not divided by the number of rows.
    np.testing.assert_allclose(result.values_[0], values, rtol=1e-8)
    assert result.rows_.tolist() == [60] * 20


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("solver", ["krylov", "power"])
def test_every_step_ends_within_tol_of_lapacks_svd_of_its_completed_rows(problems, solver, noise):
    Y = problems[0].Y + noise * np.random.default_rng(5).standard_normal(problems[0].Y.shape)
    for reuse in (0, 1):
        streams = [Stream(Y[k::2], batch=30, keep=True) for k in range(2)]
        tracker = STMiss(solver=solver, reuse=reuse, products=200, first_products=500)
        result = track(tracker, streams, n_components=R)
        assert tracker.tol == 1e-8
        for j, V in enumerate(result.components_):
            rows = np.vstack([stream.completed[j].rows for stream in streams])
            s, U = np.linalg.svd(rows, full_matrices=False)[1:]
            assert moving.se(V.T, U[:R].T) < 3e-8
            np.testing.assert_allclose(result.values_[j], s[:R] ** 2, rtol=1e-8)


@pytest.mark.parametrize(("scale", "solver"), paired([1e-120, 1e-60, 1e60], ["krylov", "power"]))
def test_neither_small_nor_large_units_change_the_components(problems, solver, scale):
    plain, scaled = (
        track(STMiss(solver=solver), [problems[0].Y[:300] * s], n_components=R, batch=60) for s in (1, scale)
    )
    assert max(moving.se(U.T, V.T) for U, V in zip(plain.components_, scaled.components_, strict=True)) < 1e-8
    assert np.abs(scaled.components_ @ scaled.components_.transpose(0, 2, 1) - np.eye(R)).max() < 1e-12


@pytest.mark.parametrize("solver", ["krylov", "power", "power, qr_every=3"])
def test_components_are_in_the_order_of_their_values(solver):
    rng = np.random.default_rng(11)
    axes = np.linalg.qr(rng.standard_normal((40, 40)))[0].T
    sizes = np.r_[9.0, 7.0, 5.0, 3.0, 0.01 * np.ones(36)]
    parts = [[rng.standard_normal((50, 40)) * sizes @ axes for _ in range(4)] for _ in range(2)]
    kind, _, more = solver.partition(", ")
    for mask in (False, True):
        tracker = f"st_miss(solver='{kind}'{', ' + more if more else ''})"
        result = track(tracker, parts, n_components=4, mask=mask)
        for j in range(4):
            s, U = np.linalg.svd(np.vstack([own[j] for own in parts]), full_matrices=False)[1:]
            cosines = result.components_[j] @ U[:4].T
            np.testing.assert_allclose(np.abs(np.diag(cosines)), 1.0, atol=1e-6)
            np.testing.assert_allclose(result.values_[j], s[:4] ** 2, rtol=1e-6)
            largest = np.argmax(np.abs(result.components_[j]), axis=1)
            assert (result.components_[j][np.arange(4), largest] > 0).all()


def test_the_thresholds_of_a_change_to_an_independent_subspace(problems):
    single = {2: 6e-2, 3: 1.2e-2, 5: 1e-3, 8: 6e-6, 10: 2e-7, 11: 0.32, 13: 1.2e-2, 15: 1e-3, 20: 5e-7}
    errors = np.array([run_tracker(p).subspace_error(p.truth) for p in problems])
    assert ((errors[:, 0] >= 0.08) & (errors[:, 0] <= 0.30)).all()
    for batch, bound in single.items():
        assert errors[:, batch - 1].max() < bound, batch
    assert np.median(errors[:, 4]) < 2e-4
    assert np.median(errors[:, 9]) < 1e-8


def test_a_block_that_is_missing_in_a_whole_batch_is_filled_in():
    for seed in range(2):
        problem = moving.block_missing(moving.piecewise(n=N, r=R, d=720, change=720, rho=RHO, seed=seed), width=20)
        assert run_tracker(problem).subspace_error(problem.truth)[11] < 1e-6


def test_using_a_batch_twice_about_doubles_the_rate(problems):
    for problem in problems:
        assert run_tracker(problem, "st_miss(reuse=1)").subspace_error(problem.truth)[4] < 1e-5


def test_the_comparators_do_what_they_are_known_for(problems):
    for seed, problem in enumerate(problems[:1]):
        plain = moving.errors(trackers.simple_pca(problem), problem.truth)
        assert plain.min() >= 0.08
        assert plain.max() <= 0.35
        bases, found = trackers.norst(problem, update=8, seed=seed)
        norst = moving.errors(bases, problem.truth)
        assert found == [10]
        assert norst[7] == norst[8] == norst[9] < 3e-6
        assert norst[10] >= 0.9
        assert norst[11] < 0.35
        assert norst[19] < 1e-5
        petrels = moving.errors(trackers.petrels(problem, seed=seed), problem.truth)
        assert petrels[0] < 0.05
        assert petrels[9] < 2e-6
        assert petrels[10] > 0.9
        assert petrels[19] < 2e-4
        grouse = moving.errors(trackers.grouse(problem, seed=seed), problem.truth)
        assert grouse[4] < 1e-6
        assert grouse[9] < 1e-12
        assert grouse[14] < 1e-6


def test_a_rotating_subspace_is_followed():
    for seed in SEEDS:
        problem = moving.rotating(n=N, r=R, d=600, rho=RHO, seed=seed)
        errors = run_tracker(problem).subspace_error(problem.truth)[2:]
        plain = moving.errors(trackers.simple_pca(problem), problem.truth)[2:]
        assert errors.min() >= 0.005
        assert errors.max() <= 0.025
        assert plain.min() > 0.10
        assert (errors < 0.25 * plain).all()


def floor(problem, batch, sigma):
    """sigma sqrt(n - r) / lambda_r(L L'), what noise leaves of a converged power method."""
    rows = problem.L[(batch - 1) * 60 : batch * 60]
    return sigma * np.sqrt(N - R) / np.linalg.svd(rows, compute_uv=False)[R - 1] ** 2


@pytest.mark.parametrize(("sigma", "first"), [(1e-2, 7), (1e-4, 9)])
def test_over_the_air_the_error_falls_to_the_noise_and_no_further(problems, sigma, first):
    for seed, problem in enumerate(problems):
        tracker = STMiss(solver="power", products=10, first_products=60)
        errors = run_tracker(problem, tracker, channel=AirChannel(noise_std=sigma, seed=seed)).subspace_error(
            problem.truth
        )
        for batch in range(first, 11):
            assert 0.6 <= errors[batch - 1] / floor(problem, batch, sigma) <= 1.6, (seed, batch)


@pytest.mark.parametrize("solver", ["krylov", "power"])
@pytest.mark.parametrize("sigma", [0.0, 1e-3])
def test_another_split_over_clients_gives_the_same_subspaces(problems, solver, sigma):
    a, b = (
        run_tracker(problems[0], STMiss(solver=solver), clients, channel=AirChannel(noise_std=sigma, seed=3))
        for clients in (1, 4)
    )
    assert max(moving.se(U.T, V.T) for U, V in zip(a.components_, b.components_, strict=True)) < 1e-12


def test_a_silent_channel_is_the_centralised_svd(problems):
    reference = trackers.closed_form(problems[1])
    tracker = STMiss(solver="power", products=60, first_products=500, tol=1e-12)
    result = run_tracker(problems[1], tracker, 3, channel=AirChannel(noise_std=0.0))
    assert max(moving.se(P, V.T) for P, V in zip(reference, result.components_, strict=True)) < 1e-12


def test_refining_completes_a_batch_with_its_own_basis(problems):
    for problem in problems:
        plain, refined = (Stream(problem.Y, batch=60, keep=True) for _ in range(2))
        a, b = (track(STMiss(refine=r), [s], n_components=R) for s, r in ((plain, False), (refined, True)))
        assert np.array_equal(a.components_, b.components_)
        for j in range(9):
            true = problem.L[60 * j : 60 * j + 60]
            error = [np.linalg.norm(s.completed[j].rows - true) for s in (plain, refined)]
            assert error[1] < 0.5 * error[0]
        seen = ~np.isnan(problem.Y[:60])  # observed entries stay as they are
        assert np.array_equal(refined.completed[0].rows[seen], problem.Y[:60][seen])


@pytest.mark.parametrize(("solver", "sigma"), [("krylov", 0.0), ("power", 0.0), ("power", 1e-2)])
def test_a_change_is_detected_in_its_very_batch_and_nothing_else(problems, solver, sigma):
    for seed, problem in enumerate(problems[:2]):
        tracker = STMiss(detect=True, threshold=PAPERS, update_length=6, solver=solver)
        result = run_tracker(problem, tracker, 2, channel=AirChannel(noise_std=sigma, seed=seed))
        assert result.changes_.tolist() == [10]
        P = result.components_[9].T
        rows = np.array([trackers._complete(P, y) for y in problem.Y[600:660]])
        left = rows - (rows @ P) @ P.T
        assert result.statistics_[10] == pytest.approx(np.linalg.norm(left, 2) ** 2 / 60, rel=0.02)


def test_a_mean_in_the_coefficients_is_not_taken_out():
    problem = moving.piecewise(n=N, r=R, d=600, change=600, rho=RHO, seed=7, mean=30.0)
    result = run_tracker(problem)
    assert result.subspace_error(problem.truth)[-1] < 1e-6
    last = problem.L[-60:]
    plain, centered = (np.linalg.svd(rows, compute_uv=False)[:R] ** 2 for rows in (last, last - last.mean(axis=0)))
    np.testing.assert_allclose(result.values_[-1], plain, rtol=1e-6)
    assert plain[0] > 10 * centered[0]


def robust(seed, d=600):
    problem = moving.piecewise(n=N, r=R, d=d, change=d, rho=RHO, seed=seed)
    return moving.corrupted(problem, seed=seed), moving.near(problem.truth[0].T, 0.03, seed).T


def test_outliers_are_found_exactly_and_do_no_harm():
    for seed in SEEDS:
        problem, start = robust(seed)
        stream = Stream(problem.Y, batch=60, keep=True)
        tracker = RobustTracking(smallest_outlier=15.0, solver="power")
        result = track(tracker, [stream], n_components=R, init=start, channel=AirChannel(noise_std=1e-6, seed=seed))
        found = np.vstack([stream.completed[j].found for j in range(10)])
        assert np.array_equal(found, problem.outliers)
        errors = result.subspace_error(problem.truth)
        assert errors[4] < 3e-4
        assert errors[9] < 5e-7
        assert result.outliers_.sum() == problem.outliers.sum()
        last = stream.completed[9]
        true = np.where(last.found, (problem.Y - problem.L)[540:], 0.0)
        assert np.abs(last.outliers - true).max() < 1e-4
        known = np.where(problem.outliers, np.nan, problem.Y)  # an oracle that knows where the outliers are
        oracle = track("st_miss", [known], n_components=R, batch=60, init=start).subspace_error(problem.truth)
        above = oracle > 1e-4
        np.testing.assert_allclose(errors[above], oracle[above], rtol=0.05)
        ignored = track("st_miss", [problem.Y], n_components=R, batch=60, init=start)
        assert ignored.subspace_error(problem.truth)[-1] > 0.9


def test_a_moving_object_is_taken_out():
    problem = moving.piecewise(n=N, r=R, d=600, change=600, rho=RHO, seed=4)
    problem = moving.corrupted(problem, seed=4, moving=20)
    start = moving.near(problem.truth[0].T, 0.02, 4).T
    result = run_tracker(problem, "robust_tracking(smallest_outlier=15, refine=True)", 2, init=start)
    assert result.outliers_.sum() == problem.outliers.sum()
    assert result.subspace_error(problem.truth)[9] < 5e-7


def test_the_first_batch_may_be_free_of_outliers_instead_of_a_start():
    problem, _ = robust(3)
    clean = np.where(problem.outliers, problem.L, problem.Y)
    Y = np.vstack([clean[:60], clean[60:120], problem.Y[120:]])
    start = track("st_miss", [Y[:300]], n_components=R, batch=60, steps=2)
    result = track("robust_tracking(smallest_outlier=15)", [Y[120:]], n_components=R, batch=60, init=start)
    assert result.subspace_error(problem.truth[0])[-1] < 1e-5


def reference_admm(P, y, seen, xi, penalty=50.0):
    """One row, by the textbook's two splittings: z = s, v = Psi s - Psi y."""
    target = y - P @ (P.T @ y)
    size = np.abs(target).max()
    target, xi = target / size, xi / size
    z, v, u, w = (np.zeros(len(y)) for _ in range(4))
    for _ in range(2000):
        b = target + v - w
        b = z - u + b - P @ (P.T @ b)
        s = 0.5 * (b + P @ (P.T @ b))
        inside = s - P @ (P.T @ s)
        z = np.sign(s + u) * np.maximum(np.abs(s + u) - seen / penalty, 0.0)
        v = inside - target + w
        v = v * min(1.0, xi / max(np.linalg.norm(v), 1e-300))
        u, w = u + s - z, w + inside - target - v
    return z * size


def test_modified_cs_is_the_textbooks_solution_row_by_row():
    problem, start = robust(1, d=60)
    P, seen = start.T, ~np.isnan(problem.Y)
    Y = np.where(seen, problem.Y, 0.0)
    S = modified_cs(P, Y, seen, 1.0)
    for t in range(0, 60, 6):
        exact = reference_admm(P, Y[t], seen[t], 1.0)
        objective = [np.abs(s[seen[t]]).sum() for s in (S[t], exact)]
        assert objective[0] == pytest.approx(objective[1], rel=2e-3)
        left = Y[t] - S[t]
        assert np.linalg.norm(left - P @ (P.T @ left)) < 1.1
        assert np.array_equal(np.abs(S[t]) * seen[t] > 7.5, np.abs(exact) * seen[t] > 7.5)
        np.testing.assert_allclose(modified_cs(P, Y[t : t + 1], seen[t : t + 1], 1.0)[0], S[t], atol=1e-8)


def test_a_row_of_zeros_has_no_outliers():
    assert not modified_cs(np.eye(4)[:, :1], np.zeros((2, 4)), np.ones((2, 4), dtype=bool), 0.1).any()


def test_without_a_smallest_outlier_each_row_has_its_own():
    problem, start = robust(2)
    Y = problem.Y - np.nanmean(problem.Y)
    own = track("robust_tracking", [Y[:60]], n_components=R, batch=60, init=start)
    level = 1.8 * np.sqrt(np.nanmean(Y[:60] ** 2, axis=1))
    told = [
        track(RobustTracking(smallest_outlier=float(s)), [[Y[t : t + 1]]], n_components=R, init=start).outliers_[0]
        for t, s in enumerate(level)
    ]
    assert own.outliers_[0] == sum(told) > 0


def test_rows_with_too_few_entries_get_the_minimum_norm_and_are_counted(problems):
    Y = problems[0].Y[:120].copy()
    few = np.flatnonzero(~np.isnan(Y[70]))[:3]  # three entries, rank five
    Y[70, np.setdiff1d(np.arange(N), few)] = np.nan
    Y[71] = np.nan
    stream = Stream(Y, batch=60, keep=True)
    result = track("st_miss", [stream], n_components=R)
    assert result.deficient_.tolist() == [0, 2]
    P = result.components_[0].T
    a = np.linalg.pinv(P[few]) @ Y[70, few]
    np.testing.assert_allclose(stream.completed[1].rows[10], P @ a, atol=1e-10)
    assert not stream.completed[1].rows[11].any()


def test_a_step_without_enough_rows_leaves_the_basis_as_it_is(problems):
    Y = problems[0].Y
    result = track(STMiss(tol=1e-12), [[Y[:60], None, Y[60:120], Y[120:123]]], n_components=R)
    assert result.rows_.tolist() == [60, 0, 60, 3]
    assert np.array_equal(result.components_[1], result.components_[0])
    assert np.array_equal(result.components_[3], result.components_[2])
    whole = track(STMiss(tol=1e-12), [Y[:120]], n_components=R, batch=60)
    assert moving.se(result.components_[2].T, whole.components_[1].T) < 1e-12


def test_result_transform_save_and_load(problems, tmp_path):
    problem = problems[0]
    result = run_tracker(problem, STMiss(detect=True), 2)
    back = TrackingResult.load(result.save(tmp_path / "t.npz"))
    for name in ("components_", "values_", "rows_", "residuals_", "deficient_", "outliers_", "changes_"):
        assert np.array_equal(getattr(back, name), getattr(result, name))
    assert (back.statistics_, str(back.status), back.algorithm) == (
        result.statistics_,
        str(result.status),
        result.algorithm,
    )
    assert back.table() == result.table()
    V = result.components_[9]
    rows = problem.L[540:560]
    np.testing.assert_allclose(result.transform(problem.Y[540:560], step=9), rows @ V.T, atol=1e-6)
    np.testing.assert_allclose(result.complete(problem.Y[540:560], step=9), rows, atol=1e-6)


def test_a_run_resumes_bit_for_bit(problems, tmp_path):
    settings = {"channel": AirChannel(noise_std=1e-3, seed=5, gain=(0.5, 2.0), gain_error=0.01)}
    tracker = STMiss(detect=True, update_length=2, solver="power", refine=True, products=4, first_products=9)
    settings["steps"], path = 3, tmp_path / "run.npz"
    whole = run_tracker(problems[0], tracker, 2, **settings)
    resumed = gone_on(run_tracker, problems[0], tracker, 2, path=path, stop=[17], **settings)
    assert np.array_equal(whole.components_, resumed.components_)
    assert len(whole.history) == len(resumed.history)
    assert not path.exists()
    with pytest.raises(StopError):
        run_tracker(problems[0], tracker, 2, checkpoint=path, on_round=stop_after(17), **settings)
    with pytest.raises(ConfigError, match="The checkpoint belongs to another run"):
        run_tracker(problems[0], tracker, 2, checkpoint=path, seed=1)


OUTAGES = {"gaps only": np.nan, "zeros": 0.0}


def turned(clients, steps, *, seed=0, d=12, r=2):
    """Batches of 20 rows in one plane, by client and step."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((d, r)))[0]
    return [[rng.standard_normal((20, r)) * [3.0, 1.0] @ U.T for _ in range(steps)] for _ in range(clients)], U


@pytest.mark.parametrize(
    ("tracker", "outage", "mask", "at"),
    [
        ("st_miss", "gaps only", False, 0),
        ("st_miss", "zeros", True, 2),
        ("robust_tracking", "gaps only", True, 2),
        ("robust_tracking", "zeros", False, 0),
        ("st_miss(solver='power')", "gaps only", False, 2),
        ("st_miss(solver='power')", "zeros", True, 0),
        ("st_miss(refine=True)", "gaps only", True, 0),
        ("st_miss(refine=True)", "zeros", False, 2),
    ],
)
def test_an_outage_at_all_clients_leaves_the_basis_as_it_was(tracker, outage, mask, at):
    batches, U = turned(3, 4)
    for client in batches:
        client[at] = np.full((20, len(U)), OUTAGES[outage])
    result = track(tracker, batches, n_components=2, mask=mask)
    assert len(result.components_) == 4 - (at == 0)  # before the first rows there is nothing to record
    for components in result.components_:
        assert np.linalg.norm(U - components.T @ (components @ U), 2) < 1e-9
    assert not result.changes_.any()


@pytest.mark.parametrize("early", [[None], [None, 0, 2], [None, 1, None, 2]])
def test_a_run_says_which_batch_its_first_step_is_where_earlier_ones_have_too_few_rows(early):
    """`completed` counts the batches of a stream, and the result the steps that have a basis."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((6, 20))
    lengths = [*early, 30, None, 30]
    batches = [None if n is None else rng.standard_normal((n, 6)) @ mixing for n in lengths]
    stream = Stream(batches, keep=True)
    result = track("st_miss", [stream], n_components=6)
    first = len(early)
    assert result.rows_.tolist() == [30 + sum(n or 0 for n in early), 0, 30]
    assert np.isclose(np.sum(stream.completed[first + 2].rows ** 2), result.values_[2].sum())
    assert f"step 0 is batch {first} of the streams, because earlier batches have too few rows" in result.status.words
    assert "of the streams" not in track("st_miss", [batches[first:]], n_components=6).status.words


def test_an_outage_at_one_client_is_a_step_without_rows_for_it():
    batches, U = turned(2, 4)
    none = [list(client) for client in batches]
    none[1][1], batches[1][1] = None, np.full((20, len(U)), np.nan)
    result, reference = (track("st_miss", parts, n_components=2) for parts in (batches, none))
    assert np.array_equal(result.components_, reference.components_)
    assert result.rows_.tolist() == [40, 20, 40, 40]
    assert not any(r.failures for r in result.history)


@pytest.mark.parametrize(("d", "r", "p"), [(50, 4, 3), (6, 4, 2), (6, 4, 0), (5, 4, 1), (1, 0, 1)])
def test_random_directions_beside_a_basis_are_orthonormal_to_it_and_to_each_other(d, r, p):
    P = np.linalg.qr(np.random.default_rng(d).standard_normal((d, r)))[0]
    for seed in range(20):
        Q = np.hstack([P, orthogonal_columns(P, p, seed)])
        np.testing.assert_allclose(Q.T @ Q, np.eye(r + p), atol=1e-13)


def test_advice_has_no_infinities_and_no_words_of_numpy(recwarn):
    """A column of 1e8 beside columns of nothing, as the bytes of network traffic are beside rates of 0."""
    rng = np.random.default_rng(0)
    rows = np.zeros((60, 5))
    rows[:, 1] = 1e200 * rng.standard_normal(60)
    noisy = 1e-3 * rng.standard_normal((60, 5))
    noisy[:, 1] = 1e8 * rng.standard_normal(60)
    for stream, r in ((rows * 1e-140, 3), (noisy, 2), (rows * 1e-192, 2)):
        words = track("st_miss", [stream], n_components=r, batch=10).status.words
        assert "component 1 is column 1 alone, more than 1,000,000 times the next: check for a stuck sensor" in words
        assert "inf" not in words
        assert "nan" not in words
    assert not recwarn.list
