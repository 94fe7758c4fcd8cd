"""Test endless streams: what is kept, the size of messages and checkpoints, and messages to the user."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from builders import StopError, gone_on, stop_at_step
from cases import PLAIN_OR_MASKED

import flower_pca
from flower_pca import ConfigError, DataError, STMiss, Stream, TrackingResult, report, track
from flower_pca.core import run
from flower_pca.tracking import change, season

D, R = 12, 2


def endless_batches(steps, *, d=D, seed=0, clients=1, n=12):
    """A plane with noise, from a function, so that nothing of the stream is kept."""
    U = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, R)))[0]

    def of(client):
        def batch(step):
            if step >= steps:
                return None
            rng = np.random.default_rng([seed, client, step])
            return rng.standard_normal((n, R)) * [3.0, 2.0] @ U.T + 0.1 * rng.standard_normal((n, d))

        return batch

    return [of(client) for client in range(clients)]


@pytest.mark.slow
@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
def test_the_newest_steps_are_kept_and_the_totals_of_all(mask, tmp_path):
    whole, part = (
        track(STMiss(keep=k), endless_batches(9, clients=2), n_components=R, steps=9, mask=mask) for k in (100, 4)
    )
    assert (whole.first_, part.first_, part.steps) == (0, 5, 4)
    assert whole.totals_ == part.totals_ == {"steps": 9, "rows": 216, "deficient": 0, "outliers": 0, "changed": 0}
    for name in ("components_", "values_", "rows_", "residuals_"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[5:])
    assert list(part.statistics_) == [5, 6, 7, 8]
    assert str(part.status).startswith("done: 9 steps")
    back = TrackingResult.load(part.save(tmp_path / "t.npz"))
    assert (back.first_, back.totals_) == (5, part.totals_)
    assert back.table().splitlines()[1].split()[0] == "5"
    if not mask:
        report.write(back, tmp_path / "t.html", title="The newest steps")


@pytest.mark.slow
@pytest.mark.parametrize(("at", "mask"), [(2, True), (9, False)])
def test_a_run_goes_on_with_the_steps_that_lie_beside_its_checkpoint(at, mask, tmp_path):
    given = (STMiss(keep=4), endless_batches(12, clients=2))
    asked = {"n_components": R, "mask": mask}
    whole = track(*given, **asked)
    resumed = gone_on(track, *given, path=tmp_path / "run.npz", stop=stop_at_step(at), **asked)
    assert np.array_equal(resumed.components_, whole.components_) or mask
    assert np.abs(resumed.components_ - whole.components_).max() < 1e-8
    assert (resumed.totals_, resumed.first_) == (whole.totals_, whole.first_)
    assert mask or resumed.history.bytes_up == whole.history.bytes_up
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
@pytest.mark.parametrize("refine", [False, True])
def test_a_function_that_has_no_more_batches_ends_the_run_and_records_no_step_of_it(refine, mask):
    streams, kept = ([Stream(batch, keep=True) for batch in endless_batches(4, clients=2)] for _ in range(2))
    seen, given = [], {"n_components": R, "mask": mask}
    whole = track(STMiss(refine=refine), kept, steps=4, **given)
    found = track(STMiss(refine=refine), streams, on_step=seen.append, **given)
    assert str(found.status).startswith("done: 4 steps, no client has more rows")
    assert found.rows_.tolist() == [24] * 4
    assert [record.step for record in seen] == [0, 1, 2, 3]
    assert np.abs(found.components_ - whole.components_).max() < 1e-8
    for mine, other in zip(streams, kept, strict=True):  # The last batch is completed once more as well, if requested.
        assert sorted(mine.completed) == [0, 1, 2, 3]
        np.testing.assert_allclose(mine.completed[3].rows, other.completed[3].rows, atol=1e-8)


def test_a_step_without_rows_is_recorded_where_a_stream_has_told_of_it_or_steps_are_asked_for():
    batch = endless_batches(3)[0]
    found = track("st_miss", [[batch(0), None, batch(1), None, None]], n_components=R)
    assert found.rows_.tolist() == [12, 0, 12, 0, 0]  # A list says how many steps there are.
    both = track("st_miss", [batch, [batch(0), None, batch(1), None, None, None]], n_components=R)
    assert both.rows_.tolist() == [24, 12, 24, 0, 0, 0]
    assert track("st_miss", [batch], n_components=R, steps=5).rows_.tolist() == [12, 12, 12, 0, 0]


@pytest.mark.slow
def test_an_endless_stream_goes_on_with_more_steps_than_before(tmp_path):
    path, whole = tmp_path / "run.npz", track("st_miss", endless_batches(9), n_components=R)
    with pytest.raises(StopError):
        track("st_miss", endless_batches(5), n_components=R, checkpoint=path, on_round=stop_at_step(4))
    resumed = track("st_miss", endless_batches(9), n_components=R, checkpoint=path)
    assert np.array_equal(resumed.components_, whole.components_)


@pytest.mark.slow
@pytest.mark.parametrize("mask", PLAIN_OR_MASKED)
def test_a_run_of_so_many_steps_goes_on_with_more_or_fewer_of_them(mask, tmp_path):
    path, given = tmp_path / "run.npz", {"n_components": R, "checkpoint": tmp_path / "run.npz", "mask": mask}
    for before, after in ((5, 9), (None, 6)) if mask else ((5, 9), (9, 5), (5, None), (None, 6)):
        whole = track("st_miss", endless_batches(9, clients=2), n_components=R, steps=after)
        with pytest.raises(StopError):
            track("st_miss", endless_batches(9, clients=2), steps=before, on_round=stop_at_step(4), **given)
        with pytest.raises(ConfigError, match="The run in the checkpoint has already begun step 5, so steps"):
            track("st_miss", endless_batches(9, clients=2), steps=4, **given)
        resumed = track("st_miss", endless_batches(9, clients=2), steps=after, **given)
        assert np.abs(resumed.components_ - whole.components_).max() < (1e-8 if mask else 1e-300)
        assert str(resumed.status) == str(whole.status)
        assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "refine"), [(False, True), (True, False)])
def test_a_run_that_is_stopped_at_its_very_end_has_its_result_and_no_other_steps(refine, mask, tmp_path):
    def stop(run):
        if run.is_finished:
            raise StopError

    path, given = tmp_path / "run.npz", {"n_components": R, "mask": mask}
    tracker, longer = STMiss(refine=refine), endless_batches(9, clients=2)
    for before, after, all_of_them in ((5, 5, 5), (5, None, 5), (None, None, 5), (None, 5, 5)):
        whole = track(tracker, endless_batches(5, clients=2), steps=all_of_them, **given)
        with pytest.raises(StopError):
            track(tracker, endless_batches(5, clients=2), steps=before, checkpoint=path, on_round=stop, **given)
        for others in (4, 8):
            rule = f"The run in the checkpoint has ended after {all_of_them} steps, so steps cannot be {others}"
            with pytest.raises(ConfigError, match=rf"{rule}\. Leave steps out, or delete the checkpoint"):
                track(tracker, longer, steps=others, checkpoint=path, **given)
        found = track(tracker, longer, steps=after, checkpoint=path, **given)
        assert found.totals_ == whole.totals_
        assert np.abs(found.components_ - whole.components_).max() < (1e-8 if mask else 1e-300)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spoil", ["gone", "of another run", "cut off"])
def test_steps_of_another_run_are_refused(spoil, tmp_path):
    path, steps = tmp_path / "run.npz", tmp_path / "run.npz.steps"
    with pytest.raises(StopError):
        track("st_miss", endless_batches(9), n_components=R, checkpoint=path, on_round=stop_at_step(5))
    known = steps.read_bytes()
    if spoil == "gone":
        steps.unlink()
    else:
        lines = np.frombuffer(known).copy()
        lines[1] += 1.0
        steps.write_bytes(lines.tobytes() if spoil == "of another run" else known[:40])
    with pytest.raises(DataError, match=r"The steps in .*run.npz.steps do not belong to the checkpoint."):
        track("st_miss", endless_batches(9), n_components=R, checkpoint=path)


@pytest.mark.slow
def test_what_is_written_with_a_message_does_not_grow(tmp_path):
    path, sizes = tmp_path / "run.npz", {}

    def measure(run):
        sizes[run.position.state.step] = path.stat().st_size

    track(STMiss(keep=16), endless_batches(121), n_components=R, checkpoint=path, on_round=measure)
    assert sizes[120] < 1.1 * sizes[60]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps(monkeypatch):
    """Once the newest messages and quiet steps are there, of which fewer are kept than usual."""
    monkeypatch.setattr(run, "NEWEST", 40)
    monkeypatch.setattr(change, "_NEWEST", 40)
    monkeypatch.setattr(season, "_KEPT", 40)
    held = {}

    def measure(now):
        step = now.position.state.step
        if step in (450, 630, 810) and step not in held:
            gc.collect()
            held[step] = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)

    # Other tests' threads may take memory meanwhile: what counts is the package's own, and what numpy takes for it.
    ours = [tracemalloc.Filter(True, str(Path(module.__file__).parent / "*")) for module in (flower_pca, np)]
    tracemalloc.start()
    try:
        track(
            STMiss(detect=True, monitor=True, keep=20, products=1),
            endless_batches(811, n=4),
            n_components=R,
            on_round=measure,
        )
    finally:
        tracemalloc.stop()
    # An array kept of each step takes twice as much, in each of two stretches. What numpy keeps once may fall into one.
    assert min(held[630] - held[450], held[810] - held[630]) < 1.0e4


def test_the_status_names_a_stuck_sensor_and_what_to_do():
    rows = [batch(step) for batch in endless_batches(1) for step in [0]] * 6
    stuck = [np.where(np.arange(D) == 7, 500.0, own) for own in rows]
    result = track("st_miss", [stuck], n_components=R)
    assert "component 1 is column 7 alone" in str(result.status)
    assert "robust_tracking removes wrong entries" in str(result.status)
    assert "alone" not in str(track("st_miss", [rows], n_components=R).status)


def test_the_status_says_that_there_are_too_few_components():
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((D, 4)))[0]
    rows = [rng.standard_normal((40, 4)) * [6, 5, 4, 3] @ U.T + 0.2 * rng.standard_normal((40, D)) for _ in range(8)]
    assert "3 components may be too few: one direction" in str(track("st_miss", [rows], n_components=3).status)
    assert "too few" not in str(track("st_miss", [rows], n_components=4).status)
    noiseless = [rng.standard_normal((40, 4)) @ U.T for _ in range(8)]
    assert "too few" not in str(track("st_miss", [noiseless], n_components=4).status)
