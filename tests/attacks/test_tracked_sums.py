"""Test trackers under masks against a server that lets steps, laps and batches of clients diverge."""

import numpy as np
import pandas as pd
import pytest
from dishonest import RefusedError, Sums, error_of, signed

from flower_pca import ProtocolError, Stream
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D, R, BATCH, VICTIM = 8, 2, 30, 1
RNG = np.random.default_rng(0)
ROWS = [RNG.standard_normal((4 * BATCH, D)) * 0.8 ** np.arange(D) for _ in range(4)]
P = np.linalg.qr(RNG.standard_normal((D, R)))[0]
Q = np.linalg.qr(RNG.standard_normal((D, R)))[0]
COUNTS = ("rows", "left", "misfit", "energy", "deficient", "outliers", "missing")
SHAPES = {"S": (D, R), **dict.fromkeys(COUNTS, ())}
BOUNDS = dict.fromkeys(SHAPES, 1e6)


def step_message(step=0, lap=0, block=P, **more):
    return {"step": step, "lap": lap, "refine": False, "block": block, **more}


def sums_in(folder):
    nodes = signed(folder, [Stream(rows, batch=BATCH) for rows in ROWS], allow="st_miss")
    return Sums(nodes, algorithm="st_miss")


def product_of_all(step, block=P):
    parts = [rows[step * BATCH : (step + 1) * BATCH] for rows in ROWS]
    return sum(X.T @ (X @ block) for X in parts)


def victims_product(step, block=P):
    X = ROWS[VICTIM][step * BATCH : (step + 1) * BATCH]
    return X.T @ (X @ block)


def tracked_sum(sums, given, told=None):
    return sums.sum("st_miss", given, SHAPES, BOUNDS, told=told)


@pytest.mark.slow
def test_an_honest_sum_is_that_of_all(tmp_path):
    sums = sums_in(tmp_path)
    assert error_of(tracked_sum(sums, step_message())["S"], product_of_all(0)) < 1e-9
    assert error_of(tracked_sum(sums, step_message(1))["S"], product_of_all(1)) < 1e-9


APART = {
    "step": (step_message(0), step_message(1)),
    "lap": (step_message(0, 1), step_message(0)),
    "block": (step_message(0), step_message(0, block=Q)),
    "basis": (step_message(0, P=P), step_message(0, P=Q)),
    "with a basis or without": (step_message(0, P=P), step_message(0)),
    "width": (step_message(0), {**step_message(0), "width": R, "seed": 1}),
    "refined or not": ({**step_message(0), "refine": True}, step_message(0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("difference", APART)
def test_what_differs_in_a_message_gives_noise(difference, tmp_path):
    first, rest = APART[difference]
    sums = sums_in(tmp_path)
    with pytest.raises(ProtocolError, match="noise"):
        tracked_sum(sums, rest, told={VICTIM: first})
    with pytest.raises(ProtocolError, match="noise"):  # The next message fails too, although it is the same for all.
        tracked_sum(sums, step_message(2))


@pytest.mark.slow
def test_a_step_comes_again_under_masks_of_its_own(tmp_path):
    """Replayed or out of order: each sum is of all, whatever was asked before."""
    sums = sums_in(tmp_path)
    for step in (2, 0, 0, 3, 1, 2):
        assert error_of(tracked_sum(sums, step_message(step))["S"], product_of_all(step)) < 1e-9


@pytest.mark.slow
def test_a_step_at_which_one_node_alone_has_rows_tells_them(tmp_path):
    """Masks do not know of it: streams that end together have no such step."""
    streams = [Stream(rows if i == VICTIM else rows[: 2 * BATCH], batch=BATCH) for i, rows in enumerate(ROWS)]
    sums = Sums(signed(tmp_path, streams, allow="st_miss"), algorithm="st_miss")
    assert error_of(tracked_sum(sums, step_message(1))["S"], victims_product(1)) > 0.5
    assert error_of(tracked_sum(sums, step_message(2))["S"], victims_product(2)) < 1e-9


ROBUST = {
    "the smallest outlier": (step_message(0, P=P, smallest=1.0), step_message(0, P=P, smallest=1.0 + 1e-15)),
    "one or each row's own": (step_message(0, P=P, smallest=1.0), step_message(0, P=P)),
    "a lap more": (step_message(0, 1, P=P, smallest=1.0), step_message(0, P=P, smallest=1.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("difference", ROBUST)
def test_what_differs_for_robust_tracking_gives_noise(difference, tmp_path):
    """Else a node could be asked with a threshold that takes a row of its own apart."""
    first, rest = ROBUST[difference]
    nodes = signed(tmp_path, [Stream(rows, batch=BATCH) for rows in ROWS], allow="robust_tracking")
    sums = Sums(nodes, algorithm="robust_tracking")
    assert np.isfinite(sums.sum("robust_tracking", rest, SHAPES, BOUNDS)["S"]).all()
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum("robust_tracking", rest, SHAPES, BOUNDS, told={VICTIM: first})
    with pytest.raises(ProtocolError, match="noise"):  # the same message again, for all clients
        sums.sum("robust_tracking", rest, SHAPES, BOUNDS)


def told_by_a_new_set_up(first, given):
    """What all answer to the same message in a new set-up of the run; None if that comes to nothing."""
    again = Sums(first.nodes, algorithm="st_miss", run=first.run)
    try:
        return tracked_sum(again, given)["S"]
    except (ProtocolError, RefusedError):
        return None


def of_all_or_nothing(found, step):
    if found is not None:
        assert error_of(found, product_of_all(step)) < 1e-9
        assert error_of(found, victims_product(step)) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "step"), [(step_message(1), 1), (step_message(0), 0), (step_message(0, 1), 0), (step_message(2), 2)]
)
def test_a_node_that_has_missed_a_step_tells_nothing_by_the_next(late, step, tmp_path):
    sums = sums_in(tmp_path)
    tracked_sum(sums, step_message(0))
    there = sums.sum("st_miss", step_message(1), SHAPES, BOUNDS, lost=(VICTIM,))
    assert error_of(there["S"], product_of_all(1) - victims_product(1)) < 1e-9
    of_all_or_nothing(told_by_a_new_set_up(sums, late), step)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 1])
def test_a_node_whose_memory_was_moved_is_not_told_by_a_new_set_up(step, tmp_path):
    """Its batch was completed from another basis, in a sum that came to noise."""
    first = sums_in(tmp_path)
    with pytest.raises(ProtocolError, match="noise"):
        tracked_sum(first, step_message(0, P=P), told={VICTIM: step_message(0, P=Q)})
    of_all_or_nothing(told_by_a_new_set_up(first, step_message(step, P=P)), step)


class OtherColumns(Sums):
    """Sums in which one client is asked for the same columns in another order."""

    names: tuple[tuple[str, ...], ...] = ()

    def send(self, i, arrays, frame=None):
        return super().send(i, arrays, None if frame is None else Frame(names=self.names[i == VICTIM]))


@pytest.mark.slow
def test_columns_in_another_order_give_noise(tmp_path):
    """Else a node of a stream with names would answer of other columns, and the difference of two sums be its own."""
    named = [pd.DataFrame(rows, columns=list("abcdefgh")) for rows in ROWS]
    nodes = signed(tmp_path, [Stream(rows, batch=BATCH) for rows in named], allow="st_miss")
    sums = OtherColumns(nodes, algorithm="st_miss")
    sums.names = (tuple("abcdefgh"),) * 2
    assert error_of(tracked_sum(sums, step_message())["S"], product_of_all(0)) < 1e-9
    sums.names = (tuple("abcdefgh"), tuple("hbcdefga"))
    with pytest.raises(ProtocolError, match="noise"):
        tracked_sum(sums, step_message(1))
