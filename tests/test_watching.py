"""Test a running tracker: the record of each step, the result so far, and marks of filled-in entries."""

import itertools
import json
import threading

import numpy as np
import pytest
from builders import StopError, sine
from fake_grid import FakeGrid, arrays_in, hosts_of, with_arrays
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from flower_pca import (
    ConfigError,
    NotEnoughNodes,
    RobustTracking,
    STMiss,
    Stream,
    Table,
    app,
    simulate,
    strategies,
    track,
)
from flower_pca.base import files
from flower_pca.clients import client_app
from flower_pca.results.record import ClientStep, Events, StepRecord, _shares_of_counts

D, R, STEPS = 10, 2, 6
pytestmark = pytest.mark.usefixtures("lines")


def stream(client, *, steps=STEPS, n=12, gaps=0.1, turn=None):
    """Batches of a plane with noise and gaps, which is another plane from step `turn` on."""
    rng, planes = np.random.default_rng([7, client]), np.random.default_rng(7).standard_normal((2, D, R))
    bases = [np.linalg.qr(U)[0] for U in planes]
    batches = []
    for step in range(steps):
        U = bases[int(turn is not None and step >= turn)]
        rows = rng.standard_normal((n, R)) * [9.0, 6.0] @ U.T + 0.1 * rng.standard_normal((n, D))
        batches.append(np.where(rng.random(rows.shape) < gaps, np.nan, rows))
    return batches


def streaming_clients(n=3, **given):
    return [stream(k, **given) for k in range(n)]


def served_parts(parts, names=(), **rules):
    def load(context):
        return Stream(parts[int(context.node_config["partition-id"])])

    grid = FakeGrid(client_app(load, **{"allow": ["st_miss"], "noise_seed": 0, **rules}), len(parts), seed=3)
    for position, name in enumerate(names):
        grid.nodes[grid.node(position)].node_config["name"] = name
    return grid


def without_sites(record):
    return {**record.to_json(), "clients": {k: {**own, "site": ""} for k, own in record.to_json()["clients"].items()}}


def test_a_record_says_what_numpy_says_of_the_batches():
    parts, told = streaming_clients(), []
    parts[1][3] = np.full((12, D), np.nan)  # an outage
    parts[2][4] = None
    result = track(STMiss(detect=True, threshold=1e-9, update_length=1), parts, n_components=R, on_step=told.append)
    assert [record.step for record in told] == [record.batch for record in told] == list(range(STEPS))
    for t, record in enumerate(told):
        there = {k: own[t] for k, own in enumerate(parts) if own[t] is not None and not np.isnan(own[t]).all()}
        every = np.vstack(list(there.values()))
        assert (record.rows, record.deficient) == (len(every), 0)
        assert record.missing_share == pytest.approx(np.isnan(every).mean(), abs=1e-15)
        assert record.outlier_share == 0.0
        assert record.residual == result.residuals_[t]
        assert record.statistic == result.statistics_.get(t)
        assert record.level == result.levels_.get(t)
        assert (record.change is not None) == (t in result.changes_)
        assert (
            record.subspace_change == pytest.approx(result.subspace_change_[t], abs=1e-12)
            if t
            else record.subspace_change is None
        )
        for k, own in record.clients.items():
            assert own.rows == len(there.get(k, ()))
            assert own.missing_share == (pytest.approx(np.isnan(there[k]).mean()) if k in there else None)
        assert list(record.clients) == [0, 1, 2]
    assert told[3].clients[1] == ClientStep(rows=0, missing_share=None, outlier_share=None, residual=None)
    residuals = []
    for k in range(3):  # what least squares on the observed entries leave, row by row
        P, rows = result.components_[1].T, parts[k][2]
        left = [y[o] - P[o] @ np.linalg.lstsq(P[o], y[o], rcond=None)[0] for y in rows if (o := ~np.isnan(y)).any()]
        residuals.append(np.linalg.norm(np.concatenate(left)) / np.sqrt(np.nansum(rows**2)))
    assert [own.residual for own in told[2].clients.values()] == pytest.approx(residuals, rel=1e-9)
    assert "The subspace has changed at step 2: the statistic is" in told[2].change
    assert "an alarm begins at 1e-09." in told[2].change


def test_outliers_are_told_as_a_share_of_what_was_observed():
    parts, told = streaming_clients(2), []
    for own in parts:
        own[2][0, :3] = np.where(np.isnan(own[2][0, :3]), np.nan, 500.0)
    hit = [int((own[2] == 500.0).sum()) for own in parts]
    track(RobustTracking(smallest_outlier=200.0), parts, n_components=R, on_step=told.append)
    seen = [int((~np.isnan(own[2])).sum()) for own in parts]
    assert told[2].outlier_share == sum(hit) / sum(seen)
    assert [own.outlier_share for own in told[2].clients.values()] == [h / s for h, s in zip(hit, seen, strict=True)]
    assert told[1].outlier_share == 0.0


@pytest.mark.slow
def test_under_masks_there_are_the_sums_and_nothing_of_a_client():
    bare, masked = [], []
    track("st_miss", streaming_clients(), n_components=R, on_step=bare.append)
    track("st_miss", streaming_clients(), n_components=R, on_step=masked.append, mask=True)
    for one, two in zip(bare, masked, strict=True):
        assert two.clients == {}
        for name in ("step", "rows", "missing_share", "outlier_share", "deficient"):
            assert getattr(one, name) == getattr(two, name)
        assert two.residual == pytest.approx(one.residual, abs=1e-8)
        assert two.result_so_far().history[0].stage == "mask.keys"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["fit", "start", "hand"])
def test_a_strategy_tells_the_same_and_logs_alarms(by, lines):
    parts, told, reference = streaming_clients(turn=4), [], []
    tracker = {"detect": True, "threshold": 5.0, "update_length": 1}
    track(STMiss(**tracker), parts, n_components=R, on_step=reference.append)
    strategy = strategies.STMiss(**tracker, n_components=R, min_nodes=3, on_step=told.append)
    assert strategy.result_so_far() is None
    grid = served_parts(parts, names=("north", "", "west"))
    if by == "hand":
        for i in itertools.count(1):
            if not (messages := list(strategy.configure_train(i, ArrayRecord(), ConfigRecord(), grid))):
                break
            strategy.aggregate_train(i, grid.send_and_receive(messages))
    else:
        getattr(strategy, by)(grid)
    assert [without_sites(record) for record in told] == [without_sites(record) for record in reference]
    assert [own.site for own in told[0].clients.values()] == ["north", "", "west"]
    assert told[-1].result_so_far().site_names == strategy.result_so_far().site_names == {0: "north", 2: "west"}
    assert len([line for line in lines if line.startswith("The subspace has changed at step 4: ")]) == 1


@pytest.mark.slow
def test_clients_of_virtual_nodes_are_told_one_by_one():
    parts, told = streaming_clients(4), []
    grid = hosts_of([Stream(own) for own in parts], each=2)
    strategies.STMiss(n_components=R, min_nodes=4, hosted="stacked", on_step=told.append).fit(grid)
    assert [list(record.clients) for record in told] == [[0, 1, 2, 3]] * STEPS
    assert strategies.STMiss(n_components=R, mask=True, min_nodes=4, hosted="stacked").result_so_far() is None


@pytest.mark.slow
def test_the_result_so_far_is_that_of_a_run_of_so_many_steps():
    found, half = [], []

    def look(run):
        assert run.result_so_far() is None or run.result_so_far().steps <= STEPS
        half.append(run.result_so_far())

    whole = track(
        STMiss(keep=4),
        streaming_clients(),
        n_components=R,
        on_round=look,
        on_step=lambda r: found.append(r.result_so_far()),
    )
    assert half[0] is None
    for count, result in enumerate(found, 1):
        first = max(count - 4, 0)
        short = track(STMiss(keep=4), streaming_clients(), n_components=R, steps=count)
        assert (result.first_, result.totals_["steps"]) == (first, count)
        assert np.array_equal(result.components_, short.components_)
        assert np.array_equal(result.missing_, short.missing_)
        assert ("the run goes on" in str(result.status)) == (count < STEPS)
    assert np.array_equal(found[-1].components_, whole.components_)


def test_a_run_without_steps_has_no_result_before_its_end():
    seen = []
    rows = np.random.default_rng(0).standard_normal((30, 4)) * [4, 3, 2, 1]
    simulate("krylov", [rows], n_components=1, on_round=lambda run: seen.append(run.result_so_far()))
    assert seen == [None] * len(seen)


@pytest.mark.slow
def test_the_result_so_far_can_be_had_after_a_run_was_broken_off_and_from_another_thread():
    def stop(run):
        if run.position.state.step == 3:
            raise StopError

    strategy, from_elsewhere = strategies.STMiss(n_components=R, min_nodes=3), []

    def look(run):
        thread = threading.Thread(target=lambda: from_elsewhere.append(strategy.result_so_far()))
        thread.start()
        thread.join()
        stop(run)

    with pytest.raises(StopError):
        strategy.fit(served_parts(streaming_clients()), on_round=look)
    assert strategy.result_so_far().steps == 3
    assert from_elsewhere[0] is None
    assert from_elsewhere[-1].steps == 3


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 100])
def test_a_run_that_goes_on_leaves_no_step_out(keep, tmp_path):
    """It is stopped after every message in turn, before what is known is kept and after that."""
    reference, messages = [], []
    track(
        STMiss(keep=keep),
        streaming_clients(2, steps=4),
        n_components=R,
        on_step=reference.append,
        on_round=messages.append,
    )
    for stop_before in (False, True):
        for at in range(1, len(messages)):
            told, path, count = [], tmp_path / f"{at}{stop_before}.npz", [0]

            def tell(record, told=told, count=count, at=at, stop_before=stop_before):
                told.append(record)
                if stop_before and count[0] == at - 1:
                    raise StopError

            def count_up(run, count=count, at=at):
                count[0] += 1
                if count[0] == at:
                    raise StopError

            given = {"n_components": R, "checkpoint": path, "on_step": tell}
            with pytest.raises(StopError):
                track(STMiss(keep=keep), streaming_clients(2, steps=4), on_round=count_up, **given)
            count[0] = -(10**6)
            track(STMiss(keep=keep), streaming_clients(2, steps=4), **given)
            steps = [record.step for record in told]
            again = [one for one, two in itertools.pairwise(steps) if one == two]
            assert list(dict.fromkeys(steps)) == list(range(4))
            assert len(again) <= int(stop_before)
            for record in told:
                same, one = without_sites(reference[record.step]), without_sites(record)
                assert one.pop("subspace_change") in (None, same.pop("subspace_change"))
                assert one == same


@pytest.mark.slow
def test_what_is_filled_in_is_marked_at_the_client_from_the_first_step_on(tmp_path):
    parts = streaming_clients(2)
    parts[0][3][0, 0] = 400.0
    for tracker in (STMiss(refine=True), RobustTracking(smallest_outlier=200.0)):
        streams = [Stream(own, keep=True, out=tmp_path / f"{tracker.name}{k}") for k, own in enumerate(parts)]
        track(tracker, streams, n_components=R)
        for k, (own, kept) in enumerate(zip(parts, streams, strict=True)):
            assert sorted(kept.completed) == list(range(STEPS))
            for t, batch in kept.completed.items():
                assert np.array_equal(batch.missing, np.isnan(own[t]))
                assert batch.missing.any()
                assert np.array_equal(batch.imputed, batch.missing | batch.found)
                assert np.array_equal(batch.rows[~batch.imputed], own[t][~batch.imputed])
                assert np.array_equal(batch.rows[batch.found] + batch.outliers[batch.found], own[t][batch.found])
                with np.load(tmp_path / f"{tracker.name}{k}" / f"batch-{t:06d}.npz") as file:
                    assert np.array_equal(file["missing"], batch.missing)
                    assert np.array_equal(file["found"], batch.found)
        hit = streams[0].completed[3].found
        assert hit[0, 0] == (tracker.name == "robust_tracking")
        assert hit.sum() == hit[0, 0]


@pytest.mark.slow
def test_whoever_is_left_out_is_not_in_the_record():
    parts, told = streaming_clients(), []
    bad = [parts[0], [np.full((12, D), np.inf)] * STEPS, parts[2]]
    strategies.STMiss(n_components=R, min_nodes=2, on_step=told.append).fit(served_parts(bad))
    assert [list(record.clients) for record in told] == [[0, 2]] * STEPS
    assert isinstance(told[0], StepRecord)
    with pytest.raises(NotEnoughNodes, match="the first because: The data of the client at step 0 has 120 infinite"):
        strategies.STMiss(n_components=R, min_nodes=3, node_timeout=0.1, on_step=told.append).fit(served_parts(bad))


def test_the_steps_before_the_first_rows_count_for_the_batch_alone():
    part, told = [None, None, *stream(0)], []
    track("st_miss", [part], n_components=R, on_step=told.append)
    assert [(record.step, record.batch) for record in told] == [(t, t + 2) for t in range(STEPS)]
    assert told[1].subspace_change == pytest.approx(sine(*told[0].result_so_far().components_[:2]), abs=1e-12)


@pytest.mark.slow
def test_the_app_writes_events_and_a_page_into_its_output_folder(tmp_path):
    for k, own in enumerate(streaming_clients(2)):
        np.save(tmp_path / f"{k}.npy", np.vstack(own))
    config = {
        "algorithm": "st_miss", "n-components": R, "output": str(tmp_path / "out"), "min-nodes": 2, "steps": 3,
        "events": "steps.jsonl", "live": "live.html", "checkpoint": "run.ckpt",
    }  # fmt: skip

    def run(**more):
        grid = FakeGrid(app.client_app, 2)
        for k, context in enumerate(grid.nodes.values()):
            context.node_config = {"data": str(tmp_path / f"{k}.npy"), "batch": 12, "allow": "st_miss"}
            context.run_config = {**config, **more}
        app.server_app(grid, Context(1, 0, {}, RecordDict(), {**config, **more}))

    run()
    lines = (tmp_path / "out/steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]
    assert "The run has ended: 3 steps" in (tmp_path / "out/live.html").read_text()
    with pytest.raises(ConfigError, match=r"The event file .*steps\.jsonl already has events\."):
        run()
    with pytest.raises(
        ConfigError, match=r"events shows the steps of a tracker, but krylov has no steps\. Leave events out\."
    ):
        run(algorithm="krylov")


def test_the_files_of_a_client_name_their_columns(tmp_path):
    names = [f"s{j}" for j in range(D)]
    rows = np.vstack(stream(0))
    back = Table(rows[:, ::-1], names=tuple(reversed(names)))
    for k, source in enumerate((back, rows)):
        track("st_miss", [Stream(source, batch=12, out=tmp_path / str(k))], n_components=R, steps=2)
        header, arrays = files.read(tmp_path / str(k) / "batch-000001.npz", "completed batch")
        assert header["columns"] == (None if k else names)
        seen = ~arrays["missing"]
        assert np.array_equal(arrays["rows"][seen], rows[12:24][seen])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (
            {"missing": 1e9},
            "An answer has more missing entries and outliers than its rows have entries: its counts are",
        ),
        (
            {"outliers": 121.0},
            "An answer has more missing entries and outliers than its rows have entries: its counts are",
        ),
        ({"missing": -1.0}, "An answer has a count below 0: its counts are"),
        ({"misfit": 1e139, "energy": 1e-300}, ""),
    ],
)
def test_a_client_that_tells_nonsense_spoils_no_line(lie, words, lines, tmp_path):
    grid, told = served_parts(streaming_clients()), []
    events, liar = Events(tmp_path / "e.jsonl"), grid.node(1)

    def tamper(message, reply):
        if message.metadata.dst_node_id != liar:
            return reply
        return with_arrays(reply, {**arrays_in(reply), **{name: np.array(value) for name, value in lie.items()}})

    def tell(record):
        events(record)
        told.append(record)

    grid.tamper = tamper
    strategies.STMiss(n_components=R, min_nodes=2, on_step=tell).fit(grid)
    assert (1 in told[-1].clients) == (not words)
    assert not words or any(words in line for line in lines)
    found = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [event["step"] for event in found] == list(range(STEPS))
    assert words or found[-1]["clients"]["1"]["residual"] is None


def test_a_client_that_tells_nonsense_has_no_residual():
    for misfit in (-1.0, np.nan, np.inf):
        counts = {"rows": 2, "missing": 0, "outliers": 0, "misfit": misfit, "energy": 1.0}
        assert _shares_of_counts(counts, 3)["residual"] is None
