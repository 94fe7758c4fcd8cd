"""Test streams with a season: its period is found and reported, and raises no further alarms."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import alarms
from flower_pca import STMiss, track
from flower_pca.tracking.season import AlarmPeriod

WEEKENDS = list(alarms.SEASONS.values())


def seasonal_values(steps, period, seed=0, loud=3.0):
    """Logarithms of a statistic that is louder in every step of one phase."""
    quiet = 0.1 * np.random.default_rng(seed).standard_normal(steps)
    return quiet + loud * (np.arange(steps) % period == period - 1)


def season_of(values):
    season = AlarmPeriod()
    for number, value in enumerate(values):
        season = season.with_step(number, value)
    return season


@pytest.mark.parametrize("period", [2, 7, 30])
def test_the_period_of_alarms_is_found_if_three_loud_steps_are_of_one_phase(period):
    season = season_of(seasonal_values(3 * period, period))
    first, _, last = (j * period - 1 for j in (1, 2, 3))
    assert season.with_alarm(last, 1.0).period == 0
    # The steps between them were loud as well, although nothing was searched there.
    assert season.with_alarm(first, 1.0).with_alarm(last, 1.0).period == period
    two = season_of(seasonal_values(2 * period, period)).with_alarm(period - 1, 1.0)
    assert two.with_alarm(2 * period - 1, 1.0).period == 0


def test_two_alarms_in_a_stream_that_stays_loud_are_no_season():
    season = AlarmPeriod()
    for number in range(40):
        season = season.with_step(number, 3.0 * (number >= 10))
    assert season.with_alarm(10, 1.0).with_alarm(24, 1.0).period == 0


def test_what_steps_of_a_phase_usually_are_is_taken_off_and_of_no_other_phase():
    values, season = seasonal_values(70, 7), AlarmPeriod(period=7)
    for number, value in enumerate(values):
        season = season.with_step(number, value)
    assert season.offset(76) == pytest.approx(3.0, abs=0.2)
    assert [season.offset(number) for number in range(70, 76)] == [0.0] * 6
    assert np.abs(season.without_phase_effect()).max() < 0.6
    # After the season, these steps are like all others again.
    for number in range(70, 120):
        season = season.with_step(number, 0.1 * (number % 3))
    assert season.offset(125) == 0.0


@pytest.mark.parametrize("batch", WEEKENDS)
@pytest.mark.parametrize("monitor", [False, True])
def test_noisy_weekends_raise_two_alarms_and_are_reported(batch, monitor):
    result = alarms.run_of([alarms.stream(batch, 120, 3)], 3, monitor=monitor)
    assert len(result.changes_) <= 3
    assert "alarms come every 7 steps" in result.status.words
    # all but the first steps and those after an alarm are judged
    assert len(result.levels_) > 70


@pytest.mark.parametrize("batch", WEEKENDS)
def test_a_change_beside_a_season_is_found_by_its_second_batch(batch):
    assert all(alarms._change_in(batch, seed, monitor=False) for seed in (1, 2))


def test_the_record_of_the_second_alarm_says_that_they_come_back():
    told = []
    clients = [list(alarms.stream(alarms.loud_weekends, 40, 3))]
    result = track(STMiss(detect=True), clients, n_components=alarms.RANK, seed=3, on_step=told.append)
    said = {record.step: record.change for record in told if record.change}
    last = int(result.changes_[-1])
    assert "These alarms recur every 7 steps" in said[last]
    assert sum("recur every" in words for words in said.values()) == 1


def test_a_run_goes_on_from_a_checkpoint_with_its_season(tmp_path):
    def clients():
        return [list(alarms.stream(alarms.loud_weekends, 60, 3))]

    whole = track(STMiss(detect=True), clients(), n_components=alarms.RANK, seed=3)
    path = tmp_path / "state.npz"

    def stop(record):
        if record.step == 40:
            raise KeyboardInterrupt

    given = {"n_components": alarms.RANK, "seed": 3, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        track(STMiss(detect=True), clients(), on_step=stop, **given)
    again = track(STMiss(detect=True), clients(), **given)
    assert again.changes_.tolist() == whole.changes_.tolist()
    assert again.levels_ == whole.levels_
    assert again.status.words == whole.status.words
