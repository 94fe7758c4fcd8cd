"""Test trackers under masks: the bases without masks, drop-outs, and clients without rows."""

import re

import numpy as np
import pytest
from builders import interrupt_after
from cases import paired
from fake_grid import FakeGrid, examples_of, in_a_run, listen_to
from masked import step_of
from stepwise import STEPS, R, changing_problem, problem_batches

from flower_pca import (
    ConfigError,
    MaskedSums,
    NotEnoughNodes,
    RobustTracking,
    STMiss,
    Stream,
    assembly,
    client_half,
    registry,
    strategies,
    track,
)
from flower_pca.clients import client_app
from flower_pca.core.stage import Failure, Reply
from flower_pca.data.sources import Arrivals
from flower_pca.masking import messages
from flower_pca.strategies import TrackingStrategy
from sims.over_air import moving

pytestmark = pytest.mark.slow

FIVE = problem_batches(5)
BRIEF = "st_miss(first_products=4, products=2)"  # few sums, but enough to see that masks change nothing


def assert_same_track(masked, plain, within=1e-8):
    assert masked.components_.shape == plain.components_.shape
    assert np.abs(masked.components_ - plain.components_).max() < within
    np.testing.assert_allclose(masked.values_, plain.values_, rtol=within, atol=within)
    np.testing.assert_allclose(masked.residuals_, plain.residuals_, atol=within)
    for figures in ("rows_", "deficient_", "outliers_", "changes_"):
        assert np.array_equal(getattr(masked, figures), getattr(plain, figures))
    assert set(masked.statistics_) == set(plain.statistics_)
    assert str(masked.status) == str(plain.status)


TRACKERS = {
    "krylov": STMiss(),
    "looking for changes": STMiss(detect=True, threshold=0.5, update_length=1),
    "power": STMiss(solver="power", products=5, first_products=12),
    "power, looking for changes": STMiss(
        solver="power", detect=True, threshold=0.5, update_length=1, products=4, first_products=8, qr_every=2
    ),
    "refined": STMiss(refine=True, reuse=1),
    "robust": RobustTracking(smallest_outlier=30.0, refine=True),
}


@pytest.mark.parametrize(("n_clients", "tracker"), paired([5, 2], TRACKERS.values()))
def test_masked_equals_unmasked(n_clients, tracker):
    parts = problem_batches(n_clients)
    plain, masked = (track(tracker, parts, n_components=R, mask=mask) for mask in (False, True))
    assert_same_track(masked, plain)
    assert len(masked.history) == 2 + 2 * len(plain.history)
    if tracker.detect:
        assert 2 in masked.changes_


def test_completed_rows_stay_at_the_client_under_masks():
    hit = np.random.default_rng(0).random((5, STEPS, 12, 24)) < 0.02
    spoilt = [[np.where(h & (t > 0), rows + 90.0, rows) for t, (h, rows) in enumerate(zip(*both, strict=True))]
              for both in zip(hit, FIVE, strict=True)]  # fmt: skip
    kept = []
    for mask in (False, True):
        kept.append([Stream(own, keep=True) for own in spoilt])
        result = track(RobustTracking(smallest_outlier=60.0, refine=True), kept[-1], n_components=R, mask=mask)
    assert result.outliers_.sum() > 0
    for plain, masked in zip(*kept, strict=True):
        assert set(plain.completed) == set(masked.completed) == set(range(STEPS))
        for t in range(STEPS):
            np.testing.assert_allclose(masked.completed[t].rows, plain.completed[t].rows, atol=1e-8)
            assert np.array_equal(masked.completed[t].found, plain.completed[t].found)


def test_a_start_is_taken_over():
    start = track(BRIEF, FIVE, n_components=R)
    plain, masked = (track(BRIEF, FIVE, n_components=R, init=start, mask=mask) for mask in (False, True))
    assert_same_track(masked, plain)


def test_the_power_method_ends_where_fixed_point_leaves_nothing_to_gain():
    parts = moving.piecewise(n=1000, r=10, d=120, change=120, rho=0.1, seed=0).batches(10)
    tracker = STMiss(solver="power", tol=1e-12, products=40)
    plain, masked = (track(tracker, parts, n_components=10, mask=mask) for mask in (False, True))
    assert len(masked.history) < 2.5 * len(plain.history) + 10  # 134 for 20 if all products were taken
    assert_same_track(masked, plain)


@pytest.mark.parametrize("make", [list, lambda own: own.__getitem__, iter], ids=["list", "function", "iterator"])
def test_clients_without_rows_send_zeros_of_the_right_size(make):
    parts = [list(own) for own in FIVE]
    parts[0][0] = parts[3][0] = parts[1][2] = None
    settings = {"n_components": R, "steps": STEPS}
    plain = track(BRIEF, parts, **settings)
    masked = track(BRIEF, [make(own) for own in parts], **settings, mask=True)
    assert_same_track(masked, plain)
    assert masked.rows_.tolist() == [36, 60, 48, 60]
    assert [r.answered for r in masked.history] == [5] * len(masked.history)


def test_a_step_with_few_rows_and_rows_with_few_columns_are_as_without_masks():
    few = [[own[0], own[1][:1] if k == 0 else None, own[2]] for k, own in enumerate(FIVE)]
    narrow = [[rows[:, :R] for rows in own] for own in FIVE]
    for parts in (few, narrow):
        plain, masked = (track("st_miss(oversample=4)", parts, n_components=R, mask=mask) for mask in (False, True))
        assert_same_track(masked, plain)


def test_columns_that_differ_are_named_at_the_set_up():
    streams = [own.__getitem__ for own in FIVE]
    streams[2] = lambda t: FIVE[2][t][:, :20]
    masked = track(BRIEF, streams, n_components=R, steps=2, mask=True)
    assert masked.history[0].failures == {
        "2": "The columns of client 2 do not fit: there are 20 instead of the 24 of the run. Give all clients the "
        "same columns."
    }
    assert masked.rows_.tolist() == [48, 48]
    assert masked.history[-1].asked == 4


def test_batches_of_any_size_are_summed_whatever_came_before():
    sizes = [1.0, 1e9, 1e-3, 1e6]
    parts = [[size * rows for size, rows in zip(sizes, own, strict=True)] for own in FIVE]
    plain, masked = (track(BRIEF, parts, n_components=R, mask=mask) for mask in (False, True))
    np.testing.assert_allclose(masked.components_, plain.components_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(masked.values_, plain.values_, rtol=1e-8)


class Steps:
    """A masked run of steps by hand; `uploads` are the plain answers, with the bounds they were told."""

    def __init__(self, parts, tracker, **settings):
        self.streams, self.memories = [Stream(own) for own in parts], [{} for _ in parts]
        self.session = assembly.tracking(registry.tracker(tracker), mask=True, n_components=R, **settings)
        self.uploads, self.sent, self.came = [], [], []

    def step(self, present, lost=()):
        message = self.session.pending(present)
        if message is None:
            return False
        replies = []
        self.sent.append(message)
        self.came.append({})
        for i in message.to:
            arrays = message.arrays_for(i)
            stage = messages.inner_stage(arrays)
            up, after = client_half.answer(message.stage, arrays, self.streams[i], self.memories[i])
            if stage is not None:
                plain = client_half.answer(
                    stage, messages.stage_arrays(arrays), self.streams[i], messages.stage_arrays(after)
                )[0]
                self.uploads.append((messages.bounds_in_message(arrays), plain))
            self.memories[i] = after
            self.came[-1][i] = up
            replies.append(Failure(i, "lost") if i in lost else Reply(i, message.number, up))
        self.session.advance(replies)
        return True


@pytest.mark.parametrize("name", ["power, looking for changes", "robust"])
def test_a_bound_that_follows_from_the_sums_holds_for_the_rows_they_are_of(name):
    """Rows with so few entries left that their completion by an unlucky basis is far larger than they are."""
    rng = np.random.default_rng(1)
    parts = [
        [np.where(rng.random(rows.shape) < 0.8, np.nan, rows) * 10.0**t for t, rows in enumerate(own)] for own in FIVE
    ]
    run = Steps(parts, TRACKERS[name], steps=STEPS)
    while run.step(range(5)):
        pass
    products = [(told["S"], up) for told, up in run.uploads if "S" in told]
    bounded = [(bound, up["S"]) for bound, up in products if bound.all()]
    assert all((np.abs(S) <= bound).all() for bound, S in bounded)
    assert len(bounded) > len(products) / 2
    assert max(np.abs(up["S"]).max() / up["energy"] for _, up in products) > 10.0


def test_nothing_but_sums_is_told_in_the_clear():
    run = Steps(FIVE, BRIEF, steps=2)
    while run.step(range(5)):
        pass
    told = {name for answers in run.came for arrays in answers.values() for name in arrays}
    keys = {"mask.exchange", "mask.key", "mask.signature", "mask.agreed", "mask.shares", "mask.selves", "mask.keys"}
    assert told == keys | {"mask.d", "mask.y", "mask.past", "mask.earlier", "mask.kept"}
    down = {name for message in run.sent for name in message.arrays if not name.startswith("mask.")}
    assert down == {"step", "lap", "refine", "seed", "width", "d", "P", "block"}


@pytest.mark.parametrize(("tracker", "seed"), [(STMiss(refine=True, reuse=1, products=3), 2)])
def test_clients_that_drop_out_and_come_back_at_any_message(tracker, seed):
    """Of eight, two are away or unheard for some messages, then two others; a step takes those that answer it."""
    parts, rng = problem_batches(8, seed=seed), np.random.default_rng(seed)
    run, number = Steps(parts, tracker), 0
    while number < 1000:
        if number % 6 == 0:
            pair = set(rng.choice(8, 2, replace=False).tolist())
        away, lost = ({i for i in pair if rng.random() < 0.2} for _ in range(2))
        if not run.step([i for i in range(8) if i not in away], lost):
            break
        number += 1
    result, truth = run.session.result(), changing_problem(8, seed=seed).truth
    assert (result.rows_ >= 60).all()
    assert result.subspace_error(truth[0])[1] < 0.2
    assert result.subspace_error(truth[-1])[3] < 0.2
    assert np.abs(result.components_ @ result.components_.transpose(0, 2, 1) - np.eye(R)).max() < 1e-12
    assert len(result.history.of("mask.keys")) > 1


def test_a_client_that_is_gone_for_good_is_missing_from_the_sums_only():
    run = Steps(FIVE, BRIEF)
    while run.session.position.state.step < 2:
        run.step(range(5))
    keys = len(run.session.history.of("mask.keys"))
    while run.step([0, 1, 2, 4]):
        pass
    rest = [[None if k == 3 and t > 1 else rows for t, rows in enumerate(own)] for k, own in enumerate(FIVE)]
    plain, masked = track(BRIEF, rest, n_components=R), run.session.result()
    assert masked.rows_.tolist() == [60, 60, 48, 48]
    assert np.abs(masked.components_ - plain.components_).max() < 1e-6
    assert len(masked.history.of("mask.keys")) == keys == 1


def test_below_the_threshold_and_alone_the_run_ends():
    run = Steps(FIVE, BRIEF)
    for _ in range(6):
        run.step(range(5))
    with pytest.raises(NotEnoughNodes, match=r"^Too few clients are ready for a masked sum: 2, but at least 3"):
        run.step([0, 1])
    with pytest.raises(NotEnoughNodes, match="A masked sum needs at least 2 clients, but 1 of the 1 clients answered"):
        track(BRIEF, FIVE[:1], n_components=R, mask=True)


def test_a_bound_of_ones_own_is_one_of_products_only():
    plain, masked = (track(BRIEF, FIVE, n_components=R, mask=mask) for mask in (False, MaskedSums(bound=1e8)))
    assert_same_track(masked, plain)
    wide = track(BRIEF, FIVE, n_components=R, mask=True)
    assert masked.history.bytes_up < wide.history.bytes_up


def test_a_run_goes_on_from_a_checkpoint_of_its_kind(tmp_path):
    path = tmp_path / "run.ckpt"
    whole = track(BRIEF, FIVE, n_components=R, mask=True)

    def run(stop, mask=True):
        return track(BRIEF, FIVE, n_components=R, mask=mask, checkpoint=path, on_round=interrupt_after(stop))

    for stop in (3, 4, 9, 16):  # stop within the first sum, after it, and later
        with pytest.raises(KeyboardInterrupt):
            run(stop)
    with pytest.raises(ConfigError, match=r"belongs to another run, with mask=.MaskedSums"):
        run(0, mask=False)
    resumed = run(0)
    assert_same_track(resumed, whole)
    assert not path.exists()


def grid_of_streams(streams, **rules):
    made = [Stream(own) if isinstance(own, list) else own for own in streams]
    given = {"allow": ["st_miss", "robust_tracking"], "noise_seed": 0, **rules}
    return FakeGrid(client_app(lambda c: made[int(c.node_config["partition-id"])], **given), len(made))


@pytest.mark.usefixtures("lines")
def test_over_flower_it_is_the_same_to_the_bit_and_tells_no_count():
    own = {"detect": True, "update_length": 1, "refine": True, "products": 3, "first_products": 6}
    grid = grid_of_streams(FIVE, masked_only=True)
    told = listen_to(grid, examples_of)
    masks = MaskedSums(threshold=0.6)
    result = strategies.STMiss(**own, n_components=R, min_nodes=5, mask=masks).fit(grid)
    simulated = track(STMiss(**own), FIVE, n_components=R, mask=masks)
    for array in ("components_", "values_", "residuals_", "changes_"):
        assert np.array_equal(getattr(result, array), getattr(simulated, array))
    assert set(told) == {0}


def test_nodes_that_answer_under_masks_only_refuse_a_tracker_without():
    with in_a_run(), pytest.raises(NotEnoughNodes, match="answers masked messages only"):
        TrackingStrategy(n_components=R, min_nodes=2, node_timeout=0.1).fit(grid_of_streams(FIVE, masked_only=True))


@pytest.mark.usefixtures("lines")
def test_a_node_that_forgets_takes_its_batch_anew_after_a_new_set_up():
    grid, done = grid_of_streams(FIVE), []

    def forget(message):
        if not done and step_of(message) == (2, 4):
            grid.forget(grid.node(1))
            done.append(message)

    grid.on_push = forget
    result = TrackingStrategy(n_components=R, min_nodes=5, mask=True).fit(grid)
    reference = track("st_miss", FIVE, n_components=R)
    assert np.abs(result.components_ - reference.components_).max() < 1e-5
    assert result.rows_.tolist() == [60] * STEPS
    assert len(result.history.of("mask.keys")) == 2


@pytest.mark.usefixtures("lines")
def test_folders_are_taken_at_their_own_pace_and_results_stay_at_the_node(tmp_path):
    for k in range(3):
        (tmp_path / f"in{k}").mkdir()
        for t, rows in enumerate(FIVE[k][:2]):
            if (k, t) != (2, 0):
                np.save(tmp_path / f"in{k}" / f"{t:03}.npy", rows)
    (tmp_path / "in2/001.npy").rename(tmp_path / "later")

    def arrive(session):
        if session.position.state.step == 1 and (tmp_path / "later").exists():
            (tmp_path / "later").rename(tmp_path / "in2/001.npy")

    streams = [Stream(Arrivals(tmp_path / f"in{k}")) for k in range(3)]
    grid = grid_of_streams(streams, output_dir=tmp_path / "own", memory_dir=tmp_path / "memory")
    result = TrackingStrategy(n_components=R, steps=3, min_nodes=3, mask=True).fit(grid, on_round=arrive)
    own = [[*FIVE[0][:2], None], [*FIVE[1][:2], None], [None, FIVE[2][1], None]]
    assert_same_track(result, track("st_miss", own, n_components=R, steps=3))
    for k, batches_of in enumerate([[0, 1], [0, 1], [1]]):
        written = sorted(p.name for p in (tmp_path / f"own/flower_pca-local-{k}").iterdir())
        assert written == [f"batch-{t:06d}.npz" for t in batches_of]


@pytest.mark.usefixtures("lines")
def test_a_server_that_is_started_again_goes_on_after_a_new_set_up(tmp_path):
    grid, path = grid_of_streams(FIVE), tmp_path / "server.npz"
    few = {"products": 2, "first_products": 4}
    strategy = strategies.STMiss(**few, n_components=R, min_nodes=5, mask=True, checkpoint=path)
    for stop in (3, 8, 13):
        with pytest.raises(KeyboardInterrupt):
            strategy.fit(grid, on_round=interrupt_after(stop))
    result = strategy.fit(grid)
    assert_same_track(result, track(STMiss(**few), FIVE, n_components=R))
    assert len(result.history.of("mask.keys")) == 4


@pytest.mark.usefixtures("lines")
def test_a_node_with_rows_at_rest_is_left_out_by_name():
    held = [*(Stream(own) for own in FIVE[:3]), np.vstack(FIVE[3])]
    grid = grid_of_streams(held)
    node = str(grid.node(3))
    result = TrackingStrategy(n_components=R, steps=2, min_nodes=3, mask=True).fit(grid)
    (reason,) = {r.failures[node] for r in result.history if node in r.failures}
    assert re.match("st_miss works on a Stream, but this client has plain rows", reason)
    assert result.rows_.tolist() == [36, 36]
