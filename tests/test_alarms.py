"""Test alarms of a tracker whose level is learnt: rare in quiet streams, prompt after a change."""

import numpy as np
import pytest
from builders import gone_on, stop_at_step

from benchmarks import alarms
from flower_pca import STMiss, TrackingResult, track
from flower_pca.tracking.change import QuietDistribution, RecentBases


@pytest.mark.slow
@pytest.mark.parametrize("kind", alarms.QUIET)
def test_quiet_streams_raise_few_alarms_whatever_their_tails(kind):
    assert sum(len(alarms.alarms(alarms.QUIET[kind], 150, seed)) for seed in range(1)) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [53102, 53103, 53105, 53106])
def test_outlying_rows_of_two_batches_in_a_row_are_no_change(seed):
    """Each of these streams had an alarm where two batches had an outlying row, or one that spoiled the next basis."""
    assert not alarms.alarms(alarms.students, 700, seed, monitor=True)


def test_a_direction_counts_as_far_as_both_batches_have_it():
    P, far = np.eye(30)[:, :3], np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))[0]
    noise = 0.3 * np.linalg.qr(np.random.default_rng(1).standard_normal((30, 30)))[0]
    one, other = (np.column_stack([noise, 5.0 * far[:, j]]) for j in (3, 4))
    seen = RecentBases(bases=(P, P, P), rows=(40, 40, 40), before=(25.0, 25.0, 25.0), factor=one)
    assert seen.statistic((25.0, 25.0, 25.0), seen.parts_outside(one), 40) > 20.0
    assert seen.statistic((25.0, 25.0, 25.0), seen.parts_outside(other), 40) < 2.0


def test_a_basis_that_an_outlying_row_has_spoiled_is_forgotten():
    P = np.eye(30)[:, :3]
    seen = RecentBases(bases=(P[:, [2, 1, 0]], P, P), rows=(40, 40, 40), before=(0.3, 0.3, 0.3), factor=P)
    assert seen.is_spoiled((49.0, 9.0, 9.0), P, seen.parts_outside(P), None)
    assert not seen.is_spoiled((49.0, 49.0, 49.0), P, seen.parts_outside(P), None)
    completed = np.column_stack([P, 20.0 * np.eye(30)[:, 5]])  # far beyond what the observed values of the column allow
    parts = seen.parts_outside(completed)
    assert seen.is_spoiled((9.0, 400.0, 400.0), completed, parts, np.ones(30))
    assert not seen.is_spoiled((9.0, 400.0, 400.0), completed, parts, np.full(30, 400.0))
    after = seen.after_step(P, (49.0, 9.0, 9.0), 40, P, spoiled=True)
    assert [basis is P for basis in after.bases] == [True, True, True]
    assert after.before == (9.0, 9.0)


@pytest.mark.slow
@pytest.mark.parametrize("at", alarms.STEPS)
@pytest.mark.parametrize("kind", [kind for kind in alarms.SINGLE if kind not in ("a lost direction", "a dead column")])
def test_a_change_is_told_by_its_second_batch(kind, at):
    """In the steps that the level is learnt from too: these are judged once it is known."""
    found = alarms.alarms(alarms.SINGLE[kind](at), max(at, 15) + 5, seed=0)
    assert found in ([at], [at + 1])


@pytest.mark.slow
def test_one_change_does_not_hide_the_next():
    assert alarms.alarms(alarms.turned(0.3, 12, 60), 65, seed=1) == [13, 61]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slow drift", f"a lost direction, step {alarms.CHANGE}"])
def test_slow_drift_and_a_lost_direction_are_followed_without_an_alarm(kind):
    batch, steps = alarms.CHANGES[kind][0], alarms.CHANGE + 10
    result = track(STMiss(detect=True), [alarms.stream(batch, steps, 0)], n_components=alarms.RANK)
    assert not result.changes_.size
    last = list(alarms.stream(batch, steps, 0))[-1]
    whole = result.complete(last)
    seen = np.linalg.svd(whole)[2][: alarms.RANK - 1]
    assert np.linalg.norm(seen - seen @ result.components_[-1].T @ result.components_[-1], 2) < 0.1


def steady(steps, *, change=None, seed=0, d=8, n=12):
    """Batches in a plane with a little noise, which is another one from a step on."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    planes = [Q[:, :2], Q[:, 2:4]]
    made = (planes[int(change is not None and t >= change)] for t in range(steps))
    return [rng.standard_normal((n, 2)) * [5.0, 4.0] @ U.T + 0.1 * rng.standard_normal((n, d)) for U in made]


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "mask"), [("krylov", True), ("power", False)])
def test_the_level_comes_with_every_solver_and_from_sums(solver, mask):
    rows = steady(46, change=40)
    clients = [[batch[k::2] for batch in rows] for k in range(2)]
    tracker = STMiss(detect=True, solver=solver, first_products=12, products=2)
    result = track(tracker, clients, n_components=2, mask=mask)
    assert result.changes_.tolist() == [41]
    assert sorted(result.levels_) == list(range(10, 42))  # all steps except the first 10, judged afterwards
    assert result.statistics_[41] > 10 * result.levels_[41]
    assert all(result.statistics_[j] <= result.levels_[j] for j in range(10, 41))
    assert "32 steps tested for a change, from step 10 on" in result.status.words


@pytest.mark.slow
def test_one_wild_batch_is_no_change_and_does_not_hide_one():
    rows = steady(52, change=48)
    rows[40] = rows[40] + 100.0 * np.eye(12, 8)
    assert track(STMiss(detect=True), [rows], n_components=2).changes_.tolist() == [49]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4])
def test_a_wild_row_now_and_then_is_no_change(seed):
    """It spoils the basis that completes the next batch, which leaves more then than at any other time."""
    assert alarms.alarms(alarms.wild_rows, 70, seed) == []


@pytest.mark.slow
def test_a_stream_that_stays_louder_is_known_after_a_few_alarms():
    rows = steady(240)
    louder = [batch if t < 40 else 3.0 * batch for t, batch in enumerate(rows)]
    changes = track(STMiss(detect=True), [louder], n_components=2).changes_
    assert 1 <= len(changes) <= 8
    assert changes[0] == 41
    assert changes[-1] < 160


@pytest.mark.slow
def test_without_noise_nothing_is_no_change():
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((8, 2)))[0]
    rows = [rng.standard_normal((12, 2)) @ U.T for _ in range(60)]
    assert not track(STMiss(detect=True), [rows], n_components=2).changes_.size


def test_the_level_is_a_quantile_of_what_was_quiet():
    rng, watch = np.random.default_rng(0), QuietDistribution()
    assert watch.alarm_level(1e-3) is None
    for value in rng.laplace(size=2000):  # the chance of more than x is exp(-x) / 2
        watch = watch.with_values(value)
    for rate in (1e-2, 1e-3):
        assert 0.25 / rate < np.exp(watch.alarm_level(rate)) < 1.0 / rate
    assert len(watch.quiet) == 600


@pytest.mark.slow
def test_a_run_that_goes_on_knows_what_was_quiet(tmp_path):
    given = (STMiss(detect=True), [steady(46, change=40)])
    whole = track(*given, n_components=2)
    resumed = gone_on(track, *given, path=tmp_path / "run.npz", stop=stop_at_step(38), n_components=2)
    assert resumed.levels_ == whole.levels_
    assert resumed.changes_.tolist() == [41]
    assert TrackingResult.load(whole.save(tmp_path / "result.npz")).levels_ == whole.levels_


def test_a_run_says_in_which_step_it_has_seen_an_earlier_change():
    records = []
    result = track(STMiss(detect=True), [steady(22, change=13)], n_components=2, on_step=records.append)
    assert result.changes_.tolist() == [14]
    assert result.totals_["changed"] == 1
    told = {record.step: record.change for record in records if record.change}
    assert list(told) == [17]
    assert told[17].startswith("The subspace has changed at step 14: the statistic is ")


@pytest.mark.slow
def test_a_stream_that_swings_is_said_to_be_too_unsteady():
    rows = [batch * 10.0 ** (t % 7 % 3) for t, batch in enumerate(steady(60, change=50))]
    assert "too unsteady to monitor: an alarm needs" in track(STMiss(detect=True), [rows], n_components=2).status.words


def turning(*, at=None, repaired=None, turn=None, steps, seed):
    """Batches as of `steady`, of which a column is 20 in some steps; and which turn a little at a step."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    for t in range(steps):
        by = 0.2 * (turn is not None and t >= turn)
        U = Q[:, :2] * np.cos(by) + Q[:, 2:4] * np.sin(by)
        rows = rng.standard_normal((12, 2)) * [5.0, 4.0] @ U.T + 0.1 * rng.standard_normal((12, 8))
        if at is not None and at <= t < (repaired or steps):
            rows[:, 6] = 20.0
        yield rows


@pytest.mark.parametrize(("at", "seed"), [(12, 0), (20, 1), pytest.param(40, 2, marks=pytest.mark.slow)])
def test_a_sensor_that_stays_stuck_is_one_change(at, seed):
    """A component more is outside of the subspace from then on: that is what the stream is like, and no change."""
    rows = turning(at=at, steps=at + 45, seed=seed)
    changes = track(STMiss(detect=True), [rows], n_components=2).changes_.tolist()
    assert changes in ([at], [at + 1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("monitor", "changes"), [(False, [41, 101]), (True, [41, 71, 101])])
def test_a_sensor_that_was_stuck_for_a_while_does_not_hide_a_change_after_its_repair(monitor, changes, seed):
    """The repair itself takes a direction away, which only `monitor` tells."""
    rows = turning(at=40, repaired=70, turn=100, steps=104, seed=seed)
    assert track(STMiss(detect=True, monitor=monitor), [rows], n_components=2).changes_.tolist() == changes


@pytest.mark.parametrize(("monitor", "seed"), [(False, 0), pytest.param(True, 1, marks=pytest.mark.slow)])
def test_a_change_while_all_clients_are_away_is_told_once_they_are_back(monitor, seed):
    rows = list(turning(turn=40, steps=66, seed=seed))
    rows[30:60] = [batch[:0] for batch in rows[30:60]]
    assert track(STMiss(detect=True, monitor=monitor), [rows], n_components=2).changes_.tolist() == [61]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_clients_that_are_away_for_a_while_are_no_change(seed):
    rows = steady(90, seed=seed)
    rows[30:60] = [batch[:0] for batch in rows[30:60]]
    rows[70:73] = [batch[:1] for batch in rows[70:73]]  # fewer rows than components
    assert not track(STMiss(detect=True, monitor=True), [rows], n_components=2).changes_.size


@pytest.mark.slow
def test_a_run_that_goes_on_knows_what_a_stream_has_been_like_since_a_change(tmp_path):
    rows = list(turning(at=40, repaired=70, turn=100, steps=104, seed=0))
    given = (STMiss(detect=True, monitor=True), [rows])
    whole = track(*given, n_components=2)
    resumed = gone_on(track, *given, path=tmp_path / "run.npz", stop=stop_at_step(65), n_components=2)
    assert resumed.levels_ == whole.levels_
    assert resumed.changes_.tolist() == [41, 71, 101]
