"""Test the cause of a change: its reason, its columns, its sites, from sums, and only with `monitor`."""

import dataclasses
import json

import numpy as np
import pytest
from builders import gone_on, stop_at_step

from flower_pca import STMiss, TrackingResult, track
from flower_pca.core.kinds import Kind
from flower_pca.core.model import Model
from flower_pca.results.record import Events
from flower_pca.rows import gaps
from flower_pca.rows.stream import Stream
from flower_pca.tracking import batch
from flower_pca.tracking.change import QuietDistribution, StreamPosition
from flower_pca.tracking.columns import BatchFigures

D, R, AT = 8, 2, 24
MONITORED = STMiss(detect=True, monitor=True)


def changing_sites(change, *, at=AT, steps=AT + 4, bad=(0, 1, 2), n=12):
    """The batches of three sites in a plane with a little noise, which `change` alters at some from a step on."""
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    Q[6] *= 1e-3  # a column of noise
    clients = [[], [], []]
    for step in range(steps):
        for site, batches in enumerate(clients):
            scores, noise = rng.standard_normal((n, R)) * [5.0, 4.0], 0.1 * rng.standard_normal((n, D))
            if step >= at and site in bad:
                batches.append(change(scores, noise, Q))
            else:
                batches.append(scores @ Q[:, :R].T + noise)
    return clients


def begun():
    """A run that has a basis to begin with."""
    return Model(seed=0, n_components=R, center=False, scale=None, basis=np.eye(D, R), d=D)


def louder(scores, noise, Q):
    rows = scores @ Q[:, :R].T + noise
    rows[:, 2] *= 10.0
    return rows


def stuck(scores, noise, Q):
    rows = scores @ Q[:, :R].T + noise
    rows[:, 6] = 0.1  # as large as its noise, so nothing of it lies outside the subspace
    return rows


def one_direction_lost(scores, noise, Q):
    return scores[:, :1] @ Q[:, :1].T + noise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason", "column"), [(louder, "SPE", 2), (stuck, "column", 6), (one_direction_lost, "T2", None)]
)
def test_a_change_has_a_reason_and_columns(change, reason, column):
    result = track(MONITORED, changing_sites(change), n_components=R)
    assert result.changes_.tolist() == [AT + 1]
    cause = result.causes_[AT + 1]
    assert reason in cause["reasons"]
    if column is None:  # the columns of the lost direction
        Q = np.linalg.qr(np.random.default_rng(3).standard_normal((D, D)))[0]
        assert int(np.argmax(np.abs(Q[:, 1]))) in cause["columns"]
    else:
        assert cause["columns"][0] == column
    assert f"Step {AT + 1}: by " in " ".join(result.summary().findings)
    if change is not louder:
        assert not track(STMiss(detect=True), changing_sites(change), n_components=R).changes_.size


@pytest.mark.slow
def test_a_change_names_its_site_in_the_record_too(tmp_path):
    records, clients = [], changing_sites(louder, bad=(1,))
    events = Events(tmp_path / "e.jsonl")

    def tell(record):
        events(record)
        records.append(record)

    streams = [Stream(own) for own in clients]
    streams[1].site = "north"
    result = track(MONITORED, streams, n_components=R, on_step=tell)
    (record,) = [one for one in records if one.change]
    assert (
        record.cause
        == result.causes_[record.step]
        == {"reasons": record.cause["reasons"], "columns": [2], "sites": [1]}
    )
    assert record.change.endswith(", most in column 2, at north.")
    line = json.loads((tmp_path / "e.jsonl").read_text().splitlines()[record.step])
    assert line["cause"] == record.cause
    assert TrackingResult.load(result.save(tmp_path / "r.npz")).causes_ == result.causes_
    moved = result.with_keys({1: 2**63 + 1})
    assert moved.causes_[record.step]["sites"] == [2**63 + 1]


@pytest.mark.slow
def test_under_masks_there_are_reason_and_columns_but_no_sites():
    tracker = STMiss(detect=True, monitor=True, first_products=12, products=3)
    bare, masked = (
        track(tracker, changing_sites(louder, bad=(1,)), n_components=R, mask=mask) for mask in (False, True)
    )
    assert bare.changes_.tolist() == masked.changes_.tolist() == [AT + 1]
    one, two = bare.causes_[AT + 1], masked.causes_[AT + 1]
    assert (one["reasons"], one["columns"]) == (two["reasons"], two["columns"])
    assert (one["sites"], two["sites"]) == ([1], [])


@pytest.mark.slow
def test_a_change_while_levels_are_learnt_is_told_once_with_its_reason():
    records = []
    result = track(
        MONITORED, changing_sites(one_direction_lost, at=12, steps=24), n_components=R, on_step=records.append
    )
    assert result.changes_.tolist() == [13]
    assert "T2" in result.causes_[13]["reasons"]
    assert [record.cause for record in records if record.change] == [result.causes_[13]]


def rarely_one(steps, *, seed, often_from=None):
    """Batches in a plane whose last column is 1 in one row of a hundred, else 0; from a step on it is often 30."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :R]
    for step in range(steps):
        rows = (rng.standard_normal((60, R)) * [5.0, 4.0]) @ Q.T + 0.1 * rng.standard_normal((60, D))
        event = (rng.random((60, 1)) < 0.01).astype(float)
        if often_from is not None and step >= often_from:
            event = 30.0 * (rng.random((60, 1)) < 0.5)
        yield np.hstack([rows, event])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_column_of_something_rare_that_comes_and_goes_is_a_change_twice_at_most(seed):
    found = track(MONITORED, [rarely_one(200, seed=seed)], n_components=R)
    assert [step for step in found.causes_ if step > 40] == []
    often = track(MONITORED, [rarely_one(80, seed=seed, often_from=70)], n_components=R).causes_
    assert [step for step in often if step > 40] == [71]
    assert often[71]["columns"][0] == D


def test_clients_send_three_sums_by_column_with_the_first_message_of_a_step_only():
    state = MONITORED.start(begun())
    arrays = MONITORED.broadcast(state)
    assert "columns" in arrays
    parts = MONITORED.parts(arrays, D)
    assert {name: parts[name].shape for name in batch.BY_COLUMN} == dict.fromkeys(batch.BY_COLUMN, (D,))
    assert parts["column_seen"].kind is Kind.COUNT
    rows = np.random.default_rng(0).standard_normal((30, D))
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    answer = MONITORED.client(arrays, Stream([rows]), {})[0]
    expected = (~np.isnan(rows)).sum(axis=0), np.nansum(rows, axis=0), np.nansum(rows**2, axis=0)
    for name, value in zip(batch.BY_COLUMN, expected, strict=True):
        assert np.allclose(answer[name], value, rtol=1e-13, atol=1e-13)
    halves = [batch.sums_by_column(*gaps.without_gaps(rows[k::2])) for k in range(2)]
    assert np.allclose(sum(halves), np.stack(expected), rtol=1e-13, atol=1e-13)
    assert "columns" not in STMiss(detect=True).broadcast(STMiss(detect=True).start(begun()))
    away = MONITORED.client(arrays, Stream([None, rows]), {})[0]
    assert all(np.array_equal(away[name], np.zeros(D)) for name in batch.BY_COLUMN)


def test_what_stands_still_has_no_variance_however_far_from_zero():
    d, rows = 3, 40
    sums = np.full(d, 1e6 * rows)
    still = BatchFigures(
        seen=np.full(d, float(rows)), sums=sums, squares=sums**2 / rows, solver=None, bases=(), values=np.ones(1),
        rows=rows, each={},
    ).column_variances()  # fmt: skip
    assert (still[0] <= np.log(1e-12 * 1e12) + 1e-9).all()


@pytest.mark.slow
def test_a_run_that_goes_on_knows_columns_and_directions(tmp_path):
    given = (MONITORED, changing_sites(one_direction_lost))
    whole = track(*given, n_components=R)
    resumed = gone_on(track, *given, path=tmp_path / "run.npz", stop=stop_at_step(AT), n_components=R)
    assert resumed.causes_ == whole.causes_ != {}
    assert resumed.levels_ == whole.levels_


def test_an_alarm_takes_the_least_factor_that_is_worth_a_word():
    known = QuietDistribution(np.zeros(40))
    place = StreamPosition(number=50, looks=True, since=40, rate=1e-3, pause=10)
    assert known.verdict_on(1.0, place)[0].changed
    above = dataclasses.replace(place, floor=1.2)
    assert not known.verdict_on(1.0, above)[0].changed
