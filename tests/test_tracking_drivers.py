"""Test trackers over Flower's messages: the bits of track(), changing nodes, folders, and the app."""

import warnings

import numpy as np
import pytest
from builders import StopError, stop_after
from fake_grid import FakeGrid, arrays_in, with_arrays

from flower_pca import AirChannel, STMiss, Stream, TrackingResult, assembly, client_half, strategies, track
from flower_pca.base.errors import NotEnoughNodes, ProtocolError
from flower_pca.clients import PCAClient, STMissClient, client_app
from flower_pca.core.stage import Failure, Reply
from flower_pca.data.sources import Arrivals
from flower_pca.strategies import TrackingStrategy, arrays_of
from sims.over_air import moving

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import ArrayRecord, Context, RecordDict

    from flower_pca import app

pytestmark = pytest.mark.usefixtures("lines")

R = 4
PROBLEM = moving.piecewise(n=60, r=R, d=480, change=240, rho=0.1, seed=0)
BATCHES = PROBLEM.batches(3)


def serve(streams, **rules):
    given = {"allow": ["st_miss", "robust_tracking"], "noise_seed": 0, **rules}
    return client_app(lambda context: streams[int(context.node_config["partition-id"])], **given)


def fresh_streams():
    return [Stream(b) for b in BATCHES]


def small_rows():
    return [np.random.default_rng(i).standard_normal((30, 6)) * [6, 5, 1, 1, 1, 1] for i in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("STMiss", {"detect": True, "update_length": 3, "refine": True}),
        ("STMiss", {"solver": "power", "reuse": 1, "products": 4, "first_products": 8}),
        ("RobustTracking", {"smallest_outlier": 50.0, "products": 4}),
    ],
)
def test_a_named_strategy_gives_the_bits_of_track(name, own):
    strategy = getattr(strategies, name)
    run = {"n_components": R, "channel": AirChannel(noise_std=1e-3, seed=4), "seed": 2}
    result = strategy(**own, **run, min_nodes=3).fit(FakeGrid(serve(fresh_streams()), 3, seed=1))
    spec = f"{strategy.name}({', '.join(f'{k}={v!r}' for k, v in own.items())})"
    reference = track(spec, [list(b) for b in BATCHES], **run)
    for array in ("components_", "values_", "residuals_", "changes_"):
        assert np.array_equal(getattr(result, array), getattr(reference, array))
    assert [r.stage for r in result.history] == [r.stage for r in reference.history]


@pytest.mark.slow
def test_start_returns_flowers_result():
    strategy = TrackingStrategy("st_miss", n_components=R, steps=2, min_nodes=3)
    outcome = strategy.start(FakeGrid(serve(fresh_streams()), 3), ArrayRecord())
    reference = track("st_miss", [list(b) for b in BATCHES], n_components=R, steps=2)
    assert np.array_equal(outcome.arrays["components"].numpy(), reference.components_)
    assert set(arrays_of(reference)) == {"components", "values", "changes"}


@pytest.mark.slow
def test_a_node_lost_for_good_and_a_message_lost_do_not_spoil_the_run():
    grid = FakeGrid(serve(fresh_streams()), 3)
    lost = iter([False] * 7 + [True] + [False] * 10**4)
    grid.tamper = lambda message, reply: None if next(lost) else reply
    gone = grid.node(2)

    def kill(message):
        if len(grid.sent) == 25 and gone in grid.nodes:
            grid.kill(gone)

    grid.on_push = kill
    result = TrackingStrategy("st_miss", n_components=R, min_nodes=2, round_timeout=0.3).fit(grid)
    assert result.rows_[-1] == 40
    assert result.subspace_error(PROBLEM.truth)[[3, -1]].max() < 0.05


def test_a_node_that_answers_with_another_number_of_columns_is_left_out():
    rows = small_rows()
    grid = FakeGrid(serve([Stream(X, batch=30) for X in rows]), 3)

    def tamper(message, reply):
        arrays = arrays_in(reply)
        if message.metadata.dst_node_id != grid.node(1) or "S" not in arrays:
            return reply
        return with_arrays(reply, {**arrays, "S": arrays["S"][:, :-1]})

    grid.tamper = tamper
    result = TrackingStrategy("st_miss", n_components=2, steps=1, min_nodes=2, node_timeout=0.1).fit(grid)
    assert "a matrix S of 3 columns, but the server asked for 4" in result.left_out[1].why
    kept = track("st_miss", [[rows[0]], [rows[2]]], n_components=2)
    np.testing.assert_allclose(np.abs(result.components_[0] @ kept.components_[0].T), np.eye(2), atol=1e-6)


@pytest.mark.slow
def test_a_node_that_lost_its_memory_reads_its_batch_again():
    grid = FakeGrid(serve(fresh_streams()), 3)
    forgets = iter(range(10**6))

    def forget(message):
        if next(forgets) % 4 == 0:
            grid.forget(grid.node(1))

    grid.on_push = forget
    result = TrackingStrategy("st_miss", n_components=R, min_nodes=3).fit(grid)
    reference = track("st_miss", [list(b) for b in BATCHES], n_components=R)
    assert np.array_equal(result.components_, reference.components_)


@pytest.mark.slow
def test_folders_are_taken_at_their_own_pace_and_results_stay_at_the_node(tmp_path):
    for k in range(2):
        (tmp_path / f"in{k}").mkdir()
        for t, rows in enumerate(BATCHES[k][:3]):
            np.save(tmp_path / f"in{k}" / f"{t:03}.npy", rows)
    later = BATCHES[1][3]

    def arrive(session):
        if session.position.state.step == 3:
            np.save(tmp_path / "in1/003.npy", later)

    streams = [Stream(Arrivals(tmp_path / f"in{k}")) for k in range(2)]
    grid = FakeGrid(serve(streams, output_dir=tmp_path / "own", min_rows=2), 2)
    result = TrackingStrategy("st_miss", n_components=R, steps=5, min_nodes=2).fit(grid, on_round=arrive)
    assert result.rows_.tolist() == [40, 40, 40, 20, 0]
    own = [list(BATCHES[0][:3]) + [None] * 2, [*BATCHES[1][:4], None]]
    assert np.array_equal(result.components_, track("st_miss", own, n_components=R, steps=5).components_)
    written = sorted(p.name for p in (tmp_path / "own/flower_pca-local-1").iterdir())
    assert written == [f"batch-{t:06d}.npz" for t in range(4)]
    with np.load(tmp_path / "own/flower_pca-local-1/batch-000002.npz") as file:
        seen = ~np.isnan(BATCHES[1][2])
        assert np.array_equal(file["rows"][seen], BATCHES[1][2][seen])
        assert np.isfinite(file["rows"]).all()


def test_steps_keep_their_interval(monkeypatch):
    slept = []
    monkeypatch.setattr("flower_pca.strategies.nodes.time.sleep", slept.append)
    streams = [Stream(X, batch=10) for X in small_rows()]
    TrackingStrategy("st_miss", n_components=2, steps=3, interval=500.0, min_nodes=3).fit(FakeGrid(serve(streams), 3))
    assert len([s for s in slept if 400.0 < s <= 500.0]) == 2


@pytest.mark.slow
def test_a_bad_batch_and_a_wrong_kind_of_data_are_refused_by_name(lines):
    bad = [fresh_streams()[0], fresh_streams()[1], Stream([np.full((20, 60), np.inf)] * 8)]
    result = TrackingStrategy("st_miss", n_components=R, min_nodes=2).fit(FakeGrid(serve(bad), 3))
    assert result.rows_[0] == 40
    assert any("The data of the client at step 0 has 1200 infinite entries" in line for line in lines)
    with pytest.raises(NotEnoughNodes, match="st_miss works on a Stream, but this client has plain rows"):
        TrackingStrategy("st_miss", n_components=R, min_nodes=2, node_timeout=0.1).fit(
            FakeGrid(serve([np.eye(60)] * 2), 2)
        )
    grid = FakeGrid(serve(fresh_streams(), allow=["krylov"]), 2)
    with pytest.raises(NotEnoughNodes, match="opening works on plain rows, but this client has a Stream"):
        strategies.Krylov(n_components=R, min_nodes=2, node_timeout=0.1).fit(grid)


def test_a_node_serves_the_trackers_it_allows():
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    assert PCAClient(fresh_streams()[0], context=context).get_properties({})["algorithms"] == ""
    both = PCAClient(fresh_streams()[0], context=context, allow=["st_miss", "robust_tracking"])
    assert both.get_properties({})["algorithms"] == "robust_tracking,st_miss"
    assert STMissClient(fresh_streams()[0], context=context).get_properties({})["algorithms"] == "st_miss"
    grid = FakeGrid(serve(fresh_streams(), allow=["robust_tracking"]), 2)
    with pytest.raises(NotEnoughNodes, match="This node does not serve"):
        TrackingStrategy("st_miss", n_components=R, min_nodes=2, node_timeout=0.1).fit(grid)


@pytest.mark.slow
def test_a_server_that_is_started_again_goes_on(tmp_path):
    grid, path = FakeGrid(serve(fresh_streams()), 3), tmp_path / "server.npz"
    strategy = strategies.STMiss(n_components=R, steps=4, min_nodes=3, checkpoint=path)
    with pytest.raises(StopError):
        strategy.fit(grid, on_round=stop_after(6))
    result = strategies.STMiss(n_components=R, steps=4, min_nodes=3, checkpoint=path).fit(grid)
    reference = track("st_miss", [list(b) for b in BATCHES], n_components=R, steps=4)
    assert np.array_equal(result.components_, reference.components_)


@pytest.mark.slow
def test_the_app_runs_a_tracker_in_simulation_and_on_nodes_of_their_own(tmp_path):
    np.save(tmp_path / "all.npy", PROBLEM.Y[:240])
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder/0.npy", BATCHES[0][0])
    np.save(tmp_path / "one.npy", np.vstack(BATCHES[1][:2]))
    config = {"algorithm": "st_miss(reuse=1)", "n-components": R, "output": str(tmp_path / "out"), "min-nodes": 2}

    def run(nodes, **more):
        grid = FakeGrid(app.client_app, 2)
        for context, node_config in zip(grid.nodes.values(), nodes, strict=True):
            context.node_config, context.run_config = node_config, {**config, **more}
        app.server_app(grid, Context(1, 0, {}, RecordDict(), {**config, **more}))
        return TrackingResult.load(tmp_path / "out/result.npz")

    nodes = [{"data": str(tmp_path / "folder")}, {"data": str(tmp_path / "one.npy"), "batch": 20}]
    nodes = [{**node, "allow": "st_miss"} for node in nodes]
    result = run(nodes, steps=2)
    own = [[BATCHES[0][0], None], BATCHES[1][:2]]
    assert np.array_equal(result.components_, track(STMiss(reuse=1), own, n_components=R, steps=2).components_)
    masked = run(nodes, steps=2, mask=True)
    assert np.abs(masked.components_ - result.components_).max() < 1e-8
    assert masked.history[0].stage == "mask.keys"
    simulated = [{"partition-id": i, "num-partitions": 2} for i in range(2)]
    more = {"data": str(tmp_path / "all.npy"), "partition": "contiguous", "batch": 30, "steps": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "_in_simulation", lambda: True)
        result = run(simulated, **more)
    halves = [PROBLEM.Y[:120], PROBLEM.Y[120:240]]
    expected = track(STMiss(reuse=1), halves, n_components=R, batch=30)
    assert np.array_equal(result.components_, expected.components_)


def test_columns_that_differ_are_refused_at_the_first_and_at_a_later_step():
    shards = [lambda t: np.ones((6, 3)) + np.eye(6, 3) * t, lambda t: np.eye(6, 4)]
    grid = FakeGrid(serve([Stream(s) for s in shards]), 2)
    result = TrackingStrategy("st_miss", n_components=1, steps=2, min_nodes=1).fit(grid)
    assert result.n_features_in_ in (3, 4)
    assert result.rows_.tolist() == [6, 6]
    later = FakeGrid(serve([Stream(shards[0]), Stream(lambda t: None if t == 0 else np.eye(6, 4))]), 2)
    result = TrackingStrategy("st_miss", n_components=1, steps=2, min_nodes=1).fit(later)
    assert result.rows_.tolist() == [6, 6]
    with pytest.raises(ProtocolError, match="ssi works on plain rows, but this client has a Stream"):
        client_half.answer("ssi", {}, Stream(shards[0]), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "tracker",
    [STMiss(), STMiss(solver="power", detect=True, update_length=2, products=4), STMiss(reuse=1, refine=True)],
    ids=["krylov", "power", "refined"],
)
def test_a_set_that_changes_at_every_message_comes_to_an_end(tracker):
    for seed in range(3):
        rng, streams, kept = np.random.default_rng(seed), [Stream(b) for b in PROBLEM.batches(4)], [{} for _ in "abcd"]
        session = assembly.tracking(tracker, n_components=R, seed=seed)
        while (message := session.pending([i for i in range(4) if i == 0 or rng.random() > 0.1])) is not None:
            replies = []
            for i in message.to:
                kept[i] = {} if rng.random() < 0.05 else kept[i]  # a node that has lost its memory
                up, kept[i] = client_half.answer(message.stage, message.arrays_for(i), streams[i], kept[i])
                lost = rng.random() < 0.1
                replies.append(Failure(i, "lost") if lost else Reply(i, message.number, up))
            session.advance(replies)
        result = session.result()
        assert len(result.history) <= 60 + 8 * (1 + tracker.reuse) * (10 + 16)
        assert result.subspace_error(PROBLEM.truth)[[3, 7]].max() < 0.05
        assert np.abs(result.components_ @ result.components_.transpose(0, 2, 1) - np.eye(R)).max() < 1e-12
